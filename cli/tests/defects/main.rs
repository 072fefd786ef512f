//! Mutation testing of the suites: each defect of `testing/saboteur/defects` is found by the cases that speak of it in
//! their names, with a message that names its effect. Conversely, no case fails for a legal variant of the driver.

#![expect(clippy::unwrap_used, reason = "a test that cannot do its work shall end at once")]
#![expect(clippy::print_stdout, reason = "the matrix is printed for users: see ci/defects")]

mod cluster;
mod covered;
mod legal;
mod matrix;
mod old_sidecars;
mod pairs;
mod variants;

use std::{collections::BTreeSet, fs, path::Path, process::Command, sync::Mutex, thread, time::Instant};

use claimcheck_saboteur::{
    all,
    row::{
        Defect, Suite,
        Volumes::{self, Devices, Directories, Images, XfsImages},
    },
};
use serde_json::Value;

/// The number of drivers that are tested at a time.
const AT_ONCE: usize = 4;
/// How long a step of a case on a cluster may take.
const STEP: &str = "15s";
/// How often a defect may be tried that occurs only if calls overlap.
const RACES: usize = 3;
/// The maximum number of findings per defect, on average over all defects that fail a case and are not `broad`.
const FINDINGS: f64 = 1.2;

/// How a case reports a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum As {
    /// The specification forbids it.
    Failure,
    /// The specification permits it: a warning.
    CaseWarning,
}

/// A finding of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    case: String,
    as_what: As,
    message: String,
    /// The cause of a failure; failures with one cause are one finding.
    cause: String,
}

/// The result of a defect.
#[derive(Clone, Debug)]
struct Trial {
    defect: Defect,
    /// The findings of cases, failures first.
    found: Vec<Finding>,
    /// Why the defect does not count as caught; none if it does.
    missed: Option<String>,
}

impl Trial {
    fn of(defect: &Defect, whole: bool) -> Self {
        let mut trial = Self::once(defect, whole);
        for _ in 1..if defect.races { RACES } else { 1 } {
            if trial.missed.is_some() {
                trial = Self::once(defect, whole);
            }
        }
        trial
    }

    fn once(defect: &Defect, whole: bool) -> Self {
        let mut only: Vec<&str> = defect.fails.iter().map(String::as_str).collect();
        // A case that checks a whole run needs other cases.
        only.extend(only.iter().any(|case| case.contains("of the whole run")).then_some("robustness::"));
        let run = match defect.suite {
            Suite::Csi => run_driver(Some(defect), defect.volumes, if whole { &[] } else { &only }),
            Suite::Cluster => run_row(defect, &only, STEP),
        };
        let summary = run.summary;
        let found = findings(&summary);
        // In a run of all cases, one may depend on what another one has already reported as absent.
        let skipped = if whole { cases_with(&summary, "skipped") } else { Vec::new() };
        Self { missed: missed(defect, &found, &skipped), defect: defect.clone(), found }
    }

    /// The number of cases that fail.
    fn failures(&self) -> usize {
        self.found.iter().filter(|finding| finding.as_what == As::Failure).count()
    }

    /// The number of findings: failures with one cause count once.
    fn causes(&self) -> usize {
        let failures = self.found.iter().filter(|finding| finding.as_what == As::Failure);
        failures.map(|finding| finding.cause.as_str()).collect::<BTreeSet<_>>().len()
    }

    /// The finding that names the effect.
    fn caught(&self) -> Option<&Finding> {
        let of_case = |finding: &&Finding| is_reported(&self.defect, finding);
        self.found.iter().filter(of_case).find(|finding| finding.message.contains(&self.defect.message))
    }
}

/// Whether a finding is one of a case that must report the defect, as it must.
fn is_reported(defect: &Defect, finding: &Finding) -> bool {
    // A rule also counts the calls of other cases, so a defect that is a warning if its case runs alone may be a failure in a
    // run of all cases.
    let is_loud = finding.as_what == As::Failure || (defect.warns && finding.as_what == As::CaseWarning);
    is_loud && defect.must_fail(&finding.case)
}

/// What a run has left.
struct Run {
    summary: Value,
    /// What the drivers and the run logged.
    logs: String,
}

