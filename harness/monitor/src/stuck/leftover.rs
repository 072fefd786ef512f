//! Objects that remain although nothing uses them: decided for each attachment, claim and volume alone.

use claimcheck_informer::is_terminal;
use claimcheck_model::{ObjectKey, PV_PROTECTION, PVC_PROTECTION};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::VolumeAttachment,
};
use serde::{Deserialize, Serialize};

use crate::inventory::Inventory;

use super::{Clock, Open, age};

/// The kind of an unused object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftoverKind {
    /// An attachment to a node without a pod that uses the volume.
    AttachmentWithoutPod,
    /// An attachment of a volume that does not exist.
    AttachmentWithoutVolume,
    /// A volume with a claim that no longer exists.
    VolumeWithoutClaim,
    /// A finalizer that protects an object from nothing.
    Finalizer,
}

impl LeftoverKind {
    /// The text in table and page.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttachmentWithoutPod => "attachment without pod",
            Self::AttachmentWithoutVolume => "attachment without volume",
            Self::VolumeWithoutClaim => "volume without claim",
            Self::Finalizer => "finalizer that holds nothing",
        }
    }
}

/// An unused object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Leftover {
    /// Its kind.
    pub kind: LeftoverKind,
    /// The object.
    pub object: String,
    /// What it refers to.
    pub detail: String,
    /// Since when, if that was observed or is in its objects.
    pub since: Option<Timestamp>,
}

impl Leftover {
    /// For how long at a time, if that is known.
    pub(crate) fn age(&self, at: Timestamp) -> Option<String> {
        self.since.map(|since| age(at.duration_since(since).as_secs_f64().max(0.0)))
    }
}

/// The unused objects of a world, in order; only those that are older than the limit, since controllers need a moment.
pub(super) fn leftovers(world: &Inventory, open: &Open, clock: &Clock) -> Vec<Leftover> {
    // An old attachment may have lost its last pod a moment ago.
    let attachments = open.attachments.iter().filter_map(|(key, since)| {
        let attachment = world.attachments.get(key)?;
        let leftover = of_attachment(world, &attachment)?;
        let created = attachment.metadata.creation_timestamp.as_ref().map(|time| time.0);
        clock.is_over(since.or(created)).then_some(Leftover { since: *since, ..leftover })
    });
    let volumes = open.volumes.iter().filter_map(|key| world.volumes.get(key));
    let volumes = volumes.filter_map(|volume| of_volume(world, &volume));
    let claims = open.claims.iter().filter_map(|key| world.claims.get(key));
    let claims = claims.filter_map(|claim| of_claim(world, &claim));
    let others = volumes.chain(claims).filter(|one| clock.is_over(one.since));
    let mut found: Vec<_> = attachments.chain(others).collect();
    found.sort();
    found
}

pub(super) fn of_attachment(world: &Inventory, attachment: &VolumeAttachment) -> Option<Leftover> {
    let meta = &attachment.metadata;
    if meta.deletion_timestamp.is_some() {
        return None;
    }
    let name = attachment.spec.source.persistent_volume_name.as_deref()?;
    let node = &attachment.spec.node_name;
    let leftover = |kind| Leftover {
        kind,
        object: meta.name.clone().unwrap_or_default(),
        detail: format!("volume {name} on node {node}"),
        since: None,
    };
    let Some(volume) = world.volumes.named(name) else {
        return Some(leftover(LeftoverKind::AttachmentWithoutVolume));
    };
    let claim = claim_of(&volume)?;
    let mut pods = world.pods.referring_to(&claim.to_string());
    let used = pods.any(|pod| {
        let here = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(node);
        here && !is_terminal(&pod)
    });
    (!used).then(|| leftover(LeftoverKind::AttachmentWithoutPod))
}

fn of_volume(world: &Inventory, volume: &PersistentVolume) -> Option<Leftover> {
    let (meta, status) = (&volume.metadata, volume.status.as_ref());
    let object = meta.name.clone().unwrap_or_default();
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let claim = claim_of(volume);
    let exists = claim.as_ref().is_some_and(|claim| world.claims.contains(claim));
    if let Some(deleting) = &meta.deletion_timestamp {
        let useless =
            !exists && finalizers.iter().all(|name| name == PV_PROTECTION) && !finalizers.is_empty();
        let detail = format!("{PV_PROTECTION}, but no claim is bound to it");
        let since = Some(deleting.0);
        return useless.then_some(Leftover { kind: LeftoverKind::Finalizer, object, detail, since });
    }
    let released = status.and_then(|status| status.phase.as_deref()) == Some("Released");
    let retained = volume.spec.as_ref()?.persistent_volume_reclaim_policy.as_deref() != Some("Delete");
    if !(released && retained) || exists {
        return None;
    }
    let since = status.and_then(|status| status.last_phase_transition_time.as_ref()).map(|time| time.0);
    let since = since.or_else(|| meta.creation_timestamp.as_ref().map(|time| time.0));
    let detail = format!("claim {} no longer exists, and the reclaim policy is Retain", claim?);
    Some(Leftover { kind: LeftoverKind::VolumeWithoutClaim, object, detail, since })
}

fn of_claim(world: &Inventory, claim: &PersistentVolumeClaim) -> Option<Leftover> {
    let meta = &claim.metadata;
    let deleting = meta.deletion_timestamp.as_ref()?;
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    if finalizers.is_empty() || finalizers.iter().any(|name| name != PVC_PROTECTION) {
        return None;
    }
    let key = claimcheck_informer::key_of(claim);
    let used = world.pods.referring_to(&key.to_string()).any(|pod| !is_terminal(&pod));
    let detail = format!("{PVC_PROTECTION}, but no pod uses it");
    let since = Some(deleting.0);
    (!used).then(|| Leftover { kind: LeftoverKind::Finalizer, object: key.to_string(), detail, since })
}

/// The claim that a volume refers to.
pub(crate) fn claim_of(volume: &PersistentVolume) -> Option<ObjectKey> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(ObjectKey::new(claim.namespace.clone().unwrap_or_default(), claim.name.clone()?))
}
