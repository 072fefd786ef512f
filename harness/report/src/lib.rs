//! Reporting: consumes the event stream and produces all outputs of a run for people and machines.
//!
//! ```text
//! Sender<Event> ─> Reporter ─┬─> each output of `outputs::OUTPUTS`: observe
//!                            └─> summary ─> each output: finish
//! run folder ──────────────────> html       report.html, at the end or on request
//! ```
//!
//! The runner holds only the sender. Reports contain nothing that no event carries.

mod capabilities;
mod causes;
pub mod compare;
mod component_faults;
mod ending;
mod event_log;
mod events;
mod folder;
mod growth;
pub mod history;
mod html;
mod job_summary;
mod junit;
mod live;
mod load;
mod load_table;
mod markdown;
mod metrics_file;
mod missing_rules;
mod nodes;
mod outputs;
mod push;
mod quantiles;
pub mod slo;
mod stdout;
mod summary;
mod summary_file;
mod tables;
mod terminal;
mod traces;
mod unwritten;
pub mod versions;

pub use causes::Cause;
pub use ending::{Ending, State};
pub use events::{EVENTS, EventsError};
pub use folder::{FolderError, RunFolder};
pub use growth::{Grows, Growth};
pub(crate) use html::{DOWN, UP};
pub use html::{RebuildError, rebuild};
pub use load::{ControllersCost, LoadError, LoadSample, LoadSummary, PerVolume};
pub use quantiles::Quantiles;
pub(crate) use quantiles::{Durations, quantile};
pub(crate) use summary::Tally;
pub use summary::{CallCounts, CaseCounts, CaseLine, CaseWarning, Summary, Unfinished};
pub use tables::{Style, render};
pub(crate) use tables::{human, number, short, table};
pub use unwritten::{ReportError, Reported, report_failed_start};

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use claimcheck_model::{Event, LoggedEvent, Stamp};
use claimcheck_telemetry::metrics::{Metrics, push::PushOptions};
use claimcheck_telemetry::trace::Collector;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::slo::{Judge, Objective};
use outputs::{End, Seen, Setup, Sink};
use unwritten::Unwritten;

/// Consumes the events of a run and writes the reports.
#[derive(Debug)]
pub struct Reporter {
    setup: Setup,
    /// Thresholds (SLOs) that the run must meet.
    judge: Judge,
}

impl Reporter {
    /// Reports to a run folder and a registry, and to the terminal if there is one.
    pub fn new(folder: RunFolder, metrics: Metrics) -> Self {
        let (collector, push, step_summary, history, details) = Default::default();
        let setup =
            Setup { folder, metrics, terminal: true, collector, push, step_summary, history, details };
        Self { setup, judge: Judge::default() }
    }

    /// Reports nothing to the terminal: for tests, and for runners with their own output.
    pub fn quiet(folder: RunFolder, metrics: Metrics) -> Self {
        let mut reporter = Self::new(folder, metrics);
        reporter.setup.terminal = false;
        reporter
    }

    /// Checks thresholds (SLOs) against the run.
    #[must_use]
    pub fn with_objectives(mut self, objectives: Vec<Objective>) -> Self {
        self.judge = Judge::new(objectives);
        self
    }

    /// Exports traces as well.
    #[must_use]
    pub fn tracing(mut self, collector: Option<Collector>) -> Self {
        self.setup.collector = collector;
        self
    }

    /// Also pushes the metrics to these targets, every few seconds and at the end.
    #[must_use]
    pub fn pushing(mut self, options: Option<PushOptions>) -> Self {
        self.setup.push = options;
        self
    }

    /// Also appends `summary.md` to the job summary in GitHub Actions.
    #[must_use]
    pub fn in_ci(mut self) -> Self {
        self.setup.step_summary = job_summary::step_summary();
        self
    }

    /// Also records the run in this history, and shows earlier runs in report.html.
    #[must_use]
    pub fn with_history(mut self, history: Option<PathBuf>) -> Self {
        self.setup.history = history;
        self
    }

    /// Also prints these details of a run, before the verdict.
    #[must_use]
    pub fn detailing(mut self, details: fn(&Summary) -> String) -> Self {
        self.setup.details = Some(details);
        self
    }

    /// Starts reporting. It ends with [`Event::RunFinished`] or [`Event::RunAborted`], or when all senders are dropped;
    /// then the files are complete, and the handle returns the result.
    pub fn start(self) -> (mpsc::UnboundedSender<Event>, JoinHandle<Reported>) {
        let (sender, events) = mpsc::unbounded_channel();
        (sender, tokio::spawn(self.run(events)))
    }

    async fn run(self, mut events: mpsc::UnboundedReceiver<Event>) -> Reported {
        let mut reporting = Reporting::start(self);
        loop {
            let drawn = reporting.sinks.iter().filter_map(|sink| sink.due()).min();
            let event = tokio::select! {
                event = events.recv() => event,
                () = due(drawn) => {
                    reporting.sinks.iter_mut().for_each(|sink| sink.draw(&reporting.tally));
                    continue;
                }
            };
            let Some(event) = event else { break };
            let last = matches!(event, Event::RunFinished { .. } | Event::RunAborted { .. });
            reporting.observe(&LoggedEvent { at: Stamp::now(), event }, last || events.is_empty());
            if last {
                break;
            }
        }
        reporting.finish().await
    }

    /// Makes the outputs of a run again from its events ([`EVENTS`]), also of one that was killed.
    /// Thresholds (SLOs) are not events, so they must be given again.
    ///
    /// # Errors
    /// The events cannot be read.
    pub async fn replay(self, events: &Path) -> Result<Reported, EventsError> {
        let mut reporting = Reporting::start(self);
        events::each_of(events, |logged| reporting.observe(&logged, false))?;
        Ok(reporting.finish().await)
    }
}

/// The outputs of a run, and the run so far.
struct Reporting {
    setup: Setup,
    judge: Judge,
    sinks: Vec<Box<dyn Sink>>,
    tally: Tally,
    started: Option<Stamp>,
    unwritten: Unwritten,
    /// Space for the verdict, if the disk is full.
    reserve: Option<File>,
}

impl Reporting {
    fn start(reporter: Reporter) -> Self {
        let Reporter { setup, judge } = reporter;
        let mut unwritten = Unwritten::default();
        let sinks = outputs::start(&setup, &mut unwritten);
        let reserve = setup.folder.reserve();
        Self { setup, judge, sinks, tally: Tally::default(), started: None, unwritten, reserve }
    }

    fn observe(&mut self, logged: &LoggedEvent, flush: bool) {
        self.judge.observe(&logged.event);
        self.tally.observe(&logged.event, || self.setup.metrics.series());
        if let Event::RunStarted(_) = logged.event {
            self.started = Some(logged.at);
        }
        let seen = Seen { logged, tally: &self.tally, flush };
        for sink in &mut self.sinks {
            self.unwritten.keep(sink.observe(&seen));
        }
    }

    async fn finish(self) -> Reported {
        let Self { setup, judge, mut sinks, tally, started, mut unwritten, reserve } = self;
        let mut summary = tally.finish();
        summary.slos = judge.finish();
        drop(reserve);
        let mut end = End { folder: &setup.folder, summary: &summary, started, history: None };
        for sink in &mut sinks {
            unwritten.keep(sink.finish(&mut end));
        }
        unwritten.report();
        for sink in sinks {
            sink.close().await;
        }
        Reported { summary, unwritten: unwritten.errors }
    }
}

/// Resolves when an output must be drawn without an event; never without one.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
