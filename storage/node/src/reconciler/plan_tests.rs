//! The planner as a table, and under random interleavings against a driver that checks every call.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    actual::{Actual, Outcome},
    desired::Desired,
    reconciler::{Backoff, InUse},
    testing::volume_use,
    volumes::VolumeKey,
};

static NO_PODS: BTreeSet<PodUid> = BTreeSet::new();
const READY: Facts<'static> = Facts {
    has_device: true,
    reachable: true,
    attached: true,
    controller_attaches: true,
    grows: false,
    content: true,
    in_use: true,
    held: &NO_PODS,
};
const NOW: Moment = Duration::from_secs(100);

/// What is there, in one word per mount: `device` or `a` for the mount in pod a; with `?` uncertain, with
/// `!` outdated.
fn actual(words: &str) -> ActualVolume {
    let mut state = Actual::default();
    let key = VolumeKey::csi("d", "v");
    for word in words.split_whitespace() {
        let mounted = match word.chars().last() {
            Some('?') => Mounted::Uncertain,
            Some('!') => Mounted::Outdated,
            _ => Mounted::Yes,
        };
        let pod = PodUid::from(word.trim_end_matches(['?', '!']));
        let place = (pod.as_str() != "device").then_some((&pod, "pv"));
        state.adopt(&key, place, mounted);
    }
    state.get(&key).cloned().unwrap_or_default()
}

fn desired(pods: &str) -> Option<DesiredVolume> {
    let mut state = Desired::default();
    for pod in pods.split_whitespace() {
        state.set_pod(&pod.into(), vec![volume_use("v", pod)]);
    }
    state.get(&volume_use("v", "a").key).cloned()
}

#[test]
fn one_step_at_a_time() {
    use Decision::{Rest, Run, Wait as Waits};
    use Operation::{Attach, Expand, MountDevice, MountPod, UnmountDevice, UnmountPod};
    let detached = Facts { attached: false, ..READY };
    let unpromised = Facts { in_use: false, ..READY };
    let driverless = Facts { reachable: false, ..READY };
    let local = Facts { has_device: false, ..READY };
    let pod = |name: &str| PodUid::from(name);
    let a = BTreeSet::from([pod("a")]);
    let held = Facts { held: &a, ..READY };
    let unknown = Facts { has_device: false, content: false, ..READY };
    let growing = Facts { grows: true, ..READY };
    let unmanaged = Facts { controller_attaches: false, ..READY };
    let refused = Facts { attached: false, ..unmanaged };
    let rows = [
        ("nothing wanted, nothing there", "", "", READY, Rest),
        ("wanted: the device first", "a", "", READY, Run(MountDevice)),
        ("not yet attached is a wait, not a failure", "a", "", detached, Waits(Wait::Attach)),
        ("never mounted before the promise", "a", "", unpromised, Waits(Wait::InUse)),
        ("no driver yet", "a", "", driverless, Waits(Wait::Driver)),
        (
            "attached before its driver is missed",
            "a",
            "",
            Facts { attached: false, ..driverless },
            Waits(Wait::Attach),
        ),
        ("an uncertain device is staged again", "a", "device?", READY, Run(MountDevice)),
        ("staged: publish", "a", "device", READY, Run(MountPod(pod("a")))),
        ("an uncertain mount is published again", "a", "device a?", READY, Run(MountPod(pod("a")))),
        ("a second pod shares the stage", "a b", "device a", READY, Run(MountPod(pod("b")))),
        ("as desired", "a b", "device a b", READY, Rest),
        ("a mounted volume does not care about the attachment", "a", "device a", detached, Rest),
        ("what is mounted grows", "a", "device a", growing, Run(Expand)),
        ("but is mounted first", "a b", "device a", growing, Run(MountPod(pod("b")))),
        ("without its driver it does not", "a", "device a", Facts { reachable: false, ..growing }, Rest),
        ("unmount comes before mount", "b", "device a", READY, Run(UnmountPod(pod("a")))),
        ("one pod left: the device stays", "a", "device a", READY, Rest),
        ("an uncertain mount is undone too", "", "device a?", READY, Run(UnmountPod(pod("a")))),
        ("a running pod keeps what it has", "", "device a", held, Rest),
        ("the last pod left: unstage", "", "device", READY, Run(UnmountDevice)),
        ("an uncertain stage is undone", "", "device?", READY, Run(UnmountDevice)),
        ("unmounting needs no promise", "", "device", unpromised, Run(UnmountDevice)),
        ("unmounting needs the driver", "", "device a", driverless, Waits(Wait::Driver)),
        ("a local volume has no device", "a", "", local, Run(MountPod(pod("a")))),
        ("and none to unmount", "", "a", local, Run(UnmountPod(pod("a")))),
        ("content that is not known yet", "a", "", unknown, Waits(Wait::Content)),
        ("outdated content is written again", "a", "a!", local, Run(MountPod(pod("a")))),
        ("but not if it is not desired", "", "a!", local, Run(UnmountPod(pod("a")))),
        ("without the controller attaching is tried, and fails", "a", "", refused, Run(Attach)),
        ("without the driver too", "a", "", Facts { reachable: false, ..refused }, Run(Attach)),
        ("unmounting comes first", "b", "device a", refused, Run(UnmountPod(pod("a")))),
        ("attached before: another pod gets it", "a b", "device a", unmanaged, Run(MountPod(pod("b")))),
        ("what is mounted needs no attaching", "a", "device a", refused, Rest),
        ("nor does what is unmounted", "", "device", refused, Run(UnmountDevice)),
        ("nothing is left to detach", "", "", unmanaged, Rest),
    ];
    for (what, wants, is, facts, expected) in rows {
        let (wants, is) = (desired(wants), actual(is));
        assert_eq!(plan(wants.as_ref(), Some(&is), facts, NOW), expected, "{what}");
    }
}

