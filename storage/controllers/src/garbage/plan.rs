//! Claims owned by pods that may have been deleted, and pods that are deleted in the foreground.

use std::sync::Arc;

use claimcheck_informer::{ClaimBy, World};
use claimcheck_model::ObjectKey;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use crate::claims::{has_finalizer, is_deleting};

/// Delete the claim, if none of its owners exists: caches of pods and claims are not consistent with each
/// other, so the pods are read from the API server first.
#[derive(Debug, PartialEq)]
pub struct Collect {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The pods that own it.
    pub owners: Vec<ObjectKey>,
}

/// The action for a claim. One with an owner of another kind is skipped.
pub fn plan(key: &ObjectKey, world: &World) -> Option<Collect> {
    let claim = world.claims.get(key).filter(|claim| !is_deleting(&***claim))?;
    let owners = claim.metadata.owner_references.as_deref().filter(|owners| !owners.is_empty())?;
    if !owners.iter().all(|owner| owner.kind == "Pod" && owner.api_version == "v1") {
        return None;
    }
    let pod = |owner: &OwnerReference| ObjectKey::new(&key.namespace, &owner.name);
    let exists = |owner: &OwnerReference| {
        world.pods.get(&pod(owner)).is_some_and(|pod| pod.metadata.uid.as_ref() == Some(&owner.uid))
    };
    let is_expected = owners.iter().any(exists);
    (!is_expected).then(|| Collect { claim: claim.clone(), owners: owners.iter().map(pod).collect() })
}

/// The API server's finalizer on an object that is deleted after its dependents.
pub const FOREGROUND: &str = "foregroundDeletion";

/// What a pod that is deleted in the foreground requires.
#[derive(Debug, PartialEq)]
pub enum Foreground {
    /// Delete this claim of the pod.
    Delete(Arc<PersistentVolumeClaim>),
    /// None of its claims is left: remove the finalizer.
    Release(Arc<Pod>),
}

/// The actions for a pod. None while its claims are being deleted: their removal enqueues it again.
/// Upstream: `processDeletingDependentsItem` in pkg/controller/garbagecollector/garbagecollector.go.
pub fn plan_foreground(key: &ObjectKey, world: &World) -> Vec<Foreground> {
    let waits = |pod: &&Arc<Pod>| is_deleting(&***pod) && has_finalizer(&pod.metadata, FOREGROUND);
    let Some(pod) = world.pods.get(key).filter(waits) else { return Vec::new() };
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let blocks = |claim: &&Arc<PersistentVolumeClaim>| {
        let mut owners = claim.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
    };
    let blocking: Vec<_> = world.claims.by(ClaimBy::Owner, uid).filter(blocks).collect();
    if blocking.is_empty() {
        return vec![Foreground::Release(pod.clone())];
    }
    let present = blocking.into_iter().filter(|claim| !is_deleting(&***claim));
    present.map(|claim| Foreground::Delete(claim.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use claimcheck_informer::testing;

    fn owned_by(kind: &str, uid: &str) -> PersistentVolumeClaim {
        let mut claim = testing::claim("p-v", "fast", "1Gi");
        let version = if kind == "Pod" { "v1" } else { "apps/v1" };
        claim.metadata.owner_references = Some(vec![OwnerReference {
            api_version: version.into(),
            kind: kind.into(),
            name: "p".into(),
            uid: uid.into(),
            ..OwnerReference::default()
        }]);
        claim
    }

    #[test]
    fn a_claim_is_deleted_when_its_pod_does_not_exist() {
        let key = ObjectKey::new("default", "p-v");
        let rows = [
            (testing::claim("p-v", "fast", "1Gi"), false, false, "it has no owner"),
            (owned_by("Pod", "uid-p"), true, false, "its pod is there"),
            (owned_by("Pod", "uid-p"), false, true, "its pod is gone"),
            (owned_by("Pod", "uid-of-another"), true, true, "a pod of the same name is another one"),
            (owned_by("StatefulSet", "uid-p"), false, false, "whether that is there we do not know"),
            (testing::deleting(owned_by("Pod", "uid-p"), &["f"]), false, false, "it is going"),
        ];
        for (claim, pod, collected, why) in rows {
            let mut world = World::default();
            world.apply(claim);
            if pod {
                world.apply(testing::pod("p", "", &[]));
            }
            assert_eq!(plan(&key, &world).is_some(), collected, "{why}");
        }
    }

    #[test]
    fn a_pod_deleted_in_the_foreground_is_released_after_its_claims() {
        let key = ObjectKey::new("default", "p");
        let deleted = || testing::deleting(testing::pod("p", "", &[]), &[FOREGROUND]);
        let owned = |blocks| {
            let mut claim = owned_by("Pod", "uid-p");
            claim.metadata.owner_references.as_mut().unwrap()[0].block_owner_deletion = Some(blocks);
            claim
        };
        let rows = [
            (testing::pod("p", "", &[]), None, "nothing", "it is not deleted"),
            (testing::deleting(testing::pod("p", "", &[]), &["other"]), None, "nothing", "in the background"),
            (deleted(), None, "release", "it has no claims"),
            (deleted(), Some(owned(false)), "release", "the claim does not block the deletion"),
            (deleted(), Some(owned(true)), "delete", "the claim is first"),
            (deleted(), Some(testing::deleting(owned(true), &["f"])), "nothing", "the claim is going"),
        ];
        for (pod, claim, expected, why) in rows {
            let mut world = World::default();
            world.apply(pod);
            claim.into_iter().for_each(|claim| drop(world.apply(claim)));
            let actions = plan_foreground(&key, &world);
            let seen = match actions.as_slice() {
                [] => "nothing",
                [Foreground::Delete(claim)] if claim.metadata.name.as_deref() == Some("p-v") => "delete",
                [Foreground::Release(_)] => "release",
                _ => "something else",
            };
            assert_eq!(seen, expected, "{why}");
        }
    }
}
