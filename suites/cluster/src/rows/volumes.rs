//! Data on volumes: persistence, sharing between pods, and size limits.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_informer::{growth::volume_capacity, quantity};
use claimcheck_model::{Capability, CsiMethod};

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Fixture, TestPod},
    need::Need,
};

const SUITE: &str = "volumes";
const KEEPS: Need = Need::Capability(Capability::Persistence);

pub(super) const ROWS: &[Case] = &[
    retained(Pattern::IMMEDIATE),
    retained(Pattern::EXT4),
    retained(Pattern::XFS),
    retained_elsewhere(Pattern::IMMEDIATE),
    retained_elsewhere(Pattern::EXT4),
    retained_elsewhere(Pattern::XFS),
    row(
        SUITE,
        "two pods with the same PVC on one node share one NodeStageVolume call",
        "multiVolume",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        &[Need::Tap, Need::Stage, Need::Capability(Capability::Multipods)],
        case!(two_pods_one_stage),
    ),
    row(
        SUITE,
        "a volume has the requested size, and writes beyond it fail with ENOSPC",
        "provisioning",
        Pattern::EXT4,
        &[],
        case!(size_is_enforced),
    ),
];

const fn retained(pattern: Pattern) -> Case {
    let name = "data persists across pod recreation";
    row(SUITE, name, "volumes", pattern, &[KEEPS], case!(retained_on_same_node))
}

const fn retained_elsewhere(pattern: Pattern) -> Case {
    let name = "data persists across pod recreation on another node";
    row(SUITE, name, "multiVolume", pattern, &[Need::Nodes(2), KEEPS], case!(retained_on_other_node))
}

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
    let write = "dd if=/dev/urandom of=/data/file bs=1024 count=1024 2> /dev/null && sha256sum < /data/file";
    let writer = t.pod(&TestPod::run_to_completion("writer", &claim, write).on(first)).await?;
    let written = t.ended(&writer).await?;
    ensure!(written.len() >= 64, "the writer printed {written:?} instead of a checksum");
    t.remove_pod(&writer).await?;
    t.withdrawn().await?;
    let read =
        t.output(&TestPod::run_to_completion("reader", &claim, "sha256sum < /data/file").on(second)).await?;
    ensure!(read == written, "written {written} on {first}, read {read} on {second}");
    Ok(())
}

async fn two_pods_one_stage(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = t.claim("claim").await?;
    let write = "echo from-a > /data/a";
    let a = t.ready_pod(&TestPod::long_running("a", &claim, write).on(&node)).await?;
    let read = "test \"$(cat /data/a)\" = from-a && echo from-b > /data/b";
    let uses = "echo again >> /data/b && cat /data/a && head -n 1 /data/b";
    let b = t.ready_pod(&TestPod::long_running("b", &claim, read).probing(uses).on(&node)).await?;
    t.remove_pod(&a).await?;
    // The volume remains staged and published for the other pod.
    let output = t.probed(&b).await?;
    ensure!(
        output == "from-a from-b",
        "the running pod b no longer reads and writes the volume after pod a was removed: {output:?}"
    );
    let seen = t.balance_now().await?.calls;
    ensure!(
        !seen.contains_key(&CsiMethod::NodeUnstageVolume),
        "NodeUnstageVolume was called while a pod uses the volume: {seen:?}"
    );
    t.remove_pod(&b).await?;
    t.remove_claim(&claim).await?;
    let expected = [
        (CsiMethod::CreateVolume, 1),
        (CsiMethod::ControllerPublishVolume, 1),
        (CsiMethod::NodeStageVolume, 1),
        (CsiMethod::NodePublishVolume, 2),
        (CsiMethod::NodeUnpublishVolume, 2),
        (CsiMethod::NodeUnstageVolume, 1),
        (CsiMethod::ControllerUnpublishVolume, 1),
        (CsiMethod::DeleteVolume, 1),
    ];
    t.expect_calls(&expected).await
}

async fn size_is_enforced(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    // A driver may round up the size, and without limit: then there is nothing that does not fit.
    t.made_as_requested(&claim).await?;
    let made = volume_capacity(&t.bound(&claim).await?) >> 20;
    // Three quarters fit in addition to file system metadata; a quarter more than the volume does not.
    let requested = quantity::parse(&t.usual_size()).context("not a size")? >> 20;
    let (less, more) = (requested * 3 / 4, made.max(requested) * 5 / 4);
    let script = format!(
        "dd if=/dev/zero of=/data/fits bs=1048576 count={less} 2> /dev/null && echo fits\n\
         rm /data/fits\n\
         dd if=/dev/zero of=/data/large bs=1048576 count={more} 2>&1 | grep -o 'No space left on device'\n\
         rm -f /data/large"
    );
    let output = t.output(&TestPod::run_to_completion("pod", &claim, &script)).await?;
    ensure!(output == "fits\nNo space left on device", "unexpected pod output {output:?}");
    Ok(())
}
