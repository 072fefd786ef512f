//! The objects that may wait or be unused, updated with each change: a status then costs as much as they are many, and
//! not as much as a cluster has volumes.
//!
//! Whether an object is open depends on the object and its neighbours: a claim on its volume, a pod on its claims, an
//! attachment on its volume and on the pods there. So a change is followed to these; classes, nodes and drivers affect
//! the rows of open objects only, which are derived when a status is requested.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::resume_unwind,
    sync::Arc,
    thread,
};

use claimcheck_informer::{Cached, Change, Kind, growth, is_terminal, key_of, pod_claims};
use claimcheck_model::{ObjectKey, Stamp, snapshot::VolumeSnapshot};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttachment,
};

use crate::inventory::Inventory;

use super::{
    facts::{is_started, node_of, volume_of},
    leftover::{self, claim_of},
};

/// The keys of objects that [`super::plan_open`] looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    pub(super) claims: BTreeSet<ObjectKey>,
    pub(super) pods: BTreeSet<ObjectKey>,
    /// With the time since which it is open, if that was observed.
    pub(super) attachments: BTreeMap<ObjectKey, Option<Stamp>>,
    pub(super) volumes: BTreeSet<ObjectKey>,
    pub(super) snapshots: BTreeSet<ObjectKey>,
}

impl Open {
    /// Those of an inventory, by a look at each object. The kinds are looked at in parallel, since a start waits for it.
    pub fn of(world: &Inventory) -> Self {
        let claims = || open_keys(world.claims.iter(), |claim| claim_is_open(world, claim));
        let pods = || open_keys(world.pods.iter(), |pod| pod_is_open(world, pod));
        let volumes = || open_keys(world.volumes.iter(), volume_is_open);
        let attachments = || open_keys(world.attachments.iter(), |of| attachment_is_open(world, of));
        let snapshots = open_keys(world.few.snapshots.iter().cloned(), snapshot_is_open);
        thread::scope(|scope| {
            let others = [scope.spawn(claims), scope.spawn(pods), scope.spawn(volumes)];
            let attachments = attachments().into_iter().map(|key| (key, None)).collect();
            let [claims, pods, volumes] =
                others.map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            Self { claims, pods, attachments, volumes, snapshots }
        })
    }

    /// Follows a change that is already in the world; `at` is its time, unless it was not observed.
    pub fn follow(&mut self, world: &Inventory, change: &Change, at: Option<Stamp>) {
        match change.kind {
            Kind::Claim => {
                self.claim(world, &change.key);
                // Pods wait for a claim that does not exist.
                if change.old.is_none() || change.new.is_none() {
                    for pod in world.pods.referring_to(&change.key.to_string()) {
                        self.pod(world, &key_of(&*pod));
                    }
                }
            }
            Kind::Pod => {
                self.pod(world, &change.key);
                let used = change.states::<Pod>().flat_map(|pod| pod_claims(pod).map(|used| used.claim));
                let used: BTreeSet<ObjectKey> = used.collect();
                for claim in used {
                    for volume in world.volumes.referring_to(&claim.to_string()) {
                        self.attachments_of(world, volume.metadata.name.as_deref().unwrap_or_default(), at);
                    }
                }
            }
            Kind::Attachment => self.attachment(world, &change.key, at),
            Kind::Volume => {
                let is_open = world.volumes.get(&change.key).is_some_and(|volume| volume_is_open(&volume));
                set(&mut self.volumes, change.key.clone(), is_open);
                let claims: BTreeSet<ObjectKey> =
                    change.states::<PersistentVolume>().filter_map(|volume| claim_of(volume)).collect();
                for claim in claims {
                    self.claim(world, &claim);
                }
                self.attachments_of(world, &change.key.name, at);
            }
            Kind::Snapshot => {
                let snapshot = world.few.snapshots.get(&change.key);
                let is_open = snapshot.is_some_and(|snapshot| snapshot_is_open(snapshot));
                set(&mut self.snapshots, change.key.clone(), is_open);
            }
            // They decide what an open object waits for.
            Kind::Class
            | Kind::Node
            | Kind::CsiDriver
            | Kind::CsiNode
            | Kind::Capacity
            | Kind::Lease
            | Kind::AttributesClass
            | Kind::SnapshotContent
            | Kind::SnapshotClass
            | Kind::GroupSnapshot
            | Kind::GroupSnapshotContent
            | Kind::GroupSnapshotClass
            | Kind::ReferenceGrant
            | Kind::Populator => {}
        }
    }

