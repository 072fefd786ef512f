//! The desired state of world: the nodes on which pods use a volume.
//!
//! Upstream: `pkg/controller/volume/attachdetach/util/util.go` and `populator/`.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::{PodBy, World, is_terminal, pod_claims};
use k8s_openapi::api::core::v1::{ContainerStatus, Node, PersistentVolumeClaim, Pod};

use super::volume::CsiVolume;

/// On a Node: volumes of ended pods stay attached (kubelet's `--keep-terminated-pod-volumes`).
const KEEP_TERMINATED: &str = "volumes.kubernetes.io/keep-terminated-pod-volumes";

/// The users of a volume.
#[derive(Debug, Default)]
pub struct Desired {
    /// The pods that keep the volume attached, by node. Never an empty list.
    pub pods: BTreeMap<String, Vec<Arc<Pod>>>,
    /// By node: the volume to attach, if its pods' claims are bound. A claim that was deleted under a running
    /// pod keeps an existing attachment, but causes no new one.
    pub sources: BTreeMap<String, String>,
}

impl Desired {
    /// The users of one volume of the driver, by whichever of these objects they use it.
    pub fn of_all(volumes: &[CsiVolume<'_>], world: &World) -> Self {
        let mut all = Self::default();
        for volume in volumes {
            let one = Self::of(volume, world);
            for (node, pods) in one.pods {
                all.pods.entry(node).or_default().extend(pods);
            }
            for (node, source) in one.sources {
                all.sources.entry(node).or_insert(source);
            }
        }
        all
    }

    /// The users of a volume by this object of it.
    pub fn of(volume: &CsiVolume<'_>, world: &World) -> Self {
        let Some(key) = volume.claim_key() else { return Self::default() };
        let claim = world.claims.get(&key);
        let claim_uid = volume.claim.and_then(|claim| claim.uid.as_ref());
        if claim.is_some_and(|claim| claim.metadata.uid.as_ref() != claim_uid) {
            // The name is another claim's now, and so are the pods that use it.
            return Self::default();
        }
        let bound = claim.is_some_and(|claim| is_bound(claim, volume.name));
        let mut desired = Self::default();
        for pod in world.pods.by(PodBy::Claim, &key.to_string()) {
            let Some(node) = node_of(pod) else { continue };
            let keeps = world.nodes.named(node).is_some_and(|node| keeps_terminated(node));
            let ephemeral = pod_claims(pod).any(|used| used.claim == key && used.ephemeral);
            let foreign = ephemeral && claim.is_some_and(|claim| !is_owned_by(claim, pod));
            if (keeps || !is_terminated(pod)) && !foreign {
                desired.pods.entry(node.to_owned()).or_default().push(pod.clone());
            }
        }
        if bound {
            let nodes = desired.pods.keys().cloned();
            desired.sources = nodes.map(|node| (node, volume.name.to_owned())).collect();
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

/// Whether the claim of a generic ephemeral volume belongs to the pod; an unrelated claim with the same name
/// must not be used. Upstream: `VolumeIsForPod` in component-helpers.
fn is_owned_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref())
}

/// Whether the pod's containers have ended. One that is being deleted counts as ended as soon as none runs;
/// `volumesInUse` shows whether its volumes are unmounted. Upstream: `IsPodTerminated` in
/// `pkg/volume/util/util.go`.
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
