//! claimcheck with cases of your own.
//!
//! A crate of yours has cases in Rust in addition to those of claimcheck: cases on a cluster, which create claims and pods, and
//! cases of single CSI calls. `examples/vendor-suite` in claimcheck's repository is such a crate, to copy.
//!
//! A case on a cluster is an async function with a [`Fixture`](cluster::Fixture): a namespace of its own, what creates claims
//! and pods in it, and waits that fail with what they saw last. What it creates is deleted afterwards, and what is left behind
//! fails the case.
//!
//! ```
//! use std::sync::Arc;
//!
//! use claimcheck::cluster::{Case, Fixture, Need, Pattern, TestPod};
//!
//! /// What a pod has written, the next one reads.
//! async fn keeps_data(t: Arc<Fixture>) -> anyhow::Result<()> {
//!     let claim = t.claim("data").await?;
//!     let writer = t.ready_pod(&TestPod::long_running("writer", &claim, "echo hello > /data/file; sync")).await?;
//!     t.remove_pod(&writer).await?;
//!     let reader = TestPod::run_to_completion("reader", &claim, "cat /data/file");
//!     anyhow::ensure!(t.output(&reader).await? == "hello", "the file is lost");
//!     Ok(())
//! }
//!
//! fn cases() -> Vec<Case> {
//!     vec![
//!         Case::new("acme", "a volume keeps data from pod to pod", |t| Box::pin(keeps_data(t)))
//!             .with_pattern(Pattern::IMMEDIATE)
//!             .with_needs(&[Need::Attach]),
//!     ]
//! }
//! ```
//!
//! `tests/e2e.rs` with `harness = false` runs them with `cargo test --test e2e`, together with claimcheck's catalogue; the
//! environment variables are those of claimcheck's own e2e test:
//!
//! ```no_run
//! # use claimcheck::cluster::Case;
//! # fn cases() -> Vec<Case> { Vec::new() }
//! fn main() -> std::process::ExitCode {
//!     claimcheck::e2e("runs".as_ref(), cases())
//! }
//! ```
//!
//! A program of yours has all commands of claimcheck, with your cases in its catalogues: `acme run acme::`,
//! `acme csi --driver ./acme-csi`, `acme list`:
//!
//! ```no_run
//! # use claimcheck::{Cases, cluster::Case};
//! # fn cases() -> Vec<Case> { Vec::new() }
//! fn main() -> std::process::ExitCode {
//!     claimcheck::main(Cases { cluster: cases(), ..Cases::default() })
//! }
//! ```
//!
//! A case of single calls has the sentence that it checks: one of the CSI specification ([`csi::spec`]), or of your own
//! documentation ([`csi::Sentence`]).
//!
//! ```
//! use std::sync::Arc;
//!
//! use claimcheck::csi::{Case, Fixture, Row, Sentence, Strength};
//!
//! static NAME: Sentence = Sentence::of_vendor("https://acme.example/csi", "The name is csi.acme.example.", Strength::Must);
//! const ROWS: &[Row] = &[Row::new("GetPluginInfo returns the name", &NAME, |t| Box::pin(async move { name(&t).await }))];
//!
//! async fn name(t: &Fixture) -> anyhow::Result<()> {
//!     let info = t.get_plugin_info(Default::default()).await?;
//!     anyhow::ensure!(info.name == "csi.acme.example", "the name is {}", info.name);
//!     Ok(())
//! }
//!
//! fn cases() -> Vec<Case> {
//!     Row::all("acme", "Calls that only Acme's driver has.", ROWS)
//! }
//! ```

#[macro_use]
mod out;

mod against;
#[cfg(test)]
mod book;
pub mod cluster;
mod clusters;
mod compare;
pub mod csi;
mod csi_args;
mod csi_run;
mod findings;
mod history;
mod kind;
mod list;
mod load;
mod local_driver;
mod monitor;
mod object_name;
mod rbac;
mod removed;
mod repeat;
mod report;
mod run;
mod scenario;
mod scenario_controllers;
mod scenario_record;
mod slo;
mod testdriver;

use std::{env::args_os, error::Error, path::Path, process::ExitCode, sync::OnceLock};

