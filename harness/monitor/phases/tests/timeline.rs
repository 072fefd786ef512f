//! The phases that a node measures agree with those that the harness measures from the same observations.

#![expect(clippy::unwrap_used, reason = "helpers of a test are a test; a panic is its way to fail")]

use std::collections::BTreeSet;

use claimcheck_model::{Event, KubeletPath, ObjectKey, Outcome, Phase, PhaseSample, Stamp, VolumeMode};
use claimcheck_node_phases::{Moment, NodePhases, PodFacts, VolumeFacts};
use claimcheck_observe::{Change, Record};
use claimcheck_timeline::{
    Tap, Timeline,
    evidence::{self, Mount, Object, Observation},
};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSIDriver, VolumeAttachment},
};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const DRIVER: &str = "d";
const HANDLE: &str = "abc";
/// The SHA-256 of [`HANDLE`]: a test vector of FIPS 180-4.
const SHA: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn stamp(seconds: u64) -> Stamp {
    Stamp { mono_ns: seconds * 1_000_000_000, wall_ns: seconds * 1_000_000_000 }
}

/// What both observe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Attached,
    Scheduled(String),
    Staged,
    Published(String),
    Ready(String),
    Terminated(String),
    Unpublished(String),
    Unstaged,
}

/// The life of a pod, as delays in seconds.
#[derive(Clone, Debug)]
struct Pace {
    scheduled: u64,
    published: u64,
    ready: u64,
    terminated: u64,
    unpublished: u64,
    /// Whether its termination is observed after the unmount.
    lags: bool,
}

fn pace() -> impl Strategy<Value = Pace> {
    let delay = || 1_u64..20;
    (delay(), delay(), delay(), delay(), delay(), any::<bool>()).prop_map(
        |(scheduled, published, ready, terminated, unpublished, lags)| Pace {
            scheduled,
            published,
            ready,
            terminated,
            unpublished,
            lags,
        },
    )
}

/// The facts of pods that share a volume on one node, in the order of their times.
fn life(pods: &[Pace], attached: u64, staged: Option<u64>, unstaged: u64) -> Vec<(u64, Fact)> {
    let first = pods.iter().map(|pod| pod.scheduled).min().unwrap_or_default();
    let ready = attached.max(first) + staged.unwrap_or_default();
    let mut facts = vec![(attached, Fact::Attached)];
    let mut released = ready;
    for (nth, pace) in pods.iter().enumerate() {
        let pod = format!("u{nth}");
        let published = ready.max(pace.scheduled) + pace.published;
        let started = published + pace.ready;
        let terminated = started + pace.terminated;
        let unpublished = terminated + pace.unpublished;
        let observed = if pace.lags { unpublished + 1 } else { terminated };
        facts.push((pace.scheduled, Fact::Scheduled(pod.clone())));
        facts.push((published, Fact::Published(pod.clone())));
        facts.push((started, Fact::Ready(pod.clone())));
        facts.push((observed, Fact::Terminated(pod.clone())));
        facts.push((unpublished, Fact::Unpublished(pod)));
        released = released.max(unpublished);
    }
    if staged.is_some() {
        facts.push((ready, Fact::Staged));
        facts.push((released + unstaged, Fact::Unstaged));
    }
    facts.sort();
    facts
}

fn claim() -> ObjectKey {
    ObjectKey::new("ns", "c")
}

/// On the node.
fn on_node(facts: &[(u64, Fact)], requires_attach: bool) -> Vec<PhaseSample> {
    let mut phases = NodePhases::new("n");
    let volume = VolumeFacts {
        driver: DRIVER.into(),
        handle: HANDLE.into(),
        handle_sha256: SHA.into(),
        claim: claim(),
        class: String::new(),
        mode: VolumeMode::Filesystem,
        created_seconds: 0,
    };
    let mut samples = phases.volume("pv", Some(volume));
    samples.extend(phases.driver(DRIVER, requires_attach));
    for (seconds, fact) in facts {
        let at = stamp(*seconds);
        let of_pod = |uid: &str, ready, terminated| PodFacts {
            uid: uid.into(),
            claims: vec![claim()],
            ready,
            terminated,
        };
        samples.extend(match fact {
            Fact::Attached => {
                let handles = BTreeSet::from([(DRIVER.to_owned(), HANDLE.to_owned())]);
                phases.attached(&handles, Moment::At(at))
            }
            Fact::Scheduled(pod) => phases.pod(of_pod(pod, false, false), Moment::At(at)),
            Fact::Ready(pod) => phases.pod(of_pod(pod, true, false), Moment::At(at)),
            Fact::Terminated(pod) => phases.pod(of_pod(pod, true, true), Moment::At(at)),
            Fact::Staged | Fact::Published(_) | Fact::Unpublished(_) | Fact::Unstaged => {
                let (place, mounted) = place(fact);
                let change = if mounted { Change::Mounted } else { Change::Unmounted };
                phases.mount(&Record { at, seq: 0, node: "n".into(), change, place })
            }
        });
    }
    samples
}

