//! The binder's steps, and the patches that they are.

use std::sync::Arc;

use claimcheck_informer::{EventType, reference};
use claimcheck_model::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, ObjectKey, STORAGE_PROVISIONER, STORAGE_PROVISIONER_BETA,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::claims::{annotation, claim_phase, claim_ref, volume_name};

/// A phase that the binder gives a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumePhase {
    /// Free for a claim, or reserved by name for one that does not exist yet.
    Available,
    /// Its claim is bound to it.
    Bound,
    /// Its claim is gone.
    Released,
    /// What its reclaim policy asks for cannot be done.
    Failed,
}

impl VolumePhase {
    /// As in `status.phase`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Bound => "Bound",
            Self::Released => "Released",
            Self::Failed => "Failed",
        }
    }
}

/// What an object must be made sure of before a step, by asking the API server: the caches of the two
/// kinds are not of the same moment, and these steps cost a user data if taken wrongly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// This claim does not exist (any more), or is another one than that of this uid.
    Claim(ObjectKey, Option<String>),
    /// This volume does not exist.
    Volume(ObjectKey),
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A claim.
    Claim(Arc<PersistentVolumeClaim>),
    /// A volume.
    Volume(Arc<PersistentVolume>),
}

/// A step of the binder.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Goes on only if the object is indeed absent.
    Confirm(Absent),
    /// Points the volume to the claim.
    PointVolume(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>),
    /// Takes the volume back from a claim that is bound to another one: wholly if the binder had pointed
    /// it there, else only the uid, so that the admin's reservation stands.
    UnpointVolume(Arc<PersistentVolume>),
    /// Writes the volume's phase.
    SetVolumePhase(Arc<PersistentVolume>, VolumePhase),
    /// Points the claim to the volume.
    PointClaim(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>),
    /// Writes that the claim is bound, and what it got.
    SetClaimBound(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>),
    /// Writes that the claim is not bound.
    SetClaimPending(Arc<PersistentVolumeClaim>),
    /// Writes that the claim's volume is lost.
    SetClaimLost(Arc<PersistentVolumeClaim>),
    /// Asks a provisioner for a volume.
    AskProvisioner(Arc<PersistentVolumeClaim>, String),
    /// Gives the claim the default class, which was not there when it was created.
    AssignClass(Arc<PersistentVolumeClaim>, String),
    /// Records an event.
    Event(Subject, EventType, &'static str, String),
}

/// A merge patch, and what it goes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The claim itself.
    Claim(Arc<PersistentVolumeClaim>, Value),
    /// The claim's status.
    ClaimStatus(Arc<PersistentVolumeClaim>, Value),
    /// The volume itself.
    Volume(Arc<PersistentVolume>, Value),
    /// The volume's status.
    VolumeStatus(Arc<PersistentVolume>, Value),
}

impl Action {
    /// The patch that carries out the step; none for those that write nothing to claim or volume.
    pub fn write(&self) -> Option<Write> {
        Some(match self {
            Self::Confirm(_) | Self::Event(..) => return None,
            Self::PointVolume(volume, claim) => Write::Volume(volume.clone(), point_volume(volume, claim)),
            Self::UnpointVolume(volume) => Write::Volume(volume.clone(), unpoint_volume(volume)),
            Self::SetVolumePhase(volume, phase) => {
                // The reason of an earlier failure goes with it.
                let status = json!({"phase": phase.name(), "message": null, "reason": null});
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

/// The patch that points a volume to a claim.
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
        if let Some(class) = spec.and_then(|spec| spec.volume_attributes_class_name.as_ref()) {
            status["currentVolumeAttributesClassName"] = json!(class);
        }
    }
    status
}

fn unbound_status(phase: &str) -> Value {
    json!({"phase": phase, "accessModes": null, "capacity": null})
}