    /// Whether a claim, its volume, or one of its pods or attachments is open.
    pub fn concerns(&self, world: &Inventory, claim: &ObjectKey) -> bool {
        let name = claim.to_string();
        self.claims.contains(claim)
            || world.pods.referring_to(&name).any(|pod| self.pods.contains(&key_of(&*pod)))
            || world.volumes.referring_to(&name).any(|volume| {
                let mut attachments =
                    world.attachments.referring_to(volume.metadata.name.as_deref().unwrap_or_default());
                self.volumes.contains(&key_of(&*volume))
                    || attachments.any(|attachment| self.attachments.contains_key(&key_of(&*attachment)))
            })
    }

    /// The same without times, as a look at each object finds it.
    #[cfg(test)]
    pub(crate) fn timeless(mut self) -> Self {
        self.attachments.values_mut().for_each(|since| *since = None);
        self
    }

    /// The number of open objects.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let of_namespaces = self.claims.len() + self.pods.len() + self.snapshots.len();
        of_namespaces + self.attachments.len() + self.volumes.len()
    }

    fn claim(&mut self, world: &Inventory, key: &ObjectKey) {
        let is_open = world.claims.get(key).is_some_and(|claim| claim_is_open(world, &claim));
        set(&mut self.claims, key.clone(), is_open);
    }

    fn pod(&mut self, world: &Inventory, key: &ObjectKey) {
        let is_open = world.pods.get(key).is_some_and(|pod| pod_is_open(world, &pod));
        set(&mut self.pods, key.clone(), is_open);
    }

    fn attachment(&mut self, world: &Inventory, key: &ObjectKey, at: Option<Stamp>) {
        let attachment = world.attachments.get(key);
        if attachment.is_some_and(|attachment| attachment_is_open(world, &attachment)) {
            self.attachments.entry(key.clone()).or_insert(at);
        } else {
            self.attachments.remove(key);
        }
    }

    fn attachments_of(&mut self, world: &Inventory, volume: &str, at: Option<Stamp>) {
        for attachment in world.attachments.referring_to(volume) {
            self.attachment(world, &key_of(&*attachment), at);
        }
    }
}

/// The keys of those objects that are open.
fn open_keys<K: Cached>(
    objects: impl Iterator<Item = Arc<K>>,
    is_open: impl Fn(&K) -> bool,
) -> BTreeSet<ObjectKey> {
    objects.filter(|object| is_open(object)).map(|object| key_of(&*object)).collect()
}

fn set(keys: &mut BTreeSet<ObjectKey>, key: ObjectKey, is_open: bool) {
    if is_open {
        keys.insert(key);
    } else {
        keys.remove(&key);
    }
}

/// A claim is settled once it is bound and as large as requested.
fn claim_is_open(world: &Inventory, claim: &PersistentVolumeClaim) -> bool {
    let status = claim.status.as_ref();
    let bound = status.and_then(|status| status.phase.as_deref()) == Some("Bound");
    let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
    let pending = conditions
        .any(|condition| condition.type_ == "FileSystemResizePending" && condition.status == "True");
    let grows = || {
        let volume = volume_of(world, claim);
        volume.is_some_and(|volume| growth::requested(claim) > growth::volume_capacity(&volume))
    };
    claim.metadata.deletion_timestamp.is_some() || !bound || pending || grows()
}

/// A pod is settled once its volumes are mounted, until its deletion.
fn pod_is_open(world: &Inventory, pod: &Pod) -> bool {
    let without_claim =
        || !world.omitted.claims && pod_claims(pod).any(|used| !world.claims.contains(&used.claim));
    let waits = pod.metadata.deletion_timestamp.is_some() || node_of(pod).is_none() || !is_started(pod);
    !is_terminal(pod) && (waits || without_claim())
}

fn attachment_is_open(world: &Inventory, attachment: &VolumeAttachment) -> bool {
    attachment.metadata.deletion_timestamp.is_some()
        || leftover::leftover_attachment(world, attachment).is_some()
}

fn volume_is_open(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    volume.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Released" | "Failed"))
}

fn snapshot_is_open(snapshot: &VolumeSnapshot) -> bool {
    let ready = snapshot.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true));
    !ready && snapshot.metadata.deletion_timestamp.is_none()
}
