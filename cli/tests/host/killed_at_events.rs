//! Runs that are killed at named events of their event stream leave nothing on the host.
//!
//! The suites are those with cases that require loop devices. `CLAIMCHECK_KILLS` is the number of kills per kind of
//! cluster; ci/nightly has the larger one.

use std::{
    collections::BTreeSet,
    env, fs,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::leaves_nothing::{Run, alone, claimcheck, nothing_left};

/// The number of kills without `CLAIMCHECK_KILLS`.
const KILLS: usize = 6;

/// Longer than any run of one suite, also on a machine that has much else to do.
const LIMIT: Duration = Duration::from_secs(600);

/// A named event: its fields in `events.ndjson`.
type Named = &'static [(&'static str, &'static str)];

/// The events at which runs are killed: while a volume exists, is attached, staged and mounted, and while each of that
/// is undone. Most of them occur in every case with a volume.
const EVENTS: &[Named] = &[
    &[("event", "transition"), ("kind", "mount")],
    &[("event", "transition"), ("kind", "stage")],
    &[("event", "transition"), ("kind", "unmount")],
    &[("event", "rpc"), ("method", "NodeUnpublishVolume")],
    &[("event", "rpc"), ("method", "NodeUnstageVolume")],
    &[("event", "rpc"), ("method", "DeleteVolume")],
    &[("event", "phase"), ("phase", "start")],
    &[("event", "phase"), ("phase", "provision")],
    &[("event", "transition"), ("kind", "detach")],
    &[("event", "case_finished")],
    &[("event", "rpc"), ("method", "CreateSnapshot")],
    &[("event", "rpc"), ("method", "NodeExpandVolume")],
    &[("event", "component_exited")],
    &[("event", "case_started")],
];

/// The events at which conformance tests are killed.
const CALLS: &[Named] = &[
    &[("event", "rpc"), ("method", "NodePublishVolume")],
    &[("event", "rpc"), ("method", "NodeStageVolume")],
    &[("event", "case_finished")],
    &[("event", "rpc"), ("method", "NodeUnpublishVolume")],
    &[("event", "rpc"), ("method", "NodeExpandVolume")],
    &[("event", "rpc"), ("method", "NodeUnstageVolume")],
    &[("event", "case_started")],
    &[("event", "rpc"), ("method", "CreateSnapshot")],
    &[("event", "rpc"), ("method", "DeleteVolume")],
    &[("event", "rpc"), ("method", "ControllerUnpublishVolume")],
];
/// By how many occurrences each round of [`CALLS`] kills later than the previous one.
const LATER: usize = 7;
/// The number of rounds after which the events are too few.
const MOST: usize = 20;

#[test]
#[ignore = "requires root, loop"]
fn kills_at_named_events_leave_nothing_on_an_embedded_cluster() {
    kills(&[]);
}

#[test]
#[ignore = "requires root, loop, envtest"]
fn kills_at_named_events_leave_nothing_on_envtest() {
    claimcheck_needs::require("envtest");
    kills(&["--cluster", "envtest"]);
}

/// Without a cluster: the driver is a child of the command.
#[test]
#[ignore = "requires root, loop"]
fn kills_of_conformance_tests_at_named_events_leave_nothing() {
    claimcheck_needs::require("root, loop");
    let _alone = alone();
    let expected = expected();
    let rounds = (0..MOST).flat_map(|round| (0..CALLS.len()).map(move |number| (round, number)));
    let mut killed = 0;
    for (round, number) in rounds {
        if killed == expected {
            break;
        }
        let mut arguments = vec!["csi", "--driver", "builtin"];
        // Every other time only the suite that kills and restarts the driver itself, which has few of each event.
        let replays = (round + number) % 2 == 1;
        arguments.extend(replays.then_some("replays::"));
        let times = 1 + round * if replays { 1 } else { LATER };
        let tag = format!("csi-{round}-{number}");
        killed += usize::from(kill_at(&tag, &arguments, (CALLS[number], times), killed % 2 == 0));
    }
    assert_eq!(killed, expected, "there are too few named events");
}

/// The number of kills.
fn expected() -> usize {
    env::var("CLAIMCHECK_KILLS").map_or(KILLS, |number| number.parse().expect("a number"))
}

/// Kills runs of each suite in turn, each at another event and at another occurrence of it.
fn kills(cluster: &[&str]) {
    claimcheck_needs::require("root, loop");
    let _alone = alone();
    let expected = expected();
    let mut suites: Vec<String> = suites_with_loop_devices().into_iter().collect();
    // First the one with raw block volumes: no mount holds their devices open.
    suites.sort_by_key(|suite| suite != "volume_mode");
    assert_eq!(suites.first().map(String::as_str), Some("volume_mode"), "{suites:?}");
    let mut killed = 0;
    // In every round each suite has another event: an event that a suite does not have comes later in another one.
    let rounds = (0..EVENTS.len()).flat_map(|round| suites.iter().enumerate().map(move |it| (round, it)));
    for (round, (number, suite)) in rounds {
        if killed == expected {
            break;
        }
        let event = EVENTS[(round + number) % EVENTS.len()];
        let filter = format!("{suite}::");
        let mut arguments = vec!["run"];
        arguments.extend(cluster);
        arguments.push(&filter);
        // The first process alone, as `kill -9` does, or all at once, so that none can clean up.
        let (event, first_process_alone) = ((event, 1 + round % 3), killed % 2 == 0);
        let tag = format!("at-{round}-{number}");
        killed += usize::from(kill_at(&tag, &arguments, event, first_process_alone));
    }
    assert_eq!(killed, expected, "there are too few named events");
}

/// Kills a run at the given occurrence of an event; false if the run ends before. Nothing is left in either case.
fn kill_at(tag: &str, arguments: &[&str], (event, times): (Named, usize), first_process_alone: bool) -> bool {
    let mut run = Run::start(tag, &mut claimcheck(), arguments);
    let occurred = wait_for(&mut run, event, times);
    if occurred {
        let target = if first_process_alone { run.pid() } else { -run.pid() };
        let _ = kill(Pid::from_raw(target), Signal::SIGKILL);
    }
    println!("{arguments:?} {} {event:?}", if occurred { "killed at" } else { "ended without" });
    run.child.wait().expect("it was ours");
    nothing_left(&run.tag);
    occurred
}

/// The suites with a case that requires loop devices.
fn suites_with_loop_devices() -> BTreeSet<String> {
    let output = claimcheck().args(["list", "--format", "json"]).output().expect("it runs");
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cases = list["cases"].as_array().expect("a list of cases");
    let requires = |case: &Value| {
        let needs = case["needs"].as_array().expect("a case has requirements");
        needs.iter().any(|need| need.as_str().is_some_and(|need| need.contains("loop devices")))
    };
    let suite = |case: &Value| case["case"]["suite"].as_str().expect("a case has a suite").to_owned();
    cases.iter().filter(|case| requires(case)).map(suite).collect()
}

/// Waits until the event has occurred this often; false if the run ends before.
fn wait_for(run: &mut Run, event: Named, times: usize) -> bool {
    let path = run.folder().join("events.ndjson");
    let deadline = Instant::now() + LIMIT;
    loop {
        // Before the events are read, so that none of a run that has ended is missed.
        let ended = run.child.try_wait().expect("it was ours").is_some();
        if occurrences(&path, event) >= times {
            return !ended;
        }
        if ended {
            return false;
        }
        assert!(Instant::now() < deadline, "neither {event:?} nor the end of the run after {LIMIT:?}");
        sleep(Duration::from_millis(2));
    }
}

fn occurrences(path: &Path, event: Named) -> usize {
    let text = fs::read_to_string(path).unwrap_or_default();
    let is_event = |line: &&str| {
        if !event.iter().all(|(_, value)| line.contains(value)) {
            return false;
        }
        // The last line may be incomplete.
        let logged: Value = serde_json::from_str(line).unwrap_or_default();
        event.iter().all(|(field, value)| logged[field] == *value)
    };
    text.lines().filter(is_event).count()
}

/// Every named event is one that a run can emit: the names are those of the model.
#[test]
fn named_events_exist() {
    use claimcheck_model::{Phase, RpcMethod, TransitionKind};
    let kinds: Vec<&str> = TransitionKind::ALL.iter().map(|kind| kind.name()).collect();
    for event in EVENTS.iter().chain(CALLS) {
        for (field, value) in *event {
            let quoted = Value::String((*value).to_owned());
            let exists = match *field {
                "kind" => kinds.contains(value),
                "phase" => serde_json::from_value::<Phase>(quoted).is_ok(),
                "method" => matches!(serde_json::from_value(quoted), Ok(RpcMethod::Csi(_))),
                _ => *field == "event",
            };
            assert!(exists, "{event:?}");
        }
    }
}
