//! Reporting: consumes the event stream and produces all outputs of a run for people and machines.
//!
//! ```text
//! Sender<Event> ─> Reporter ─┬─> terminal     progress while it runs (live, of a load), tables at the end
//!                            ├─> telemetry    the registry behind /metrics, traces; metrics.prom
//!                            ├─> folder       events.ndjson as they come
//!                            └─> summary      summary.json, summary.md, junit.xml
//! Summary ────────────────────> history      for comparison in later runs, if requested
//! run folder ──────────────────> html         report.html, at the end or on request
//! ```
//!
//! The runner holds only the sender. Reports contain nothing that no event carries.

mod capabilities;
mod causes;
pub mod compare;
mod component_faults;
mod ending;
mod events;
mod folder;
mod growth;
pub mod history;
mod html;
mod junit;
mod live;
mod load;
mod load_table;
mod markdown;
mod missing_rules;
mod nodes;
mod outputs;
mod quantiles;
pub mod slo;
mod summary;
mod tables;
mod terminal;

pub use causes::Cause;
pub use ending::{Ending, State};
pub use events::EventsError;
pub use folder::{FolderError, RunFolder};
pub use growth::{Grows, Growth};
pub(crate) use html::{DOWN, UP};
pub use html::{RebuildError, rebuild};
pub use load::{ControllersCost, LoadError, LoadSample, LoadSummary, PerVolume};
pub use outputs::{ReportError, Reported, report_failed_start};
pub use quantiles::Quantiles;
pub(crate) use quantiles::{Durations, quantile};
pub(crate) use summary::Tally;
pub use summary::{CallCounts, CaseCounts, CaseLine, CaseWarning, Summary, Unfinished};
pub use tables::{Style, render};
pub(crate) use tables::{human, number, short, table};
pub use terminal::Progress;

use std::error::Error as _;
use std::io::{self, Write};
use std::path::PathBuf;

use claimcheck_model::{Event, LoadEvent, LoggedEvent, Stamp};
use claimcheck_telemetry::metrics::Metrics;
use claimcheck_telemetry::trace::{Collector, Exporter};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::history::History;
use crate::slo::{Judge, Objective};
use folder::SUMMARY;
use live::Live;
use outputs::Outputs;

/// Consumes the events of a run and writes the reports.
#[derive(Debug)]
pub struct Reporter {
    folder: RunFolder,
    metrics: Metrics,
    progress: Progress,
    /// Print tables and verdict to standard output at the end.
    tables: Option<Style>,
    /// Thresholds (SLOs) that the run must meet.
    judge: Judge,
    /// The trace collector.
    collector: Option<Collector>,
    /// The summary file of the current CI job, appended to.
    step_summary: Option<PathBuf>,
    /// The history database, appended to.
    history: Option<PathBuf>,
    /// What the program adds to the tables, before the verdict.
    details: Option<fn(&Summary) -> String>,
}

impl Reporter {
    /// Reports to a run folder and a registry, and to the terminal if there is one.
    pub fn new(folder: RunFolder, metrics: Metrics) -> Self {
        Self {
            folder,
            metrics,
            progress: Progress::detect(),
            tables: Some(Style::detect()),
            judge: Judge::default(),
            collector: None,
            step_summary: None,
            history: None,
            details: None,
        }
    }

    /// Reports nothing to the terminal: for tests, and for runners with their own output.
    pub fn quiet(folder: RunFolder, metrics: Metrics) -> Self {
        let (progress, judge) = (Progress::hidden(), Judge::default());
        Self {
            folder,
            metrics,
            progress,
            tables: None,
            judge,
            collector: None,
            step_summary: None,
            history: None,
            details: None,
        }
    }

    /// Checks thresholds (SLOs) against the run.
    #[must_use]
    pub fn judging(mut self, objectives: Vec<Objective>) -> Self {
        self.judge = Judge::new(objectives);
        self
    }

    /// Exports traces as well.
    #[must_use]
    pub fn tracing(mut self, collector: Option<Collector>) -> Self {
        self.collector = collector;
        self
    }

    /// Also appends `summary.md` to the job summary in GitHub Actions.
    #[must_use]
    pub fn in_ci(mut self) -> Self {
        self.step_summary = markdown::step_summary();
        self
    }

    /// Also records the run in this history, and shows earlier runs in report.html.
    #[must_use]
    pub fn remembering(mut self, history: Option<PathBuf>) -> Self {
        self.history = history;
        self
    }

    /// Also prints these details of a run, before the verdict.
    #[must_use]
    pub fn detailing(mut self, details: fn(&Summary) -> String) -> Self {
        self.details = Some(details);
        self
    }