#[test]
fn attaching_that_was_refused_waits_for_its_backoff() {
    let facts = Facts { attached: false, controller_attaches: false, ..READY };
    let mut is = actual("");
    is.backoff.insert(Operation::Attach, Backoff::default().after(NOW));
    let again = NOW + Duration::from_millis(500);
    for driver in [true, false] {
        let facts = Facts { reachable: driver, ..facts };
        let decide = |now| plan(desired("a").as_ref(), Some(&is), facts, now);
        assert_eq!(decide(NOW), Decision::Wait(Wait::Until(again)));
        assert_eq!(decide(again), Decision::Run(Operation::Attach));
    }
    assert_eq!(plan(None, Some(&is), facts, NOW), Decision::Rest, "it is no longer desired");
}

#[test]
fn a_failed_operation_waits_and_others_do_not() {
    let wants = desired("a b");
    let mut is = actual("device");
    is.backoff.insert(Operation::MountPod("a".into()), Backoff::default().after(NOW));
    let decide = |is: &ActualVolume, now| plan(wants.as_ref(), Some(is), READY, now);
    assert_eq!(decide(&is, NOW), Decision::Run(Operation::MountPod("b".into())));
    is.backoff.insert(Operation::MountPod("b".into()), Backoff::default().after(NOW).after(NOW));
    let first = NOW + Duration::from_millis(500);
    assert_eq!(decide(&is, NOW), Decision::Wait(Wait::Until(first)));
    assert_eq!(decide(&is, first), Decision::Run(Operation::MountPod("a".into())));
    // The failed mount does not hold up its own undoing.
    is.pods = actual("a?").pods;
    let unused = plan(None, Some(&is), READY, NOW);
    assert_eq!(unused, Decision::Run(Operation::UnmountPod("a".into())));
}

/// What may happen between two plans.
#[derive(Clone, Debug)]
enum Step {
    Want(u8),
    Leave(u8),
    /// The operation under way ends so.
    End(u8),
    WriteEnds(bool),
    Attach(bool),
    TimePasses,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..3u8).prop_map(Step::Want),
        2 => (0..3u8).prop_map(Step::Leave),
        6 => (0..7u8).prop_map(Step::End),
        2 => any::<bool>().prop_map(Step::WriteEnds),
        1 => any::<bool>().prop_map(Step::Attach),
        2 => Just(Step::TimePasses),
    ]
}

/// The node under test, and what the driver has really got.
#[derive(Default)]
struct Model {
    desired: Desired,
    actual: Actual,
    in_use: InUse,
    attached: bool,
    now: Moment,
    staged: bool,
    published: BTreeSet<PodUid>,
}

impl Model {
    fn key() -> VolumeKey {
        volume_use("v", "x").key
    }

