//! Where pods go is decided together with the driver: by its room, its limits, and its refusals.

use claimcheck_informer::{
    World,
    testing::{self, DRIVER, NAMESPACE},
};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::{
    core::v1::{Container, Pod},
    storage::v1::{CSIDriver, CSINode, StorageClass},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tonic::Status;

use crate::{cluster::Cluster, fake::ZONE};

/// Zone and MiB of every published capacity, in order.
fn published(world: &World) -> Vec<(String, String)> {
    let mut all: Vec<_> = world
        .capacities
        .iter()
        .map(|capacity| {
            let labels = capacity.node_topology.clone().unwrap().match_labels.unwrap();
            (labels[ZONE].clone(), capacity.capacity.clone().unwrap().0)
        })
        .collect();
    all.sort();
    all
}

/// MiB of the zones `a` and `b`.
fn pairs(left: [&str; 2]) -> Vec<(String, String)> {
    ["a", "b"].into_iter().zip(left).map(|(zone, left)| (zone.to_owned(), left.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn capacities_follow_the_volumes() {
    let mut cluster = Cluster::prepare().await;
    let mut driver = testing::csi_driver(true);
    driver.spec.storage_capacity = Some(true);
    cluster.create::<CSIDriver>(driver).await;
    cluster.create::<StorageClass>(testing::wait_for_first_consumer_class("late", DRIVER)).await;
    cluster.run();
    cluster.until("both zones are published", |world| published(world) == pairs(["1000Mi"; 2])).await;

    cluster.schedule();
    cluster.create_in_namespace(testing::claim("data", "late", "64Mi")).await;
    cluster.pod("user", "", "data").await;
    assert_eq!(cluster.scheduled("user").await, "a");
    // The driver has one pool; the capacity of the other zone is not measured until the next poll.
    let expected = pairs(["999Mi", "1000Mi"]);
    cluster.until("the volume shows in its zone", |world| published(world) == expected).await;
    // 2000Mi fit nowhere; the pod gets an event.
    cluster.create_in_namespace(testing::claim("large", "late", "2000Mi")).await;
    cluster.pod("hopeful", "", "large").await;
    let message = "0/2 nodes are available: 2 node(s) did not have enough free storage.";
    cluster.wait_for_event("FailedScheduling", message).await;
    let classes = Api::<StorageClass>::all(cluster.client.clone());
    classes.delete("late", &DeleteParams::default()).await.unwrap();
    cluster.until("nothing is published", |world| world.capacities.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_room_is_not_chosen_again() {
    let mut cluster = Cluster::prepare().await;
    cluster.create::<StorageClass>(testing::wait_for_first_consumer_class("late", DRIVER)).await;
    cluster.run();
    cluster.schedule();
    cluster.driver.fail("CreateVolume", Status::resource_exhausted("full"));
    cluster.create_in_namespace(testing::claim("data", "late", "64Mi")).await;
    cluster.pod("user", "", "data").await;
    assert_eq!(cluster.scheduled("user").await, "b", "the first choice was a");
    assert_eq!(cluster.driver.counts()["CreateVolume"], [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_higher_priority_gets_the_claim_for_one_pod() {
    let mut cluster = Cluster::prepare().await;
    cluster.create::<StorageClass>(testing::wait_for_first_consumer_class("late", DRIVER)).await;
    cluster.run();
    cluster.schedule();
    let mut claim = testing::claim("data", "late", "64Mi");
    claim.spec.get_or_insert_default().access_modes = Some(vec!["ReadWriteOncePod".into()]);
    cluster.create_in_namespace(claim).await;
    cluster.pod("user", "", "data").await;
    let node = cluster.scheduled("user").await;
    let mut important = testing::pod("important", "", &["data"]);
    let container = Container { name: "c".into(), image: Some("none".into()), ..Container::default() };
    let spec = important.spec.get_or_insert_default();
    spec.containers = vec![container];
    spec.priority_class_name = Some("system-cluster-critical".into());
    let important = cluster.create_in_namespace(important).await;

    let key = ObjectKey::new(NAMESPACE, "user");
    let is_deleting =
        |world: &World| world.pods.get(&key).is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    cluster.until("the user of the claim is being deleted", is_deleting).await;
    let message = format!("Preempted by pod {} on node {node}", important.metadata.uid.unwrap());
    cluster.wait_for_event("Preempted", &message).await;
    let user = cluster.namespaced::<Pod>().get("user").await.unwrap();
    let conditions = user.status.unwrap().conditions.unwrap_or_default();
    let disrupted = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget");
    assert_eq!(disrupted.and_then(|found| found.reason.as_deref()), Some("PreemptionByScheduler"));
    cluster.end_pod("user").await;
    assert_eq!(cluster.scheduled("important").await, node);
}

#[tokio::test(flavor = "multi_thread")]
async fn unschedulable_pods_are_retried_in_turn_when_capacity_is_free() {
    let mut cluster = Cluster::prepare().await;
    cluster.create::<CSIDriver>(testing::csi_driver(true)).await;
    cluster.create::<StorageClass>(testing::wait_for_first_consumer_class("late", DRIVER)).await;
    cluster.run();
    let csi_nodes = Api::<CSINode>::all(cluster.client.clone());
    let limit = async |node: &str, count: i32| {
        let driver =
            json!({"name": DRIVER, "nodeID": node, "topologyKeys": [ZONE], "allocatable": {"count": count}});
        let patch = Patch::Merge(json!({"spec": {"drivers": [driver]}}));
        csi_nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
    };
    limit("a", 1).await;
    limit("b", 0).await;
    cluster.schedule();
    for n in 0..4 {
        cluster.create_in_namespace(testing::claim(&format!("data-{n}"), "late", "64Mi")).await;
    }
    cluster.pod("user-0", "", "data-0").await;
    assert_eq!(cluster.scheduled("user-0").await, "a");
    for n in 1..4 {
        cluster.pod(&format!("user-{n}"), "", &format!("data-{n}")).await;
    }
    cluster
        .wait_for_event("FailedScheduling", "0/2 nodes are available: 2 node(s) exceed max volume count.")
        .await;
    // Two places on the other node: two of the three, the second since the first was placed.
    limit("b", 2).await;
    let placed = |world: &World| {
        let nodes = world.pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref());
        nodes.filter(|node| *node == "b").count()
    };
    cluster.until("two pods are on b", |world| placed(world) == 2).await;
    // The place of the first pod is free once its volume is detached.
    cluster.end_pod("user-0").await;
    for n in 1..4 {
        cluster.scheduled(&format!("user-{n}")).await;
    }
}
