//! `claimcheck slo`: the thresholds of runs, for the volumes of a cluster in use.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use claimcheck_report::slo::rules::{By, Options, Output, Population, load};
use clap::{Args, Subcommand};

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the thresholds of an SLO file as Prometheus rules for `claimcheck monitor`: error budgets with
    /// multi-window, multi-burn-rate alerts
    Rules(RulesArgs),
}

/// Arguments of `slo rules`.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// The SLO file, as for `run --slo`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Form of the rules
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
    /// The volumes that the objectives apply to
    #[arg(long, value_enum, default_value_t, value_name = "VOLUMES")]
    source: Population,
    /// Judge each value of this label separately, such as cluster where one Prometheus has the series of several clusters;
    /// may be repeated
    #[arg(long, value_name = "LABEL")]
    by: Vec<By>,
}

impl Command {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Self::Rules(args) => Ok(args.print()),
        }
    }
}

impl RulesArgs {
    fn print(self) -> ExitCode {
        let options = Options { population: self.source, by: self.by, output: self.output };
        let rules = load(&self.file, &options);
        match rules.with_context(|| format!("{} cannot be turned into rules", self.file.display())) {
            Ok(rules) => {
                print!("{rules}");
                ExitCode::SUCCESS
            }
            Err(error) => crate::unreadable(&error),
        }
    }
}
