//! Charts without a script: the phases of a typical volume, and the distribution of the durations of each phase.
//! Pure: markup.

use claimcheck_model::Phase;
use maud::{Markup, html};

use super::{super::tables::human, timelines::Times};

/// A phase of a typical volume: medians, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub phase: Phase,
    pub total: f64,
    /// The driver's part of it; none if its calls were not observed.
    pub driver: Option<f64>,
}

/// The phases until the pod is ready.
pub(crate) const UP: [Phase; 7] = [
    Phase::Provision,
    Phase::Bind,
    Phase::Schedule,
    Phase::Attach,
    Phase::Stage,
    Phase::Publish,
    Phase::Start,
];
/// The phases after the deletion of the pod.
pub(crate) const DOWN: [Phase; 5] =
    [Phase::Stop, Phase::Unpublish, Phase::Unstage, Phase::Detach, Phase::Delete];

/// The number of columns of a distribution.
const COLUMNS: usize = 72;

/// A phase's colour is a class of the style sheet.
pub(super) fn colour(phase: Phase) -> String {
    format!("p-{}", phase.name())
}

/// The total duration of these, seconds.
pub(super) fn whole(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.total).sum()
}

/// A waterfall: each step below and right of the previous one, with start and duration, the driver's part in full
/// colour and Kubernetes' pale. `whole` seconds fill the width; a list that is styled as a chart.
pub(super) fn waterfall(steps: &[Step], whole: f64) -> Markup {
    let part = |seconds: f64| if whole > 0.0 { seconds / whole * 100.0 } else { 0.0 };
    let starts = steps.iter().scan(0.0, |next, step| Some(std::mem::replace(next, *next + step.total)));
    html! {
        ol.waterfall {
            @for (step, began) in steps.iter().zip(starts) {
                @let driver = step.driver.map(|driver| driver.min(step.total)).filter(|driver| *driver > 0.0);
                li.(colour(step.phase)) title=(step.phase.info().doc) {
                    span.name { (step.phase.name()) }
                    span.lane style=(format!("--from:{:.2}%;--long:{:.2}%", part(began), part(step.total))) {
                        span.kubernetes {}
                        @if let Some(driver) = driver { span.driver style=(format!("--long:{:.2}%", part(driver))) {} }
                        span.value {
                            (human(step.total))
                            @if let Some(driver) = step.driver.filter(|driver| *driver > 0.0) {
                                span.dim { " · driver " (human(driver)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The distribution of a phase on one logarithmic scale for all phases: `range` in seconds.
pub(super) fn distribution(phase: Phase, times: &Times, range: (f64, f64)) -> Markup {
    let total = columns(&times.total, range);
    let driver = columns(&times.driver, range);
    let highest = total.iter().chain(&driver).copied().max().unwrap_or(1).max(1) as f64;
    let area = |columns: &[usize]| {
        let mut path = "M0 40".to_owned();
        for (i, &count) in columns.iter().enumerate() {
            // The square root keeps single slow samples visible next to hundreds of fast ones.
            let y = 40.0 - (count as f64 / highest).sqrt() * 38.0;
            let (from, to) = (i * 5, i * 5 + 5);
            path.push_str(&format!("L{from} {y:.1}L{to} {y:.1}"));
        }
        path + &format!("L{} 40Z", COLUMNS * 5)
    };
    let width = COLUMNS * 5;
    let label = format!("Distribution of {}", phase.name());
    html! {
        svg.shape.(colour(phase)) role="img" aria-label=(label) viewBox=(format!("0 0 {width} 41")) preserveAspectRatio="none" {
            @for decade in decades(range) {
                line.grid x1=(px(decade)) x2=(px(decade)) y1="0" y2="41" {}
            }
            path.kubernetes d=(area(&total)) {}
            @if times.driver.iter().any(|&seconds| seconds > 0.0) {
                path.driver d=(area(&driver)) {}
            }
        }
    }
}

/// The powers of ten inside a range, as positions in the chart.
fn decades(range: (f64, f64)) -> impl Iterator<Item = f64> {
    (-7..4)
        .map(move |power| place(10f64.powi(power), range))
        .filter(|at| (0.0..1.0).contains(at))
        .map(|at| at * COLUMNS as f64 * 5.0)
}

/// The marks of the common scale: position from 0 to 1, and label.
pub(super) fn marks(range: (f64, f64)) -> Vec<(f64, String)> {
    let powers = (-6..4).map(|power| 10f64.powi(power));
    powers
        .map(|seconds| (place(seconds, range), seconds))
        .filter(|(at, _)| (0.0..0.97).contains(at))
        .map(|(at, seconds)| (at, short(seconds)))
        .collect()
}

fn short(seconds: f64) -> String {
    match seconds {
        s if s < 0.9e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 0.9 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.0} s"),
    }
}

fn place(seconds: f64, (least, most): (f64, f64)) -> f64 {
    (seconds.ln() - least.ln()) / (most.ln() - least.ln())
}

/// The number of samples in each column. Samples of zero, as the driver's part may be, are in none.
fn columns(seconds: &[f64], range: (f64, f64)) -> Vec<usize> {
    let mut columns = vec![0; COLUMNS];
    for &one in seconds.iter().filter(|&&one| one > 0.0) {
        let column = (place(one, range) * COLUMNS as f64).clamp(0.0, COLUMNS as f64 - 1.0);
        columns[column as usize] += 1;
    }
    columns
}

/// The minimum and maximum of all samples, as the ends of one scale; at least a microsecond.
pub(super) fn range<'a>(times: impl Iterator<Item = &'a Times>) -> (f64, f64) {
    let all =
        times.flat_map(|times| times.total.iter().chain(&times.driver)).copied().filter(|one| *one > 0.0);
    let (least, most) =
        all.fold((f64::MAX, 0.0), |(least, most), one| (f64::min(least, one), f64::max(most, one)));
    if least > most { (1e-3, 1.0) } else { (least.max(1e-6) * 0.8, most.max(1e-6) * 1.25) }
}

/// A hundredth of a pixel is enough.
pub(super) fn px(value: f64) -> String {
    format!("{value:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_one_column_and_the_ends_are_inside() {
        let range = (0.001, 1.0);
        let columns = columns(&[0.0, 0.0001, 0.001, 0.03, 0.999, 5.0], range);
        assert_eq!(columns.iter().sum::<usize>(), 5, "no time at all is in none");
        assert_eq!((columns[0], columns[COLUMNS - 1]), (2, 2));
        assert_eq!(columns[COLUMNS * 59 / 120], 1, "0.03 is just below the middle");
    }

    #[test]
    fn the_scale_is_marked_at_powers_of_ten() {
        let marks: Vec<String> = marks((0.0005, 20.0)).into_iter().map(|(_, words)| words).collect();
        assert_eq!(marks, ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]);
        assert_eq!(range([].iter()), (1e-3, 1.0));
    }

    #[test]
    fn steps_follow_one_another() {
        let step = |phase, total, driver| Step { phase, total, driver };
        let steps = [step(Phase::Provision, 0.1, Some(0.05)), step(Phase::Bind, 0.3, None)];
        let list = waterfall(&steps, whole(&steps)).into_string();
        assert!(
            list.contains("--from:25.00%;--long:75.00%"),
            "the second begins where the first ended: {list}"
        );
        assert!(list.contains("driver 50.0 ms"), "{list}");
        assert_eq!(list.matches("class=\"driver\"").count(), 1, "none without observed driver calls");
    }
}
