//! `claimcheck history`: results of earlier runs.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, Result};
use claimcheck_model::{Phase, Stamp};
use claimcheck_report::Style;
use claimcheck_report::history::{Document, History, Selection, plots, to_text};
use claimcheck_report::slo::{Measure, Quantile};
use claimcheck_run::HistoryFile;
use clap::{
    ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use jiff::{SignedDuration, Span, SpanRelativeTo};

/// Arguments of `history`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Show the duration of this phase from run to run; without it, a table of the runs
    #[arg(value_parser = phase())]
    phase: Option<Phase>,
    /// Only runs with this driver
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// Only runs on this kind of cluster
    #[arg(long, value_name = "KIND")]
    cluster: Option<String>,
    /// Only the last N runs; with a phase, the last N of each driver and kind of cluster
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    last: u32,
    /// Part of the phase
    #[arg(long, value_enum, default_value_t, requires = "phase")]
    measure: Measure,
    /// Quantile of each run's distribution
    #[arg(long, value_enum, ignore_case = true, default_value = "P50", requires = "phase")]
    quantile: Quantile,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    file: HistoryFile,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Human-readable
    #[default]
    Text,
    /// Machine-readable
    Json,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Delete old runs from the history; their run folders are kept
    Forget(Forget),
}

#[derive(Debug, clap::Args)]
struct Forget {
    /// Minimum age of the runs to delete, for example 90d or 12h
    #[arg(long, value_name = "DURATION", value_parser = age)]
    older_than: SignedDuration,
    #[command(flatten)]
    file: HistoryFile,
}

/// Parses a phase name, with suggestions for an unknown one.
fn phase() -> impl TypedValueParser<Value = Phase> {
    let names = PossibleValuesParser::new(Phase::ALL.iter().map(|phase| phase.name()));
    names.map(|name| Phase::from_name(&name).expect("only names of phases are possible"))
}

/// Parses a duration; a day has 24 hours.
fn age(text: &str) -> Result<SignedDuration, String> {
    let span = text.parse::<Span>().ok();
    let age = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let age = age.filter(|age| !age.is_negative());
    age.ok_or_else(|| "write a number and a unit, for example 90d, 2w or 12h".to_owned())
}

impl Args {
    /// Prints the selected runs or plots.
    pub fn run(self) -> Result<ExitCode> {
        if let Some(Command::Forget(forget)) = self.command {
            return forget.run();
        }
        if let Some(phase) = self.phase
            && self.measure == Measure::Driver
            && phase.info().rpc.is_none()
        {
            eprintln!("claimcheck: phase {} includes no CSI call: leave out --measure driver", phase.name());
            return Ok(ExitCode::from(2));
        }
        let path = self.file.path().context("no home directory found: set the file with --history FILE")?;
        let history = History::open_existing(&path)?;
        let selection = Selection {
            cluster: self.cluster,
            driver: self.driver,
            phase: self.phase,
            before_ns: None,
            // With a phase, the limit applies to each plot.
            last: self.phase.is_none().then_some(self.last),
        };
        let runs = history.map_or_else(|| Ok(Vec::new()), |history| history.runs(&selection))?;
        if runs.is_empty() {
            print_no_runs(&path);
        }
        let style = Style::detect();
        let text = match (self.phase, self.format) {
            (None, Format::Json) => Document::with_runs(runs).to_json(),
            (None, Format::Text) if runs.is_empty() => String::new(),
            (None, Format::Text) => to_text(&runs, style),
            (Some(phase), format) => {
                let (measure, quantile) = (self.measure, self.quantile);
                let plots = plots(&runs, phase, measure, quantile, self.last as usize);
                match format {
                    Format::Json => Document::with_plots(plots).to_json(),
                    Format::Text => {
                        plots.iter().map(|plot| plot.to_text(phase, measure, quantile, style)).collect()
                    }
                }
            }
        };
        print!("{text}");
        Ok(ExitCode::SUCCESS)
    }
}

impl Forget {
    fn run(self) -> Result<ExitCode> {
        let path = self.file.path().context("no home directory found: set the file with --history FILE")?;
        let Some(history) = History::open_existing(&path)? else {
            print_no_runs(&path);
            return Ok(ExitCode::SUCCESS);
        };
        let before = i128::from(Stamp::now().wall_ns) - self.older_than.as_nanos();
        let forgotten = history.forget(i64::try_from(before).unwrap_or(i64::MIN))?;
        println!("{forgotten} runs deleted");
        Ok(ExitCode::SUCCESS)
    }
}

fn print_no_runs(path: &Path) {
    eprintln!("claimcheck: no matching runs in {}", path.display());
}
