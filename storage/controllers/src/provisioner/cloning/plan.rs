//! Whether an object is still needed as a source of volumes.

use claimcheck_informer::{Cached, ClaimBy, DataSource, World};

use crate::{
    Provisioning,
    claims::{claim_phase, is_deleting, precedes_deletion, volume_name},
    provisioner::{SourceObject, grant},
};

/// The source to remove the finalizer from, once no claim waits for a volume from it any more, and no call of unknown
/// outcome may read it: such a call is repeated until its outcome is known, also if its claim is deleted. Only the
/// provisioner of the source's driver knows its calls, so it alone removes the finalizer, as long as that driver is known.
///
/// As upstream, a claim keeps the finalizer for the next clone until it is being deleted, and a snapshot does not.
/// Unlike upstream, which removes it after each volume and adds it again before each call, a snapshot has it until
/// the last of the claims that wait has its volume.
pub fn plan(
    source: &DataSource,
    world: &World,
    driver: &str,
    options: Provisioning,
    may_be_read: impl Fn() -> bool,
) -> Option<SourceObject> {
    let (object, waits) = match source {
        DataSource::Claim(key) => {
            let claim = world.claims.get(key)?;
            let waits = !is_deleting(&**claim) || is_awaited(source, &**claim, world, options);
            (SourceObject::Claim(claim.clone()), waits)
        }
        DataSource::Snapshot(key) => {
            let snapshot = world.snapshots.get(key)?;
            (SourceObject::Snapshot(snapshot.clone()), is_awaited(source, &**snapshot, world, options))
        }
        DataSource::Elsewhere { .. } | DataSource::Other { .. } => return None,
    };
    let is_of_other = driver_of(&object, world).is_some_and(|other| other != driver);
    (object.is_protected() && !waits && !is_of_other && !may_be_read()).then_some(object)
}

/// The driver with the data of a source; none if its volume or content does not exist.
fn driver_of<'w>(source: &SourceObject, world: &'w World) -> Option<&'w str> {
    match source {
        SourceObject::Claim(claim) => {
            let volume = world.volumes.named(volume_name(claim)?)?;
            Some(volume.spec.as_ref()?.csi.as_ref()?.driver.as_str())
        }
        SourceObject::Snapshot(snapshot) => {
            Some(world.snapshot_contents.named(snapshot.content()?)?.spec.driver.as_str())
        }
    }
}

