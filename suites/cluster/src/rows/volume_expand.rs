//! Volume expansion: offline and online, rejected requests, and recovery from failures.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use claimcheck_csi::Code;
use claimcheck_informer::{
    Kind,
    growth::{Progress, volume_capacity},
    quantity,
};
use claimcheck_model::{Capability, CsiMethod};
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, FsType, Pattern, Run},
    fixture::{Claim, DATA, DEVICE, Fixture, Pod, Script, TestPod, Variant, refusal},
    need::Need,
};

const SUITE: &str = "volume_expand";
const UPSTREAM: &str = "volume-expand";
const MOCK: &str = "CSI Mock volume expansion";
const UNUSED: &[Need] = &[Need::Capability(Capability::OfflineExpansion)];
const USED: &[Need] = &[Need::Capability(Capability::OnlineExpansion)];
const UNUSED_DEVICE: &[Need] = &[Need::Root, UNUSED[0]];
const USED_DEVICE: &[Need] = &[Need::Root, USED[0]];
const CONTROLLER: &[Need] = &[Need::Tap, Need::Capability(Capability::ControllerExpansion)];
const INFEASIBLE: &[Need] = &[CONTROLLER[0], CONTROLLER[1], USED[0]];
/// By then a resizer has written what its last call returned.
const LAST_WRITE: Duration = Duration::from_secs(2);
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
    grows(UNUSED_VOLUME, Pattern::BLOCK, UNUSED_DEVICE, case!(unused)),
    grows(USED_VOLUME, Pattern::IMMEDIATE, USED, case!(used)),
    grows(USED_VOLUME, Pattern::EXT4, USED, case!(used)),
    grows(USED_VOLUME, Pattern::XFS_WAIT_FOR_FIRST_CONSUMER, USED, case!(used)),
    grows(USED_VOLUME, Pattern::BLOCK_WAIT_FOR_FIRST_CONSUMER, USED_DEVICE, case!(used)),
    grows(
        "a pending filesystem expansion completes when the next pod mounts the volume",
        Pattern::EXT4,
        NODE,
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
        INFEASIBLE,
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
        // A directory has no size of its own.
        &[
            Need::Variant(Variant::GrowsUnused),
            Need::Capability(Capability::OfflineExpansion),
            Need::FileSystem(FsType::Ext4),
        ],
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
        FsType::Block => {
            ("echo kept | dd of=/dev/data conv=notrunc,fsync 2> /dev/null", "head -c 5 /dev/data")
        }
        _ => ("echo kept > /data/ticket && sync", "cat /data/ticket"),
    }
}

/// The commands that print the size in KiB of the volume at this path, as seen by its pods.
fn size(fs: FsType, path: &str) -> String {
    match fs {
        FsType::Block => format!("echo $(($(blockdev --getsize64 {path}) / 1024))"),
        _ => format!("df -k -P {path} | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2"),
    }
}

/// The commands that print the marker and the size of the volume of a pod.
fn look(t: &Fixture) -> String {
    let path = if t.pattern().fs == FsType::Block { DEVICE } else { DATA };
    format!("{} && {}", mark(t).1, size(t.pattern().fs, path))
}

/// The size in bytes that a pod has printed, after the marker.
fn seen_size(output: &str) -> Result<i64> {
    let words: Vec<&str> = output.split_whitespace().collect();
    let [mark, kib] = words[..] else { anyhow::bail!("unexpected output of a pod: {output:?}") };
    ensure!(mark == "kept", "the data is lost: a pod read {mark:?}");
    let kib: i64 = kib.parse().with_context(|| format!("unexpected output of a pod: {output:?}"))?;
    Ok(kib << 10)
}

/// A volume before its expansion.
#[derive(Debug)]
struct Before {
    fs: FsType,
    /// The capacity in the API.
    capacity: i64,
    /// The size that a pod saw.
    seen: i64,
}

impl Before {
    /// The volume of a claim of which a pod has printed this.
    async fn of(t: &Fixture, claim: &Claim, output: &str) -> Result<Self> {
        Self::with_size(t, claim, t.pattern().fs, seen_size(output)?).await
    }

    async fn with_size(t: &Fixture, claim: &Claim, fs: FsType, seen: i64) -> Result<Self> {
        Ok(Self { fs, capacity: volume_capacity(&t.bound(claim).await?), seen })
    }

