//! Observations of a node, and the samples that they lead to.

use std::collections::BTreeSet;

use claimcheck_model::{KubeletPath, ObjectKey, Outcome, PhaseSample, Stamp, VolumeMode};

use proptest::prelude::*;

use super::{Moment, NodePhases, PodFacts, VolumeFacts, index::Index};
use claimcheck_observe::{Change, Record};

fn stamp(seconds: u64) -> Stamp {
    Stamp { mono_ns: seconds * 1_000_000_000, wall_ns: seconds * 1_000_000_000 }
}

/// An observation. Times are seconds.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A change of the mount at the staging path.
    Stage(u64, Change),
    /// A change of the mount in this pod.
    Publish(u64, &'static str, Change),
    /// A pod, and whether it has terminated.
    Pod(&'static str, Moment, bool),
    /// A pod that is ready.
    Ready(&'static str, Moment),
    PodDeleted(&'static str, Moment),
    /// A complete list of pods without any.
    NoPods(u64),
    Attached(Moment),
    Detached(Moment),
    /// The PersistentVolume was read.
    Volume,
    /// It does not exist.
    NoVolume,
    /// The driver was read: whether it requires attach.
    Driver(bool),
    Retire(u64),
}

use Change::{Found, Mounted, Unmounted};
use Step::{
    Attached, Detached, Driver, NoPods, NoVolume, Pod, PodDeleted, Publish, Ready, Retire, Stage, Volume,
};

fn at(seconds: u64) -> Moment {
    Moment::At(stamp(seconds))
}

fn by(seconds: u64) -> Moment {
    Moment::By(stamp(seconds))
}

fn apply(phases: &mut NodePhases, step: Step) -> Vec<PhaseSample> {
    let handle = BTreeSet::from([("d".to_owned(), "h".to_owned())]);
    let record =
        |seconds, change, place| Record { at: stamp(seconds), seq: 0, node: "n".into(), change, place };
    match step {
        Stage(seconds, change) => {
            let place = KubeletPath::Stage { driver: "d".into(), handle_sha256: "ab".into() };
            phases.mount(&record(seconds, change, place))
        }
        Publish(seconds, pod, change) => {
            let place = KubeletPath::Publish { pod: pod.into(), volume: "pv".into() };
            phases.mount(&record(seconds, change, place))
        }
        Pod(uid, seen, terminated) => {
            let claims = vec![ObjectKey::new("ns", "c")];
            phases.pod(PodFacts { uid: uid.into(), claims, ready: false, terminated }, seen)
        }
        Ready(uid, seen) => {
            let claims = vec![ObjectKey::new("ns", "c")];
            phases.pod(PodFacts { uid: uid.into(), claims, ready: true, terminated: false }, seen)
        }
        PodDeleted(uid, seen) => phases.pod_deleted(uid, seen),
        NoPods(seconds) => phases.pods_listed(&BTreeSet::new(), stamp(seconds)),
        Attached(seen) => phases.attached(&handle, seen),
        Detached(seen) => phases.attached(&BTreeSet::new(), seen),
        Volume => {
            let facts = VolumeFacts {
                driver: "d".into(),
                handle: "h".into(),
                handle_sha256: "ab".into(),
                claim: ObjectKey::new("ns", "c"),
                class: "fast".into(),
                mode: VolumeMode::Filesystem,
                created_seconds: 3,
            };
            phases.volume("pv", Some(facts))
        }
        NoVolume => phases.volume("pv", None),
        Driver(requires_attach) => phases.driver("d", requires_attach),
        Retire(seconds) => phases.retire(stamp(seconds)),
    }
}

/// `stage 2`, or `stage unobserved`.
fn text(sample: &PhaseSample) -> String {
    match sample.outcome {
        Outcome::Ok { seconds, .. } => format!("{} {seconds}", sample.phase.name()),
        outcome => format!("{} {}", sample.phase.name(), outcome.name()),
    }
}

fn replay(steps: &[Step]) -> (NodePhases, Vec<String>) {
    let mut phases = NodePhases::new("n");
    let mut samples: Vec<PhaseSample> = Vec::new();
    for step in steps {
        samples.extend(apply(&mut phases, *step));
        samples.extend(complete(&mut phases, step));
    }
    (phases, samples.iter().map(text).collect())
}

/// Only what an observation concerns is measured; a measurement of everything must not find more. Returns the samples of
/// what a removal concerns, which are due with the next observation.
fn complete(phases: &mut NodePhases, step: &Step) -> Vec<PhaseSample> {
    let due = phases.settle();
    assert!(due.is_empty() || matches!(step, Retire(_)), "after {step:?}: {due:?}");
    let more: Vec<String> = phases.settle_all().iter().map(text).collect();
    assert_eq!(more, Vec::<String>::new(), "after {step:?}");
    let mut index = Index::default();
    for (name, volume) in &phases.volumes {
        volume.facts.iter().for_each(|facts| index.volume(name, facts));
    }
    phases.pods.values().for_each(|pod| index.pod(&pod.facts));
    phases.in_pods.keys().for_each(|key| index.in_pod(key));
    assert_eq!(phases.index, index, "after {step:?}");
    due
}

/// Known from the start.
const KNOWN: [Step; 2] = [Volume, Driver(true)];

#[test]
fn observations_lead_to_samples() {
    let table: [(&str, &[Step], &[&str]); 17] = [
        (
            "a whole life",
            &[
                Pod("u", at(10), false),
                Attached(at(12)),
                Stage(15, Mounted),
                Publish(16, "u", Mounted),
                Pod("u", at(20), true),
                Publish(23, "u", Unmounted),
                PodDeleted("u", at(24)),
                Stage(27, Unmounted),
                Detached(at(29)),
            ],
            &["stage 3", "publish 1", "unpublish 3", "unstage 4"],
        ),
        (
            "watches that lag behind the mount table",
            &[
                Stage(15, Mounted),
                Publish(16, "u", Mounted),
                Attached(at(12)),
                Pod("u", at(10), false),
                Publish(23, "u", Unmounted),
                Pod("u", at(25), true),
            ],
            &["stage 3", "publish 1", "unpublish 0"],
        ),
        (
            "a driver that does not stage",
            &[Pod("u", at(10), false), Attached(at(12)), Publish(16, "u", Mounted)],
            &["publish 4"],
        ),
        (
            "a driver that does not require attach",
            &[Driver(false), Pod("u", at(10), false), Stage(15, Mounted), Publish(16, "u", Mounted)],
            &["stage 5", "publish 1"],
        ),
        (
            "a pod on its node before the volume exists, without attach",
            &[Driver(false), Pod("u", at(2), false), Stage(15, Mounted), Publish(16, "u", Mounted)],
            &["stage unobserved", "publish 1"],
        ),
        (
            "two pods, staged once",
            &[
                Attached(at(5)),
                Pod("u", at(10), false),
                Stage(15, Mounted),
                Publish(16, "u", Mounted),
                Pod("v", at(30), false),
                Publish(31, "v", Mounted),
                Pod("u", at(40), true),
                Publish(41, "u", Unmounted),
                Pod("v", at(50), true),
                Publish(52, "v", Unmounted),
                Stage(53, Unmounted),
            ],
            &["stage 5", "publish 1", "publish 1", "unpublish 1", "unpublish 2", "unstage 1"],
        ),
        (
            "mounts found by a restarted observer, which end before it",
            &[
                Stage(15, Found),
                Publish(15, "u", Found),
                Pod("u", by(15), false),
                Attached(by(15)),
                Pod("u", at(20), true),
                Publish(23, "u", Unmounted),
                Stage(27, Unmounted),
                Retire(999),
            ],
            &["unpublish 3", "unstage 4"],
        ),
        (
            "a pod that had terminated before the observer started",
            &[
                Stage(15, Found),
                Publish(15, "u", Found),
                Pod("u", by(15), true),
                Attached(by(15)),
                Publish(23, "u", Unmounted),
                Stage(27, Unmounted),
            ],
            &["unpublish unobserved", "unstage 4"],
        ),
        (
            "a pod that was on the node before the observer started",
            &[Pod("u", by(15), false), Attached(by(15)), Stage(17, Mounted), Publish(18, "u", Mounted)],
            &["stage unobserved", "publish 1"],
        ),
        (
            "an attachment that was there before the observer started, and a pod that was not",
            &[Attached(by(15)), Pod("u", at(16), false), Stage(18, Mounted), Publish(19, "u", Mounted)],
            &["stage 2", "publish 1"],
        ),
        (
            "an attachment that is listed after the pod was observed: which was first is unknown",
            &[Pod("u", at(14), false), Attached(by(15)), Stage(18, Mounted), Publish(19, "u", Mounted)],
            &["stage unobserved", "publish 1"],
        ),
        (
            "a pod that is missing in a later list",
            &[
                Attached(at(5)),
                Pod("u", at(10), false),
                Stage(15, Mounted),
                Publish(16, "u", Mounted),
                NoPods(30),
                Publish(31, "u", Unmounted),
                Stage(33, Unmounted),
            ],
            &["stage 5", "publish 1", "unpublish unobserved", "unstage 2"],
        ),
        (
            "a pod that becomes ready, and again",
            &[
                Attached(at(5)),
                Pod("u", at(10), false),
                Publish(16, "u", Mounted),
                Ready("u", at(19)),
                Pod("u", at(30), false),
                Ready("u", at(40)),
            ],
            &["publish 6", "start 3"],
        ),
        (
            "a pod that was ready before its mount was observed",
            &[Attached(at(5)), Pod("u", at(10), false), Ready("u", at(15)), Publish(16, "u", Mounted)],
            &["publish 6", "start 0"],
        ),
        (
            "a mount that was found, of a pod that becomes ready later",
            &[Publish(15, "u", Found), Pod("u", by(15), false), Attached(by(15)), Ready("u", at(19))],
            &["start unobserved"],
        ),
        (
            "a pod that was ready before the observer started",
            &[Publish(15, "u", Found), Ready("u", by(15)), Attached(by(15)), Ready("u", at(19)), Retire(999)],
            &[],
        ),
        (
            "a failed publish that is repeated",
            &[
                Attached(at(5)),
                Pod("u", at(10), false),
                Stage(15, Mounted),
                Publish(16, "u", Mounted),
                Publish(17, "u", Unmounted),
                Publish(18, "u", Mounted),
                Pod("u", at(30), true),
                Publish(32, "u", Unmounted),
            ],
            &["stage 5", "publish 1", "unpublish 2"],
        ),
    ];
    for (name, steps, expected) in table {
        let (_, samples) = replay(&[&KNOWN[..], steps].concat());
        assert_eq!(samples, expected, "{name}");
        // A volume that is read late changes nothing but the order.
        let (_, mut late) = replay(&[steps, &[Driver(true), Volume][..]].concat());
        let mut expected: Vec<String> = samples;
        if !steps.iter().any(|step| matches!(step, Driver(_) | Retire(_))) {
            late.sort();
            expected.sort();
            assert_eq!(late, expected, "{name}, late");
        }
    }
}

/// What was not observed to start is reported as unobserved once it is over, and nothing is left of it.
#[test]
fn state_is_removed_after_the_end() {
    let life = [
        Publish(16, "u", Mounted),
        Stage(15, Mounted),
        Pod("u", at(20), true),
        Publish(23, "u", Unmounted),
        PodDeleted("u", at(24)),
        Stage(27, Unmounted),
    ];
    // The volume is never attached.
    let (mut phases, samples) = replay(&[&KNOWN[..], &life].concat());
    assert_eq!(samples, ["publish 0", "unpublish 3", "unstage 4"]);
    assert_eq!(apply(&mut phases, Retire(70)), []);
    assert!(phases.tracked() > 0);
    let last: Vec<String> = apply(&mut phases, Retire(90)).iter().map(text).collect();
    assert_eq!(last, ["stage unobserved"]);
    assert_eq!(phases.tracked(), 0);

    // A volume without a PersistentVolume has no samples, and leaves nothing either.
    let (phases, samples) = replay(&[&[NoVolume][..], &life, &[Retire(90)]].concat());
    assert_eq!((samples, phases.tracked()), (Vec::new(), 0));
    // Of a pod that was deleted before the observer started, only the mounts are known.
    let orphaned =
        [Publish(15, "u", Found), Stage(15, Found), Publish(16, "u", Unmounted), Stage(17, Unmounted)];
    let (phases, samples) = replay(&[&KNOWN[..], &orphaned, &[Retire(90)]].concat());
    assert_eq!(samples, ["unstage unobserved", "unpublish unobserved"]);
    assert_eq!(phases.tracked(), 0);
}

/// The last unpublish is remembered although its pod was removed long ago.
#[test]
fn a_volume_that_is_unstaged_late_has_a_duration() {
    let life = [
        Attached(at(5)),
        Pod("u", at(10), false),
        Stage(15, Mounted),
        Publish(16, "u", Mounted),
        Pod("u", at(20), true),
        Publish(23, "u", Unmounted),
        PodDeleted("u", at(24)),
        Retire(200),
        Stage(223, Unmounted),
    ];
    let (_, samples) = replay(&[&KNOWN[..], &life].concat());
    assert_eq!(samples.last().map(String::as_str), Some("unstage 200"));
}

/// What a pod released that was deleted before the observer started is known once its state is removed.
#[test]
fn a_volume_of_an_unknown_pod_has_a_duration_of_unstage() {
    let life = [
        Publish(15, "u", Found),
        Stage(15, Found),
        Publish(16, "u", Unmounted),
        Stage(40, Unmounted),
        Retire(80),
    ];
    let (_, samples) = replay(&[&KNOWN[..], &life].concat());
    assert_eq!(samples, ["unpublish unobserved", "unstage 24"]);
}

#[test]
fn a_sample_names_its_objects() {
    let life = [Attached(at(5)), Pod("u", at(10), false), Publish(16, "u", Mounted)];
    let mut phases = NodePhases::new("n");
    let samples: Vec<PhaseSample> =
        KNOWN.iter().chain(&life).flat_map(|step| apply(&mut phases, *step)).collect();
    let [sample] = &samples[..] else { panic!("{samples:?}") };
    let subject = &sample.subject;
    assert_eq!((&*subject.volume, &*subject.pod, &*subject.node), ("pv", "u", "n"));
    assert_eq!(
        (&*sample.driver, &*sample.class, &*sample.claim, &*sample.handle),
        ("d", "fast", "ns/c", "h")
    );
}

/// A step at a time, of one of two pods.
fn step() -> impl Strategy<Value = fn(u64, &'static str, bool) -> Step> {
    let steps: [fn(u64, &'static str, bool) -> Step; 12] = [
        |seconds, _, observed| Stage(seconds, if observed { Mounted } else { Found }),
        |seconds, _, _| Stage(seconds, Unmounted),
        |seconds, pod, observed| Publish(seconds, pod, if observed { Mounted } else { Found }),
        |seconds, pod, _| Publish(seconds, pod, Unmounted),
        |seconds, pod, observed| Pod(pod, if observed { at(seconds) } else { by(seconds) }, false),
        |seconds, pod, observed| Pod(pod, if observed { at(seconds) } else { by(seconds) }, true),
        |seconds, pod, _| Ready(pod, at(seconds)),
        |seconds, pod, _| PodDeleted(pod, at(seconds)),
        |seconds, _, observed| Attached(if observed { at(seconds) } else { by(seconds) }),
        |seconds, _, _| Detached(at(seconds)),
        |_, _, observed| Driver(observed),
        |seconds, _, observed| if observed { Retire(seconds) } else { NoPods(seconds) },
    ];
    (0..steps.len()).prop_map(move |nth| steps[nth])
}

proptest! {
    /// In any order of observations, what is measured after each is all that can be.
    #[test]
    fn a_measurement_of_what_is_concerned_is_complete(
        steps in prop::collection::vec((step(), 0_u64..40, any::<bool>(), any::<bool>()), 1..60),
        read in 0_usize..60,
    ) {
        let mut phases = NodePhases::new("n");
        let mut now = 10;
        for (nth, (step, delay, first, observed)) in steps.into_iter().enumerate() {
            now += delay;
            let step = step(now, if first { "u" } else { "v" }, observed);
            apply(&mut phases, step);
            complete(&mut phases, &step);
            if nth >= read && phases.unknown_volumes().next().is_some() {
                apply(&mut phases, Volume);
                complete(&mut phases, &Volume);
            }
        }
    }
}
