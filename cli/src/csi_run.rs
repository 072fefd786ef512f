//! `claimcheck csi`: conformance tests of a driver against the CSI specification, without a cluster.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use claimcheck_cluster::LoopHolder;
use claimcheck_conformance::{
    Case, Config, DriverUnderTest, Endpoints, NodeEffects, Planned, Restart, Runner,
};
use claimcheck_csi::Endpoint;
use claimcheck_engine::{Case as _, Expected, Level, NoMatch, plan};
use claimcheck_harness::{Privilege, STATE_DIR};
use claimcheck_model::{CaseResult, ClusterKind, Event, RunInfo, Stamp};
use claimcheck_report::{CaseLine, Reporter, RunFolder, Summary, report_failed_start};
use claimcheck_run::{Interrupted, explain, interrupt, with_sources};
use claimcheck_telemetry::metrics::Metrics;
use claimcheck_vendor::DriverCommand;
use tempfile::TempDir;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    csi_args::{Args, Format},
    findings, list,
    local_driver::{self, LocalDriver},
};

/// The node IDs of a driver started by this command.
const NODES: [&str; 2] = ["claimcheck-node-a", "claimcheck-node-b"];
/// The number of the slowest cases that a run names.
const SLOWEST: usize = 5;

/// Runs the test cases against a driver; the exit code reports the outcome.
pub fn run(args: Args, privilege: Option<Privilege>, run_start: Stamp) -> Result<ExitCode> {
    if let Some(name) = &args.explain {
        return Ok(explain_cases(name));
    }
    let config = match args.config(privilege) {
        Ok(config) => config,
        Err(error) => return Ok(crate::unreadable(&error)),
    };
    let expected = match findings::read(args.expect.as_deref(), Level::Calls, &args.filter) {
        Ok(expected) => expected,
        Err(error) => return Ok(crate::unreadable(&error)),
    };
    if let Some(path) = args.write_expect.as_deref()
        && let Err(error) = findings::is_new(path)
    {
        return Ok(crate::unreadable(&error));
    }
    if plan(&crate::csi_catalogue(), &args.filter, None).is_empty() {
        return Ok(if args.list {
            no_case(&args.filter)
        } else {
            crate::nothing_tested(&no_match(&args.filter))
        });
    }
    if args.endpoint.is_none() && args.driver.is_none() {
        if args.list {
            print(&plan(&crate::csi_catalogue(), &args.filter, None), args.format)?;
            return Ok(ExitCode::SUCCESS);
        }
        return Ok(local_driver::which());
    }
    crate::runtime()?.block_on(attempt(args, config, expected, privilege, run_start))
}

fn no_case(filters: &[String]) -> ExitCode {
    eprintln!("claimcheck: {}", no_match(filters));
    ExitCode::from(2)
}

fn no_match(filters: &[String]) -> String {
    format!("{}: see `claimcheck csi --list`", NoMatch::new(&crate::csi_catalogue(), filters))
}

/// Prints what the case of this name checks; without one, what all cases check that contain it in their name.
fn explain_cases(name: &str) -> ExitCode {
    let mut cases = crate::csi_catalogue();
    cases.retain(|case| case.id().to_string().contains(name));
    if cases.iter().any(|case| case.id().to_string() == name) {
        cases.retain(|case| case.id().to_string() == name);
    }
    // A row that runs with each access type is two cases in sequence.
    cases.dedup_by_key(|case: &mut Case| (case.suite, case.row.name));
    if cases.is_empty() {
        return no_case(&[name.to_owned()]);
    }
    let explained: Vec<String> = cases.iter().map(Case::explanation).collect();
    println!("{}", explained.join("\n\n"));
    ExitCode::SUCCESS
}

/// The driver under test, and how to restart the processes started for it.
struct Started {
    endpoints: Endpoints,
    restart: Option<Restart>,
    log: Option<PathBuf>,
    /// Last, so that it outlives the processes.
    _loop_holder: Option<LoopHolder>,
    /// The files of a saboteur.
    _scratch: Option<TempDir>,
}

async fn attempt(
    args: Args,
    mut config: Config,
    expected: Option<Expected>,
    privilege: Option<Privilege>,
    run_start: Stamp,
) -> Result<ExitCode> {
    let interrupted = interrupt::token()?;
    if args.list {
        let scratch = Path::new(STATE_DIR).join("driver.log");
        let started = start(&args, &mut config, scratch)?;
        let (driver, _emitting) =
            connect(config, &started, args.start_timeout, mpsc::unbounded_channel().0).await?;
        print(&plan(&crate::csi_catalogue(), &args.filter, Some(driver.capabilities())), args.format)?;
        return Ok(ExitCode::SUCCESS);
    }
    let folder = RunFolder::choose(args.out.as_deref(), "runs".as_ref(), ClusterKind::Csi)
        .inspect_err(|error| report_failed_start(&with_sources(error)))?;
    let reporter = match args.format {
        Format::Text => Reporter::new(folder.clone(), Metrics::default()).detailing(times),
        Format::Json => Reporter::quiet(folder.clone(), Metrics::default()),
    };
    let (events, reporting) = reporter.in_ci().with_history(args.history.path()).start();
    let ran = run_cases(&args, config, &folder, privilege, &events, &interrupted).await;
    let last = match &ran {
        Ok(()) => Event::RunFinished {
            seconds: Stamp::now().seconds_since(run_start),
            interrupted: interrupted.is_cancelled(),
        },
        Err(error) => Event::RunAborted { reason: explain(error) },
    };
    // Sending fails only if the reporter has stopped, which its result reports.
    let _ = events.send(last);
    let reported = reporting.await.context("the reporter panicked")?;
    if args.format == Format::Json {
        println!("{}", serde_json::to_string_pretty(&reported.summary)?);
    }
    ran?;
    findings::conclude(&reported, expected.as_ref(), args.write_expect.as_deref(), Level::Calls)
}

