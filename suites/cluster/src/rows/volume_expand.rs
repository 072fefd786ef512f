//! Volume expansion: offline and online, rejected requests, and recovery from failures.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_csi::Code;
use claimcheck_informer::{Kind, growth::Progress};
use claimcheck_model::{Capability, CsiMethod};
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, FsType, Pattern, Run},
    fixture::{Claim, Fixture, Script, TestPod, Variant, refusal},
    need::Need,
};

const SUITE: &str = "volume_expand";
const UPSTREAM: &str = "volume-expand";
const MOCK: &str = "CSI Mock volume expansion";
const UNUSED: &[Need] = &[Need::Capability(Capability::OfflineExpansion)];
const USED: &[Need] = &[Need::Capability(Capability::OnlineExpansion)];
const CONTROLLER: &[Need] = &[Need::Tap, Need::Capability(Capability::ControllerExpansion)];
const NODE: &[Need] =
    &[Need::Tap, Need::Capability(Capability::NodeExpansion), Need::Capability(Capability::OnlineExpansion)];

const fn grows(name: &'static str, pattern: Pattern, needs: &'static [Need], run: Run) -> Case {
    row(SUITE, name, UPSTREAM, pattern, needs, run)
}

const fn recovers(name: &'static str, pattern: Pattern, needs: &'static [Need], run: Run) -> Case {
    row(SUITE, name, MOCK, pattern, needs, run)
}

pub(super) const ROWS: &[Case] = &[
    grows(
        "expansion is rejected unless the StorageClass allows it",
        Pattern::IMMEDIATE,
        UNUSED,
        case!(not_allowed),
    ),
    grows("shrinking a PVC is rejected", Pattern::IMMEDIATE, UNUSED, case!(never_smaller)),
    grows(UNUSED_VOLUME, Pattern::IMMEDIATE, UNUSED, case!(unused)),
    grows(UNUSED_VOLUME, Pattern::EXT4_WAIT_FOR_FIRST_CONSUMER, UNUSED, case!(unused)),
    grows(UNUSED_VOLUME, Pattern::XFS, UNUSED, case!(unused)),
    grows(UNUSED_VOLUME, Pattern::BLOCK, UNUSED, case!(unused)),
    grows(USED_VOLUME, Pattern::IMMEDIATE, USED, case!(used)),
    grows(USED_VOLUME, Pattern::EXT4, USED, case!(used)),
    grows(USED_VOLUME, Pattern::XFS_WAIT_FOR_FIRST_CONSUMER, USED, case!(used)),
    grows(USED_VOLUME, Pattern::BLOCK_WAIT_FOR_FIRST_CONSUMER, USED, case!(used)),
    grows(
        "a pending filesystem expansion completes when the next pod mounts the volume",
        Pattern::EXT4,
        UNUSED,
        case!(under_the_next_pod),
    ),
    grows(
        "a PVC resized twice in a row reaches the last requested size",
        Pattern::IMMEDIATE,
        UNUSED,
        case!(twice),
    ),
    grows(
        "the PVC of a generic ephemeral volume can be expanded",
        Pattern::IMMEDIATE,
        USED,
        case!(ephemeral),
    ),
    recovers(
        "ControllerExpandVolume is retried after failure, and the PVC gets event VolumeResizeFailed",
        Pattern::IMMEDIATE,
        CONTROLLER,
        case!(controller_fails),
    ),
    recovers(
        "a PVC recovers from an infeasible resize when a smaller size is requested",
        Pattern::IMMEDIATE,
        CONTROLLER,
        case!(controller_refuses),
    ),
    recovers(
        "NodeExpandVolume is retried after failure, and the pod gets event VolumeResizeFailed",
        Pattern::XFS,
        NODE,
        case!(node_fails),
    ),
    recovers(
        "ControllerExpandVolume is called again after NodeExpandVolume fails with a final error",
        Pattern::XFS,
        NODE,
        case!(node_refuses),
    ),
    recovers(
        "NodeExpandVolume is called once for a ReadWriteOnce volume, and not again for its next pod",
        Pattern::XFS,
        NODE,
        case!(expanded_once),
    ),
    recovers(
        "with an offline-only driver, expansion is retried after the pod is deleted",
        Pattern::IMMEDIATE,
        &[Need::Variant(Variant::GrowsUnused), Need::Capability(Capability::OfflineExpansion)],
        case!(waits_until_unused),
    ),
];

