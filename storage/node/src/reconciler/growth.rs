//! Whether a mounted volume must be expanded, and to what size.
//!
//! Upstream: `checkVolumeFSResize` of the populator and `volumeNeedsExpansion` of the actual state; the claim's
//! precondition is `runPreCheck` in `pkg/volume/util/operationexecutor/node_expander.go`.

use claimcheck_informer::{
    World,
    growth::{Progress, allocated, capacity, requested, volume_capacity},
};
use claimcheck_model::{NODE_EXPANSION_NOT_REQUIRED, ObjectKey};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::actual::Size;

/// A volume that must be expanded on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The claim with the status of the expansion.
    pub claim: ObjectKey,
    /// Target size in bytes: the PV's.
    pub bytes: i64,
    /// The claim has this size already: another node has expanded it, and this one follows.
    pub written: bool,
    /// The resizer records no state of expansions (RecoverVolumeExpansionFailure=false, or an old one): neither does this
    /// node, but for the claim's new size.
    pub unrecorded: bool,
    /// The driver has failed before, and the claim has requested another size since: after one more failure the
    /// resizer must handle it.
    pub outdated: bool,
}

/// The expansion of the PV with this name, if its current size here is `size`.
pub fn growth(pv: &str, size: Size, world: &World) -> Option<Growth> {
    let (volume, claim) = bound(pv, world)?;
    let (bytes, has) = (volume_capacity(volume), size.bytes.unwrap_or_else(|| capacity(claim)));
    let annotations = claim.metadata.annotations.as_ref();
    let without_us = annotations.is_some_and(|all| all.contains_key(NODE_EXPANSION_NOT_REQUIRED));
    if bytes <= has || without_us || size.refused {
        return None;
    }
    let Part { written, unrecorded } = part(claim, bytes)?;
    let outdated = size.failed && requested(claim) != bytes;
    Some(Growth { claim: claimcheck_informer::key_of(claim), bytes, written, unrecorded, outdated })
}

/// What this node does for the expansion of a claim, besides the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// See [`Growth::written`].
    pub written: bool,
    /// See [`Growth::unrecorded`].
    pub unrecorded: bool,
}

/// This node's part in the expansion of a claim to this size; `None` if it is not this node's turn.
pub fn part(claim: &PersistentVolumeClaim, bytes: i64) -> Option<Part> {
    let modes = claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten());
    let shared = modes.into_iter().any(|mode| mode == "ReadWriteMany");
    match Progress::of(claim) {
        Progress::NodePending | Progress::NodeAtWork => Some(Part { written: false, unrecorded: false }),
        // Upstream follows other nodes for ReadWriteMany claims only: for any other, the expansion is finished.
        Progress::None if capacity(claim) >= bytes && shared => {
            Some(Part { written: true, unrecorded: false })
        }
        // `checkForRecoveryFromExpansion` in `pkg/volume/util/operationexecutor/operation_generator.go`.
        Progress::None if capacity(claim) < bytes && allocated(claim).is_none() => {
            Some(Part { written: false, unrecorded: true })
        }
        Progress::None
        | Progress::ControllerAtWork
        | Progress::ControllerInfeasible
        | Progress::NodeInfeasible => None,
    }
}

/// The size in a claim's status, which is assumed for its volume at the first mount.
pub fn claimed(pv: &str, world: &World) -> Option<i64> {
    bound(pv, world).map(|(_, claim)| capacity(claim))
}

