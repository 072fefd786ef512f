//! Mutation testing of the suite: `claimcheck csi` catches each defect of the built-in driver, with a case and a
//! message that names the defect's effect. Conversely, it fails no case for a legal variant of the driver.

#![expect(clippy::unwrap_used, reason = "a test that cannot do its work shall end at once")]
#![expect(clippy::print_stdout, reason = "the matrix is printed for users: see ci/defects")]

mod due;
mod matrix;
mod variants;

use std::{collections::BTreeSet, process::Command, sync::Mutex, thread};

use claimcheck_driver::defect::Defect;
use serde_json::Value;

use self::due::{As, Devices, Directories, Due, Images, Volumes, XfsImages, due_of};

/// The number of drivers that are tested at a time.
const AT_ONCE: usize = 4;
/// Failures that a busy machine may cause in a run of all cases.
const SLACK: usize = 2;
/// The maximum number of findings per defect, on average over all defects that fail a case.
const FINDINGS: f64 = 1.2;

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
struct Trial {
    defect: Defect,
    /// The findings of cases, failures first.
    found: Vec<Finding>,
    /// Why the defect does not count as caught; none if it does.
    missed: Option<String>,
}

impl Trial {
    fn of(defect: Defect, whole: bool) -> Self {
        let due = due_of(defect);
        // A case that checks a whole run needs other cases.
        let only = ["robustness::", due.case];
        let only = if due.case.starts_with("robustness::") { &only[..] } else { &only[1..] };
        let found = try_driver(Some((defect, due.without)), due.volumes, if whole { &[] } else { only });
        let missed = missed(&due, &found, if whole { due.most + SLACK } else { usize::MAX });
        Self { defect, found, missed }
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

    /// The finding of the case that must catch the defect.
    fn caught(&self) -> Option<&Finding> {
        self.found.iter().find(|finding| due_of(self.defect).is_reported_by(finding))
    }
}

impl Due {
    fn is_reported_by(&self, finding: &Finding) -> bool {
        finding.case == self.case && finding.as_what == self.as_what
    }
}

/// Runs cases (all, if none are given) against a driver with or without a defect, which lacks these capabilities.
fn try_driver(defect: Option<(Defect, &[&str])>, volumes: Volumes, cases: &[&str]) -> Vec<Finding> {
    // Hanging calls run into the timeout repeatedly.
    let timeout = if defect.is_some_and(|(defect, _)| defect == Defect::HangInCall) { "3" } else { "30" };
    let flag = |(defect, without): (Defect, &[&str])| {
        let disabled = without.iter().map(|capability| format!(" --disable {capability}"));
        format!("--defect {}{}", defect.name(), disabled.collect::<String>())
    };
    let flag = defect.map(flag).unwrap_or_default();
    let summary = summary(&flag, volumes, &["--ready-timeout", "2", "--call-timeout", timeout], cases);
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

/// The summary of a run of these cases against a driver with these flags.
fn summary(flags: &str, volumes: Volumes, settings: &[&str], cases: &[&str]) -> Value {
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
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
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
        .arg(folder.path().join("out"))
        .args(cases)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{flags}: {error}: {errors}"))
}

/// Why the defect does not count as caught; none if it does.
fn missed(due: &Due, found: &[Finding], most: usize) -> Option<String> {
    let Some(Finding { message, .. }) = found.iter().find(|finding| due.is_reported_by(finding)) else {
        return Some(format!("not caught by {:?}", due.case));
    };
    if !message.contains(due.words) {
        return Some(format!("the message does not contain {:?}: {message}", due.words));
    }
    let failed = found.iter().filter(|finding| finding.as_what == As::Failure);
    let failed: Vec<&str> = failed.map(|finding| finding.case.as_str()).collect();
    (failed.len() > most)
        .then(|| format!("fails {} cases, at most {most} are expected: {failed:?}", failed.len()))
}

/// Tests all defects, several at a time; returns the results in order.
fn try_all(whole: bool) -> Vec<Trial> {
    let mut done = several_at_a_time(Defect::all(), |&defect| {
        is_possible(due_of(defect).volumes, &defect.name()).then(|| Trial::of(defect, whole))
    });
    done.sort_by_key(|trial| trial.defect);
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

#[test]
fn every_defect_is_caught_in_words_that_name_its_effect() {
    assert!(Defect::all().len() >= 36);
    let missed: Vec<_> = try_all(false)
        .into_iter()
        .filter_map(|trial| Some(format!("{}: {}", trial.defect.name(), trial.missed?)))
        .collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// All cases against each defect, and against no defect: this takes minutes, so only `ci/defects` runs it.
#[test]
#[ignore = "ci/defects runs it"]
fn the_defect_matrix() {
    let sound: Vec<Finding> = [Directories, Images, Devices]
        .into_iter()
        .flat_map(|volumes| try_driver(None, volumes, &[]))
        .collect();
    let wrong = |finding: &&Finding| {
        let is_reported = |defect: &Defect| due_of(*defect).is_reported_by(finding);
        finding.as_what == As::Failure || Defect::all().iter().any(is_reported)
    };
    assert_eq!(
        sound.iter().filter(wrong).collect::<Vec<_>>(),
        [] as [&Finding; 0],
        "of the driver without defects"
    );
    let mut trials = try_all(true);
    // Warnings about the driver without defects catch no defect.
    trials.iter_mut().for_each(|trial| trial.found.retain(|finding| !sound.contains(finding)));
    println!("{}", matrix::table(&trials));
    let complete = trials.iter().filter(|trial| trial.missed.is_none()).count();
    println!("{complete} of {} defects caught, with messages that name their effects", Defect::all().len());
    println!("{}", matrix::ratio(&trials));
    for trial in trials.iter().filter(|trial| trial.causes() > 1) {
        println!(
            "  {}: {} findings, {} failing cases",
            trial.defect.name(),
            trial.causes(),
            trial.failures()
        );
    }
    assert_eq!(complete, Defect::all().len());
    let average = matrix::average(&trials, Trial::causes);
    assert!(average < FINDINGS, "{average:.2} findings per defect: attribute the above to one cause each");
    matrix::write(&trials);
}
