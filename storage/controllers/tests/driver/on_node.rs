//! A provisioner on one node of a cluster (`--node-deployment`).

use std::time::Duration;

use claimcheck_informer::{
    World,
    testing::{self, DRIVER, NAMESPACE},
};
use claimcheck_model::{ObjectKey, SELECTED_NODE};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use tonic::Status;

use crate::cluster::Cluster;

const DELAY: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_owned_where_its_volume_fits() {
    let mut cluster = Cluster::prepare().await;
    cluster.driver.state().room.insert("a".into(), 1);
    cluster.run_on_node(DELAY);
    cluster.claim("data").await;
    // Attempts are repeated until there is room.
    let repeated = async {
        while cluster.driver.counts().get("GetCapacity").is_none_or(|counts| counts[0] < 2) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), repeated).await.unwrap();
    assert!(!cluster.driver.counts().contains_key("CreateVolume"));
    cluster.driver.state().room.clear();
    cluster.bound("data").await;
    let claim = cluster.namespaced::<PersistentVolumeClaim>().get("data").await.unwrap();
    assert_eq!(claim.metadata.annotations.unwrap()[SELECTED_NODE], "a");
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_given_up_without_room_and_owned_again() {
    let mut cluster = Cluster::prepare().await;
    cluster.driver.fail("CreateVolume", Status::resource_exhausted("full"));
    cluster.run_on_node(DELAY);
    cluster.claim("data").await;
    cluster.events("ProvisioningFailed", 1).await;
    cluster.bound("data").await;
    assert_eq!(cluster.driver.counts()["CreateVolume"], [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_and_volumes_of_other_nodes_are_left_alone() {
    let mut cluster = Cluster::prepare().await;
    cluster.create::<StorageClass>(testing::wait_for_first_consumer_class("late", DRIVER)).await;
    let mut foreign = testing::claim("foreign", "late", "64Mi");
    testing::annotate(&mut foreign.metadata, SELECTED_NODE, "b");
    cluster.create_in_namespace(foreign).await;
    let mut volume = testing::volume("elsewhere", "late", "64Mi");
    volume.status = None;
    let deleted = testing::claim_ref(&testing::claim("gone", "late", "64Mi"));
    volume.spec.get_or_insert_default().claim_ref = Some(deleted);
    let mut elsewhere = testing::only_on("b");
    for term in elsewhere.required.iter_mut().flat_map(|selector| &mut selector.node_selector_terms) {
        for requirement in term.match_expressions.iter_mut().flatten() {
            requirement.key = crate::fake::ZONE.into();
        }
    }
    volume.spec.get_or_insert_default().node_affinity = Some(elsewhere);
    cluster.create::<PersistentVolume>(volume).await;
    cluster.run_on_node(DELAY);
    let phase = |world: &World| world.volumes.named("elsewhere")?.status.clone()?.phase;
    cluster.until("its claim is gone", |world| phase(world).as_deref() == Some("Released")).await;
    let mut mine = testing::claim("mine", "late", "64Mi");
    testing::annotate(&mut mine.metadata, SELECTED_NODE, "a");
    cluster.create_in_namespace(mine).await;
    cluster.bound("mine").await;
    let key = ObjectKey::new(NAMESPACE, "foreign");
    cluster.until("the other claim is in the cache", |world| world.claims.get(&key).is_some()).await;
    let counts = cluster.driver.counts();
    assert_eq!(counts["CreateVolume"], [1], "for its own claim only");
    assert!(!counts.contains_key("DeleteVolume"), "{counts:?}");
}
