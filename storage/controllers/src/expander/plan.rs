//! Whether a claim must be expanded by another component.

use std::sync::Arc;

use claimcheck_informer::{InTree, World, growth};
use claimcheck_model::{ObjectKey, PRE_RESIZE_CAPACITY};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::{
    claims::{annotation, claim_phase, claim_ref, ref_uid, volume_name},
    migration::migrated_to,
};

/// Emit an event about a claim that must be expanded.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// It waits for an external controller.
    Waits(Arc<PersistentVolumeClaim>),
    /// Its volume is an in-tree one that this CSI driver replaces.
    Refused(Arc<PersistentVolumeClaim>, &'static str),
}

/// The report on the claim with this key; `None` unless it must be expanded.
pub fn plan(key: &ObjectKey, world: &World) -> Option<Report> {
    let claim = world.claims.get(key).filter(|claim| claim_phase(claim) == "Bound")?;
    let volume = world.volumes.named(volume_name(claim)?)?;
    // The second: its file system is still as large as for an earlier claim (`syncHandler` in expand_controller.go).
    let is_to_grow = growth::requested(claim) > growth::capacity(claim)
        || annotation(&**volume, PRE_RESIZE_CAPACITY).is_some();
    if !is_to_grow || !is_bound_to(volume, claim) {
        return None;
    }
    let in_tree = volume.spec.as_ref().and_then(InTree::from_volume);
    Some(match in_tree.and_then(|in_tree| migrated_to(in_tree.plugin)) {
        Some(driver) => Report::Refused(claim.clone(), driver),
        None => Report::Waits(claim.clone()),
    })
}

fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_ref(volume).and_then(ref_uid) == claim.metadata.uid.as_deref()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::{
        key_of,
        testing::{self, bind},
    };
    use k8s_openapi::{
        api::core::v1::{AWSElasticBlockStoreVolumeSource, HostPathVolumeSource},
        apimachinery::pkg::api::resource::Quantity,
    };

    use super::*;

    fn reported(size: &str, change: impl Fn(&mut PersistentVolume)) -> Option<Report> {
        let (mut claim, mut volume) =
            (testing::claim("c", "fast", "1Gi"), testing::volume("v", "fast", "1Gi"));
        bind(&mut claim, &mut volume);
        let resources = claim.spec.as_mut().unwrap().resources.as_mut().unwrap();
        resources.requests = Some([("storage".to_owned(), Quantity(size.into()))].into());
        change(&mut volume);
        let key = key_of(&claim);
        plan(&key, &testing::world([claim.into(), volume.into()]))
    }

    fn is_reported(size: &str, change: impl Fn(&mut PersistentVolume)) -> bool {
        reported(size, change).is_some()
    }

    #[test]
    fn the_expansion_of_a_migrated_volume_is_refused_with_the_name_of_its_driver() {
        let migrated = |volume: &mut PersistentVolume| {
            let spec = volume.spec.as_mut().unwrap();
            let disk = AWSElasticBlockStoreVolumeSource { volume_id: "vol-1".into(), ..Default::default() };
            (spec.csi, spec.aws_elastic_block_store) = (None, Some(disk));
        };
        assert!(matches!(reported("2Gi", migrated), Some(Report::Refused(_, "ebs.csi.aws.com"))));
        assert!(matches!(reported("2Gi", |_| {}), Some(Report::Waits(_))));
    }

    #[test]
    fn a_claim_that_is_to_grow_waits_for_an_external_controller() {
        assert!(!is_reported("1Gi", |_| {}));
        assert!(is_reported("2Gi", |_| {}));
        let foreign = |volume: &mut PersistentVolume| {
            let spec = volume.spec.as_mut().unwrap();
            (spec.csi, spec.host_path) = (None, Some(HostPathVolumeSource::default()));
        };
        assert!(is_reported("2Gi", foreign), "of no driver");
        let small_file_system = |volume: &mut PersistentVolume| {
            let size = (PRE_RESIZE_CAPACITY.to_owned(), "512Mi".to_owned());
            volume.metadata.annotations.get_or_insert_default().extend([size]);
        };
        assert!(is_reported("1Gi", small_file_system), "expanded for an earlier claim");
        let of_another = |volume: &mut PersistentVolume| {
            volume.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some("another".into());
        };
        assert!(!is_reported("2Gi", of_another));
    }
}
