//! From events to series.

use super::*;
use claimcheck_model::{Capability, CaseId, ClusterKind, Leak, RpcSummary, Source, Stamp, SubjectIds};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn started_run() -> Metrics {
    let metrics = Metrics::default();
    let run = RunInfo { driver: "d.io".into(), cluster: ClusterKind::Embedded, ..RunInfo::default() };
    metrics.observe(&Event::RunStarted(run));
    metrics
}

fn value(metrics: &Metrics, series: &str) -> Option<f64> {
    metrics.text().lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

fn sample(phase: Phase, outcome: Outcome) -> Event {
    let (driver, class) = ("d.io".into(), "cc-volumes-7".into());
    let (subject, volume_mode) = (SubjectIds::default(), VolumeMode::Filesystem);
    let (claim, handle) = Default::default();
    Event::Phase(PhaseSample { phase, subject, claim, handle, driver, class, volume_mode, outcome })
}

#[test]
fn every_phase_has_series_from_the_start() {
    let text = started_run().text();
    for phase in Phase::ALL {
        let series = format!(
            "claimcheck_phase_duration_seconds_count{{cluster_kind=\"embedded\",driver_name=\"d.io\",phase=\"{}\"",
            phase.name()
        );
        assert!(text.contains(&series), "{series} is not in\n{text}");
    }
    assert!(text.contains("claimcheck_operation_retries_total{operation=\"NodeStageVolume\"} 0"));
    assert!(text.contains("claimcheck_attach_total{driver_name=\"d.io\"} 0"));
    assert!(text.contains("claimcheck_csi_call_violations_total{rule=\"stage_twice\"} 0"));
}

#[test]
fn a_phase_without_a_duration_is_counted_and_in_no_sum() {
    let metrics = started_run();
    let at = Stamp::default();
    let (seconds, driver_seconds, overhead_seconds) = (0.004, Some(0.001), Some(0.003));
    let ok =
        Outcome::Ok { start: at, end: at, source: Source::Csi, seconds, driver_seconds, overhead_seconds };
    metrics.observe(&sample(Phase::Stage, ok));
    metrics.observe(&sample(Phase::Stage, Outcome::Aborted { start: at }));
    let labels = |result| {
        format!(
            "cluster_kind=\"embedded\",driver_name=\"d.io\",phase=\"stage\",result=\"{result}\",source=\"csi\",storage_class=\"per-case\",volume_mode=\"Filesystem\""
        )
    };
    let of = |name: &str, labels: &str| {
        value(&metrics, &format!("claimcheck_phase_duration_seconds_{name}{{{labels}}}"))
    };
    assert_eq!(of("count", &labels("ok")), Some(1.0));
    assert_eq!(of("bucket", &format!("{},le=\"0.005\"", labels("ok"))), Some(1.0));
    assert_eq!(of("sum", &labels("ok")), Some(0.004));
    assert_eq!(of("count", &labels("aborted")), None);
    let without = format!("claimcheck_phase_without_duration_total{{{}}}", labels("aborted"));
    assert_eq!(value(&metrics, &without), Some(1.0));
    assert!(!metrics.text().lines().any(|line| line.ends_with("Inf") || line.ends_with("NaN")));
    let overhead = "claimcheck_phase_overhead_seconds_sum{cluster_kind=\"embedded\",driver_name=\"d.io\",phase=\"stage\"}";
    assert_eq!(value(&metrics, overhead), Some(0.003));
}

#[test]
fn transitions_move_counters_and_gauges() {
    let metrics = started_run();
    let step = |kind| {
        let (driver, volume, node, target) = ("d.io".into(), "v".into(), "n1".into(), String::new());
        Event::Transition(Transition { kind, when: Stamp::default(), driver, volume, node, target })
    };
    for kind in
        [TransitionKind::Attach, TransitionKind::Mount, TransitionKind::Mount, TransitionKind::Unmount]
    {
        metrics.observe(&step(kind));
    }
    assert_eq!(value(&metrics, "claimcheck_mount_total{driver_name=\"d.io\"}"), Some(2.0));
    assert_eq!(value(&metrics, "claimcheck_unmount_total{driver_name=\"d.io\"}"), Some(1.0));
    assert_eq!(value(&metrics, "claimcheck_mounted_volumes{driver_name=\"d.io\",node=\"n1\"}"), Some(1.0));
    assert_eq!(value(&metrics, "claimcheck_attached_volumes{driver_name=\"d.io\",node=\"n1\"}"), Some(1.0));
}

#[test]
fn cases_count_under_their_capabilities_and_flips_under_their_names() {
    let metrics = Metrics::default();
    let case = CaseId::new("volumes", "data [ext4]");
    let (declared, supported, cases) = (Some(true), None, vec![case.clone()]);
    let plan = CapabilityPlan { capability: Capability::FsGroup, declared, supported, cases };
    metrics.observe(&Event::RunStarted(RunInfo { capabilities: vec![plan], ..RunInfo::default() }));
    let failed = CaseResult::failed("lost");
    let skipped = CaseResult::Skipped { reason: "root".into() };
    for result in
        [CaseResult::Passed, skipped, CaseResult::Passed, failed.clone(), failed, CaseResult::Passed]
    {
        metrics.observe(&Event::CaseFinished { case: case.clone(), result, seconds: 0.1 });
    }
    let of = |result| {
        let labels = format!("{{capability=\"fsGroup\",declared=\"yes\",result=\"{result}\"}}");
        value(&metrics, &format!("claimcheck_capability_case_result_total{labels}"))
    };
    assert_eq!([of("passed"), of("failed"), of("skipped")], [Some(3.0), Some(2.0), Some(1.0)]);
    let flips = "claimcheck_case_flips_total{case=\"data [ext4]\",suite=\"volumes\"}";
    assert_eq!(value(&metrics, flips), Some(2.0));
}

/// All events of a run for its `n`th volume, successes and failures, with unique names wherever possible.
fn life(n: usize) -> Vec<Event> {
    let (at, name) = (Stamp { mono_ns: n as u64, wall_ns: 0 }, format!("volume-{n}"));
    let outcome = |phase: Phase| match n % 3 {
        0 => Outcome::Aborted { start: at },
        1 => Outcome::Unobserved,
        _ => Outcome::Ok {
            start: at,
            end: at,
            source: phase.info().source,
            seconds: 0.01,
            driver_seconds: Some(0.001),
            overhead_seconds: Some(0.009),
        },
    };
    let phases = Phase::ALL.iter().map(|phase| {
        Event::Phase(PhaseSample {
            phase: *phase,
            subject: SubjectIds { claim: name.clone(), volume: name.clone(), ..SubjectIds::default() },
            claim: format!("namespace-{n}/{name}"),
            handle: name.clone(),
            driver: "d.io".into(),
            class: format!("cc-{n:04x}-volumes-{n}-manual"),
            volume_mode: VolumeMode::Filesystem,
            outcome: outcome(*phase),
        })
    });
    let transitions = TransitionKind::ALL.iter().map(|kind| {
        let (driver, node, target) = ("d.io".into(), format!("node-{}", n % 3), format!("/pods/{n}"));
        Event::Transition(Transition { kind: *kind, when: at, driver, volume: name.clone(), node, target })
    });
    let rpc = |phase: &Phase| phase.info().rpc.map(|method| (method, format!("node-{}", n % 3)));
    let calls = Phase::ALL.iter().filter_map(rpc).map(|(method, node)| {
        Event::Rpc(RpcSummary {
            driver: "d.io".into(),
            method: method.into(),
            code: "Aborted".into(),
            volume: name.clone(),
            node,
            start: at,
            seconds: 0.001,
            retry: true,
        })
    });
    let case = CaseId::new("volumes", "data [ext4]");
    let wrong = Rule::ALL.iter().map(|rule| Event::Violation { rule: *rule, detail: name.clone() });
    let left = LeakKind::ALL
        .iter()
        .map(|kind| Event::Leak(Leak { kind: *kind, name: name.clone(), case: Some(case.clone()) }));
    let result = match n % 3 {
        0 => CaseResult::Passed,
        1 => CaseResult::failed(name.clone()),
        _ => CaseResult::Skipped { reason: name.clone() },
    };
    let ended = Event::CaseFinished { case: case.clone(), result, seconds: 0.1 };
    let lag = Event::WatchLag { seconds: 0.001 };
    phases.chain(transitions).chain(calls).chain(wrong).chain(left).chain([ended, lag]).collect()
}

#[test]
fn ten_thousand_volumes_have_as_many_series_as_ten() {
    let series = |volumes: usize| {
        let metrics = started_run();
        (0..volumes).flat_map(life).for_each(|event| metrics.observe(&event));
        let text = metrics.text();
        assert!(!text.contains("volume-"), "a volume's name is in {text}");
        (metrics.series(), text.lines().count())
    };
    let ten = series(10);
    assert!(ten > series(0), "the volumes are in the metrics");
    assert_eq!(series(10_000), ten);
}

/// The whole answer to a request without a body.
async fn http_request(serving: &Serving, line: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(serving.address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn it_is_served_and_an_occupied_port_is_named_with_the_remedy() {
    let metrics = started_run();
    metrics.observe(&Event::CaseFinished {
        case: CaseId::new("volumes", "x"),
        result: CaseResult::Passed,
        seconds: 0.5,
    });
    let serving = metrics.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let answer = http_request(&serving, "GET /metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(
        answer.contains("claimcheck_case_result_total{result=\"passed\",suite=\"volumes\"} 1"),
        "{answer}"
    );
    assert!(http_request(&serving, "GET /").await.starts_with("HTTP/1.1 404"));
    assert!(http_request(&serving, "POST /metrics").await.starts_with("HTTP/1.1 405"));

    let error = metrics.serve(serving.address).await.unwrap_err().to_string();
    assert!(
        error.contains(&serving.address.to_string())
            && error.contains("is in use")
            && error.contains("--metrics-addr"),
        "{error}"
    );
}
