//! Whether a kind of data source is supported.
//!
//! Upstream: `syncPvcByKey` and `validateGroupKind` in volume-data-source-validator
//! `pkg/data-source-validator/data_source_validator.go`.

use std::sync::Arc;

use claimcheck_informer::World;
use claimcheck_model::{ObjectKey, snapshot};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// The result of the validation of a claim. Upstream's `error`, for populators that cannot be read, does not occur: the
/// cache contains what it read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has no data source.
    Empty,
    /// It is a clone of another claim.
    Claim,
    /// It is restored from a snapshot.
    Snapshot,
    /// A populator supports the kind of its data source.
    Populator,
    /// No populator supports the kind of its data source.
    Invalid,
}

impl Verdict {
    /// The label of the metric. Upstream: `DataSource*ResultName` in `pkg/metrics/metrics.go`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Claim => "pvc",
            Self::Snapshot => "snapshot",
            Self::Populator => "populator",
            Self::Invalid => "invalid",
        }
    }
}

/// Count the verdict on a claim, and emit an event if its data source is invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The report on the claim with this key, after the validation of its version `validated`; `None` if it is the same
/// version. As upstream, each version is validated once, and a populator that is registered later changes nothing.
pub fn plan(key: &ObjectKey, world: &World, validated: Option<&str>) -> Option<Report> {
    let claim = world.claims.get(key)?;
    if validated.is_some() && claim.metadata.resource_version.as_deref() == validated {
        return None;
    }
    Some(Report { claim: claim.clone(), verdict: validate(claim, world) })
}

/// As upstream, by `dataSourceRef` alone, to which the API server copies `dataSource`.
fn validate(claim: &PersistentVolumeClaim, world: &World) -> Verdict {
    let Some(reference) = claim.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref()) else {
        return Verdict::Empty;
    };
    let (group, kind) = (reference.api_group.as_deref().unwrap_or_default(), reference.kind.as_str());
    if (group, kind) == ("", "PersistentVolumeClaim") {
        return Verdict::Claim;
    }
    if (group, kind) == (snapshot::GROUP, "VolumeSnapshot") {
        return Verdict::Snapshot;
    }
    let mut kinds = world.volume_populators.iter().map(|populator| &populator.source_kind);
    if kinds.any(|source| source.group == group && source.kind == kind) {
        Verdict::Populator
    } else {
        Verdict::Invalid
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::{
        key_of,
        testing::{self, volume_populator, world},
    };
    use k8s_openapi::api::core::v1::{TypedLocalObjectReference, TypedObjectReference};

    use super::*;

    fn claim(group: Option<&str>, kind: &str) -> PersistentVolumeClaim {
        let mut claim = testing::claim("c", "fast", "1Gi");
        claim.spec.get_or_insert_default().data_source_ref = Some(TypedObjectReference {
            api_group: group.map(str::to_owned),
            kind: kind.into(),
            name: "source".into(),
            namespace: None,
        });
        claim
    }

    /// Upstream: `TestValidateGroupKind`.
    #[test]
    fn kinds_of_the_core_and_of_populators_are_valid() {
        let mut of_another_namespace = claim(Some("valid.storage.k8s.io"), "Valid");
        let spec = of_another_namespace.spec.get_or_insert_default();
        spec.data_source_ref.get_or_insert_default().namespace = Some("there".into());
        let mut without_reference = testing::claim("c", "fast", "1Gi");
        without_reference.spec.get_or_insert_default().data_source =
            Some(TypedLocalObjectReference { kind: "Other".into(), ..TypedLocalObjectReference::default() });
        for (what, claim, expected) in [
            ("no source", testing::claim("c", "fast", "1Gi"), Verdict::Empty),
            ("no dataSourceRef", without_reference, Verdict::Empty),
            ("a claim", claim(None, "PersistentVolumeClaim"), Verdict::Claim),
            ("a claim, with an empty group", claim(Some(""), "PersistentVolumeClaim"), Verdict::Claim),
            ("a claim of a group", claim(Some("apps"), "PersistentVolumeClaim"), Verdict::Invalid),
            ("a snapshot", claim(Some(snapshot::GROUP), "VolumeSnapshot"), Verdict::Snapshot),
            ("a snapshot of no group", claim(None, "VolumeSnapshot"), Verdict::Invalid),
            ("a registered kind", claim(Some("valid.storage.k8s.io"), "Valid"), Verdict::Populator),
            ("in another namespace", of_another_namespace, Verdict::Populator),
            ("another kind of the group", claim(Some("valid.storage.k8s.io"), "Other"), Verdict::Invalid),
            ("the kind of another group", claim(Some("invalid.storage.k8s.io"), "Valid"), Verdict::Invalid),
        ] {
            let populators = [("a", "Another"), ("b", "Valid")];
            let [first, second] =
                populators.map(|(name, kind)| volume_populator(name, "valid.storage.k8s.io", kind).into());
            let key = key_of(&claim);
            let report = plan(&key, &world([first, second, claim.into()]), None);
            assert_eq!(report.map(|report| report.verdict), Some(expected), "{what}");
        }
    }

    #[test]
    fn each_version_is_validated_once() {
        let mut claim = claim(Some("example.com"), "Image");
        let key = key_of(&claim);
        let planned = |claim: &PersistentVolumeClaim, validated| {
            plan(&key, &world([claim.clone().into()]), validated).is_some()
        };
        assert!(planned(&claim, None), "a claim without a version");
        claim.metadata.resource_version = Some("2".into());
        for (validated, expected) in [(None, true), (Some("1"), true), (Some("2"), false)] {
            assert_eq!(planned(&claim, validated), expected, "{validated:?}");
        }
        assert_eq!(plan(&key, &World::default(), Some("2")), None, "it was deleted");
    }
}
