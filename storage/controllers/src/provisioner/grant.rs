//! Data sources in other namespaces, and the ReferenceGrants that permit them (KEP-3294).
//!
//! Upstream: `IsGranted` in external-provisioner `pkg/controller/util.go`.

use std::sync::Arc;

use claimcheck_informer::{ClaimBy, DataSource, GrantBy, World, data_source, elsewhere_term};
use claimcheck_model::reference_grant::ReferenceGrantSpec;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, TypedObjectReference};

/// The kind of claims in a grant.
const CLAIM_KIND: &str = "PersistentVolumeClaim";

/// Whether the claim may refer to the source in the namespace that it names: it is the claim's, or a ReferenceGrant
/// there permits it.
pub fn is_permitted(claim: &PersistentVolumeClaim, world: &World) -> bool {
    let reference = claim.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    let Some((reference, namespace)) = reference.and_then(|found| Some((found, found.namespace.as_deref()?)))
    else {
        return true;
    };
    let mut grants = world.reference_grants.by(GrantBy::Namespace, namespace);
    namespace == own_namespace(claim) || grants.any(|grant| permits(&grant.spec, claim, reference))
}

fn permits(
    grant: &ReferenceGrantSpec,
    claim: &PersistentVolumeClaim,
    reference: &TypedObjectReference,
) -> bool {
    let namespace = own_namespace(claim);
    let mut claims = grant.from.iter().filter(|from| from.group.is_empty() && from.kind == CLAIM_KIND);
    let group = reference.api_group.as_deref().unwrap_or_default();
    let mut targets = grant.to.iter().filter(|to| to.group == group && to.kind == reference.kind);
    claims.any(|from| from.namespace == namespace)
        && targets.any(|to| to.name.as_ref().is_none_or(|name| name.is_empty() || *name == reference.name))
}

fn own_namespace(claim: &PersistentVolumeClaim) -> &str {
    claim.metadata.namespace.as_deref().unwrap_or_default()
}

/// The claims that wait for a volume from a source in this namespace, and name the namespace.
pub fn naming<'w>(
    namespace: &str,
    world: &'w World,
) -> impl Iterator<Item = &'w Arc<PersistentVolumeClaim>> + use<'w> {
    world.claims.by(ClaimBy::Source, &elsewhere_term(namespace))
}