/// Starts the driver, if the run does, and runs the cases.
async fn run_cases(
    args: &Args,
    mut config: Config,
    folder: &RunFolder,
    privilege: Option<Privilege>,
    events: &mpsc::UnboundedSender<Event>,
    interrupted: &CancellationToken,
) -> Result<()> {
    let started = start(args, &mut config, folder.cluster_dir()?.join("driver.log"))?;
    let (driver, emitting) = tokio::select! {
        connected = connect(config, &started, args.start_timeout, events.clone()) => connected?,
        () = interrupted.cancelled() => return Err(Interrupted.into()),
    };
    let planned = plan(&crate::csi_catalogue(), &args.filter, Some(driver.capabilities()));
    let _ = events.send(Event::RunStarted(info(args, &driver, &planned, privilege)));
    let secrets = driver.known_secrets().clone();
    let runner = Runner::new(driver, args.parallel.into(), args.strict, events.clone(), interrupted.clone());
    runner.run_all(&planned).await;
    drop(runner);
    // All calls have ended; wait until each is emitted before the end of the run.
    emitting.await.context("the task that emits CSI calls panicked")?;
    let log = started.log.clone();
    drop(started);
    claimcheck_cluster::redact_logs(log.iter().map(PathBuf::as_path), &secrets);
    Ok(())
}

/// The time per case that ran, and the slowest cases.
fn times(summary: &Summary) -> String {
    slowest(&summary.results, summary.elapsed_s)
}

/// The time per case that ran, and the slowest cases with what they wait for on purpose. The time of a case includes
/// waits for a driver that executes one call at a time, if cases run in parallel.
fn slowest(results: &[CaseLine], elapsed_s: f64) -> String {
    let skipped = |line: &CaseLine| matches!(line.result, CaseResult::Skipped { .. });
    let mut ran: Vec<&CaseLine> = results.iter().filter(|line| !skipped(line)).collect();
    if ran.is_empty() {
        return "no case ran".to_owned();
    }
    ran.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.case.cmp(&b.case)));
    let (count, per_case) = (ran.len(), elapsed_s * 1000.0 / ran.len() as f64);
    let mut text = format!("{count} cases ran in {elapsed_s:.2} s, {per_case:.1} ms per case; the slowest:");
    let cases = crate::csi_catalogue();
    for line in ran.into_iter().take(SLOWEST) {
        let waits = cases.iter().find(|case| case.id() == line.case).and_then(|case| case.details().waits);
        let waits = waits.map(|waits| format!(" (waits {waits})")).unwrap_or_default();
        text.push_str(&format!("\n{:>8.3} s  {}{waits}", line.seconds, line.case));
    }
    text
}

async fn connect(
    config: Config,
    started: &Started,
    timeout: Duration,
    events: mpsc::UnboundedSender<Event>,
) -> Result<(Arc<DriverUnderTest>, tokio::task::JoinHandle<()>)> {
    let restart = started.restart.clone();
    let connected =
        DriverUnderTest::connect(config, started.endpoints.clone(), restart, timeout, events).await;
    connected.map_err(|error| local_driver::last_words(error.into(), started.log.as_deref()))
}

/// Starts the driver if `--driver` is given.
fn start(args: &Args, config: &mut Config, log: PathBuf) -> Result<Started> {
    let Some(command) = &args.driver else {
        let node = args.endpoint.clone().context("either --endpoint or --driver is required")?;
        let (controller, second) = (args.controller_endpoint.clone(), args.second_endpoint.clone());
        let restart = args.restart_command.clone().map(Restart::Command);
        let (endpoints, scratch) = behind(Endpoints { node, controller, second }, args.sabotage.as_deref())?;
        return Ok(Started { endpoints, restart, log: None, _loop_holder: None, _scratch: scratch });
    };
    let default = if *command == DriverCommand::Builtin { 2 } else { 1 };
    let count = usize::from(args.nodes.unwrap_or(default));
    let command = command.clone().sabotaged(args.sabotage.as_deref());
    let local = LocalDriver::start(&command, None, &NODES[..count], &log)?;
    // The usual paths are in the mount namespace of the run, which no other process sees.
    config.staging_dir.get_or_insert_with(|| local.root.join("staging"));
    config.target_dir.get_or_insert_with(|| local.root.join("targets"));
    config.output = Some(log.clone());
    let restart = Some(Restart::Processes(Arc::new(Mutex::new(local.processes))));
    let (endpoints, loop_holder) = (local.endpoints, Some(local.loop_holder));
    Ok(Started { endpoints, restart, log: Some(log), _loop_holder: loop_holder, _scratch: None })
}

