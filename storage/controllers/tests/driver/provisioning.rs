//! Volumes come and go with their claims, whatever the driver answers.

use std::{collections::BTreeMap, time::Duration};

use claimcheck_controllers::{Name, Options};
use claimcheck_csi::v1::controller_service_capability::rpc;
use claimcheck_informer::{
    World,
    testing::{self, DRIVER, NAMESPACE},
};
use claimcheck_model::{ObjectKey, SELECTED_NODE};
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim, Secret, VolumeNodeAffinity},
        storage::v1::{CSIDriver, CSINode, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tonic::Status;

use crate::{cluster::Cluster, fake::ZONE, process::Process};

/// Selects a node for a claim, in place of the scheduler.
async fn select(cluster: &Cluster, claim: &str, node: &str) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: node}}}));
    let claims = cluster.namespaced::<PersistentVolumeClaim>();
    claims.patch(claim, &PatchParams::default(), &patch).await.unwrap();
}

/// A class that names a secret for each of its claims.
fn class_with_secrets() -> StorageClass {
    let parameters = [
        ("csi.storage.k8s.io/provisioner-secret-name", "${pvc.name}-key"),
        ("csi.storage.k8s.io/provisioner-secret-namespace", "${pvc.namespace}"),
    ];
    let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    StorageClass { parameters: Some(parameters), ..testing::class("secret", DRIVER) }
}

