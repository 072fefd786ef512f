//! Several volumes in one pod, and several pods with one volume.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_model::{Capability, CsiMethod};
use kube::ResourceExt;

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Fixture, TestPod},
    need::Need,
};

const SUITE: &str = "multi_volume";
const KEEPS: Need = Need::Capability(Capability::Persistence);
const UPSTREAM: &str = "multiVolume";

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "data on two volumes of a pod persists across pod recreation",
        UPSTREAM,
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        &[KEEPS],
        case!(two_volumes_same_node),
    ),
    row(
        SUITE,
        "data on two volumes of a pod persists across pod recreation on another node",
        UPSTREAM,
        Pattern::EXT4,
        &[Need::Nodes(2), KEEPS],
        case!(two_volumes_other_node),
    ),
    shared(Pattern::IMMEDIATE),
    shared(Pattern::EXT4),
    row(SUITE, "a volume mounted read-only rejects writes", UPSTREAM, Pattern::EXT4, &[], case!(read_only)),
    row(
        SUITE,
        "a filesystem volume that no container mounts is not published",
        "volumeMode",
        Pattern::IMMEDIATE,
        &[Need::Tap],
        case!(unused),
    ),
    row(
        SUITE,
        "five pods on one node share one attachment and one NodeStageVolume call of a volume",
        UPSTREAM,
        Pattern::IMMEDIATE,
        &[Need::Tap, Need::Attach, Need::Stage, Need::Capability(Capability::Multipods)],
        case!(five_pods),
    ),
];

/// With ext4 both mounts share a superblock.
const fn shared(pattern: Pattern) -> Case {
    let name = "a read-write pod and a read-only pod on one node share a volume";
    row(SUITE, name, UPSTREAM, pattern, &[Need::Capability(Capability::Multipods)], case!(reader_with_writer))
}

async fn two_volumes_same_node(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().remove(0);
    two_volumes(&t, &node, &node).await
}

async fn two_volumes_other_node(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    two_volumes(&t, &nodes[0], &nodes[1]).await
}

async fn two_volumes(t: &Fixture, first: &str, second: &str) -> Result<()> {
    let (a, b) = (t.claim("a").await?, t.claim("b").await?);
    let write = "echo on-a > /data/file; echo on-b > /data1/file";
    t.output(&TestPod::run_to_completion("writer", &a, write).also(&b).on(first)).await?;
    t.remove_named_pod("writer").await?;
    // In reverse order, so that no path finds its data by chance.
    let output = t
        .output(&TestPod::run_to_completion("reader", &b, "cat /data/file /data1/file").also(&a).on(second))
        .await?;
    ensure!(output == "on-b\non-a", "unexpected output of the reader {output:?}");
    Ok(())
}

/// Reads what was written before, and tries to write.
const READ: &str = "cat /data/file; touch /data/other 2> /dev/null && echo written || echo refused";

async fn reader_with_writer(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = t.claim("claim").await?;
    let write = "echo again >> /data/log && sync && echo written";
    let writer = TestPod::long_running("writer", &claim, "echo shared > /data/file").probing(write).on(&node);
    let writer = t.ready_pod(&writer).await?;
    let reader = TestPod::long_running("reader", &claim, "").probing(READ).read_only_claims().on(&node);
    let reader = t.ready_pod(&reader).await?;
    let seen = t.probed(&reader).await?;
    ensure!(seen == "shared refused", "the read-only pod reads and writes: {seen:?}");
    t.published_read_only(&reader, &t.bound(&claim).await?.name_any()).await?;
    let during = t.probed(&writer).await?;
    t.remove_pod(&reader).await?;
    let after = t.probed(&writer).await?;
    ensure!(
        [during.as_str(), &after] == ["written", "written"],
        "the writer while a read-only pod uses its volume on the same node, and afterwards: {during:?}, {after:?}"
    );
    Ok(())
}

async fn read_only(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.output(&TestPod::run_to_completion("writer", &claim, "echo kept > /data/file && sync")).await?;
    t.remove_named_pod("writer").await?;
    let read = "cat /data/file; touch /data/other 2>&1 | grep -o 'Read-only file system'";
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "").probing(read).read_only_claims()).await?;
    let seen = t.probed(&pod).await?;
    ensure!(seen == "kept Read-only file system", "the pod reads and writes: {seen:?}");
    t.published_read_only(&pod, &t.bound(&claim).await?.name_any()).await
}

async fn unused(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "").unmounted()).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    let calls = t.balance().await?.calls;
    ensure!(!calls.contains_key(&CsiMethod::NodePublishVolume), "NodePublishVolume was called: {calls:?}");
    Ok(())
}

async fn five_pods(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = t.claim("claim").await?;
    let names: Vec<String> = (0..5).map(|n| format!("pod-{n}")).collect();
    let pods = names.iter().map(|name| {
        let script = format!("echo {name} > /data/{name}");
        let desired = TestPod::long_running(name, &claim, &script).on(&node);
        let t = &t;
        async move { t.ready_pod(&desired).await }
    });
    let pods = futures::future::try_join_all(pods).await?;
    let count =
        t.output(&TestPod::run_to_completion("count", &claim, "ls /data | grep -c pod-").on(&node)).await?;
    ensure!(count == "5", "the pods wrote {count} files instead of 5");
    t.remove_named_pod("count").await?;
    futures::future::try_join_all(pods.iter().map(|pod| t.remove_pod(pod))).await?;
    t.remove_claim(&claim).await?;
    let expected = [
        (CsiMethod::CreateVolume, 1),
        (CsiMethod::ControllerPublishVolume, 1),
        (CsiMethod::NodeStageVolume, 1),
        (CsiMethod::NodePublishVolume, 6),
        (CsiMethod::NodeUnpublishVolume, 6),
        (CsiMethod::NodeUnstageVolume, 1),
        (CsiMethod::ControllerUnpublishVolume, 1),
        (CsiMethod::DeleteVolume, 1),
    ];
    t.expect_calls(&expected).await
}
