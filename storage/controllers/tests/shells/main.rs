//! The controllers that speak to no driver as they run: over HTTPS, against the embedded API server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod accounts;
mod cluster;
mod data_source_validator;
mod leader;
mod nodes;
mod protection;

use claimcheck_controllers::Name;
use cluster::{Cluster, until, until_deleted};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

const ALL: &[Name] = &[Name::Binder, Name::Scheduler, Name::Protection];

fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn is_asked(claim: &PersistentVolumeClaim) -> bool {
    annotation(claim, "volume.kubernetes.io/storage-provisioner") == Some("csi.test")
        && annotation(claim, "volume.beta.kubernetes.io/storage-provisioner") == Some("csi.test")
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

fn phase(volume: &PersistentVolume) -> Option<&str> {
    volume.status.as_ref()?.phase.as_deref()
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immediate_claim_is_bound_in_four_writes_and_released_in_one() {
    let mut cluster = Cluster::prepare().await;
    cluster.class("fast", "Immediate").await;
    cluster.run(ALL).await;
    cluster.claim("c", "fast").await;
    let claim = until(&cluster.claims(), "c", is_asked).await;
    let volume = cluster.provision(&claim).await;
    let claim = until(&cluster.claims(), "c", is_bound).await;
    let status = claim.status.clone().unwrap();
    assert_eq!(status.capacity.unwrap()["storage"].0, "1Gi");
    assert_eq!(status.access_modes.unwrap(), ["ReadWriteOnce"]);
    assert_eq!(claim.spec.as_ref().unwrap().volume_name.as_ref(), Some(&volume));
    for key in ["pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"] {
        assert_eq!(annotation(&claim, key), Some("yes"), "{key}");
    }
    cluster.events("c", &["ExternalProvisioning"]).await;

    cluster.claims().delete("c", &DeleteParams::default()).await.unwrap();
    until_deleted(&cluster.claims(), "c").await;
    until(&cluster.volumes(), &volume, |volume| phase(volume) == Some("Released")).await;

    // Ask, point, and the protection finalizer off; claim Bound; volume Bound and Released; no other.
    let writes = [
        ("persistentvolumeclaims", 3),
        ("persistentvolumeclaims/status", 1),
        ("persistentvolumes", 0),
        ("persistentvolumes/status", 2),
    ];
    for (resource, expected) in writes {
        assert_eq!(cluster.requests("patch", resource), expected, "patches of {resource}");
        assert_eq!(cluster.requests("update", resource), 0, "updates of {resource}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_first_consumer_claim_is_bound_through_the_scheduler() {
    let mut cluster = Cluster::prepare().await;
    cluster.class("late", "WaitForFirstConsumer").await;
    cluster.node("n1").await;
    cluster.run(ALL).await;
    cluster.claim("c", "late").await;
    cluster.events("c", &["WaitForFirstConsumer"]).await;
    cluster.pod("p", &["c"]).await;
    let claim = until(&cluster.claims(), "c", is_asked).await;
    assert_eq!(annotation(&claim, "volume.kubernetes.io/selected-node"), Some("n1"));
    assert_eq!(node(&cluster.pods().get("p").await.unwrap()), None, "not before its claim is bound");
    cluster.provision(&claim).await;
    until(&cluster.pods(), "p", |pod| node(pod) == Some("n1")).await;
    // A claim is bound for the scheduler when it says so by annotation; its phase is written after that.
    let claim = cluster.claims().get("c").await.unwrap();
    assert_eq!(annotation(&claim, "pv.kubernetes.io/bind-completed"), Some("yes"));
    until(&cluster.claims(), "c", is_bound).await;
    cluster.events("p", &["Scheduled"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_failed_to_provision_is_chosen_again() {
    let mut cluster = Cluster::prepare().await;
    cluster.class("late", "WaitForFirstConsumer").await;
    cluster.node("n1").await;
    cluster.run(ALL).await;
    cluster.claim("c", "late").await;
    cluster.pod("p", &["c"]).await;
    until(&cluster.claims(), "c", is_asked).await;
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(cluster.client.clone());
    nodes.patch("n1", &PatchParams::default(), &cordon).await.unwrap();
    cluster.node("n2").await;
    let failed = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}});
    // Watches of different kinds are not ordered: the scheduler may see the failure before the cordon, and
    // choose the same node again. Then provisioning fails there again, as it would in life.
    let selected = |claim: &PersistentVolumeClaim| {
        annotation(claim, "volume.kubernetes.io/selected-node").map(str::to_owned)
    };
    for _ in 0..100 {
        cluster.claims().patch("c", &PatchParams::default(), &Patch::Merge(&failed)).await.unwrap();
        let claim = until(&cluster.claims(), "c", |claim| selected(claim).is_some()).await;
        if selected(&claim).as_deref() == Some("n2") {
            return;
        }
    }
    panic!("a cordoned node is chosen again and again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_volume_is_found_whichever_comes_first() {
    let cluster = Cluster::start(ALL).await;
    cluster.claim("early", "manual").await;
    cluster.volume("v1", "manual", json!({})).await;
    until(&cluster.claims(), "early", is_bound).await;
    cluster.volume("v2", "manual", json!({})).await;
    until(&cluster.volumes(), "v2", |volume| phase(volume) == Some("Available")).await;
    cluster.claim("late", "manual").await;
    let claim = until(&cluster.claims(), "late", is_bound).await;
    assert_eq!(claim.spec.unwrap().volume_name.as_deref(), Some("v2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_take_up_what_others_left_half_done() {
    let mut cluster = Cluster::prepare().await;
    cluster.class("fast", "Immediate").await;
    cluster.run(ALL).await;
    cluster.claim("c", "fast").await;
    let claim = until(&cluster.claims(), "c", is_asked).await;
    cluster.restart_controllers(&[]).await;
    let volume = cluster.provision(&claim).await;
    let half = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    cluster.volumes().patch_status(&volume, &PatchParams::default(), &half).await.unwrap();
    cluster.restart_controllers(ALL).await;
    until(&cluster.claims(), "c", is_bound).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_its_claim_gets_an_event_and_is_scheduled_when_it_exists() {
    let mut cluster = Cluster::prepare().await;
    cluster.class("fast", "Immediate").await;
    cluster.node("n1").await;
    cluster.run(ALL).await;
    cluster.pod("p", &["c"]).await;
    let is_told = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| {
            condition.type_ == "PodScheduled"
                && condition.status == "False"
                && condition.message.as_ref().is_some_and(|message| message.contains("\"c\" not found"))
        })
    };
    until(&cluster.pods(), "p", is_told).await;
    cluster.events("p", &["FailedScheduling"]).await;
    assert_eq!(cluster.requests("patch", "pods/status"), 1, "one event");
    cluster.claim("c", "fast").await;
    let claim = until(&cluster.claims(), "c", is_asked).await;
    cluster.provision(&claim).await;
    until(&cluster.pods(), "p", |pod| node(pod) == Some("n1")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_in_use_outlives_its_deletion_until_the_pod_is_gone() {
    let mut cluster = Cluster::prepare().await;
    cluster.class("fast", "Immediate").await;
    cluster.node("n1").await;
    cluster.run(ALL).await;
    cluster.claim("c", "fast").await;
    cluster.pod("p", &["c"]).await;
    let claim = until(&cluster.claims(), "c", is_asked).await;
    let volume = cluster.provision(&claim).await;
    until(&cluster.pods(), "p", |pod| node(pod).is_some()).await;

    cluster.claims().delete("c", &DeleteParams::default()).await.unwrap();
    cluster.volumes().delete(&volume, &DeleteParams::default()).await.unwrap();
    // The controllers have seen both deletions once a later claim has been dealt with.
    cluster.claim("later", "fast").await;
    until(&cluster.claims(), "later", is_asked).await;
    assert!(cluster.claims().get_opt("c").await.unwrap().is_some(), "the pod holds the claim");
    assert!(cluster.volumes().get_opt(&volume).await.unwrap().is_some(), "the claim holds the volume");

    cluster.pods().delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_deleted(&cluster.claims(), "c").await;
    until_deleted(&cluster.volumes(), &volume).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_claims_and_pods_come_up_spread_over_the_nodes() {
    const COUNT: usize = 50;
    let mut cluster = Cluster::prepare().await;
    cluster.class("late", "WaitForFirstConsumer").await;
    for name in ["n1", "n2"] {
        cluster.node(name).await;
    }
    cluster.run(ALL).await;
    for index in 0..COUNT {
        let (claim, pod) = (format!("c{index}"), format!("p{index}"));
        cluster.claim(&claim, "late").await;
        cluster.pod(&pod, &[&claim]).await;
    }
    for index in 0..COUNT {
        let claim = until(&cluster.claims(), &format!("c{index}"), is_asked).await;
        cluster.provision(&claim).await;
    }
    let mut on_first = 0;
    for index in 0..COUNT {
        let pod = until(&cluster.pods(), &format!("p{index}"), |pod| node(pod).is_some()).await;
        on_first += usize::from(node(&pod) == Some("n1"));
    }
    assert_eq!(on_first, COUNT / 2);
    assert_eq!(cluster.requests("create", "pods/binding"), 50, "each pod is bound once");
}

/// A pod with a generic ephemeral volume `v`.
fn pod_with_ephemeral_volume() -> Pod {
    let template = json!({
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}],
        },
    });
    serde_json::from_value(pod).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_volume_gets_a_claim_that_goes_with_its_pod() {
    let cluster = Cluster::start(&[Name::Ephemeral, Name::Protection]).await;
    let pod = cluster.pods().create(&PostParams::default(), &pod_with_ephemeral_volume()).await.unwrap();
    let claim = until(&cluster.claims(), "p-v", |_| true).await;
    let owner = &claim.metadata.owner_references.unwrap()[0];
    assert_eq!((Some(&owner.uid), owner.controller), (pod.metadata.uid.as_ref(), Some(true)));
    cluster.pods().delete("p", &DeleteParams::default()).await.unwrap();
    until_deleted(&cluster.claims(), "p-v").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_another_owner_is_not_an_ephemeral_volume() {
    let cluster = Cluster::start(&[Name::Ephemeral]).await;
    cluster.claim("p-v", "fast").await;
    let pod = pod_with_ephemeral_volume();
    cluster.pods().create(&PostParams::default(), &pod).await.unwrap();
    cluster.events("p", &["FailedBinding"]).await;
}
