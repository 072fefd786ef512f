//! Whether a claim must be expanded, and by which component.

use std::sync::Arc;

use claimcheck_informer::{World, growth};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::claims::{claim_phase, claim_ref, ref_uid, volume_name};

/// The component that expands a claim's volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The resizer of a CSI driver.
    Hand(Arc<PersistentVolumeClaim>),
    /// No known component.
    Ignore(Arc<PersistentVolumeClaim>),
}

/// The expander of the claim with this key; `None` unless it must be expanded.
pub fn plan(key: &ObjectKey, world: &World) -> Option<Action> {
    let claim = world.claims.get(key).filter(|claim| claim_phase(claim) == "Bound")?;
    let volume = world.volumes.named(volume_name(claim)?)?;
    if growth::requested(claim) <= growth::capacity(claim) || !is_bound_to(volume, claim) {
        return None;
    }
    let csi = volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some());
    Some(if csi { Action::Hand(claim.clone()) } else { Action::Ignore(claim.clone()) })
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
    use k8s_openapi::{api::core::v1::HostPathVolumeSource, apimachinery::pkg::api::resource::Quantity};

    use super::*;

    fn plan_of(size: &str, change: impl Fn(&mut PersistentVolume)) -> Option<Action> {
        let (mut claim, mut volume) =
            (testing::claim("c", "fast", "1Gi"), testing::volume("v", "fast", "1Gi"));
        bind(&mut claim, &mut volume);
        let resources = claim.spec.as_mut().unwrap().resources.as_mut().unwrap();
        resources.requests = Some([("storage".to_owned(), Quantity(size.into()))].into());
        change(&mut volume);
        let key = key_of(&claim);
        plan(&key, &testing::world([claim.into(), volume.into()]))
    }

    #[test]
    fn who_grows_a_volume() {
        assert_eq!(plan_of("1Gi", |_| {}), None);
        assert!(matches!(plan_of("2Gi", |_| {}), Some(Action::Hand(_))));
        let foreign = |volume: &mut PersistentVolume| {
            let spec = volume.spec.as_mut().unwrap();
            (spec.csi, spec.host_path) = (None, Some(HostPathVolumeSource::default()));
        };
        assert!(matches!(plan_of("2Gi", foreign), Some(Action::Ignore(_))));
        let of_another = |volume: &mut PersistentVolume| {
            volume.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some("another".into());
        };
        assert_eq!(plan_of("2Gi", of_another), None);
    }
}
