//! `claimcheck report`: the page of a run, made anew.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use claimcheck_report::history::History;
use claimcheck_report::{EventsError, RebuildError, rebuild};
use claimcheck_run::HistoryArgs;

/// What `report` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run folder, also that of a run that was killed
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    history: HistoryArgs,
}

impl Args {
    /// Makes `report.html` and says where it is.
    pub fn make(&self) -> Result<ExitCode> {
        let history = self.history();
        match rebuild(&self.folder, history.as_ref()) {
            Ok(page) => println!("{}", page.display()),
            Err(RebuildError::Events(error @ EventsError::NoRun { .. })) => return Ok(crate::usage(&error)),
            Err(error) => return Err(error.into()),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Earlier runs, if there are any: a page without them is better than none.
    fn history(&self) -> Option<History> {
        let opened = History::open_existing(&self.history.path()?);
        let opened = opened.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "the page shows no earlier runs");
        });
        opened.ok().flatten()
    }
}
