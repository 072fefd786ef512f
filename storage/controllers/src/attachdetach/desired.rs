//! The desired state of world: on which nodes pods want a volume.
//!
//! Upstream: `pkg/controller/volume/attachdetach/util/util.go` and `populator/`.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::{PodBy, World, is_terminal, pod_claims};
use k8s_openapi::api::core::v1::{ContainerStatus, Node, PersistentVolumeClaim, Pod};

use super::volume::CsiVolume;

/// On a node: volumes of ended pods stay attached (kubelet's `--keep-terminated-pod-volumes`).
const KEEP_TERMINATED: &str = "volumes.kubernetes.io/keep-terminated-pod-volumes";

/// Who wants a volume.
#[derive(Debug, Default)]
pub struct Desired {
    /// The pods that keep the volume where it is, by node. Never an empty list.
    pub pods: BTreeMap<String, Vec<Arc<Pod>>>,
    /// Claim and volume are bound to each other, so that the volume may be attached anew. A claim that
    /// vanished under a running pod takes nothing away from it, but brings nothing either.
    pub bound: bool,
}

impl Desired {
    pub fn of(volume: &CsiVolume<'_>, world: &World) -> Self {
        let Some(key) = volume.claim_key() else { return Self::default() };
        let claim = world.claims.get(&key);
        let claim_uid = volume.claim.and_then(|claim| claim.uid.as_ref());
        if claim.is_some_and(|claim| claim.metadata.uid.as_ref() != claim_uid) {
            // The name is another claim's now, and so are the pods that use it.
            return Self::default();
        }
        let mut desired =
            Self { pods: BTreeMap::new(), bound: claim.is_some_and(|claim| is_bound(claim, volume.name)) };
        for pod in world.pods.by(PodBy::Claim, &key.to_string()) {
            let Some(node) = node_of(pod) else { continue };
            let keeps = world.nodes.named(node).is_some_and(|node| keeps_terminated(node));
            let ephemeral = pod_claims(pod).any(|used| used.claim == key && used.ephemeral);
            let foreign = ephemeral && claim.is_some_and(|claim| !is_owned_by(claim, pod));
            if (keeps || !is_terminated(pod)) && !foreign {
                desired.pods.entry(node.to_owned()).or_default().push(pod.clone());
            }
        }
        desired
    }
}

/// The node that a pod was scheduled to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

fn is_bound(claim: &PersistentVolumeClaim, volume: &str) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    phase == Some("Bound") && name == Some(volume)
}

fn keeps_terminated(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(KEEP_TERMINATED)).is_some_and(|value| value == "true")
}

/// A claim of a generic ephemeral volume belongs to the pod it was made for; one of the same name that
/// somebody else made is not to be touched. Upstream: `VolumeIsForPod` in component-helpers.
fn is_owned_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref())
}

/// Whether the pod's containers run no more. One that is being deleted counts as ended as soon as none
/// runs; whether its volumes are unmounted is for `volumesInUse` to say.
/// Upstream: `IsPodTerminated` in `pkg/volume/util/util.go`.
fn is_terminated(pod: &Pod) -> bool {
    let running = |statuses: &Option<Vec<ContainerStatus>>| {
        statuses.iter().flatten().any(|container| {
            let state = container.state.as_ref();
            state.is_none_or(|state| state.terminated.is_none() && state.waiting.is_none())
        })
    };
    let any_running = pod.status.as_ref().is_some_and(|status| {
        running(&status.init_container_statuses)
            || running(&status.container_statuses)
            || running(&status.ephemeral_container_statuses)
    });
    is_terminal(pod) || (pod.metadata.deletion_timestamp.is_some() && !any_running)
}
