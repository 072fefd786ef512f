//! A node that does not let the attach/detach controller attach, and its events.

use k8s_openapi::api::storage::v1::CSIDriver;

use super::*;

fn name_of(volume: &str) -> String {
    claimcheck_model::attachment_name(volume, DRIVER, NODE)
}

async fn managed(cluster: &Cluster, expected: bool) {
    let is = |node: Option<&Node>| {
        let annotation = claimcheck_model::CONTROLLER_MANAGED_ATTACH;
        node.is_some_and(|node| node.annotations().contains_key(annotation) == expected)
    };
    wait(&cluster.all::<Node>(), NODE, is).await;
}

/// The next agent on the node, with this flag.
async fn restart(cluster: &mut Cluster, controller_attaches: bool) {
    cluster.stop_agent().await;
    cluster.controller_attach_detach = controller_attaches;
    cluster.start_agent();
    managed(cluster, controller_attaches).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_waits_until_the_controller_may_attach_it() {
    let mut cluster = Cluster::start_with(false).await;
    managed(&cluster, false).await;
    cluster.bound_claim("a").await;
    let uid = cluster.pod("p", "a", "Always").await;
    let refused = "attaching volumes from the kubelet is not supported";
    cluster
        .event(&format!("FailedAttachVolume: AttachVolume.Attach failed for volume \"pv-a\" : {refused}"))
        .await;
    cluster.in_use(&["a"]).await;
    let attachments = cluster.all::<VolumeAttachment>().list(&ListParams::default()).await.unwrap();
    assert_eq!(attachments.items, [], "the node made an attachment");
    assert_eq!(cluster.driver.calls(), Vec::<String>::new(), "mounted although it is not attached");

    restart(&mut cluster, true).await;
    cluster.attach("a").await;
    cluster.ready("p").await;
    cluster.delete("p").await;
    cluster.deleted("p").await;
    cluster.in_use(&[]).await;
    assert_eq!(
        cluster.driver.calls(),
        ["Stage a".into(), format!("Publish a {uid}"), format!("Unpublish a {uid}"), "Unstage a".into()]
    );
    cluster.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_mounted_before_goes_on_and_is_not_detached() {
    let mut cluster = Cluster::start().await;
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    let one = cluster.pod("one", "a", "Always").await;
    cluster.ready("one").await;
    restart(&mut cluster, false).await;
    let two = cluster.pod("two", "a", "Always").await;
    cluster.ready("two").await;
    for pod in ["one", "two"] {
        cluster.delete(pod).await;
        cluster.deleted(pod).await;
    }
    cluster.in_use(&[]).await;
    let calls = cluster.driver.calls();
    assert_eq!(calls[2], "Stage a", "the new agent completes what it finds");
    assert_eq!(calls[5..], [format!("Unpublish a {one}"), format!("Unpublish a {two}"), "Unstage a".into()]);
    let attachment = cluster.all::<VolumeAttachment>().get(&name_of("a")).await.unwrap();
    assert_eq!(attachment.metadata.deletion_timestamp, None, "the node deleted an attachment");
    cluster.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_need_no_attaching_are_mounted_without_the_controller() {
    let cluster = Cluster::start_with(false).await;
    let driver = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    let driver = serde_json::from_value(driver).unwrap();
    cluster.all::<CSIDriver>().create(&PostParams::default(), &driver).await.unwrap();
    cluster.bound_claim("a").await;
    cluster.pod("p", "a", "Always").await;
    cluster.ready("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_reports_who_attaches_after_a_change_too() {
    let mut cluster = Cluster::start().await;
    managed(&cluster, true).await;
    for expected in [false, true] {
        restart(&mut cluster, expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_not_ready_condition_is_overwritten() {
    let cluster = Cluster::start().await;
    cluster.node_status(json!({})).await;
}
