//! Decides the next step for a volume: its phase, and its reclaim policy when its claim was deleted.
//!
//! Upstream: `syncVolume` and `reclaimVolume` in
//! `pkg/controller/volume/persistentvolume/pv_controller.go`.

use std::sync::Arc;

use claimcheck_informer::{EventType, World};
use claimcheck_model::{ObjectKey, PROVISIONED_BY};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};

use super::action::{Absent, Action, Subject, VolumePhase};
use crate::claims::{
    Mismatch, annotation, claim_ref, name, ref_key, ref_uid, serves, volume_name, volume_phase,
};

type Volume = Arc<PersistentVolume>;

/// The next steps for a volume; none if it is up to date, or its claim's plan must act.
pub fn plan_volume(key: &ObjectKey, world: &World) -> Vec<Action> {
    let Some(volume) = world.volumes.get(key) else { return Vec::new() };
    let Some(reference) = claim_ref(volume) else { return set_phase(volume, VolumePhase::Available) };
    // Reserved by an admin, for a claim that has not taken it yet.
    let Some(uid) = ref_uid(reference) else { return set_phase(volume, VolumePhase::Available) };
    let claim = world.claims.get(&ref_key(reference));
    let Some(claim) = claim.filter(|claim| claim.metadata.uid.as_deref() == Some(uid)) else {
        return plan_released(volume, reference, world);
    };
    match volume_name(claim) {
        Some(bound) if bound == name(&**volume) => set_phase(volume, VolumePhase::Bound),
        Some(_) => plan_unwanted(volume),
        None if serves(volume, claim) == Err(Mismatch::VolumeMode) => {
            let message = "Cannot bind PersistentVolume to requested PersistentVolumeClaim due to incompatible \
                           volumeMode.";
            let event =
                |subject| Action::Event(subject, EventType::Warning, "VolumeMismatch", message.to_owned());
            vec![event(Subject::Volume(volume.clone())), event(Subject::Claim(claim.clone()))]
        }
        // The claim's plan finds this volume.
        None => Vec::new(),
    }
}

/// The claim is bound to another volume. A volume provisioned for the claim is of no use to other claims.
fn plan_unwanted(volume: &Volume) -> Vec<Action> {
    let made_for_claim = annotation(&**volume, PROVISIONED_BY).is_some();
    match reclaim_policy(volume) {
        Policy::Delete if made_for_claim => match volume_phase(volume) {
            "Released" | "Failed" => Vec::new(),
            _ => set_phase(volume, VolumePhase::Released),
        },
        Policy::Delete | Policy::Retain | Policy::Recycle | Policy::Unknown => {
            vec![Action::UnpointVolume(volume.clone())]
        }
    }
}

/// The claim was deleted.
fn plan_released(volume: &Volume, reference: &ObjectReference, world: &World) -> Vec<Action> {
    match volume_phase(volume) {
        "Failed" => Vec::new(),
        "Released" => plan_reclaim(volume),
        _ => {
            // An observed deletion of the claim needs no request to the API server.
            let seen = ref_uid(reference).is_some_and(|uid| world.claims.saw_deletion(uid));
            let absent = Absent::Claim(ref_key(reference), reference.uid.clone());
            let confirm = (!seen).then_some(Action::Confirm(absent));
            confirm.into_iter().chain(set_phase(volume, VolumePhase::Released)).collect()
        }
    }
}

/// Applies the reclaim policy. The provisioner deletes the volumes that it created; no component exists that
/// deletes others or scrubs them.
fn plan_reclaim(volume: &Volume) -> Vec<Action> {
    let (reason, message) = match reclaim_policy(volume) {
        Policy::Retain => return Vec::new(),
        Policy::Delete if annotation(&**volume, PROVISIONED_BY).is_some() => return Vec::new(),
        // Also one that an administrator made: its driver's provisioner deletes it (`findDeletablePlugin`).
        Policy::Delete if volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some()) => return Vec::new(),
        Policy::Delete => (
            "VolumeFailedDelete",
            "the volume was not made by a provisioner, so there is none to delete it: delete the storage by \
             hand, then this object",
        ),
        Policy::Recycle => (
            "VolumeFailedRecycle",
            "the reclaim policy Recycle is deprecated and not supported: use Delete with dynamic provisioning, \
             or Retain",
        ),
        Policy::Unknown => {
            ("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy")
        }
    };
    let event =
        Action::Event(Subject::Volume(volume.clone()), EventType::Warning, reason, message.to_owned());
    set_phase(volume, VolumePhase::Failed).into_iter().chain([event]).collect()
}

/// The reclaim policy of a volume after the deletion of its claim.
enum Policy {
    Retain,
    Delete,
    Recycle,
    Unknown,
}

fn reclaim_policy(volume: &PersistentVolume) -> Policy {
    let spec = volume.spec.as_ref();
    match spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) {
        None | Some("Retain") => Policy::Retain,
        Some("Delete") => Policy::Delete,
        Some("Recycle") => Policy::Recycle,
        Some(_) => Policy::Unknown,
    }
}

fn set_phase(volume: &Volume, phase: VolumePhase) -> Vec<Action> {
    if volume_phase(volume) == phase.name() {
        return Vec::new();
    }
    vec![Action::SetVolumePhase(volume.clone(), phase)]
}
