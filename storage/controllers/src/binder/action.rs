//! The binder's actions, and their patches.

use std::sync::Arc;

use claimcheck_informer::{EventType, reference};
use claimcheck_model::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, ObjectKey, PRE_RESIZE_CAPACITY, STORAGE_PROVISIONER,
    STORAGE_PROVISIONER_BETA,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::claims::{annotation, claim_phase, claim_ref, volume_name};

/// A volume's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumePhase {
    /// Free for any claim, or reserved by name for one that does not exist yet.
    Available,
    /// Its claim is bound to it.
    Bound,
    /// Its claim was deleted.
    Released,
    /// Its reclaim policy could not be carried out.
    Failed,
}

impl VolumePhase {
    /// The value of `status.phase`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Bound => "Bound",
            Self::Released => "Released",
            Self::Failed => "Failed",
        }
    }
}

/// A precondition to verify with the API server before an action: the caches of the two kinds are not
/// consistent with each other, and these actions lose user data if they are wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// This claim does not exist (any more), or has another uid.
    Claim(ObjectKey, Option<String>),
    /// This volume does not exist.
    Volume(ObjectKey),
}

/// The object of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A claim.
    Claim(Arc<PersistentVolumeClaim>),
    /// A volume.
    Volume(Arc<PersistentVolume>),
}

/// An action of the binder.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Continue only if the object is indeed absent.
    Confirm(Absent),
    /// Set the volume's claimRef.
    PointVolume(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>),
    /// Clear the claimRef of a volume that points to a claim bound to another volume: wholly if the binder had
    /// set it, else only the uid, so that the admin's reservation stays.
    UnpointVolume(Arc<PersistentVolume>),
    /// Write the volume's phase.
    SetVolumePhase(Arc<PersistentVolume>, VolumePhase),
    /// Write the volume's phase as Failed, with this message.
    FailVolume(Arc<PersistentVolume>, String),
    /// Set the claim's volumeName.
    PointClaim(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>),
    /// Write the claim's status as Bound, with its capacity and access modes.
    SetClaimBound(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>),
    /// Write the claim's status as Pending.
    SetClaimPending(Arc<PersistentVolumeClaim>),
    /// Write the claim's status as Lost.
    SetClaimLost(Arc<PersistentVolumeClaim>),
    /// Request a volume from a provisioner.
    AskProvisioner(Arc<PersistentVolumeClaim>, String),
    /// Set the claim's class to the default class, which did not exist when the claim was created.
    AssignClass(Arc<PersistentVolumeClaim>, String),
    /// Emit an event.
    Event(Subject, EventType, &'static str, String),
}

/// A merge patch and its target.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The claim.
    Claim(Arc<PersistentVolumeClaim>, Value),
    /// The claim's status.
    ClaimStatus(Arc<PersistentVolumeClaim>, Value),
    /// The volume.
    Volume(Arc<PersistentVolume>, Value),
    /// The volume's status.
    VolumeStatus(Arc<PersistentVolume>, Value),
}

impl Action {
    /// The patch of the action; `None` for those that do not write to claim or volume.
    pub fn write(&self) -> Option<Write> {
        Some(match self {
            Self::Confirm(_) | Self::Event(..) => return None,
            Self::PointVolume(volume, claim) => Write::Volume(volume.clone(), point_volume(volume, claim)),
            Self::UnpointVolume(volume) => Write::Volume(volume.clone(), unpoint_volume(volume)),
            Self::SetVolumePhase(volume, phase) => {
                // This also clears the reason of an earlier failure.
                let status = json!({"phase": phase.name(), "message": null, "reason": null});
                Write::VolumeStatus(volume.clone(), status)
            }
            Self::FailVolume(volume, message) => {
                let status = json!({"phase": VolumePhase::Failed.name(), "message": message, "reason": null});
                Write::VolumeStatus(volume.clone(), status)
            }
            Self::PointClaim(claim, volume) => Write::Claim(claim.clone(), point_claim(claim, volume)),
            Self::SetClaimBound(claim, volume) => {
                Write::ClaimStatus(claim.clone(), bound_status(claim, volume))
            }
            // A claim that is not bound has nothing (`updateClaimStatus` in pv_controller.go).
            Self::SetClaimPending(claim) => Write::ClaimStatus(claim.clone(), unbound_status("Pending")),
            Self::SetClaimLost(claim) => Write::ClaimStatus(claim.clone(), unbound_status("Lost")),
            Self::AskProvisioner(claim, provisioner) => {
                let annotations =
                    json!({STORAGE_PROVISIONER: provisioner, STORAGE_PROVISIONER_BETA: provisioner});
                Write::Claim(claim.clone(), json!({"metadata": {"annotations": annotations}}))
            }
            Self::AssignClass(claim, class) => {
                Write::Claim(claim.clone(), json!({"spec": {"storageClassName": class}}))
            }
        })
    }
}

/// The patch that sets a volume's claimRef.
pub fn point_volume(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Value {
    let mut patch = json!({"spec": {"claimRef": reference(claim)}});
    if claim_ref(volume).is_none() {
        patch["metadata"] = json!({"annotations": {BOUND_BY_CONTROLLER: "yes"}});
    }
    patch
}

fn unpoint_volume(volume: &PersistentVolume) -> Value {
    if annotation(volume, BOUND_BY_CONTROLLER).is_some() {
        json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}, "spec": {"claimRef": null}})
    } else {
        json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}})
    }
}

fn point_claim(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Value {
    let mut patch = json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}});
    if volume_name(claim).is_none() {
        patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = json!("yes");
        patch["spec"] = json!({"volumeName": volume.metadata.name});
    }
    patch
}

fn bound_status(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Value {
    let spec = volume.spec.as_ref();
    let mut status =
        json!({"phase": "Bound", "accessModes": spec.and_then(|spec| spec.access_modes.as_ref())});
    // Only when it becomes bound: later the claim's capacity is the filesystem's, which the resizer and
    // the node write.
    if claim_phase(claim) != "Bound" {
        status["capacity"] = json!(spec.and_then(|spec| spec.capacity.as_ref()));
        // Its file system still has this size: resizer and node finish the expansion (`updateClaimStatus`).
        if let Some(size) = annotation(volume, PRE_RESIZE_CAPACITY) {
            status["capacity"]["storage"] = json!(size);
        }
        if let Some(class) = spec.and_then(|spec| spec.volume_attributes_class_name.as_ref()) {
            status["currentVolumeAttributesClassName"] = json!(class);
        }
    }
    status
}

fn unbound_status(phase: &str) -> Value {
    json!({
        "phase": phase, "accessModes": null, "capacity": null, "currentVolumeAttributesClassName": null,
    })
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;

    use super::*;

    #[test]
    fn a_claim_gets_the_size_that_the_file_system_has() {
        let mut claim = testing::claim("c", "fast", "2Gi");
        let mut volume = testing::volume("v", "fast", "2Gi");
        let storage = |claim: &_, volume: &_| bound_status(claim, volume)["capacity"]["storage"].clone();
        assert_eq!(storage(&claim, &volume), "2Gi");
        testing::annotate(&mut volume.metadata, PRE_RESIZE_CAPACITY, "1Gi");
        assert_eq!(storage(&claim, &volume), "1Gi", "still to be grown on its node");
        claim.status.get_or_insert_default().phase = Some("Bound".into());
        assert_eq!(storage(&claim, &volume), Value::Null, "the resizer's business once it is bound");
    }
}
