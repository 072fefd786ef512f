//! A monitor that releases claims in ordinary use reports the same phases as one that keeps them, and all of them if
//! watches lag behind each other.

use std::fmt;

use claimcheck_informer::testing::{DRIVER, annotate, attachment, bind, claim, csi_driver, pod, volume};
use claimcheck_model::{PROVISIONED_BY, STORAGE_PROVISIONER};
use jiff::Timestamp;
use k8s_openapi::{Metadata, api::core::v1::PodCondition, apimachinery::pkg::apis::meta::v1::Time};
use proptest::prelude::*;

use super::*;

/// An object that a watch shows.
#[derive(Clone)]
enum Shown {
    Claim(PersistentVolumeClaim),
    Volume(PersistentVolume),
    Pod(Pod),
    Attachment(VolumeAttachment),
}

#[derive(Clone)]
struct Step {
    object: Shown,
    gone: bool,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, meta) = match &self.object {
            Shown::Claim(claim) => ("claim", &claim.metadata),
            Shown::Volume(volume) => ("volume", &volume.metadata),
            Shown::Pod(pod) => ("pod", &pod.metadata),
            Shown::Attachment(attachment) => ("attachment", &attachment.metadata),
        };
        let name = meta.name.as_deref().unwrap_or_default();
        let deleting = if meta.deletion_timestamp.is_some() { " deleting" } else { "" };
        write!(f, "{kind} {name}{deleting}{}", if self.gone { " gone" } else { "" })
    }
}

fn is(object: Shown) -> Step {
    Step { object, gone: false }
}

fn gone(object: Shown) -> Step {
    Step { object, gone: true }
}

fn deleting<K: Metadata<Ty = ObjectMeta>>(mut object: K) -> K {
    object.metadata_mut().deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    object
}

/// A claim and its volume, bound.
fn bound(name: &str) -> (PersistentVolumeClaim, PersistentVolume) {
    let (mut claim, mut volume) = (pending(name), volume(&format!("pv-{name}"), "fast", "1Gi"));
    annotate(&mut volume.metadata, PROVISIONED_BY, DRIVER);
    bind(&mut claim, &mut volume);
    (claim, volume)
}

fn pending(name: &str) -> PersistentVolumeClaim {
    let mut claim = claim(name, "fast", "1Gi");
    annotate(&mut claim.metadata, STORAGE_PROVISIONER, DRIVER);
    claim
}

fn ready(mut pod: Pod) -> Pod {
    let condition =
        |kind: &str| PodCondition { type_: kind.into(), status: "True".into(), ..Default::default() };
    let conditions = vec![condition("PodReadyToStartContainers"), condition("Ready")];
    pod.status.get_or_insert_default().conditions = Some(conditions);
    pod
}

/// The life of claims that some pods use one after the other, all of them at once.
fn lives(names: &[String], pods: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for name in names {
        let (claim, volume) = bound(name);
        steps.extend([is(Shown::Claim(pending(name))), is(Shown::Volume(volume)), is(Shown::Claim(claim))]);
    }
    for number in 0..pods {
        let node = format!("n{number}");
        let claims: Vec<&str> = names.iter().map(String::as_str).collect();
        let name = format!("pod-{}-{number}", names[0]);
        let (unscheduled, scheduled) = (pod(&name, "", &claims), pod(&name, &node, &claims));
        steps.extend([is(Shown::Pod(unscheduled)), is(Shown::Pod(scheduled.clone()))]);
        let attached = |name: &String, attached| {
            attachment(&format!("va-{name}-{number}"), &format!("pv-{name}"), &node, attached)
        };
        for is_attached in [false, true] {
            steps.extend(names.iter().map(|name| is(Shown::Attachment(attached(name, is_attached)))));
        }
        let started = ready(scheduled);
        let ending = deleting(started.clone());
        steps.extend([is(Shown::Pod(started)), is(Shown::Pod(ending.clone())), gone(Shown::Pod(ending))]);
        for name in names {
            let ending = deleting(attached(name, true));
            steps.extend([is(Shown::Attachment(ending.clone())), gone(Shown::Attachment(ending))]);
        }
    }
    for name in names {
        let (claim, volume) = bound(name);
        let claim = deleting(claim);
        steps.extend([
            is(Shown::Claim(claim.clone())),
            gone(Shown::Claim(claim)),
            gone(Shown::Volume(volume)),
        ]);
    }
    steps
}

/// Lives of claims that take turns at random, and the seconds before each step.
fn history() -> impl Strategy<Value = Vec<(Step, u64)>> {
    let groups = proptest::collection::vec((1..3_usize, 1..4_usize), 1..4);
    groups.prop_flat_map(|groups| {
        let lives: Vec<_> = groups
            .into_iter()
            .enumerate()
            .map(|(group, (claims, pods))| {
                let names: Vec<String> = (0..claims).map(|claim| format!("c{group}-{claim}")).collect();
                lives(&names, pods).into_iter()
            })
            .collect();
        let count = lives.iter().map(ExactSizeIterator::len).sum::<usize>();
        // Mostly short delays, within which a claim stays, and some after which it is released.
        let delays = prop_oneof![3 => 0..3_u64, 1 => 50..200_u64];
        proptest::collection::vec((any::<prop::sample::Index>(), delays), count).prop_map(move |turns| {
            let mut lives = lives.clone();
            let mut steps = Vec::new();
            for (turn, delay) in turns {
                lives.retain(|life| life.len() > 0);
                let turn = turn.index(lives.len());
                steps.extend(lives[turn].next().map(|step| (step, delay)));
            }
            steps
        })
    })
}