fn bound<'w>(pv: &str, world: &'w World) -> Option<(&'w PersistentVolume, &'w PersistentVolumeClaim)> {
    let volume = world.volumes.named(pv)?;
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let key = ObjectKey::new(reference.namespace.clone()?, reference.name.clone()?);
    let claim = world.claims.get(&key).filter(|claim| claim.metadata.uid == reference.uid)?;
    Some((volume, claim))
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    const GI: i64 = 1 << 30;

    /// Whether a claim with these access modes expands, and has the size already.
    fn grows(
        modes: &[&str],
        claim_has: &str,
        volume_has: &str,
        progress: Progress,
        size: Size,
        note: bool,
    ) -> Option<bool> {
        let storage = |size: &str| Some([("storage".to_owned(), Quantity(size.into()))].into());
        let (mut claim, mut volume) = (testing::claim("c", "", "1Gi"), testing::volume("pv", "", volume_has));
        testing::bind(&mut claim, &mut volume);
        let modes = modes.iter().map(|mode| (*mode).to_owned()).collect();
        claim.spec.as_mut().unwrap().access_modes = Some(modes);
        let status = claim.status.as_mut().unwrap();
        status.capacity = storage(claim_has);
        status.allocated_resources = storage(volume_has);
        if progress != Progress::None {
            status.allocated_resource_statuses = Some([("storage".into(), progress.name().into())].into());
        }
        if note {
            testing::annotate(&mut claim.metadata, NODE_EXPANSION_NOT_REQUIRED, "true");
        }
        let growth = growth("pv", size, &testing::world([claim.into(), volume.into()]))?;
        assert_eq!(growth.claim.name, "c");
        assert!(!growth.unrecorded);
        Some(growth.written)
    }

    #[test]
    fn when_a_volume_grows() {
        use Progress::{ControllerAtWork, NodeAtWork, NodeInfeasible, NodePending, None as Done};
        let new = Size::default();
        let of = |gi: i64| Size { bytes: Some(gi * GI), ..new };
        let rows = [
            ("1Gi", "1Gi", NodePending, new, false, None),
            ("1Gi", "2Gi", NodePending, new, false, Some(false)),
            ("1Gi", "2Gi", NodeAtWork, of(1), false, Some(false)),
            ("1Gi", "2Gi", ControllerAtWork, new, false, None),
            ("1Gi", "2Gi", NodeInfeasible, new, false, None),
            // The resizer has not requested the node's expansion yet.
            ("1Gi", "2Gi", Done, new, false, None),
            ("2Gi", "2Gi", Done, new, false, None),
            // Grown by another node, which only a ReadWriteMany volume has.
            ("2Gi", "2Gi", Done, of(1), false, Some(true)),
            ("2Gi", "2Gi", Done, of(2), false, None),
            // Grown by the controller alone.
            ("2Gi", "2Gi", Done, of(1), true, None),
            ("1Gi", "2Gi", NodePending, Size { refused: true, ..of(1) }, false, None),
        ];
        for (claim, volume, progress, size, note, expected) in rows {
            let seen = |modes: &[&str]| grows(modes, claim, volume, progress, size, note);
            let row = format!("{claim} {volume} {progress:?} {size:?} {note}");
            assert_eq!(seen(&["ReadOnlyMany", "ReadWriteMany"]), expected, "{row}");
            assert_eq!(seen(&["ReadWriteOnce"]), expected.filter(|written| !written), "{row}");
        }
    }

    /// As with RecoverVolumeExpansionFailure=false.
    #[test]
    fn a_volume_grows_without_a_recorded_expansion_until_its_claim_has_the_size() {
        for (claim_has, volume_has, expected) in [("1Gi", "2Gi", Some(true)), ("2Gi", "2Gi", None)] {
            let storage = |size: &str| Some([("storage".to_owned(), Quantity(size.into()))].into());
            let (mut claim, mut volume) =
                (testing::claim("c", "", "2Gi"), testing::volume("pv", "", volume_has));
            testing::bind(&mut claim, &mut volume);
            claim.status.as_mut().unwrap().capacity = storage(claim_has);
            let size = Size { bytes: Some(GI), ..Size::default() };
            let growth = growth("pv", size, &testing::world([claim.into(), volume.into()]));
            assert_eq!(growth.as_ref().map(|growth| growth.unrecorded), expected, "{claim_has}");
            assert!(growth.is_none_or(|growth| !growth.written && growth.bytes == 2 * GI));
        }
    }

    #[test]
    fn a_failure_is_outdated_once_the_claim_asks_for_another_size() {
        let (mut claim, mut volume) = (testing::claim("c", "", "1Gi"), testing::volume("pv", "", "1Gi"));
        testing::bind(&mut claim, &mut volume);
        volume.spec.as_mut().unwrap().capacity =
            Some([("storage".to_owned(), Quantity("2Gi".into()))].into());
        let pending = [("storage".into(), Progress::NodePending.name().into())].into();
        claim.status.as_mut().unwrap().allocated_resource_statuses = Some(pending);
        let world = testing::world([claim.into(), volume.into()]);
        let outdated = |failed| growth("pv", Size { failed, ..Size::default() }, &world).unwrap().outdated;
        assert_eq!((outdated(false), outdated(true)), (false, true));
    }
}
