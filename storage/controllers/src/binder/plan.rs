//! Decides the next step for a claim.
//!
//! Upstream: `syncClaim`, `syncUnboundClaim`, `syncBoundClaim` and `provisionClaim` in
//! `pkg/controller/volume/persistentvolume/pv_controller.go`.

use std::{sync::Arc, time::Duration};

use claimcheck_informer::{EventType, PodBy, World, is_terminal, key_of};
use claimcheck_model::{BIND_COMPLETED, ObjectKey, STORAGE_PROVISIONER};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};

use super::{
    action::{Absent, Action, Subject, VolumePhase},
    fit,
};
use crate::{
    claims::{
        annotation, claim_phase, claim_ref, class_name, default_class, is_deleting, is_meant_for,
        lacks_class, name, ref_uid, satisfies, selected_node, volume_name, volume_phase,
        waits_for_first_consumer,
    },
    migration::migrated_to,
};

/// How long a pod that was created after its claim may be without a node before the claim's events name it: no event, and
/// so no write, for pods that are scheduled at once. Upstream emits it at each resync: `--pvclaimbinder-sync-period`.
const SCHEDULING: SignedDuration = SignedDuration::from_secs(15);

type Claim = Arc<PersistentVolumeClaim>;
type Volume = Arc<PersistentVolume>;

/// The next steps for a claim; none if it is up to date, or waits for another component.
pub fn plan_claim(key: &ObjectKey, world: &World) -> Vec<Action> {
    let Some(claim) = world.claims.get(key) else { return Vec::new() };
    if annotation(&**claim, BIND_COMPLETED).is_some() {
        return plan_completed(claim, world);
    }
    match volume_name(claim) {
        Some(expected) => plan_requested(claim, expected, world),
        // A claim that is being deleted needs no volume. One that is half bound needs no more either: its
        // volume becomes Released with the claim's end.
        None if is_deleting(&**claim) => Vec::new(),
        None => plan_open(claim, world),
    }
}

/// A claim that was bound before.
fn plan_completed(claim: &Claim, world: &World) -> Vec<Action> {
    let Some(volume_name) = volume_name(claim) else {
        let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return lost(claim, None, "ClaimLost", message);
    };
    let Some(volume) = world.volumes.named(volume_name) else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lost(claim, Some(Absent::Volume(ObjectKey::cluster(volume_name))), "ClaimLost", message);
    };
    match claim_ref(volume) {
        None => bind(claim, volume),
        // A reservation by name, without a uid, is not for a claim that was bound before (`syncBoundClaim`).
        Some(reference) if ref_uid(reference) == claim.metadata.uid.as_deref() => bind(claim, volume),
        Some(_) => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            lost(claim, None, "ClaimMisbound", message)
        }
    }
}

/// A claim with a user-provided volumeName.
fn plan_requested(claim: &Claim, expected: &str, world: &World) -> Vec<Action> {
    let Some(volume) = world.volumes.named(expected) else { return pending(claim) };
    if is_meant_for(volume, claim) {
        return bind(claim, volume);
    }
    if claim_ref(volume).is_some() {
        let message = format!("volume \"{expected}\" already bound to a different claim.");
        return with_event(pending(claim), claim, EventType::Warning, "FailedBinding", message);
    }
    if is_deleting(&**volume) {
        let message = format!(
            "Cannot bind to requested volume \"{expected}\": the volume is marked for deletion \"{expected}\""
        );
        return with_event(pending(claim), claim, EventType::Warning, "VolumeMismatch", message);
    }
    match satisfies(volume, claim) {
        Ok(()) => bind(claim, volume),
        Err(mismatch) => {
            let message = format!("Cannot bind to requested volume \"{expected}\": {mismatch}");
            with_event(pending(claim), claim, EventType::Warning, "VolumeMismatch", message)
        }
    }
}

/// A claim without volumeName: any volume that fits.
fn plan_open(claim: &Claim, world: &World) -> Vec<Action> {
    let class = Some(class_name(claim)).filter(|name| !name.is_empty());
    let known = class.and_then(|name| world.classes.named(name));
    let late = known.is_some_and(|class| waits_for_first_consumer(class));
    // Under late binding only the scheduler knows which of the free volumes the pod can reach.
    let found = if late { fit::meant_for(claim, world) } else { fit::best(claim, world) };
    if let Some(volume) = found {
        return bind(claim, volume);
    }
    match (class, known) {
        (None, _) => plan_classless(claim, world),
        (Some(_), Some(_)) if late && selected_node(claim).is_none() => wait_for_pod(claim, world),
        (Some(_), Some(class)) => plan_provisioning(claim, class),
        (Some(name), None) => {
            let message = format!("storageclass.storage.k8s.io \"{name}\" not found");
            with_event(pending(claim), claim, EventType::Warning, "ProvisioningFailed", message)
        }
    }
}

/// No volume fits, and the claim has no class to provision one. A claim without a class gets the default one as
/// soon as it exists (KEP-3333).
fn plan_classless(claim: &Claim, world: &World) -> Vec<Action> {
    if lacks_class(claim)
        && let Some(class) = default_class(world)
    {
        return vec![Action::AssignClass(claim.clone(), name(class).to_owned())];
    }
    let message = "no persistent volumes available for this claim and no storage class is set";
    with_event(pending(claim), claim, EventType::Normal, "FailedBinding", message.to_owned())
}