/// The secret of the claim `data`.
fn secret() -> Secret {
    let data = BTreeMap::from([("token".to_owned(), ByteString(b"open sesame".to_vec()))]);
    let metadata = ObjectMeta { name: Some("data-key".into()), ..ObjectMeta::default() };
    Secret { metadata, data: Some(data), ..Secret::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_each_way() {
    let cluster = Cluster::start().await;
    let volume = cluster.bound_claim("data").await;
    let object = Api::<PersistentVolume>::all(cluster.client.clone()).get(&volume).await.unwrap();
    let affinity = serde_json::to_value(object.spec.unwrap().node_affinity.unwrap()).unwrap();
    assert_eq!(affinity["required"]["nodeSelectorTerms"].as_array().unwrap().len(), 1);
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
    let counts = cluster.driver.counts();
    assert_eq!(counts, BTreeMap::from([("CreateVolume", vec![1]), ("DeleteVolume", vec![1])]));
    assert_eq!(
        cluster.events("Provisioning", 1).await,
        ["External provisioner is provisioning volume for claim \"default/data\""]
    );
    assert_eq!(
        cluster.events("ProvisioningSucceeded", 1).await,
        [format!("Successfully provisioned volume {volume}")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_might_exist_is_not_lost_with_its_claim() {
    let cluster = Cluster::start().await;
    for _ in 0..3 {
        cluster.driver.lose_answer("CreateVolume", Status::deadline_exceeded("too slow"));
    }
    cluster.claim("data").await;
    cluster.events("ProvisioningFailed", 1).await;
    cluster.delete_claim("data").await;
    cluster.until("the claim is gone", |world| world.claims.is_empty()).await;
    // Its PersistentVolume may exist for too short a time to be seen.
    let is_deleted = |_: &World| cluster.driver.counts().contains_key("DeleteVolume");
    cluster.until("it was provisioned after all, and deleted", is_deleted).await;
    cluster.nothing_left().await;
    assert_eq!(cluster.driver.counts()["CreateVolume"], [4]);
    assert_eq!(cluster.driver.counts()["DeleteVolume"], [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refusal_a_deleted_claim_is_forgotten() {
    let cluster = Cluster::start().await;
    cluster.driver.state().refuses = true;
    cluster.claim("data").await;
    cluster.events("ProvisioningFailed", 1).await;
    cluster.delete_claim("data").await;
    cluster.until("the claim is gone", |world| world.claims.is_empty()).await;
    cluster.driver.state().refuses = false;
    // That nothing happens takes time to see: as long as the next tries would take.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(cluster.driver.state().volumes, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_room_on_the_selected_node_asks_for_another() {
    let mut cluster = Cluster::prepare().await;
    cluster.create::<StorageClass>(testing::wait_for_first_consumer_class("late", DRIVER)).await;
    cluster.run();
    cluster.driver.fail("CreateVolume", Status::resource_exhausted("full"));
    cluster.create_in_namespace(testing::claim("data", "late", "64Mi")).await;
    select(&cluster, "data", "a").await;
    let key = ObjectKey::new(NAMESPACE, "data");
    cluster.events("ProvisioningFailed", 1).await;
    cluster
        .until("the node is given up", |world| {
            let annotations = world.claims.get(&key).and_then(|claim| claim.metadata.annotations.clone());
            !annotations.unwrap_or_default().contains_key(SELECTED_NODE)
        })
        .await;
    select(&cluster, "data", "b").await;
    cluster.bound("data").await;
    assert_eq!(cluster.driver.counts()["CreateVolume"], [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_deleted_stays_until_it_can() {
    let cluster = Cluster::start().await;
    let volume = cluster.bound_claim("data").await;
    cluster.driver.fail("DeleteVolume", Status::internal("busy"));
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
    assert_eq!(cluster.driver.counts()["DeleteVolume"], [2]);
    let events = Api::<k8s_openapi::api::core::v1::Event>::namespaced(cluster.client.clone(), "default");
    let failed = events.list(&Default::default()).await.unwrap().items;
    let about = failed.iter().find(|event| event.reason.as_deref() == Some("VolumeFailedDelete"));
    assert_eq!(about.and_then(|event| event.involved_object.name.as_deref()), Some(volume.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_reach_the_driver_as_soon_as_they_exist() {
    let mut cluster = Cluster::prepare().await;
    cluster.create::<StorageClass>(class_with_secrets()).await;
    cluster.run();
    let claim = cluster.create_in_namespace(testing::claim("data", "secret", "64Mi")).await;
    let events = cluster.events("ProvisioningFailed", 1).await;
    assert_eq!(
        events,
        [r#"error getting secret data-key in namespace default: secrets "data-key" not found"#]
    );
    cluster.create_in_namespace(secret()).await;
    cluster.bound("data").await;
    assert_eq!(cluster.driver.state().secrets["token"], "open sesame");
    assert_eq!(cluster.driver.state().volumes[&format!("pvc-{}", claim.metadata.uid.unwrap())].len(), 0);
}

/// A cluster with a volume that has a secret, and the volume's name.
async fn with_secret() -> (Cluster, String) {
    let mut cluster = Cluster::prepare().await;
    cluster.create::<StorageClass>(class_with_secrets()).await;
    cluster.create_in_namespace(secret()).await;
    cluster.run();
    let claim = cluster.create_in_namespace(testing::claim("data", "secret", "64Mi")).await;
    cluster.bound("data").await;
    cluster.driver.state().secrets.clear();
    (cluster, format!("pvc-{}", claim.metadata.uid.unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_deleted_without_secrets_once_its_secret_is_gone() {
    let (cluster, _) = with_secret().await;
    cluster.namespaced::<Secret>().delete("data-key", &DeleteParams::default()).await.unwrap();
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
    assert_eq!(cluster.driver.counts()["DeleteVolume"], [1]);
    assert_eq!(cluster.driver.state().secrets, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_without_annotations_is_deleted_with_the_secret_of_its_class() {
    let (cluster, volume) = with_secret().await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {
        "volume.kubernetes.io/provisioner-deletion-secret-name": null,
        "volume.kubernetes.io/provisioner-deletion-secret-namespace": null,
    }}}));
    let volumes = Api::<PersistentVolume>::all(cluster.client.clone());
    volumes.patch(&volume, &PatchParams::default(), &patch).await.unwrap();
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
    assert_eq!(cluster.driver.state().secrets["token"], "open sesame");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_doubt_outlives_the_driver_on_its_node() {
    let mut cluster = Cluster::prepare().await;
    cluster.create::<StorageClass>(testing::wait_for_first_consumer_class("late", DRIVER)).await;
    cluster.run();
    for _ in 0..3 {
        cluster.driver.lose_answer("CreateVolume", Status::deadline_exceeded("too slow"));
    }
    cluster.create_in_namespace(testing::claim("data", "late", "64Mi")).await;
    select(&cluster, "data", "b").await;
    cluster.events("ProvisioningFailed", 1).await;
    Api::<CSINode>::all(cluster.client.clone()).delete("b", &DeleteParams::default()).await.unwrap();
    cluster.bound("data").await;
    cluster
        .until("the volume is in the zone of the first call", |world| {
            let mut volumes = world.volumes.iter().filter_map(|volume| volume.spec.as_ref());
            volumes.any(|spec| spec.node_affinity == Some(only_in("b")))
        })
        .await;
    assert_eq!(cluster.driver.counts()["CreateVolume"], [4]);
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
}

fn only_in(zone: &str) -> VolumeNodeAffinity {
    let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
    serde_json::from_value(json!({"required": {"nodeSelectorTerms": [term]}})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_infeasible_call_is_repeated_for_another_class_of_the_name() {
    let cluster = Cluster::start().await;
    cluster.driver.fail("CreateVolume", Status::invalid_argument("what?"));
    cluster.claim("data").await;
    let message = "Volume provisioning failed with infeasible error. Retries will be delayed. \
                   rpc error: code = InvalidArgument desc = what?";
    cluster.wait_for_event("ProvisioningFailed", message).await;
    // That nothing happens takes time to see: as long as the next tries would take.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(cluster.driver.counts()["CreateVolume"], [1]);
    let classes = Api::<StorageClass>::all(cluster.client.clone());
    classes.delete("fast", &DeleteParams::default()).await.unwrap();
    cluster.create::<StorageClass>(testing::class("fast", DRIVER)).await;
    cluster.bound("data").await;
    assert_eq!(cluster.driver.counts()["CreateVolume"], [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_used_is_deleted_or_reported_as_orphaned() {
    let cluster = Cluster::start().await;
    let unfit =
        format!("created volume capacity {} less than requested capacity {}", (64 << 20) - 1, 64 << 20);
    for (name, failures, orphaned) in [("mended", 4, false), ("orphan", 5, true)] {
        cluster.driver.state().too_small = 1;
        for _ in 0..failures {
            cluster.driver.fail("DeleteVolume", Status::internal("busy"));
        }
        let volume = cluster.bound_claim(name).await;
        let failed = match orphaned {
            true => format!(
                "{unfit}. Cleanup of volume {volume} failed, volume is orphaned: rpc error: code = Internal \
                 desc = busy"
            ),
            false => unfit.clone(),
        };
        cluster.wait_for_event("ProvisioningFailed", &failed).await;
        let calls = cluster.driver.state().calls.clone();
        let count = |method| calls.iter().filter(|call| **call == (method, volume.clone())).count();
        assert_eq!((count("CreateVolume"), count("DeleteVolume")), (2, 5), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_creates_no_volumes_is_not_called() {
    let mut cluster = Cluster::prepare().await;
    cluster.driver.state().lacks = Some(rpc::Type::CreateDeleteVolume);
    cluster.run();
    cluster.claim("data").await;
    let message = "CSI driver does not support dynamic provisioning: controller CREATE_DELETE_VOLUME capability \
                   is not reported";
    cluster.wait_for_event("ProvisioningFailed", message).await;
    assert_eq!(cluster.driver.counts(), BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_creates_volumes_since_its_restart_is_called() {
    let mut cluster = Cluster::prepare().await;
    cluster.driver.state().lacks = Some(rpc::Type::CreateDeleteVolume);
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("csi.sock");
    let process = Process::start(&path, &cluster.driver, cluster.driver.clone());
    cluster.run_at(&path, [Name::Binder, Name::Provisioner], Options::default());
    cluster.claim("data").await;
    cluster.events("ProvisioningFailed", 1).await;
    process.stop().await;
    cluster.driver.state().lacks = None;
    let _process = Process::start(&path, &cluster.driver, cluster.driver.clone());
    cluster.bound("data").await;
    assert_eq!(cluster.driver.counts(), BTreeMap::from([("CreateVolume", vec![1])]));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_reported_without_a_prefix_after_the_event_provisioning() {
    let mut cluster = Cluster::prepare().await;
    let mut foreign = testing::class("strange", DRIVER);
    foreign.parameters = Some(BTreeMap::from([("csi.storage.k8s.io/x".to_owned(), String::new())]));
    cluster.create::<StorageClass>(foreign).await;
    cluster.run();
    cluster.driver.fail("CreateVolume", Status::internal("disk on fire"));
    cluster.claim("data").await;
    cluster.wait_for_event("ProvisioningFailed", "rpc error: code = Internal desc = disk on fire").await;
    cluster.create_in_namespace(testing::claim("never", "strange", "64Mi")).await;
    let began = "External provisioner is provisioning volume for claim \"default/never\"";
    cluster.wait_for_event("Provisioning", began).await;
    let failed = "failed to strip CSI Parameters of prefixed keys: found unknown parameter key \
                  \"csi.storage.k8s.io/x\" with reserved namespace csi.storage.k8s.io/";
    cluster.wait_for_event("ProvisioningFailed", failed).await;
}

/// The calls of GetCapacity for zones `a` and `b`.
fn measured(cluster: &Cluster) -> [usize; 2] {
    let calls = cluster.driver.state().calls.clone();
    ["a", "b"].map(|zone| calls.iter().filter(|call| **call == ("GetCapacity", zone.to_owned())).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_measured_in_its_own_zone_alone() {
    let mut cluster = Cluster::prepare().await;
    let mut driver = testing::csi_driver(true);
    driver.spec.storage_capacity = Some(true);
    cluster.create::<CSIDriver>(driver).await;
    for class in ["one", "two"] {
        cluster.create::<StorageClass>(testing::wait_for_first_consumer_class(class, DRIVER)).await;
    }
    cluster.run();
    // Both classes in this zone; the driver reports the same for all zones.
    let shows = |world: &World, zone: &str, left: &str| {
        let present = world.capacities.iter().filter(|capacity| {
            let labels = capacity.node_topology.as_ref().and_then(|topology| topology.match_labels.as_ref());
            labels.is_some_and(|labels| labels[ZONE] == zone)
                && capacity.capacity.as_ref().is_some_and(|capacity| capacity.0 == left)
        });
        present.count() == 2
    };
    cluster
        .until("both zones are published", |world| shows(world, "a", "1000Mi") && shows(world, "b", "1000Mi"))
        .await;
    assert_eq!(measured(&cluster), [2, 2]);
    cluster.create_in_namespace(testing::claim("data", "one", "64Mi")).await;
    select(&cluster, "data", "a").await;
    cluster.until("the volume shows", |world| shows(world, "a", "999Mi")).await;
    cluster.bound("data").await;
    cluster.delete_claim("data").await;
    cluster.until("its deletion shows", |world| shows(world, "a", "1000Mi")).await;
    assert_eq!(measured(&cluster), [6, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_comes_later_is_noticed() {
    let cluster = Cluster::start().await;
    let mut claim = testing::claim("data", "slow", "64Mi");
    testing::annotate(&mut claim.metadata, claimcheck_model::STORAGE_PROVISIONER, DRIVER);
    cluster.create_in_namespace(claim).await;
    cluster.events("ProvisioningFailed", 1).await;
    cluster.create::<StorageClass>(testing::class("slow", DRIVER)).await;
    cluster.bound("data").await;
    Api::<StorageClass>::all(cluster.client.clone()).delete("slow", &DeleteParams::default()).await.unwrap();
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
}
