//! Tests of the timeline with recorded lifecycles of upstream Kubernetes.

#![expect(clippy::unwrap_used, reason = "helpers of a test are a test; a panic is its way to fail")]

mod recording;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::LazyLock;

use claimcheck_model::{CsiMethod, Event, Outcome, Phase, PhaseSample, Source, TransitionKind};
use claimcheck_timeline::evidence::{Object, Observation};
use claimcheck_timeline::{Tap, Timeline};
use proptest::prelude::*;
use recording::Recording;

/// All events that evidence leads to, those of the end included.
fn replay(tap: Tap, evidence: &[Observation]) -> Vec<Event> {
    let mut timeline = Timeline::new(tap);
    let mut events: Vec<Event> = evidence.iter().flat_map(|evidence| timeline.feed(evidence)).collect();
    events.extend(timeline.finish());
    events
}

fn samples(events: &[Event]) -> Vec<&PhaseSample> {
    let of_phases = events.iter().filter_map(|event| match event {
        Event::Phase(sample) => Some(sample),
        _ => None,
    });
    of_phases.collect()
}

fn transitions(events: &[Event]) -> BTreeMap<TransitionKind, u64> {
    events.iter().fold(BTreeMap::new(), |mut counts, event| {
        if let Event::Transition(transition) = event {
            *counts.entry(transition.kind).or_default() += 1;
        }
        counts
    })
}

/// Claims and pods have uids in samples; the table has their names.
fn names(evidence: &[Observation]) -> BTreeMap<String, String> {
    let named = evidence.iter().filter_map(|evidence| match evidence {
        Observation::Watch(change) if matches!(change.object, Object::Claim(_) | Object::Pod(_)) => {
            Some((change.object.metadata().uid.clone()?, change.object.metadata().name.clone()?))
        }
        _ => None,
    });
    named.collect()
}

/// The samples as lines: phase, subject, milliseconds of phase, driver and overhead.
fn table(events: &[Event], evidence: &[Observation]) -> String {
    let names = names(evidence);
    let mut table = String::new();
    for sample in samples(events) {
        let name = |uid: &str| names.get(uid).cloned().unwrap_or_default();
        let subject = [name(&sample.subject.claim), name(&sample.subject.pod), sample.subject.node.clone()];
        let subject: Vec<String> = subject.into_iter().filter(|part| !part.is_empty()).collect();
        write!(table, "{:18}{:16}", sample.phase.name(), subject.join(" ")).unwrap();
        match sample.outcome {
            Outcome::Ok { source, seconds, driver_seconds, overhead_seconds, .. } => {
                let ms = |seconds: f64| seconds * 1e3;
                let part = |seconds: Option<f64>| {
                    seconds.map_or_else(|| "-".to_owned(), |s| format!("{:.1}", ms(s)))
                };
                let (all, driver, overhead) = (ms(seconds), part(driver_seconds), part(overhead_seconds));
                writeln!(table, "{all:10.1} {driver:>8} {overhead:>10}  {}", source.name()).unwrap();
            }
            Outcome::Aborted { .. } | Outcome::Unobserved => {
                writeln!(table, "{}", sample.outcome.name()).unwrap()
            }
        }
    }
    table
}

#[test]
fn six_life_cycles_come_out_right() {
    let evidence = Recording::load().evidence();
    let events = replay(Tap::Present, &evidence);
    insta::assert_snapshot!("samples", table(&events, &evidence));
}

/// Seconds of a phase of the objects with this name.
fn seconds(events: &[Event], evidence: &[Observation], phase: Phase, name: &str) -> f64 {
    let names = names(evidence);
    let of_phase = samples(events).into_iter().filter(|sample| sample.phase == phase);
    let found = of_phase.filter(|s| {
        [&s.subject.pod, &s.subject.claim].iter().find_map(|uid| names.get(*uid)).is_some_and(|n| n == name)
    });
    match found.map(|sample| sample.outcome).collect::<Vec<_>>().as_slice() {
        [Outcome::Ok { seconds, .. }] => *seconds,
        other => panic!("{phase:?} of {name}: {other:?}"),
    }
}

