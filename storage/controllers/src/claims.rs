//! Accessors of claims and volumes, used by binder and scheduler.
//!
//! Upstream: `component-helpers/storage/volume/pv_helpers.go`.

use claimcheck_informer::Cached;
pub use claimcheck_informer::{
    class::{claim_class as class_name, default_class, lacks_class, volume_class},
    growth::{requested, volume_capacity as capacity},
};
use claimcheck_model::{BIND_COMPLETED, ObjectKey, SELECTED_NODE};
use k8s_openapi::{
    api::{
        core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::selector;

/// An annotation's value.
pub fn annotation<'a, K: Cached>(object: &'a K, key: &str) -> Option<&'a str> {
    object.metadata().annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether an object is being deleted.
pub fn is_deleting<K: Cached>(object: &K) -> bool {
    object.metadata().deletion_timestamp.is_some()
}

/// Whether an object has a finalizer.
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|held| held == finalizer)
}

/// Whether a claim existed before an object that it is made from began to be deleted: then the object waits for
/// the claim; a later claim came too late.
pub fn precedes_deletion<K: Cached>(claim: &PersistentVolumeClaim, source: &K) -> bool {
    let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
    source.metadata().deletion_timestamp.as_ref().is_none_or(|deleted| created <= Some(deleted.0))
}

/// An object's name.
pub fn name<K: Cached>(object: &K) -> &str {
    object.metadata().name.as_deref().unwrap_or_default()
}

/// Whether volumes of the class wait for a pod.
pub fn waits_for_first_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The node that the scheduler selected for a claim with WaitForFirstConsumer.
pub fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(claim, SELECTED_NODE).filter(|node| !node.is_empty())
}

/// The claim's volumeName; `None` if it has none yet.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether the binder has completed its part of the claim (bind-completed).
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    volume_name(claim).is_some() && annotation(claim, BIND_COMPLETED).is_some()
}

/// A claim's phase.
pub fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// A volume's phase.
pub fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The claimRef: the claim that a volume is bound to, or reserved for.
pub fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// The uid in a reference; `None` if it was omitted, as in a claimRef that an admin wrote.
pub fn ref_uid(reference: &ObjectReference) -> Option<&str> {
    reference.uid.as_deref().filter(|uid| !uid.is_empty())
}

/// The key of the referenced object.
pub fn ref_key(reference: &ObjectReference) -> ObjectKey {
    ObjectKey::new(
        reference.namespace.as_deref().unwrap_or_default(),
        reference.name.as_deref().unwrap_or_default(),
    )
}

/// Whether a volume is bound to, or reserved for, this claim: the names agree, and the uids if the volume has
/// one.
pub fn is_meant_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_ref(volume).is_some_and(|reference| {
        reference.namespace == claim.metadata.namespace
            && reference.name == claim.metadata.name
            && ref_uid(reference).is_none_or(|uid| claim.metadata.uid.as_deref() == Some(uid))
    })
}

/// The access mode for exclusive use by one pod.
pub const ONCE_POD: &str = "ReadWriteOncePod";

/// Whether the claim requests an access mode.
pub fn wants_mode(claim: &PersistentVolumeClaim, mode: &str) -> bool {
    claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten()).any(|expected| expected == mode)
}

/// Why a volume cannot serve a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It is smaller than requested.
    TooSmall,
    /// It is of another class.
    Class,
    /// It lacks an access mode.
    AccessModes,
    /// One is a block device, the other a filesystem.
    VolumeMode,
    /// The claim's selector does not select it.
    Selector,
    /// It has other volume attributes.
    AttributesClass,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooSmall => "requested PV is too small",
            Self::Class => "storageClassName does not match",
            Self::AccessModes => "incompatible accessMode",
            Self::VolumeMode => "incompatible volumeMode",
            Self::Selector => "selector does not match",
            Self::AttributesClass => "volumeAttributesClassName does not match",
        })
    }
}

/// Whether a volume that a claim names can serve it; the selector is not checked, since the name is more explicit
/// (`checkVolumeSatisfyClaim` in pv_controller.go).
pub fn satisfies(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), Mismatch> {
    match serves(volume, claim) {
        Err(Mismatch::TooSmall) => Err(Mismatch::TooSmall),
        _ if volume_class(volume) != class_name(claim) => Err(Mismatch::Class),
        served => served,
    }
}

/// Whether a volume reserved for a claim by `claimRef` can serve it: of whatever class and labels it is
/// (`FindMatchingVolume` in pv_helpers.go returns it before it compares these).
pub fn serves(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), Mismatch> {
    let (Some(has), Some(wants)) = (&volume.spec, &claim.spec) else { return Err(Mismatch::TooSmall) };
    let modes = has.access_modes.as_deref().unwrap_or_default();
    let set = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    if capacity(volume) < requested(claim) {
        Err(Mismatch::TooSmall)
    } else if volume_mode(has.volume_mode.as_deref()) != volume_mode(wants.volume_mode.as_deref()) {
        Err(Mismatch::VolumeMode)
    } else if set(&has.volume_attributes_class_name) != set(&wants.volume_attributes_class_name) {
        Err(Mismatch::AttributesClass)
    } else if !wants.access_modes.iter().flatten().all(|mode| modes.contains(mode)) {
        Err(Mismatch::AccessModes)
    } else {
        Ok(())
    }
}

/// Whether a free volume can serve the claim.
pub fn matches(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), Mismatch> {
    satisfies(volume, claim)?;
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let selected = selector::selects(selector, volume.metadata.labels.as_ref());
    if selected { Ok(()) } else { Err(Mismatch::Selector) }
}

/// The volume mode, which is a filesystem if nothing is said.
pub fn volume_mode(mode: Option<&str>) -> &str {
    mode.unwrap_or("Filesystem")
}

/// Whether the claim belongs to this pod: `VolumeIsForPod` in `k8s.io/component-helpers/storage/ephemeral`.
pub fn is_owned_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref())
}
