//! The life cycle of nodes as it runs: over HTTPS, against the embedded API server.

use std::time::Duration;

use claimcheck_controllers::{Name, Options};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
    storage::v1::VolumeAttachment,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::cluster::{Cluster, LONG, until, until_deleted};

fn ready(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|condition| condition.type_ == "Ready")?.status.as_str())
}

fn taints(node: &Node) -> Vec<(&str, &str)> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.map(|taint| (taint.key.as_str(), taint.effect.as_str())).collect()
}

const UNREACHABLE: [(&str, &str); 2] =
    [("node.kubernetes.io/unreachable", "NoSchedule"), ("node.kubernetes.io/unreachable", "NoExecute")];

/// Says what a kubelet would of its node.
async fn report(nodes: &Api<Node>, time: &str) {
    let ready =
        json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": time});
    let status = Patch::Merge(json!({"status": {"conditions": [ready]}}));
    nodes.patch_status("n1", &PatchParams::default(), &status).await.unwrap();
}

pub async fn bound_pod(cluster: &Cluster, name: &str, node: &str, claims: &[&str]) -> Pod {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    bound_pod_with(cluster, name, node, claims.iter().map(volume).collect()).await
}

async fn bound_pod_with(cluster: &Cluster, name: &str, node: &str, volumes: Vec<Value>) -> Pod {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": volumes},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    cluster.pods().create(&PostParams::default(), &pod).await.unwrap()
}

/// As a kubelet annotates its node.
async fn let_controller_attach(nodes: &Api<Node>) {
    let managed = json!({"metadata": {"annotations": {
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }}});
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(managed)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_heartbeat_is_tainted_until_the_next_heartbeat() {
    let options = Options { node_monitor_grace: Some(Duration::from_millis(300)), ..Options::default() };
    let mut cluster = Cluster::prepare().await;
    cluster.run_with(&[Name::NodeLifecycle], options).await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    cluster.node("n1").await;
    report(&nodes, "2026-01-01T00:00:00Z").await;
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "kube-node-lease");
    let lease = json!({
        "metadata": {"name": "n1"},
        "spec": {"holderIdentity": "n1", "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    let lease: Lease = serde_json::from_value(lease).unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();

    let node = until(&nodes, "n1", |node| taints(node) == UNREACHABLE).await;
    assert_eq!(ready(&node), Some("Unknown"));
    // One watch from before it is heard: it may be silent again before another would have begun.
    let mut states = watcher(nodes.clone(), watcher::Config::default()).applied_objects().boxed();
    let mut becomes = async |expected: &[(&str, &str)]| {
        let is = async {
            while taints(&states.try_next().await.unwrap().expect("a watch goes on")) != expected {}
        };
        timeout(LONG, is).await.unwrap_or_else(|_| panic!("the taints are not {expected:?}"));
    };
    becomes(&UNREACHABLE).await;
    report(&nodes, "2026-01-01T00:01:00Z").await;
    becomes(&[]).await;
    // And silent again.
    becomes(&UNREACHABLE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_and_volumes_leave_a_node_that_is_out_of_service() {
    let mut cluster = Cluster::prepare().await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    cluster.node("n1").await;
    let_controller_attach(&nodes).await;
    cluster.class("fast", "Immediate").await;
    cluster.run(&[Name::Binder, Name::AttachDetach, Name::NodeLifecycle]).await;
    let claim = cluster.claim("c", "fast").await;
    let volume = cluster.provision(&claim).await;
    bound_pod(&cluster, "p", "n1", &["c"]).await;
    let attachments = Api::<VolumeAttachment>::all(cluster.client.clone());
    let unique = format!("kubernetes.io/csi/csi.test^handle-{volume}");
    // Its name is a digest, but there is no other.
    let mut seen = watcher(attachments.clone(), watcher::Config::default()).applied_objects().boxed();
    let made = seen.try_next().await.unwrap().expect("a watch goes on").metadata.name.unwrap();
    let attached = Patch::Merge(json!({"status": {"attached": true}}));
    attachments.patch_status(&made, &PatchParams::default(), &attached).await.unwrap();
    // The node mounts it, then dies.
    let down = json!({"status": {
        "volumesInUse": [unique],
        "conditions": [{"type": "Ready", "status": "Unknown"}],
    }});
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(down)).await.unwrap();
    until(&nodes, "n1", |node| taints(node) == UNREACHABLE).await;
    assert!(attachments.get_opt(&made).await.unwrap().is_some(), "the pod may still run");

    let taint = json!([{"op": "add", "path": "/spec/taints/-", "value": {
        "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute",
    }}]);
    let taint = Patch::<()>::Json(serde_json::from_value(taint).unwrap());
    nodes.patch("n1", &PatchParams::default(), &taint).await.unwrap();
    until_deleted(&cluster.pods(), "p").await;
    until_deleted(&attachments, &made).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_iscsi_volume_is_reported_at_once_and_until_it_is_unmounted() {
    const UNIQUE: &str = "kubernetes.io/iscsi/10.0.0.1:3260:iqn.2001-04.com.example:disk:0";
    let cluster = Cluster::start(&[Name::AttachDetach]).await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    cluster.node("n1").await;
    let_controller_attach(&nodes).await;
    // A node reports the volume in use before it waits for it. The response to the controller's write has both lists.
    let in_use = |list: Value| Patch::Merge(json!({"status": {"volumesInUse": list}}));
    nodes.patch_status("n1", &PatchParams::default(), &in_use(json!([UNIQUE]))).await.unwrap();
    let disk = json!({"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:disk", "lun": 0});
    bound_pod_with(&cluster, "p", "n1", vec![json!({"name": "disk", "iscsi": disk})]).await;
    let is_listed = |node: &Node| {
        let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
        attached.is_some_and(|list| list.iter().any(|volume| volume.name == UNIQUE))
    };
    until(&nodes, "n1", is_listed).await;
    cluster.events("p", &["SuccessfulAttachVolume"]).await;

    cluster.pods().delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    // The controller has seen the deletion when it has dealt with a later pod.
    let migrated = json!({"name": "cloud", "awsElasticBlockStore": {"volumeID": "vol-1"}});
    bound_pod_with(&cluster, "q", "n1", vec![migrated]).await;
    cluster.events("q", &["FailedAttachVolume"]).await;
    assert!(is_listed(&nodes.get("n1").await.unwrap()), "it is in use");
    nodes.patch_status("n1", &PatchParams::default(), &in_use(Value::Null)).await.unwrap();
    until(&nodes, "n1", |node| !is_listed(node)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_tolerate_a_taint_gets_a_condition_and_is_deleted() {
    let cluster = Cluster::start(&[Name::NodeLifecycle]).await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    cluster.node("n1").await;
    report(&nodes, "2026-01-01T00:00:00Z").await;
    bound_pod(&cluster, "p", "n1", &[]).await;
    let taint = json!({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}});
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(taint)).await.unwrap();
    let pod = until(&cluster.pods(), "p", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    let conditions = pod.status.unwrap().conditions.unwrap();
    let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget").unwrap();
    assert_eq!(target.reason.as_deref(), Some("DeletionByTaintManager"));
    cluster.events("p", &["TaintManagerEviction"]).await;
}