/// Numbers read from the recording by hand: differences of the arrival times of the lines named.
#[test]
fn phases_are_as_long_as_in_the_recording() {
    let evidence = Recording::load().evidence();
    let events = replay(Tap::Present, &evidence);
    let expected = [
        (Phase::Provision, "c1", 0.051_5, "claim ADDED to volume ADDED"),
        (Phase::Bind, "c1", 0.017_8, "volume ADDED to claim Bound"),
        (Phase::Schedule, "p1", 0.022_9, "pod ADDED to nodeName"),
        (Phase::Attach, "c1", 0.128_0, "nodeName to status.attached"),
        (Phase::Start, "p1", 0.598_9, "pod mount added to Ready"),
        (Phase::Stop, "p1", 2.413_0, "deletionTimestamp to terminated"),
        (Phase::Detach, "c1", 5.411_6, "NodeUnstageVolume to attachment DELETED"),
        (Phase::Delete, "c1", 1.834_3, "attachment DELETED (the claim went earlier) to volume DELETED"),
        (
            Phase::Provision,
            "c2",
            0.027_5,
            "WaitForFirstConsumer: selected-node, not the claim's creation, to volume ADDED",
        ),
        (Phase::ControllerExpand, "c2", 0.034_6, "request raised to volume capacity"),
        (Phase::Schedule, "p5", 1.011_7, "its claim ADDED to nodeName, less its provision and bind"),
        (Phase::Delete, "c2", 0.048_1, "claim DELETED (the attachment went earlier) to volume DELETED"),
    ];
    for (phase, name, desired, how) in expected {
        let got = seconds(&events, &evidence, phase, name);
        assert!(
            (got - desired).abs() < 0.001,
            "{phase:?} of {name}, {how}: {got:.4} s instead of {desired} s"
        );
    }
}

#[test]
fn the_sum_of_the_phases_is_the_whole() {
    let evidence = Recording::load().evidence();
    let events = replay(Tap::Present, &evidence);
    let sum = |phases: &[(Phase, &str)]| -> f64 {
        phases.iter().map(|(phase, name)| seconds(&events, &evidence, *phase, name)).sum()
    };
    // From the pod's creation to its being ready, and from its deletion to the end of the volume.
    let up = [(Phase::Schedule, "p1"), (Phase::Attach, "c1"), (Phase::Stage, "c1")];
    let up = sum(&up) + sum(&[(Phase::Publish, "p1"), (Phase::Start, "p1")]);
    assert!((up - 10.280_0).abs() < 0.001, "{up}");
    let down = [(Phase::Stop, "p1"), (Phase::Unpublish, "p1"), (Phase::Unstage, "c1")];
    let down = sum(&down) + sum(&[(Phase::Detach, "c1"), (Phase::Delete, "c1")]);
    assert!((down - 9.821_5).abs() < 0.001, "{down}");
}

#[test]
fn overhead_and_driver_time_make_up_each_phase() {
    let events = replay(Tap::Present, &Recording::load().evidence());
    let mut driven = 0;
    for sample in samples(&events) {
        let Outcome::Ok { seconds, driver_seconds, overhead_seconds, .. } = sample.outcome else { continue };
        let (Some(driver_seconds), Some(overhead_seconds)) = (driver_seconds, overhead_seconds) else {
            panic!("the calls were seen: {sample:?}")
        };
        assert!((seconds - driver_seconds - overhead_seconds).abs() < 1e-9, "{sample:?}");
        assert!(driver_seconds >= 0.0 && overhead_seconds >= 0.0, "{sample:?}");
        assert!(sample.phase.info().rpc.is_some() || driver_seconds == 0.0, "{sample:?}");
        driven += usize::from(driver_seconds > 0.0);
    }
    assert!(driven > 20, "only {driven} phases have driver time");
}

#[test]
fn attaches_and_mounts_balance_and_a_shared_claim_is_staged_once() {
    use TransitionKind::{Attach, Detach, Mount, Stage, Unmount, Unstage};
    let evidence = Recording::load().evidence();
    let events = replay(Tap::Present, &evidence);
    let expected =
        BTreeMap::from([(Attach, 4), (Detach, 4), (Stage, 4), (Unstage, 4), (Mount, 5), (Unmount, 5)]);
    assert_eq!(transitions(&events), expected);

    let shared = names(&evidence).into_iter().find(|(_, name)| name == "c2").unwrap().0;
    let mut timeline = Timeline::new(Tap::Present);
    evidence.iter().for_each(|evidence| drop(timeline.feed(evidence)));
    let balance = timeline.balance([shared.as_str()]);
    assert!(balance.is_clean(), "{balance:?}");
    assert_eq!((balance.counts[&Stage], balance.counts[&Mount], balance.counts[&Unmount]), (1, 2, 2));
    assert_eq!(
        (balance.calls[&CsiMethod::NodeStageVolume], balance.calls[&CsiMethod::NodePublishVolume]),
        (1, 2)
    );

    // Stock Kubernetes called ControllerPublishVolume twice in the last life cycle.
    let violations = events.iter().filter(|event| matches!(event, Event::Violation { .. })).count();
    assert_eq!(violations, 1);
}