    /// Checks that a pod sees a volume that was expanded to this size. Part of a file system is metadata, and of what
    /// is added to it, too. A volume of the driver's default may be a directory of a larger file system: then no pod sees
    /// its size.
    fn check(&self, size: &str, seen: i64) -> Result<()> {
        let expected = quantity::parse(size).context("not a size")?;
        let is_visible = self.fs != FsType::Default || self.seen <= self.capacity;
        let least = match self.fs {
            FsType::Block => expected,
            _ => self.seen + (expected - self.capacity) / 100 * ADDED_PERCENT,
        };
        ensure!(
            !is_visible || seen >= least,
            "after the expansion from {} to {expected} bytes, the pod sees {seen} bytes instead of at least {least}; \
             before, it saw {}",
            self.capacity,
            self.seen
        );
        Ok(())
    }
}

/// The part of what is added to a file system that must be usable. Inodes and bitmaps of a small ext4 use 7 %.
const ADDED_PERCENT: i64 = 85;

/// What a new pod sees of a volume.
async fn seen_by(t: &Fixture, name: &str, claim: &Claim, node: &str) -> Result<i64> {
    seen_size(&t.output(&TestPod::run_to_completion(name, claim, &look(t)).on(node)).await?)
}

/// A running pod that writes the marker, and what it sees of the volume.
async fn running(t: &Fixture, claim: &Claim, node: &str) -> Result<(Pod, Before)> {
    let pod = TestPod::long_running("pod", claim, mark(t).0).probing(&look(t)).on(node);
    let pod = t.ready_pod(&pod).await?;
    let before = Before::of(t, claim, &t.probed(&pod).await?).await?;
    Ok((pod, before))
}

async fn unused(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    let write = format!("{}\n{}", mark(&t).0, look(&t));
    let written = t.output(&TestPod::run_to_completion("writer", &claim, &write).on(&node)).await?;
    let before = Before::of(&t, &claim, &written).await?;
    t.remove_named_pod("writer").await?;
    let volume = t.bound(&claim).await?;
    t.attachments_deleted(&volume).await?;
    let volume = volume.metadata.name.unwrap_or_default();
    t.grow(&claim).await?;
    t.volume_has(&volume, &t.larger_size()).await?;
    t.grown_but_for_the_node(&claim, &t.larger_size()).await?;
    before.check(&t.larger_size(), seen_by(&t, "reader", &claim, &node).await?)?;
    t.grown_at_last(&claim, &t.larger_size()).await
}

async fn used(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    let (pod, before) = running(&t, &claim, &node).await?;
    t.grow(&claim).await?;
    t.grown(&claim, &t.larger_size()).await?;
    // The running pod itself, which fails if it was restarted.
    before.check(&t.larger_size(), seen_size(&t.probed(&pod).await?)?)
}

/// `runPreCheck` in pkg/volume/util/operationexecutor/node_expander.go: only for ReadWriteMany a kubelet expands a volume
/// with a claim that has its size already.
async fn expanded_once(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    let (pod, before) = running(&t, &claim, &node).await?;
    t.grow(&claim).await?;
    t.grown(&claim, &t.larger_size()).await?;
    t.remove_pod(&pod).await?;
    before.check(&t.larger_size(), seen_by(&t, "next", &claim, &node).await?)?;
    t.remove_named_pod("next").await?;
    t.remove_claim(&claim).await?;
    t.expect_called(&t.balance().await?, CsiMethod::NodeExpandVolume, 1)
}

async fn under_the_next_pod(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    let (pod, before) = running(&t, &claim, &node).await?;
    // Otherwise the expansion is complete before the next pod.
    t.fail_calls(&t.bound(&claim).await?, CsiMethod::NodeExpandVolume, Code::Internal, None).await?;
    t.grow(&claim).await?;
    t.injected(CsiMethod::NodeExpandVolume).await?;
    let seen = seen_size(&t.probed(&pod).await?)?;
    ensure!(
        seen == before.seen,
        "the pod sees {seen} bytes, before {} bytes: nothing is pending",
        before.seen
    );
    t.remove_pod(&pod).await?;
    t.end_faults().await;
    before.check(&t.larger_size(), seen_by(&t, "next", &claim, &node).await?)?;
    t.grown_at_last(&claim, &t.larger_size()).await
}

async fn twice(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    let write = format!("{}\n{}", mark(&t).0, look(&t));
    let written = t.output(&TestPod::run_to_completion("writer", &claim, &write).on(&node)).await?;
    let before = Before::of(&t, &claim, &written).await?;
    t.remove_named_pod("writer").await?;
    let volume = t.bound(&claim).await?;
    t.attachments_deleted(&volume).await?;
    t.grow(&claim).await?;
    t.resize(&claim, &t.times_usual(3)).await?;
    // The second resize may have to wait until a node has completed the first, and the controller's part of it until no
    // pod uses the volume.
    seen_by(&t, "between", &claim, &node).await?;
    t.remove_named_pod("between").await?;
    t.volume_has(volume.metadata.name.as_deref().unwrap_or_default(), &t.times_usual(3)).await?;
    t.grown_but_for_the_node(&claim, &t.times_usual(3)).await?;
    let last = TestPod::long_running("last", &claim, "").probing(&look(&t)).on(&node);
    let last = t.ready_pod(&last).await?;
    t.grown_at_last(&claim, &t.times_usual(3)).await?;
    before.check(&t.times_usual(3), seen_size(&t.probed(&last).await?)?)
}

