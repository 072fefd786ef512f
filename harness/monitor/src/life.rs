//! The state of a monitor: the objects, the life cycles, and what no longer exists. Pure: times are arguments.
//!
//! A list shows what is true, but not since when: its facts have the time [`UNSEEN`], and a phase with such an end or
//! start is reported as unobserved. Phases that were over before the first list are not reported.

use std::collections::{BTreeSet, HashSet, VecDeque};

use claimcheck_informer::{
    Cached, Change as WorldChange, World, class::claim_class, class::volume_class, is_deleted, key_of,
};
use claimcheck_model::{Event, Outcome, Phase, Stamp};
use claimcheck_timeline::{UNSEEN, evidence::Object};
use k8s_openapi::{
    api::{
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use claimcheck_model::snapshot::{VolumeSnapshot, VolumeSnapshotContent};

use crate::{
    active::{Active, MEMORY_SECONDS, is_of_a_claim},
    canary::Members,
    inventory::{Held, Inventory, Omitted},
    labels::Labels,
    stuck::{Clock, Messages, Open, Status, plan_open},
    trim::Trim,
};

/// What is followed; empty sets are everything.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Namespaces.
    pub namespaces: BTreeSet<String>,
    /// Storage classes.
    pub classes: BTreeSet<String>,
    /// The namespace of the canary, which is followed in addition.
    pub canary: Option<String>,
}

impl Scope {
    fn has_namespace(&self, meta: &ObjectMeta) -> bool {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        self.permits(namespace)
    }

    fn permits(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(namespace) || self.is_canary(namespace)
    }

    /// What it leaves out: pods are held by namespace, and all attachments.
    fn omitted(&self) -> Omitted {
        let claims = !self.classes.is_empty();
        Omitted { claims, volumes: claims || !self.namespaces.is_empty() }
    }

    fn is_canary(&self, namespace: &str) -> bool {
        self.canary.as_deref().is_some_and(|canary| canary == namespace)
    }

    /// Whether claims of this class in this namespace are followed.
    fn has_class(&self, class: &str, namespace: &str) -> bool {
        self.classes.is_empty() || self.classes.contains(class) || self.is_canary(namespace)
    }
}

/// A kind that a monitor watches.
pub(crate) trait Followed: Held + Trim {
    /// Whether it is within the scope.
    fn is_in(&self, scope: &Scope) -> bool;
    /// It as evidence; none if no phase depends on its kind.
    fn evidence(self) -> Option<Object>;
    /// Its state that is removed after its deletion.
    fn ended(&self) -> Option<Ended> {
        None
    }
}

/// The uid of an object that no longer exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Claim { uid: String, key: String },
    Volume { uid: String, name: String },
    Pod(String),
    Attachment(String),
}

fn uid(meta: &ObjectMeta) -> String {
    meta.uid.clone().unwrap_or_default()
}

macro_rules! followed {
    ($($kind:ident, |$object:ident, $scope:ident| $is_in:expr, $evidence:expr $(, $ended:expr)?;)+) => {
        $(impl Followed for $kind {
            fn is_in(&self, $scope: &Scope) -> bool {
                let $object = self;
                $is_in
            }
            fn evidence(self) -> Option<Object> {
                let evidence: fn($kind) -> Option<Object> = $evidence;
                evidence(self)
            }
            $(fn ended(&self) -> Option<Ended> {
                let ended: fn(&$kind) -> Ended = $ended;
                Some(ended(self))
            })?
        })+
    };
}

followed! {
    PersistentVolumeClaim,
        |claim, scope| {
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            scope.permits(namespace) && scope.has_class(claim_class(claim), namespace)
        },
        |claim| Some(claim.into()),
        |claim| Ended::Claim { uid: uid(&claim.metadata), key: key_of(claim).to_string() };
    PersistentVolume,
        |volume, scope| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            let namespace = claim.and_then(|claim| claim.namespace.as_deref()).unwrap_or_default();
            scope.permits(namespace) && scope.has_class(volume_class(volume), namespace)
        },
        |volume| Some(volume.into()),
        |volume| Ended::Volume {
            uid: uid(&volume.metadata),
            name: volume.metadata.name.clone().unwrap_or_default(),
        };
    // Those without claims are many, and of no interest.
    Pod,
        |pod, scope| scope.has_namespace(&pod.metadata) && claimcheck_informer::pod_claims(pod).next().is_some(),
        |pod| Some(pod.into()),
        |pod| Ended::Pod(uid(&pod.metadata));
    VolumeAttachment, |_attachment, _scope| true, |attachment| Some(attachment.into()),
        |attachment| Ended::Attachment(uid(&attachment.metadata));
    Node, |_node, _scope| true, |node| Some(node.into());
    StorageClass, |_class, _scope| true, |_| None;
    CSIDriver, |_driver, _scope| true, |driver| Some(driver.into());
    // Its node ids are those of recorded calls, of which a monitor has none.
    CSINode, |_node, _scope| true, |_| None;
    VolumeSnapshot, |snapshot, scope| scope.has_namespace(&snapshot.metadata), |snapshot| Some(snapshot.into());
    VolumeSnapshotContent, |_content, _scope| true, |content| Some(content.into());
}