    /// Starts reporting. It ends with [`Event::RunFinished`] or [`Event::RunAborted`], or when all senders are dropped;
    /// then the files are complete, and the handle returns the result.
    pub fn start(self) -> (mpsc::UnboundedSender<Event>, JoinHandle<Reported>) {
        let (sender, events) = mpsc::unbounded_channel();
        (sender, tokio::spawn(self.run(events)))
    }

    async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) -> Reported {
        let mut outputs = Outputs::default();
        let mut log = outputs.keep(self.folder.log());
        let reserve = self.folder.reserve();
        let mut summary = Tally::default();
        let mut live: Option<Live> = None;
        let mut traces = self.collector.take().map(Exporter::start);
        let mut started: Option<Stamp> = None;
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = due(live.as_ref()) => {
                    live.iter_mut().for_each(|live| live.draw(&summary));
                    continue;
                }
            };
            let Some(event) = event else { break };
            if let (Event::Load(LoadEvent::Started(_)), true) = (&event, self.tables.is_some()) {
                live = Some(Live::detect());
            }
            let last = matches!(event, Event::RunFinished { .. } | Event::RunAborted { .. });
            self.metrics.observe(&event);
            self.progress.observe(&event);
            self.judge.observe(&event);
            let at = Stamp::now();
            traces.iter_mut().for_each(|traces| traces.observe(&event, at));
            summary.observe(&event, || self.metrics.series());
            if let Some(live) = &mut live {
                if let Event::Load(event) = &event {
                    live.observe(event);
                }
                live.draw(&summary);
            }
            let logged = LoggedEvent { at, event };
            if let Event::RunStarted(_) = logged.event {
                started = Some(logged.at);
            }
            // Readers that follow the log see each burst at once; one write per event would cost more.
            let flush = last || events.is_empty();
            // After an error, the log has a gap: it ends there. The verdict needs no log.
            log = log.and_then(|mut log| outputs.keep(log.append(&logged, flush).map(|()| log)));
            if last {
                break;
            }
        }
        outputs.keep(log.map_or(Ok(()), |mut log| log.flush()));
        self.progress.finish();
        live.iter().for_each(Live::finish);
        let mut summary = summary.finish();
        summary.slos = self.judge.finish();
        // The verdict first: if the disk is full, there is space for it.
        drop(reserve);
        let page = markdown::render(&summary);
        outputs.keep(self.folder.write("junit.xml", junit::render(&summary).as_bytes()));
        outputs.keep(self.folder.write(SUMMARY, &summary.to_json()));
        outputs.keep(self.folder.write("summary.md", page.as_bytes()));
        if let Some(path) = &self.step_summary {
            outputs.keep(markdown::append(path, &page));
        }
        outputs.keep(self.folder.write("metrics.prom", self.metrics.text().as_bytes()));
        let is_reference = match summary.ending() {
            Ending::Passed | Ending::Failed | Ending::ThresholdMissed | Ending::Interrupted => true,
            // It is no reference for later ones.
            Ending::NotStarted | Ending::NotEnded | Ending::NothingTested => false,
        };
        let history = started.filter(|_| is_reference).and_then(|started| self.remember(&summary, started));
        outputs.keep(rebuild(self.folder.path(), history.as_ref()).map_err(ReportError::of_page));
        if let Some(style) = self.tables {
            let details = self.details.filter(|_| started.is_some()).map(|details| details(&summary));
            let text = tables::render_with(&summary, style, details, Some(&self.folder.result()));
            // If standard output is closed, the files still have the result.
            let _ = writeln!(io::stdout(), "{text}");
        }
        outputs.report();
        if let Some(traces) = traces
            && let Some(missing) = traces.finish().await
        {
            // Independent of the log level, since traces were requested.
            let _ = writeln!(io::stderr(), "warning: {missing}");
        }
        Reported { summary, unwritten: outputs.unwritten }
    }

    /// Adds the run to the history; none if no history is configured, or it cannot be used. The run does not fail for
    /// it.
    fn remember(&self, summary: &Summary, started: Stamp) -> Option<History> {
        let path = self.history.as_deref()?;
        let kept = History::open(path).and_then(|history| {
            history.record(summary, started, self.folder.path())?;
            Ok(history)
        });
        let kept = kept.map_err(|error| {
            let why = error.source().map(|why| format!(" ({why})")).unwrap_or_default();
            // Independent of the log level: users who miss the run there later need the reason.
            let _ = writeln!(io::stderr(), "warning: this run was not added to the history: {error}{why}");
        });
        kept.ok()
    }
}

/// Resolves when the live view must be redrawn without an event; never without a view.
async fn due(live: Option<&Live>) {
    match live {
        Some(live) => tokio::time::sleep_until(live.due().into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
