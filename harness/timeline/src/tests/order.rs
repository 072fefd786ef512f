//! Watches and calls arrive on many connections with arbitrary relative delays: the reported phases of a lifecycle
//! do not depend on that.

use claimcheck_model::{CsiMethod, Event, Outcome, Phase};
use proptest::prelude::*;

use super::{
    super::{Tap, Timeline},
    attachment, claim, claim_deleted, deleted_pod, millis, ok, outcomes, pod, stamp, target, volume,
};
use crate::evidence::{Change, Observation};

/// The same, but observed only at `ms`: its watch was delayed.
fn late(ms: u64, evidence: Observation) -> Observation {
    let Observation::Watch(change) = evidence else { unreachable!("only watches are delayed") };
    Observation::Watch(Box::new(Change { at: stamp(ms), ..*change }))
}

#[test]
fn a_watch_that_is_behind_by_a_whole_life_hides_no_phase() {
    let life = || {
        let target = target("pu1");
        let attached = [attachment(5, "au1", "n1", false, false), attachment(6, "au1", "n1", true, false)];
        let pod =
            [pod(3, "pu1", None, false), pod(4, "pu1", Some("n1"), false), pod(9, "pu1", Some("n1"), true)];
        let claim = [claim(1, "Pending", false), volume(2, false), claim(3, "Bound", false)];
        let calls = [
            ok(CsiMethod::NodeStageVolume, "n1", "", 7, 7),
            ok(CsiMethod::NodePublishVolume, "n1", &target, 8, 8),
        ];
        (claim, pod, attached, calls, [claim_deleted(20)])
    };
    let (claim, pod, attached, calls, deleted) = life();
    let attached = attached.map(|evidence| late(30, evidence));
    let behind: Vec<Observation> =
        claim.into_iter().chain(pod).chain(calls).chain(deleted).chain(attached).collect();
    let seen = outcomes(&mut Timeline::new(Tap::Present), &behind);
    assert_eq!(millis(&seen, Phase::Attach).len(), 1, "{seen:?}");

    let (claim, pod, attached, calls, deleted) = life();
    let pod = pod.map(|evidence| late(30, evidence));
    let behind: Vec<Observation> =
        claim.into_iter().chain(attached).chain(calls).chain(deleted).chain(pod).collect();
    let seen = outcomes(&mut Timeline::new(Tap::Present), &behind);
    for phase in [Phase::Attach, Phase::Schedule, Phase::Publish, Phase::Start] {
        assert_eq!(millis(&seen, phase).len(), 1, "{phase:?}: {seen:?}");
    }
}

/// The evidence of a whole lifecycle by source: ordered within each source, unordered between them.
fn streams() -> [Vec<Observation>; 5] {
    let target = target("pu1");
    [
        vec![claim(1, "Pending", false), claim(5, "Bound", false), claim_deleted(26)],
        vec![volume(4, false), volume(29, true)],
        vec![
            pod(6, "pu1", None, false),
            pod(7, "pu1", Some("n1"), false),
            pod(17, "pu1", Some("n1"), true),
            deleted_pod(25, "pu1"),
        ],
        vec![
            attachment(8, "au1", "n1", false, false),
            attachment(12, "au1", "n1", true, false),
            attachment(24, "au1", "n1", true, true),
        ],
        vec![
            ok(CsiMethod::ControllerPublishVolume, "n1", "", 10, 11),
            ok(CsiMethod::NodeStageVolume, "n1", "", 13, 14),
            ok(CsiMethod::NodePublishVolume, "n1", &target, 15, 16),
            ok(CsiMethod::NodeUnpublishVolume, "n1", &target, 18, 19),
            ok(CsiMethod::NodeUnstageVolume, "n1", "", 20, 21),
            ok(CsiMethod::ControllerUnpublishVolume, "n1", "", 22, 23),
        ],
    ]
}

/// The phases that are reported when the streams are read in this order: subject, and whether measured. The driver's
/// part is known only if its calls were received in time.
fn reported(order: &[usize]) -> Vec<String> {
    let mut streams = streams().map(Vec::into_iter);
    let mut timeline = Timeline::new(Tap::Present);
    let mut events: Vec<Event> = Vec::new();
    for &stream in order {
        events.extend(streams[stream].next().into_iter().flat_map(|evidence| timeline.feed(&evidence)));
    }
    events.extend(timeline.finish());
    let phase = |event: Event| match event {
        Event::Phase(sample) => {
            let measured = matches!(sample.outcome, Outcome::Ok { .. });
            Some(format!(
                "{} {:?} {} measured: {measured}",
                sample.phase.name(),
                sample.subject,
                sample.claim
            ))
        }
        _ => None,
    };
    let mut phases: Vec<String> = events.into_iter().filter_map(phase).collect();
    phases.sort();
    phases
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    /// Watches and calls arrive on many connections with arbitrary relative delays.
    #[test]
    fn phases_are_reported_once_in_any_order_of_observations(
        order in Just(streams().iter().enumerate().flat_map(|(nth, all)| vec![nth; all.len()]).collect::<Vec<_>>())
            .prop_shuffle(),
    ) {
        let in_order: Vec<usize> = [0, 1, 0, 2, 2, 3, 4, 3, 4, 4, 2, 4, 4, 4, 3, 2, 0, 1].to_vec();
        prop_assert_eq!(reported(&order), reported(&in_order));
    }
}