use claimcheck_component::{Component, logging, normal};
use claimcheck_harness::Privilege;
use claimcheck_harness::{Entry, entry};
use claimcheck_model::Stamp;
use claimcheck_report::{Ending, report_failed_start};
use claimcheck_run::{ClusterArgsError, Interrupted, explain, interrupt, with_sources};
use clap::{Parser, Subcommand};

const EXIT_CODES: &str = "\
Exit codes:
  0    all cases passed, all volumes of a load were created and deleted, and nothing was leaked
  1    a case or a volume of a load failed, something was leaked, a built-in component had a fault, or nothing was tested
  2    the command line is invalid
  3    the cluster or the driver could not be started, or the run could not be completed
  4    a threshold was not met, or `compare --fail-on worse` found a regression
  5    as 0, but a file of the run folder or the summary of the CI job could not be written
  130  the run was interrupted";

/// Lists options that every command has after its own.
const LAST: usize = 900;

/// A conformance and latency harness for Kubernetes storage
///
/// Creates PersistentVolumeClaims and checks every step until a Pod can use the data, and until everything is deleted
/// again.
#[derive(Debug, Parser)]
#[command(name = "claimcheck", version, after_help = EXIT_CODES, arg_required_else_help = true)]
struct Cli {
    /// Increase log verbosity: -v for info, -vv for debug; RUST_LOG overrides it
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = LAST)]
    verbose: u8,
    /// Format of log lines, also in the logs of the components
    #[arg(
        long,
        global = true,
        display_order = LAST,
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
    /// Start a cluster, run the test suites, write a report and delete the cluster
    Run(run::Args),
    /// List test cases, their requirements and skip reasons
    List(list::Args),
    /// Run CSI conformance tests against a driver, without a cluster (like csi-sanity)
    Csi(Box<csi_args::Args>),
    /// Generate a test driver file for Kubernetes' e2e storage suite (-storage.testdriver) from the capabilities that a
    /// driver declares
    Testdriver(Box<testdriver::Args>),
    /// Create many volumes and pods concurrently and measure throughput, latency, cost and resource growth
    Load(load::Args),
    /// Regenerate report.html from a run directory
    Report(report::Args),
    /// Compare two runs and report statistically significant latency changes
    Compare(compare::Args),
    /// List earlier runs, or show the duration of a phase from run to run
    History(history::Args),
    /// Print the RBAC roles required to run against an existing cluster; `monitor install --dry-run` prints those of the
    /// monitor
    Rbac(rbac::Args),
    /// Start a development cluster, and list or delete clusters created by claimcheck
    #[command(subcommand)]
    Cluster(clusters::Command),
    /// Follow every volume of an existing cluster: metrics of phases and waits, and what is stuck. Creates nothing but a
    /// Lease, unless a canary or Events on claims are enabled
    #[command(subcommand)]
    Monitor(monitor::Command),
    /// Turn the thresholds of an SLO file into Prometheus rules and alerts for a cluster in use
    #[command(subcommand)]
    Slo(slo::Command),
    /// Check scenario files, and print their JSON Schema; `claimcheck run --scenario` runs them
    #[command(subcommand)]
    Scenario(scenario::Command),
    /// Removed
    #[command(hide = true)]
    Image(removed::Args),
    #[command(flatten)]
    Component(Component),
}

impl Command {
    fn needs_cluster(&self) -> bool {
        match self {
            Self::Run(args) => args.place.is_virtual(),
            Self::Load(args) => args.needs_cluster(),
            Self::Csi(args) => args.starts_driver(),
            Self::Testdriver(args) => args.starts_driver(),
            Self::Cluster(command) => command.needs_cluster(),
            Self::List(_)
            | Self::Report(_)
            | Self::Compare(_)
            | Self::History(_)
            | Self::Rbac(_)
            | Self::Monitor(_)
            | Self::Slo(_)
            | Self::Scenario(_)
            | Self::Image(_)
            | Self::Component(_) => false,
        }
    }
}

/// Cases in addition to those of claimcheck.
#[derive(Default)]
pub struct Cases {
    /// Those on a cluster: of `run`, `list` and `cargo test --test e2e`.
    pub cluster: Vec<cluster::Case>,
    /// Those of single CSI calls: of `csi`.
    pub csi: Vec<csi::Case>,
}

static OWN: OnceLock<Cases> = OnceLock::new();

