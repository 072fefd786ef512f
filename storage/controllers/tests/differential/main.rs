//! The built-in controllers compared with upstream's: every scenario runs with both, and what they do must be equal.
//!
//! Each side is an upstream API server with etcd; the scenario does what users, the scheduler and kubelets do, and a
//! scripted driver answers the controllers. `scenarios/` has the scenarios, `differences.yaml` the permitted
//! differences. A scenario that differs runs once more, and fails if it differs again. Requires the programs in
//! `KUBEBUILDER_ASSETS` and `CLAIMCHECK_STOCK_SIDECARS`: all scenarios are ignored unless that is requested.
//!
//! `cargo test --locked --test differential -- --ignored <part of a name>` runs some, `-- --ignored` all, and `-- --ignored
//! --skip '[ci/nightly runs it]'` those that do not take minutes. Logs of all programs are kept if
//! `CLAIMCHECK_DIFFERENTIAL_LOGS` names a folder; with `CLAIMCHECK_DIFFERENTIAL_ALL` permitted differences fail, too.
//! `CLAIMCHECK_DIFFERENTIAL_SCENARIOS` names a folder with other scenarios to run instead. For random scenarios see
//! `random.rs`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod driver;
mod objects;
mod random;
mod run;
mod side;
mod stock;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use claimcheck_scenario::{Scenario, Table, differences, normal, report};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::{runtime::Handle, sync::RwLock};

use crate::{
    run::Runner,
    side::{Controllers, Programs, Side},
};

/// Scenarios that run at the same time; they mostly wait.
const CONCURRENT: usize = 16;
/// What all scenarios require of the machine.
const REQUIRED: &str = "envtest, stock, sidecars";

/// What differs is reported with these names.
const SIDES: [&str; 2] = ["built-in", "stock"];