/// A claim that has got another pod: its event, once it has waited so long that no pod is just being scheduled; and when to
/// plan it again.
pub fn plan_consumer(key: &ObjectKey, world: &World, now: Timestamp) -> (Vec<Action>, Option<Duration>) {
    let nothing = (Vec::new(), None);
    let waiting = world.claims.get(key).filter(|claim| waits_for_pod(claim, world));
    let Some(claim) = waiting else { return nothing };
    let created =
        unscheduled(claim, world).filter_map(|pod| Some(pod.metadata.creation_timestamp.as_ref()?.0));
    let Some(oldest) = created.min() else { return nothing };
    // The clock of the API server may be ahead.
    let left = (SCHEDULING - now.duration_since(oldest)).min(SCHEDULING);
    match Duration::try_from(left) {
        Ok(left) if !left.is_zero() => (Vec::new(), Some(left)),
        Ok(_) | Err(_) => (wait_for_pod(claim, world), None),
    }
}

/// Whether the scheduler is to select a node for the claim.
fn waits_for_pod(claim: &PersistentVolumeClaim, world: &World) -> bool {
    let is_open = annotation(claim, BIND_COMPLETED).is_none() && volume_name(claim).is_none();
    is_open
        && !is_deleting(claim)
        && selected_node(claim).is_none()
        && world.classes.named(class_name(claim)).is_some_and(|class| waits_for_first_consumer(class))
        && fit::meant_for(claim, world).is_none()
}

/// Whether the pod waits for the scheduler.
pub fn is_unscheduled(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    node.is_empty() && !is_terminal(pod) && !is_deleting(pod)
}

/// The pods of a claim that wait for the scheduler. Upstream: `findNonScheduledPodsByPVC`.
fn unscheduled<'w>(claim: &PersistentVolumeClaim, world: &'w World) -> impl Iterator<Item = &'w Arc<Pod>> {
    world.pods.by(PodBy::Claim, &key_of(claim).to_string()).filter(|pod| is_unscheduled(pod))
}

/// The scheduler has not selected a node yet. Upstream: `emitEventForUnboundDelayBindingClaim`.
fn wait_for_pod(claim: &Claim, world: &World) -> Vec<Action> {
    let names: Vec<&str> = unscheduled(claim, world).map(|pod| name(&**pod)).collect();
    let (reason, message) = match names[..] {
        [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
        [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        _ => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", names.join(","))),
    };
    with_event(pending(claim), claim, EventType::Normal, reason, message)
}

/// Requests a volume from the class's provisioner, once.
fn plan_provisioning(claim: &Claim, class: &StorageClass) -> Vec<Action> {
    let provisioner = &class.provisioner;
    if provisioner == "kubernetes.io/no-provisioner" {
        let message = format!("no volume plugin matched name: {provisioner}");
        return with_event(pending(claim), claim, EventType::Warning, "ProvisioningFailed", message);
    }
    if let Some(driver) = migrated_to(provisioner) {
        let message = format!(
            "class \"{}\" has the in-tree provisioner {provisioner}, which claimcheck does not support: use a class with \
             provisioner {driver}, or the stock controllers",
            name(class)
        );
        return with_event(pending(claim), claim, EventType::Warning, "ProvisioningFailed", message);
    }
    if annotation(&**claim, STORAGE_PROVISIONER) == Some(provisioner) {
        return pending(claim);
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
         the system administrator. If volume creation is delayed, please verify that the provisioner is \
         running and correctly registered."
    );
    let ask = vec![Action::AskProvisioner(claim.clone(), provisioner.clone())];
    with_event(ask, claim, EventType::Normal, "ExternalProvisioning", message)
}

/// The first missing step of a binding.
fn bind(claim: &Claim, volume: &Volume) -> Vec<Action> {
    let pointed = claim_ref(volume).is_some_and(|reference| {
        is_meant_for(volume, claim) && ref_uid(reference) == claim.metadata.uid.as_deref()
    });
    let completed = annotation(&**claim, BIND_COMPLETED).is_some() && volume_name(claim).is_some();
    let status_modes = claim.status.as_ref().and_then(|status| status.access_modes.as_ref());
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
    if !pointed {
        vec![Action::PointVolume(volume.clone(), claim.clone())]
    } else if volume_phase(volume) != VolumePhase::Bound.name() {
        vec![Action::SetVolumePhase(volume.clone(), VolumePhase::Bound)]
    } else if !completed {
        vec![Action::PointClaim(claim.clone(), volume.clone())]
    } else if claim_phase(claim) != "Bound" || status_modes != modes {
        vec![Action::SetClaimBound(claim.clone(), volume.clone())]
    } else {
        Vec::new()
    }
}

/// Sets the claim's phase to Pending.
fn pending(claim: &Claim) -> Vec<Action> {
    match claim_phase(claim) {
        "Pending" => Vec::new(),
        _ => vec![Action::SetClaimPending(claim.clone())],
    }
}

/// The claim's data is lost, once `absent` is confirmed.
fn lost(claim: &Claim, absent: Option<Absent>, reason: &'static str, message: &str) -> Vec<Action> {
    if claim_phase(claim) == "Lost" {
        return Vec::new();
    }
    let confirm = absent.map(Action::Confirm);
    let actions = confirm.into_iter().chain([Action::SetClaimLost(claim.clone())]).collect();
    with_event(actions, claim, EventType::Warning, reason, message.to_owned())
}

fn with_event(
    mut actions: Vec<Action>,
    claim: &Claim,
    event_type: EventType,
    reason: &'static str,
    message: String,
) -> Vec<Action> {
    actions.push(Action::Event(Subject::Claim(claim.clone()), event_type, reason, message));
    actions
}
