//! The progress of a load on standard error: a live view on a terminal, else periodic lines.

use std::{
    fmt::Write as _,
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use claimcheck_model::{Event, LoadEvent, Phase, VolumeStep};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    outputs::{End, Output, Seen, Setup, Sink, Started, started},
    summary::Tally,
    tables::{Style, human},
    terminal::is_dumb,
    unwritten::ReportError,
};

pub(crate) const OUTPUT: Output = Output { file: None, start };

/// The minimum interval between redraws of the view.
const REDRAW: Duration = Duration::from_millis(100);
/// The interval between lines without a view.
const LINE: Duration = Duration::from_secs(5);
/// The width of the bar.
const BAR: usize = 60;
/// How many failures are printed during the load; all are counted.
const MAX_FAILURES_SHOWN: u64 = 20;

/// The output: nothing until a load starts.
#[derive(Debug, Default)]
struct LiveLoad(Option<Live>);

fn start(setup: &Setup) -> Started {
    if setup.terminal { started(LiveLoad::default()) } else { Ok(None) }
}

impl Sink for LiveLoad {
    fn observe(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        let event = &seen.logged.event;
        if let Event::Load(LoadEvent::Started(_)) = event {
            self.0 = Some(Live::detect());
        }
        if let Some(live) = &mut self.0 {
            if let Event::Load(event) = event {
                live.observe(event);
            }
            live.draw(seen.tally);
        }
        Ok(())
    }

    fn due(&self) -> Option<Instant> {
        self.0.as_ref().map(Live::due)
    }

    fn draw(&mut self, tally: &Tally) {
        self.0.iter_mut().for_each(|live| live.draw(tally));
    }

    fn finish(&mut self, _: &mut End<'_>) -> Result<(), ReportError> {
        self.0.iter().for_each(Live::finish);
        Ok(())
    }
}

/// The live view of a load.
#[derive(Debug)]
struct Live {
    shown: Shown,
    started: Instant,
    drawn: Instant,
    failures_shown: u64,
}

#[derive(Debug)]
enum Shown {
    Lines,
    Screen(ProgressBar),
}

impl Live {
    /// A view if standard error is a terminal that can draw one, else lines.
    fn detect() -> Self {
        let shown = if is_dumb() || !std::io::stderr().is_terminal() {
            Shown::Lines
        } else {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is valid"));
            Shown::Screen(bar)
        };
        Self { shown, started: Instant::now(), drawn: Instant::now(), failures_shown: 0 }
    }

    fn every(&self) -> Duration {
        match self.shown {
            Shown::Lines => LINE,
            Shown::Screen(_) => REDRAW,
        }
    }

    /// The time of the next redraw, even without events.
    fn due(&self) -> Instant {
        self.drawn + self.every()
    }

    /// Redraws, rate-limited.
    fn draw(&mut self, tally: &Tally) {
        if Instant::now() < self.due() {
            return;
        }
        self.drawn = Instant::now();
        let Some(state) = State::of(tally, self.started.elapsed().as_secs_f64()) else { return };
        match &self.shown {
            Shown::Screen(bar) => bar.set_message(view(&state, Style::detect())),
            // Standard error may be closed; the load continues.
            Shown::Lines => drop(writeln!(std::io::stderr(), "{}", line(&state))),
        }
    }

    /// Prints a failure immediately.
    fn observe(&mut self, event: &LoadEvent) {
        let LoadEvent::Failed { claims, reason } = event else { return };
        self.failures_shown += 1;
        if self.failures_shown > MAX_FAILURES_SHOWN {
            return;
        }
        let reason = reason.lines().next().unwrap_or_default();
        let text = format!("  ✗ {}: {reason}", claims.join(", "));
        match &self.shown {
            Shown::Screen(bar) => bar.println(text),
            Shown::Lines => drop(writeln!(std::io::stderr(), "{text}")),
        }
    }

