//! What the canary creates and deletes next, from its objects.
//!
//! ```text
//! due ──> Working: claim, pod, Ready, snapshot ──> Removing: pod and snapshot, claim, volume ──> ok
//!            └── deadline, failure ──────────────────────> Removing, reported as failed
//! ```
//!
//! Only the result of a run and the time of the next one are remembered; everything else is derived from the objects,
//! so that a new leader continues, and a request that failed is repeated.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::{VolumeBy, World, is_terminal};
use claimcheck_model::{
    DEFAULT_SNAPSHOT_CLASS, ObjectKey,
    snapshot::{VolumeSnapshot, VolumeSnapshotClass},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    CanaryOptions, Members, RunResult,
    members::run_of,
    objects::RunSpec,
    topology::{Segment, segments},
};

/// A kind of object of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Claim,
    Pod,
    /// Of this class.
    Snapshot(String),
}

/// An object that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    Claim,
    Pod,
    Snapshot,
}

/// The reason why no run of a class starts: the configuration must change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// The class does not exist.
    NoClass,
    /// Each run would leave a volume.
    Retain,
    /// No node admits its pod.
    NoNode,
}

impl Skip {
    /// What to do.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::NoClass => "the storage class does not exist: correct --canary, or create it",
            Self::Retain => {
                "its reclaim policy is not Delete, so each run would leave a volume: use a class that deletes its volumes"
            }
            Self::NoNode => {
                "no node that is ready and without taints has the driver: check the driver's node plugin"
            }
        }
    }
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A run starts.
    Start(RunSpec),
    /// Create an object of a run, unless it exists.
    Create(Item, RunSpec),
    /// Delete the object with this name and uid.
    Delete(Removed, String, String),
    /// A run has this result.
    Report(RunSpec, RunResult),
    /// No run of this class starts.
    Skip(String, Skip),
}

/// What is remembered of a run.
#[derive(Clone, Debug)]
struct Run {
    spec: RunSpec,
    state: State,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its objects are created and used.
    Working {
        /// The claim was observed: if it is missing, another component deleted it.
        claim: bool,
        /// The same of the pod.
        pod: bool,
    },
    /// Its objects are deleted.
    Removing {
        /// The result is still to be reported: ok if this is over before the deadline.
        pending: bool,
    },
}

/// The objects of a run that exist.
#[derive(Clone, Debug, Default)]
struct Objects {
    claim: Option<Arc<PersistentVolumeClaim>>,
    pod: Option<Arc<Pod>>,
    snapshot: Option<Arc<VolumeSnapshot>>,
}

impl Objects {
    fn metadata(&self) -> impl Iterator<Item = &ObjectMeta> {
        let claim = self.claim.iter().map(|claim| &claim.metadata);
        let pod = self.pod.iter().map(|pod| &pod.metadata);
        let snapshot = self.snapshot.iter().map(|snapshot| &snapshot.metadata);
        claim.chain(pod).chain(snapshot)
    }

    fn is_empty(&self) -> bool {
        self.metadata().next().is_none()
    }

    /// Whether one of them is being deleted.
    fn is_ending(&self) -> bool {
        self.metadata().any(|meta| meta.deletion_timestamp.is_some())
    }

    fn is_ready(&self) -> bool {
        let conditions = self.pod.iter().filter_map(|pod| pod.status.as_ref()?.conditions.as_ref());
        conditions.flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    fn has_snapshot(&self) -> bool {
        let status = self.snapshot.as_ref().and_then(|snapshot| snapshot.status.as_ref());
        status.is_some_and(|status| status.ready_to_use == Some(true))
    }
}

/// The runs, and when the next ones are due.
#[derive(Debug)]
pub(crate) struct Canary {
    options: CanaryOptions,
    /// By name.
    runs: BTreeMap<String, Run>,
    /// When the next run of each class is due.
    due: BTreeMap<String, Timestamp>,
    /// The segment of the last run of each class.
    last: BTreeMap<String, Segment>,
}

impl Canary {
    /// Without runs.
    pub fn new(options: CanaryOptions) -> Self {
        let (runs, due, last) = Default::default();
        Self { options, runs, due, last }
    }