/// How an object was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its change, at this time.
    Live(Stamp),
    /// In a list: it changed earlier.
    Listed,
}

impl Seen {
    fn at(self) -> Stamp {
        match self {
            Self::Live(at) => at,
            Self::Listed => UNSEEN,
        }
    }

    /// The time of the change, if it was observed.
    fn time(self) -> Option<Stamp> {
        match self {
            Self::Live(at) => Some(at),
            Self::Listed => None,
        }
    }
}

/// The objects and life cycles of a cluster.
#[derive(Debug)]
pub(crate) struct Life {
    scope: Scope,
    world: Inventory,
    /// What may wait or be unused.
    open: Open,
    /// The objects of the canary.
    canary: Members,
    labels: Labels,
    active: Active,
    /// Whether every kind was listed.
    synced: bool,
    /// Deleted objects, the earliest first.
    ended: VecDeque<(Stamp, Ended)>,
}

impl Life {
    /// The empty state.
    pub fn new(scope: Scope) -> Self {
        let (open, labels, ended) = Default::default();
        let world = Inventory::new(scope.canary.clone(), scope.omitted());
        let canary = Members::new(scope.canary.clone());
        Self { scope, world, open, canary, labels, active: Active::new(), synced: false, ended }
    }

    /// Every kind was listed: phases that end from now on are reported, and open objects are followed.
    pub fn sync(&mut self) {
        self.open = Open::of(&self.world);
        self.synced = true;
    }

    /// Whether every kind was listed.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// The number of claims.
    pub fn tracked(&self) -> usize {
        self.world.claims.len()
    }

    /// Records an object that exists; returns the events of phases that it completes. `now` is the present time.
    pub fn enter<K: Followed>(&mut self, object: K, seen: Seen, now: Stamp) -> Vec<Event> {
        if !object.is_in(&self.scope) {
            return Vec::new();
        }
        if is_deleted(object.metadata()) {
            return self.remove(object, seen, now);
        }
        // Unchanged, or older than what is known.
        let Some(change) = object.trimmed().enter(&mut self.world) else { return Vec::new() };
        self.follow(&change, seen);
        match change.new.as_ref().and_then(K::of) {
            Some(object) => self.record(&**object, &change, seen, now),
            None => Vec::new(),
        }
    }

    /// Records the last state of a deleted object.
    pub fn remove<K: Followed>(&mut self, object: K, seen: Seen, now: Stamp) -> Vec<Event> {
        let object = object.trimmed();
        let Some(change) = object.leave(&mut self.world) else { return Vec::new() };
        self.follow(&change, seen);
        self.record(&object, &change, seen, now)
    }

    /// Records the end of a list with these uids: other objects were deleted unobserved.
    pub fn listed<K: Followed>(&mut self, uids: &HashSet<String>, now: Stamp) -> Vec<Event> {
        let missing = K::others(&self.world, uids);
        missing.into_iter().flat_map(|object| self.remove(object, Seen::Listed, now)).collect()
    }

    /// All objects of a kind that are known do not count any more, in whatever version: another list follows.
    pub fn start_again<K: Followed>(&mut self, now: Stamp) -> Vec<Event> {
        let events = self.listed::<K>(&HashSet::new(), now);
        K::forget_deletions(&mut self.world);
        events
    }

    fn follow(&mut self, change: &WorldChange, seen: Seen) {
        // While lists are incomplete, one look at each object later costs less than many at its neighbours now.
        if self.synced {
            self.open.follow(&self.world, change, seen.time());
        }
        self.canary.follow(change);
        if let Some(volume) = change.new.as_ref().and_then(PersistentVolume::of) {
            self.labels.enter(volume);
        }
    }

    fn record<K: Followed>(
        &mut self,
        object: &K,
        change: &WorldChange,
        seen: Seen,
        now: Stamp,
    ) -> Vec<Event> {
        let deleted = change.new.is_none();
        if deleted {
            self.ended.extend(object.ended().map(|ended| (now, ended)));
        }
        let listing = !self.synced && seen == Seen::Listed;
        // Each looks at neighbours of the object.
        let claims = match listing && self.active.is_empty() {
            true => Vec::new(),
            false => self.active.claims_of(&self.world, change),
        };
        let followed = !listing || claims.iter().any(|claim| self.active.contains(claim));
        let loaded = match followed {
            true => {
                if listing {
                    self.active.read_again(&claims);
                }
                self.active.add(&self.world, &claims, change, now)
            }
            false if is_of_a_claim(change.kind) => return Vec::new(),
            false => Vec::new(),
        };
        // What was over before is not reported, as before the first list.
        let mut events: Vec<Event> =
            loaded.into_iter().filter_map(|event| reportable(event, false)).collect();
        if let Some(object) = object.clone().evidence() {
            let fed = self.active.feed(object, seen.at(), deleted);
            events.extend(self.reportable(fed));
        }
        events
    }