struct Test {
    built_in: Side,
    stock: Side,
    /// Both of scenarios about the condition `Unused`, if there are such.
    unused: Option<(Side, Side)>,
    table: Table,
    /// Held for writing by a scenario that runs alone.
    alone: RwLock<()>,
    /// Scenarios that were equal in their second run only.
    differed_once: AtomicUsize,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CONCURRENT);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential");
    let other = std::env::var_os("CLAIMCHECK_DIFFERENTIAL_SCENARIOS").map(PathBuf::from);
    let own = other.is_none();
    let scenarios = read(&other.unwrap_or_else(|| here.join("scenarios")));
    let table = Table::read(&here.join("differences.yaml")).unwrap_or_else(|error| panic!("{error}"));
    // Nothing starts for a list, or if nothing runs.
    let trials: Vec<Trial> = scenarios.iter().map(|scenario| trial(scenario, || Ok(()))).collect();
    let runs = |trial: &Trial| !arguments.is_filtered_out(trial) && !arguments.is_ignored(trial);
    if arguments.list || !trials.iter().any(runs) {
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    // Differences of slow scenarios have to be `sometimes`.
    let runs_all = scenarios.iter().zip(&trials).all(|(scenario, trial)| scenario.slow || runs(trial));
    let programs = match claimcheck_needs::check(REQUIRED).and_then(|()| Programs::find()) {
        Ok(programs) => programs,
        Err(missing) => {
            eprintln!("differential: {missing}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // Not in TMPDIR, which may be long: the path of a unix socket ends at 108 bytes.
    let temporary = tempfile::tempdir_in("/tmp").unwrap();
    let folder = std::env::var_os("CLAIMCHECK_DIFFERENTIAL_LOGS").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| temporary.path().to_owned());
    let sides = async |folder: &Path, unused| {
        let (one, other) = (folder.join("o"), folder.join("s"));
        tokio::join!(
            Side::start(Controllers::BuiltIn, &programs, &one, unused),
            Side::start(Controllers::Stock, &programs, &other, unused),
        )
    };
    let selected = |scenario: &Scenario| {
        arguments.filter.as_ref().is_none_or(|part| scenario.name.contains(part.as_str()))
    };
    let with_gate = scenarios.iter().any(|scenario| scenario.unused && selected(scenario));
    let (built_in, stock) = runtime.block_on(sides(&folder, false));
    let unused = with_gate.then(|| runtime.block_on(sides(&folder.join("unused"), true)));
    let test = Arc::new(Test {
        built_in,
        stock,
        unused,
        table,
        alone: RwLock::new(()),
        differed_once: AtomicUsize::new(0),
    });
    runtime.block_on(started(&test));
    let trials = scenarios.into_iter().map(|scenario| {
        let (test, handle, scenario) = (test.clone(), runtime.handle().clone(), Arc::new(scenario));
        trial(&scenario.clone(), move || run_blocking(&handle, &test, &scenario))
    });
    let trials = trials.collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Before the random scenarios, which use entries, too.
    let unused = test.table.unused();
    let unused: Vec<_> = if own && runs_all { unused } else { Vec::new() };
    for known in &unused {
        eprintln!("differences.yaml: nothing matches any more: {known}");
    }
    println!(
        "{} entries of permitted differences; {} scenarios differed in their first run only",
        test.table.count(),
        test.differed_once.load(Ordering::Relaxed)
    );
    let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seconds) = number("CLAIMCHECK_DIFFERENTIAL_RANDOM") {
        let first = number("CLAIMCHECK_DIFFERENTIAL_SEED").unwrap_or(1);
        let reports = runtime.block_on(random::run(&test, Duration::from_secs(seconds), first));
        if !reports.is_empty() {
            eprintln!("{} random scenarios differ", reports.len());
            return ExitCode::FAILURE;
        }
    }
    if !unused.is_empty() {
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// All are ignored: `ci/test` runs those that are not slow where [`REQUIRED`] is present.
fn trial(scenario: &Scenario, run: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    let trial = Trial::test(scenario.name.clone(), run).with_ignored_flag(true);
    match scenario.slow {
        false => trial.with_kind("requires envtest, stock, sidecars"),
        true => trial.with_kind("ci/nightly runs it"),
    }
}

fn run_blocking(handle: &Handle, test: &Test, scenario: &Scenario) -> Result<(), Failed> {
    handle.block_on(run_one(test, scenario)).map_err(Failed::from)
}

/// Runs it on both sides, and reports differences that the table does not have. A scenario that differs runs once more:
/// which of two controllers acts first, and how often a call has failed by then, is a matter of timing, on both sides.
/// What differed in the first run only is printed, and does not fail the test.
async fn run_one(test: &Test, scenario: &Scenario) -> Result<(), String> {
    let (_shared, _alone) = match scenario.alone {
        true => (None, Some(test.alone.write().await)),
        false => (Some(test.alone.read().await), None),
    };
    let Err(first) = compare(test, scenario, &scenario.name).await else { return Ok(()) };
    let again = Scenario { name: format!("{}-again", scenario.name), ..scenario.clone() };
    compare(test, &again, &scenario.name)
        .await
        .map_err(|second| format!("{first}\nin the second run:\n{second}"))?;
    eprintln!("{} differed in its first run only:\n{first}", scenario.name);
    test.differed_once.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Runs it once; `known_as` is its name in the table of permitted differences.
async fn compare(test: &Test, scenario: &Scenario, known_as: &str) -> Result<(), String> {
    let on = async |side: &Side| {
        let outcome = Runner::new(side, scenario).run().await;
        (outcome, normal(&side.record, &scenario.name))
    };
    let (built_in, stock) = match (&test.unused, scenario.unused) {
        (Some((built_in, stock)), true) => (built_in, stock),
        _ => (&test.built_in, &test.stock),
    };
    let (built_in, stock) = tokio::join!(on(built_in), on(stock));
    let failed: Vec<String> = built_in
        .0
        .iter()
        .zip(&stock.0)
        .filter(|((_, one), (_, other))| one != "done" && one == other)
        .map(|((title, outcome), _)| format!("step {title}: {outcome} on both sides"))
        .collect();
    let all = differences(&built_in, &stock);
    let unknown = test.table.unknown(known_as, all.clone());
    let unknown = if std::env::var_os("CLAIMCHECK_DIFFERENTIAL_ALL").is_some() { all } else { unknown };
    if unknown.is_empty() && failed.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n{}", failed.join("\n"), report(&unknown, SIDES, &built_in.1, &stock.1)))
}

/// Waits until all controllers of both sides work: the probe needs each program once, since a scenario that runs alone
/// would otherwise be the first to need some of them. What they do meanwhile is not compared.
async fn started(test: &Test) {
    let probe: Scenario = serde_saphyr::from_str(include_str!("probe.yaml")).unwrap();
    let (mut built_in, mut stock) = (Runner::new(&test.built_in, &probe), Runner::new(&test.stock, &probe));
    let (built_in, stock) = tokio::join!(built_in.run(), stock.run());
    for (of, side, outcomes) in [("built-in", &test.built_in, &built_in), ("stock", &test.stock, &stock)] {
        for (title, outcome) in outcomes {
            let ended = side.ended();
            assert_eq!(
                outcome, "done",
                "the {of} controllers do not start: {title}; ended programs: {ended:?}"
            );
        }
    }
}

/// Reads all scenarios, in the order of files and lines: each file is a list of them.
fn read(folder: &Path) -> Vec<Scenario> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let of_file = |file: &PathBuf| -> Vec<Scenario> {
        let text = std::fs::read_to_string(file).unwrap();
        // Steps that scenarios share are aliases, which are no attack here.
        let options = serde_saphyr::options! { budget: None };
        serde_saphyr::from_str_with_options(&text, options)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    let all: Vec<Scenario> = files.iter().flat_map(of_file).collect();
    let mut names: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    assert!(twice.is_none(), "two scenarios have the same name: {twice:?}");
    all
}
