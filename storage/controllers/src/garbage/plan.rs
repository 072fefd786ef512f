//! Claims owned by pods that may have been deleted.

use std::sync::Arc;

use claimcheck_informer::World;
use claimcheck_model::ObjectKey;
use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::OwnerReference};

use crate::claims::is_deleting;

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
    let is_there = |owner: &OwnerReference| {
        world.pods.get(&pod(owner)).is_some_and(|pod| pod.metadata.uid.as_ref() == Some(&owner.uid))
    };
    let is_wanted = owners.iter().any(is_there);
    (!is_wanted).then(|| Collect { claim: claim.clone(), owners: owners.iter().map(pod).collect() })
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
}
