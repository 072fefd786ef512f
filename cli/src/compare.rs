//! `claimcheck compare`: runs held against each other.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use claimcheck_report::Style;
use claimcheck_report::compare::{Comparison, Options, Side, Verdict, compare};
use clap::ValueEnum;

/// What `compare` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  compared, whatever came out
  2  the command line cannot be used
  3  a run cannot be read
  4  with --fail-on worse: B is worse, in a phase, a case that passed, or what is left behind")]
pub struct Args {
    /// A run folder, or a folder of several, which are taken together: what there was
    a: PathBuf,
    /// The same: what is held against it
    b: PathBuf,
    /// How sure all verdicts together shall be
    #[arg(long, default_value_t = Options::default().level, value_parser = share)]
    level: f64,
    /// Less than this share of A's median is no difference
    #[arg(long, default_value_t = Options::default().margin, value_parser = share)]
    margin: f64,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Also write it as a page for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// End with exit code 4 if B is that
    #[arg(long, value_enum, value_name = "VERDICT")]
    fail_on: Option<FailOn>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
    /// For pull requests
    Markdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Slower, or with more failures
    Worse,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "write a number above 0 and below 1, for example 0.95".to_owned())
}

impl Args {
    /// Compares, and prints.
    pub fn run(self) -> Result<ExitCode> {
        let options = Options { level: self.level, margin: self.margin };
        let comparison = compare(&Side::read(&self.a)?, &Side::read(&self.b)?, options);
        let text = match self.format {
            Format::Text => comparison.to_text(Style::detect()),
            Format::Json => comparison.to_json(),
            Format::Markdown => comparison.to_markdown(),
        };
        print!("{text}");
        if let Some(path) = &self.html {
            let written = std::fs::write(path, comparison.to_html());
            written
                .with_context(|| format!("cannot write {}: choose another with --html", path.display()))?;
        }
        Ok(exit_code(self.fail_on, &comparison))
    }
}

fn exit_code(fail_on: Option<FailOn>, comparison: &Comparison) -> ExitCode {
    match (fail_on, comparison.verdict) {
        (Some(FailOn::Worse), Verdict::Worse) => ExitCode::from(4),
        (Some(FailOn::Worse) | None, _) => ExitCode::SUCCESS,
    }
}
