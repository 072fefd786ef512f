//! The protection of claims as it runs: over HTTPS, against the embedded API server.

use std::time::Duration;

use claimcheck_apiserver::{Fault, FaultRule};
use claimcheck_controllers::{Name, Options};
use claimcheck_model::Rate;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::{
    cluster::{Cluster, until, until_deleted},
    nodes::bound_pod,
};

/// How late the watch of pods begins again. Long enough for all that a test does meanwhile.
const GAP: Duration = Duration::from_secs(3);

fn fault(verb: &str, fault: Fault, count: Option<u32>) -> FaultRule {
    let (verb, resource) = (Some(verb.to_owned()), Some("pods".to_owned()));
    FaultRule { verb, resource, fault, rate: Rate::ALWAYS, count }
}

/// Creates a pod with a generic ephemeral volume, and waits for its claim: then the cache has the pod.
async fn observed(cluster: &Cluster, name: &str) {
    let template = json!({
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    cluster.pods().create(&PostParams::default(), &pod).await.unwrap();
    until(&cluster.claims(), &format!("{name}-v"), |_| true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_cache_lacks_keeps_its_claim() {
    let cluster = Cluster::start(&[Name::Ephemeral, Name::Protection]).await;
    cluster.claim("c", "fast").await;
    // The first may come with the list of pods, the second can come by the watch only: so this has begun.
    observed(&cluster, "first").await;
    observed(&cluster, "second").await;
    let gap = [fault("watch", Fault::DroppedWatch, Some(1)), fault("watch", Fault::Latency(GAP), Some(1))];
    cluster.server.faults().set(gap.into());
    observed(&cluster, "third").await;

    bound_pod(&cluster, "p", "n1", &["c"]).await;
    cluster.claims().delete("c", &DeleteParams::default()).await.unwrap();
    // The deletion has been dealt with once a later one has.
    for later in ["later", "last"] {
        cluster.claim(later, "fast").await;
        cluster.claims().delete(later, &DeleteParams::default()).await.unwrap();
        until_deleted(&cluster.claims(), later).await;
    }
    assert!(cluster.claims().get_opt("c").await.unwrap().is_some(), "the pod holds the claim");

    cluster.pods().delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_deleted(&cluster.claims(), "c").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_are_deleted_together_share_lists_of_pods() {
    const COUNT: usize = 100;
    let mut cluster = Cluster::prepare().await;
    for index in 0..COUNT {
        let name = format!("c{index}");
        cluster.claim(&name, "fast").await;
        cluster.claims().delete(&name, &DeleteParams::default()).await.unwrap();
    }
    // So that most claims wait while a list takes place.
    cluster.server.faults().set(vec![fault("list", Fault::Latency(Duration::from_millis(200)), None)]);
    cluster.run(&[Name::Protection]).await;
    for index in 0..COUNT {
        until_deleted(&cluster.claims(), &format!("c{index}")).await;
    }
    // One is the cache's. Of 64 claims at a time one begins a list, and the others share the next: four lists.
    let lists = cluster.requests("list", "pods") - 1;
    assert!((2..=10).contains(&lists), "{lists} lists for {COUNT} claims");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_stays_until_the_pods_can_be_listed() {
    let cluster = Cluster::start(&[Name::Ephemeral, Name::Protection]).await;
    observed(&cluster, "p").await;
    let before = cluster.requests("list", "pods");
    cluster.server.faults().set(vec![fault("list", Fault::InternalError, Some(2))]);
    cluster.claim("c", "fast").await;
    cluster.claims().delete("c", &DeleteParams::default()).await.unwrap();
    until_deleted(&cluster.claims(), "c").await;
    assert_eq!(cluster.requests("list", "pods") - before, 3, "two failed");
}

/// Status and reason of the condition `Unused`.
fn unused(claim: &PersistentVolumeClaim) -> Option<(&str, &str)> {
    let mut conditions = claim.status.as_ref()?.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == "Unused")?;
    Some((condition.status.as_str(), condition.reason.as_deref()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_condition_unused_follows_the_pods_of_a_claim() {
    let mut cluster = Cluster::prepare().await;
    let options = Options { unused_since_time: true, ..Options::default() };
    cluster.run_with(&[Name::Protection], options).await;
    let is = |status: &'static str, reason: &'static str| {
        move |claim: &PersistentVolumeClaim| unused(claim) == Some((status, reason))
    };
    cluster.claim("c", "fast").await;
    until(&cluster.claims(), "c", is("True", "NoPodsUsingPVC")).await;
    // It has no node, and is no reason to keep a deleted claim.
    cluster.pod("p", &["c"]).await;
    until(&cluster.claims(), "c", is("False", "PodUsingPVC")).await;
    cluster.pods().delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    until(&cluster.claims(), "c", is("True", "NoPodsUsingPVC")).await;
    cluster.claims().delete("c", &DeleteParams::default()).await.unwrap();
    until_deleted(&cluster.claims(), "c").await;
    assert_eq!(cluster.requests("patch", "persistentvolumeclaims/status"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_condition_unused_is_off_by_default() {
    let cluster = Cluster::start(&[Name::Protection]).await;
    cluster.claim("c", "fast").await;
    cluster.pod("p", &["c"]).await;
    cluster.claims().delete("c", &DeleteParams::default()).await.unwrap();
    until_deleted(&cluster.claims(), "c").await;
    assert_eq!(cluster.requests("patch", "persistentvolumeclaims/status"), 0);
}
