//! The claims that changed lately or wait. Only these are in the timeline, so a volume in ordinary use costs no more
//! memory than its packed objects.
//!
//! If an object of another claim changes, the claim enters the timeline with its objects as they were before, as after a
//! restart: what became true earlier has the time [`UNSEEN`]. A phase that starts with the change is measured all the
//! same, since a phase starts when the last of its preconditions is met.

use std::collections::HashMap;

use claimcheck_informer::{Change, DataSource, Kind, Object as Known, data_source, key_of, pod_claims};
use claimcheck_model::{Event, ObjectKey, Stamp, snapshot::VolumeSnapshot, snapshot::VolumeSnapshotContent};
use claimcheck_timeline::{
    Tap, Timeline, UNSEEN,
    evidence::{Change as Observed, Object, Observation},
};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttachment,
};

use crate::{
    inventory::Inventory,
    life::Followed,
    stuck::{Open, claim_of},
};

/// How long a claim stays after its last change, and the state of a deleted object: the watches of other kinds may lag
/// behind.
pub(crate) const MEMORY_SECONDS: f64 = 60.0;

/// The timeline, and its claims.
#[derive(Debug)]
pub(crate) struct Active {
    /// The phases of these claims, and all snapshots and nodes.
    pub timeline: Timeline,
    /// The last change of each of them.
    changed: HashMap<ObjectKey, Stamp>,
}

impl Active {
    /// Without claims.
    pub fn new() -> Self {
        Self { timeline: Timeline::new(Tap::Absent), changed: HashMap::new() }
    }

    /// Whether there is no claim.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether a claim is among them.
    pub fn contains(&self, claim: &ObjectKey) -> bool {
        self.changed.contains_key(claim)
    }

    /// Adds claims, and those that their phases depend on. `world` has the `change` already, which is not fed: only the
    /// state before it. Returns the events of phases that this completes.
    pub fn add(
        &mut self,
        world: &Inventory,
        claims: &[ObjectKey],
        change: &Change,
        now: Stamp,
    ) -> Vec<Event> {
        let (mut events, mut new) = (Vec::new(), Vec::new());
        let mut next = claims.to_vec();
        // Attachments are counted by the driver of their volume, so that comes first.
        if change.kind == Kind::Volume && !self.knows_old(change) {
            events.extend(self.load_old(change));
        }
        while let Some(claim) = next.pop() {
            if self.changed.insert(claim.clone(), now).is_none() {
                events.extend(self.load(world, &claim, change, &mut next));
                new.push(claim);
            }
        }
        // Also that of a claim which is not known: without it, the change would count as its creation.
        if !new.is_empty() || !self.knows_old(change) {
            events.extend(self.load_old(change));
        }
        for uid in new.iter().filter_map(|claim| uid_of(world, claim)) {
            self.timeline.pass_over(&uid);
        }
        events
    }

    /// Whether the timeline has a changed object, or that did not exist before.
    fn knows_old(&self, change: &Change) -> bool {
        let Some(old) = &change.old else { return true };
        let uid = match old {
            Known::Claim(claim) => &claim.metadata.uid,
            Known::Volume(volume) => &volume.metadata.uid,
            Known::Pod(pod) => &pod.metadata.uid,
            Known::Attachment(attachment) => &attachment.metadata.uid,
            _ => return true,
        };
        self.timeline.knows(change.kind, &change.key.name, uid.as_deref().unwrap_or_default())
    }

    /// Lets the next [`Self::add`] of these claims read their objects again: more of them were listed.
    pub fn read_again(&mut self, claims: &[ObjectKey]) {
        for claim in claims {
            self.changed.remove(claim);
        }
    }

    /// Records an object.
    pub fn feed(&mut self, object: Object, at: Stamp, deleted: bool) -> Vec<Event> {
        self.timeline.feed(&Observation::Watch(Box::new(Observed { at, object, deleted })))
    }

    /// Feeds the objects of a claim, but the changed one; `next` receives the claims that it is connected with.
    fn load(
        &mut self,
        world: &Inventory,
        key: &ObjectKey,
        change: &Change,
        next: &mut Vec<ObjectKey>,
    ) -> Vec<Event> {
        let is_changed = |kind: Kind, key: &ObjectKey| change.kind == kind && change.key == *key;
        let mut objects = Vec::new();
        if let Some(claim) = world.claims.get(key).filter(|_| !is_changed(Kind::Claim, key)) {
            next.extend(source_claim(&claim));
            objects.push(known(&*claim));
        }
        // A volume that was deleted may have attachments.
        let deleted = (change.kind == Kind::Volume && change.new.is_none()).then(|| change.key.name.clone());
        let deleted = deleted.filter(|_| {
            change.states::<PersistentVolume>().any(|volume| claim_of(volume).as_ref() == Some(key))
        });
        let mut volumes = Vec::from_iter(deleted);
        for volume in world.volumes.referring_to(&key.to_string()) {
            volumes.extend(volume.metadata.name.clone());
            // Before its attachments, which are counted by its driver.
            if !is_changed(Kind::Volume, &key_of(&*volume)) {
                objects.push(known(&*volume));
            }
        }
        for volume in volumes {
            for attachment in world.attachments.referring_to(&volume) {
                if !is_changed(Kind::Attachment, &key_of(&*attachment)) {
                    objects.push(known(&*attachment));
                }
            }
        }
        for pod in world.pods.referring_to(&key.to_string()) {
            if !is_changed(Kind::Pod, &key_of(&*pod)) {
                next.extend(pod_claims(&pod).map(|used| used.claim));
                objects.push(known(&*pod));
            }
        }
        objects.into_iter().flatten().flat_map(|object| self.feed(object, UNSEEN, false)).collect()
    }

