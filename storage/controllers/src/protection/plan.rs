//! Decides whether an object's protection finalizer must be added or removed.

use std::sync::Arc;

use claimcheck_informer::{Cached, ClaimBy, PodBy, VolumeBy, World, pod_claims};
use claimcheck_model::{ObjectKey, PV_PROTECTION, PVC_PROTECTION, VAC_PROTECTION};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod},
    storage::v1::VolumeAttributesClass,
};

use crate::claims::{is_deleting, is_owned_by, volume_phase};

/// The desired finalizers of an object.
#[derive(Debug, PartialEq)]
pub struct SetFinalizers<K> {
    /// The object, in the version of the plan.
    pub object: Arc<K>,
    /// All of its finalizers.
    pub finalizers: Vec<String>,
}

/// An action on a claim.
#[derive(Debug, PartialEq)]
pub enum ClaimAction {
    /// Add the finalizer.
    Protect(SetFinalizers<PersistentVolumeClaim>),
    /// Remove the finalizer, after a live list has confirmed that no pod uses the claim: the cache may lack a pod
    /// that a node has started before the claim was deleted. Upstream: `isBeingUsed` in
    /// pvc_protection_controller.go.
    Release(SetFinalizers<PersistentVolumeClaim>),
    /// Write the condition `Unused=False`: the cache has a pod that refers to the claim.
    MarkUsed(SetConditions),
    /// Write the condition `Unused=True`, after a live list has confirmed that no pod refers to the claim.
    MarkUnused(SetConditions),
}

/// The desired conditions of a claim.
#[derive(Debug, PartialEq)]
pub struct SetConditions {
    /// The claim, in the version of the plan.
    pub claim: Arc<PersistentVolumeClaim>,
    /// All of its conditions.
    pub conditions: Vec<PersistentVolumeClaimCondition>,
}

/// The plan for a claim. It is protected while any pod on a node uses it, including one that has ended: its
/// volumes may still be mounted.
pub fn plan_claim(key: &ObjectKey, world: &World) -> Option<ClaimAction> {
    let claim = world.claims.get(key)?;
    let held = || world.pods.by(PodBy::Claim, &key.to_string()).any(|pod| uses(pod, claim));
    let set = protect(claim, PVC_PROTECTION, held)?;
    Some(if is_deleting(&**claim) { ClaimAction::Release(set) } else { ClaimAction::Protect(set) })
}

/// The plan for a volume. It is protected while it is bound.
pub fn plan_volume(key: &ObjectKey, world: &World) -> Option<SetFinalizers<PersistentVolume>> {
    let volume = world.volumes.get(key)?;
    protect(volume, PV_PROTECTION, || volume_phase(volume) == "Bound")
}

/// The plan for a VolumeAttributesClass. It is protected while it is the current or target class of a claim or
/// the class of a volume.
pub fn plan_class(key: &ObjectKey, world: &World) -> Option<SetFinalizers<VolumeAttributesClass>> {
    let class = world.attributes_classes.get(key)?;
    let claimed = || world.claims.count(ClaimBy::AttributesClass, &key.name) > 0;
    protect(class, VAC_PROTECTION, || {
        claimed() || world.volumes.count(VolumeBy::AttributesClass, &key.name) > 0
    })
}

/// `podUsesPVC` in pvc_protection_controller.go. An unscheduled pod does not count: no node will start it with
/// a claim that is being deleted. The claim of a generic ephemeral volume is deleted with its pod, so a pod
/// that is terminated does not protect it.
pub(super) fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let on_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    on_node
        && pod_claims(pod).any(|used| {
            Some(&used.claim.name) == claim.metadata.name.as_ref()
                && (!used.ephemeral || (!is_shut_down(pod) && is_owned_by(claim, pod)))
        })
}

/// Whether the node has finished the pod, or it was deleted by force.
fn is_shut_down(pod: &Pod) -> bool {
    is_deleting(pod) && pod.metadata.deletion_grace_period_seconds == Some(0)
}

