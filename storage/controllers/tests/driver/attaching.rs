//! Volumes are attached where pods use them, nowhere else, and detached only when they are unused.

use std::collections::BTreeMap;

use claimcheck_informer::World;
use claimcheck_model::attacher_finalizer;
use tonic::Status;

use crate::cluster::Cluster;

/// The whole way, and what it costs.
#[tokio::test(flavor = "multi_thread")]
async fn each_call_once_and_few_writes() {
    let cluster = Cluster::start().await;
    let before = cluster.writes().len();
    let volume = cluster.bound_claim("data").await;
    cluster.pod("p", "a", "data").await;
    cluster.listed("a", &volume, true).await;
    let attachment = cluster.attached().await;
    let finalizer = attacher_finalizer(claimcheck_informer::testing::DRIVER);
    assert_eq!(attachment.metadata.finalizers, Some(vec![finalizer]));
    assert_eq!(attachment.status.unwrap().attachment_metadata.unwrap()["device"], "/dev/fake");
    cluster.report_in_use("a", &[&volume]).await;
    cluster.end_pod("p").await;
    cluster.delete_claim("data").await;
    cluster
        .until("the volume is released", |world| {
            let status = world.volumes.named(&volume).and_then(|volume| volume.status.clone());
            status.and_then(|status| status.phase).as_deref() == Some("Released")
        })
        .await;
    assert_eq!(cluster.driver.state().published.len(), 1, "in use, so it stays attached");
    cluster.report_in_use("a", &[]).await;
    cluster.nothing_left().await;
    let once = ["ControllerPublishVolume", "ControllerUnpublishVolume", "CreateVolume", "DeleteVolume"];
    assert_eq!(cluster.driver.counts(), once.map(|method| (method, vec![1])).into());
    // The test's own: claim and pod created and deleted, in use reported twice.
    let writes = cluster.writes().split_off(before);
    // 19; one less where what one waits for has come before it looks. The stock ones need 21.
    assert!(writes.len() - 6 <= 19, "{} writes: {writes:#?}", writes.len());
    assert_eq!(
        cluster.events("SuccessfulAttachVolume", 1).await,
        [format!("AttachVolume.Attach succeeded for volume \"{volume}\" ")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_node_waits_for_the_detach_from_the_first() {
    let cluster = Cluster::start().await;
    let volume = cluster.bound_claim("data").await;
    cluster.pod("p", "a", "data").await;
    cluster.listed("a", &volume, true).await;
    cluster.report_in_use("a", &[&volume]).await;
    cluster.pod("q", "b", "data").await;
    let events = cluster.events("FailedAttachVolume", 1).await;
    assert_eq!(
        events,
        [format!("Multi-Attach error for volume \"{volume}\" Volume is already used by pod(s) p")]
    );
    cluster.end_pod("p").await;
    cluster.report_in_use("a", &[]).await;
    cluster.listed("b", &volume, true).await;
    cluster.listed("a", &volume, false).await;
    // The driver refuses a second node, so a call too many would show here.
    assert_eq!(cluster.driver.counts()["ControllerPublishVolume"], [2]);
    assert_eq!(cluster.driver.counts()["ControllerUnpublishVolume"], [1]);
    assert_eq!(cluster.events("FailedAttachVolume", 1).await.len(), 1, "one event");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attach_emits_an_event_and_is_retried() {
    let cluster = Cluster::start().await;
    let volume = cluster.bound_claim("data").await;
    for _ in 0..2 {
        cluster.driver.fail("ControllerPublishVolume", Status::internal("no slot"));
    }
    cluster.pod("p", "a", "data").await;
    cluster.listed("a", &volume, true).await;
    assert_eq!(
        cluster.events("FailedAttachVolume", 1).await,
        [format!(
            "AttachVolume.Attach failed for volume \"{volume}\" : rpc error: code = Internal desc = no slot"
        )]
    );
    assert_eq!(cluster.driver.counts()["ControllerPublishVolume"], [3]);
    assert_eq!(cluster.attached().await.status.unwrap().attach_error, None);
}

/// As in upstream's attacher.
#[tokio::test(flavor = "multi_thread")]
async fn an_attach_error_has_a_code_and_a_detach_error_has_none() {
    let cluster = Cluster::start().await;
    let volume = cluster.bound_claim("data").await;
    for method in ["ControllerPublishVolume", "ControllerUnpublishVolume"] {
        for _ in 0..4 {
            cluster.driver.fail(method, Status::internal("no slot"));
        }
    }
    let mut code = None;
    let statuses = |world: &World| world.attachments.iter().find_map(|attachment| attachment.status.clone());
    cluster.pod("p", "a", "data").await;
    cluster
        .until("the attach has failed", |world| {
            code = statuses(world).and_then(|status| Some(status.attach_error?.error_code));
            code.is_some()
        })
        .await;
    assert_eq!(code, Some(Some(13)));
    cluster.listed("a", &volume, true).await;
    cluster.end_pod("p").await;
    cluster
        .until("the detach has failed", |world| {
            code = statuses(world).and_then(|status| Some(status.detach_error?.error_code));
            code.is_some()
        })
        .await;
    assert_eq!(code, Some(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detach_that_fails_is_tried_until_it_succeeds() {
    let cluster = Cluster::start().await;
    let volume = cluster.bound_claim("data").await;
    cluster.pod("p", "a", "data").await;
    cluster.listed("a", &volume, true).await;
    cluster.driver.lose_answer("ControllerUnpublishVolume", Status::unavailable("gone"));
    cluster.end_pod("p").await;
    cluster.until("it is detached", |world| world.attachments.is_empty()).await;
    assert_eq!(cluster.driver.counts()["ControllerUnpublishVolume"], [2]);
    assert!(cluster.driver.state().published.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gone_before_its_volume_was_attached_leaves_nothing() {
    let cluster = Cluster::start().await;
    cluster.bound_claim("data").await;
    cluster.pod("p", "a", "data").await;
    cluster.end_pod("p").await;
    cluster.delete_claim("data").await;
    cluster.nothing_left().await;
}

/// Attaches of one node share the writes of its list.
#[tokio::test(flavor = "multi_thread")]
async fn many_at_once() {
    const COUNT: usize = 100;
    let cluster = Cluster::start().await;
    let names: Vec<String> = (0..COUNT).map(|number| format!("c{number}")).collect();
    for name in &names {
        cluster.claim(name).await;
        cluster.pod(&format!("p-{name}"), "a", name).await;
    }
    let listed = |world: &World| {
        let node = world.nodes.named("a").and_then(|node| node.status.clone()).unwrap_or_default();
        node.volumes_attached.map_or(0, |list| list.len())
    };
    cluster.until("all are attached", |world| listed(world) == COUNT).await;
    for name in &names {
        cluster.end_pod(&format!("p-{name}")).await;
        cluster.delete_claim(name).await;
    }
    cluster.nothing_left().await;
    cluster.until("none is listed", |world| listed(world) == 0).await;
    let all_once = vec![1; COUNT];
    let methods = ["ControllerPublishVolume", "ControllerUnpublishVolume", "CreateVolume", "DeleteVolume"];
    let expected: BTreeMap<_, _> = methods.map(|method| (method, all_once.clone())).into();
    assert_eq!(cluster.driver.counts(), expected);
}