/// A monitor, and what it reported.
struct Monitored {
    life: Life,
    releases: bool,
    second: u64,
    version: u64,
    events: Vec<Event>,
}

impl Monitored {
    fn new(releases: bool) -> Self {
        let mut life = Life::new(Scope::default());
        life.enter(csi_driver(true), Seen::Listed, UNSEEN);
        life.sync();
        Self { life, releases, second: 1000, version: 10, events: Vec::new() }
    }

    fn now(&self) -> Stamp {
        Stamp { mono_ns: self.second * 1_000_000_000, wall_ns: self.second * 1_000_000_000 }
    }

    fn retire(&mut self) {
        let now = self.now();
        let events = if self.releases { self.life.retire(now) } else { self.life.retire_deleted(now) };
        self.events.extend(events);
    }

    fn show<K: Followed>(&mut self, mut object: K, gone: bool) {
        self.version += 1;
        object.metadata_mut().resource_version = Some(self.version.to_string());
        let (now, seen) = (self.now(), Seen::Live(self.now()));
        let events =
            if gone { self.life.remove(object, seen, now) } else { self.life.enter(object, seen, now) };
        self.events.extend(events);
    }

    fn run(&mut self, history: &[(Step, u64)]) {
        for (step, delay) in history {
            self.second += delay;
            self.retire();
            match step.object.clone() {
                Shown::Claim(claim) => self.show(claim, step.gone),
                Shown::Volume(volume) => self.show(volume, step.gone),
                Shown::Pod(pod) => self.show(pod, step.gone),
                Shown::Attachment(attachment) => self.show(attachment, step.gone),
            }
        }
    }

    /// Each phase and transition as text, sorted.
    fn phases(&self) -> Vec<String> {
        let text = |event: &Event| match event {
            Event::Phase(sample) => {
                Some(format!("{:?} {:?} {:?}", sample.phase, sample.subject, sample.outcome))
            }
            Event::Transition(transition) => Some(format!("{transition:?}")),
            _ => None,
        };
        let mut phases: Vec<String> = self.events.iter().filter_map(text).collect();
        phases.sort();
        phases
    }
}

fn reported(history: &[(Step, u64)], releases: bool) -> Vec<String> {
    let mut monitor = Monitored::new(releases);
    monitor.run(history);
    monitor.second += 1000;
    monitor.retire();
    monitor.phases()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_release_changes_no_phase(history in history()) {
        let (mut released, mut kept) = (reported(&history, true), reported(&history, false));
        let common: HashSet<String> = released.iter().filter(|phase| kept.contains(phase)).cloned().collect();
        let counts = (released.len(), kept.len());
        released.retain(|phase| !common.contains(phase));
        kept.retain(|phase| !common.contains(phase));
        prop_assert!(
            released.is_empty() && kept.is_empty() && counts.0 == counts.1,
            "{counts:?}, only if released: {released:#?}, only if kept: {kept:#?}"
        );
    }
}

#[test]
fn claims_in_ordinary_use_are_not_in_the_timeline() {
    let history: Vec<(Step, u64)> =
        lives(&["c".to_owned(), "d".to_owned()], 1).into_iter().map(|step| (step, 1)).collect();
    let is_deletion = |(step, _): &(Step, u64)| match &step.object {
        Shown::Pod(pod) => pod.metadata.deletion_timestamp.is_some(),
        _ => false,
    };
    let started = history.iter().position(is_deletion).expect("a pod is deleted");
    let mut monitor = Monitored::new(true);
    monitor.run(&history[..started]);
    assert_eq!(monitor.life.active.timeline.claims(), 2);
    monitor.second += 100;
    monitor.retire();
    assert_eq!(monitor.life.active.timeline.claims(), 0);
    monitor.run(&history[started..]);
    let phases = monitor.phases();
    for phase in ["Stop", "Detach", "Delete"] {
        assert!(phases.iter().any(|text| text.starts_with(phase) && text.contains("Ok")), "{phases:#?}");
    }
}

/// The life of a claim, as watches show it that lag behind each other at random; `at_once` if its attachment has no
/// finalizer, so that its deletion is one event.
fn lagging(at_once: bool) -> impl Strategy<Value = Vec<(Step, u64)>> {
    let is_skipped = move |step: &Step| match &step.object {
        Shown::Attachment(attachment) => {
            at_once && !step.gone && attachment.metadata.deletion_timestamp.is_some()
        }
        _ => false,
    };
    let steps: Vec<Step> = lives(&["c".to_owned()], 1).into_iter().filter(|step| !is_skipped(step)).collect();
    proptest::collection::vec(0..4_usize, steps.len() * 8).prop_map(move |turns| {
        let mut watches: [VecDeque<Step>; 4] = Default::default();
        for step in steps.clone() {
            let watch = match step.object {
                Shown::Claim(_) => 0,
                Shown::Volume(_) => 1,
                Shown::Pod(_) => 2,
                Shown::Attachment(_) => 3,
            };
            watches[watch].push_back(step);
        }
        let mut history: Vec<Step> = turns.into_iter().filter_map(|turn| watches[turn].pop_front()).collect();
        history.extend(watches.into_iter().flatten());
        history.into_iter().map(|step| (step, 1)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_phase_is_lost_if_watches_lag_behind_each_other(history in any::<bool>().prop_flat_map(lagging)) {
        let phases = reported(&history, true);
        for phase in ["Bind", "Stop", "Detach", "Delete"] {
            let is_it = |text: &&String| text.starts_with(&format!("{phase} ")) && text.contains(" Ok ");
            let found = phases.iter().filter(is_it).count();
            prop_assert_eq!(found, 1, "{}: {:#?}", phase, phases);
        }
    }
}
