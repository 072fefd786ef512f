//! The main function of `cargo test --test e2e`: the catalogue on libtest-mimic.
//!
//! `--list` and filters work as in any Rust test, and `--test-threads` is the number of cases at a time.
//! `--list` starts nothing.

use std::{
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use claimcheck_component::logging;
use claimcheck_engine::plan;
use claimcheck_harness::Privilege;
use claimcheck_harness::{Entry, entry};
use claimcheck_model::{CaseResult, Stamp};
use clap::Parser;
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::cluster_args::ClusterArgs;
use crate::interrupt;
use crate::output_args::{Output, OutputArgs};
use crate::run::{Options, Run};
use claimcheck_suites::{Planned, catalogue};

/// The arguments of the run. The command line belongs to libtest, so they are environment variables only.
#[derive(Debug, Parser)]
struct Environment {
    #[command(flatten)]
    place: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn usage(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("claimcheck: {error}");
    ExitCode::from(2)
}

/// Runs the catalogue as tests; the run folder is made below `folders`.
pub fn main(folders: &Path) -> ExitCode {
    let started = Stamp::now();
    let environment = || Environment::try_parse_from(["e2e"]);
    let is_virtual = || environment().is_ok_and(|environment| environment.place.is_virtual());
    let privilege = match entry(|| !Arguments::from_args().list && is_virtual()) {
        Entry::Exit(code) => return code,
        Entry::Go(privilege) => privilege,
    };
    let arguments = Arguments::from_args();
    let environment = match environment() {
        Ok(environment) => environment,
        Err(error) => return usage(&error),
    };
    let Output { slos, push, otlp } = match environment.output.read() {
        Ok(output) => output,
        Err(error) => return usage(&error),
    };
    let workload = environment.place.workload();
    let place = match environment.place.place() {
        Ok(place) => place,
        Err(error) => {
            eprintln!("claimcheck: {error}");
            return error.exit_code();
        }
    };
    if arguments.list {
        let planned = plan(&catalogue(), &[], Some(&place.expected(privilege)));
        let trials = planned.into_iter().map(|planned| trial(planned, |_| Ok(()))).collect();
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    logging::start(logging::Style::Human { verbosity: 0 }, logging::Format::of_environment());
    let options = Options {
        filters: Vec::new(),
        place,
        workload,
        parallel: usize::MAX >> 4,
        repeat: 1,
        faults: Vec::new(),
        metrics_addr: environment.output.metrics_addr,
        push,
        slos,
        otlp,
        out: environment.output.out,
        folders: folders.to_owned(),
        history: environment.output.history.named(),
        terminal: false,
        started,
    };
    match tests(&arguments, &options, privilege.unwrap_or(Privilege::User)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("claimcheck: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn tests(arguments: &Arguments, options: &Options, privilege: Privilege) -> anyhow::Result<ExitCode> {
    let runtime = Arc::new(Runtime::new()?);
    let (run, interrupted) = runtime.block_on(async {
        let interrupted = interrupt::token()?;
        // Until everything is up, an interrupt needs no orderly shutdown.
        tokio::select! {
            run = Run::start(options, privilege, interrupted.clone()) => anyhow::Ok((run?, interrupted.clone())),
            () = interrupted.cancelled() => anyhow::bail!("the run was interrupted"),
        }
    })?;
    // On an existing cluster, the cases that can run are known only now.
    let planned = run.planned().to_vec();
    // The last owner finishes the run; trials are dropped as they end.
    let shared = Arc::new(Mutex::new(Some(Arc::new(run))));
    let trials = planned.into_iter().map(|planned| {
        let (runtime, shared) = (runtime.clone(), shared.clone());
        trial(planned, move |planned| {
            let run = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(run) = run else { return Err("the run has ended".into()) };
            match runtime.block_on(run.run(planned)) {
                CaseResult::Failed { reason, .. } => Err(reason.into()),
                CaseResult::Passed | CaseResult::Skipped { .. } => Ok(()),
            }
        })
    });
    let trials = trials.collect();
    let conclusion: Conclusion = libtest_mimic::run(arguments, trials);
    let run = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
    let run = run.and_then(Arc::into_inner).ok_or_else(|| anyhow::anyhow!("a case is still running"))?;
    let outcome = runtime.block_on(run.finish(options.started))?;
    println!("report: {}", outcome.folder.display());
    Ok(match interrupt::exit_code(&interrupted, &outcome) {
        ExitCode::SUCCESS => conclusion.exit_code(),
        code => code,
    })
}

/// A case as a test; a skipped case is an ignored test with the reason as its kind.
fn trial(planned: Planned, run: impl Fn(&Planned) -> Result<(), Failed> + Send + 'static) -> Trial {
    let name = planned.id().to_string();
    let skip = planned.skip.clone();
    let trial = Trial::test(name, move || run(&planned));
    match skip {
        Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
        None => trial,
    }
}