/// Log lines of the saboteur, which say that a rule applies.
const LOGGED: &str = "warn,claimcheck_saboteur=info";

/// The logs in a folder.
fn logs(folder: &Path) -> String {
    let mut logs = String::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => logs.push_str(&self::logs(&path)),
            path if path.extension().is_some_and(|it| it == "log") => {
                logs.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap_or_default()));
            }
            _ => {}
        }
    }
    logs
}

/// Runs cases (all, if none are given) against the built-in driver with or without a defect.
fn run_driver(defect: Option<&Defect>, volumes: Volumes, cases: &[&str]) -> Run {
    // Hanging calls run into the timeout repeatedly.
    let hangs = defect.is_some_and(|defect| defect.name.contains("hang"));
    let is_legal = defect.is_some_and(|defect| defect.permitted.is_some());
    let ready = if is_legal { "20" } else { "2" };
    let mut settings = vec!["--ready-timeout", ready, "--call-timeout", if hangs { "3" } else { "30" }];
    settings.extend(defect.iter().flat_map(|defect| &defect.args).map(String::as_str));
    settings.extend(defect.iter().filter(|it| !it.rules.is_empty()).flat_map(|it| ["--sabotage", &it.name]));
    let flags = defect.map(|defect| defect.driver_args.join(" ")).unwrap_or_default();
    summary(&flags, volumes, &settings, cases)
}

