//! `report.html` in a browser: no errors, no network, and what is to be used works; with 2,000 volumes too.

use std::{fs, path::Path, process::Command};

use claimcheck_model::{
    CaseId, CaseResult, ClusterKind, CsiMethod, Event, FailureDump, Leak, LeakKind, Log, LoggedEvent,
    ObjectEvent, Outcome, Phase, PhaseSample, RpcSummary, RunInfo, Source, Stamp, SubjectIds, VolumeMode,
};
use claimcheck_report::history::History;
use claimcheck_report::{Quantiles, Summary, rebuild};
use serde_json::{Value, json};

/// A name that would break a page that trusted it.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)> & \"quotes\" <!--";
/// Catches what goes wrong, before the page's own script. A browser without a window draws no frames.
const CATCH: &str = "<script>window.probeErrors = [];\
    window.requestAnimationFrame = draw => setTimeout(draw, 16);\
    addEventListener('error', event => probeErrors.push(event.message));\
    console.error = (...words) => probeErrors.push(words.join(' '));</script>";

fn at(micros: u64) -> Stamp {
    Stamp { mono_ns: micros * 1000, wall_ns: 1_790_000_000_000_000_000 + micros * 1000 }
}

/// Everything that happens to one volume, from `start` in microseconds.
fn life(number: u64, start: u64) -> Vec<Event> {
    let pod = format!("pod-{number}");
    let mut events = Vec::new();
    let mut next = start;
    let until_deleted = Phase::ALL.iter().take_while(|phase| **phase != Phase::Delete);
    for (i, &phase) in until_deleted.chain([&Phase::Delete]).enumerate() {
        let length = 2_000 + (number * 37 + i as u64 * 911) % 9_000 + if number == 700 { 50_000 } else { 0 };
        let (from, to) = (at(next), at(next + length));
        next += length;
        let of_pod = [Phase::Schedule, Phase::Start, Phase::Stop].contains(&phase);
        let volume = if of_pod { String::new() } else { format!("pvc-{number}") };
        let seconds = length as f64 / 1e6;
        let driver_seconds = phase.info().rpc.map_or(0.0, |_| seconds / 4.0);
        let handle = if of_pod { String::new() } else { format!("vol-{number}") };
        if let Some(method) = phase.info().rpc {
            let code = if number % 400 == 3 { "Internal" } else { "OK" };
            events.push(Event::Rpc(RpcSummary {
                driver: "d.io".into(),
                method: method.into(),
                code: code.into(),
                volume: if method == CsiMethod::CreateVolume { volume.clone() } else { handle.clone() },
                node: "node-1".into(),
                start: from,
                seconds: driver_seconds,
                retry: false,
            }));
        }
        events.push(Event::Phase(PhaseSample {
            phase,
            subject: SubjectIds {
                claim: format!("uid-{number}"),
                volume,
                pod: pod.clone(),
                node: "node-1".into(),
            },
            claim: format!("cc-1/claim-{number}"),
            handle,
            driver: "d.io".into(),
            class: "fast".into(),
            volume_mode: VolumeMode::Filesystem,
            outcome: Outcome::Ok {
                start: from,
                end: to,
                source: Source::Watch,
                seconds,
                driver_seconds: Some(driver_seconds),
                overhead_seconds: Some(seconds - driver_seconds),
            },
        }));
    }
    events
}

/// What there was to see of a case that failed.
fn evidence(case: CaseId) -> FailureDump {
    let event = ObjectEvent {
        last: "2026-09-21T14:13:20Z".into(),
        kind: "Warning".into(),
        reason: "FailedMount".into(),
        object: "Pod/pod".into(),
        message: HOSTILE.into(),
        count: 3,
    };
    let pod = json!({ "kind": "Pod", "metadata": { "name": "pod" }, "status": { "phase": "Pending" } });
    let logs = ["pod/main", "agent node-1"].map(|of| Log { of: of.into(), text: HOSTILE.repeat(20) });
    FailureDump { case, objects: vec![pod], events: vec![event], logs: logs.into() }
}

