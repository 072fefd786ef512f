//! Decides the next step for a volume: its phase, and its reclaim policy when its claim was deleted.
//!
//! Upstream: `syncVolume` and `reclaimVolume` in
//! `pkg/controller/volume/persistentvolume/pv_controller.go`.

use std::sync::Arc;

use claimcheck_informer::{EventType, World};
use claimcheck_model::{MIGRATED_TO, ObjectKey, PROVISIONED_BY};
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
        Some(_) => plan_unused(volume),
        None if serves(volume, claim) == Err(Mismatch::VolumeMode) => {
            let of_volume = format!(
                "Cannot bind PersistentVolume to requested PersistentVolumeClaim \"{}\" due to incompatible \
                 volumeMode.",
                name(&**claim)
            );
            let of_claim = format!(
                "Cannot bind PersistentVolume \"{}\" to requested PersistentVolumeClaim due to incompatible \
                 volumeMode.",
                name(&**volume)
            );
            let event =
                |subject, message| Action::Event(subject, EventType::Warning, "VolumeMismatch", message);
            vec![
                event(Subject::Volume(volume.clone()), of_volume),
                event(Subject::Claim(claim.clone()), of_claim),
            ]
        }
        // The claim's plan finds this volume.
        None => Vec::new(),
    }
}

/// The claim is bound to another volume. A volume provisioned for the claim is of no use to other claims.
fn plan_unused(volume: &Volume) -> Vec<Action> {
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
        Policy::Delete if annotation(&**volume, MIGRATED_TO).is_some() => return Vec::new(),
        Policy::Delete => ("VolumeFailedDelete", undeletable(volume)),
        Policy::Recycle => ("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned()),
        Policy::Unknown => {
            let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
            ("VolumeUnknownReclaimPolicy", message.to_owned())
        }
    };
    let failed = Action::FailVolume(volume.clone(), message.clone());
    vec![failed, Action::Event(Subject::Volume(volume.clone()), EventType::Warning, reason, message)]
}

/// Why no plugin deletes the volume. Of the in-tree plugins that can scrub or delete volumes, only those for NFS and
/// hostPath are left upstream (`ProbeProvisionableRecyclableVolumePlugins`).
fn undeletable(volume: &Volume) -> String {
    let has_plugin = volume.spec.as_ref().is_some_and(|spec| spec.nfs.is_some() || spec.host_path.is_some());
    let cause = if has_plugin { "no deletable volume plugin matched" } else { "no volume plugin matched" };
    format!("error getting deleter volume plugin for volume \"{}\": {cause}", name(&**volume))
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
