//! What a pod's claims ask of the node.
//!
//! Upstream: `PreFilter` and `GetPodVolumeClaims` in `pkg/scheduler/framework/plugins/volumebinding`.

use std::sync::Arc;

use claimcheck_informer::{PodClaim, World, key_of, pod_claims};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};

use crate::claims::{binds_late, claim_phase, class_name, is_bound, is_deleting, is_owned_by, volume_name};

/// The claims of a pod, by what they ask of its node.
#[derive(Debug, Default)]
pub struct PodVolumes<'a> {
    /// Of claims that are bound: the node must reach them.
    pub bound: Vec<&'a Arc<PersistentVolume>>,
    /// Claims whose volume is chosen, or made, for the node.
    pub late: Vec<Late<'a>>,
}

/// A claim that binds late and is not bound yet.
#[derive(Clone, Copy, Debug)]
pub struct Late<'a> {
    /// The claim.
    pub claim: &'a Arc<PersistentVolumeClaim>,
    /// Its class.
    pub class: &'a StorageClass,
}

/// Why a pod has to wait, whatever the nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wait {
    /// A claim does not exist.
    #[error("persistentvolumeclaim \"{0}\" not found")]
    NotFound(String),
    /// The claim of a generic ephemeral volume has not been made yet.
    #[error("waiting for ephemeral volume controller to create the persistentvolumeclaim \"{0}\"")]
    NotMade(String),
    /// The name of an ephemeral volume's claim is taken. Using that would give the pod somebody's data.
    #[error("PVC {0} was not created for pod {1} (pod is not owner)")]
    NotOwned(String, String),
    /// A claim is going away.
    #[error("persistentvolumeclaim \"{0}\" is being deleted")]
    Deleted(String),
    /// A claim lost its volume.
    #[error("persistentvolumeclaim \"{claim}\" bound to non-existent persistentvolume \"{volume}\"")]
    Lost {
        /// The claim.
        claim: String,
        /// What it is bound to.
        volume: String,
    },
    /// A claim is not bound, and that does not hang on the pod.
    #[error("pod has unbound immediate PersistentVolumeClaims")]
    Unbound,
}

/// Sorts the claims of a pod.
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
            Some(class) if binds_late(class) && volume_name(claim).is_none() => {
                volumes.late.push(Late { claim, class });
            }
            Some(_) | None => unbound = true,
        }
    }
    // After the loop: a claim that is missing is the more telling reason.
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

/// The volume of a bound claim. The claim says it exists, so if the cache does not have it yet that is a
/// matter of moments.
fn bound_volume<'a>(
    claim: &PersistentVolumeClaim,
    world: &'a World,
) -> Result<&'a Arc<PersistentVolume>, Wait> {
    volume_name(claim).and_then(|name| world.volumes.named(name)).ok_or(Wait::Unbound)
}
