//! The claimcheck binary: arguments in, exit code out.

mod cluster;
mod compare;
mod csi;
mod csi_args;
mod findings;
mod history;
mod image;
mod kind;
mod list;
mod load;
mod local_driver;
mod rbac;
mod report;
mod run;
mod testdriver;

use std::process::ExitCode;

use claimcheck_component::{Component, logging};
use claimcheck_harness::Lane;
use claimcheck_harness::{Entry, entry};
use claimcheck_model::Stamp;
use claimcheck_run::PlaceError;
use clap::{Parser, Subcommand};

const EXIT_CODES: &str = "\
Exit codes:
  0  all cases passed, all volumes of a load came and went, and nothing was left behind
  1  a case failed, or a volume of a load did, or something was left behind
  2  the command line cannot be used
  3  the cluster or the driver could not be started
  4  a threshold was broken, or `compare --fail-on worse` found the second side worse";

/// The conformance and observability harness for Kubernetes storage
///
/// Hands Kubernetes a claim and checks everything that happens until the data is in a Pod's hands, and until
/// nothing is left behind.
#[derive(Debug, Parser)]
#[command(name = "claimcheck", version, after_help = EXIT_CODES, arg_required_else_help = true)]
struct Cli {
    /// More logs: -v for what happens, -vv for everything; RUST_LOG overrides it
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// How logs look, ours and those of the components
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        env = "CLAIMCHECK_LOG_FORMAT"
    )]
    log_format: logging::Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The main job: cluster up, suites, report, cluster down
    Run(run::Args),
    /// The catalogue: what is checked, under which upstream name, and what would be skipped why
    List(list::Args),
    /// Does a CSI driver keep to the specification? Its calls, one by one, without a cluster
    Csi(Box<csi_args::Args>),
    /// The file of a driver for Kubernetes' own e2e storage suite (-storage.testdriver), from what it declares
    Testdriver(Box<testdriver::Args>),
    /// Many volumes and pods at a time: throughput, latency, cost, and whether anything grows
    Load(load::Args),
    /// The page of a run, report.html, made anew
    Report(report::Args),
    /// Runs held against each other: which phases became slower, and is that more than chance
    Compare(compare::Args),
    /// What earlier runs came to, and how long a phase took from run to run
    History(history::Args),
    /// The rights that `run --cluster existing` needs, as YAML
    Rbac(rbac::Args),
    /// A cluster to play with, and those that earlier ones have left
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// The image of the components for a cluster's nodes, made without a container engine
    Image(image::Args),
    #[command(flatten)]
    Component(Component),
}

impl Command {
    fn needs_cluster(&self) -> bool {
        match self {
            Self::Run(args) => args.place.is_virtual(),
            Self::Load(args) => args.place.is_virtual(),
            Self::Csi(args) => args.starts_driver(),
            Self::Testdriver(args) => args.starts_driver(),
            Self::Cluster(command) => command.needs_cluster(),
            Self::List(_)
            | Self::Report(_)
            | Self::Compare(_)
            | Self::History(_)
            | Self::Rbac(_)
            | Self::Image(_)
            | Self::Component(_) => false,
        }
    }
}

fn main() -> ExitCode {
    let began = Stamp::now();
    let mut cli = None;
    let lane = match entry(|| cli.insert(Cli::parse()).command.needs_cluster()) {
        Entry::Exit(code) => return code,
        Entry::Go(lane) => lane,
    };
    let Some(cli) = cli else { return ExitCode::from(2) };
    let style = match cli.command {
        Command::Component(_) => logging::Style::Component,
        Command::Run(_)
        | Command::Load(_)
        | Command::Csi(_)
        | Command::Testdriver(_)
        | Command::List(_)
        | Command::Report(_)
        | Command::Compare(_)
        | Command::History(_)
        | Command::Rbac(_)
        | Command::Image(_)
        | Command::Cluster(_) => logging::Style::Person { verbosity: cli.verbose },
    };
    logging::start(style, cli.log_format);
    let result = match cli.command {
        Command::Component(component) => return component.main(),
        Command::List(args) => list::list(args),
        Command::Report(args) => args.make(),
        Command::Compare(args) => args.run(),
        Command::History(args) => args.run(),
        Command::Rbac(args) => args.print(),
        Command::Run(args) => args.run(lane.unwrap_or(Lane::User), began),
        Command::Load(args) => args.run(lane.unwrap_or(Lane::User), began),
        Command::Csi(args) => csi::run(*args, lane, began),
        Command::Testdriver(args) => args.run(),
        Command::Image(args) => args.run(),
        Command::Cluster(command) => command.run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("claimcheck: {error:#}");
        ExitCode::from(3)
    })
}

/// The command line cannot be used.
fn usage(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("claimcheck: {error}");
    ExitCode::from(2)
}

/// A file that the command line names cannot be used.
fn unreadable(error: &anyhow::Error) -> ExitCode {
    eprintln!("claimcheck: {error:#}");
    ExitCode::from(2)
}

/// There is no such place.
fn misplaced(error: &PlaceError) -> ExitCode {
    eprintln!("claimcheck: {error}");
    error.exit_code()
}

/// Something that people should know, if there is something.
fn say(what: Option<String>) {
    if let Some(what) = what {
        eprintln!("claimcheck: {what}");
    }
}

/// One runtime for the whole process.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