const UNUSED_VOLUME: &str = "an unused volume is expanded and keeps its data";
const USED_VOLUME: &str = "a volume is expanded while a pod uses it";

/// A claim of the case's class.
async fn claim(t: &Fixture) -> Result<Claim> {
    t.claim("claim").await
}

async fn not_allowed(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    t.bound(&claim).await?;
    t.allow_growth(&claim, false).await?;
    let message = refusal(t.resize(&claim, &t.larger_size()).await)?;
    ensure!(message.contains("only dynamically provisioned pvc can be resized"), "rejected with {message:?}");
    t.allow_growth(&claim, true).await?;
    t.resize(&claim, &t.larger_size()).await.context("expansion was rejected although the class allows it")
}

async fn never_smaller(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    t.bound(&claim).await?;
    let message = refusal(t.resize(&claim, "1Mi").await)?;
    ensure!(message.contains("field can not be less than status.capacity"), "rejected with {message:?}");
    Ok(())
}

/// The commands that write and print a marker on a volume.
fn mark(t: &Fixture) -> (&'static str, &'static str) {
    match t.pattern().fs {
        FsType::Block => ("echo kept | dd of=/dev/data conv=notrunc,fsync", "head -c 5 /dev/data"),
        _ => ("echo kept > /data/ticket && sync", "cat /data/ticket"),
    }
}

/// The command that prints the size of a volume in KiB, as seen by its pods.
fn size(t: &Fixture) -> &'static str {
    match t.pattern().fs {
        FsType::Block => "echo $(($(blockdev --getsize64 /dev/data) / 1024))",
        _ => "df -k -P /data | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2",
    }
}

/// Checks in a pod that the marker exists, and that the volume is larger than before. A file system uses part of its
/// device for metadata, and the driver's default may be a directory without its own size.
async fn is_larger(t: &Fixture, name: &str, claim: &Claim, node: &str) -> Result<()> {
    let script = format!("{} && {}", mark(t).1, size(t));
    let output = t.output(&TestPod::run_to_completion(name, claim, &script).on(node)).await?;
    let words: Vec<&str> = output.split_whitespace().collect();
    let [mark, kib] = words[..] else { anyhow::bail!("unexpected output of pod {name}: {output:?}") };
    ensure!(mark == "kept", "the data is lost: pod {name} read {mark:?}");
    let kib: u64 = kib.parse().with_context(|| format!("unexpected output of pod {name}: {output:?}"))?;
    let before = claimcheck_informer::quantity::parse(&t.usual_size()).context("not a size")?;
    let before = u64::try_from(before)? / 1024;
    ensure!(
        t.pattern().fs == FsType::Default || kib > before,
        "the volume has {kib} KiB, not more than {before}"
    );
    Ok(())
}

async fn unused(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    t.output(&TestPod::run_to_completion("writer", &claim, mark(&t).0).on(&node)).await?;
    t.remove_named_pod("writer").await?;
    let volume = t.bound(&claim).await?;
    t.attachments_gone(&volume).await?;
    let volume = volume.metadata.name.unwrap_or_default();
    t.grow(&claim).await?;
    t.volume_has(&volume, &t.larger_size()).await?;
    t.grown_but_for_the_node(&claim, &t.larger_size()).await?;
    is_larger(&t, "reader", &claim, &node).await?;
    t.grown_at_last(&claim, &t.larger_size()).await
}

async fn used(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, mark(&t).0).on(&node)).await?;
    t.grow(&claim).await?;
    t.grown(&claim, &t.larger_size()).await?;
    is_larger(&t, "reader", &claim, &node).await?;
    let restarts = t.pod_now(&pod).await?.status.and_then(|status| status.container_statuses);
    let restarts: i32 = restarts.iter().flatten().map(|status| status.restart_count).sum();
    ensure!(restarts == 0, "the pod was restarted");
    Ok(())
}

/// `runPreCheck` in pkg/volume/util/operationexecutor/node_expander.go: only for ReadWriteMany a kubelet expands a volume
/// with a claim that has its size already.
async fn expanded_once(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, mark(&t).0).on(&node)).await?;
    t.grow(&claim).await?;
    t.grown(&claim, &t.larger_size()).await?;
    t.remove_pod(&pod).await?;
    is_larger(&t, "next", &claim, &node).await?;
    t.remove_named_pod("next").await?;
    t.remove_claim(&claim).await?;
    t.expect_called(&t.balance().await?, CsiMethod::NodeExpandVolume, 1)
}

