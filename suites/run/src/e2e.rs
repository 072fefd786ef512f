//! The main function of `cargo test --test e2e`: the catalogue on libtest-mimic.
//!
//! `--list` and filters work as in any Rust test, and `--test-threads` is the number of cases at a time: the default is that
//! of `claimcheck run`, since cases mostly wait.
//! `--list` starts nothing.

use std::{
    cmp::Reverse,
    env,
    ffi::OsString,
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use claimcheck_component::logging;
use claimcheck_engine::{Case as _, plan};
use claimcheck_harness::Privilege;
use claimcheck_harness::{Entry, entry};
use claimcheck_kind::Selection;
use claimcheck_model::{CaseResult, Stamp};
use claimcheck_report::{Ending, Reported, report_failed_start};
use clap::Parser;
use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::cluster_args::ClusterArgs;
use crate::explain::explain;
use crate::interrupt;
use crate::output_args::{Output, OutputArgs};
use crate::run::{Interrupted, Options, PARALLEL, Run, planned};
use crate::scenario_args::ScenarioArgs;
use crate::versions;
use claimcheck_suites::{Case, Planned};

/// The arguments of the run. The command line belongs to libtest, so they are environment variables only.
#[derive(Debug, Parser)]
struct Environment {
    #[command(flatten)]
    place: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    scenarios: ScenarioArgs,
}

fn usage(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("claimcheck: {error}");
    ExitCode::from(2)
}

/// Runs the catalogue, with cases of others, as tests; the run folder is made below `folders`.
pub fn main(folders: &Path, own: Vec<Case>) -> ExitCode {
    let started = Stamp::now();
    let environment = || Environment::try_parse_from(["e2e"]);
    let is_virtual = || environment().is_ok_and(|environment| environment.place.is_virtual());
    let privilege = match entry(|| !Arguments::from_args().list && is_virtual()) {
        Entry::Exit(code) => return code,
        Entry::Go(privilege) => privilege,
    };
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(PARALLEL.into());
    let environment = match environment() {
        Ok(environment) => environment,
        Err(error) => return usage(&error),
    };
    let Output { slos, push, otlp } = match environment.output.read() {
        Ok(output) => output,
        Err(error) => return usage(&error),
    };
    let (workload, versions) = (environment.place.workload(), environment.place.versions());
    let place = match environment.place.place() {
        Ok(place) => place,
        Err(error) => {
            eprintln!("claimcheck: {error}");
            return error.exit_code();
        }
    };
    let cases = match environment.scenarios.cases(own) {
        Ok(cases) => cases,
        Err(error) => return usage(&error),
    };
    if arguments.list {
        let planned = plan(&cases, &[], Some(&place.expected(privilege)));
        let trials = planned.into_iter().map(listed).collect();
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    if let Some(versions) = versions {
        return on_versions(&versions, environment.output.out.as_deref(), folders);
    }
    logging::start(logging::Style::Human { verbosity: 0 }, logging::Format::from_environment());
    let options = Options {
        cases,
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
        arguments: None,
        started,
    };
    match tests(&arguments, &options, privilege.unwrap_or(Privilege::User)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("claimcheck: {}", explain(&error));
            ExitCode::from(if error.is::<Interrupted>() { interrupt::INTERRUPTED } else { 3 })
        }
    }
}

/// Runs this program once per version of Kubernetes.
fn on_versions(versions: &[Selection], out: Option<&Path>, folders: &Path) -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let runs = Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(versions::run(versions, out, folders, &arguments)));
    runs.unwrap_or_else(|error| {
        eprintln!("claimcheck: {}", explain(&error));
        ExitCode::from(3)
    })
}

