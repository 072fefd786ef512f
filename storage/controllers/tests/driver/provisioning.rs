//! Volumes come and go with their claims, whatever the driver answers.

use std::{collections::BTreeMap, time::Duration};

use claimcheck_informer::testing::{self, DRIVER, NAMESPACE};
use claimcheck_model::{ObjectKey, SELECTED_NODE};
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{PersistentVolume, Secret},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tonic::Status;

use crate::cluster::Cluster;

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
    cluster.until("it was provisioned after all", |world| !world.volumes.is_empty()).await;
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
    cluster.create::<StorageClass>(testing::late_class("late", DRIVER)).await;
    cluster.run();
    cluster.driver.fail("CreateVolume", Status::resource_exhausted("full"));
    cluster.create_in_namespace(testing::claim("data", "late", "64Mi")).await;
    let claims = cluster.namespaced::<k8s_openapi::api::core::v1::PersistentVolumeClaim>();
    let select = async |node: &str| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: node}}}));
        claims.patch("data", &PatchParams::default(), &patch).await.unwrap();
    };
    select("a").await;
    let key = ObjectKey::new(NAMESPACE, "data");
    cluster.events("ProvisioningFailed", 1).await;
    cluster
        .until("the node is given up", |world| {
            let annotations = world.claims.get(&key).and_then(|claim| claim.metadata.annotations.clone());
            !annotations.unwrap_or_default().contains_key(SELECTED_NODE)
        })
        .await;
    select("b").await;
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
    let parameters = [
        ("csi.storage.k8s.io/provisioner-secret-name", "${pvc.name}-key"),
        ("csi.storage.k8s.io/provisioner-secret-namespace", "${pvc.namespace}"),
    ];
    let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let class = StorageClass { parameters: Some(parameters), ..testing::class("secret", DRIVER) };
    cluster.create::<StorageClass>(class).await;
    cluster.run();
    let claim = cluster.create_in_namespace(testing::claim("data", "secret", "64Mi")).await;
    let events = cluster.events("ProvisioningFailed", 1).await;
    assert_eq!(
        events,
        ["cannot read secret default/data-key; create it, or allow this controller to get it"]
    );
    let data = BTreeMap::from([("token".to_owned(), ByteString(b"open sesame".to_vec()))]);
    let metadata = ObjectMeta { name: Some("data-key".into()), ..ObjectMeta::default() };
    cluster.create_in_namespace(Secret { metadata, data: Some(data), ..Secret::default() }).await;
    cluster.bound("data").await;
    assert_eq!(cluster.driver.state().secrets["token"], "open sesame");
    assert_eq!(cluster.driver.state().volumes[&format!("pvc-{}", claim.metadata.uid.unwrap())].len(), 0);
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
