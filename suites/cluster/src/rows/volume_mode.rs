//! Raw block volumes: data, pods with the wrong volume mode, and both modes in one pod.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_cluster::{Disruption, Victim};
use claimcheck_informer::quantity;
use claimcheck_model::{Capability, CsiMethod};

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Claim, Fixture, TestPod},
    need::Need,
};

const SUITE: &str = "volume_mode";
const UPSTREAM: &str = "volumeMode";
const BLOCK: Need = Need::Capability(Capability::Block);
const KEEPS: Need = Need::Capability(Capability::Persistence);

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "data on a block volume persists across pod recreation",
        "volumes",
        Pattern::BLOCK_WAIT_FOR_FIRST_CONSUMER,
        &[Need::Root, BLOCK, KEEPS],
        case!(retained_on_same_node),
    ),
    row(
        SUITE,
        "data on a block volume persists across pod recreation on another node",
        "multiVolume",
        Pattern::BLOCK,
        &[Need::Nodes(2), Need::Root, BLOCK, KEEPS],
        case!(retained_on_other_node),
    ),
    row(
        SUITE,
        "a block volume has at least the requested size",
        UPSTREAM,
        Pattern::BLOCK,
        &[Need::Root, BLOCK],
        case!(as_large_as_claimed),
    ),
    row(
        SUITE,
        "a block volume in volumeMounts is rejected with event FailedMount",
        UPSTREAM,
        Pattern::BLOCK,
        &[BLOCK],
        case!(block_as_file_system),
    ),
    row(
        SUITE,
        "a filesystem volume in volumeDevices is rejected with event FailedMount",
        UPSTREAM,
        Pattern::IMMEDIATE,
        &[],
        case!(file_system_as_block),
    ),
    row(
        SUITE,
        "a block volume that no container uses is not published",
        UPSTREAM,
        Pattern::BLOCK,
        &[Need::Tap, BLOCK],
        case!(unused),
    ),
    row(
        SUITE,
        "a pod with filesystem and block volumes finds its data after recreation",
        "multiVolume",
        Pattern::BLOCK,
        &[Need::Root, BLOCK, KEEPS],
        case!(both_on_same_node),
    ),
    row(
        SUITE,
        "a pod with filesystem and block volumes finds its data after recreation on another node",
        "multiVolume",
        Pattern::BLOCK_WAIT_FOR_FIRST_CONSUMER,
        &[Need::Nodes(2), Need::Root, BLOCK, KEEPS],
        case!(both_on_other_node),
    ),
    row(
        SUITE,
        "two pods on one node share a block volume",
        "multiVolume",
        Pattern::BLOCK_WAIT_FOR_FIRST_CONSUMER,
        &[Need::Root, BLOCK, Need::Capability(Capability::Multipods)],
        case!(two_pods),
    ),
    row(
        SUITE,
        "a running pod keeps its block volume across a kubelet restart",
        "disruptive",
        Pattern::BLOCK,
        &[Need::Disrupt, Need::OwnNode, Need::Agents, Need::Root, BLOCK],
        case!(outlives_agent),
    ),
];

/// Writes four MiB to the middle of a device, and prints their checksum.
const WRITE: &str = "dd if=/dev/urandom of=/tmp/blob bs=1048576 count=4 2> /dev/null
dd if=/tmp/blob of=/dev/data bs=1048576 seek=32 conv=notrunc,fsync 2> /dev/null
sha256sum < /tmp/blob";
/// Prints the checksum of the same four MiB.
const READ: &str = "dd if=/dev/data bs=1048576 skip=32 count=4 2> /dev/null | sha256sum";

async fn retained_on_same_node(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    retained_between(&t, &node, &node).await
}

async fn retained_on_other_node(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    retained_between(&t, &nodes[0], &nodes[1]).await
}

async fn retained_between(t: &Fixture, first: &str, second: &str) -> Result<()> {
    let claim = t.claim("claim").await?;
    let written = t.output(&TestPod::run_to_completion("writer", &claim, WRITE).on(first)).await?;
    ensure!(written.len() >= 64, "the writer printed {written:?} instead of a checksum");
    t.remove_named_pod("writer").await?;
    t.withdrawn().await?;
    let read = t.output(&TestPod::run_to_completion("reader", &claim, READ).on(second)).await?;
    ensure!(read == written, "written {written} on {first}, read {read} on {second}");
    Ok(())
}

