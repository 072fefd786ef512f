//! From events to files and tables.

use super::*;
use claimcheck_model::{
    Capability, CapabilityPlan, CaseId, CaseResult, ClusterKind, ComponentEnd, ComponentFault,
    ControllersUsage, Denial, Leak, LeakKind, LoadEvent, LoadPlan, Outcome, Phase, PhaseSample, RpcSummary,
    Rule, RunInfo, Source, SubjectIds, Transition, TransitionKind, Unserved, Usage, VolumeStep,
};
use jiff::Timestamp;
use std::collections::BTreeSet;

fn case(name: &str) -> CaseId {
    CaseId::new("volumes", name)
}

fn started(name: &str) -> Event {
    Event::CaseStarted { case: case(name), namespace: "cc-1".into() }
}

fn finished(name: &str, result: CaseResult, seconds: f64) -> Event {
    Event::CaseFinished { case: case(name), result, seconds }
}

pub(crate) fn sample(phase: Phase, ms: f64, driver_ms: f64) -> Event {
    let at = Stamp::default();
    let (seconds, driver_seconds, overhead_seconds) =
        (ms / 1e3, Some(driver_ms / 1e3), Some((ms - driver_ms) / 1e3));
    let outcome =
        Outcome::Ok { start: at, end: at, source: Source::Watch, seconds, driver_seconds, overhead_seconds };
    phase_event(phase, outcome)
}

fn phase_event(phase: Phase, outcome: Outcome) -> Event {
    let (subject, driver, class) = (SubjectIds::default(), "d.io".into(), "fast".into());
    let (claim, handle, volume_mode) = Default::default();
    Event::Phase(PhaseSample { phase, subject, claim, handle, driver, class, volume_mode, outcome })
}

fn rpc(method: &str, code: &str, retry: bool) -> Event {
    let (driver, volume, node) = ("d.io".into(), "v".into(), "n".into());
    let (method, code, start) = (method.into(), code.into(), Stamp::default());
    Event::Rpc(RpcSummary { driver, method, code, volume, node, start, seconds: 0.001, retry })
}

fn transition(kind: TransitionKind) -> Event {
    let (driver, volume, node, target) = ("d.io".into(), "v".into(), "n".into(), String::new());
    Event::Transition(Transition { kind, when: Stamp::default(), driver, volume, node, target })
}

fn plan(capability: Capability, declared: Option<bool>, cases: &[&str]) -> CapabilityPlan {
    CapabilityPlan {
        capability,
        declared,
        supported: None,
        cases: cases.iter().map(|name| case(name)).collect(),
    }
}

/// A run with every kind of failure.
fn bad_run() -> Vec<Event> {
    let run = RunInfo {
        cases: 3,
        driver: "d.io".into(),
        version: "0.1.0".into(),
        kubernetes_version: "v1.37.0".into(),
        capabilities: vec![
            plan(Capability::Persistence, None, &["keeps data[dynamic]"]),
            plan(Capability::Topology, Some(true), &[]),
            plan(Capability::Rwx, Some(false), &[]),
        ],
        ..RunInfo::default()
    };
    let mut events = vec![Event::RunStarted(run), started("keeps data[dynamic]")];
    for i in 1..=20 {
        let ms = f64::from(i);
        events.extend([
            sample(Phase::Provision, ms, ms / 2.0),
            sample(Phase::Bind, 0.4, 0.0),
            sample(Phase::Attach, 12.0 + ms, 9.0),
            sample(Phase::Stage, 95.0 + ms, 90.0),
            sample(Phase::Stop, 1205.0, 0.0),
        ]);
    }
    events.extend([TransitionKind::Attach, TransitionKind::Mount, TransitionKind::Unmount].map(transition));
    events.extend([
        phase_event(Phase::Detach, Outcome::Aborted { start: Stamp::default() }),
        phase_event(Phase::Publish, Outcome::Unobserved),
        rpc("NodeStageVolume", "Aborted", false),
        rpc("NodeStageVolume", "OK", true),
        rpc("ControllerPublishVolume", "OK", false),
        Event::Violation { rule: Rule::StageTwice, detail: "v".into() },
        finished("keeps data[dynamic]", CaseResult::Passed, 0.31),
        finished("multi-attach", CaseResult::failed("timed out after 30 s\nlast seen: Pending"), 30.0),
        finished("grows[xfs]", CaseResult::Skipped { reason: "mkfs.xfs is not installed".into() }, 0.0),
        Event::Leak(Leak {
            kind: LeakKind::Attached,
            name: "v on n".into(),
            case: Some(case("multi-attach")),
        }),
        Event::RunFinished { seconds: 30.9, interrupted: false },
    ]);
    events
}