async fn ephemeral(t: Arc<Fixture>) -> Result<()> {
    let spec = json!({
        "accessModes": t.access_modes(),
        "storageClassName": t.class().await?,
        "resources": { "requests": { "storage": t.usual_size() } },
    });
    let source = json!({ "ephemeral": { "volumeClaimTemplate": { "spec": spec } } });
    let look = format!("cat /v/data/file && {}", size(t.pattern().fs, "/v/data"));
    let pod = Script::long_running("pod", "echo kept > /v/data/file").probing(&look).volume("data", source);
    let pod = t.script(&pod).await?;
    t.ready(&pod).await?;
    let claim = t.adopt_claim("pod-data").await?;
    let before = Before::of(&t, &claim, &t.probed(&pod).await?).await?;
    t.grow(&claim).await?;
    t.grown(&claim, &t.larger_size()).await?;
    before.check(&t.larger_size(), seen_size(&t.probed(&pod).await?)?)?;
    t.remove_pod(&pod).await?;
    t.deleted(Kind::Claim, &claim.name).await
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
    t.made_as_requested(&claim).await?;
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let (pod, before) = running(&t, &claim, &node).await?;
    // A resizer may repeat the call at once, since it has changed the claim's status itself.
    t.fail_calls(&volume, CsiMethod::ControllerExpandVolume, Code::OutOfRange, None).await?;
    t.resize(&claim, "1Ti").await?;
    t.growth_is(&claim, Progress::ControllerInfeasible).await?;
    t.event_containing("claim", &["VolumeResizeFailed"], "OutOfRange").await?;
    if t.session().cluster().cluster_capabilities().upstream_sidecars {
        // csi-resizer stores the claim that its own write returns (`claims.Update` in resize_status.go), and then takes a size
        // that has changed meanwhile for the one before: it would not act on the request until something else changes.
        t.at_rest(tokio::time::sleep(LAST_WRITE)).await;
    }
    t.end_faults().await;
    t.resize(&claim, &t.larger_size())
        .await
        .context("the request for a smaller size above the capacity was rejected")?;
    t.volume_has(&name, &t.larger_size()).await?;
    t.grown(&claim, &t.larger_size()).await?;
    before.check(&t.larger_size(), seen_size(&t.probed(&pod).await?)?)
}

async fn node_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    let volume = t.bound(&claim).await?;
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let (pod, before) = running(&t, &claim, &node).await?;
    t.fail_calls(&volume, CsiMethod::NodeExpandVolume, Code::Internal, Some(2)).await?;
    t.grow(&claim).await?;
    t.event_containing("pod", &["VolumeResizeFailed"], "Internal").await?;
    t.grown(&claim, &t.larger_size()).await?;
    before.check(&t.larger_size(), seen_size(&t.probed(&pod).await?)?)
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
    // With the type of its file system, for without it a pod that does not run as root gets no right to write (fsGroupPolicy).
    let parameters = json!({ "kind": "image", "csi.storage.k8s.io/fstype": "ext4" });
    let image = json!({ "allowVolumeExpansion": true, "parameters": parameters });
    let driver = t.install_driver(Variant::GrowsUnused, image).await?;
    let claim = t.claim_of_driver(&driver, "claim", "64Mi").await?;
    let pod = TestPod::long_running("pod", &claim, mark(&t).0).probing(&look(&t));
    let pod = t.ready_pod(&pod).await?;
    let seen = seen_size(&t.probed(&pod).await?)?;
    let before = Before::with_size(&t, &claim, FsType::Ext4, seen).await?;
    t.resize(&claim, "128Mi").await?;
    t.event_containing("claim", &["VolumeResizeFailed"], "only supports offline expansion").await?;
    t.remove_pod(&pod).await?;
    t.grown_but_for_the_node(&claim, "128Mi").await?;
    let seen = seen_size(&t.output(&TestPod::run_to_completion("next", &claim, &look(&t))).await?)?;
    before.check("128Mi", seen)?;
    t.grown_at_last(&claim, "128Mi").await
}
