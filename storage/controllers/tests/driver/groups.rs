//! Groups of snapshots are created and deleted with their members, whatever the driver answers.

use std::collections::BTreeMap;

use claimcheck_controllers::{Name, Options};
use claimcheck_informer::testing::{self, DRIVER, NAMESPACE};
use claimcheck_model::{
    ObjectKey,
    group_snapshot::{GroupSnapshotHandles, VolumeGroupSnapshot, VolumeGroupSnapshotContent},
    metric::SNAPSHOT_OPERATION,
    snapshot::VolumeSnapshot,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, TypedLocalObjectReference};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tonic::Status;

use crate::{cluster::Cluster, process::Process};

/// A cluster with the class `groups` and the claims `a` and `b` of the group `g`, bound.
async fn with_claims(policy: &str) -> Cluster {
    let mut cluster = Cluster::prepare().await;
    cluster.create(testing::group_snapshot_class("groups", policy)).await;
    cluster.run();
    for name in ["a", "b"] {
        cluster.bound_claim(name).await;
        label(&cluster, name).await;
    }
    // One that is not selected.
    cluster.bound_claim("other").await;
    cluster
}

/// Adds a claim to the group.
async fn label(cluster: &Cluster, claim: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"group": "g"}}}));
    let claims = cluster.namespaced::<PersistentVolumeClaim>();
    claims.patch(claim, &PatchParams::default(), &patch).await.unwrap();
}

async fn ready(cluster: &Cluster, name: &str, members: usize) {
    let key = ObjectKey::new(NAMESPACE, name);
    cluster
        .until("the group and its members are ready", |world| {
            world.group_snapshots.get(&key).is_some_and(|group| group.is_ready())
                && world.snapshots.len() == members
                && world.snapshots.iter().all(|snapshot| {
                    let status = snapshot.status.as_ref();
                    let group = status.and_then(|status| status.volume_group_snapshot_name.as_deref());
                    snapshot.is_ready() && group == Some(name)
                })
        })
        .await;
}

async fn delete_group(cluster: &Cluster, name: &str) {
    cluster.namespaced::<VolumeGroupSnapshot>().delete(name, &DeleteParams::default()).await.unwrap();
}