    /// The claims with phases that depend on a changed object.
    pub fn claims_of(&self, world: &Inventory, change: &Change) -> Vec<ObjectKey> {
        claims_of(world, &self.timeline, change)
    }

    /// Feeds a changed object as it was.
    fn load_old(&mut self, change: &Change) -> Vec<Event> {
        let of = |change: &Change| {
            None.or_else(|| before::<PersistentVolumeClaim>(change))
                .or_else(|| before::<PersistentVolume>(change))
                .or_else(|| before::<Pod>(change))
                .or_else(|| before::<VolumeAttachment>(change))
        };
        of(change).map(|object| self.feed(object, UNSEEN, false)).unwrap_or_default()
    }

    /// Removes the claims that have not changed for a while, and wait for nothing. Returns the events of phases without
    /// an observed start.
    pub fn release(&mut self, world: &Inventory, open: &Open, now: Stamp) -> Vec<Event> {
        let mut events = Vec::new();
        let is_due = |at: &Stamp| now.seconds_since(*at) > MEMORY_SECONDS;
        let due: Vec<ObjectKey> =
            self.changed.iter().filter(|(_, at)| is_due(at)).map(|(claim, _)| claim.clone()).collect();
        for claim in due {
            // Removed with another one.
            if !self.changed.contains_key(&claim) {
                continue;
            }
            let Some(uid) = uid_of(world, &claim) else {
                // Its pods wait for it.
                if world.pods.referring_to(&claim.to_string()).next().is_none() {
                    self.changed.remove(&claim);
                }
                continue;
            };
            // Those that share pods, too: a pod is in the timeline with all of its claims, or not at all.
            let connected = self.timeline.connected(&uid);
            let settled = connected.iter().all(|(uid, key)| {
                self.changed.get(key).is_none_or(is_due)
                    && uid_of(world, key).as_ref() == Some(uid)
                    && !open.concerns(world, key)
                    && self.timeline.waiting(uid).is_empty()
            });
            if settled {
                for key in connected.values().chain([&claim]) {
                    self.changed.remove(key);
                }
                events.extend(self.timeline.unload(connected.keys()));
            }
        }
        events
    }
}

/// An object that did not change now, as evidence.
fn known<K: Followed>(object: &K) -> Option<Object> {
    object.clone().evidence()
}

/// The state of an object before a change of it; none if it is of another kind, or was another object of the name.
fn before<K: Followed>(change: &Change) -> Option<Object> {
    let (old, new) = change.both::<K>();
    let old = old?;
    let is_same = new.is_none_or(|new| new.metadata().uid == old.metadata().uid);
    if is_same { known(&**old) } else { None }
}

fn uid_of(world: &Inventory, claim: &ObjectKey) -> Option<String> {
    world.claims.get(claim)?.metadata.uid.clone()
}

fn source_claim(claim: &PersistentVolumeClaim) -> Option<ObjectKey> {
    match data_source(claim)? {
        DataSource::Claim(source) => Some(source),
        DataSource::Snapshot(_) | DataSource::Elsewhere { .. } | DataSource::Other { .. } => None,
    }
}

/// The claims with phases that depend on a changed object.
fn claims_of(world: &Inventory, timeline: &Timeline, change: &Change) -> Vec<ObjectKey> {
    match change.kind {
        Kind::Claim => {
            let sources = change.states::<PersistentVolumeClaim>().filter_map(|claim| source_claim(claim));
            [change.key.clone()].into_iter().chain(sources).collect()
        }
        Kind::Volume => change.states::<PersistentVolume>().filter_map(|volume| claim_of(volume)).collect(),
        Kind::Pod => change.states::<Pod>().flat_map(|pod| pod_claims(pod).map(|used| used.claim)).collect(),
        Kind::Attachment => {
            let volumes = change.states::<VolumeAttachment>();
            let volumes = volumes.filter_map(|a| a.spec.source.persistent_volume_name.as_deref());
            // The deletion of the volume may have been observed earlier.
            let claim = |volume: &str| match world.volumes.named(volume) {
                Some(volume) => claim_of(&volume),
                None => timeline.claim_of(volume).cloned(),
            };
            volumes.filter_map(claim).collect()
        }
        Kind::Snapshot => {
            change.states::<VolumeSnapshot>().filter_map(|snapshot| claim_of_snapshot(snapshot)).collect()
        }
        Kind::SnapshotContent => {
            let snapshots = change.states::<VolumeSnapshotContent>().filter_map(|content| {
                let snapshot = &content.spec.volume_snapshot_ref;
                let (namespace, name) = (snapshot.namespace.as_deref()?, snapshot.name.as_deref()?);
                claim_of_snapshot(world.few.snapshots.get(&ObjectKey::new(namespace, name))?)
            });
            snapshots.collect()
        }
        Kind::Class
        | Kind::Node
        | Kind::CsiDriver
        | Kind::CsiNode
        | Kind::Capacity
        | Kind::Lease
        | Kind::AttributesClass
        | Kind::SnapshotClass
        | Kind::GroupSnapshot
        | Kind::GroupSnapshotContent
        | Kind::GroupSnapshotClass
        | Kind::ReferenceGrant
        | Kind::Populator => Vec::new(),
    }
}

fn claim_of_snapshot(snapshot: &VolumeSnapshot) -> Option<ObjectKey> {
    let claim = snapshot.spec.source.persistent_volume_claim_name.as_ref()?;
    Some(ObjectKey::new(snapshot.metadata.namespace.clone().unwrap_or_default(), claim))
}

/// Whether objects of a kind are in the timeline only with a claim.
pub(crate) fn is_of_a_claim(kind: Kind) -> bool {
    matches!(kind, Kind::Claim | Kind::Volume | Kind::Pod | Kind::Attachment)
}
