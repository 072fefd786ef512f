//! The outputs of a run, as a list: each observes the events as they come, and is finished with the summary.
//!
//! To add one, write its file, with a type that implements [`Sink`] and its [`Output`], and add that to [`OUTPUTS`]. If
//! it has options, they are fields of [`Setup`].

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Instant;

use claimcheck_model::{LoggedEvent, Stamp};
use claimcheck_telemetry::metrics::{Metrics, push::PushOptions};
use claimcheck_telemetry::trace::Collector;

use super::folder::RunFolder;
use super::history::{self, History};
use super::summary::{Summary, Tally};
use super::unwritten::{ReportError, Unwritten};
use super::{
    event_log, html, job_summary, junit, live, markdown, metrics_file, push, stdout, summary_file, terminal,
    traces,
};

/// All outputs, in the order in which they observe an event and are finished.
const OUTPUTS: [Output; 13] = [
    // What is drawn on the terminal ends before anything else is printed.
    terminal::OUTPUT,
    live::OUTPUT,
    traces::OUTPUT,
    // The verdict before files that may be long: if the disk is full, there is space for it.
    junit::OUTPUT,
    summary_file::OUTPUT,
    markdown::OUTPUT,
    job_summary::OUTPUT,
    metrics_file::OUTPUT,
    // Who follows this file finds an event in the metrics, too.
    event_log::OUTPUT,
    history::OUTPUT,
    // It is made from the files, and from the history.
    html::OUTPUT,
    // It names the page.
    stdout::OUTPUT,
    push::OUTPUT,
];

/// What an output starts from.
#[derive(Debug)]
pub(crate) struct Setup {
    pub folder: RunFolder,
    pub metrics: Metrics,
    /// Whether progress and results are printed.
    pub terminal: bool,
    /// The trace collector.
    pub collector: Option<Collector>,
    /// The targets of metrics.
    pub push: Option<PushOptions>,
    /// The summary file of the current CI job, appended to.
    pub step_summary: Option<PathBuf>,
    /// The history file, appended to.
    pub history: Option<PathBuf>,
    /// What the program adds to the tables, before the verdict.
    pub details: Option<fn(&Summary) -> String>,
}

/// A kind of output.
pub(crate) struct Output {
    /// Its file in the run folder, if it has one: the folder of a failed start is used again without it.
    pub file: Option<&'static str>,
    /// Starts it; none if it is not requested.
    pub start: fn(&Setup) -> Started,
}

/// An output that has started, if it is requested.
pub(crate) type Started = Result<Option<Box<dyn Sink>>, ReportError>;
/// What an output does after all others are finished.
pub(crate) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An event, as outputs observe it.
pub(crate) struct Seen<'a> {
    pub logged: &'a LoggedEvent,
    /// The run so far, with this event.
    pub tally: &'a Tally,
    /// No further event is waiting: readers that follow an output must see this one.
    pub flush: bool,
}

/// The end of a run.
pub(crate) struct End<'a> {
    pub folder: &'a RunFolder,
    pub summary: &'a Summary,
    /// When the run started, if it did.
    pub started: Option<Stamp>,
    /// The history with this run, once it is recorded there.
    pub history: Option<History>,
}

/// An output of a run. One that cannot be written does not affect the others, nor the verdict.
pub(crate) trait Sink: Send {
    /// Observes an event.
    fn observe(&mut self, _: &Seen<'_>) -> Result<(), ReportError> {
        Ok(())
    }

    /// When it must be drawn, even without events.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Draws the run so far.
    fn draw(&mut self, _: &Tally) {}

    /// Writes the result.
    fn finish(&mut self, _: &mut End<'_>) -> Result<(), ReportError> {
        Ok(())
    }

    /// Sends what remains to other machines, after all outputs are finished.
    fn close(self: Box<Self>) -> Closing {
        Box::pin(std::future::ready(()))
    }
}

/// Starts all outputs that are requested.
pub(super) fn start(setup: &Setup, unwritten: &mut Unwritten) -> Vec<Box<dyn Sink>> {
    OUTPUTS.iter().filter_map(|output| unwritten.keep((output.start)(setup)).flatten()).collect()
}

/// The files of outputs in a run folder.
pub(super) fn files() -> impl Iterator<Item = &'static str> {
    OUTPUTS.iter().filter_map(|output| output.file)
}

/// A new output.
pub(crate) fn started(sink: impl Sink + 'static) -> Started {
    Ok(Some(Box::new(sink)))
}
