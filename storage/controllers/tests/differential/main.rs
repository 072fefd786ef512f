//! The built-in controllers compared with upstream's: every scenario runs with both, and what they do must be equal.
//!
//! `claimcheck_differential` plays them, as for `claimcheck scenario compare`. `scenarios/` has the scenarios,
//! `differences.yaml` the permitted differences. A scenario that differs runs once more, and fails if it differs again.
//! Requires the programs in `KUBEBUILDER_ASSETS` and `CLAIMCHECK_STOCK_SIDECARS`: all scenarios are ignored unless that is
//! requested.
//!
//! `cargo test --locked --test differential -- --ignored <part of a name>` runs some, `-- --ignored` all, and `-- --ignored
//! --skip '[ci/nightly runs it]'` those that do not take minutes. Logs of all programs are kept if
//! `CLAIMCHECK_DIFFERENTIAL_LOGS` names a folder; with `CLAIMCHECK_DIFFERENTIAL_ALL` permitted differences fail, too.
//! For random scenarios see `random.rs`; `claimcheck scenario compare` plays those of other files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod random;

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use claimcheck_differential::{CONCURRENT, Pair, Programs, Verdict};
use claimcheck_scenario::{Scenario, Table, read_all};
use libtest_mimic::{Arguments, Failed, Trial};

/// What all scenarios require of the machine.
const REQUIRED: &str = "envtest, stock, sidecars";
/// What scenarios need of Kubernetes: whether one needs it, what it is, and the first version that has it.
type Feature = (fn(&Scenario) -> bool, &'static str, &'static str);
const FEATURES: [Feature; 2] = [
    // A feature gate, which is off by default.
    (|scenario| scenario.unused, "the condition Unused of claims (KEP-5541)", "1.36"),
    (names_attributes, "VolumeAttributesClasses of storage.k8s.io/v1 (KEP-3751)", "1.34"),
];

struct Test {
    pair: Pair,
    table: Table,
    /// Scenarios that were equal in their second run only.
    differed_once: AtomicUsize,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CONCURRENT);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential");
    let read = read_all(&[here.join("scenarios")]).unwrap_or_else(|error| panic!("{error}"));
    let scenarios: Vec<Scenario> = read.into_iter().map(|read| read.scenario).collect();
    let table = match std::env::var_os("CLAIMCHECK_DIFFERENTIAL_ALL") {
        Some(_) => Table::empty(),
        None => Table::read(&here.join("differences.yaml")).unwrap_or_else(|error| panic!("{error}")),
    };
    // Nothing starts for a list, or if nothing runs.
    let trials: Vec<Trial> = scenarios.iter().map(|scenario| trial(scenario, || Ok(()))).collect();
    let runs = |trial: &Trial| !arguments.is_filtered_out(trial) && !arguments.is_ignored(trial);
    if arguments.list || !trials.iter().any(runs) {
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    // Differences of slow scenarios have to be `sometimes`.
    let runs_all = scenarios.iter().zip(&trials).all(|(scenario, trial)| scenario.slow || runs(trial));
    let found = claimcheck_needs::check(REQUIRED)
        .and_then(|()| Programs::find().map_err(|missing| missing.to_string()));
    let programs = match found {
        Ok(programs) => programs,
        Err(missing) => {
            eprintln!("differential: {missing}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let folder = std::env::var_os("CLAIMCHECK_DIFFERENTIAL_LOGS").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| temporary.path().to_owned());
    let selected = |scenario: &Scenario| {
        arguments.filter.as_ref().is_none_or(|part| scenario.name.contains(part.as_str()))
    };
    let with_gate = scenarios.iter().any(|scenario| scenario.unused && selected(scenario));
    let pair = match runtime.block_on(Pair::start(&programs, &folder, with_gate)) {
        Ok(pair) => pair,
        Err(error) => {
            let source = error.source().map(|source| format!(": {source}"));
            eprintln!("differential: {error}{}", source.unwrap_or_default());
            return ExitCode::FAILURE;
        }
    };
    let version = pair.version();
    let table = table.of_version(&version);
    let all = scenarios.len();
    let mut scenarios = scenarios;
    for (needs, what, since) in FEATURES.iter().filter(|(.., since)| older(&version, since)) {
        scenarios.retain(|scenario| !needs(scenario));
        println!(
            "scenarios with {what} are left out: Kubernetes has that from {since}, and this is {version}"
        );
    }
    let runs_all = runs_all && scenarios.len() == all;
    let test = Arc::new(Test { pair, table, differed_once: AtomicUsize::new(0) });
    let trials = scenarios.into_iter().map(|scenario| {
        let (test, handle, scenario) = (test.clone(), runtime.handle().clone(), Arc::new(scenario));
        trial(&scenario.clone(), move || handle.block_on(run_one(&test, &scenario)).map_err(Failed::from))
    });
    let trials = trials.collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Before the random scenarios, which use entries, too.
    let unused = test.table.unused();
    let unused: Vec<_> = if runs_all { unused } else { Vec::new() };
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

/// Whether a version, as `1.34`, is older than another.
fn older(version: &str, other: &str) -> bool {
    let minor = |text: &str| text.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    minor(version) < minor(other)
}

/// Whether a scenario names the VolumeAttributesClass of a claim.
fn names_attributes(scenario: &Scenario) -> bool {
    let text = format!("{scenario:?}");
    ["attributes-class", "volumeAttributesClassName"].iter().any(|name| text.contains(name))
}

/// All are ignored: `ci/test` runs those that are not slow where [`REQUIRED`] is present.
fn trial(scenario: &Scenario, run: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    let trial = Trial::test(scenario.name.clone(), run).with_ignored_flag(true);
    match scenario.slow {
        false => trial.with_kind("requires envtest, stock, sidecars"),
        true => trial.with_kind("ci/nightly runs it"),
    }
}

/// What differed in the first run only is printed, and does not fail the test.
async fn run_one(test: &Test, scenario: &Scenario) -> Result<(), String> {
    match test.pair.compare(scenario, &test.table).await {
        Verdict::Equal => Ok(()),
        Verdict::DifferedOnce(first) => {
            eprintln!("{} differed in its first run only:\n{first}", scenario.name);
            test.differed_once.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Verdict::Differs { first, second } => Err(format!("{first}\nin the second run:\n{second}")),
    }
}