/// The claims among these that wait for a volume from this source.
pub fn referring<'w>(
    source: &DataSource,
    world: &'w World,
) -> impl Iterator<Item = &'w Arc<PersistentVolumeClaim>> + use<'w> {
    let namespace = match source {
        DataSource::Snapshot(key) | DataSource::Claim(key) => Some(key.namespace.clone()),
        DataSource::Elsewhere { .. } | DataSource::Other { .. } => None,
    };
    let expected = source.clone();
    let claims = namespace.into_iter().flat_map(move |namespace| naming(&namespace, world));
    claims.filter(move |claim| {
        matches!(data_source(claim), Some(DataSource::Elsewhere { source, .. }) if *source == expected)
    })
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, NAMESPACE};
    use claimcheck_model::{
        ObjectKey,
        reference_grant::{ReferenceGrant, ReferenceGrantTo},
        snapshot,
    };

    use super::*;

    fn claim(name: &str, group: Option<&str>, kind: &str, namespace: Option<&str>) -> PersistentVolumeClaim {
        let mut claim = testing::claim(name, "fast", "1Gi");
        claim.spec.get_or_insert_default().data_source_ref = Some(TypedObjectReference {
            api_group: group.map(str::to_owned),
            kind: kind.into(),
            name: "source".into(),
            namespace: namespace.map(str::to_owned),
        });
        claim
    }

    /// Upstream: `TestIsGranted` in `pkg/controller/util_test.go`.
    #[test]
    fn a_grant_permits_what_its_two_lists_contain() {
        type Change = fn(&mut ReferenceGrant);
        let of_claims = || testing::reference_grant("g", "there", "", "PersistentVolumeClaim");
        let of_snapshots = || testing::reference_grant("g", "there", snapshot::GROUP, "VolumeSnapshot");
        let of_images = || testing::reference_grant("g", "there", "example.com", "Image");
        let clone = |namespace| claim("c", None, "PersistentVolumeClaim", Some(namespace));
        let of_core = claim("c", Some(""), "PersistentVolumeClaim", Some("there"));
        let restore = claim("c", Some(snapshot::GROUP), "VolumeSnapshot", Some("there"));
        let populated = claim("c", Some("example.com"), "Image", Some("there"));
        let table: [(&str, PersistentVolumeClaim, ReferenceGrant, Change, bool); 16] = [
            ("a claim", clone("there"), of_claims(), |_| {}, true),
            ("an empty group", of_core, of_claims(), |_| {}, true),
            ("a snapshot", restore.clone(), of_snapshots(), |_| {}, true),
            ("another kind", populated, of_images(), |_| {}, true),
            ("its name", clone("there"), of_claims(), |g| g.spec.to[0].name = Some("source".into()), true),
            ("no name", clone("there"), of_claims(), |g| g.spec.to[0].name = Some("".into()), true),
            ("not its", clone("there"), of_claims(), |g| g.spec.to[0].name = Some("other".into()), false),
            ("the claim's namespace", clone(NAMESPACE), of_claims(), |_| {}, true),
            ("a third namespace", clone("elsewhere"), of_claims(), |_| {}, false),
            ("from a group", clone("there"), of_claims(), |g| g.spec.from[0].group = "apps".into(), false),
            ("from a kind", clone("there"), of_claims(), |g| g.spec.from[0].kind = "Pod".into(), false),
            ("from there", clone("there"), of_claims(), |g| g.spec.from[0].namespace = "x".into(), false),
            ("to a group", restore, of_claims(), |g| g.spec.to[0].kind = "VolumeSnapshot".into(), false),
            ("to another kind", clone("there"), of_snapshots(), |g| g.spec.to[0].group.clear(), false),
            ("from nothing", clone("there"), of_claims(), |g| g.spec.from.clear(), false),
            ("to nothing", clone("there"), of_claims(), |g| g.spec.to.clear(), false),
        ];
        for (what, claim, mut grant, change, expected) in table {
            change(&mut grant);
            assert_eq!(is_permitted(&claim, &testing::world([grant.into()])), expected, "{what}");
        }
        assert!(!is_permitted(&clone("there"), &World::default()), "no grant");
    }

    #[test]
    fn one_of_several_targets_and_grants_suffices() {
        let clone = claim("c", None, "PersistentVolumeClaim", Some("there"));
        let useless = testing::reference_grant("a", "there", snapshot::GROUP, "VolumeSnapshot");
        let mut useful = useless.clone();
        useful.metadata.name = Some("b".into());
        useful.spec.to.push(ReferenceGrantTo { kind: CLAIM_KIND.into(), ..ReferenceGrantTo::default() });
        assert!(!is_permitted(&clone, &testing::world([useless.clone().into()])));
        assert!(is_permitted(&clone, &testing::world([useless.into(), useful.into()])));
    }

    #[test]
    fn claims_are_found_by_their_source_in_the_namespace_that_they_name() {
        let mut bound = claim("bound", None, "PersistentVolumeClaim", Some("there"));
        bound.status.get_or_insert_default().phase = Some("Bound".into());
        let world = testing::world([
            claim("clone", None, "PersistentVolumeClaim", Some("there")).into(),
            claim("restored", Some(snapshot::GROUP), "VolumeSnapshot", Some("there")).into(),
            claim("here", None, "PersistentVolumeClaim", None).into(),
            bound.into(),
        ]);
        let names = |claims: Vec<&Arc<PersistentVolumeClaim>>| -> Vec<String> {
            let mut names: Vec<_> = claims.iter().filter_map(|claim| claim.metadata.name.clone()).collect();
            names.sort();
            names
        };
        let source = |namespace: &str| ObjectKey::new(namespace, "source");
        assert_eq!(names(naming("there", &world).collect()), ["clone", "restored"]);
        for (source, expected) in [
            (DataSource::Claim(source("there")), &["clone"][..]),
            (DataSource::Snapshot(source("there")), &["restored"]),
            (DataSource::Claim(source(NAMESPACE)), &[]),
        ] {
            assert_eq!(names(referring(&source, &world).collect()), expected, "{source}");
        }
    }
}
