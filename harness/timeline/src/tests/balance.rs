//! What is left of a claim, and what the timeline remembers of it.

use std::path::Path;

use claimcheck_csi::Code;
use claimcheck_model::{CsiMethod, Event, KubeletPath, LeakKind, Phase};

use super::{
    super::{Tap, Timeline, start},
    attachment, bound, call, claim, claim_deleted, deleted_pod, ok, pod, stamp, target, volume, with_volume,
};
use crate::evidence::{Mount, Observation};

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
fn failed_calls_that_were_repeated_are_counted_apart_and_those_after_a_success_are_not() {
    let publish = |node: &str, ms, code: Option<Code>| -> Observation {
        call(CsiMethod::ControllerPublishVolume, node, "", ms, code.map(|code| (ms + 1, code))).into()
    };
    use Code::{Aborted, Cancelled, DeadlineExceeded, Internal, Ok, Unavailable};
    // The calls to attach a volume to a node, and how many count.
    for (codes, calls, repeated) in [
        (&[Some(Ok)][..], 1, 0),
        (&[Some(DeadlineExceeded), Some(Ok)], 1, 1),
        (&[Some(Cancelled), Some(Aborted), Some(Unavailable), Some(Ok)], 1, 3),
        // Its process was killed.
        (&[None, Some(Ok)], 1, 1),
        // Never repeated.
        (&[Some(DeadlineExceeded)], 1, 0),
        (&[Some(Internal), Some(Ok)], 1, 1),
        (&[Some(Aborted), Some(Ok)], 1, 1),
        // It had succeeded.
        (&[Some(Ok), Some(Ok)], 2, 0),
        (&[Some(Ok), Some(Internal)], 2, 0),
        (&[Some(Ok), Some(DeadlineExceeded), Some(Ok)], 2, 1),
    ] {
        let mut timeline = Timeline::new(Tap::Present);
        bound().iter().for_each(|it| drop(timeline.feed(it)));
        // Records may arrive in any order.
        for (number, code) in codes.iter().enumerate().rev() {
            timeline.feed(&publish("n1", 20 + 2 * number as u64, *code));
        }
        let balance = timeline.balance(["cu1"]);
        let method = CsiMethod::ControllerPublishVolume;
        let of =
            |counts: &std::collections::BTreeMap<_, u64>| counts.get(&method).copied().unwrap_or_default();
        assert_eq!((of(&balance.calls), of(&balance.repeated)), (calls, repeated), "{codes:?}");
        assert_eq!(balance.all_calls(method), codes.len() as u64);
    }
    // Another node is no repetition.
    let mut timeline = Timeline::new(Tap::Present);
    bound().iter().for_each(|it| drop(timeline.feed(it)));
    timeline.feed(&publish("n1", 20, Some(DeadlineExceeded)));
    timeline.feed(&publish("n2", 30, Some(Ok)));
    assert_eq!(timeline.balance(["cu1"]).calls[&CsiMethod::ControllerPublishVolume], 2);
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
    evidence.extend([mounted(16, true), deleted_pod(20, "p1"), claim_deleted(30), volume(32, true)]);
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
    let (handle, task) = start(Timeline::new(Tap::Present), events);
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

    handle.finish(true);
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
    for evidence in [claim(1, "Pending", false), claim_deleted(2), pod(3, "pu1", None, false)] {
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
        with_volume("pv1", call(CsiMethod::CreateVolume, "", "", 2, Some((3, Code::Ok)))).into(),
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
        deleted_pod(25, "pu1"),
        claim(26, "Bound", true),
        call(CsiMethod::DeleteVolume, "", "", 27, Some((28, Code::Internal))).into(),
        volume(29, true),
        // A call without a volume.
        with_volume("", call(CsiMethod::NodeGetInfo, "", "", 30, Some((31, Code::Ok)))).into(),
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