    /// The next actions. All of them are repeated until their effect is observed, except reports.
    pub fn plan(
        &mut self,
        world: &World,
        members: &Members,
        snapshot_classes: &[VolumeSnapshotClass],
        now: Timestamp,
    ) -> Vec<Action> {
        let mut seen = observed(world, members);
        self.adopt(&seen, now);
        let mut actions = Vec::new();
        self.runs.retain(|name, run| {
            let objects = seen.remove(name).unwrap_or_default();
            let class = world.classes.named(&run.spec.class);
            let class = class.and_then(|class| snapshot_class(snapshot_classes, &class.provisioner));
            run.work(&objects, class, now, &mut actions);
            let key = ObjectKey::new(&*self.options.namespace, &**name);
            let has_volume = world.volumes.by(VolumeBy::Claim, &key.to_string()).next().is_some();
            !run.remove(&objects, has_volume, now, &mut actions)
        });
        // The longest overdue first, so that each class has its turn.
        let mut order: Vec<usize> = (0..self.options.classes.len()).collect();
        order.sort_by_key(|nth| self.due.get(&self.options.classes[*nth].class).copied());
        for nth in order {
            self.start(nth, world, now, &mut actions);
        }
        actions
    }

    /// Continues the runs of an earlier leader. What is older than its deadline, or of a class that is no longer
    /// configured, or without annotations, is only deleted; its result is that of the earlier leader.
    fn adopt(&mut self, seen: &BTreeMap<String, Objects>, now: Timestamp) {
        for (name, objects) in seen {
            if self.runs.contains_key(name) {
                continue;
            }
            let spec = objects.metadata().find_map(RunSpec::of);
            let configured =
                |class: &str| self.options.classes.iter().any(|configured| configured.class == class);
            let state = match &spec {
                Some(spec) if configured(&spec.class) && now <= spec.deadline && !objects.is_ending() => {
                    State::Working { claim: objects.claim.is_some(), pod: objects.pod.is_some() }
                }
                Some(_) | None => State::Removing { pending: false },
            };
            let spec = spec.unwrap_or_else(|| RunSpec::unknown(name));
            self.runs.insert(name.clone(), Run { spec, state });
        }
    }

    /// Starts the next run of a class, if it is due and there is room.
    fn start(&mut self, nth: usize, world: &World, now: Timestamp, actions: &mut Vec<Action>) {
        let configured = &self.options.classes[nth];
        let name = &configured.class;
        if self.due.get(name).is_some_and(|due| now < *due) {
            return;
        }
        let next = after(now, configured.duration);
        let of_class: Vec<&RunSpec> =
            self.runs.values().map(|run| &run.spec).filter(|spec| spec.class == *name).collect();
        let late = of_class.iter().find(|spec| now > spec.deadline);
        if self.runs.len() >= self.options.limit {
            // Otherwise a driver that deletes nothing would have no failures.
            if let Some(late) = late {
                actions.push(Action::Report((*late).clone(), RunResult::Blocked));
                self.due.insert(name.clone(), next);
            }
            return;
        }
        if of_class.iter().any(|spec| now <= spec.deadline) {
            return;
        }
        self.due.insert(name.clone(), next);
        let segment = match next_segment(world, &self.options, name, self.last.get(name)) {
            Ok(segment) => segment,
            Err(skip) => return actions.push(Action::Skip(name.clone(), skip)),
        };
        self.last.insert(name.clone(), segment.clone());
        let spec = RunSpec {
            name: format!("canary-{}-{nth}-{:x}", short(name), now.as_second()),
            class: name.clone(),
            segment,
            deadline: after(now, self.options.deadline),
        };
        actions.push(Action::Start(spec.clone()));
        actions.push(Action::Create(Item::Claim, spec.clone()));
        actions.push(Action::Create(Item::Pod, spec.clone()));
        let state = State::Working { claim: false, pod: false };
        self.runs.insert(spec.name.clone(), Run { spec, state });
    }
}

impl Run {
    /// Creates what is missing, until a result is known.
    fn work(
        &mut self,
        objects: &Objects,
        snapshot_class: Option<&VolumeSnapshotClass>,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        let State::Working { claim, pod } = self.state else { return };
        let lost = (claim && objects.claim.is_none()) || (pod && objects.pod.is_none());
        let ended = objects.pod.as_ref().is_some_and(|pod| is_terminal(pod));
        if now > self.spec.deadline || lost || ended || objects.is_ending() {
            actions.push(Action::Report(self.spec.clone(), RunResult::Failed));
            self.state = State::Removing { pending: false };
            return;
        }
        if objects.is_ready() && (snapshot_class.is_none() || objects.has_snapshot()) {
            self.state = State::Removing { pending: true };
            return;
        }
        self.state = State::Working { claim: objects.claim.is_some(), pod: objects.pod.is_some() };
        if objects.claim.is_none() {
            actions.push(Action::Create(Item::Claim, self.spec.clone()));
        }
        if objects.pod.is_none() {
            actions.push(Action::Create(Item::Pod, self.spec.clone()));
        }
        if let (true, None, Some(class)) = (objects.is_ready(), &objects.snapshot, snapshot_class) {
            let class = class.metadata.name.clone().unwrap_or_default();
            actions.push(Action::Create(Item::Snapshot(class), self.spec.clone()));
        }
    }

