//! Adds a run to the history at its end.

use std::error::Error as _;
use std::io::{self, Write as _};
use std::path::PathBuf;

use super::History;
use crate::ending::Ending;
use crate::outputs::{End, Output, Setup, Sink, Started, started};
use crate::unwritten::ReportError;

pub(crate) const OUTPUT: Output = Output { file: None, start };

struct Record(PathBuf);

fn start(setup: &Setup) -> Started {
    setup.history.clone().map_or(Ok(None), |path| started(Record(path)))
}

impl Sink for Record {
    /// The run does not fail for a history that cannot be used.
    fn finish(&mut self, end: &mut End<'_>) -> Result<(), ReportError> {
        let is_reference = match end.summary.ending() {
            Ending::Passed | Ending::Failed | Ending::ThresholdMissed | Ending::Interrupted => true,
            // It is no reference for later ones.
            Ending::NotStarted | Ending::NotEnded | Ending::NothingTested => false,
        };
        let Some(run_started) = end.started.filter(|_| is_reference) else { return Ok(()) };
        let recorded = History::open(&self.0).and_then(|history| {
            history.record(end.summary, run_started, end.folder.path())?;
            Ok(history)
        });
        let recorded = recorded.map_err(|error| {
            let why = error.source().map(|why| format!(" ({why})")).unwrap_or_default();
            // Independent of the log level: users who miss the run there later need the reason.
            let _ = writeln!(io::stderr(), "warning: this run was not added to the history: {error}{why}");
        });
        end.history = recorded.ok();
        Ok(())
    }
}