    /// Plans until nothing more can start; checks each call against the driver's rules.
    fn settle(&mut self) -> Decision {
        let key = Self::key();
        loop {
            let (wants, is) = (self.desired.get(&key), self.actual.get(&key));
            let needed = wants.is_some() || is.is_some_and(|volume| !volume.is_deleted());
            self.in_use.want(&key, needed);
            let facts = Facts { attached: self.attached, in_use: self.in_use.promised(&key), ..READY };
            let decision = plan(wants, is, facts, self.now);
            let Decision::Run(operation) = &decision else { return decision };
            match operation {
                Operation::MountDevice => {
                    assert!(self.attached, "staged while detached");
                    assert!(self.in_use.promised(&key), "staged without a promise");
                }
                Operation::MountPod(_) => assert!(self.staged, "published before staged"),
                Operation::UnmountPod(_) | Operation::Expand => {}
                Operation::Attach => panic!("the controller attaches"),
                Operation::UnmountDevice => {
                    assert!(self.published.is_empty(), "unstaged under {:?}", self.published);
                    assert!(self.in_use.promised(&key), "still mounted, but no longer in use");
                }
            }
            self.actual.begin(&key, operation.clone());
        }
    }

    /// Ends the operation under way: `how` says whether it took effect and what the node heard.
    fn end(&mut self, how: u8) {
        let key = Self::key();
        let Some(operation) = self.actual.get(&key).and_then(|volume| volume.running.clone()) else { return };
        let (takes_effect, outcome) = match how {
            0..=2 => (true, Outcome::Done),
            3 => (false, Outcome::Failed),
            4 => (true, Outcome::Unknown),
            5 => (false, Outcome::NotTried),
            _ => (false, Outcome::Unknown),
        };
        if takes_effect {
            match &operation {
                Operation::MountDevice => self.staged = true,
                Operation::UnmountDevice => self.staged = false,
                Operation::MountPod(pod) => drop(self.published.insert(pod.clone())),
                Operation::UnmountPod(pod) => drop(self.published.remove(pod)),
                Operation::Attach | Operation::Expand => {}
            }
        } else if outcome == Outcome::Failed {
            // A final failure of a mount says that nothing is there, of an unmount that all still is.
            match &operation {
                Operation::MountDevice => self.staged = false,
                Operation::MountPod(pod) => drop(self.published.remove(pod)),
                _ => {}
            }
        }
        self.actual.end(&key, outcome, "pv", self.now);
    }

    fn happen(&mut self, step: &Step) {
        match step {
            Step::Want(pod) => {
                let pod = format!("pod-{pod}");
                self.desired.set_pod(&pod.as_str().into(), vec![volume_use("v", &pod)]);
            }
            Step::Leave(pod) => drop(self.desired.set_pod(&format!("pod-{pod}").into(), vec![])),
            Step::End(how) => self.end(*how),
            Step::WriteEnds(success) => {
                self.in_use.begin();
                self.in_use.ended(*success);
            }
            // The attach/detach controller detaches only what is not promised to be in use.
            Step::Attach(attached) => {
                self.attached = *attached || self.in_use.promised(&Self::key()) || self.staged;
            }
            Step::TimePasses => self.now += Duration::from_secs(122),
        }
        self.settle();
    }

    /// Lets everything succeed until nothing is left to do.
    fn come_to_rest(&mut self) -> Decision {
        self.attached = true;
        for _ in 0..100 {
            let decision = self.settle();
            match decision {
                Decision::Rest if self.in_use.begin().is_none() => return Decision::Rest,
                Decision::Wait(Wait::Operation) => self.end(0),
                _ => {
                    self.in_use.begin();
                    self.in_use.ended(true);
                    self.now += Duration::from_secs(122);
                }
            }
        }
        self.settle()
    }
}

proptest! {
    #[test]
    fn any_interleaving_keeps_the_order_and_comes_to_rest(
        steps in proptest::collection::vec(step(), 0..80),
    ) {
        let mut model = Model::default();
        for step in &steps {
            model.happen(step);
        }
        // As desired, once everything works ...
        prop_assert_eq!(model.come_to_rest(), Decision::Rest);
        let key = Model::key();
        let wants: BTreeSet<PodUid> =
            model.desired.get(&key).map(|volume| volume.pods.keys().cloned().collect()).unwrap_or_default();
        prop_assert_eq!(&model.published, &wants);
        prop_assert_eq!(model.staged, !wants.is_empty());
        // ... and empty, once all pods are gone.
        for pod in 0..3 {
            model.happen(&Step::Leave(pod));
        }
        prop_assert_eq!(model.come_to_rest(), Decision::Rest);
        prop_assert!(model.published.is_empty() && !model.staged);
        prop_assert!(!model.in_use.promised(&key));
        prop_assert!(model.actual.get(&key).is_none_or(ActualVolume::is_deleted));
    }
}