#[test]
fn in_mid_life_the_balance_names_what_is_left() {
    let evidence = Recording::load().evidence();
    let claim = names(&evidence).into_iter().find(|(_, name)| name == "c1").unwrap().0;
    let mut timeline = Timeline::new(Tap::Present);
    let ready = |events: &[Event]| samples(events).iter().any(|sample| sample.phase == Phase::Start);
    let upto = evidence.iter().position(|evidence| ready(&timeline.feed(evidence)));
    assert!(upto.is_some());
    let left: Vec<&str> =
        timeline.balance([claim.as_str()]).left.iter().map(|(kind, _)| kind.name()).collect();
    assert_eq!(left, ["claim", "volume", "pod", "attachment", "attached", "staged", "mounted"]);
}

#[test]
fn without_a_tap_mounts_give_times_and_no_counts() {
    let evidence: Vec<Observation> =
        Recording::load().evidence().into_iter().filter(|e| !matches!(e, Observation::Rpc(_))).collect();
    let events = replay(Tap::Absent, &evidence);
    let expected = BTreeMap::from([(TransitionKind::Attach, 4), (TransitionKind::Detach, 4)]);
    assert_eq!(transitions(&events), expected);
    let unpublished: Vec<_> = samples(&events).into_iter().filter(|s| s.phase == Phase::Unpublish).collect();
    assert_eq!(unpublished.len(), 5);
    for sample in unpublished {
        assert!(matches!(sample.outcome, Outcome::Ok { source: Source::Mount, .. }), "{sample:?}");
    }
    // Hostpath mounts nothing when it stages, so publishing includes staging.
    let publishes = samples(&events).into_iter().filter(|sample| sample.phase == Phase::Publish);
    for sample in publishes {
        assert!(matches!(sample.outcome, Outcome::Ok { source: Source::Mount, .. }), "{sample:?}");
    }
    assert!(samples(&events).iter().all(|sample| sample.phase != Phase::Stage));
    assert!((seconds(&events, &evidence, Phase::Stop, "p1") - 2.413).abs() < 0.001);
}

/// The kind of a change: changes of one kind stay in order, others do not.
fn kind(evidence: &Observation) -> Option<usize> {
    let Observation::Watch(change) = evidence else { return None };
    Some(match change.object {
        Object::Claim(_) => 0,
        Object::Volume(_) => 1,
        Object::Pod(_) => 2,
        Object::Attachment(_) => 3,
        Object::Driver(_) | Object::CsiNode(_) | Object::Node(_) => 4,
        // The recordings have none.
        Object::Snapshot(_) | Object::Content(_) => 5,
    })
}

fn moment(evidence: &Observation) -> u64 {
    match evidence {
        Observation::Watch(change) => change.at.mono_ns,
        Observation::Rpc(rpc) => rpc.end.as_ref().unwrap().at.mono_ns - 1,
        Observation::Mount(mount) => mount.at.mono_ns,
    }
}

fn sorted(events: &[Event]) -> BTreeSet<String> {
    samples(events).iter().map(|sample| serde_json::to_string(sample).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The samples do not depend on how far the watches of the kinds lag behind one another.
    #[test]
    fn the_order_of_arrival_does_not_matter(lags in prop::array::uniform6(0u64..300_000_000)) {
        static EVIDENCE: LazyLock<Vec<Observation>> = LazyLock::new(|| Recording::load().evidence());
        let evidence = &*EVIDENCE;
        let mut late = evidence.clone();
        late.sort_by_key(|evidence| moment(evidence) + kind(evidence).map_or(0, |kind| lags[kind]));
        let (straight, late) = (replay(Tap::Present, evidence), replay(Tap::Present, &late));
        let (expected, got) = (sorted(&straight), sorted(&late));
        let missing: Vec<_> = expected.difference(&got).collect();
        let surplus: Vec<_> = got.difference(&expected).collect();
        prop_assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:#?}\nsurplus {surplus:#?}");
        prop_assert_eq!(transitions(&straight), transitions(&late));
    }
}