    /// Removes the state of objects that were deleted a while ago, and of claims that are in ordinary use; returns the
    /// events of unfinished phases.
    pub fn retire(&mut self, now: Stamp) -> Vec<Event> {
        let mut events = self.retire_deleted(now);
        let released = self.active.release(&self.world, &self.open, now);
        events.extend(self.reportable(released));
        events
    }

    fn retire_deleted(&mut self, now: Stamp) -> Vec<Event> {
        let mut events = Vec::new();
        let mut waiting = Vec::new();
        let is_due = |(at, _): &mut (Stamp, Ended)| now.seconds_since(*at) > MEMORY_SECONDS;
        while let Some((_, ended)) = self.ended.pop_front_if(is_due) {
            match &ended {
                Ended::Pod(pod) => events.extend(self.active.timeline.retire_pod(pod)),
                Ended::Attachment(attachment) if self.active.timeline.has_successor(attachment) => {
                    waiting.push((now, ended));
                }
                Ended::Attachment(attachment) => {
                    events.extend(self.active.timeline.retire_attachment(attachment))
                }
                Ended::Volume { uid, name } => {
                    if !self.active.timeline.retire_volume(name, uid) {
                        waiting.push((now, ended));
                    }
                }
                // Its deletion, or a detach, is not over.
                Ended::Claim { uid, key }
                    if self.has_volume(uid, key) || self.active.timeline.has_attachment(uid) =>
                {
                    waiting.push((now, ended));
                }
                Ended::Claim { uid, .. } => {
                    events.extend(self.active.timeline.retire(std::slice::from_ref(uid)))
                }
            }
        }
        self.ended.extend(waiting);
        self.reportable(events)
    }

    /// Whether the volume of a claim is still to be deleted.
    fn has_volume(&self, claim: &str, key: &str) -> bool {
        self.world.volumes.referring_to(key).any(|volume| {
            let spec = volume.spec.as_ref();
            let of = spec.and_then(|spec| spec.claim_ref.as_ref()).and_then(|of| of.uid.as_deref());
            let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
            of == Some(claim) && policy == Some("Delete")
        })
    }

    /// The objects that the canary depends on.
    pub fn world(&self) -> &World {
        &self.world.few
    }

    /// The objects of the canary.
    pub fn canary(&self) -> &Members {
        &self.canary
    }

    /// The cluster's waiting volumes, with the observed starts of their phases. The cost depends on their number, not
    /// on that of all volumes.
    pub fn status(&self, messages: &Messages, clock: &Clock) -> Status {
        let observed = |claim: &str| self.active.timeline.waiting(claim);
        let mut status = plan_open(&self.world, &self.open, messages, clock, &observed);
        status.notes = self.unmatched();
        status
    }

    /// What the scope names and the cluster does not have: probably misspelled.
    fn unmatched(&self) -> Vec<String> {
        let namespaces = self.scope.namespaces.iter().filter(|name| !self.world.claims.is_in_namespace(name));
        let namespaces = namespaces.map(|name| format!("namespace {name} has no claim: check --namespace"));
        let is_unknown = |name: &&String| !name.is_empty() && self.world.few.classes.named(name).is_none();
        let classes = self.scope.classes.iter().filter(is_unknown);
        let classes =
            classes.map(|name| format!("StorageClass {name} does not exist: check --storage-class"));
        namespaces.chain(classes).collect()
    }

    /// Events with values of labels that are bounded.
    pub fn bounded(&self, events: &[Event]) -> Vec<Event> {
        let mut events = events.to_vec();
        for event in &mut events {
            if let Event::Phase(sample) = event {
                sample.class = self.labels.class(&self.world.few, &sample.class).to_owned();
                sample.driver = self.labels.driver(&self.world.few, &sample.driver).to_owned();
            }
        }
        events
    }

    /// Makes the values of labels in a status bounded.
    pub fn bound(&self, status: &mut Status) {
        for row in &mut status.waiting {
            row.storage_class = self.labels.class(&self.world.few, &row.storage_class).to_owned();
            row.driver = self.labels.driver(&self.world.few, &row.driver).to_owned();
        }
    }

    fn reportable(&self, events: Vec<Event>) -> Vec<Event> {
        events.into_iter().filter_map(|event| reportable(event, self.synced)).collect()
    }
}

/// An event, without durations that were not observed.
fn reportable(event: Event, synced: bool) -> Option<Event> {
    match event {
        Event::Phase(mut sample) => {
            if let Outcome::Ok { start, end, .. } = sample.outcome {
                if end == UNSEEN && !synced {
                    return None;
                }
                if start == UNSEEN || end == UNSEEN {
                    sample.outcome = Outcome::Unobserved;
                }
            }
            // It starts with the mounts, which only the observers see: they report it.
            if sample.phase == Phase::Start && sample.outcome == Outcome::Unobserved {
                return None;
            }
            Some(Event::Phase(sample))
        }
        Event::Transition(transition) if transition.when == UNSEEN => None,
        event => Some(event),
    }
}

#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod tests;
