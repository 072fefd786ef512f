//! Snapshots come and go, and claims are made from them and from other claims, whatever the driver answers.

use std::collections::BTreeMap;

use claimcheck_informer::testing::{self, NAMESPACE};
use claimcheck_model::{
    CLONE_PROTECTION, DEFAULT_SNAPSHOT_CLASS, ObjectKey, RESTORE_PROTECTION, SNAPSHOT_CLAIM_PROTECTION,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, TypedLocalObjectReference};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tonic::Status;

use crate::cluster::Cluster;

/// A claim that is to be made from something.
fn claim_from(name: &str, kind: &str, source: &str) -> PersistentVolumeClaim {
    let mut claim = testing::claim(name, "fast", "64Mi");
    claim.spec.get_or_insert_default().data_source = Some(TypedLocalObjectReference {
        api_group: (kind == "VolumeSnapshot").then(|| claimcheck_model::snapshot::GROUP.to_owned()),
        kind: kind.into(),
        name: source.into(),
    });
    claim
}

async fn ready(cluster: &Cluster, name: &str) {
    let key = ObjectKey::new(NAMESPACE, name);
    cluster
        .until("the snapshot is ready", |world| world.snapshots.get(&key).is_some_and(|s| s.is_ready()))
        .await;
}

async fn delete_snapshot(cluster: &Cluster, name: &str) {
    cluster.namespaced::<VolumeSnapshot>().delete(name, &DeleteParams::default()).await.unwrap();
}

async fn snapshots_deleted(cluster: &Cluster) {
    cluster
        .until("no snapshot and no content is left", |world| {
            world.snapshots.is_empty() && world.snapshot_contents.is_empty()
        })
        .await;
}

