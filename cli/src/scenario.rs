//! `claimcheck scenario`: what concerns scenario files without a run; `claimcheck run --scenario` runs them.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use claimcheck_scenario::{World, read_all, schema};
use clap::{Args, Subcommand};

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check scenario files without a cluster, and list what is in them
    Check(CheckArgs),
    /// Print the JSON Schema of scenario files, for the completion of editors
    Schema,
}

/// Arguments of `scenario check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files, or folders with files
    #[arg(required = true, value_name = "FILE_OR_DIR")]
    paths: Vec<PathBuf>,
}

impl Command {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Self::Check(args) => Ok(args.check()),
            Self::Schema => {
                println!("{}", serde_json::to_string_pretty(&schema())?);
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl CheckArgs {
    fn check(&self) -> ExitCode {
        let scenarios = match read_all(&self.paths) {
            Ok(scenarios) => scenarios,
            Err(error) => return crate::unreadable(&error.into()),
        };
        for read in &scenarios {
            let world = match read.scenario.world {
                World::Cluster => "",
                World::Controllers => " (world: controllers, which `claimcheck run` does not run)",
            };
            let (path, steps) = (read.path.display(), read.scenario.steps.len());
            println!("{path}:{}: {}: {steps} steps{world}", read.line, read.scenario.name);
        }
        ExitCode::SUCCESS
    }
}
