//! `claimcheck run`: starts a cluster, runs the suites, writes the report.

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use claimcheck_cluster::faults::FaultSpec;
use claimcheck_engine::{Expected, Level, NoMatch};
use claimcheck_harness::Privilege;
use claimcheck_model::Stamp;
use claimcheck_run::{
    ClusterArgs, FREQUENT, Options, Output, OutputArgs, PARALLEL, Run, ScenarioArgs, interrupt, versions,
};
use clap::Args as _;

use crate::{findings, repeat};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run only cases that contain one of these strings in their name
    filter: Vec<String>,
    #[command(flatten)]
    pub place: ClusterArgs,
    /// Number of concurrent cases
    #[arg(long, default_value_t = PARALLEL, value_parser = clap::value_parser!(u16).range(1..), help_heading = FREQUENT)]
    parallel: u16,
    /// Number of times that each case runs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..), help_heading = FREQUENT)]
    repeat: u16,
    /// Inject a fault, for example api=429@5%, api/patch/pods=409@10%, api=latency:50ms@20%, watch=drop@1%,
    /// rpc/NodeStageVolume=Unavailable@5%, rpc/CreateVolume=hangx1; can be repeated
    #[arg(long = "fault", value_name = "WHERE=WHAT[@RATE][xCOUNT]", help_heading = FREQUENT)]
    faults: Vec<FaultSpec>,
    /// A list of known findings (see ci/findings): exit with 0 only if exactly these cases fail
    #[arg(long, value_name = "FILE", help_heading = FREQUENT)]
    expect: Option<PathBuf>,
    /// Write the cases that fail, and what is leaked, to a new file, as a first list for --expect
    #[arg(long, value_name = "FILE", conflicts_with = "expect", help_heading = FREQUENT)]
    write_expect: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    scenarios: ScenarioArgs,
}

impl Args {
    /// Runs the suites; the exit code reports the outcome.
    pub fn run(self, privilege: Privilege, started: Stamp) -> Result<ExitCode> {
        let (workload, versions) = (self.place.workload(), self.place.versions());
        let outlives = self.place.outlives_its_run();
        let place = match self.place.place() {
            Ok(place) => place,
            Err(error) => return Ok(crate::invalid_target(&error)),
        };
        let Output { slos, push, otlp } = match self.output.read() {
            Ok(output) => output,
            Err(error) => return Ok(crate::usage(&error)),
        };
        let expected = match findings::read(self.expect.as_deref(), Level::Cluster, &self.filter) {
            Ok(expected) => expected,
            Err(error) => return Ok(crate::unreadable(&error)),
        };
        if let Some(path) = self.write_expect.as_deref()
            && let Err(error) = findings::is_new(path)
        {
            return Ok(crate::unreadable(&error));
        }
        if let Some(versions) = versions {
            if outlives || self.write_expect.is_some() {
                let why = "--kubernetes with several versions excludes --keep, --reuse and --write-expect: name one version";
                return Ok(crate::usage(&*anyhow::anyhow!(why)));
            }
            let arguments = versions::arguments_without(&["--kubernetes", "--out"]);
            let runs = versions::run(&versions, self.output.out.as_deref(), Path::new("runs"), &arguments);
            return crate::runtime()?.block_on(runs);
        }
        let cases = match self.scenarios.cases(crate::own_cases()) {
            Ok(cases) => cases,
            Err(error) => return Ok(crate::unreadable(&error.into())),
        };
        let options = Options {
            cases,
            filters: self.filter,
            place,
            workload,
            parallel: self.parallel.into(),
            repeat: self.repeat.into(),
            faults: self.faults,
            metrics_addr: self.output.metrics_addr,
            push,
            slos,
            otlp,
            out: self.output.out,
            folders: "runs".into(),
            history: self.output.history.path(),
            terminal: true,
            arguments: Some(repeat::run_arguments(
                &Self::augment_args(clap::Command::new("run")),
                arguments(),
            )),
            started,
        };
        if claimcheck_run::planned(&options, privilege).is_empty() {
            let error = NoMatch::new(&options.cases, &options.filters);
            return Ok(crate::nothing_tested(&format!("{error}: see `claimcheck list`")));
        }
        crate::runtime()?.block_on(run(&options, (expected, self.write_expect), privilege))
    }
}

/// The arguments of this process; those that are no text are not shown.
fn arguments() -> impl Iterator<Item = String> {
    env::args_os().filter_map(|word| word.into_string().ok())
}

async fn run(
    options: &Options,
    (expected, write_expect): (Option<Expected>, Option<PathBuf>),
    privilege: Privilege,
) -> Result<ExitCode> {
    let interrupted = interrupt::token()?;
    let run = Run::start(options, privilege, interrupted).await?;
    run.run_all().await;
    let reported = run.finish(options.started).await?.reported;
    crate::print(options.place.shutdown_notice());
    findings::conclude(&reported, expected.as_ref(), write_expect.as_deref(), Level::Cluster)
}
