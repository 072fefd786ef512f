//! The requirements of a pod's claims for the node.
//!
//! Upstream: `PreFilter` and `GetPodVolumeClaims` in `pkg/scheduler/framework/plugins/volumebinding`.

use std::sync::Arc;

use claimcheck_informer::{PodClaim, World, key_of, pod_claims};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};

use crate::claims::{
    claim_phase, class_name, is_bound, is_deleting, is_owned_by, volume_name, waits_for_first_consumer,
};

/// The claims of a pod, by their requirements.
#[derive(Debug, Default)]
pub struct PodVolumes<'a> {
    /// Volumes of bound claims: the node must be able to access them.
    pub bound: Vec<&'a Arc<PersistentVolume>>,
    /// Claims with WaitForFirstConsumer, bound or provisioned for the node.
    pub unbound: Vec<UnboundClaim<'a>>,
}

/// An unbound WaitForFirstConsumer claim.
#[derive(Clone, Copy, Debug)]
pub struct UnboundClaim<'a> {
    /// The claim.
    pub claim: &'a Arc<PersistentVolumeClaim>,
    /// Its class.
    pub class: &'a StorageClass,
}

/// Why a pod has to wait, independent of the nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wait {
    /// A claim does not exist.
    #[error("persistentvolumeclaim \"{0}\" not found")]
    NotFound(String),
    /// The claim of a generic ephemeral volume does not exist yet.
    #[error("waiting for ephemeral volume controller to create the persistentvolumeclaim \"{0}\"")]
    NotMade(String),
    /// The name of an ephemeral volume's claim is in use. Using that claim would expose unrelated data to the
    /// pod.
    #[error("PVC {0} was not created for pod {1} (pod is not owner)")]
    NotOwned(String, String),
    /// A claim is being deleted.
    #[error("persistentvolumeclaim \"{0}\" is being deleted")]
    Deleted(String),
    /// A claim lost its volume.
    #[error("persistentvolumeclaim \"{claim}\" bound to non-existent persistentvolume \"{volume}\"")]
    Lost {
        /// The claim.
        claim: String,
        /// Its volume.
        volume: String,
    },
    /// A claim is not bound, independent of the pod.
    #[error("pod has unbound immediate PersistentVolumeClaims")]
    Unbound,
}

/// Classifies the claims of a pod.
pub fn pod_volumes<'a>(pod: &Pod, world: &'a World) -> Result<PodVolumes<'a>, Wait> {
    let mut volumes = PodVolumes::default();
    let mut unbound = false;
    for used in pod_claims(pod) {
        let claim = find(&used, world)?;
        if used.ephemeral && !is_owned_by(claim, pod) {
            return Err(Wait::NotOwned(used.claim.to_string(), key_of(pod).to_string()));
        }
        if is_bound(claim) {
            volumes.bound.push(bound_volume(claim, world)?);
            continue;
        }
        match world.classes.named(class_name(claim)) {
            // A claim that names its volume waits for that one only (`isPVCUnbound` upstream).
            Some(class) if waits_for_first_consumer(class) && volume_name(claim).is_none() => {
                volumes.unbound.push(UnboundClaim { claim, class });
            }
            Some(_) | None => unbound = true,
        }
    }
    // After the loop: a claim that is missing is the more specific reason.
    if unbound { Err(Wait::Unbound) } else { Ok(volumes) }
}

fn find<'a>(used: &PodClaim, world: &'a World) -> Result<&'a Arc<PersistentVolumeClaim>, Wait> {
    let name = || used.claim.name.clone();
    let Some(claim) = world.claims.get(&used.claim) else {
        return Err(if used.ephemeral { Wait::NotMade(name()) } else { Wait::NotFound(name()) });
    };
    if is_deleting(&**claim) {
        return Err(Wait::Deleted(name()));
    }
    if claim_phase(claim) == "Lost" {
        let volume = volume_name(claim).unwrap_or_default().to_owned();
        return Err(Wait::Lost { claim: name(), volume });
    }
    Ok(claim)
}

/// The volume of a bound claim. According to the claim it exists, so if it is missing in the cache it will
/// appear within moments.
fn bound_volume<'a>(
    claim: &PersistentVolumeClaim,
    world: &'a World,
) -> Result<&'a Arc<PersistentVolume>, Wait> {
    volume_name(claim).and_then(|name| world.volumes.named(name)).ok_or(Wait::Unbound)
}
