//! The desired state of world: the nodes on which pods use a volume.
//!
//! Upstream: `pkg/controller/volume/attachdetach/util/util.go` and `populator/`.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::{ClaimBy, PodBy, World, is_terminal, key_of, pod_claims};
use claimcheck_model::{KEEP_TERMINATED_POD_VOLUMES, ObjectKey};
use k8s_openapi::api::core::v1::{ContainerStatus, Node, ObjectReference, PersistentVolumeClaim, Pod};

use super::volume::CsiVolume;
use crate::claims::{is_owned_by, ref_key};

/// The users of a volume.
#[derive(Debug, Default)]
pub struct Desired {
    /// The pods that keep the volume attached, by node. Never an empty list.
    pub pods: BTreeMap<String, Vec<Arc<Pod>>>,
    /// By node: the name of the volume to attach, if its pods' claims are bound: of the PersistentVolume, or of the
    /// pod's volume if that contains its source. A claim that was deleted under a running pod keeps an existing
    /// attachment, but causes no new one.
    pub sources: BTreeMap<String, String>,
}

impl Desired {
    /// The users of one volume of the driver, by whichever of these objects they use it.
    pub fn from_volumes(volumes: &[CsiVolume<'_>], world: &World) -> Self {
        let mut all = Self::default();
        for volume in volumes {
            all.extend(Self::of(volume.name, volume.claim, world));
        }
        all
    }

    /// The users of a volume by its object with this name and claimRef.
    pub fn of(volume: &str, claim_ref: Option<&ObjectReference>, world: &World) -> Self {
        let mut desired = Self::default();
        let Some(claim_ref) = claim_ref else { return desired };
        let key = ref_key(claim_ref);
        let claim = world.claims.get(&key);
        if claim.is_some_and(|claim| claim.metadata.uid != claim_ref.uid) {
            // The name is another claim's now, and so are the pods that use it.
            return desired;
        }
        desired.add_users(&key, claim, world);
        if claim.is_some_and(|claim| is_bound(claim, volume)) {
            let nodes = desired.pods.keys().cloned();
            desired.sources = nodes.map(|node| (node, volume.to_owned())).collect();
        }
        desired
    }

    /// The users of a volume with a deleted object: the pods of the claims that still name it. They keep an
    /// existing attachment, but cause no new one.
    pub fn from_missing_volume(volume: &str, world: &World) -> Self {
        let mut desired = Self::default();
        for claim in world.claims.by(ClaimBy::Volume, volume) {
            desired.add_users(&key_of(&**claim), Some(claim), world);
        }
        desired
    }

    /// Adds the users of the volume by another of its objects.
    pub fn extend(&mut self, other: Self) {
        for (node, pods) in other.pods {
            self.pods.entry(node).or_default().extend(pods);
        }
        for (node, source) in other.sources {
            self.sources.entry(node).or_insert(source);
        }
    }

    /// Adds a pod that uses the volume, if it keeps it attached. Returns its node then.
    pub fn add<'p>(&mut self, pod: &'p Arc<Pod>, world: &World) -> Option<&'p str> {
        let node = node_of(pod)?;
        let keeps = world.nodes.named(node).is_some_and(|node| keeps_terminated(node));
        if !keeps && is_terminated(pod) {
            return None;
        }
        self.pods.entry(node.to_owned()).or_default().push(pod.clone());
        Some(node)
    }

    fn add_users(&mut self, key: &ObjectKey, claim: Option<&Arc<PersistentVolumeClaim>>, world: &World) {
        for pod in world.pods.by(PodBy::Claim, &key.to_string()) {
            let ephemeral = pod_claims(pod).any(|used| used.claim == *key && used.ephemeral);
            let foreign = ephemeral && claim.is_some_and(|claim| !is_owned_by(claim, pod));
            if !foreign {
                self.add(pod, world);
            }
        }
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
    annotations.and_then(|all| all.get(KEEP_TERMINATED_POD_VOLUMES)).is_some_and(|value| value == "true")
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