/// The endpoints of proxies with a defect before those of a driver that runs already, and the folder of their files.
fn behind(endpoints: Endpoints, defect: Option<&str>) -> Result<(Endpoints, Option<TempDir>)> {
    let Some(defect) = defect else { return Ok((endpoints, None)) };
    let scratch = tempfile::tempdir().context("cannot create a folder for the saboteur")?;
    let before = |endpoint: Endpoint, name: &str| {
        let listen = scratch.path().join(name);
        claimcheck_saboteur::serve(defect, &listen, &endpoint, &scratch.path().join("memory"))?;
        anyhow::Ok(Endpoint::Unix(listen))
    };
    let endpoints = Endpoints {
        node: before(endpoints.node, "node.sock")?,
        controller: endpoints.controller.map(|at| before(at, "controller.sock")).transpose()?,
        second: endpoints.second.map(|at| before(at, "second.sock")).transpose()?,
    };
    Ok((endpoints, Some(scratch)))
}

fn info(args: &Args, driver: &DriverUnderTest, planned: &[Planned], privilege: Option<Privilege>) -> RunInfo {
    let capabilities = driver.capabilities();
    let accesses: Vec<&str> = capabilities.accesses.iter().map(|access| access.name()).collect();
    let processors = std::thread::available_parallelism().map_or(0, usize::from).to_string();
    let entries = [
        ("parallel", driver.parallel(args.parallel.into()).to_string()),
        ("processors", processors),
        ("access_types", accesses.join(", ")),
        ("volume_size", driver.volume_size().to_string()),
        ("node", capabilities.info.node_id.clone()),
    ];
    let mut environment: BTreeMap<String, String> =
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    environment.extend(privilege.map(|privilege| ("privilege".to_owned(), privilege.describe().to_owned())));
    environment.extend(args.strict.then(|| ("strict".to_owned(), "true".to_owned())));
    if capabilities.node_effects == NodeEffects::None {
        environment.insert("node_effects".to_owned(), NodeEffects::None.name().to_owned());
    }
    if !capabilities.restarts {
        environment.insert("restarts".to_owned(), "excluded".to_owned());
    }
    RunInfo {
        schema: RunInfo::SCHEMA,
        cases: planned.len(),
        cluster: ClusterKind::Csi,
        driver: capabilities.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment,
        ..RunInfo::default()
    }
}

/// Prints the list of test cases.
fn print(planned: &[Planned], format: Format) -> Result<()> {
    let titles = ["RULE (CSI SPECIFICATION)", "STRENGTH", "CSI-SANITY", "WAITS", "RUNS ALONE BECAUSE"];
    let listed = planned.iter().map(|planned| planned.listed(planned.case.details()));
    list::print(listed.collect(), format == Format::Json, titles, |details| {
        let upstream = details.upstream.unwrap_or_default();
        let waits = details.waits.clone().unwrap_or_default();
        let alone = details.alone.unwrap_or_default();
        [details.rule.to_owned(), details.strength.to_string(), upstream.to_owned(), waits, alone.to_owned()]
    })
}

#[cfg(test)]
mod tests {
    use claimcheck_model::CaseId;

    use super::*;

    #[test]
    fn the_slowest_cases_that_ran_are_named_with_their_waits() {
        let line = |suite: &str, name: &str, result, seconds| CaseLine {
            case: CaseId::new(suite, name),
            result,
            seconds,
        };
        let skipped = || CaseResult::Skipped { reason: "no volumes".to_owned() };
        let latency = "NodeGetInfo called many times does not become slower";
        let mut results = vec![
            line("upkeep", latency, CaseResult::Passed, 0.4),
            line("identity", "skipped", skipped(), 0.0),
            line("identity", "b", CaseResult::Passed, 0.01),
            line("identity", "a", CaseResult::failed("wrong".to_owned()), 0.01),
        ];
        assert_eq!(
            slowest(&results, 1.5),
            "3 cases ran in 1.50 s, 500.0 ms per case; the slowest:\n   0.400 s  upkeep::NodeGetInfo called many times \
             does not become slower (waits up to 5 s: many calls, since latency is compared with that of the first \
             ones)\n   0.010 s  identity::a\n   0.010 s  identity::b"
        );
        results.extend((0..SLOWEST).map(|_| line("identity", "slow", CaseResult::Passed, 3.0)));
        let text = slowest(&results, 16.0);
        assert_eq!(text.matches("identity::slow").count(), SLOWEST);
        assert!(!text.contains(latency), "{text}");
        assert_eq!(slowest(&[line("identity", "skipped", skipped(), 0.0)], 1.0), "no case ran");
    }
}
