//! Chooses the best volume for a claim: one that is reserved for it, else the smallest free one that fits.
//!
//! Upstream: `component-helpers/storage/volume/pv_helpers.go`, `FindMatchingVolume`. The index of free
//! volumes is ordered by size, so that the search begins at the requested size and ends at the first fit.

use std::sync::Arc;

use claimcheck_informer::{VolumeBy, World, key_of};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::claims::{class_name, is_deleting, is_meant_for, matches, requested, serves};

/// A volume with a claimRef to the claim that can serve it. A volume with the claim's uid comes before one that
/// an admin reserved by name.
pub fn meant_for<'a>(claim: &PersistentVolumeClaim, world: &'a World) -> Option<&'a Arc<PersistentVolume>> {
    let candidates = world.volumes.by(VolumeBy::Claim, &key_of(claim).to_string());
    let usable = candidates.filter(|volume| {
        !is_deleting(&***volume) && is_meant_for(volume, claim) && serves(volume, claim).is_ok()
    });
    usable.min_by_key(|volume| {
        let has_uid = crate::claims::claim_ref(volume).and_then(crate::claims::ref_uid).is_some();
        (!has_uid, crate::claims::capacity(volume))
    })
}

/// The smallest free volume that fits, and that `also` accepts; among equals the first by name.
pub fn smallest<'a>(
    claim: &PersistentVolumeClaim,
    world: &'a World,
    also: impl Fn(&PersistentVolume) -> bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let mut large_enough = world.volumes.by_rank(VolumeBy::Available, class_name(claim), requested(claim));
    large_enough.find(|volume| matches(volume, claim).is_ok() && also(volume))
}