fn summary_of(events: &[Event]) -> Summary {
    let mut tally = Tally::default();
    events.iter().for_each(|event| tally.observe(event, || 40));
    tally.finish()
}

#[test]
fn failures_with_one_cause_are_grouped_everywhere() {
    let failed = |name: &str| {
        let (reason, cause) = ("nothing is mounted".to_owned(), Some("MUST mount".to_owned()));
        finished(name, CaseResult::Failed { reason, cause }, 0.1)
    };
    let reason = format!("nothing is mounted: {}", case("mounts").reference());
    let skipped = finished("writes", CaseResult::Skipped { reason }, 0.0);
    let last = Event::RunFinished { seconds: 0.9, interrupted: false };
    let summary = summary_of(&[failed("mounts"), failed("creates"), skipped, last]);
    assert_eq!((summary.cases.failed, summary.findings()), (2, 1));
    let text = render(&summary, Style::PLAIN, None);
    let group =
        "  MUST mount\n      2 cases, and 1 that depends on it:\n      volumes::mounts, volumes::creates\n";
    assert!(text.contains(group) && text.contains("2 failed with 1 cause, 1 skipped"), "{text}");
    let page = markdown::render(&summary);
    let reason = "```text\nnothing is mounted\n```\n\n";
    let entry = format!(
        "### Failures\n\n<details><summary>MUST mount: 2 cases, and 1 that depends on it</summary>\n\n\
         `volumes::mounts`:\n\n{reason}`volumes::creates`:\n\n{reason}\
         Cases that depend on it:\n\n- `volumes::writes` (skipped)\n\n</details>\n"
    );
    assert!(page.contains(&entry) && page.contains("2 failed with 1 cause, 1 skipped"), "{page}");
    let xml = junit::render(&summary);
    assert_eq!(xml.matches("type=\"MUST mount\"").count(), 2, "{xml}");
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["causes"][0]["cause"], "MUST mount");
    assert_eq!(json["causes"][0]["cases"][1]["name"], "creates");
    assert_eq!(json["causes"][0]["consequences"], 1);
    assert_eq!(json["causes"].as_array().unwrap().len(), 1);
    assert_eq!(json["results"][0]["cause"], "MUST mount");

    let distinct = summary_of(&[failed("mounts"), finished("x", CaseResult::failed("it panicked"), 0.1)]);
    assert_eq!(distinct.findings(), 2);
    assert!(!render(&distinct, Style::PLAIN, None).contains("Failures by cause"));
    let page = markdown::render(&distinct);
    for title in ["<code>volumes::mounts</code>: MUST mount", "<code>volumes::x</code>"] {
        assert!(page.contains(&format!("<details><summary>{title}</summary>")), "{title}: {page}");
    }
}

#[test]
fn a_missed_threshold_is_reported_everywhere_and_fails_a_good_run() {
    let events = [
        sample(Phase::Provision, 21.0, 3.0),
        finished("keeps data[dynamic]", CaseResult::Passed, 0.31),
        Event::RunFinished { seconds: 0.9, interrupted: false },
    ];
    let slos = "slos:\n- {phase: provision, quantile: P99, max: 15ms}\n- {count: leaks, max: 0}\n";
    let mut judge = Judge::new(slo::parse(slos).unwrap());
    events.iter().for_each(|event| judge.observe(event));
    let summary = Summary { slos: judge.finish(), ..summary_of(&events) };
    assert_eq!(summary.ending(), Ending::ThresholdMissed);
    let text = render(&summary, Style::PLAIN, None);
    for line in [
        " provision P99   1   15.0 ms    21.0 ms   ✗ 6.00 ms over, +40 %",
        " leaks           0         0          0   ✓",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert!(text.contains("FAIL  1 passed, 1 thresholds not met"), "{text}");
    let page = markdown::render(&summary);
    assert!(
        page.starts_with("## ❌") && page.contains("| provision P99 | 1 | 15.0 ms | 21.0 ms | ❌"),
        "{page}"
    );
}

#[test]
fn a_summary_of_schema_2_is_read() {
    let judgement = slo::Judgement {
        slo: "leaks".into(),
        max: "0".into(),
        measured: Some("1".into()),
        count: 1,
        met: false,
        reason: "1 over".into(),
    };
    let environment = [("privilege".to_owned(), "root".to_owned())].into();
    let state = State::Finished;
    let summary = Summary { state, slos: vec![judgement], environment, ..Summary::default() };
    let mut json = serde_json::to_string(&summary).unwrap();
    for (name, earlier) in
        [(r#""met""#, r#""kept""#), (r#""reason""#, r#""broken""#), (r#""privilege""#, r#""lane""#)]
    {
        assert_eq!(json.matches(name).count(), 1, "{name}: {json}");
        json = json.replace(name, earlier);
    }
    assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), summary);
}

#[test]
fn tables_of_a_bad_run() {
    let text = render(&summary_of(&bad_run()), Style::PLAIN, Some("runs/x".as_ref()));
    insta::assert_snapshot!("bad_run", text);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains('\x1b'));
}

