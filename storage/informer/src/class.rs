//! The storage class of claims and volumes, and which classes are default ones: by the fields, and by the beta
//! annotations that preceded them, which upstream still honours everywhere.
//!
//! Upstream: `component-helpers/storage/volume/helpers.go`, and `IsDefaultAnnotation` in
//! `pkg/volume/util/storageclass.go`.

use claimcheck_model::DEFAULT_CLASS;
use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{ClassBy, DEFAULT_CLASSES, World};

/// The older annotation for the class, which takes precedence over the field.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The older annotation of default classes.
const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";

/// The claim's class; empty for a volume without class (`GetPersistentVolumeClaimClass`).
pub fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    let field = || claim.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&claim.metadata, BETA_CLASS).or_else(field).unwrap_or_default()
}

/// Whether a claim says nothing about its class at all, so that it may get the default one
/// (`PersistentVolumeClaimHasClass`).
pub fn lacks_class(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata, BETA_CLASS).is_none()
        && claim.spec.as_ref().is_none_or(|spec| spec.storage_class_name.is_none())
}

/// The default class: the newest where several are annotated (`GetDefaultClass` in `pkg/volume/util`).
pub fn default_class(world: &World) -> Option<&StorageClass> {
    let defaults = world.classes.by(ClassBy::Default, DEFAULT_CLASSES);
    // By name among those of the same second, the first one winning, so that everybody agrees.
    let newest = defaults.max_by(|a, b| {
        let created = |class: &StorageClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        created(a).cmp(&created(b)).then_with(|| b.metadata.name.cmp(&a.metadata.name))
    });
    newest.map(|class| &**class)
}

/// The volume's class; empty for none (`GetPersistentVolumeClass`).
pub fn volume_class(volume: &PersistentVolume) -> &str {
    let field = || volume.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&volume.metadata, BETA_CLASS).or_else(field).unwrap_or_default()
}

/// Whether a class is annotated as default.
pub fn is_default(class: &StorageClass) -> bool {
    [DEFAULT_CLASS, BETA_DEFAULT_CLASS].iter().any(|key| annotation(&class.metadata, key) == Some("true"))
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{annotate, claim, class, volume};

    #[test]
    fn the_annotation_comes_before_the_field() {
        let (mut claim, mut volume) = (claim("c", "fast", "1Gi"), volume("v", "fast", "1Gi"));
        assert_eq!((claim_class(&claim), volume_class(&volume)), ("fast", "fast"));
        annotate(&mut claim.metadata, BETA_CLASS, "slow");
        annotate(&mut volume.metadata, BETA_CLASS, "slow");
        assert_eq!((claim_class(&claim), volume_class(&volume)), ("slow", "slow"));
        claim.spec.get_or_insert_default().storage_class_name = None;
        assert!(!lacks_class(&claim));
        claim.metadata.annotations = None;
        assert!(lacks_class(&claim));
        assert_eq!(claim_class(&claim), "");
    }

    #[test]
    fn either_annotation_makes_a_class_the_default() {
        for (key, value, expected) in [
            (DEFAULT_CLASS, "true", true),
            (BETA_DEFAULT_CLASS, "true", true),
            (BETA_DEFAULT_CLASS, "false", false),
        ] {
            let mut class = class("fast", "csi.test");
            annotate(&mut class.metadata, key, value);
            assert_eq!(is_default(&class), expected, "{key}={value}");
        }
    }
}
