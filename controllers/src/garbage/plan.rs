//! Which claims may have outlived their pods.

use std::sync::Arc;

use claimcheck_informer::{World, key_of};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::claims::is_deleting;

/// Have the claim deleted, if none of its owners is there: caches of pods and claims are not of the same
/// moment, so the pods are to be asked for first.
#[derive(Debug, PartialEq)]
pub struct Collect {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The pods that own it, by key and uid.
    pub owners: Vec<(ObjectKey, String)>,
}

/// What to do for a claim. One with an owner of another kind is left alone.
pub fn plan(key: &ObjectKey, world: &World) -> Option<Collect> {
    let claim = world.claims.get(key).filter(|claim| !is_deleting(&***claim))?;
    let owners = claim.metadata.owner_references.as_deref().filter(|owners| !owners.is_empty())?;
    let owners: Vec<(ObjectKey, String)> = owners
        .iter()
        .map(|owner| {
            let key = ObjectKey::new(&key.namespace, &owner.name);
            (owner.kind == "Pod" && owner.api_version == "v1").then(|| (key, owner.uid.clone()))
        })
        .collect::<Option<_>>()?;
    let there = |(key, uid): &(ObjectKey, String)| {
        world.pods.get(key).is_some_and(|pod| pod.metadata.uid.as_ref() == Some(uid))
    };
    (!owners.iter().any(there)).then(|| Collect { claim: claim.clone(), owners })
}

/// The claims that a pod owns.
pub fn owned(pod: &ObjectKey, uid: Option<&String>, world: &World) -> Vec<ObjectKey> {
    let claims =
        world.claims.iter().filter(|claim| claim.metadata.namespace.as_ref() == Some(&pod.namespace));
    let owned = claims.filter(|claim| {
        claim.metadata.owner_references.iter().flatten().any(|owner| Some(&owner.uid) == uid)
    });
    owned.map(|claim| key_of(&**claim)).collect()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

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
    fn a_claim_goes_when_its_pod_is_not_there() {
        let key = ObjectKey::new("default", "p-v");
        let rows = [
            (testing::claim("p-v", "fast", "1Gi"), false, false, "nobody owns it"),
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
