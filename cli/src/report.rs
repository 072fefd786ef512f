//! `claimcheck report`: regenerates the report page of a run.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use claimcheck_report::history::History;
use claimcheck_report::{EventsError, RebuildError, rebuild};
use claimcheck_run::HistoryArgs;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run folder, also of a run that was killed
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    history: HistoryArgs,
}

impl Args {
    /// Writes `report.html` and prints its path.
    pub fn make(&self) -> Result<ExitCode> {
        let history = self.history();
        match rebuild(&self.folder, history.as_ref()) {
            Ok(page) => println!("{}", page.display()),
            Err(RebuildError::Events(error @ EventsError::NoRun { .. })) => return Ok(crate::usage(&error)),
            Err(error) => return Err(error.into()),
        }
        Ok(ExitCode::SUCCESS)
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