/// The folder of a run that was killed before it had a summary: the page is made of its events alone.
fn run(folder: &Path, volumes: u64) {
    let case = CaseId::new("volumes", HOSTILE);
    let finished = |case: &CaseId, result| Event::CaseFinished { case: case.clone(), result, seconds: 1.5 };
    let mut events = vec![
        Event::RunStarted(RunInfo { cases: 6, driver: "d.io".into(), ..RunInfo::default() }),
        Event::CaseStarted { case: case.clone(), namespace: "cc-1".into() },
    ];
    events.extend((0..volumes).flat_map(|number| life(number, number * 3_000)));
    events.push(Event::Step {
        case: case.clone(),
        what: HOSTILE.into(),
        start: at(0),
        seconds: 1.5,
        failed: Some("it is Pending".into()),
    });
    events.push(Event::FailureDump(evidence(case.clone())));
    events.push(finished(&case, CaseResult::failed(format!("last seen: {HOSTILE}"))));
    events.push(finished(
        &CaseId::new("volumes", "xfs"),
        CaseResult::Skipped { reason: "mkfs.xfs is missing".into() },
    ));
    events.push(finished(&CaseId::new("attach", "one"), CaseResult::Passed));
    for name in ["two", "three"] {
        let (reason, cause) = ("nothing is mounted".to_owned(), Some(HOSTILE.to_owned()));
        events.push(finished(&CaseId::new("attach", name), CaseResult::Failed { reason, cause }));
    }
    events.push(finished(
        &CaseId::new("attach", "four"),
        CaseResult::Skipped { reason: format!("{HOSTILE}: see attach::two") },
    ));
    events.push(Event::Leak(Leak { kind: LeakKind::Mount, name: HOSTILE.into(), case: Some(case) }));
    let lines = events.into_iter().map(|event| {
        serde_json::to_string(&LoggedEvent { at: at(0), event }).expect("an event is JSON") + "\n"
    });
    // What a kill leaves of the last line.
    fs::write(folder.join("events.ndjson"), lines.collect::<String>() + "{\"at\":{\"mono").expect("written");
}

/// Runs before this one, on the same kind of cluster with the same driver.
fn earlier(folder: &Path) -> History {
    let history = History::open(&folder.join("history.ndjson")).expect("a history");
    for day in 1..6 {
        let seconds = 0.004 + day as f64 / 1e3;
        let (name, count) = ("total".to_owned(), 40);
        let total = Quantiles {
            name,
            count,
            p50: seconds,
            p95: seconds,
            p99: seconds,
            min: seconds,
            max: seconds,
            avg: seconds,
        };
        let environment = [("cluster", ClusterKind::default().name()), ("driver", "d.io")];
        let summary = Summary {
            environment: environment.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            phases: Phase::ALL.iter().map(|&phase| (phase, vec![total.clone()])).collect(),
            ..Summary::default()
        };
        let began = Stamp { mono_ns: 0, wall_ns: at(0).wall_ns - day * 86_400_000_000_000 };
        history.record(&summary, began, folder).expect("recorded");
    }
    history
}