/// A cluster with the claim `data`, bound, and the snapshot class `snap`.
async fn with_claim(policy: &str) -> Cluster {
    let mut cluster = Cluster::prepare().await;
    cluster.create(testing::snapshot_class("snap", policy)).await;
    cluster.run();
    cluster.bound_claim("data").await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_made_restored_and_deleted_by_one_call_each() {
    let cluster = with_claim("Delete").await;
    cluster.create_in_namespace(testing::snapshot("s", "data", "snap")).await;
    ready(&cluster, "s").await;
    let status = cluster.namespaced::<VolumeSnapshot>().get("s").await.unwrap().status.unwrap();
    assert_eq!(status.restore_size.unwrap().0, "64Mi");
    assert!(status.creation_time.is_some() && status.error.is_none());
    cluster.create_in_namespace(claim_from("restored", "VolumeSnapshot", "s")).await;
    cluster.bound("restored").await;
    cluster
        .until("the claim is not held any more", |world| {
            world.claims.iter().all(|claim| {
                !claim.metadata.finalizers.iter().flatten().any(|held| held == SNAPSHOT_CLAIM_PROTECTION)
            })
        })
        .await;
    delete_snapshot(&cluster, "s").await;
    snapshots_deleted(&cluster).await;
    cluster.delete_claim("restored").await;
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
    let counts = cluster.driver.counts();
    assert_eq!(
        counts,
        BTreeMap::from([
            ("CreateVolume", vec![1, 1]),
            ("CreateSnapshot", vec![1]),
            ("DeleteSnapshot", vec![1]),
            ("DeleteVolume", vec![1, 1]),
        ])
    );
    assert_eq!(cluster.events("SnapshotReady", 1).await, ["Snapshot default/s is ready to use."]);
    assert_eq!(
        cluster.events("CreatingSnapshot", 1).await,
        ["Waiting for a snapshot default/s to be created by the CSI driver."]
    );
}

/// A claim from a source is deleted, and then the source, while it is unknown whether CreateVolume has succeeded; `method`
/// deletes the source in the driver.
async fn stays_while_in_doubt(kind: &str, source: &str, method: &str) {
    let cluster = with_claim("Delete").await;
    cluster.create_in_namespace(testing::snapshot("s", "data", "snap")).await;
    ready(&cluster, "s").await;
    // The deletions come before the last of these.
    for _ in 0..5 {
        cluster.driver.fail("CreateVolume", Status::deadline_exceeded("still working"));
    }
    cluster.create_in_namespace(claim_from("new", kind, source)).await;
    cluster.events("ProvisioningFailed", 1).await;
    cluster.delete_claim("new").await;
    delete_snapshot(&cluster, "s").await;
    cluster.delete_claim("data").await;
    snapshots_deleted(&cluster).await;
    cluster.nothing_left().await;
    let calls = cluster.driver.state().calls.clone();
    let created = calls.iter().rposition(|(called, _)| *called == "CreateVolume");
    let deleted = calls.iter().position(|(called, _)| *called == method);
    assert!(deleted > created, "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_stays_until_the_outcome_of_its_restore_is_known() {
    stays_while_in_doubt("VolumeSnapshot", "s", "DeleteSnapshot").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_stays_until_the_outcome_of_its_clone_is_known() {
    stays_while_in_doubt("PersistentVolumeClaim", "data", "DeleteVolume").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_not_ready_is_asked_for_until_it_is() {
    let cluster = with_claim("Delete").await;
    cluster.driver.state().unready = 3;
    cluster.create_in_namespace(testing::snapshot("s", "data", "snap")).await;
    ready(&cluster, "s").await;
    let counts = cluster.driver.counts();
    assert_eq!((counts["CreateSnapshot"].clone(), counts.get("GetSnapshot")), (vec![4], None));
}

/// The group is not in the cache, so it is requested.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_deleted_group_is_deleted_without_a_call() {
    let cluster = with_claim("Delete").await;
    cluster.create_in_namespace(testing::snapshot("s", "data", "snap")).await;
    ready(&cluster, "s").await;
    let snapshots = cluster.namespaced::<VolumeSnapshot>();
    let contents = Api::<VolumeSnapshotContent>::all(cluster.client.clone());
    let params = PatchParams::default();
    let snapshot = snapshots.get("s").await.unwrap();
    let mut finalizers = snapshot.metadata.finalizers.clone().unwrap();
    finalizers.push("snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection".into());
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    snapshots.patch("s", &params, &patch).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"volumeGroupSnapshotName": "group"}}));
    snapshots.patch_status("s", &params, &patch).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"volumeGroupSnapshotHandle": "group-handle"}}));
    contents.patch_status(snapshot.content().unwrap(), &params, &patch).await.unwrap();
    delete_snapshot(&cluster, "s").await;
    snapshots_deleted(&cluster).await;
    assert_eq!(cluster.driver.counts().get("DeleteSnapshot"), None, "it goes with its group");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_might_exist_is_not_lost_with_its_object() {
    let cluster = with_claim("Delete").await;
    for _ in 0..3 {
        cluster.driver.lose_answer("CreateSnapshot", Status::deadline_exceeded("too slow"));
    }
    cluster.create_in_namespace(testing::snapshot("s", "data", "snap")).await;
    cluster.events("CreatingSnapshot", 1).await;
    cluster
        .until("the snapshot says why", |world| {
            let status = |s: &VolumeSnapshot| s.status.clone()?.error?.message;
            world
                .snapshots
                .iter()
                .any(|s| status(s).is_some_and(|messages| messages.contains("DeadlineExceeded")))
        })
        .await;
    delete_snapshot(&cluster, "s").await;
    snapshots_deleted(&cluster).await;
    assert_eq!(cluster.driver.counts()["CreateSnapshot"], [4]);
    assert_eq!(cluster.driver.counts()["DeleteSnapshot"], [1]);
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_snapshot_is_tried_again_and_can_be_deleted() {
    let cluster = with_claim("Delete").await;
    for _ in 0..2 {
        cluster.driver.fail("CreateSnapshot", Status::internal("disk on fire"));
    }
    cluster.create_in_namespace(testing::snapshot("s", "data", "snap")).await;
    ready(&cluster, "s").await;
    let snapshot = cluster.namespaced::<VolumeSnapshot>().get("s").await.unwrap();
    assert_eq!(snapshot.status.unwrap().error, None, "it is over");
    assert_eq!(cluster.driver.counts()["CreateSnapshot"], [3]);
    delete_snapshot(&cluster, "s").await;
    snapshots_deleted(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_an_impossible_time_is_not_ready_and_can_be_deleted() {
    let cluster = with_claim("Delete").await;
    // Milliseconds in place of seconds.
    cluster.driver.state().created = Some(1_700_000_000_000);
    cluster.create_in_namespace(testing::snapshot("s", "data", "snap")).await;
    cluster
        .until("the snapshot says why", |world| {
            let status = |s: &VolumeSnapshot| s.status.clone()?.error?.message;
            world
                .snapshots
                .iter()
                .any(|s| status(s).is_some_and(|messages| messages.contains("creation_time")))
        })
        .await;
    let snapshot = cluster.namespaced::<VolumeSnapshot>().get("s").await.unwrap();
    assert!(!snapshot.is_ready());
    delete_snapshot(&cluster, "s").await;
    snapshots_deleted(&cluster).await;
    assert_eq!(cluster.driver.counts()["DeleteSnapshot"], [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn classes_are_waited_for_and_the_default_one_is_taken() {
    let cluster = Cluster::start().await;
    cluster.bound_claim("data").await;
    let mut classless = testing::snapshot("s", "data", "");
    classless.spec.volume_snapshot_class_name = None;
    cluster.create_in_namespace(classless).await;
    let missing = "Failed to set default snapshot class with error cannot find default snapshot class";
    cluster.wait_for_event("SetDefaultSnapshotClassFailed", missing).await;
    cluster.create_in_namespace(testing::snapshot("t", "data", "later")).await;
    let messages = cluster.events("GetSnapshotClassFailed", 1).await;
    assert!(messages[0].contains("\"later\" not found"), "{messages:?}");
    let mut class = testing::snapshot_class("snap", "Delete");
    testing::annotate(&mut class.metadata, DEFAULT_SNAPSHOT_CLASS, "true");
    cluster.create(class).await;
    ready(&cluster, "s").await;
    cluster.create(testing::snapshot_class("later", "Delete")).await;
    ready(&cluster, "t").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retained_snapshot_is_bound_again_and_then_deleted() {
    let cluster = with_claim("Retain").await;
    cluster.create_in_namespace(testing::snapshot("s", "data", "snap")).await;
    ready(&cluster, "s").await;
    let handle = cluster.driver.state().snapshots.keys().next().unwrap().clone();
    delete_snapshot(&cluster, "s").await;
    cluster.until("the snapshot is gone", |world| world.snapshots.is_empty()).await;
    let contents = Api::<VolumeSnapshotContent>::all(cluster.client.clone());
    let retained = contents.list(&Default::default()).await.unwrap().items.remove(0);
    contents.delete(&retained.metadata.name.unwrap(), &DeleteParams::default()).await.unwrap();
    snapshots_deleted(&cluster).await;
    assert_eq!(cluster.driver.state().snapshots.len(), 1, "it was to be retained");

    let mut again = testing::snapshot("again", "data", "snap");
    again.spec.source.persistent_volume_claim_name = None;
    again.spec.source.volume_snapshot_content_name = Some("kept".into());
    let mut content = testing::snapshot_content("kept", &again, "Delete");
    content.spec.source.volume_handle = None;
    content.spec.source.snapshot_handle = Some(handle);
    content.spec.volume_snapshot_ref.uid = None;
    cluster.create_in_namespace(again).await;
    cluster.events("SnapshotContentMissing", 1).await;
    cluster.create(content).await;
    ready(&cluster, "again").await;
    delete_snapshot(&cluster, "again").await;
    snapshots_deleted(&cluster).await;
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_its_snapshot_and_the_snapshot_for_the_claim() {
    let cluster = with_claim("Delete").await;
    cluster.create_in_namespace(claim_from("restored", "VolumeSnapshot", "s")).await;
    let messages = cluster.events("ProvisioningFailed", 1).await;
    assert!(messages[0].contains("error getting snapshot s from api server"), "{messages:?}");
    cluster.driver.fail("CreateVolume", Status::internal("busy"));
    cluster.create_in_namespace(testing::snapshot("s", "data", "snap")).await;
    ready(&cluster, "s").await;
    delete_snapshot(&cluster, "s").await;
    cluster.bound("restored").await;
    snapshots_deleted(&cluster).await;
    assert_eq!(cluster.driver.counts()["DeleteSnapshot"], [1]);
}

/// Waits until the snapshot `s` has the provisioner's finalizer, or has it no longer.
async fn protected(cluster: &Cluster, expected: bool) {
    let key = ObjectKey::new(NAMESPACE, "s");
    cluster
        .until(&format!("the snapshot is protected: {expected}"), |world| {
            let finalizers = world.snapshots.get(&key).and_then(|found| found.metadata.finalizers.clone());
            finalizers.unwrap_or_default().iter().any(|held| held == RESTORE_PROTECTION) == expected
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_protected_until_no_claim_waits_for_a_volume_from_it() {
    let cluster = with_claim("Delete").await;
    cluster.create_in_namespace(testing::snapshot("s", "data", "snap")).await;
    ready(&cluster, "s").await;
    cluster.driver.state().refuses = true;
    for name in ["one", "two", "three"] {
        cluster.create_in_namespace(claim_from(name, "VolumeSnapshot", "s")).await;
    }
    protected(&cluster, true).await;
    cluster.delete_claim("three").await;
    cluster.driver.state().refuses = false;
    cluster.bound("one").await;
    cluster.bound("two").await;
    protected(&cluster, false).await;

    cluster.driver.state().refuses = true;
    cluster.create_in_namespace(claim_from("last", "VolumeSnapshot", "s")).await;
    protected(&cluster, true).await;
    delete_snapshot(&cluster, "s").await;
    cluster.delete_claim("last").await;
    snapshots_deleted(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_holds_its_source_until_it_is_made() {
    let cluster = Cluster::start().await;
    let volume = cluster.bound_claim("data").await;
    cluster.driver.fail("CreateVolume", Status::internal("busy"));
    cluster.create_in_namespace(claim_from("clone", "PersistentVolumeClaim", "data")).await;
    let key = ObjectKey::new(NAMESPACE, "data");
    cluster
        .until("the source is held", |world| {
            let finalizers = world.claims.get(&key).and_then(|claim| claim.metadata.finalizers.clone());
            finalizers.unwrap_or_default().iter().any(|held| held == CLONE_PROTECTION)
        })
        .await;
    cluster.delete_claim("data").await;
    cluster.bound("clone").await;
    cluster.until("the source is gone", |world| world.claims.len() == 1).await;
    cluster.until("its volume is gone", |world| world.volumes.named(&volume).is_none()).await;
    cluster.delete_claim("clone").await;
    cluster.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_populator_fills_is_left_to_it() {
    let cluster = Cluster::start().await;
    let mut claim = testing::claim("data", "fast", "64Mi");
    claim.spec.get_or_insert_default().data_source_ref =
        Some(k8s_openapi::api::core::v1::TypedObjectReference {
            api_group: Some("example.com".into()),
            kind: "Book".into(),
            name: "b".into(),
            namespace: None,
        });
    cluster.create_in_namespace(claim).await;
    let mut messages = cluster.events("Provisioning", 2).await;
    messages.sort();
    assert_eq!(
        messages,
        [
            "Assuming an external populator will provision the volume",
            "External provisioner is provisioning volume for claim \"default/data\"",
        ]
    );
    assert_eq!(cluster.driver.counts(), BTreeMap::new());
}