    fn finish(&self) {
        if let Shown::Screen(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// The displayed state.
struct State {
    elapsed: f64,
    expected: u64,
    churn_s: Option<f64>,
    failed: u64,
    deleted: u64,
    /// The number of volumes in each state.
    places: [(&'static str, u64); 5],
    /// Name, count, median and 99th percentile.
    phases: Vec<(&'static str, u64, f64, f64)>,
    life: Option<(f64, f64)>,
}

impl State {
    /// Volumes are counted as they enter a state; one that failed may have left out some.
    fn of(tally: &Tally, elapsed: f64) -> Option<Self> {
        let load = tally.load()?;
        let [created, up, going, deleted] =
            [VolumeStep::Created, VolumeStep::Up, VolumeStep::Going, VolumeStep::Gone]
                .map(|step| load.count(step));
        let phases: Vec<_> = Phase::ALL
            .iter()
            .filter_map(|phase| {
                let so_far = tally.so_far(*phase)?;
                Some((phase.name(), so_far.count, so_far.p50, so_far.p99))
            })
            .collect();
        let ended = |phase: Phase| {
            phases.iter().find(|(name, ..)| *name == phase.name()).map_or(0, |(_, count, ..)| *count)
        };
        let up = up.max(going);
        let created = created.saturating_sub(load.failed()).max(up);
        let attached = ended(Phase::Attach).clamp(up, created);
        let bound = ended(Phase::Bind).clamp(attached, created);
        let places = [
            ("provisioning", created - bound),
            ("bound", bound - attached),
            ("attached", attached - up),
            ("running", up - going),
            ("deleting", going.saturating_sub(deleted)),
        ];
        let life = load.life().map(|life| (life.p50, life.p99));
        let (expected, churn_s) = (load.plan().volumes, load.plan().churn_s);
        Some(Self { elapsed, expected, churn_s, failed: load.failed(), deleted, places, phases, life })
    }

    fn head(&self) -> String {
        let mut head = match self.churn_s {
            Some(churn_s) => {
                format!("{} volumes in {} of {}", self.deleted, human(self.elapsed), human(churn_s))
            }
            None => format!("{}/{} volumes in {}", self.deleted, self.expected, human(self.elapsed)),
        };
        let per_second = self.deleted as f64 / self.elapsed.max(1e-3);
        let _ = write!(head, ", {per_second:.1}/s, {} failed", self.failed);
        head
    }

    fn places(&self) -> String {
        self.places.map(|(name, volumes)| format!("{name} {volumes}")).join(", ")
    }
}

/// Several lines, at most 80 columns.
fn view(state: &State, paint: Style) -> String {
    let (width, of) = match state.churn_s {
        Some(churn_s) => (state.elapsed, churn_s),
        None => (state.deleted as f64, state.expected as f64),
    };
    let cells = ((width / of.max(1e-3)).min(1.0) * BAR as f64) as usize;
    let bar = format!("{}{}", "━".repeat(cells), paint.dim(&"─".repeat(BAR - cells)));
    // On one line with the bar, the text would be longer than a terminal of 80 columns.
    let mut text = format!(" {bar}\n {}\n {}\n", state.head(), state.places());
    if !state.phases.is_empty() {
        let _ =
            write!(text, "\n{}", paint.dim(&format!(" {:18}{:>7}{:>11}{:>11}", "phase", "n", "P50", "P99")));
    }
    for (name, count, p50, p99) in &state.phases {
        let _ = write!(text, "\n {name:18}{count:>7}{:>11}{:>11}", human(*p50), human(*p99));
    }
    if let Some((p50, p99)) = state.life {
        let _ = write!(
            text,
            "\n {:18}{:>7}{:>11}{:>11}",
            "volume lifetime",
            state.deleted,
            human(p50),
            human(p99)
        );
    }
    text
}

fn line(state: &State) -> String {
    let life = state.life.map(|(p50, p99)| format!("; lifetime P50 {} P99 {}", human(p50), human(p99)));
    format!("{}; {}{}", state.head(), state.places(), life.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            elapsed: 4.2,
            expected: 200,
            churn_s: None,
            failed: 1,
            deleted: 80,
            places: [("provisioning", 3), ("bound", 4), ("attached", 6), ("running", 10), ("going", 9)],
            phases: vec![("provision", 109, 0.021, 0.04), ("start", 99, 0.2, 0.35)],
            life: Some((1.1, 1.6)),
        }
    }

    #[test]
    fn the_view_shows_where_volumes_are() {
        insta::assert_snapshot!("live_view", view(&state(), Style::PLAIN));
        let many = State { deleted: 123_456, expected: 200_000, failed: 9_999, elapsed: 35_999.0, ..state() };
        let text = view(&many, Style::PLAIN);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_line_shows_the_same_in_short() {
        assert_eq!(
            line(&state()),
            "80/200 volumes in 4.20 s, 19.0/s, 1 failed; provisioning 3, bound 4, attached 6, \
             running 10, going 9; lifetime P50 1.10 s P99 1.60 s"
        );
        let churn = State { churn_s: Some(600.0), life: None, ..state() };
        assert!(line(&churn).starts_with("80 volumes in 4.20 s of 10m 00s"), "{}", line(&churn));
    }
}
