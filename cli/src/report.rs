//! `claimcheck report`: makes the page of a run again, or all outputs from its events.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use claimcheck_report::{EVENTS, EventsError, RebuildError, Reporter, RunFolder, history::History, rebuild};
use claimcheck_run::HistoryArgs;
use claimcheck_telemetry::metrics::Metrics;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run folder, also of a run that was killed, or the events of a run (events.ndjson)
    #[arg(value_name = "DIR|EVENTS")]
    source: PathBuf,
    /// Make all outputs from the events, in this new folder, instead of report.html in the run folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    history: HistoryArgs,
}

impl Args {
    /// Writes the page, or all outputs, and prints the path of the page.
    pub fn make(&self) -> Result<ExitCode> {
        let made = match (&self.out, self.source.is_file()) {
            (None, false) => rebuild(&self.source, self.history().as_ref()),
            (None, true) => {
                let why = "the outputs of events are made in a new folder: add --out DIR";
                return Ok(crate::usage(&*anyhow::anyhow!(why)));
            }
            (Some(out), true) => return self.replay(&self.source, out),
            (Some(out), false) if self.source.join(EVENTS).is_file() => {
                return self.replay(&self.source.join(EVENTS), out);
            }
            (Some(_), false) => Err(EventsError::NoRun { folder: self.source.clone() }.into()),
        };
        match made {
            Ok(page) => println!("{}", page.display()),
            Err(RebuildError::Events(error @ EventsError::NoRun { .. })) => return Ok(crate::usage(&error)),
            Err(error) => return Err(error.into()),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Makes all outputs; the exit code says only whether they are made.
    fn replay(&self, events: &Path, out: &Path) -> Result<ExitCode> {
        let folder = RunFolder::at(out)?;
        let replayed = crate::runtime()?
            .block_on(Reporter::quiet(folder.clone(), Metrics::default()).replay(events))
            .inspect_err(|_| drop(std::fs::remove_dir_all(out)))?;
        println!("{}", folder.result().display());
        Ok(ExitCode::from(replayed.or_unwritten(0)))
    }

    /// Earlier runs, if any; if they cannot be read, the page is written without them.
    fn history(&self) -> Option<History> {
        let opened = History::open_existing(&self.history.path()?);
        let opened = opened.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "the page shows no earlier runs");
        });
        opened.ok().flatten()
    }
}
