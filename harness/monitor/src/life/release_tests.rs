//! A monitor that releases claims in ordinary use reports the same phases as one that keeps them, and all of them if
//! watches lag behind each other.

use std::fmt;

use claimcheck_informer::testing::{DRIVER, annotate, attachment, bind, claim, csi_driver, pod, volume};
use claimcheck_model::{ObjectKey, PROVISIONED_BY, Phase, STORAGE_PROVISIONER};
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
    deleted: bool,
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
        write!(f, "{kind} {name}{deleting}{}", if self.deleted { " gone" } else { "" })
    }
}

fn is(object: Shown) -> Step {
    Step { object, deleted: false }
}

fn deleted(object: Shown) -> Step {
    Step { object, deleted: true }
}

fn deleting<K: Metadata<Ty = ObjectMeta>>(mut object: K) -> K {
    object.metadata_mut().deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    // Without one it is gone.
    object.metadata_mut().finalizers = Some(vec!["f".to_owned()]);
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
        steps.extend([is(Shown::Pod(started)), is(Shown::Pod(ending.clone())), deleted(Shown::Pod(ending))]);
        for name in names {
            let ending = deleting(attached(name, true));
            steps.extend([is(Shown::Attachment(ending.clone())), deleted(Shown::Attachment(ending))]);
        }
    }
    for name in names {
        let (claim, volume) = bound(name);
        let claim = deleting(claim);
        steps.extend([
            is(Shown::Claim(claim.clone())),
            deleted(Shown::Claim(claim)),
            deleted(Shown::Volume(volume)),
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

    fn show<K: Followed>(&mut self, mut object: K, deleted: bool) {
        self.version += 1;
        object.metadata_mut().resource_version = Some(self.version.to_string());
        let (now, seen) = (self.now(), Seen::Live(self.now()));
        let events =
            if deleted { self.life.remove(object, seen, now) } else { self.life.enter(object, seen, now) };
        self.events.extend(events);
    }

    fn run(&mut self, history: &[(Step, u64)]) {
        for (step, delay) in history {
            self.second += delay;
            self.retire();
            match step.object.clone() {
                Shown::Claim(claim) => self.show(claim, step.deleted),
                Shown::Volume(volume) => self.show(volume, step.deleted),
                Shown::Pod(pod) => self.show(pod, step.deleted),
                Shown::Attachment(attachment) => self.show(attachment, step.deleted),
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

/// The most seconds that a watch lags.
const LAG: u64 = 30;

/// The life of a claim and its times.
#[derive(Clone, Debug)]
struct Course {
    /// With the second at which each happens.
    steps: Vec<(Step, u64)>,
    /// The seconds after which the watch shows each.
    lags: Vec<u64>,
    /// A watch that misses the steps from the first number to the second, and lists the objects then.
    gap: Option<(usize, usize, usize)>,
}

/// The number of the watch that shows an object.
fn watch_of(object: &Shown) -> usize {
    match object {
        Shown::Claim(_) => 0,
        Shown::Volume(_) => 1,
        Shown::Pod(_) => 2,
        Shown::Attachment(_) => 3,
    }
}

fn retained(mut volume: PersistentVolume) -> PersistentVolume {
    volume.spec.get_or_insert_default().persistent_volume_reclaim_policy = Some("Retain".to_owned());
    volume
}

/// The life of a claim; `at_once` if its attachment has no finalizer, so that its deletion is one event. With
/// `retains`, its volume is released long before it is deleted.
fn course(retains: bool, at_once: bool) -> impl Strategy<Value = Course> {
    let is_skipped = move |step: &Step| match &step.object {
        Shown::Attachment(attachment) => {
            at_once && !step.deleted && attachment.metadata.deletion_timestamp.is_some()
        }
        _ => false,
    };
    let mut steps: Vec<Step> =
        lives(&["c".to_owned()], 1).into_iter().filter(|step| !is_skipped(step)).collect();
    if retains {
        for step in &mut steps {
            if let Shown::Volume(volume) = &step.object {
                step.object = Shown::Volume(retained(volume.clone()));
            }
        }
    }
    let count = steps.len();
    // The attach/detach controller detaches when the pod no longer exists, which may be after the claim.
    let position =
        |steps: &[Step], found: fn(&Step) -> bool| steps.iter().position(found).unwrap_or_default();
    let of_attachment = position(&steps, |step| matches!(step.object, Shown::Attachment(_)) && step.deleted);
    let detached = steps.remove(of_attachment);
    let places = of_attachment..=steps.len();
    let delays = proptest::collection::vec(prop_oneof![3 => 0..3_u64, 1 => 50..200_u64], count);
    let lags = proptest::collection::vec(prop_oneof![2 => Just(0), 1 => 0..LAG], count);
    let gap = proptest::option::of((0..4_usize, 0..count, 1..count));
    (places, delays, lags, gap).prop_map(move |(place, delays, lags, gap)| {
        let mut steps = steps.clone();
        steps.insert(place, detached.clone());
        let mut second = 1000;
        let timed = steps.into_iter().zip(delays).map(|(step, delay)| {
            second += delay;
            (step, second)
        });
        let gap = gap.map(|(watch, from, length)| (watch, from, (from + length).min(count)));
        Course { steps: timed.collect(), lags, gap }
    })
}

/// What a watch delivers.
#[derive(Clone, Debug)]
enum Delivery {
    Step(usize),
    /// The objects of this watch after so many steps.
    List(usize, usize),
}

impl Course {
    /// The deliveries of all watches with their times; each watch keeps its order.
    fn deliveries(&self) -> Vec<(u64, Delivery)> {
        let mut last = [0; 4];
        let mut deliveries = Vec::new();
        for (number, (step, second)) in self.steps.iter().enumerate() {
            let watch = watch_of(&step.object);
            let misses =
                |(of, from, until): (usize, usize, usize)| of == watch && (from..until).contains(&number);
            if let Some((watch, _, until)) = self.gap.filter(|(_, _, until)| *until == number) {
                last[watch] = last[watch].max(*second);
                deliveries.push((last[watch], Delivery::List(watch, until)));
            }
            if self.gap.is_some_and(misses) {
                continue;
            }
            last[watch] = last[watch].max(second + self.lags[number]);
            deliveries.push((last[watch], Delivery::Step(number)));
        }
        if let Some((watch, _, until)) = self.gap.filter(|(_, _, until)| *until == self.steps.len()) {
            let end = self.steps.last().map_or(0, |(_, second)| *second);
            deliveries.push((last[watch].max(end), Delivery::List(watch, until)));
        }
        deliveries.sort_by_key(|(second, _)| *second);
        deliveries
    }

    /// The seconds between the steps of this kind that satisfy the conditions.
    fn second(&self, found: impl Fn(&Step) -> bool) -> Option<u64> {
        self.steps.iter().find(|(step, _)| found(step)).map(|(_, second)| *second)
    }

    /// The duration of a phase, as it happened.
    fn duration(&self, phase: Phase) -> Option<u64> {
        let is_deleting = |step: &Step| match &step.object {
            Shown::Pod(pod) => pod.metadata.deletion_timestamp.is_some(),
            Shown::Attachment(attachment) => attachment.metadata.deletion_timestamp.is_some(),
            Shown::Claim(_) | Shown::Volume(_) => false,
        };
        let deleted = |watch| self.second(|step| step.deleted && watch_of(&step.object) == watch);
        let deleting = |watch| self.second(|step| is_deleting(step) && watch_of(&step.object) == watch);
        let (start, end) = match phase {
            Phase::Stop => (deleting(2)?, deleted(2)?),
            Phase::Detach => (deleting(3)?, deleted(3)?),
            Phase::Delete => (deleted(0)?.max(deleted(3)?), deleted(1)?),
            _ => return None,
        };
        Some(end.saturating_sub(start))
    }

    /// The objects of a watch after so many steps, with their versions.
    fn objects(&self, watch: usize, until: usize) -> Vec<(Shown, usize)> {
        let mut objects: Vec<(Shown, usize)> = Vec::new();
        for (number, (step, _)) in self.steps[..until].iter().enumerate() {
            if watch_of(&step.object) == watch {
                // One object of each kind.
                objects.clear();
                objects.extend((!step.deleted).then(|| (step.object.clone(), number)));
            }
        }
        objects
    }
}

impl Monitored {
    /// Delivers everything, with a look for what is over every 20 seconds.
    fn follow(&mut self, course: &Course) {
        let mut tick = self.second;
        for (second, delivery) in course.deliveries() {
            while tick < second {
                self.second = tick;
                self.retire();
                tick += 20;
            }
            self.second = second;
            let seen = Seen::Live(self.now());
            match delivery {
                Delivery::Step(number) => {
                    let step = &course.steps[number].0;
                    self.deliver(step.object.clone(), number, step.deleted, seen);
                }
                Delivery::List(watch, until) => {
                    let objects = course.objects(watch, until);
                    let mut uids = HashSet::new();
                    for (object, version) in objects {
                        uids.extend(self.deliver(object, version, false, Seen::Listed));
                    }
                    let now = self.now();
                    self.events.extend(match watch {
                        0 => self.life.listed::<PersistentVolumeClaim>(&uids, now),
                        1 => self.life.listed::<PersistentVolume>(&uids, now),
                        2 => self.life.listed::<Pod>(&uids, now),
                        _ => self.life.listed::<VolumeAttachment>(&uids, now),
                    });
                }
            }
        }
    }

    /// Delivers an object, and returns its uid.
    fn deliver(&mut self, object: Shown, version: usize, deleted: bool, seen: Seen) -> Option<String> {
        self.version = 100 + version as u64;
        match object {
            Shown::Claim(claim) => self.enter(claim, deleted, seen),
            Shown::Volume(volume) => self.enter(volume, deleted, seen),
            Shown::Pod(pod) => self.enter(pod, deleted, seen),
            Shown::Attachment(attachment) => self.enter(attachment, deleted, seen),
        }
    }

    fn enter<K: Followed>(&mut self, mut object: K, deleted: bool, seen: Seen) -> Option<String> {
        object.metadata_mut().resource_version = Some(self.version.to_string());
        let (uid, now) = (object.metadata().uid.clone(), self.now());
        let events =
            if deleted { self.life.remove(object, seen, now) } else { self.life.enter(object, seen, now) };
        self.events.extend(events);
        uid
    }

    /// The results of a phase, with the seconds of those that were measured.
    fn results(&self, of: Phase) -> Vec<Option<f64>> {
        let result = |event: &Event| match event {
            Event::Phase(sample) if sample.phase == of => Some(match sample.outcome {
                Outcome::Ok { seconds, .. } => Some(seconds),
                Outcome::Aborted { .. } | Outcome::Unobserved => None,
            }),
            _ => None,
        };
        self.events.iter().filter_map(result).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    /// Also with slow deletions and retained volumes. After a gap a phase may be unobserved, and is never measured wrong
    /// or twice.
    #[test]
    fn no_phase_is_lost_if_watches_lag_behind_each_other(
        (retains, at_once, course) in (any::<bool>(), any::<bool>())
            .prop_flat_map(|(retains, at_once)| (Just(retains), Just(at_once), course(retains, at_once)))
    ) {
        let mut monitor = Monitored::new(true);
        monitor.follow(&course);
        for phase in [Phase::Provision, Phase::Bind, Phase::Attach, Phase::Stop, Phase::Detach, Phase::Delete] {
            let results = monitor.results(phase);
            let expected = usize::from(!(retains && phase == Phase::Delete));
            if course.gap.is_none() {
                prop_assert_eq!(results.len(), expected, "{:?}: {:#?}", phase, monitor.phases());
                prop_assert!(results.iter().all(Option::is_some), "{:?}: {:#?}", phase, monitor.phases());
            }
            prop_assert!(results.len() <= expected, "{:?}: {:#?}", phase, monitor.phases());
            // The deletion of a volume starts after that of an attachment, which may have existed within the gap only.
            let is_unknown = phase == Phase::Delete && course.gap.is_some_and(|(watch, ..)| watch == 3);
            if is_unknown || (at_once && phase == Phase::Detach) {
                continue;
            }
            for (seconds, duration) in results.iter().flatten().zip(course.duration(phase)) {
                let error = (seconds - duration as f64).abs();
                prop_assert!(error <= LAG as f64, "{:?} {} of {}", phase, seconds, duration);
            }
        }
        monitor.second += 1000;
        monitor.retire();
        monitor.second += 1000;
        monitor.retire();
        // Of a retained volume that was deleted, and of all others, nothing remains.
        let left = (monitor.life.active.timeline.claims(), monitor.life.active.timeline.volumes());
        prop_assert_eq!(left, (0, 0));
    }
}

/// A claim with a running pod, which the monitor has released.
fn in_use(policy: fn(PersistentVolume) -> PersistentVolume) -> Monitored {
    let mut monitor = Monitored::new(true);
    for step in lives(&["c".to_owned()], 1) {
        let step = match step.object {
            Shown::Volume(volume) => Step { object: Shown::Volume(policy(volume)), ..step },
            Shown::Pod(ref pod) if pod.metadata.deletion_timestamp.is_some() => break,
            _ => step,
        };
        monitor.run(&[(step, 1)]);
    }
    monitor.second += 100;
    monitor.retire();
    assert_eq!(monitor.life.active.timeline.claims(), 0);
    monitor.events.clear();
    monitor
}

fn attached() -> VolumeAttachment {
    attachment("va-c-0", "pv-c", "n0", true)
}

impl Monitored {
    /// Its pod and its claim are deleted.
    fn end_claim(&mut self) {
        let pod = ready(pod("pod-c-0", "n0", &["c"]));
        self.run(&[(deleted(Shown::Pod(pod)), 1), (deleted(Shown::Claim(bound("c").0)), 1)]);
    }

    /// Time passes, with a look every 20 seconds.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds / 20 {
            self.second += 20;
            self.retire();
        }
    }

    fn detach(&mut self, seconds: u64) {
        let ending = deleting(attached());
        self.run(&[
            (is(Shown::Attachment(ending.clone())), 1),
            (deleted(Shown::Attachment(ending)), seconds),
        ]);
    }
}

#[test]
fn a_retained_volume_is_detached_long_after_its_claim_was_deleted() {
    let mut monitor = in_use(retained);
    monitor.end_claim();
    monitor.pass(120);
    monitor.detach(70);
    assert_eq!(monitor.results(Phase::Detach), [Some(70.0)]);
    monitor.pass(200);
    let timeline = &monitor.life.active.timeline;
    assert_eq!((timeline.claims(), timeline.volumes()), (0, 0), "the volume still exists");
    monitor.run(&[(deleted(Shown::Volume(retained(bound("c").1))), 1)]);
    assert_eq!(monitor.life.active.timeline.volumes(), 1);
    monitor.pass(80);
    assert_eq!(monitor.life.active.timeline.volumes(), 0);
}

#[test]
fn a_volume_is_detached_after_its_slow_deletion() {
    let mut monitor = in_use(std::convert::identity);
    monitor.end_claim();
    monitor.run(&[(is(Shown::Attachment(deleting(attached()))), 1)]);
    monitor.pass(100);
    monitor.run(&[(deleted(Shown::Volume(bound("c").1)), 1)]);
    monitor.pass(40);
    monitor.run(&[(deleted(Shown::Attachment(deleting(attached()))), 2)]);
    assert_eq!(monitor.results(Phase::Detach), [Some(143.0)]);
    assert_eq!(monitor.results(Phase::Delete).len(), 1);
}

#[test]
fn a_released_claim_is_detached_after_its_volume_was_missing_in_a_list() {
    let mut monitor = in_use(std::convert::identity);
    let now = monitor.now();
    let events = monitor.life.listed::<PersistentVolume>(&HashSet::new(), now);
    monitor.events.extend(events);
    monitor.detach(7);
    assert_eq!(monitor.results(Phase::Detach), [Some(7.0)]);
    assert_eq!(monitor.results(Phase::Attach), []);
    let is_detach = |event: &Event| matches!(event, Event::Transition(change) if change.kind == claimcheck_model::TransitionKind::Detach);
    assert_eq!(monitor.events.iter().filter(|event| is_detach(event)).count(), 1);
}

#[test]
fn a_server_that_lost_its_writes_replaces_newer_objects() {
    let mut monitor = Monitored::new(true);
    let version = |monitor: &Monitored| {
        let claim = monitor.life.world.claims.get(&ObjectKey::new("default", "c"));
        claim.and_then(|claim| claim.metadata.resource_version.clone())
    };
    monitor.deliver(Shown::Claim(pending("c")), 50, false, Seen::Listed);
    monitor.deliver(Shown::Claim(pending("c")), 40, false, Seen::Listed);
    assert_eq!(version(&monitor).as_deref(), Some("150"), "the list is older");
    let now = monitor.now();
    monitor.life.start_again::<PersistentVolumeClaim>(now);
    assert_eq!(version(&monitor), None);
    monitor.deliver(Shown::Claim(pending("c")), 40, false, Seen::Listed);
    assert_eq!(version(&monitor).as_deref(), Some("140"));
}