#[test]
fn nothing_is_wider_than_a_narrow_terminal() {
    let narrow = Style { width: 80, ..Style::PLAIN };
    for events in [bad_run(), small_load()] {
        let text = render(&summary_of(&events), narrow, None);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn tables_of_a_good_run() {
    let events = [
        Event::RunStarted(RunInfo { cases: 1, ..RunInfo::default() }),
        sample(Phase::Provision, 21.0, 3.0),
        transition(TransitionKind::Attach),
        transition(TransitionKind::Detach),
        rpc("CreateVolume", "OK", false),
        finished("keeps data[dynamic]", CaseResult::Passed, 0.31),
        Event::RunFinished { seconds: 0.9, interrupted: false },
    ];
    let summary = summary_of(&events);
    assert_eq!(summary.ending(), Ending::Passed);
    insta::assert_snapshot!("good_run", render(&summary, Style::PLAIN, None));
    assert!(render(&summary, Style { color: true, ..Style::PLAIN }, None).contains("\x1b[1;32mPASS"));
    // An interrupted run has no verdict on the rest.
    let cut = Summary { state: State::Interrupted, ..summary.clone() };
    assert!(render(&cut, Style::PLAIN, None).contains(" INTERRUPTED  "));
    assert!(markdown::render(&cut).starts_with("## ⚠️ claimcheck interrupted: "));
}

/// The summary of a run that passes, with this event.
fn passing_with(event: Event) -> Summary {
    passing_with_all(vec![event])
}

/// The same with several.
fn passing_with_all(mut events: Vec<Event>) -> Summary {
    events.push(finished("keeps data[dynamic]", CaseResult::Passed, 0.31));
    events.push(Event::RunFinished { seconds: 0.9, interrupted: false });
    summary_of(&events)
}

#[test]
fn missing_rights_are_reported_everywhere_and_fail_nothing() {
    let denial = Denial::example();
    let summary = passing_with(Event::Denied(denial.clone()));
    assert_eq!((summary.ending(), &summary.denials), (Ending::Passed, &vec![denial]));
    let text = render(&summary, Style::PLAIN, None);
    for text in [text, markdown::render(&summary)] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("ServiceAccount storage/driver may not list nodes at the cluster scope"),
            "{text}"
        );
        assert!(text.contains("resources: [nodes], verbs: [list]} to ClusterRole runner"), "{text}");
        assert!(text.contains("missing rights"), "{text}");
    }
}

#[test]
fn faults_of_built_in_components_fail_the_run_in_every_output() {
    let exit = |builtin| {
        let (component, status) = ("driver node-1".to_owned(), "exit status: 1".to_owned());
        Event::ComponentExited(ComponentEnd { component, status, last_lines: Vec::new(), builtin })
    };
    // A vendor's driver may exit as often as it does: cases fail then.
    assert_eq!(passing_with_all(vec![exit(false), exit(false), exit(false)]).ending(), Ending::Passed);
    let panicked =
        ComponentFault::Panicked { component: "controllers".into(), message: "src/a.rs:1:2: boom".into() };
    let denied = ComponentFault::Denied(Denial::example());
    for (events, expected) in [
        (
            vec![Event::ComponentFault(denied)],
            "403 Forbidden: ServiceAccount storage/driver may not list nodes at the cluster scope",
        ),
        (vec![Event::ComponentFault(panicked)], "controllers panicked at src/a.rs:1:2: boom"),
        (
            vec![exit(true), exit(true), exit(true)],
            "driver node-1 exited unexpectedly 3 times, the last time with exit status: 1",
        ),
    ] {
        let summary = passing_with_all(events);
        assert_eq!(summary.ending(), Ending::Failed);
        let tables = render(&summary, Style::PLAIN, None);
        for text in [tables, markdown::render(&summary), junit::render(&summary)] {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(expected), "{text}");
        }
        assert!(junit::render(&summary).contains("failures=\"1\""), "{}", junit::render(&summary));
        let again: Summary = serde_json::from_slice(&summary.to_json()).unwrap();
        assert_eq!(again.component_faults, summary.component_faults);
    }
}