    /// Deletes what remains; returns whether everything is removed.
    fn remove(
        &mut self,
        objects: &Objects,
        has_volume: bool,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) -> bool {
        let State::Removing { pending } = self.state else { return false };
        if objects.is_empty() && !has_volume {
            if pending {
                actions.push(Action::Report(self.spec.clone(), RunResult::Ok));
            }
            return true;
        }
        if pending && now > self.spec.deadline {
            actions.push(Action::Report(self.spec.clone(), RunResult::Failed));
            self.state = State::Removing { pending: false };
        }
        let users = objects.pod.is_some() || objects.snapshot.is_some();
        let pod = objects.pod.as_ref().map(|pod| (Removed::Pod, &pod.metadata));
        let snapshot = objects.snapshot.as_ref().map(|one| (Removed::Snapshot, &one.metadata));
        // In an orderly run the volume is deleted after its snapshot, which some drivers require.
        let is_orderly = self.state == State::Removing { pending: true };
        let claim = objects.claim.as_ref().filter(|_| !(users && is_orderly));
        let claim = claim.map(|claim| (Removed::Claim, &claim.metadata));
        for (kind, meta) in pod.into_iter().chain(snapshot).chain(claim) {
            if meta.deletion_timestamp.is_none() {
                let uid = meta.uid.clone().unwrap_or_default();
                actions.push(Action::Delete(kind, meta.name.clone().unwrap_or_default(), uid));
            }
        }
        false
    }
}

/// The deletion of all objects, at the end of the process.
pub(crate) fn all(world: &World, members: &Members) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, objects) in observed(world, members) {
        let mut run = Run { spec: RunSpec::unknown(&name), state: State::Removing { pending: false } };
        run.remove(&objects, false, Timestamp::MAX, &mut actions);
    }
    actions
}

/// The canary's objects by run.
fn observed(world: &World, members: &Members) -> BTreeMap<String, Objects> {
    let mut seen: BTreeMap<String, Objects> = BTreeMap::new();
    for claim in members.claims.iter().filter_map(|key| world.claims.get(key)) {
        if let Some(run) = run_of(&claim.metadata) {
            seen.entry(run.to_owned()).or_default().claim = Some(claim.clone());
        }
    }
    for pod in members.pods.iter().filter_map(|key| world.pods.get(key)) {
        if let Some(run) = run_of(&pod.metadata) {
            seen.entry(run.to_owned()).or_default().pod = Some(pod.clone());
        }
    }
    for snapshot in members.snapshots.iter().filter_map(|key| world.snapshots.get(key)) {
        if let Some(run) = run_of(&snapshot.metadata) {
            seen.entry(run.to_owned()).or_default().snapshot = Some(snapshot.clone());
        }
    }
    seen
}

/// The segment of the next run of a class, after the last one in their order.
fn next_segment(
    world: &World,
    options: &CanaryOptions,
    class: &str,
    last: Option<&Segment>,
) -> Result<Segment, Skip> {
    let class = world.classes.named(class).ok_or(Skip::NoClass)?;
    // The default of the API server is Delete.
    if class.reclaim_policy.as_deref().is_some_and(|policy| policy != "Delete") {
        return Err(Skip::Retain);
    }
    // A volume that exists before its pod may be in another segment.
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let Some(topology) = options.topology.filter(|_| waits) else { return Ok(Segment::Any) };
    let segments = segments(world, &class.provisioner, topology);
    let following = segments.iter().find(|segment| last.is_none_or(|last| *segment > last));
    following.or(segments.first()).cloned().ok_or(Skip::NoNode)
}

/// The class for snapshots of a driver: the default one, or the first by name. One that retains snapshots would leave
/// one per run.
fn snapshot_class<'a>(classes: &'a [VolumeSnapshotClass], driver: &str) -> Option<&'a VolumeSnapshotClass> {
    let usable = classes.iter().filter(|class| class.driver == driver && class.deletion_policy == "Delete");
    let is_default = |class: &VolumeSnapshotClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(DEFAULT_SNAPSHOT_CLASS)).is_some_and(|value| value == "true")
    };
    usable.min_by_key(|class| (!is_default(class), class.metadata.name.clone()))
}

/// The time after a duration.
fn after(now: Timestamp, duration: SignedDuration) -> Timestamp {
    now.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// A class's name as part of a name of at most 63 characters, which is also the value of a label.
fn short(class: &str) -> String {
    let letters = class.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    letters.take(30).collect::<String>().trim_matches('-').to_owned()
}