/// What the probe saw in the page of a run with so many volumes.
fn probe(folder: &Path, volumes: u64, size: &str) -> Value {
    claimcheck_needs::require("chromium");
    run(folder, volumes);
    let page = rebuild(folder, Some(&earlier(folder))).expect("a page");
    let text = fs::read_to_string(&page).expect("the page");
    let mut probed = text.replacen("<head>", &format!("<head>{CATCH}"), 1);
    let end = probed.rfind("</body>").expect("a page has an end");
    probed.insert_str(end, &format!("<script>{}</script>", include_str!("probe.js")));
    let copy = folder.join("probed.html");
    fs::write(&copy, probed).expect("written");
    let profile = folder.join("profile");
    let mut browser = Command::new("chromium");
    browser.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=20000",
        "--dump-dom",
    ]);
    browser.arg(format!("--window-size={size}")).arg(format!("--user-data-dir={}", profile.display()));
    let output = browser.arg(format!("file://{}", copy.display())).output().expect("chromium runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    let seen = dom.split("<pre id=\"probe\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let seen =
        seen.unwrap_or_else(|| panic!("the probe left nothing: {}", String::from_utf8_lossy(&output.stderr)));
    let plain = seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&plain).expect("what the probe leaves is JSON")
}

#[test]
#[ignore = "requires chromium"]
fn the_page_of_2000_volumes_works_without_errors_and_without_network() {
    let folder = tempfile::tempdir().expect("a folder");
    let seen = probe(folder.path(), 2_000, "1280,1000");
    assert_eq!(seen["errors"], serde_json::json!([]), "{seen}");
    assert_eq!(seen["requests"], serde_json::json!([]), "nothing is fetched: {seen}");
    assert_eq!(seen["images"], 0, "what a case is called is not markup");
    for what in ["zoom", "wheel", "hides", "aligns"] {
        assert_eq!(seen[what], true, "{what}: {seen}");
    }
    // A window shows some thirty rows of some twenty bars and calls: what is drawn does not grow with the run.
    let drawn = seen["rectangles"].as_u64().expect("a number");
    assert!((200..3_000).contains(&drawn), "{drawn} rectangles");
    assert_eq!(seen["chosen"], "cc-1/claim-0");
    assert!(seen["lines"].as_u64() > Some(12), "phases and calls: {seen}");
    assert_eq!(seen["found"], "1 of 2000 volumes");
    assert_eq!(seen["longest"], "cc-1/claim-700");
    assert_eq!(seen["cases"], "1 of 6");
    assert_eq!(seen["steps"], 2, "where it failed, and among all cases");
    assert_eq!(
        seen["evidence"],
        json!(["Events 1", "Objects 1", "Log pod/main", "Log agent node-1"]),
        "{seen}"
    );
    assert_eq!(seen["findings"], json!([format!("volumes::{HOSTILE}"), HOSTILE]), "one entry per cause");
    assert_eq!(seen["collapsed"], json!(["attach::three", "Cases that depend on it 1"]), "{seen}");
    assert_eq!(seen["volumes"], "2000 volumes", "a case leads to its volumes");
    assert_eq!(seen["unlabelled"], 0, "every control has a name");
    assert_eq!(seen["dead"], serde_json::json!([]), "every link of the page leads somewhere");
    assert_eq!(seen["headings"][0], "Did not end d.io", "it was killed");
    let headings = seen["headings"].as_array().expect("headings");
    assert!(headings.contains(&json!("Trend")), "{seen}");
}

#[test]
#[ignore = "requires chromium"]
fn a_phone_shows_the_page_without_scrolling_sideways() {
    let folder = tempfile::tempdir().expect("a folder");
    let seen = probe(folder.path(), 20, "500,900");
    assert_eq!(seen["errors"], serde_json::json!([]), "{seen}");
    assert_eq!(seen["wider"], false, "{seen}");
    assert_eq!(
        seen["overhang"],
        json!([]),
        "all of it is within a screen of 360 points, or scrolls by itself"
    );
    assert_eq!(seen["inset"], true, "nothing touches the edge: {seen}");
}

#[test]
fn an_invalid_run_folder_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = rebuild(folder.path(), None).expect_err("there is nothing").to_string();
    assert!(words.contains("is not a run folder"), "{words}");
    fs::write(folder.path().join("events.ndjson"), "{}\n").expect("written");
    let words = rebuild(folder.path(), None).expect_err("it is no event").to_string();
    assert!(words.contains("events.ndjson line 1"), "{words}");
}