#[test]
fn unserved_apis_are_reported_everywhere_and_fail_nothing() {
    let request = Unserved::example();
    let summary = passing_with(Event::Unserved(request.clone()));
    assert_eq!((summary.ending(), &summary.unserved), (Ending::Passed, &vec![request]));
    let text = render(&summary, Style::PLAIN, None);
    for text in [text, markdown::render(&summary)] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("requested csistoragecapacities of storage.k8s.io/v1beta1"), "{text}");
        assert!(text.contains("use a version of the program that requests storage.k8s.io/v1"), "{text}");
        assert!(text.contains("1 unserved APIs"), "{text}");
    }
}

#[test]
fn an_exited_component_is_reported_with_its_last_log_lines() {
    let end = |status: &str| {
        let last_lines = vec![format!("{status}: no such disk")];
        Event::ComponentExited(ComponentEnd {
            component: "driver node-1".into(),
            status: status.into(),
            last_lines,
            builtin: true,
        })
    };
    let summary = passing_with_all(vec![end("exit status: 1"), end("exit status: 2")]);
    assert_eq!(summary.ending(), Ending::Passed);
    let text = render(&summary, Style::PLAIN, None);
    let expected = "driver node-1: 2 ×, last: exit status: 2\n      exit status: 2: no such disk";
    assert!(text.contains(expected), "{text}");
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["restarts"]["driver node-1"]["times"], 2);
}

#[tokio::test]
async fn a_run_folder_has_what_tools_read() {
    let out = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(out.path(), Timestamp::UNIX_EPOCH, ClusterKind::Embedded).unwrap();
    let path = folder.path().to_owned();
    assert!(path.ends_with("19700101T000000Z-embedded"), "{path:?}");

    let (sender, reporter) = Reporter::quiet(folder, Metrics::default()).start();
    let events = bad_run();
    events.iter().for_each(|event| sender.send(event.clone()).unwrap());
    let summary = reporter.await.unwrap().summary;
    assert_eq!(summary.ending(), Ending::Failed);

    let read = |name: &str| std::fs::read_to_string(path.join(name)).unwrap();
    let logged: Vec<Event> = read("events.ndjson")
        .lines()
        .map(|l| serde_json::from_str::<LoggedEvent>(l).unwrap().event)
        .collect();
    assert_eq!(logged, events);
    assert_eq!(serde_json::from_str::<Summary>(&read("summary.json")).unwrap(), summary);
    let json: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(json["version"], 4);
    assert_eq!(json["cases"], serde_json::json!({ "passed": 1, "failed": 1, "skipped": 1 }));
    assert_eq!(json["counts"]["attach"], 1);
    let total = &json["phases"]["attach"][0];
    for key in ["quantileName", "P50", "P95", "P99", "min", "max", "avg", "count"] {
        assert!(!total[key].is_null(), "{key} is missing in {total}");
    }
    assert_eq!((&total["quantileName"], &total["count"]), (&"total".into(), &20.into()));
    assert!(
        read("metrics.prom").contains("claimcheck_case_result_total{result=\"failed\",suite=\"volumes\"} 1")
    );
    insta::assert_snapshot!("junit", read("junit.xml"));
    insta::assert_snapshot!("summary", read("summary.json"));
    insta::assert_snapshot!("markdown", read("summary.md"));
}

#[tokio::test]
async fn a_run_that_is_cut_off_still_leaves_its_reports() {
    let out = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(out.path(), Timestamp::UNIX_EPOCH, ClusterKind::Kind).unwrap();
    let path = folder.path().to_owned();
    let (sender, reporter) = Reporter::quiet(folder, Metrics::default()).start();
    sender.send(finished("x", CaseResult::Passed, 0.1)).unwrap();
    drop(sender);
    assert_eq!(reporter.await.unwrap().summary.cases.passed, 1);
    assert!(path.join("summary.json").exists() && path.join("junit.xml").exists());
}

