//! Data sources in a namespace that the claim names: the feature, the grants, and upstream's errors.
//!
//! Upstream: the tests with `xnsEnabled` of `TestProvisionFromSnapshot` and `TestProvisionFromPVC` in
//! external-provisioner `pkg/controller/controller_test.go`.

use std::sync::Arc;

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as Rpc,
    plugin_capability::service::Type as Service,
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use claimcheck_informer::{
    World,
    testing::{self, DRIVER, NAMESPACE},
};
use claimcheck_model::{
    STORAGE_PROVISIONER,
    snapshot::{self, VolumeSnapshotContentStatus, VolumeSnapshotStatus},
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, TypedObjectReference};

use super::plan::{Action, plan};
use crate::{
    Provisioning,
    provisioner::{Settings, SourceObject},
    rpc::DriverInfo,
};

/// The namespace of the sources.
const THERE: &str = "there";
const CLAIM: &str = "PersistentVolumeClaim";
const SNAPSHOT: &str = "VolumeSnapshot";
const DISABLED: &str =
    "dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled";

fn settings(cross_namespace_sources: bool) -> Settings {
    let rpcs = [Rpc::CreateDeleteVolume, Rpc::CloneVolume, Rpc::CreateDeleteSnapshot];
    Settings {
        driver: DriverInfo::new(DRIVER, &[Service::ControllerService], &rpcs),
        identity: "me".into(),
        options: Provisioning { cross_namespace_sources, ..Provisioning::default() },
        ..Settings::default()
    }
}

/// The claim `default/copy`, to be created from an object `source` in this namespace.
fn copy(kind: &str, namespace: &str) -> PersistentVolumeClaim {
    let mut claim = testing::claim("copy", "fast", "64Mi");
    testing::annotate(&mut claim.metadata, STORAGE_PROVISIONER, DRIVER);
    claim.spec.get_or_insert_default().data_source_ref = Some(TypedObjectReference {
        api_group: group(kind).map(str::to_owned),
        kind: kind.into(),
        name: "source".into(),
        namespace: Some(namespace.into()),
    });
    claim
}

fn group(kind: &str) -> Option<&'static str> {
    match kind {
        CLAIM => None,
        SNAPSHOT => Some(snapshot::GROUP),
        _ => Some("example.com"),
    }
}

/// A world with a bound claim and a ready snapshot, both with the name `source` in this namespace.
fn sources(namespace: &str) -> World {
    let (mut claim, mut volume) =
        (testing::claim("source", "fast", "64Mi"), testing::volume("pv", "fast", "64Mi"));
    claim.metadata.namespace = Some(namespace.into());
    testing::bind(&mut claim, &mut volume);
    let mut snapshot = testing::snapshot("source", "source", "class");
    snapshot.metadata.namespace = Some(namespace.into());
    snapshot.status = Some(VolumeSnapshotStatus {
        bound_volume_snapshot_content_name: Some("content".into()),
        ready_to_use: Some(true),
        ..VolumeSnapshotStatus::default()
    });
    let mut content = testing::snapshot_content("content", &snapshot, "Delete");
    content.status = Some(VolumeSnapshotContentStatus {
        snapshot_handle: Some("handle".into()),
        ..VolumeSnapshotContentStatus::default()
    });
    let class = testing::class("fast", DRIVER);
    testing::world([class.into(), claim.into(), volume.into(), snapshot.into(), content.into()])
}

/// A grant for the kind, in the namespace of the sources.
fn grant(world: &mut World, kind: &str) {
    world.apply(testing::reference_grant("grant", THERE, group(kind).unwrap_or_default(), kind));
}

fn planned(claim: PersistentVolumeClaim, world: &World, enabled: bool) -> Option<Action> {
    plan(&Arc::new(claim), world, &settings(enabled))
}

fn refusal(claim: PersistentVolumeClaim, world: &World, enabled: bool) -> String {
    match planned(claim, world, enabled) {
        Some(Action::Refuse { refusal, .. }) => refusal.to_string(),
        other => panic!("expected a refusal, not {other:?}"),
    }
}

#[test]
fn a_granted_source_is_protected_and_passed_to_the_driver() {
    let clone = Type::Volume(VolumeSource { volume_id: "handle-pv".into() });
    let restore = Type::Snapshot(SnapshotSource { snapshot_id: "handle".into() });
    for (kind, expected) in [(CLAIM, clone), (SNAPSHOT, restore)] {
        let mut world = sources(THERE);
        grant(&mut world, kind);
        let Some(Action::Hold { source, job }) = planned(copy(kind, THERE), &world, true) else {
            panic!("the source of kind {kind} is not protected first")
        };
        let namespace = match source {
            SourceObject::Claim(claim) => claim.metadata.namespace.clone(),
            SourceObject::Snapshot(snapshot) => snapshot.metadata.namespace.clone(),
        };
        assert_eq!(namespace.as_deref(), Some(THERE), "{kind}");
        let content = job.request.volume_content_source.and_then(|content| content.r#type);
        assert_eq!(content, Some(expected), "{kind}");
    }
}

#[test]
fn the_namespace_of_the_claim_requires_the_feature_and_no_grant() {
    for kind in [CLAIM, SNAPSHOT] {
        let world = sources(NAMESPACE);
        let planned = planned(copy(kind, NAMESPACE), &world, true);
        assert!(matches!(planned, Some(Action::Hold { .. })), "{kind}: {planned:?}");
        assert_eq!(refusal(copy(kind, NAMESPACE), &world, false), DISABLED, "{kind}");
    }
}

#[test]
fn without_the_feature_or_a_grant_the_error_is_that_of_upstream() {
    let mut for_claims = sources(THERE);
    grant(&mut for_claims, CLAIM);
    let denied =
        |kind: &str| format!("accessing there/source of {kind} dataSource from default/copy isn't allowed");
    for (kind, world, enabled, expected) in [
        (CLAIM, &for_claims, false, DISABLED.to_owned()),
        (SNAPSHOT, &for_claims, false, DISABLED.to_owned()),
        (SNAPSHOT, &for_claims, true, denied(SNAPSHOT)),
        (CLAIM, &sources(THERE), true, denied(CLAIM)),
        ("Image", &for_claims, false, DISABLED.to_owned()),
        ("Image", &for_claims, true, denied("Image")),
    ] {
        assert_eq!(refusal(copy(kind, THERE), world, enabled), expected, "{kind} {enabled}");
    }
}

#[test]
fn a_source_that_is_missing_there_is_reported_with_the_namespace_of_the_claim() {
    let mut world = World::default();
    world.apply(testing::class("fast", DRIVER));
    grant(&mut world, CLAIM);
    // Upstream: `getPVCSource` prints the namespace of the claim.
    let expected = "error getting handle for DataSource Type PersistentVolumeClaim by Name source: error getting PVC \
                    source (namespace \"default\") from api server: persistentvolumeclaim \"source\" not found";
    assert_eq!(refusal(copy(CLAIM, THERE), &world, true), expected);
}

#[test]
fn a_granted_object_of_another_kind_is_left_to_its_populator() {
    let mut world = sources(THERE);
    grant(&mut world, "Image");
    let planned = planned(copy("Image", THERE), &world, true);
    assert!(matches!(planned, Some(Action::LeaveToPopulator(_))), "{planned:?}");
}