async fn as_large_as_claimed(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let script = "test -b /dev/data && blockdev --getsize64 /dev/data";
    let output = t.output(&TestPod::run_to_completion("pod", &claim, script)).await?;
    let bytes: i64 = output.parse().with_context(|| format!("unexpected pod output {output:?}"))?;
    let requested = quantity::parse(&t.usual_size()).context("not a size")?;
    ensure!(bytes >= requested, "the device has {bytes} bytes, {requested} were requested");
    Ok(())
}

async fn block_as_file_system(t: Arc<Fixture>) -> Result<()> {
    rejected(&t, "has volumeMode Block, but is specified in volumeMounts").await
}

async fn file_system_as_block(t: Arc<Fixture>) -> Result<()> {
    rejected(&t, "has volumeMode Filesystem, but is specified in volumeDevices").await
}

async fn rejected(t: &Fixture, why: &str) -> Result<()> {
    let claim = t.claim("claim").await?;
    let pod = t.pod(&TestPod::long_running("pod", &claim, "").wrong_volume_mode()).await?;
    t.event_containing("pod", &["FailedMount"], why).await?;
    t.event_containing("pod", &["FailedMount"], "Unable to attach or mount volumes").await?;
    t.remove_pod(&pod).await
}

async fn unused(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "").unmounted()).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    let calls = t.balance().await?.calls;
    let published = calls.get(&CsiMethod::NodePublishVolume).copied().unwrap_or_default();
    ensure!(published == 0, "NodePublishVolume was called");
    Ok(())
}

async fn both_on_same_node(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    both(&t, &node, &node).await
}

async fn both_on_other_node(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    both(&t, &nodes[0], &nodes[1]).await
}

async fn both(t: &Fixture, first: &str, second: &str) -> Result<()> {
    let (device, files) = (t.claim("device").await?, file_system(t).await?);
    let write = format!("{WRITE} | tee /data1/sum");
    let written =
        t.output(&TestPod::run_to_completion("writer", &device, &write).also(&files).on(first)).await?;
    t.remove_named_pod("writer").await?;
    t.withdrawn().await?;
    let read = format!("{READ} | cmp - /data1/sum && cat /data1/sum");
    let read =
        t.output(&TestPod::run_to_completion("reader", &device, &read).also(&files).on(second)).await?;
    ensure!(
        written.len() >= 64 && read == written,
        "written {written:?} on {first}, read {read:?} on {second}"
    );
    Ok(())
}

/// A claim of the case's class for a file system.
async fn file_system(t: &Fixture) -> Result<Claim> {
    t.claim_like(serde_json::json!({
        "metadata": { "name": "files" },
        "spec": {
            "accessModes": t.access_modes(),
            "storageClassName": t.class().await?,
            "resources": { "requests": { "storage": t.usual_size() } },
        },
    }))
    .await
}

async fn two_pods(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = t.claim("claim").await?;
    let writer =
        t.ready_pod(&TestPod::long_running("writer", &claim, "echo here > /dev/data").on(&node)).await?;
    let finds = "test \"$(head -c 4 /dev/data)\" = here";
    let reader = TestPod::long_running("reader", &claim, finds).probing(USES).on(&node);
    let reader = t.ready_pod(&reader).await?;
    t.remove_pod(&writer).await?;
    let output = t.probed(&reader).await?;
    ensure!(
        output == "here",
        "the running pod no longer reads and writes the volume after the other pod was removed: {output:?}"
    );
    let still =
        t.output(&TestPod::run_to_completion("third", &claim, "head -c 4 /dev/data").on(&node)).await?;
    ensure!(still == "here", "the third pod read {still:?}");
    t.remove_pod(&reader).await
}

/// Writes behind the first bytes of a device, and prints these.
const USES: &str =
    "echo again | dd of=/dev/data bs=512 seek=8 conv=notrunc,fsync 2> /dev/null && head -c 4 /dev/data";

async fn outlives_agent(t: Arc<Fixture>) -> Result<()> {
    let node = t.own_node()?;
    let (claim, other) = (t.claim("claim").await?, t.claim("other").await?);
    let pod = TestPod::long_running("pod", &claim, "echo here > /dev/data").probing(USES).on(&node);
    let pod = t.ready_pod(&pod).await?;
    t.disrupt(Victim::NodeAgent(node.clone()), Disruption::Kill).await?;
    // The new kubelet has taken over once it runs another pod.
    let other_pod = t.ready_pod(&TestPod::long_running("other", &other, "").on(&node)).await?;
    // It may still release what it has found.
    t.keeps_running(&pod).await?;
    let output = t.probed(&pod).await?;
    ensure!(output == "here", "the running pod no longer reads and writes its volume: {output:?}");
    t.not_unpublished().await?;
    t.remove_pod(&other_pod).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&other).await?;
    t.remove_claim(&claim).await
}