#[test]
fn folders_of_one_second_do_not_meet() {
    let out = tempfile::tempdir().unwrap();
    let create = || RunFolder::create(out.path(), Timestamp::UNIX_EPOCH, ClusterKind::Embedded).unwrap();
    let (first, second) = (create(), create());
    first.write("summary.json", b"{}").unwrap();
    assert!(second.path().ends_with("19700101T000000Z-embedded-2"), "{second:?}");
    let error = first.write("summary.json", b"{}").unwrap_err();
    assert!(error.to_string().contains("summary.json"), "{error}");

    let file = out.path().join("file");
    std::fs::write(&file, "").unwrap();
    for taken in [&file, first.path()] {
        let error = RunFolder::at(taken).unwrap_err().to_string();
        assert!(
            error.contains(taken.to_str().unwrap()) && error.contains("pass a new path with --out"),
            "{error}"
        );
    }
    let chosen = RunFolder::choose(Some(&out.path().join("a/b")), out.path(), ClusterKind::Embedded).unwrap();
    assert!(chosen.path().ends_with("a/b") && chosen.cluster_dir().unwrap().is_dir());

    let error = RunFolder::create(&file, Timestamp::UNIX_EPOCH, ClusterKind::Embedded).unwrap_err();
    assert!(error.to_string().contains("--out"), "{error}");
}

#[test]
fn durations_are_read_at_a_glance() {
    let expected = [0.0, 0.00085, 0.0095, 0.0226, 0.5992, 9.5095, 60.0, 723.0].map(human);
    assert_eq!(expected, ["–", "850 µs", "9.50 ms", "22.6 ms", "599 ms", "9.51 s", "1m 00s", "12m 03s"]);
}

