//! Whether a claim is still needed as a source of clones.

use std::sync::Arc;

use claimcheck_informer::{ClaimBy, DataSource, World};
use claimcheck_model::{CLONE_PROTECTION, ObjectKey};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::claims::{is_deleting, precedes_deletion};

/// The claim to remove the finalizer from, once it is being deleted and no clone of it waits for its volume any
/// more. As upstream, a claim that is not being deleted keeps the finalizer for the next clone.
pub fn plan(key: &ObjectKey, world: &World) -> Option<Arc<PersistentVolumeClaim>> {
    let claim = world.claims.get(key)?;
    let held = claim.metadata.finalizers.iter().flatten().any(|held| held == CLONE_PROTECTION);
    let source = DataSource::Claim(key.clone()).to_string();
    let clones = || world.claims.by(ClaimBy::Source, &source).any(|clone| precedes_deletion(clone, &**claim));
    (held && is_deleting(&**claim) && !clones()).then(|| claim.clone())
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, NAMESPACE, deleting, world};
    use k8s_openapi::api::core::v1::TypedLocalObjectReference;

    use super::*;

    #[test]
    fn a_source_stays_until_its_clones_have_their_volumes() {
        let clone = |phase: &str| {
            let mut clone = testing::claim("clone", "fast", "1Gi");
            let source = TypedLocalObjectReference {
                kind: "PersistentVolumeClaim".into(),
                name: "data".into(),
                api_group: None,
            };
            clone.spec.get_or_insert_default().data_source = Some(source);
            clone.status.get_or_insert_default().phase = Some(phase.into());
            clone
        };
        let source = || testing::claim("data", "fast", "1Gi");
        let held = || deleting(source(), &["other", CLONE_PROTECTION]);
        for (what, source, clone, expected) in [
            ("a clone waits", held(), clone("Pending"), false),
            ("the clone is bound", held(), clone("Bound"), true),
            ("it is not to go", source(), clone("Bound"), false),
            ("it is not held", deleting(source(), &["other"]), clone("Bound"), false),
        ] {
            let planned = plan(&ObjectKey::new(NAMESPACE, "data"), &world([source.into(), clone.into()]));
            assert_eq!(planned.is_some(), expected, "{what}");
        }
    }
}
