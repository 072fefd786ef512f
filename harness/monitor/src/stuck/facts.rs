//! Questions about single objects and their neighbours.

use std::sync::Arc;

use claimcheck_informer::{is_terminal, key_of, pod_claims};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerState, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::inventory::Inventory;

/// The volume that a claim refers to, or that refers to it.
pub(super) fn volume_of(world: &Inventory, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    if let Some(volume) = world.volumes.named(name) {
        return Some(volume);
    }
    let uid = claim.metadata.uid.as_deref();
    let key = key_of(claim).to_string();
    let mut volumes = world.volumes.referring_to(&key);
    volumes.find(|volume| {
        let of = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        of.is_some_and(|of| of.uid.is_none() || of.uid.as_deref() == uid)
    })
}

/// The pods that use a claim and have not ended.
pub(super) fn pods_of<'a>(
    world: &'a Inventory,
    claim: &ObjectKey,
) -> impl Iterator<Item = Arc<Pod>> + use<'a> {
    world.pods.referring_to(&claim.to_string()).filter(|pod| !is_terminal(pod))
}

/// The pods that hold a claim that is being deleted: those on a node, whatever their phase, since volumes of a pod that has
/// ended may still be mounted. The claim of a generic ephemeral volume is deleted with its pod. Upstream: `podUsesPVC` in
/// `pkg/controller/volume/pvcprotection/pvc_protection_controller.go`.
pub(super) fn holders<'a>(
    world: &'a Inventory,
    claim: &'a ObjectKey,
) -> impl Iterator<Item = Arc<Pod>> + use<'a> {
    world.pods.referring_to(&claim.to_string()).filter(move |pod| {
        let mut used = pod_claims(pod).filter(|used| used.claim == *claim);
        node_of(pod).is_some() && used.any(|used| !(used.ephemeral && is_shut_down(pod)))
    })
}

/// Whether the node has finished a pod that is being deleted, or it was deleted by force: `podIsShutDown`, there.
pub(super) fn is_shut_down(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// The node of a pod, if it is scheduled.
pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The driver of a CSI volume.
pub(super) fn csi_driver(volume: &PersistentVolume) -> Option<&str> {
    Some(volume.spec.as_ref()?.csi.as_ref()?.driver.as_str())
}

/// What a node that is not ready reports, as a text; none for one that is ready. One that does not exist is not ready.
pub(super) fn not_ready(name: &str, node: Option<&Arc<Node>>) -> Option<String> {
    let Some(node) = node else { return Some(format!("node {name} does not exist")) };
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let Some(ready) = conditions.find(|condition| condition.type_ == "Ready") else {
        return Some(format!("node {name} has not reported whether it is ready"));
    };
    if ready.status == "True" {
        return None;
    }
    let details = [ready.reason.as_deref(), ready.message.as_deref()].into_iter().flatten();
    let details: Vec<&str> = details.filter(|text| !text.is_empty()).collect();
    let since = ready.last_transition_time.as_ref().map(|time| format!(" since {}", time.0));
    let (status, since) = (&ready.status, since.unwrap_or_default());
    let state = format!("node {name} has Ready={status}{since}");
    Some(if details.is_empty() { state } else { format!("{state}: {}", details.join(": ")) })
}

/// The condition of this type.
pub(super) fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == name)
}

/// Whether the volumes are mounted: its sandbox exists (`PodReadyToStartContainers`), or a container has started.
pub(super) fn is_started(pod: &Pod) -> bool {
    let ready = condition(pod, "PodReadyToStartContainers").is_some_and(|found| found.status == "True");
    ready || states(pod).any(|state| state.running.is_some() || state.terminated.is_some())
}

/// Whether a container runs.
pub(super) fn is_running(pod: &Pod) -> bool {
    states(pod).any(|state| state.running.is_some())
}

fn states(pod: &Pod) -> impl Iterator<Item = &ContainerState> {
    let statuses = pod.status.iter().flat_map(|status| {
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
    });
    statuses.filter_map(|status| status.state.as_ref())
}

/// The time of an optional field.
pub(super) fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}