fn protect<K: Cached>(
    object: &Arc<K>,
    finalizer: &str,
    held: impl FnOnce() -> bool,
) -> Option<SetFinalizers<K>> {
    let finalizers = object.metadata().finalizers.as_deref().unwrap_or_default();
    let has = finalizers.iter().any(|held_by| held_by == finalizer);
    let finalizers = match (is_deleting(&**object), has) {
        (false, false) => finalizers.iter().cloned().chain([finalizer.to_owned()]).collect(),
        (true, true) if !held() => finalizers.iter().filter(|other| *other != finalizer).cloned().collect(),
        (false, true) | (true, _) => return None,
    };
    Some(SetFinalizers { object: object.clone(), finalizers })
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, deleting, world};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    /// What is planned for the claim `c` in a world with these pods, and its finalizers then.
    fn planned(claim: PersistentVolumeClaim, pods: Vec<Pod>) -> Option<(&'static str, Vec<String>)> {
        let mut world = world([claim.into()]);
        for pod in pods {
            world.apply(pod);
        }
        match plan_claim(&ObjectKey::new(testing::NAMESPACE, "c"), &world)? {
            ClaimAction::Protect(set) => Some(("protect", set.finalizers)),
            ClaimAction::Release(set) => Some(("release if confirmed", set.finalizers)),
            ClaimAction::MarkUsed(_) | ClaimAction::MarkUnused(_) => panic!("not planned here"),
        }
    }

    fn claim() -> PersistentVolumeClaim {
        testing::claim("c", "fast", "1Gi")
    }

    fn ended(mut pod: Pod) -> Pod {
        pod.status.as_mut().unwrap().phase = Some("Succeeded".into());
        pod
    }

    #[test]
    fn a_claim_is_held_while_a_pod_on_a_node_names_it() {
        let going = || deleting(claim(), &["other", PVC_PROTECTION]);
        let free = Some(("release if confirmed", vec!["other".to_owned()]));
        let cases = [
            ("unused", going(), vec![], free.clone()),
            ("used", going(), vec![testing::pod("p", "n1", &["c"])], None),
            ("used by an ended pod", going(), vec![ended(testing::pod("p", "n1", &["c"]))], None),
            ("the pod has no node", going(), vec![testing::pod("p", "", &["c"])], free.clone()),
            ("another claim is used", going(), vec![testing::pod("p", "n1", &["d"])], free),
            ("not deleted", claim(), vec![], Some(("protect", vec![PVC_PROTECTION.to_owned()]))),
            ("finalizer removed already", deleting(claim(), &["other"]), vec![], None),
        ];
        for (what, claim, pods, expected) in cases {
            assert_eq!(planned(claim, pods), expected, "{what}");
        }
    }

    #[test]
    fn a_finished_pod_does_not_hold_its_ephemeral_claim() {
        let mut owned = deleting(testing::claim("p-data", "fast", "1Gi"), &[PVC_PROTECTION]);
        owned.metadata.owner_references = Some(vec![OwnerReference {
            controller: Some(true),
            uid: "uid-p".into(),
            ..OwnerReference::default()
        }]);
        let mut pod = testing::pod("p", "n1", &["data"]);
        let volume = &mut pod.spec.as_mut().unwrap().volumes.as_mut().unwrap()[0];
        volume.persistent_volume_claim = None;
        volume.ephemeral = Some(Default::default());
        let key = ObjectKey::new(testing::NAMESPACE, "p-data");

        let running = world([owned.clone().into(), pod.clone().into()]);
        assert_eq!(plan_claim(&key, &running), None);

        let mut pod = deleting(pod, &["held"]);
        pod.metadata.deletion_grace_period_seconds = Some(0);
        let finished = world([owned.into(), pod.into()]);
        let Some(ClaimAction::Release(set)) = plan_claim(&key, &finished) else { panic!("still held") };
        assert_eq!(set.finalizers, Vec::<String>::new());
    }

    #[test]
    fn a_volume_is_held_while_bound() {
        for (phase, expected) in [("Bound", None), ("Released", Some(vec![])), ("Available", Some(vec![]))] {
            let mut volume = deleting(testing::volume("v", "fast", "1Gi"), &[PV_PROTECTION]);
            volume.status.as_mut().unwrap().phase = Some(phase.into());
            let plan = plan_volume(&ObjectKey::cluster("v"), &world([volume.into()]));
            assert_eq!(plan.map(|set| set.finalizers), expected, "{phase}");
        }
    }

    #[test]
    fn an_attributes_class_is_protected_while_it_is_current_or_requested() {
        let plan = |claims: Vec<PersistentVolumeClaim>, volumes: Vec<PersistentVolume>| {
            let class = deleting(testing::attributes_class("gold", "10"), &[VAC_PROTECTION]);
            let mut world = world([class.into()]);
            claims.into_iter().for_each(|claim| drop(world.apply(claim)));
            volumes.into_iter().for_each(|volume| drop(world.apply(volume)));
            plan_class(&ObjectKey::cluster("gold"), &world).map(|set| set.finalizers)
        };
        let gold = || Some("gold".to_owned());
        let (mut wants, mut has, mut coming) = (claim(), claim(), claim());
        wants.spec.as_mut().unwrap().volume_attributes_class_name = gold();
        has.status.as_mut().unwrap().current_volume_attributes_class_name = gold();
        let modified = coming.status.as_mut().unwrap().modify_volume_status.get_or_insert_default();
        modified.target_volume_attributes_class_name = gold();
        for held in [wants, has, coming] {
            assert_eq!(plan(vec![held.clone()], vec![]), None, "{held:?}");
        }
        let mut volume = testing::volume("v", "fast", "1Gi");
        volume.spec.as_mut().unwrap().volume_attributes_class_name = gold();
        assert_eq!(plan(vec![], vec![volume]), None);
        assert_eq!(plan(vec![claim()], vec![testing::volume("v", "fast", "1Gi")]), Some(vec![]));
        let fresh = world([testing::attributes_class("gold", "10").into()]);
        let added = plan_class(&ObjectKey::cluster("gold"), &fresh).map(|set| set.finalizers);
        assert_eq!(added, Some(vec![VAC_PROTECTION.to_owned()]));
    }
}