/// The mount of a fact, and whether it is added.
fn place(fact: &Fact) -> (KubeletPath, bool) {
    let stage = || KubeletPath::Stage { driver: DRIVER.into(), handle_sha256: SHA.into() };
    let publish = |pod: &str| KubeletPath::Publish { pod: pod.into(), volume: "pv".into() };
    match fact {
        Fact::Staged => (stage(), true),
        Fact::Unstaged => (stage(), false),
        Fact::Published(pod) => (publish(pod), true),
        Fact::Unpublished(pod) => (publish(pod), false),
        Fact::Attached | Fact::Scheduled(_) | Fact::Ready(_) | Fact::Terminated(_) => {
            panic!("{fact:?} is no mount")
        }
    }
}

fn watched<K: DeserializeOwned + Into<Object>>(seconds: u64, mut object: Value) -> Observation {
    object["metadata"]["resourceVersion"] = json!((seconds + 1).to_string());
    let object = serde_json::from_value::<K>(object).unwrap().into();
    Observation::Watch(Box::new(evidence::Change { at: stamp(seconds), object, deleted: false }))
}

fn pod(seconds: u64, uid: &str, phase: &str, ready: bool) -> Observation {
    let ready = json!({ "type": "Ready", "status": if ready { "True" } else { "False" } });
    watched::<Pod>(
        seconds,
        json!({
            "metadata": { "name": uid, "namespace": "ns", "uid": uid },
            "spec": {
                "containers": [{ "name": "c" }],
                "nodeName": "n",
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }],
            },
            "status": { "phase": phase, "conditions": [ready] },
        }),
    )
}

/// In the harness.
fn in_harness(facts: &[(u64, Fact)], requires_attach: bool) -> Vec<PhaseSample> {
    let mut timeline = Timeline::new(Tap::Absent);
    let mut observations = vec![
        watched::<CSIDriver>(
            0,
            json!({ "metadata": { "name": DRIVER, "uid": "du" }, "spec": { "attachRequired": requires_attach } }),
        ),
        watched::<PersistentVolumeClaim>(
            0,
            json!({
                "metadata": { "name": "c", "namespace": "ns", "uid": "cu" },
                "spec": { "volumeName": "pv" },
                "status": { "phase": "Bound" },
            }),
        ),
        watched::<PersistentVolume>(
            0,
            json!({
                "metadata": { "name": "pv", "uid": "vu" },
                "spec": {
                    "csi": { "driver": DRIVER, "volumeHandle": HANDLE },
                    "claimRef": { "namespace": "ns", "name": "c", "uid": "cu" },
                },
            }),
        ),
    ];
    observations.extend(facts.iter().map(|(seconds, fact)| match fact {
        Fact::Attached => watched::<VolumeAttachment>(
            *seconds,
            json!({
                "metadata": { "name": "va", "uid": "au" },
                "spec": { "attacher": DRIVER, "nodeName": "n", "source": { "persistentVolumeName": "pv" } },
                "status": { "attached": true },
            }),
        ),
        Fact::Scheduled(uid) => pod(*seconds, uid, "Running", false),
        Fact::Ready(uid) => pod(*seconds, uid, "Running", true),
        Fact::Terminated(uid) => pod(*seconds, uid, "Succeeded", false),
        Fact::Staged | Fact::Published(_) | Fact::Unpublished(_) | Fact::Unstaged => {
            let (place, mounted) = place(fact);
            Observation::Mount(Mount { at: stamp(*seconds), node: "n".into(), place, mounted })
        }
    }));
    let events = observations.iter().flat_map(|observation| timeline.feed(observation));
    let samples = events.filter_map(|event| match event {
        Event::Phase(sample) => Some(sample),
        _ => None,
    });
    samples.collect()
}

/// The durations of the phases on nodes, in the order of phases and pods.
fn durations(samples: &[PhaseSample]) -> BTreeSet<(Phase, String, Stamp, Stamp)> {
    let of_node = [Phase::Stage, Phase::Publish, Phase::Start, Phase::Unpublish, Phase::Unstage];
    let samples = samples.iter().filter(|sample| of_node.contains(&sample.phase));
    let durations = samples.map(|sample| match sample.outcome {
        Outcome::Ok { start, end, .. } => (sample.phase, sample.subject.pod.clone(), start, end),
        ref other => panic!("{:?} is {other:?}", sample.phase),
    });
    durations.collect()
}

proptest! {
    #[test]
    fn a_node_measures_what_the_harness_measures(
        pods in prop::collection::vec(pace(), 1..4),
        attached in 1_u64..30,
        staged in prop::option::of(1_u64..20),
        unstaged in 1_u64..20,
        requires_attach in any::<bool>(),
    ) {
        let facts = life(&pods, attached, staged, unstaged);
        let node = durations(&on_node(&facts, requires_attach));
        let phases = 3 * pods.len() + if staged.is_some() { 2 } else { 0 };
        prop_assert_eq!(node.len(), phases, "{:?}", facts);
        prop_assert_eq!(node, durations(&in_harness(&facts, requires_attach)), "{:?}", facts);
    }
}
