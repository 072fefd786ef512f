//! Chooses the best volume for a claim: one that is reserved for it, else the binder the closest free one that fits,
//! and the scheduler the smallest.
//!
//! Upstream: `component-helpers/storage/volume/pv_helpers.go`, `FindMatchingVolume`. The indexes of free
//! volumes are ordered by size, so that the search begins at the requested size and ends at the first fit.

use std::sync::Arc;

use claimcheck_informer::{VolumeBy, World, accessible_from, available_with, key_of};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};

use crate::{
    claims::{capacity, class_name, is_deleting, is_meant_for, matches, name, requested, serves},
    selector::reaches,
};

/// The volume that the binder takes: one with as few access modes as possible, and of those with equally many the one
/// that is [meant for](meant_for) the claim. Upstream: `findByClaim` in `pkg/controller/volume/persistentvolume/index.go`,
/// which looks for both among the volumes with one set of access modes after the other.
pub fn best<'a>(claim: &PersistentVolumeClaim, world: &'a World) -> Option<&'a Arc<PersistentVolume>> {
    let Some(reserved) = meant_for(claim, world) else { return closest(claim, world) };
    let requested = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()).map_or(0, Vec::len);
    // None can have fewer, as with those that were provisioned for the claim.
    if count_modes(reserved) <= requested {
        return Some(reserved);
    }
    closest(claim, world).filter(|free| count_modes(free) < count_modes(reserved)).or(Some(reserved))
}

fn count_modes(volume: &PersistentVolume) -> usize {
    volume.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()).map_or(0, Vec::len)
}

/// A volume with a claimRef to the claim that can serve it: one with as few access modes as possible. Of those with equally
/// many a volume with the claim's uid comes before one that an admin reserved by name.
pub fn meant_for<'a>(claim: &PersistentVolumeClaim, world: &'a World) -> Option<&'a Arc<PersistentVolume>> {
    let candidates = world.volumes.by(VolumeBy::Claim, &key_of(claim).to_string());
    let usable = candidates.filter(|volume| {
        !is_deleting(&***volume) && is_meant_for(volume, claim) && serves(volume, claim).is_ok()
    });
    usable.min_by_key(|volume| {
        let has_uid = crate::claims::claim_ref(volume).and_then(crate::claims::ref_uid).is_some();
        (count_modes(volume), !has_uid, capacity(volume))
    })
}

/// The closest free volume: one that fits with as few access modes as possible, and of those with the
/// same modes the smallest; among equals the first by name.
pub fn closest<'a>(claim: &PersistentVolumeClaim, world: &'a World) -> Option<&'a Arc<PersistentVolume>> {
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    available_with(class_name(claim), modes).into_iter().find_map(|term| {
        let mut large_enough = world.volumes.by_rank(VolumeBy::AvailableWith, &term, requested(claim));
        large_enough.find(|volume| matches(volume, claim).is_ok())
    })
}

/// The smallest free volume that fits and that the node can access, whatever access modes it has in addition, and that
/// `also` accepts; among equals the first by name. For the scheduler: upstream's `findMatchingVolumes` in
/// `pkg/scheduler/framework/plugins/volumebinding/binder.go`.
pub fn smallest<'a>(
    claim: &PersistentVolumeClaim,
    node: &Node,
    world: &'a World,
    also: impl Fn(&PersistentVolume) -> bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let class = class_name(claim);
    // Most classes have none.
    if world.volumes.count(VolumeBy::Available, class) == 0 {
        return None;
    }
    let fits = |volume: &&Arc<PersistentVolume>| {
        matches(volume, claim).is_ok() && reaches(volume, node) && also(volume)
    };
    let by_label = accessible_from(class, node)
        .filter_map(|term| world.volumes.by_rank(VolumeBy::AvailableOn, &term, requested(claim)).find(&fits));
    by_label.min_by_key(|volume| (capacity(volume), name(&***volume)))
}