fn tests(arguments: &Arguments, options: &Options, privilege: Privilege) -> anyhow::Result<ExitCode> {
    let expected = planned(options, privilege);
    if !expected.into_iter().any(|planned| !arguments.is_filtered_out(&listed(planned))) {
        return Ok(nothing_selected());
    }
    let runtime = Arc::new(Runtime::new()?);
    let run = runtime.block_on(async { Run::start(options, privilege, interrupt::token()?).await })?;
    // On an existing cluster, the cases that can run are known only now.
    let mut planned = run.planned().to_vec();
    // libtest starts them in this order.
    planned.sort_by_key(|planned| (planned.schedule, Reverse(planned.case.urgency())));
    // libtest ignores these without running them: the reports list them all the same.
    for planned in &planned {
        let trial = listed(planned.clone());
        if !arguments.is_filtered_out(&trial) && arguments.is_ignored(&trial) {
            runtime.block_on(run.run(planned));
        }
    }
    // The last owner finishes the run; trials are dropped as they end.
    let shared = Arc::new(Mutex::new(Some(Arc::new(run))));
    let trials = planned.into_iter().map(|planned| {
        let (runtime, shared) = (runtime.clone(), shared.clone());
        trial(planned, move |planned| {
            let run = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(run) = run else { return Err("the run has ended".into()) };
            match runtime.block_on(run.run(planned)) {
                CaseResult::Failed { reason, .. } => Err(reason.into()),
                CaseResult::Skipped { reason } => Ok(Completion::Ignored { reason: Some(reason) }),
                CaseResult::Passed => Ok(Completion::Completed),
            }
        })
    });
    let trials = trials.collect();
    let conclusion: Conclusion = libtest_mimic::run(arguments, trials);
    let run = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
    let run = run.and_then(Arc::into_inner).ok_or_else(|| anyhow::anyhow!("a case is still running"))?;
    let outcome = runtime.block_on(run.finish(options.started))?;
    println!("report: {}", outcome.page().display());
    Ok(exit_code(&outcome.reported, &conclusion, arguments.exact))
}

/// The exit code of the run, or that of libtest if the run passed. With `--exact`, as nextest starts each test, a skipped
/// case is an ignored test, which is no failure there.
fn exit_code(reported: &Reported, conclusion: &Conclusion, exact: bool) -> ExitCode {
    let is_single = reported.summary.ending() == Ending::NothingTested && exact;
    if let (Ending::NothingTested, Some(shortfall)) =
        (reported.summary.ending(), reported.summary.shortfall())
    {
        eprintln!("claimcheck: {shortfall}");
    }
    match reported.exit_code() {
        0 => conclusion.exit_code(),
        _ if is_single => conclusion.exit_code(),
        code => ExitCode::from(code),
    }
}

/// The filter selects no case. (`cargo test` does not start this program without `--test e2e`, so that the filter is not
/// one for other tests.)
fn nothing_selected() -> ExitCode {
    let reason = "nothing was tested: no test case matches: see --list";
    eprintln!("claimcheck: {reason}");
    report_failed_start(reason);
    ExitCode::from(Ending::NothingTested.exit_code())
}

/// A trial that is only listed.
fn listed(planned: Planned) -> Trial {
    trial(planned, |_| Ok(Completion::Completed))
}

/// A case as a test; a skipped case is an ignored test with the reason as its kind.
fn trial(planned: Planned, run: impl Fn(&Planned) -> Result<Completion, Failed> + Send + 'static) -> Trial {
    let name = planned.id().to_string();
    let skip = planned.skip.clone();
    let trial = Trial::ignorable_test(name, move || run(&planned));
    match skip {
        Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
        None => trial,
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_report::{CaseCounts, State, Summary};

    use super::*;

    fn code(cases: CaseCounts, exact: bool) -> ExitCode {
        let summary = Summary { state: State::Finished, cases, ..Summary::default() };
        let conclusion = Conclusion {
            num_filtered_out: 0,
            num_passed: cases.passed,
            num_failed: cases.failed,
            num_ignored: cases.skipped,
            num_measured: 0,
        };
        exit_code(&Reported { summary, unwritten: Vec::new() }, &conclusion, exact)
    }

    #[test]
    fn only_a_single_test_may_be_skipped_without_a_failure() {
        let skipped = CaseCounts { skipped: 1, ..CaseCounts::default() };
        assert_eq!([code(skipped, false), code(skipped, true)], [ExitCode::from(1), ExitCode::SUCCESS]);
        let passed = CaseCounts { passed: 1, ..skipped };
        assert_eq!([code(passed, false), code(passed, true)], [ExitCode::SUCCESS; 2]);
        let failed = CaseCounts { failed: 1, ..skipped };
        assert_eq!([code(failed, false), code(failed, true)], [ExitCode::from(1); 2]);
    }
}
