//! Objects that remain although nothing uses them: decided for each attachment, claim and volume alone.

use claimcheck_informer::is_terminal;
use claimcheck_model::{KEEP_TERMINATED_POD_VOLUMES, ObjectKey, PV_PROTECTION, PVC_PROTECTION};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::VolumeAttachment,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inventory::Inventory;

use super::{Clock, Open, age, facts::not_ready};

/// The kind of an unused object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
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
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::AttachmentWithoutPod,
        Self::AttachmentWithoutVolume,
        Self::VolumeWithoutClaim,
        Self::Finalizer,
    ];

    /// The text in table and page.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttachmentWithoutPod => "attachment without pod",
            Self::AttachmentWithoutVolume => "attachment without volume",
            Self::VolumeWithoutClaim => "volume without claim",
            Self::Finalizer => "finalizer without a user",
        }
    }

    /// What to look at. That nothing refers to an object proves neither that no node has it mounted nor that its data is
    /// not needed, so none of these deletes one or removes a finalizer.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::AttachmentWithoutPod => {
                "look at the log of kube-controller-manager: it detaches a volume after the node has reported that it is no longer in use"
            }
            Self::AttachmentWithoutVolume => {
                "its PersistentVolume no longer exists: check on the storage whether the volume is attached, and look at the log of external-attacher"
            }
            Self::VolumeWithoutClaim => {
                "nothing is wrong: the reclaim policy preserves the data until an administrator decides about it"
            }
            Self::Finalizer => {
                "check that kube-controller-manager runs, and its log: its protection controllers release such objects"
            }
        }
    }
}

/// An unused object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
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
        let leftover = leftover_attachment(world, &attachment)
            .filter(|_| !retains_volumes(world, &attachment.spec.node_name))?;
        let created = attachment.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let since = since.map(|since| clock.time_of(since));
        clock.is_over(since.or(created)).then_some(Leftover { since, ..leftover })
    });
    let volumes = open.volumes.iter().filter_map(|key| world.volumes.get(key));
    let volumes = volumes.filter_map(|volume| leftover_volume(world, &volume));
    let claims = open.claims.iter().filter_map(|key| world.claims.get(key));
    let claims = claims.filter_map(|claim| leftover_claim(world, &claim));
    let others = volumes.chain(claims).filter(|one| clock.is_over(one.since));
    let mut found: Vec<_> = attachments.chain(others).collect();
    found.sort();
    found
}

pub(super) fn leftover_attachment(world: &Inventory, attachment: &VolumeAttachment) -> Option<Leftover> {
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
        // It may exist, and be of a claim that is not followed.
        return (!world.omitted.volumes).then(|| leftover(LeftoverKind::AttachmentWithoutVolume));
    };
    let claim = claim_of(&volume)?;
    let mut pods = world.pods.referring_to(&claim.to_string());
    let used = pods.any(|pod| {
        let here = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(node);
        here && !is_terminal(&pod)
    });
    (!used).then(|| leftover(LeftoverKind::AttachmentWithoutPod))
}

/// Whether volumes without a pod stay attached to a node: it is not ready, so that it may have them mounted and unmounts
/// none, or it keeps those of pods that have ended. Upstream: `DetermineVolumeAction` in
/// `pkg/controller/volume/attachdetach/util/util.go`.
fn retains_volumes(world: &Inventory, name: &str) -> bool {
    let Some(node) = world.few.nodes.named(name) else { return false };
    let annotation = node.metadata.annotations.as_ref().and_then(|all| all.get(KEEP_TERMINATED_POD_VOLUMES));
    annotation.is_some_and(|value| value == "true") || not_ready(name, Some(node)).is_some()
}

fn leftover_volume(world: &Inventory, volume: &PersistentVolume) -> Option<Leftover> {
    let (meta, status) = (&volume.metadata, volume.status.as_ref());
    let object = meta.name.clone().unwrap_or_default();
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let claim = claim_of(volume);
    let exists = claim.as_ref().is_some_and(|claim| world.claims.contains(claim));
    let phase = status.and_then(|status| status.phase.as_deref());
    if let Some(deleting) = &meta.deletion_timestamp {
        let attached = || world.attachments.referring_to(&object).next().is_some();
        // Upstream protects a volume that is Bound, whatever its claim: `isBeingUsed` in `pv_protection_controller.go`.
        let is_used = exists || phase == Some("Bound") || attached();
        let is_held = !finalizers.is_empty() && finalizers.iter().all(|name| name == PV_PROTECTION);
        let detail = format!("{PV_PROTECTION}, but no claim is bound to it");
        let since = Some(deleting.0);
        return (is_held && !is_used).then_some(Leftover {
            kind: LeftoverKind::Finalizer,
            object,
            detail,
            since,
        });
    }
    let retained =
        volume.spec.as_ref()?.persistent_volume_reclaim_policy.as_deref().unwrap_or("Retain") == "Retain";
    if phase != Some("Released") || !retained || exists {
        return None;
    }
    let since = status.and_then(|status| status.last_phase_transition_time.as_ref()).map(|time| time.0);
    let since = since.or_else(|| meta.creation_timestamp.as_ref().map(|time| time.0));
    let detail = format!("claim {} no longer exists, and the reclaim policy is Retain", claim?);
    Some(Leftover { kind: LeftoverKind::VolumeWithoutClaim, object, detail, since })
}

/// A pod uses the claim whatever its phase: see [`super::facts::holders`].
fn leftover_claim(world: &Inventory, claim: &PersistentVolumeClaim) -> Option<Leftover> {
    let meta = &claim.metadata;
    let deleting = meta.deletion_timestamp.as_ref()?;
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    if finalizers.is_empty() || finalizers.iter().any(|name| name != PVC_PROTECTION) {
        return None;
    }
    let key = claimcheck_informer::key_of(claim);
    let used = world.pods.referring_to(&key.to_string()).next().is_some();
    let detail = format!("{PVC_PROTECTION}, but no pod refers to it");
    let since = Some(deleting.0);
    (!used).then(|| Leftover { kind: LeftoverKind::Finalizer, object: key.to_string(), detail, since })
}

/// The claim that a volume refers to.
pub(crate) fn claim_of(volume: &PersistentVolume) -> Option<ObjectKey> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(ObjectKey::new(claim.namespace.clone().unwrap_or_default(), claim.name.clone()?))
}
