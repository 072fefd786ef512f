//! The timeline's rules one by one; `order` and `counting` check it against oracles. Whole lifecycles are in
//! `tests/replay`.

mod counting;
mod order;

use std::{collections::BTreeMap, path::Path};

use claimcheck_csi::{
    Code,
    tap::{CallEnd, CallId, TapRecord},
};
use claimcheck_model::{
    CsiMethod, Event, KubeletPath, LeakKind, OUT_OF_SERVICE, Outcome, Phase, Rule, Source, Stamp,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use serde_json::{Value, json};

use super::{Tap, Timeline};
use crate::evidence::{Change, Mount, Object, Observation};

fn stamp(ms: u64) -> Stamp {
    Stamp { mono_ns: ms * 1_000_000, wall_ns: ms * 1_000_000 }
}

fn call(method: CsiMethod, node: &str, target: &str, start: u64, end: Option<(u64, Code)>) -> TapRecord {
    let call = TapRecord::started(CallId { pid: 1, seq: 1 }, "", method, stamp(start));
    let call = TapRecord {
        driver: Some("d".into()),
        node: Some(node.into()),
        target: Some(target.into()),
        end: end.map(|(ms, code)| CallEnd::new(stamp(ms), code)),
        ..call
    };
    of_volume("h1", call)
}

/// The same call for another volume, by its handle or requested name.
fn of_volume(volume: &str, call: TapRecord) -> TapRecord {
    TapRecord { volume_id: Some(volume.into()), volume_name: Some(volume.into()), ..call }
}

fn ok(method: CsiMethod, node: &str, target: &str, start: u64, end: u64) -> Observation {
    call(method, node, target, start, Some((end, Code::Ok))).into()
}

/// An object of a kind at `ms`, which is also its resourceVersion.
fn seen<K: serde::de::DeserializeOwned + Into<Object>>(
    ms: u64,
    gone: bool,
    mut object: Value,
) -> Observation {
    object["metadata"]["resourceVersion"] = json!(ms.to_string());
    let object = serde_json::from_value::<K>(object).unwrap().into();
    Observation::Watch(Box::new(Change { at: stamp(ms), object, gone }))
}

fn claim(ms: u64, phase: &str, gone: bool) -> Observation {
    let volume = if phase == "Bound" { json!("pv1") } else { Value::Null };
    let annotations = json!({ "volume.kubernetes.io/storage-provisioner": "d" });
    seen::<PersistentVolumeClaim>(
        ms,
        gone,
        json!({
            "metadata": { "name": "c1", "namespace": "ns", "uid": "cu1", "annotations": annotations },
            "spec": { "volumeName": volume, "accessModes": ["ReadWriteOnce"] },
            "status": { "phase": phase },
        }),
    )
}

fn volume(ms: u64, gone: bool) -> Observation {
    seen::<PersistentVolume>(
        ms,
        gone,
        json!({
            "metadata": { "name": "pv1", "uid": "vu1", "annotations": { "pv.kubernetes.io/provisioned-by": "d" } },
            "spec": {
                "csi": { "driver": "d", "volumeHandle": "h1" },
                "claimRef": { "uid": "cu1" },
                "persistentVolumeReclaimPolicy": "Delete",
            },
        }),
    )
}

fn pod(ms: u64, uid: &str, node: Option<&str>, ended: bool) -> Observation {
    seen::<Pod>(
        ms,
        false,
        json!({
            "metadata": { "name": uid, "namespace": "ns", "uid": uid },
            "spec": {
                "containers": [{ "name": "c" }],
                "nodeName": node,
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c1" } }],
            },
            "status": { "phase": if ended { "Succeeded" } else { "Pending" } },
        }),
    )
}

fn claim_gone(ms: u64) -> Observation {
    claim(ms, "Bound", true)
}

fn gone_pod(ms: u64, uid: &str) -> Observation {
    let Observation::Watch(change) = pod(ms, uid, Some("n1"), true) else { unreachable!("a pod is watched") };
    Observation::Watch(Box::new(Change { gone: true, ..*change }))
}

fn attachment(ms: u64, uid: &str, node: &str, attached: bool, gone: bool) -> Observation {
    seen::<VolumeAttachment>(
        ms,
        gone,
        json!({
            "metadata": { "name": uid, "uid": uid },
            "spec": { "attacher": "d", "nodeName": node, "source": { "persistentVolumeName": "pv1" } },
            "status": { "attached": attached },
        }),
    )
}

fn target(pod: &str) -> String {
    format!("/var/lib/kubelet/pods/{pod}/volumes/kubernetes.io~csi/pv1/mount")
}

/// The outcome of each phase after all of the evidence.
fn outcomes(timeline: &mut Timeline, evidence: &[Observation]) -> Vec<(Phase, Outcome)> {
    let mut events: Vec<Event> = evidence.iter().flat_map(|evidence| timeline.feed(evidence)).collect();
    events.extend(timeline.finish());
    let samples = events.into_iter().filter_map(|event| match event {
        Event::Phase(sample) => Some((sample.phase, sample.outcome)),
        _ => None,
    });
    samples.collect()
}

fn millis(outcomes: &[(Phase, Outcome)], phase: Phase) -> Vec<f64> {
    let of_phase = outcomes.iter().filter(|(other, _)| *other == phase);
    of_phase
        .filter_map(|(_, o)| if let Outcome::Ok { seconds, .. } = o { Some(seconds * 1e3) } else { None })
        .collect()
}

fn bound() -> Vec<Observation> {
    vec![claim(1, "Pending", false), volume(3, false), claim(5, "Bound", false)]
}

#[test]
fn the_drivers_call_is_better_evidence_of_a_start_than_a_late_watch() {
    let mut evidence = bound();
    evidence.extend([pod(10, "p1", None, false), pod(12, "p1", Some("n1"), false)]);
    evidence.push(attachment(14, "a1", "n1", false, false));
    // The node observed the attachment before the harness: staging ended before its precondition was received.
    evidence.push(ok(CsiMethod::NodeStageVolume, "n1", "", 20, 26));
    evidence.push(attachment(30, "a1", "n1", true, false));
    let outcomes = outcomes(&mut Timeline::new(Tap::Present), &evidence);
    let stage = outcomes.iter().find(|(phase, _)| *phase == Phase::Stage).unwrap().1;
    let Outcome::Ok { start, end, driver_seconds, overhead_seconds, source, .. } = stage else {
        panic!("{stage:?}")
    };
    assert_eq!((start, end, source), (stamp(20), stamp(26), Source::Csi));
    assert!((driver_seconds.unwrap() - 0.006).abs() < 1e-9 && overhead_seconds == Some(0.0), "{stage:?}");
}

#[test]
fn calls_that_a_late_watch_shows_before_their_phase_are_its_calls() {
    let create = of_volume("pv1", call(CsiMethod::CreateVolume, "", "", 1, Some((4, Code::Ok))));
    let mut evidence: Vec<Observation> = vec![create.into()];
    evidence.extend([claim(11, "Pending", false), volume(13, false), claim(15, "Bound", false)]);
    // Attached, detached and attached again, each time before the cause is observed.
    evidence
        .extend([ok(CsiMethod::ControllerPublishVolume, "n1", "", 17, 19), pod(20, "p1", Some("n1"), false)]);
    evidence.extend([attachment(24, "a1", "n1", false, false), attachment(25, "a1", "n1", true, false)]);
    evidence.push(ok(CsiMethod::ControllerUnpublishVolume, "n1", "", 40, 41));
    evidence.extend([
        ok(CsiMethod::ControllerPublishVolume, "n1", "", 42, 44),
        attachment(46, "a1", "n1", true, true),
    ]);
    evidence.extend([attachment(50, "a2", "n1", false, false), attachment(52, "a2", "n1", true, false)]);
    let outcomes = outcomes(&mut Timeline::new(Tap::Present), &evidence);
    let calls: Vec<(Phase, u64, f64)> = outcomes
        .iter()
        .filter_map(|(phase, outcome)| match outcome {
            Outcome::Ok { start, driver_seconds, .. }
                if matches!(phase, Phase::Provision | Phase::Attach) =>
            {
                Some((*phase, start.mono_ns / 1_000_000, driver_seconds.unwrap_or_default()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        calls,
        [(Phase::Provision, 1, 0.003), (Phase::Attach, 17, 0.002), (Phase::Attach, 42, 0.002)],
        "{outcomes:?}"
    );
}

#[test]
fn time_of_failed_and_retried_calls_is_the_drivers_and_waiting_between_them_is_not() {
    let mut evidence = bound();
    evidence.push(pod(10, "p1", Some("n1"), false));
    evidence.push(attachment(20, "a1", "n1", true, false));
    evidence.push(call(CsiMethod::NodeStageVolume, "n1", "", 22, Some((25, Code::Aborted))).into());
    evidence.push(ok(CsiMethod::NodeStageVolume, "n1", "", 35, 40));
    let mut timeline = Timeline::new(Tap::Present);
    let events: Vec<Event> = evidence.iter().flat_map(|evidence| timeline.feed(evidence)).collect();
    let sample = events.iter().find_map(|event| match event {
        Event::Phase(sample) if sample.phase == Phase::Stage => Some(sample.outcome),
        _ => None,
    });
    let Some(Outcome::Ok { seconds, driver_seconds, .. }) = sample else { panic!("{events:?}") };
    assert!((seconds - 0.020).abs() < 1e-9 && (driver_seconds.unwrap() - 0.008).abs() < 1e-9, "{sample:?}");
    let retries = events.iter().filter(|event| matches!(event, Event::Rpc(rpc) if rpc.retry)).count();
    assert_eq!(retries, 1);
}

#[test]
fn waiting_for_a_detach_from_another_node_does_not_lengthen_attach() {
    let mut evidence = bound();
    evidence.push(pod(10, "p1", Some("n1"), false));
    evidence.push(attachment(12, "a1", "n1", true, false));
    evidence.push(pod(20, "p2", Some("n2"), false));
    evidence.push(attachment(500, "a1", "n1", true, true));
    evidence.push(attachment(503, "a2", "n2", false, false));
    evidence.push(attachment(507, "a2", "n2", true, false));
    let outcomes = outcomes(&mut Timeline::new(Tap::Present), &evidence);
    assert_eq!(millis(&outcomes, Phase::Attach), [2.0, 7.0]);
}

#[test]
fn a_driver_that_neither_attaches_nor_stages_has_no_such_phases() {
    let mut evidence = vec![seen::<CSIDriver>(
        1,
        false,
        json!({ "metadata": { "name": "d", "uid": "du" }, "spec": { "attachRequired": false } }),
    )];
    evidence.extend(bound());
    evidence.push(pod(10, "p1", Some("n1"), false));
    evidence.push(ok(CsiMethod::NodePublishVolume, "n1", &target("p1"), 14, 16));
    let outcomes = outcomes(&mut Timeline::new(Tap::Present), &evidence);
    assert_eq!(millis(&outcomes, Phase::Publish), [6.0]);
    assert!(outcomes.iter().all(|(phase, _)| !matches!(phase, Phase::Attach | Phase::Stage)), "{outcomes:?}");
}

#[test]
fn publish_includes_a_stage_that_mounts_nothing() {
    let mount = |ms, place: &str| {
        let place = KubeletPath::of(Path::new(place)).unwrap();
        Observation::Mount(Mount { at: stamp(ms), node: "n1".into(), place, mounted: true })
    };
    let stage = "/var/lib/kubelet/plugins/kubernetes.io/csi/pv/pv1/globalmount";
    let mut before = bound();
    before.extend([pod(10, "p1", Some("n1"), false), attachment(12, "a1", "n1", true, false)]);
    let phases = |mounts: &[Observation]| {
        let outcomes = outcomes(&mut Timeline::new(Tap::Absent), &[&before[..], mounts].concat());
        (millis(&outcomes, Phase::Stage), millis(&outcomes, Phase::Publish))
    };
    assert_eq!(phases(&[mount(19, &target("p1"))]), (vec![], vec![7.0]));
    assert_eq!(phases(&[mount(16, stage), mount(19, &target("p1"))]), (vec![4.0], vec![3.0]));
}

#[test]
fn staged_again_after_unstage_is_another_stage_on_its_own_clock() {
    let mut evidence = bound();
    for (pod_uid, at) in [("p1", 10), ("p2", 100)] {
        evidence.push(pod(at, pod_uid, Some("n1"), false));
        if at == 10 {
            evidence.push(attachment(12, "a1", "n1", true, false));
        }
        evidence.push(ok(CsiMethod::NodeStageVolume, "n1", "", at + 4, at + 6));
        evidence.push(ok(CsiMethod::NodePublishVolume, "n1", &target(pod_uid), at + 7, at + 9));
        evidence.push(pod(at + 20, pod_uid, Some("n1"), true));
        evidence.push(ok(CsiMethod::NodeUnpublishVolume, "n1", &target(pod_uid), at + 22, at + 23));
        evidence.push(ok(CsiMethod::NodeUnstageVolume, "n1", "", at + 24, at + 28));
    }
    let outcomes = outcomes(&mut Timeline::new(Tap::Present), &evidence);
    assert_eq!(millis(&outcomes, Phase::Stage), [4.0, 6.0]);
    assert_eq!(millis(&outcomes, Phase::Unpublish), [3.0, 3.0]);
    assert_eq!(millis(&outcomes, Phase::Unstage), [5.0, 5.0]);
}

#[test]
fn what_never_ends_is_aborted_and_never_zero() {
    let mut evidence = bound();
    evidence.push(pod(10, "p1", Some("n1"), false));
    let outcomes = outcomes(
        &mut Timeline::new(Tap::Present),
        &[&evidence[..], &[attachment(12, "a1", "n1", false, false)]].concat(),
    );
    let attach = outcomes.iter().filter(|(phase, _)| *phase == Phase::Attach).collect::<Vec<_>>();
    assert_eq!(attach, [&(Phase::Attach, Outcome::Aborted { start: stamp(10) })]);
}

#[test]
fn rules_are_judged_by_time_not_by_arrival() {
    let broken_of = |mut timeline: Timeline, calls: &[Observation]| -> Vec<Rule> {
        let mut events: Vec<Event> = calls.iter().flat_map(|call| timeline.feed(call)).collect();
        events.extend(timeline.finish());
        let rules = events
            .into_iter()
            .filter_map(|e| if let Event::Violation { rule, .. } = e { Some(rule) } else { None });
        rules.collect()
    };
    let broken = |calls: &[Observation]| broken_of(Timeline::new(Tap::Present), calls);
    let staged = ok(CsiMethod::NodeStageVolume, "n1", "", 1, 2);
    let published = ok(CsiMethod::NodePublishVolume, "n1", &target("p1"), 3, 4);
    let unpublished = ok(CsiMethod::NodeUnpublishVolume, "n1", &target("p1"), 5, 6);
    let unstaged = ok(CsiMethod::NodeUnstageVolume, "n1", "", 7, 8);
    let detached = ok(CsiMethod::ControllerUnpublishVolume, "n1", "", 9, 10);
    let early = ok(CsiMethod::ControllerUnpublishVolume, "n1", "", 6, 7);
    let [s, p, up, us] = [&staged, &published, &unpublished, &unstaged].map(Clone::clone);

    // The record of the unstage comes from another process, after that of the later detach.
    assert_eq!(broken(&[s.clone(), p.clone(), up.clone(), detached, us.clone()]), []);
    assert_eq!(broken(&[s.clone(), p.clone(), up.clone(), early, us.clone()]), [Rule::DetachBeforeUnstage]);
    assert_eq!(broken(&[s.clone(), p.clone(), us.clone(), up.clone()]), [Rule::UnstageBeforeUnpublish]);
    assert_eq!(broken(&[s.clone(), s.clone()]), [Rule::StageTwice]);
    assert_eq!(broken(&[s.clone(), p.clone(), p.clone()]), [Rule::PublishTwice]);
    let twice = [s.clone(), s.clone(), p.clone(), p.clone()];
    let by_kubelets = Timeline::new(Tap::Present).with_repeats_of(&[Rule::StageTwice]);
    assert_eq!(broken_of(by_kubelets, &twice), [Rule::PublishTwice], "what may be repeated is no violation");
    let driver = json!({ "metadata": { "name": "d", "uid": "du1" }, "spec": { "requiresRepublish": true } });
    let driver = seen::<CSIDriver>(0, false, driver);
    assert_eq!(broken(&[driver, s.clone(), p.clone(), p.clone()]), [], "the driver requires it");
    assert_eq!(broken(&[s.clone(), p.clone(), up, us.clone(), p.clone()]), [Rule::PublishBeforeStage]);

    // An inline ephemeral volume is never staged.
    let volume = format!("csi-{}", "0a".repeat(32));
    let own =
        of_volume(&volume, call(CsiMethod::NodePublishVolume, "n1", &target("p2"), 3, Some((4, Code::Ok))));
    let gone = TapRecord { method: CsiMethod::NodeUnpublishVolume.into(), ..own.clone() };
    assert_eq!(broken(&[s.clone(), us.clone(), own.into(), gone.into()]), []);

    // A node that is known to be down is not waited for.
    let down = json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]}});
    let down: Node = serde_json::from_value(down).unwrap();
    let down =
        Observation::Watch(Box::new(Change { at: Stamp::default(), object: down.into(), gone: false }));
    let early = ok(CsiMethod::ControllerUnpublishVolume, "n1", "", 6, 7);
    assert_eq!(broken(&[s.clone(), p.clone(), down, early]), []);

    // A failed call may have undone it, so it may be repeated; but not twice.
    let failed = |method, target: &str| -> Observation {
        call(method, "n1", target, 7, Some((8, Code::DeadlineExceeded))).into()
    };
    let unstaging = failed(CsiMethod::NodeUnstageVolume, "");
    assert_eq!(broken(&[s.clone(), unstaging.clone(), s.clone()]), []);
    assert_eq!(broken(&[s.clone(), unstaging, s.clone(), s.clone()]), [Rule::StageTwice]);
    let unpublishing = |pod: &str| failed(CsiMethod::NodeUnpublishVolume, &target(pod));
    assert_eq!(broken(&[s.clone(), p.clone(), unpublishing("p1"), p.clone()]), []);
    assert_eq!(broken(&[s, p.clone(), unpublishing("p2"), p]), [Rule::PublishTwice]);
}

#[test]
fn the_balance_of_a_claim_is_clean_only_when_everything_is_gone() {
    let mut timeline = Timeline::new(Tap::Present);
    let left = |timeline: &Timeline| -> Vec<LeakKind> {
        timeline.balance(["cu1"]).left.iter().map(|l| l.0).collect()
    };
    for evidence in bound() {
        timeline.feed(&evidence);
    }
    timeline.feed(&ok(CsiMethod::ControllerPublishVolume, "n1", "", 20, 21));
    assert_eq!(left(&timeline), [LeakKind::Claim, LeakKind::Volume, LeakKind::Attached]);
    timeline.feed(&claim(30, "Bound", true));
    timeline.feed(&volume(32, true));
    assert_eq!(left(&timeline), [LeakKind::Attached]);
    assert!(!timeline.balance(["never seen"]).is_clean());
    timeline.feed(&ok(CsiMethod::ControllerUnpublishVolume, "n1", "", 40, 41));
    assert!(timeline.balance(["cu1"]).is_clean(), "{:?}", timeline.balance(["cu1"]));
}

#[test]
fn an_attachment_that_is_left_names_a_deleted_volume_and_its_mount() {
    let mounted = |ms, mounted| {
        let place = KubeletPath::of(Path::new(&target("p1"))).unwrap();
        Observation::Mount(Mount { at: stamp(ms), node: "n1".into(), place, mounted })
    };
    let mut timeline = Timeline::new(Tap::Absent);
    let left = |timeline: &Timeline| timeline.balance(["cu1"]).left;
    let mut evidence = bound();
    evidence.extend([pod(10, "p1", Some("n1"), false), attachment(12, "a1", "n1", true, false)]);
    evidence.extend([mounted(16, true), gone_pod(20, "p1"), claim_gone(30), volume(32, true)]);
    evidence.iter().for_each(|it| drop(timeline.feed(it)));
    let name = "a1 of pv1, which no longer exists, on n1".to_owned();
    let and_mounted = format!("{name}, where it is still mounted");
    assert_eq!(left(&timeline), [(LeakKind::Attachment, and_mounted)]);
    timeline.feed(&mounted(40, false));
    assert_eq!(left(&timeline), [(LeakKind::Attachment, name)]);
}

#[tokio::test(start_paused = true)]
async fn a_balance_is_returned_once_everything_is_deleted_or_at_its_deadline() {
    let (events, mut reported) = tokio::sync::mpsc::unbounded_channel();
    let (handle, task) = super::start(Timeline::new(Tap::Present), events);
    let send = |evidence: Observation| handle.evidence().send(evidence.into()).unwrap();
    let patience = std::time::Duration::from_secs(30);
    bound().into_iter().for_each(send);
    let late = handle.settled(vec!["cu1".into()], patience).await.unwrap();
    assert_eq!(late.left.len(), 2, "{late:?}");

    let asked = tokio::spawn({
        let handle = handle.clone();
        async move { handle.settled(vec!["cu1".into()], patience).await.unwrap() }
    });
    tokio::task::yield_now().await;
    send(claim(30, "Bound", true));
    send(volume(32, true));
    let before = tokio::time::Instant::now();
    assert!(asked.await.unwrap().is_clean());
    assert_eq!(before.elapsed(), std::time::Duration::ZERO);

    handle.finish();
    task.await.unwrap();
    assert!(handle.balance(Vec::new()).await.is_err());
    let mut phases = Vec::new();
    while let Some(event) = reported.recv().await {
        phases.extend(if let Event::Phase(sample) = event { Some(sample.phase) } else { None });
    }
    assert_eq!(phases, [Phase::Provision, Phase::Bind, Phase::Delete]);
}

#[test]
fn a_pod_made_after_a_claim_was_gone_waits_for_the_next_of_its_name() {
    let mut timeline = Timeline::new(Tap::Present);
    for evidence in [claim(1, "Pending", false), claim_gone(2), pod(3, "pu1", None, false)] {
        timeline.feed(&evidence);
    }
    assert_eq!(timeline.balance(["cu1"]).left, [], "the pod does not belong to the old claim");
}

#[test]
fn nothing_is_remembered_of_a_forgotten_claim() {
    let mut timeline = Timeline::new(Tap::Present);
    let target = target("pu1");
    let life = [
        claim(1, "Pending", false),
        ok(CsiMethod::CreateVolume, "", "", 2, 3),
        of_volume("pv1", call(CsiMethod::CreateVolume, "", "", 2, Some((3, Code::Ok)))).into(),
        volume(4, false),
        claim(5, "Bound", false),
        pod(6, "pu1", None, false),
        pod(7, "pu1", Some("n1"), false),
        attachment(8, "au1", "n1", false, false),
        call(CsiMethod::ControllerPublishVolume, "n1", "", 8, Some((9, Code::Internal))).into(),
        ok(CsiMethod::ControllerPublishVolume, "n1", "", 10, 11),
        attachment(12, "au1", "n1", true, false),
        ok(CsiMethod::NodeStageVolume, "n1", "", 13, 14),
        ok(CsiMethod::NodePublishVolume, "n1", &target, 15, 16),
        pod(17, "pu1", Some("n1"), true),
        ok(CsiMethod::NodeUnpublishVolume, "n1", &target, 18, 19),
        ok(CsiMethod::NodeUnstageVolume, "n1", "", 20, 21),
        ok(CsiMethod::ControllerUnpublishVolume, "n1", "", 22, 23),
        attachment(24, "au1", "n1", true, true),
        gone_pod(25, "pu1"),
        claim(26, "Bound", true),
        call(CsiMethod::DeleteVolume, "", "", 27, Some((28, Code::Internal))).into(),
        volume(29, true),
        // A call without a volume.
        of_volume("", call(CsiMethod::NodeGetInfo, "", "", 30, Some((31, Code::Ok)))).into(),
    ];
    let events: Vec<Event> = life.iter().flat_map(|evidence| timeline.feed(evidence)).collect();
    assert!(
        events.iter().any(|event| matches!(event, Event::Phase(sample) if sample.phase == Phase::Delete))
    );
    assert_eq!(timeline.balance(["cu1"]).left, []);
    timeline.forget(&["cu1".to_owned(), "never-seen".to_owned()]);
    let left = format!("{timeline:?}");
    for name in ["cu1", "pv1", "h1", "pu1", "au1", "NodeGetInfo"] {
        assert!(!left.contains(name), "{name} is still in {left}");
    }
    assert_eq!(timeline.finish(), []);
}

fn snapshot(ms: u64, ready: bool, gone: bool) -> Observation {
    seen::<VolumeSnapshot>(
        ms,
        gone,
        json!({
            "metadata": { "name": "s1", "namespace": "ns", "uid": "su1" },
            "spec": { "source": { "persistentVolumeClaimName": "c1" } },
            "status": { "boundVolumeSnapshotContentName": "sc1", "readyToUse": ready },
        }),
    )
}

fn content(ms: u64, handle: Option<&str>, gone: bool) -> Observation {
    seen::<VolumeSnapshotContent>(
        ms,
        gone,
        json!({
            "metadata": { "name": "sc1", "uid": "scu1" },
            "spec": {
                "deletionPolicy": "Delete",
                "driver": "d",
                "source": { "volumeHandle": "h1" },
                "volumeSnapshotRef": { "name": "s1", "namespace": "ns", "uid": "su1" },
            },
            "status": { "snapshotHandle": handle },
        }),
    )
}

fn restored(ms: u64, phase: &str) -> Observation {
    let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s1" });
    seen::<PersistentVolumeClaim>(
        ms,
        false,
        json!({
            "metadata": {
                "name": "c2", "namespace": "ns", "uid": "cu2",
                "annotations": { "volume.kubernetes.io/storage-provisioner": "d" },
            },
            "spec": { "dataSource": source, "volumeName": (phase == "Bound").then_some("pv2") },
            "status": { "phase": phase },
        }),
    )
}

#[test]
fn a_snapshot_is_measured_and_what_is_left_of_it_is_left_of_its_claim() {
    let mut timeline = Timeline::new(Tap::Present);
    let evidence = [
        claim(0, "Pending", false),
        volume(10, false),
        claim(20, "Bound", false),
        snapshot(30, false, false),
        ok(CsiMethod::CreateSnapshot, "", "", 40, 50),
        // Created before its source was ready, it waits: that is not part of its provisioning.
        restored(55, "Pending"),
        content(60, Some("sh1"), false),
        snapshot(80, true, false),
        seen::<PersistentVolume>(
            100,
            false,
            json!({
                "metadata": { "name": "pv2", "uid": "vu2", "annotations": { "pv.kubernetes.io/provisioned-by": "d" } },
                "spec": { "csi": { "driver": "d", "volumeHandle": "h2" }, "claimRef": { "uid": "cu2" } },
            }),
        ),
        restored(110, "Bound"),
    ];
    let seconds: BTreeMap<Phase, f64> = outcomes(&mut timeline, &evidence)
        .into_iter()
        .filter_map(|(phase, outcome)| match outcome {
            Outcome::Ok { seconds, .. } => Some((phase, (seconds * 1000.0).round())),
            Outcome::Aborted { .. } | Outcome::Unobserved => None,
        })
        .collect();
    let measured = |phase: Phase| seconds.get(&phase).copied();
    assert_eq!(measured(Phase::SnapshotCreate), Some(30.0));
    assert_eq!(measured(Phase::SnapshotReady), Some(20.0));
    assert_eq!(measured(Phase::Restore), Some(20.0));

    let left = |timeline: &Timeline| -> Vec<LeakKind> {
        let of_snapshots = [LeakKind::Snapshot, LeakKind::SnapshotContent, LeakKind::BackendSnapshot];
        let left = timeline.balance(["cu1"]).left.into_iter().map(|(kind, _)| kind);
        left.filter(|kind| of_snapshots.contains(kind)).collect()
    };
    assert_eq!(left(&timeline), [LeakKind::Snapshot, LeakKind::SnapshotContent, LeakKind::BackendSnapshot]);
    timeline.feed(&content(120, Some("sh1"), true));
    timeline.feed(&snapshot(130, true, true));
    assert_eq!(left(&timeline), [LeakKind::BackendSnapshot], "the driver still has it");
    let deleted = call(CsiMethod::DeleteSnapshot, "", "", 140, Some((150, Code::Ok)));
    timeline.feed(&of_volume("sh1", deleted).into());
    assert_eq!(left(&timeline), []);
}

#[test]
fn a_snapshot_of_a_group_is_deleted_with_the_group() {
    let mut timeline = Timeline::new(Tap::Present);
    let member = |ms, gone| {
        seen::<VolumeSnapshotContent>(
            ms,
            gone,
            json!({
                "metadata": { "name": "sc1", "uid": "scu1" },
                "spec": {
                    "deletionPolicy": "Delete",
                    "driver": "d",
                    "source": { "volumeHandle": "h1" },
                    "volumeSnapshotRef": { "name": "s1", "namespace": "ns", "uid": "su1" },
                },
                "status": { "snapshotHandle": "sh1", "volumeGroupSnapshotHandle": "gh1" },
            }),
        )
    };
    let evidence = [
        claim(0, "Pending", false),
        volume(10, false),
        claim(20, "Bound", false),
        snapshot(30, false, false),
        member(40, false),
        snapshot(50, true, false),
        member(60, true),
        snapshot(70, true, true),
    ];
    for evidence in &evidence {
        timeline.feed(evidence);
    }
    let left = |timeline: &Timeline| {
        let left = timeline.balance(["cu1"]).left;
        left.iter().filter(|(kind, _)| *kind == LeakKind::BackendSnapshot).count()
    };
    assert_eq!(left(&timeline), 1, "the driver still has it");
    let deleted = call(CsiMethod::DeleteVolumeGroupSnapshot, "", "", 80, Some((90, Code::Ok)));
    timeline.feed(&of_volume("gh1", deleted).into());
    assert_eq!(left(&timeline), 0);
}
