//! `claimcheck compare`: compares two runs, or two groups of runs.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use claimcheck_files::write_private;
use claimcheck_report::Style;
use claimcheck_report::compare::{Comparison, Options, Side, Verdict, compare};
use clap::ValueEnum;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  the comparison succeeded, whatever its result
  2  the command line is invalid
  3  a run cannot be read
  4  with --fail-on worse: B regressed in a phase, a case that passed in A, or leaked objects")]
pub struct Args {
    /// Baseline: a run folder, or a folder of several run folders, which are pooled
    a: PathBuf,
    /// Run folder, or folder of several, to compare with the baseline
    b: PathBuf,
    /// Confidence level of all verdicts together
    #[arg(long, default_value_t = Options::default().level, value_parser = share)]
    confidence: f64,
    /// Ignore differences below this fraction of A's median
    #[arg(long, default_value_t = Options::default().margin, value_parser = share)]
    min_effect: f64,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Also write the comparison as an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit with code 4 if B has this verdict
    #[arg(long, value_enum, value_name = "VERDICT")]
    fail_on: Option<FailOn>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Human-readable
    #[default]
    Text,
    /// Machine-readable
    Json,
    /// For pull requests
    Markdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Slower, more failures, or more leaked objects
    Worse,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "write a number above 0 and below 1, for example 0.95".to_owned())
}

impl Args {
    /// Compares the runs and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        let options = Options { level: self.confidence, margin: self.min_effect };
        let comparison = compare(&Side::read(&self.a)?, &Side::read(&self.b)?, options);
        let text = match self.format {
            Format::Text => comparison.to_text(Style::detect()),
            Format::Json => comparison.to_json(),
            Format::Markdown => comparison.to_markdown(),
        };
        print!("{text}");
        if let Some(path) = &self.html {
            let written = write_private(path, comparison.to_html().as_bytes());
            written.with_context(|| {
                format!("cannot write {}: choose another path with --html", path.display())
            })?;
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