/// The cases on a cluster that are not claimcheck's.
fn own_cases() -> Vec<cluster::Case> {
    OWN.get().map(|own| own.cluster.clone()).unwrap_or_default()
}

/// All cases of single CSI calls.
fn csi_catalogue() -> Vec<csi::Case> {
    let own = OWN.get().map(|own| own.csi.clone()).unwrap_or_default();
    claimcheck_conformance::catalogue().into_iter().chain(own).collect()
}

/// Runs claimcheck's catalogue with these cases as tests, of a test program without a harness (`harness = false`); the run
/// folder is made below `folders`. It must be the first line of `main`.
pub fn e2e(folders: &Path, cases: Vec<cluster::Case>) -> ExitCode {
    claimcheck_run::e2e::main(folders, cases)
}

/// Runs the program: the command line of claimcheck, with these cases in addition. It must be the first line of `main`.
pub fn main(own: Cases) -> ExitCode {
    // The first and only call.
    let _ = OWN.set(own);
    let started = Stamp::now();
    let mut cli = None;
    let privilege = match entry(|| cli.insert(Cli::parse_from(normal(args_os()))).command.needs_cluster()) {
        Entry::Exit(code) => return code,
        Entry::Go(privilege) => privilege,
    };
    let Some(cli) = cli else { return ExitCode::from(2) };
    let style = match cli.command {
        Command::Component(_) | Command::Monitor(monitor::Command::Run(_)) => logging::Style::Component,
        Command::Run(_)
        | Command::Load(_)
        | Command::Csi(_)
        | Command::Testdriver(_)
        | Command::List(_)
        | Command::Report(_)
        | Command::Compare(_)
        | Command::History(_)
        | Command::Rbac(_)
        | Command::Monitor(
            monitor::Command::Status(_) | monitor::Command::Install(_) | monitor::Command::Uninstall(_),
        )
        | Command::Slo(_)
        | Command::Scenario(_)
        | Command::Image(_)
        | Command::Cluster(_) => logging::Style::Human { verbosity: cli.verbose },
    };
    logging::start(style, cli.log_format);
    let result = match cli.command {
        Command::Component(component) => return component.main(),
        Command::List(args) => list::list(args),
        Command::Report(args) => args.make(),
        Command::Compare(args) => args.run(),
        Command::History(args) => args.run(),
        Command::Rbac(args) => args.print(),
        Command::Run(args) => args.run(privilege.unwrap_or(Privilege::User), started),
        Command::Load(args) => args.run(privilege.unwrap_or(Privilege::User), started),
        Command::Csi(args) => csi_run::run(*args, privilege, started),
        Command::Testdriver(args) => args.run(),
        Command::Monitor(command) => command.run(),
        Command::Slo(command) => command.run(),
        Command::Scenario(command) => command.run(),
        Command::Image(_) => Ok(removed::refuse(
            "image",
            "without a registry, make the image with `docker import`, and give its name to --image (docs/ci/kind.md)",
        )),
        Command::Cluster(command) => command.run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("claimcheck: {}", explain(&error));
        ExitCode::from(if error.is::<Interrupted>() { interrupt::INTERRUPTED } else { 3 })
    })
}

/// The command line is invalid.
fn usage(error: &dyn Error) -> ExitCode {
    eprintln!("claimcheck: {}", with_sources(error));
    ExitCode::from(2)
}

/// A file named on the command line cannot be used.
fn unreadable(error: &anyhow::Error) -> ExitCode {
    eprintln!("claimcheck: {}", explain(error));
    ExitCode::from(2)
}

/// No case was selected: no run is a pass that tested nothing.
fn nothing_tested(reason: &str) -> ExitCode {
    let reason = format!("nothing was tested: {reason}");
    eprintln!("claimcheck: {reason}");
    report_failed_start(&reason);
    ExitCode::from(Ending::NothingTested.exit_code())
}

/// The arguments do not describe a usable cluster.
fn invalid_target(error: &ClusterArgsError) -> ExitCode {
    eprintln!("claimcheck: {}", with_sources(error));
    error.exit_code()
}

/// Prints a message for the user, if there is one.
fn print(what: Option<String>) {
    if let Some(what) = what {
        eprintln!("claimcheck: {what}");
    }
}

/// One runtime for the whole process.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