/// Whether a claim waits for a volume from the source. Upstream: `buildPendingSnapshotIndex`, which counts claims of
/// other namespaces without regard to the feature and to grants, and `syncClaim` in `clone_controller.go`, which counts
/// none.
fn is_awaited<K: Cached>(source: &DataSource, object: &K, world: &World, options: Provisioning) -> bool {
    let here = world.claims.by(ClaimBy::Source, &source.to_string());
    let elsewhere = options.cross_namespace_sources.then(|| grant::referring(source, world));
    let elsewhere = elsewhere.into_iter().flatten().filter(|claim| grant::is_permitted(claim, world));
    let mut claims = here.chain(elsewhere);
    claims.any(|claim| matches!(claim_phase(claim), "Pending" | "") && precedes_deletion(claim, object))
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, NAMESPACE, deleting, world};
    use claimcheck_model::{CLONE_PROTECTION, ObjectKey, RESTORE_PROTECTION};
    use k8s_openapi::{
        api::core::v1::{PersistentVolumeClaim, TypedLocalObjectReference, TypedObjectReference},
        apimachinery::pkg::apis::meta::v1::Time,
    };

    use super::*;

    fn created_from(name: &str, kind: &str, source: &str, phase: &str) -> PersistentVolumeClaim {
        let mut claim = testing::claim(name, "fast", "1Gi");
        let source = TypedLocalObjectReference {
            kind: kind.into(),
            name: source.into(),
            api_group: (kind == "VolumeSnapshot").then(|| claimcheck_model::snapshot::GROUP.to_owned()),
        };
        claim.spec.get_or_insert_default().data_source = Some(source);
        claim.status.get_or_insert_default().phase = Some(phase.into());
        claim
    }

    #[test]
    fn a_source_stays_until_its_clones_have_their_volumes() {
        let clone = |phase: &str| created_from("clone", "PersistentVolumeClaim", "data", phase);
        let source = || testing::claim("data", "fast", "1Gi");
        let held = || deleting(source(), &["other", CLONE_PROTECTION]);
        for (what, source, clone, expected) in [
            ("a clone waits", held(), clone("Pending"), false),
            ("the clone is bound", held(), clone("Bound"), true),
            ("it is not to go", source(), clone("Bound"), false),
            ("it is not held", deleting(source(), &["other"]), clone("Bound"), false),
        ] {
            let key = DataSource::Claim(ObjectKey::new(NAMESPACE, "data"));
            let planned = plan(
                &key,
                &world([source.into(), clone.into()]),
                testing::DRIVER,
                Provisioning::default(),
                || false,
            );
            assert_eq!(planned.is_some(), expected, "{what}");
        }
    }

    #[test]
    fn a_snapshot_is_released_after_the_last_of_its_volumes() {
        let key = DataSource::Snapshot(ObjectKey::new(NAMESPACE, "s"));
        let snapshot = |finalizers: &[&str]| {
            let mut snapshot = testing::snapshot("s", "data", "class");
            snapshot.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
            snapshot
        };
        let held = || snapshot(&["other", RESTORE_PROTECTION]);
        let going = || deleting(held(), &[RESTORE_PROTECTION]);
        let claim = |name: &str, phase: &str| created_from(name, "VolumeSnapshot", "s", phase);
        let mut late = claim("late", "Pending");
        late.metadata.creation_timestamp = Some(Time(jiff::Timestamp::MAX));
        for (what, snapshot, claims, expected) in [
            ("a claim waits", held(), vec![claim("a", "Pending")], false),
            ("a claim without a phase waits", held(), vec![claim("a", "")], false),
            ("one of two waits", held(), vec![claim("a", "Bound"), claim("b", "Pending")], false),
            ("all are bound", held(), vec![claim("a", "Bound"), claim("b", "Bound")], true),
            ("the claim has lost its volume", held(), vec![claim("a", "Lost")], true),
            ("the claim was deleted", held(), vec![], true),
            ("it is not held", snapshot(&["other"]), vec![], false),
            ("a claim came before its deletion", going(), vec![claim("a", "Pending")], false),
            ("a claim came after its deletion", going(), vec![late], true),
        ] {
            let mut world = World::default();
            world.apply(snapshot);
            for claim in claims {
                world.apply(claim);
            }
            let planned = |in_doubt| {
                plan(&key, &world, testing::DRIVER, Provisioning::default(), || in_doubt).is_some()
            };
            assert_eq!(planned(false), expected, "{what}");
            assert!(!planned(true), "{what}, and a call is in doubt");
        }
    }

    #[test]
    fn the_provisioner_of_another_driver_releases_no_source() {
        let mut snapshot = testing::snapshot("s", "data", "class");
        snapshot.metadata.finalizers = Some(vec![RESTORE_PROTECTION.to_owned()]);
        snapshot.status.get_or_insert_default().bound_volume_snapshot_content_name = Some("content".into());
        let mut content = claimcheck_model::snapshot::VolumeSnapshotContent::default();
        content.metadata.name = Some("content".into());
        content.spec.driver = testing::DRIVER.to_owned();
        let mut world = World::default();
        world.apply(snapshot);
        world.apply(content);
        let key = DataSource::Snapshot(ObjectKey::new(NAMESPACE, "s"));
        for (driver, expected) in [(testing::DRIVER, true), ("other.csi", false)] {
            let planned = plan(&key, &world, driver, Provisioning::default(), || false);
            assert_eq!(planned.is_some(), expected, "{driver}");
        }
    }

    #[test]
    fn a_source_stays_for_claims_of_other_namespaces_that_may_use_it() {
        let key = ObjectKey::new("there", "data");
        let mut source = deleting(testing::claim("data", "fast", "1Gi"), &[CLONE_PROTECTION]);
        source.metadata.namespace = Some("there".into());
        let mut clone = testing::claim("clone", "fast", "1Gi");
        clone.spec.get_or_insert_default().data_source_ref = Some(TypedObjectReference {
            kind: "PersistentVolumeClaim".into(),
            name: "data".into(),
            namespace: Some("there".into()),
            api_group: None,
        });
        let grant = || testing::reference_grant("g", "there", "", "PersistentVolumeClaim");
        for (what, cross_namespace_sources, grant, expected) in [
            ("the claim may use it", true, Some(grant()), false),
            ("the claim may not use it", true, None, true),
            ("the feature is off", false, Some(grant()), true),
        ] {
            let mut world = world([source.clone().into(), clone.clone().into()]);
            if let Some(grant) = grant {
                world.apply(grant);
            }
            let options = Provisioning { cross_namespace_sources, ..Provisioning::default() };
            let planned = plan(&DataSource::Claim(key.clone()), &world, testing::DRIVER, options, || false);
            assert_eq!(planned.is_some(), expected, "{what}");
        }
    }
}
