//! The start and the end of each phase, and the parts of the driver in it.

use std::path::Path;

use claimcheck_csi::Code;
use claimcheck_model::{CsiMethod, Event, KubeletPath, Outcome, Phase, Source};
use k8s_openapi::api::storage::v1::CSIDriver;
use serde_json::json;

use super::{
    super::{Tap, Timeline},
    attachment, bound, call, claim, claim_deleted, deleted_pod, deleting_attachment, millis, ok, outcomes,
    pod, seen, stamp, target, volume, with_volume,
};
use crate::evidence::{Mount, Observation};

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
    let create = with_volume("pv1", call(CsiMethod::CreateVolume, "", "", 1, Some((4, Code::Ok))));
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
fn a_detachment_is_measured_if_the_end_of_its_volume_was_observed_before() {
    let mut evidence = bound();
    evidence.extend([pod(20, "p1", Some("n1"), false)]);
    evidence.extend([attachment(24, "a1", "n1", false, false), attachment(25, "a1", "n1", true, false)]);
    evidence.extend([deleted_pod(30, "p1"), claim_deleted(31), volume(32, true)]);
    // The watch of attachments lags behind.
    evidence.extend([deleting_attachment(40, "a1", "n1"), attachment(42, "a1", "n1", true, true)]);
    let outcomes = outcomes(&mut Timeline::new(Tap::Absent), &evidence);
    assert_eq!(millis(&outcomes, Phase::Detach), [2.0]);
}
