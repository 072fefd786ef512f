//! Reporting: consumes the event stream and produces all outputs of a run for people and machines.
//!
//! ```text
//! Sender<Event> ─> Reporter ─┬─> terminal     progress while it runs (live, of a load), tables at the end
//!                            ├─> metrics      the registry behind /metrics; metrics.prom
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
mod events;
mod file_flag;
mod folder;
mod growth;
pub mod history;
mod html;
mod junit;
mod live;
mod load;
mod load_table;
mod markdown;
pub mod metrics;
mod missing_rules;
mod nodes;
mod quantiles;
pub mod serve;
pub mod slo;
mod summary;
mod tables;
mod terminal;
pub mod trace;

pub use causes::Cause;
pub use events::EventsError;
pub use file_flag::FileFlagError;
pub use folder::{FolderError, RunFolder};
pub use growth::{Grows, Growth};
pub(crate) use html::{DOWN, UP};
pub use html::{RebuildError, rebuild};
pub use load::{ControllersCost, LoadError, LoadSample, LoadSummary, PerVolume};
pub(crate) use quantiles::Durations;
pub use quantiles::Quantiles;
pub(crate) use summary::Tally;
pub use summary::{CallCounts, CaseCounts, CaseLine, CaseWarning, Ending, Summary, Unfinished};
pub(crate) use tables::{Paint, human, number, short, table, wrap};
pub use tables::{Style, render};
pub use terminal::Progress;

use std::error::Error as _;
use std::io::{self, Write};
use std::path::PathBuf;

use claimcheck_model::{Event, LoadEvent, LoggedEvent, Stamp};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::history::History;
use crate::metrics::Metrics;
use crate::slo::{Judge, Objective};
use crate::trace::{Collector, Exporter};
use live::Live;

/// A report could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: check that the disk has space and the folder still exists, or choose another with --out", path.display())]
pub struct ReportError {
    /// The file.
    pub path: PathBuf,
    /// The I/O error.
    #[source]
    pub source: io::Error,
}

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

    /// Starts reporting. It ends with [`Event::RunFinished`], or when all senders are dropped; then the files
    /// are complete, and the handle returns the summary.
    pub fn start(self) -> (mpsc::UnboundedSender<Event>, JoinHandle<Result<Summary, ReportError>>) {
        let (sender, events) = mpsc::unbounded_channel();
        (sender, tokio::spawn(self.run(events)))
    }

    async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) -> Result<Summary, ReportError> {
        let mut log = self.folder.log()?;
        let mut summary = Tally::default();
        let mut live: Option<Live> = None;
        let mut traces = self.collector.take().map(Exporter::start);
        let (mut started, mut ended): (Option<Stamp>, bool) = (None, false);
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
            let last = matches!(event, Event::RunFinished { .. });
            ended |= last;
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
            log.append(&logged)?;
            // Readers that follow the log see each burst at once; one write per event would cost more.
            if last || events.is_empty() {
                log.flush()?;
            }
            if last {
                break;
            }
        }
        log.flush()?;
        self.progress.finish();
        live.iter().for_each(Live::finish);
        let mut summary = summary.finish();
        summary.slos = self.judge.finish();
        self.folder.write("metrics.prom", self.metrics.text().as_bytes())?;
        self.folder.write("junit.xml", junit::render(&summary).as_bytes())?;
        self.folder.write("summary.json", &summary.to_json())?;
        // An aborted run is no reference for later ones.
        let history = started.filter(|_| ended).and_then(|started| self.remember(&summary, started));
        if let Err(error) = rebuild(self.folder.path(), history.as_ref()) {
            tracing::warn!(error = &error as &dyn std::error::Error, "report.html was not written");
        }
        let page = markdown::render(&summary);
        self.folder.write("summary.md", page.as_bytes())?;
        if let Some(path) = &self.step_summary {
            markdown::append(path, &page)?;
        }
        // A run that never started, or was aborted, has no verdict; the reason is reported elsewhere.
        if let Some(style) = self.tables.filter(|_| started.is_some() && ended) {
            let text = render(&summary, style, Some(self.folder.path()));
            // If standard output is closed, the files still have the result.
            let _ = writeln!(io::stdout(), "{text}");
        }
        if let Some(traces) = traces
            && let Some(missing) = traces.finish().await
        {
            // Independent of the log level, since traces were requested.
            let _ = writeln!(io::stderr(), "warning: {missing}");
        }
        Ok(summary)
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