/// Runs cases on an embedded cluster with a row, if it is not one of settings alone.
fn run_row(defect: &Defect, cases: &[&str], step: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let acts = !(defect.rules.is_empty() && defect.api.is_empty() && defect.driver_args.is_empty());
    let config = defect.driver_config.as_ref().map(|config| {
        let file = folder.path().join("driver.yaml");
        // JSON is YAML.
        fs::write(&file, config.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    });
    let mut settings: Vec<&str> = defect.args.iter().map(String::as_str).collect();
    settings.extend(acts.then_some(["--sabotage", &defect.name]).into_iter().flatten());
    settings.extend(config.iter().flat_map(|file| ["--driver-config", file]));
    run_cluster(&settings, cases, step)
}

/// Runs cases on an embedded cluster with these settings.
fn run_cluster(settings: &[&str], cases: &[&str], step: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
        // Settings may have another; most cases wait for what does not happen.
        .env("CLAIMCHECK_STEP_TIMEOUT", step)
        .env("RUST_LOG", LOGGED)
        .args(["run", "--out"])
        .arg(&out)
        .args(settings)
        .args(cases)
        .output()
        .unwrap();
    let summary = fs::read(out.join("summary.json"));
    let summary =
        summary.unwrap_or_else(|_| panic!("{settings:?}: {}", String::from_utf8_lossy(&output.stderr)));
    let logs = logs(&out) + &String::from_utf8_lossy(&output.stderr);
    Run { summary: serde_json::from_slice(&summary).unwrap(), logs }
}

/// The findings of a run.
fn findings(summary: &Value) -> Vec<Finding> {
    let lines = |key| summary[key].as_array().into_iter().flatten();
    let finding = |line: &Value, as_what, message| {
        let text = |key| line[key].as_str().unwrap_or_default();
        let case = format!("{}::{}", text("suite"), text("name"));
        // A failure without a cause is a finding of its own.
        let cause = line["cause"].as_str().unwrap_or(&case).to_owned();
        Finding { case, as_what, message: text(message).to_owned(), cause }
    };
    let failed = lines("results").filter(|line| line["result"] == "failed");
    let failed = failed.map(|line| finding(line, As::Failure, "reason"));
    failed.chain(lines("warnings").map(|line| finding(line, As::CaseWarning, "text"))).collect()
}

/// The cases of a run with this result.
fn cases_with(summary: &Value, result: &str) -> Vec<String> {
    let lines = summary["results"].as_array().into_iter().flatten();
    let text = |line: &Value, key| line[key].as_str().unwrap_or_default().to_owned();
    lines
        .filter(|line| line["result"] == result)
        .map(|line| format!("{}::{}", text(line, "suite"), text(line, "name")))
        .collect()
}

/// What is wrong in a run in which no case may fail: the failures, and that no case passed.
fn wrong(summary: &Value) -> Vec<String> {
    let failures = findings(summary).into_iter().filter(|finding| finding.as_what == As::Failure);
    let mut wrong: Vec<String> = failures.map(|it| format!("{}: {}", it.case, it.message)).collect();
    wrong.extend(cases_with(summary, "passed").is_empty().then(|| "no case passed".to_owned()));
    wrong
}

/// What is wrong in the run with this name, if anything. It is printed at once: other runs still take long.
fn reported(name: &str, wrong: &[String]) -> Option<String> {
    let text = match wrong {
        [] => format!("{name}: no case fails"),
        _ => format!("{name}:\n  {}", wrong.join("\n  ")),
    };
    println!("{text}");
    (!wrong.is_empty()).then_some(text)
}

/// The summary of a run of these cases against a driver with these flags.
fn summary(flags: &str, volumes: Volumes, settings: &[&str], cases: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = format!(
        "exec:{} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} --topology rack=1 \
         --max-volumes-per-node 96 --require-token vault {flags}",
        env!("CARGO_BIN_EXE_claimcheck")
    );
    let more: &[&str] = match volumes {
        Directories => &["--access-type", "mount"],
        Images => {
            driver.push_str(" --disable ONLINE_EXPANSION");
            &["--volume-parameter", "kind=image"]
        }
        XfsImages => &["--volume-parameter", "kind=image", "--fs-type", "xfs"],
        Devices => &["--access-type", "block"],
    };
    let out = folder.path().join("out");
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .env("RUST_LOG", LOGGED)
        .args(["csi", "--format", "json", "--nodes", "2", "--attach-limit", "100"])
        .args(["--token-audience", "vault"])
        .args(settings)
        .args([
            "--mutable-parameter",
            "iops=100",
            "--invalid-mutable-parameter",
            "iops=0",
            "--driver",
            &driver,
        ])
        .args(more)
        .arg("--out")
        .arg(&out)
        .args(cases)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let summary = serde_json::from_slice(&output.stdout);
    let summary = summary.unwrap_or_else(|error| panic!("{flags}: {error}: {errors}"));
    Run { summary, logs: logs(&out) + &errors }
}

/// Why the defect does not count as caught; none if it does. A case that was skipped, since another one has reported the
/// same, need not report it.
fn missed(defect: &Defect, found: &[Finding], skipped: &[String]) -> Option<String> {
    let reported: Vec<&Finding> = found.iter().filter(|finding| is_reported(defect, finding)).collect();
    let is_found =
        |id: &&String| reported.iter().any(|finding| claimcheck_saboteur::row::is_case(id, &finding.case));
    let is_skipped = |id: &&String| {
        !found.is_empty() && skipped.iter().any(|case| claimcheck_saboteur::row::is_case(id, case))
    };
    let silent: Vec<&String> = defect.fails.iter().filter(|id| !is_found(id) && !is_skipped(id)).collect();
    if !silent.is_empty() {
        return Some(format!("not caught by {silent:?}"));
    }
    let is_named =
        reported.is_empty() || reported.iter().any(|finding| finding.message.contains(&defect.message));
    let messages = || reported.iter().map(|finding| &finding.message).collect::<Vec<_>>();
    (!is_named).then(|| format!("no message contains {:?}: {:?}", defect.message, messages()))
}

/// Tests defects, several at a time; returns the results in order.
fn try_all(defects: &[Defect], whole: bool) -> Vec<Trial> {
    let began = Instant::now();
    let mut done = several_at_a_time(defects, |defect| {
        let trial = is_possible(defect.volumes, &defect.name).then(|| Trial::of(defect, whole))?;
        if whole {
            println!("{:5.0} s: {}", began.elapsed().as_secs_f64(), defect.name);
        }
        Some(trial)
    });
    done.sort_by_key(|trial| defects.iter().position(|defect| defect.name == trial.defect.name));
    done
}

/// Whether a driver with these volumes can be tested; prints a line if it cannot.
fn is_possible(volumes: Volumes, what: &str) -> bool {
    let possible = volumes == Directories || nix::unistd::geteuid().is_root();
    if !possible {
        println!("{what}: omitted, since loop devices require root");
    }
    possible
}

/// Runs a test for each item, several at a time; returns the results in any order.
fn several_at_a_time<I: Sync, T: Send>(items: &[I], test: impl Fn(&I) -> Option<T> + Sync) -> Vec<T> {
    let waiting = Mutex::new(items.iter());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(item) = waiting.lock().unwrap().next() else { return };
                    if let Some(result) = test(item) {
                        done.lock().unwrap().push(result);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap()
}

/// Set by `ci/defects PART`: only rows with this in their names are run.
const PART: &str = "CLAIMCHECK_DEFECTS_PART";
/// Of so many rows, the test below runs one, with the cases that it names.
const SAMPLE: u64 = 6;
/// Of so many rows, `ci/defects` runs one with all cases, which takes as long as thirty rows with the cases they name.
const SAMPLE_OF_ALL_CASES: u64 = 8;

/// Whether a sample of one row in so many has this one: that depends on its name, and not on other rows.
fn is_sampled(name: &str, one_in: u64) -> bool {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32).is_multiple_of(one_in)
}

fn all_are_caught(trials: &[Trial]) {
    let missed = trials.iter().filter_map(|trial| Some((&trial.defect.name, trial.missed.as_ref()?)));
    let missed: Vec<_> = missed.map(|(name, reason)| format!("{name}: {reason}")).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// A sample; `ci/defects` runs all rows. Those of the cluster suite take minutes: see `ci/defects --cluster`.
#[test]
fn every_defect_is_caught_in_words_that_name_its_effect() {
    let writes = matrix::is_requested();
    let part = std::env::var(PART).ok();
    let mut defects = all().unwrap();
    assert!(defects.len() >= 400);
    defects.retain(|defect| {
        let is_chosen = match &part {
            Some(part) => part.split(',').any(|part| defect.name.contains(part)),
            None => writes || is_sampled(&defect.name, SAMPLE),
        };
        is_chosen && (defect.suite == Suite::Csi || writes)
    });
    let trials = try_all(&defects, false);
    all_are_caught(&trials);
    if writes {
        matrix::write(&trials);
    }
    trials.iter().filter(|_| part.is_some()).for_each(|trial| {
        println!("{}: {}", trial.defect.name, trial.caught().map_or("", |finding| finding.message.as_str()));
    });
}

/// All cases against no defect, and against a sample of the defects: how many findings a defect has.
#[test]
#[ignore = "ci/defects runs it"]
fn the_defect_matrix() {
    let mut defects = all().unwrap();
    defects.retain(|defect| defect.suite == Suite::Csi);
    let sound: Vec<Finding> = [Directories, Images, Devices]
        .into_iter()
        .flat_map(|volumes| findings(&run_driver(None, volumes, &[]).summary))
        .collect();
    let wrong = |finding: &&Finding| {
        finding.as_what == As::Failure || defects.iter().any(|defect| is_reported(defect, finding))
    };
    assert_eq!(
        sound.iter().filter(wrong).collect::<Vec<_>>(),
        [] as [&Finding; 0],
        "of the driver without defects"
    );
    defects.retain(|defect| is_sampled(&defect.name, SAMPLE_OF_ALL_CASES));
    let mut trials = try_all(&defects, true);
    // Warnings about the driver without defects catch no defect.
    trials.iter_mut().for_each(|trial| trial.found.retain(|finding| !sound.contains(finding)));
    println!("{}", matrix::table(&trials));
    let complete = trials.iter().filter(|trial| trial.missed.is_none()).count();
    println!("{complete} of {} defects caught, with messages that name their effects", defects.len());
    trials.retain(|trial| !trial.defect.broad);
    for trial in trials.iter().filter(|trial| trial.causes() > 1) {
        println!("  {}: {} findings, {} failing cases", trial.defect.name, trial.causes(), trial.failures());
    }
    println!("{}", matrix::ratio(&trials));
    assert_eq!(complete, defects.len());
    let average = matrix::average(&trials, Trial::causes);
    assert!(average < FINDINGS, "{average:.2} findings per defect: attribute the above to one cause each");
}
