//! Reporting: consumes the event stream and makes everything that a run leaves for people and machines.
//!
//! ```text
//! Sender<Event> ─> Reporter ─┬─> terminal     progress while it runs (live, of a load), tables at the end
//!                            ├─> metrics      the registry behind /metrics; metrics.prom
//!                            ├─> folder       events.ndjson as they come
//!                            └─> summary      summary.json, summary.md, junit.xml
//! Summary ────────────────────> history      what later runs are shown beside, where that is asked for
//! run folder ──────────────────> html         report.html, at the end or whenever it is asked for
//! ```
//!
//! The runner holds only the sender. What no event carries is in no report.

mod capabilities;
pub mod compare;
mod events;
mod flag_file;
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
mod nodes;
mod quantiles;
pub mod serve;
pub mod slo;
mod summary;
mod tables;
mod terminal;
pub mod trace;

pub use events::EventsError;
pub use flag_file::Unreadable;
pub use folder::{FolderError, RunFolder};
pub use growth::{Grows, Growth};
pub(crate) use html::{DOWN, UP};
pub use html::{RebuildError, rebuild};
pub use load::{LoadError, LoadSample, LoadSummary, PerVolume};
pub(crate) use quantiles::Durations;
pub use quantiles::Quantiles;
pub(crate) use summary::Tally;
pub use summary::{CallCounts, CaseCounts, CaseLine, Ending, Remark, Summary, Unfinished};
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
#[error("cannot write {}: check that the disk has space and the folder is still there, or choose another with --out", path.display())]
pub struct ReportError {
    /// Which file.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// What reports are made.
#[derive(Debug)]
pub struct Reporter {
    folder: RunFolder,
    metrics: Metrics,
    progress: Progress,
    /// Print tables and verdict to standard output at the end.
    tables: Option<Style>,
    /// What the run has to keep.
    judge: Judge,
    /// Where traces go.
    collector: Option<Collector>,
    /// The summary of the CI job that we run in, to be added to.
    step_summary: Option<PathBuf>,
    /// The file of the history, to be added to.
    history: Option<PathBuf>,
}

impl Reporter {
    /// Reports into a run folder and a registry, and to the terminal as far as there is one.
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

    /// Reports nothing to the terminal: for tests, and for runners that have a way of their own.
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

    /// Holds thresholds against the run.
    #[must_use]
    pub fn judging(mut self, objectives: Vec<Objective>) -> Self {
        self.judge = Judge::new(objectives);
        self
    }

    /// Sends traces too.
    #[must_use]
    pub fn tracing(mut self, collector: Option<Collector>) -> Self {
        self.collector = collector;
        self
    }

    /// Adds `summary.md` to the summary of the job too, where this is a job of GitHub Actions.
    #[must_use]
    pub fn in_ci(mut self) -> Self {
        self.step_summary = markdown::step_summary();
        self
    }

    /// Keeps what the run came to in this history too, and shows earlier ones in the page.
    #[must_use]
    pub fn remembering(mut self, history: Option<PathBuf>) -> Self {
        self.history = history;
        self
    }

    /// Starts reporting. It ends with [`Event::RunFinished`], or when all senders are gone; then the files
    /// are complete, and the handle has the summary.
    pub fn start(self) -> (mpsc::UnboundedSender<Event>, JoinHandle<Result<Summary, ReportError>>) {
        let (sender, events) = mpsc::unbounded_channel();
        (sender, tokio::spawn(self.run(events)))
    }

    async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) -> Result<Summary, ReportError> {
        let mut log = self.folder.log()?;
        let mut summary = Tally::default();
        let mut live: Option<Live> = None;
        let mut traces = self.collector.take().map(Exporter::start);
        let (mut began, mut ended): (Option<Stamp>, bool) = (None, false);
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = due(live.as_ref()) => {
                    live.iter_mut().for_each(|live| live.draw(&summary));
                    continue;
                }
            };
            let Some(event) = event else { break };
            if let (Event::Load(LoadEvent::Began(_)), true) = (&event, self.tables.is_some()) {
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
                began = Some(logged.at);
            }
            log.append(&logged)?;
            // Whoever follows the log sees each burst at once; one write per event would cost more.
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
        // One that was given up says nothing to those that come after.
        let history = began.filter(|_| ended).and_then(|began| self.remember(&summary, began));
        if let Err(error) = rebuild(self.folder.path(), history.as_ref()) {
            tracing::warn!(error = &error as &dyn std::error::Error, "there is no report.html");
        }
        let page = markdown::render(&summary);
        self.folder.write("summary.md", page.as_bytes())?;
        if let Some(path) = &self.step_summary {
            markdown::append(path, &page)?;
        }
        // A run that never began, or was given up, has no verdict; why is told elsewhere.
        if let Some(style) = self.tables.filter(|_| began.is_some() && ended) {
            let text = render(&summary, style, Some(self.folder.path()));
            // Where nobody reads standard output any more, the files still tell.
            let _ = writeln!(io::stdout(), "{text}");
        }
        if let Some(traces) = traces
            && let Some(missing) = traces.finish().await
        {
            // Whatever is logged, since it was asked for.
            let _ = writeln!(io::stderr(), "warning: {missing}");
        }
        Ok(summary)
    }

    /// Adds the run to the history; none where there is none, or it cannot be used. That is no failure of the run.
    fn remember(&self, summary: &Summary, began: Stamp) -> Option<History> {
        let path = self.history.as_deref()?;
        let kept = History::open(path).and_then(|mut history| {
            history.record(summary, began, self.folder.path())?;
            Ok(history)
        });
        let kept = kept.map_err(|error| {
            let why = error.source().map(|why| format!(" ({why})")).unwrap_or_default();
            // Whatever is logged: whoever looks for this run there later shall know.
            let _ = writeln!(io::stderr(), "warning: this run is in no history: {error}{why}");
        });
        kept.ok()
    }
}

/// Resolves when a view is to be drawn although nothing happens; without one, never.
async fn due(live: Option<&Live>) {
    match live {
        Some(live) => tokio::time::sleep_until(live.due().into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