#[test]
fn skips_are_listed_by_reason_and_nothing_is_wider_than_the_terminal() {
    let skip = |i: usize| {
        let result = CaseResult::Skipped { reason: "needs root".into() };
        finished(&format!("a case with a name of some length {i}"), result, 0.0)
    };
    let mut events: Vec<Event> = (0..6).map(skip).collect();
    events.push(finished("x", CaseResult::failed("seen again and again ".repeat(12)), 1.0));
    events.push(transition(TransitionKind::Detach));
    events.push(rpc("ControllerUnpublishVolume", "OK", false));
    events.push(Event::RunFinished { seconds: 1.0, interrupted: false });
    let text = render(&summary_of(&events), Style::PLAIN, None);
    assert_eq!(text.matches("needs root").count(), 1, "{text}");
    assert!(text.contains("  6 × needs root"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.contains("-1 ✗"), "more left than entered: {text}");
}

fn load(event: LoadEvent) -> Event {
    Event::Load(event)
}

/// A load of three volumes, one of which fails.
fn small_load() -> Vec<Event> {
    let plan =
        LoadPlan { volumes: 3, concurrency: 2, pods_per_volume: 1, volumes_per_pod: 1, ..Default::default() };
    let usage = |cpu_s, pss_bytes, requests| Usage {
        cpu_s,
        rss_bytes: pss_bytes * 3,
        pss_bytes,
        processes: 9,
        threads: 30,
        descriptors: 200,
        loop_devices: 0,
        api_requests: Some(requests),
        controllers: Some(ControllersUsage { cpu_s: cpu_s / 2.0, pss_bytes: pss_bytes / 4 }),
    };
    let reached = |reached, seconds| load(LoadEvent::Volumes { reached, volumes: 1, seconds });
    let mut events = vec![Event::RunStarted(RunInfo::default()), rpc("Probe", "OK", false)];
    events.push(load(LoadEvent::Started(plan)));
    events.push(load(LoadEvent::Usage { seconds: 0.0, usage: usage(0.5, 100 << 20, 90) }));
    for _ in 0..2 {
        events.extend([
            reached(VolumeStep::Created, 0.0),
            rpc("CreateVolume", "OK", false),
            sample(Phase::Provision, 21.0, 3.0),
            reached(VolumeStep::Up, 0.3),
            reached(VolumeStep::Going, 0.31),
            reached(VolumeStep::Gone, 0.5),
        ]);
    }
    // A component that starts late and discovers the driver's capabilities.
    let mut late = rpc("GetPluginInfo", "OK", false);
    if let Event::Rpc(call) = &mut late {
        call.volume.clear();
    }
    events.extend([late, reached(VolumeStep::Created, 0.0)]);
    let reason =
        "timed out after 2 s waiting for Pod l/pod-3 to be Ready; last seen: phase Pending".to_owned();
    events.push(load(LoadEvent::Failed { claims: vec!["l/claim-3".into()], reason }));
    events.push(load(LoadEvent::Usage { seconds: 2.5, usage: usage(0.8, 120 << 20, 210) }));
    events.push(load(LoadEvent::Finished { seconds: 2.5, up_seconds: Some(0.8) }));
    events.extend([rpc("Probe", "OK", false), Event::RunFinished { seconds: 2.9, interrupted: false }]);
    events
}

#[test]
fn a_load_is_summed_up_per_volume() {
    let summary = summary_of(&small_load());
    assert_eq!(summary.ending(), Ending::Failed);
    let load = summary.load.as_ref().unwrap();
    assert_eq!((load.volumes, load.failed, load.rpcs, load.api_requests), (3, 1, 2, Some(120)));
    assert_eq!(load.per_volume, PerVolume { cpu_s: 0.1, api_requests: Some(40.0), rpcs: 0.666_667 });
    assert_eq!((load.peak_pss_bytes, load.max_rss_bytes), (120 << 20, 360 << 20));
    let controllers = ControllersCost { cpu_s: 0.15, cpu_per_volume_s: 0.05, peak_pss_bytes: 30 << 20 };
    assert_eq!(load.controllers, Some(controllers));
    assert_eq!((load.volumes_per_s, load.elapsed_s, load.up_s), (0.8, 2.5, Some(0.8)));
    assert_eq!((load.life.as_ref().unwrap().count, load.samples.len(), load.samples[1].gone), (2, 2, 2));
    let json: serde_json::Value = serde_json::from_slice(&summary.to_json()).unwrap();
    assert_eq!(serde_json::from_value::<Summary>(json).unwrap(), summary);
    let text = render(&summary, Style::PLAIN, None);
    insta::assert_snapshot!("load", text);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn what_a_long_load_keeps_is_bounded() {
    let churn = LoadPlan { churn_s: Some(600.0), ..LoadPlan::default() };
    let mut events = vec![load(LoadEvent::Started(churn))];
    for second in 0..1000_u32 {
        let usage = Usage { pss_bytes: 100 << 20, ..Usage::default() };
        events.push(load(LoadEvent::Usage { seconds: second.into(), usage }));
        events.push(load(LoadEvent::Failed { claims: vec!["l/c".into()], reason: "late".into() }));
    }
    let load = summary_of(&events).load.unwrap();
    assert!((32..=64).contains(&load.samples.len()), "{}", load.samples.len());
    assert_eq!((load.samples[0].at_s, load.failed, load.errors.len()), (0.0, 1000, 100));
    assert!(load.samples.is_sorted_by(|a, b| a.at_s < b.at_s));
    assert!(load.growth.iter().all(|growth| !growth.grows) && load.growth.len() >= 4, "{:?}", load.growth);
}

/// `events.ndjson` is all that a tool of one's own needs.
#[tokio::test]
async fn all_outputs_are_made_again_from_the_events_alone() {
    let home = tempfile::tempdir().unwrap();
    let [first, second] = ["run", "again"].map(|name| home.path().join(name));
    let (sender, reporting) = Reporter::quiet(RunFolder::at(&first).unwrap(), Metrics::default()).start();
    bad_run().into_iter().for_each(|event| sender.send(event).unwrap());
    let reported = reporting.await.unwrap();
    let again = Reporter::quiet(RunFolder::at(&second).unwrap(), Metrics::default());
    let again = again.replay(&first.join(EVENTS)).await.unwrap();
    assert_eq!((again.exit_code(), again.summary), (reported.exit_code(), reported.summary));
    let names = |folder: &Path| -> BTreeSet<String> {
        let files = std::fs::read_dir(folder).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert!(names(&first).len() > 5, "{:?}", names(&first));
    assert_eq!(names(&first), names(&second));
    for name in names(&first) {
        let text = |folder: &Path| std::fs::read_to_string(folder.join(&name)).unwrap();
        assert_eq!(text(&first), text(&second), "{name}");
    }
}
