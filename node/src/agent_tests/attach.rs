//! A node that attaches by itself.

use super::*;

fn name_of(volume: &str) -> String {
    attachment_name(volume, DRIVER, NODE)
}

/// What the driver's attacher does once it sees the attachment.
async fn act_as_attacher(cluster: &Cluster, volume: &str) {
    let attachments: Api<VolumeAttachment> = cluster.all();
    wait(&attachments, &name_of(volume), |attachment: Option<&VolumeAttachment>| attachment.is_some()).await;
    let held = json!({"metadata": {"finalizers": ["external-attacher/test"]}});
    attachments.patch(&name_of(volume), &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
    let attached = json!({"status": {"attached": true, "attachmentMetadata": {"device": "/dev/x"}}});
    attachments
        .patch_status(&name_of(volume), &PatchParams::default(), &Patch::Merge(attached))
        .await
        .unwrap();
}

/// And what it does once that is deleted.
async fn act_as_detacher(cluster: &Cluster, volume: &str) {
    let attachments: Api<VolumeAttachment> = cluster.all();
    let leaving = |attachment: Option<&VolumeAttachment>| {
        attachment.is_some_and(|attachment| attachment.metadata.deletion_timestamp.is_some())
    };
    wait(&attachments, &name_of(volume), leaving).await;
    let free = json!({"metadata": {"finalizers": null}});
    attachments.patch(&name_of(volume), &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
}

async fn managed(cluster: &Cluster, expected: bool) {
    let is = |node: Option<&Node>| {
        let annotation = claimcheck_model::CONTROLLER_MANAGED_ATTACH;
        node.is_some_and(|node| node.annotations().contains_key(annotation) == expected)
    };
    wait(&cluster.all::<Node>(), NODE, is).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attaches_and_detaches_by_itself() {
    let cluster = Cluster::start_with(false).await;
    managed(&cluster, false).await;
    cluster.bound_claim("a").await;
    let uid = cluster.pod("p", "a", "Always").await;
    act_as_attacher(&cluster, "a").await;
    cluster.ready("p").await;
    let made = cluster.all::<VolumeAttachment>().get(&name_of("a")).await.unwrap();
    assert_eq!((made.spec.attacher.as_str(), made.spec.node_name.as_str()), (DRIVER, NODE));
    assert_eq!(made.spec.source.persistent_volume_name.as_deref(), Some("pv-a"));

    cluster.delete("p").await;
    cluster.gone("p").await;
    act_as_detacher(&cluster, "a").await;
    wait(&cluster.all(), &name_of("a"), |attachment: Option<&VolumeAttachment>| attachment.is_none()).await;
    cluster.in_use(&[]).await;
    assert_eq!(
        cluster.driver.calls(),
        ["Stage a".into(), format!("Publish a {uid}"), format!("Unpublish a {uid}"), "Unstage a".into()]
    );
    cluster.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_volume_from_being_attached_is_told() {
    let cluster = Cluster::start_with(false).await;
    cluster.bound_claim("a").await;
    cluster.pod("p", "a", "Always").await;
    let attachments: Api<VolumeAttachment> = cluster.all();
    wait(&attachments, &name_of("a"), |attachment: Option<&VolumeAttachment>| attachment.is_some()).await;
    let failed = json!({"status": {"attached": false, "attachError": {"message": "no slot is free"}}});
    attachments.patch_status(&name_of("a"), &PatchParams::default(), &Patch::Merge(failed)).await.unwrap();
    cluster
        .event("FailedAttachVolume: AttachVolume.Attach failed for volume \"pv-a\" : no slot is free")
        .await;
    act_as_attacher(&cluster, "a").await;
    cluster.ready("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_wanted_again_while_it_leaves_is_attached_anew() {
    let cluster = Cluster::start_with(false).await;
    cluster.bound_claim("a").await;
    cluster.pod("one", "a", "Always").await;
    act_as_attacher(&cluster, "a").await;
    cluster.ready("one").await;
    let first = cluster.all::<VolumeAttachment>().get(&name_of("a")).await.unwrap();
    cluster.delete("one").await;
    cluster.gone("one").await;
    cluster.driver.wait(4).await;
    let leaving = |attachment: Option<&VolumeAttachment>| {
        attachment.is_some_and(|attachment| attachment.metadata.deletion_timestamp.is_some())
    };
    wait(&cluster.all(), &name_of("a"), leaving).await;
    cluster.pod("two", "a", "Always").await;
    act_as_detacher(&cluster, "a").await;
    let anew = |attachment: Option<&VolumeAttachment>| {
        attachment.is_some_and(|attachment| attachment.metadata.uid != first.metadata.uid)
    };
    wait(&cluster.all(), &name_of("a"), anew).await;
    act_as_attacher(&cluster, "a").await;
    cluster.ready("two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attachment_that_outlived_its_agent_is_deleted() {
    let mut cluster = Cluster::start_with(false).await;
    cluster.bound_claim("a").await;
    cluster.pod("p", "a", "Always").await;
    act_as_attacher(&cluster, "a").await;
    cluster.ready("p").await;
    // Everything is cleaned up but the attachment, as if the agent had been killed in between.
    let attachments: Api<VolumeAttachment> = cluster.all();
    cluster.delete("p").await;
    cluster.gone("p").await;
    act_as_detacher(&cluster, "a").await;
    wait(&attachments, &name_of("a"), |attachment: Option<&VolumeAttachment>| attachment.is_none()).await;
    cluster.stop_agent().await;
    let left = json!({
        "metadata": {"name": name_of("a")},
        "spec": {"attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": "pv-a"}},
    });
    attachments.create(&PostParams::default(), &serde_json::from_value(left).unwrap()).await.unwrap();
    cluster.start_agent();
    wait(&attachments, &name_of("a"), |attachment: Option<&VolumeAttachment>| attachment.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_says_who_attaches_after_a_change_too() {
    let mut cluster = Cluster::start().await;
    managed(&cluster, true).await;
    for expected in [false, true] {
        cluster.stop_agent().await;
        cluster.controller_attach_detach = expected;
        cluster.start_agent();
        managed(&cluster, expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_writes_that_a_living_node_is_not_ready_is_contradicted() {
    let cluster = Cluster::start().await;
    cluster.node_status(json!({})).await;
}