async fn all_deleted(cluster: &Cluster) {
    cluster
        .until("no group, no snapshot and no content is left", |world| {
            world.group_snapshots.is_empty()
                && world.group_snapshot_contents.is_empty()
                && world.snapshots.is_empty()
                && world.snapshot_contents.is_empty()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_created_restored_and_deleted_by_one_call_each() {
    let cluster = with_claims("Delete").await;
    cluster.create_in_namespace(testing::group_snapshot("g", "groups")).await;
    ready(&cluster, "g", 2).await;
    let mut members = cluster.namespaced::<VolumeSnapshot>().list(&Default::default()).await.unwrap().items;
    members.sort_by_key(|member| member.spec.source.persistent_volume_claim_name.clone());
    let claims: Vec<_> =
        members.iter().filter_map(|one| one.spec.source.persistent_volume_claim_name.as_deref()).collect();
    assert_eq!(claims, ["a", "b"]);
    let mut restored = testing::claim("restored", "fast", "64Mi");
    restored.spec.get_or_insert_default().data_source = Some(TypedLocalObjectReference {
        api_group: Some(claimcheck_model::snapshot::GROUP.to_owned()),
        kind: "VolumeSnapshot".into(),
        name: members[0].metadata.name.clone().unwrap(),
    });
    cluster.create_in_namespace(restored).await;
    cluster.bound("restored").await;
    delete_group(&cluster, "g").await;
    all_deleted(&cluster).await;
    let counts = cluster.driver.counts();
    let of_snapshots: BTreeMap<_, _> =
        counts.into_iter().filter(|(method, _)| method.contains("Snapshot")).collect();
    let expected =
        BTreeMap::from([("CreateVolumeGroupSnapshot", vec![1]), ("DeleteVolumeGroupSnapshot", vec![1])]);
    assert_eq!(of_snapshots, expected);
    assert!(cluster.driver.state().snapshots.is_empty());
    let recorded = cluster.notes.recorded().into_iter();
    let operations = recorded.filter(|(metric, ..)| *metric == SNAPSHOT_OPERATION.name);
    // The deletion is recorded when the controllers observe it, which may be after this.
    let creations: Vec<_> =
        operations.map(|(_, labels, _)| labels).filter(|labels| labels.contains("CreateGroup")).collect();
    let line = |operation: &str| format!("{DRIVER} {operation} success dynamic");
    assert_eq!(creations, [line("CreateGroupSnapshot"), line("CreateGroupSnapshotAndReady")]);
    assert_eq!(cluster.events("GroupSnapshotReady", 1).await, ["GroupSnapshot default/g is ready to use."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_creates_groups_since_its_restart_is_called() {
    let mut cluster = Cluster::prepare().await;
    cluster.create(testing::group_snapshot_class("groups", "Delete")).await;
    cluster.driver.state().lacks_groups = true;
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("csi.sock");
    let process = Process::start(&path, &cluster.driver, cluster.driver.clone());
    let names = [Name::Binder, Name::Provisioner, Name::SnapshotController, Name::Snapshotter];
    cluster.run_at(&path, names, Options::default());
    cluster.bound_claim("a").await;
    label(&cluster, "a").await;
    cluster.create_in_namespace(testing::group_snapshot("g", "groups")).await;
    cluster.until("the group has its content", |world| !world.group_snapshot_contents.is_empty()).await;
    process.stop().await;
    assert!(!cluster.driver.counts().contains_key("CreateVolumeGroupSnapshot"));
    cluster.driver.state().lacks_groups = false;
    let _process = Process::start(&path, &cluster.driver, cluster.driver.clone());
    ready(&cluster, "g", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_not_deleted_alone() {
    let cluster = with_claims("Delete").await;
    cluster.create_in_namespace(testing::group_snapshot("g", "groups")).await;
    ready(&cluster, "g", 2).await;
    let snapshots = cluster.namespaced::<VolumeSnapshot>();
    let member = snapshots.list(&Default::default()).await.unwrap().items.remove(0).metadata.name.unwrap();
    snapshots.delete(&member, &DeleteParams::default()).await.unwrap();
    let messages = cluster.events("SnapshotDeletePending", 1).await;
    assert!(messages[0].contains("as it belongs to group snapshot default/g"), "{messages:?}");
    assert!(snapshots.get(&member).await.is_ok(), "the group still exists");
    delete_group(&cluster, "g").await;
    all_deleted(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_group_is_tried_again_and_can_be_deleted() {
    let cluster = with_claims("Delete").await;
    for _ in 0..2 {
        cluster.driver.fail("CreateVolumeGroupSnapshot", Status::internal("disk on fire"));
    }
    cluster.driver.fail("DeleteVolumeGroupSnapshot", Status::internal("still on fire"));
    cluster.create_in_namespace(testing::group_snapshot("g", "groups")).await;
    ready(&cluster, "g", 2).await;
    let group = cluster.namespaced::<VolumeGroupSnapshot>().get("g").await.unwrap();
    assert_eq!(group.status.unwrap().error, None, "it is over");
    assert_eq!(cluster.driver.counts()["CreateVolumeGroupSnapshot"], [3]);
    delete_group(&cluster, "g").await;
    all_deleted(&cluster).await;
    assert_eq!(cluster.driver.counts()["DeleteVolumeGroupSnapshot"], [2]);
    let messages = cluster.events("GroupSnapshotDeleteError", 1).await;
    assert_eq!(messages, ["Failed to delete group snapshot"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_without_its_secret_can_be_deleted() {
    let cluster = with_claims("Delete").await;
    let mut class = testing::group_snapshot_class("secret", "Delete");
    let parameters = [
        ("csi.storage.k8s.io/group-snapshotter-secret-name", "missing"),
        ("csi.storage.k8s.io/group-snapshotter-secret-namespace", NAMESPACE),
    ];
    class.parameters = Some(parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    cluster.create(class).await;
    cluster.create_in_namespace(testing::group_snapshot("g", "secret")).await;
    let messages = cluster.events("GroupSnapshotCreationFailed", 1).await;
    assert!(messages[0].contains("cannot get credentials for group snapshot content"), "{messages:?}");
    delete_group(&cluster, "g").await;
    all_deleted(&cluster).await;
    assert_eq!(cluster.driver.counts().get("CreateVolumeGroupSnapshot"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_group_is_bound_and_then_deleted() {
    let cluster = with_claims("Delete").await;
    let handle = {
        let mut state = cluster.driver.state();
        state.groups.insert("there".into(), vec!["there-a".into()]);
        state.snapshots.insert("there-a".into(), "a".into());
        "there".to_owned()
    };
    let mut group = testing::group_snapshot("g", "groups");
    group.spec.source.selector = None;
    group.spec.source.volume_group_snapshot_content_name = Some("imported".into());
    group.spec.volume_group_snapshot_class_name = None;
    let mut content = testing::group_snapshot_content("imported", &group, &[], "Delete");
    content.spec.source.volume_handles = None;
    content.spec.source.group_snapshot_handles = Some(GroupSnapshotHandles {
        volume_group_snapshot_handle: handle,
        volume_snapshot_handles: vec!["there-a".into()],
    });
    content.spec.volume_group_snapshot_ref.uid = None;
    cluster.create_in_namespace(group).await;
    cluster.events("GroupSnapshotContentMissing", 1).await;
    cluster.create(content).await;
    ready(&cluster, "g", 0).await;
    let contents = Api::<VolumeGroupSnapshotContent>::all(cluster.client.clone());
    let found = contents.get("imported").await.unwrap();
    assert_eq!((found.handle(), found.members().len()), (Some("there"), 0));
    delete_group(&cluster, "g").await;
    all_deleted(&cluster).await;
    assert!(cluster.driver.state().groups.is_empty(), "the driver has deleted it");
}
