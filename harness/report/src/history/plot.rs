//! How one time of one phase went from run to run. Pure.

use claimcheck_model::Phase;
use serde::Serialize;

use super::Entry;
use crate::slo::{Measure, Quantile};

/// A run in a plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Which run.
    pub run: String,
    /// When it began, nanoseconds since the Unix epoch.
    pub began_ns: i64,
    /// Whether it was good.
    pub good: bool,
    /// How long the phase took.
    pub seconds: f64,
    /// Of how many that was made.
    pub samples: u64,
}

/// How the last run differs from those before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The median of the runs before; seconds.
    pub before: f64,
    /// How many those were.
    pub runs: usize,
    /// The last less that median; seconds.
    pub shift: f64,
    /// The same as a share of that median; none where that is 0.
    pub shift_ratio: Option<f64>,
}

/// A phase from run to run on one kind of cluster with one driver: others would not compare.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// The kind of cluster.
    pub cluster: String,
    /// The driver.
    pub driver: String,
    /// The newest last.
    pub points: Vec<Point>,
    /// None where there is one run only.
    pub change: Option<Change>,
}

/// A plot for each kind of cluster and driver, in the order in which they last ran; of each the newest `last`
/// runs. `runs` has the newest last.
pub fn plots(runs: &[Entry], phase: Phase, measure: Measure, quantile: Quantile, last: usize) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Vec::new();
    for run in runs.iter().rev() {
        let Some(quantiles) = run.quantiles(phase, measure) else { continue };
        let same = |plot: &&mut Plot| plot.cluster == run.cluster && plot.driver == run.driver;
        let point = Point {
            run: run.id.clone(),
            began_ns: run.began_ns,
            good: run.good,
            seconds: quantile.of(quantiles),
            samples: quantiles.count,
        };
        match plots.iter_mut().find(same) {
            Some(plot) if plot.points.len() >= last => {}
            Some(plot) => plot.points.push(point),
            None => plots.push(Plot {
                cluster: run.cluster.clone(),
                driver: run.driver.clone(),
                points: vec![point],
                change: None,
            }),
        }
    }
    plots.reverse();
    for plot in &mut plots {
        plot.points.reverse();
        plot.change = change(&plot.points.iter().map(|point| point.seconds).collect::<Vec<_>>());
    }
    plots
}

/// How the last of these differs from the median of those before.
pub(crate) fn change(seconds: &[f64]) -> Option<Change> {
    let (last, before) = seconds.split_last()?;
    let mut sorted = before.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let median = if sorted.len() % 2 == 1 { upper } else { (sorted[sorted.len() / 2 - 1] + upper) / 2.0 };
    let shift = last - median;
    let shift_ratio = (median > 0.0).then(|| shift / median);
    Some(Change { before: median, runs: before.len(), shift, shift_ratio })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stands_against_the_median_of_those_before() {
        let table = [
            (&[][..], None),
            (&[1.0], None),
            (&[1.0, 1.5], Some((1.0, 0.5))),
            (&[3.0, 1.0, 2.0, 4.0], Some((2.0, 1.0))),
            (&[9.0, 1.0, 3.0, 1.0, 1.0], Some((2.0, -0.5))),
        ];
        for (seconds, expected) in table {
            let got = change(seconds).map(|change| (change.before, change.shift_ratio.unwrap_or(f64::NAN)));
            assert_eq!(got, expected, "{seconds:?}");
        }
        assert_eq!(change(&[0.0, 1.0]).and_then(|change| change.shift_ratio), None, "no share of nothing");
    }
}
