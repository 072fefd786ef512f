//! `claimcheck report`: the page of a run, made anew.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use claimcheck_harness::report::{EventsError, RebuildError, rebuild};

/// What `report` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run folder, also that of a run that was killed
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Args {
    /// Makes `report.html` and says where it is.
    pub fn make(&self) -> Result<ExitCode> {
        match rebuild(&self.folder) {
            Ok(page) => println!("{}", page.display()),
            Err(RebuildError::Events(error @ EventsError::NoRun { .. })) => return Ok(crate::usage(&error)),
            Err(error) => return Err(error.into()),
        }
        Ok(ExitCode::SUCCESS)
    }
}