async fn under_the_next_pod(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, mark(&t).0).on(&node)).await?;
    t.grow(&claim).await?;
    t.grown_but_for_the_node(&claim, &t.larger_size()).await?;
    t.remove_pod(&pod).await?;
    is_larger(&t, "next", &claim, &node).await?;
    t.grown_at_last(&claim, &t.larger_size()).await
}

async fn twice(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    t.bound(&claim).await?;
    t.grow(&claim).await?;
    t.resize(&claim, &t.times_usual(3)).await?;
    // The second resize may have to wait until a node has completed the first.
    t.ready_pod(&TestPod::long_running("pod", &claim, mark(&t).0).on(&node)).await?;
    t.grown_at_last(&claim, &t.times_usual(3)).await
}

async fn ephemeral(t: Arc<Fixture>) -> Result<()> {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": t.class().await?,
        "resources": { "requests": { "storage": t.usual_size() } },
    });
    let source = json!({ "ephemeral": { "volumeClaimTemplate": { "spec": spec } } });
    let pod =
        t.script(&Script::long_running("pod", "echo here > /v/data/file").volume("data", source)).await?;
    t.ready(&pod).await?;
    let claim = t.adopt_claim("pod-data").await?;
    t.grow(&claim).await?;
    t.grown(&claim, &t.larger_size()).await?;
    t.remove_pod(&pod).await?;
    t.gone(Kind::Claim, &claim.name).await
}

async fn controller_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    let volume = t.bound(&claim).await?;
    t.fail_calls(&volume, CsiMethod::ControllerExpandVolume, Code::Internal, Some(2)).await?;
    t.grow(&claim).await?;
    t.event_containing("claim", &["VolumeResizeFailed"], "Internal").await?;
    t.grown_but_for_the_node(&claim, &t.larger_size()).await
}

async fn controller_refuses(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    let volume = t.bound(&claim).await?;
    let name = volume.metadata.name.clone().unwrap_or_default();
    t.ready_pod(&TestPod::long_running("pod", &claim, mark(&t).0)).await?;
    // A resizer may repeat the call at once, since it has changed the claim's status itself.
    t.fail_calls(&volume, CsiMethod::ControllerExpandVolume, Code::OutOfRange, None).await?;
    t.resize(&claim, "1Ti").await?;
    t.growth_is(&claim, Progress::ControllerInfeasible).await?;
    t.event_containing("claim", &["VolumeResizeFailed"], "OutOfRange").await?;
    t.end_faults().await;
    t.resize(&claim, &t.larger_size())
        .await
        .context("the request for a smaller size above the capacity was rejected")?;
    t.volume_has(&name, &t.larger_size()).await?;
    t.grown(&claim, &t.larger_size()).await
}

async fn node_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    let volume = t.bound(&claim).await?;
    t.ready_pod(&TestPod::long_running("pod", &claim, mark(&t).0)).await?;
    t.fail_calls(&volume, CsiMethod::NodeExpandVolume, Code::Internal, Some(2)).await?;
    t.grow(&claim).await?;
    t.event_containing("pod", &["VolumeResizeFailed"], "Internal").await?;
    t.grown(&claim, &t.larger_size()).await
}

async fn node_refuses(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    let volume = t.bound(&claim).await?;
    t.ready_pod(&TestPod::long_running("pod", &claim, mark(&t).0)).await?;
    t.fail_calls(&volume, CsiMethod::NodeExpandVolume, Code::OutOfRange, Some(1)).await?;
    t.grow(&claim).await?;
    t.event_containing("pod", &["VolumeResizeFailed"], "OutOfRange").await?;
    t.grown(&claim, &t.larger_size()).await?;
    // Once at first, and once more before the node may retry. The record of a call may come after the watch.
    t.called_more_than(CsiMethod::ControllerExpandVolume, 1).await
}

async fn waits_until_unused(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::GrowsUnused, json!({ "allowVolumeExpansion": true })).await?;
    let claim = t.claim_of_driver(&driver, "claim", "64Mi").await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "")).await?;
    t.resize(&claim, "128Mi").await?;
    t.event_containing("claim", &["VolumeResizeFailed"], "only supports offline expansion").await?;
    t.remove_pod(&pod).await?;
    t.grown_but_for_the_node(&claim, "128Mi").await?;
    t.output(&TestPod::run_to_completion("next", &claim, "true")).await?;
    t.grown_at_last(&claim, "128Mi").await
}
