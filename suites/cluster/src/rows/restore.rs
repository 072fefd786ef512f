//! Claims that are restored from snapshots.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_csi::Code;
use claimcheck_engine::skip;
use claimcheck_informer::Kind;
use claimcheck_model::{Capability, CsiMethod};
use futures::future::try_join_all;
use kube::ResourceExt;
use serde_json::json;

use super::{
    case, row,
    snapshottable::{expect, write, written},
};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Claim, Fixture, Policy, TestPod, VolumeSource, restore_size},
    need::Need,
};

const SUITE: &str = "restore";
const SNAPSHOTS: Need = Need::Capability(Capability::SnapshotDataSource);

const fn restore(name: &'static str, pattern: Pattern, run: Run) -> Case {
    row(SUITE, name, "provisioning", pattern, &[SNAPSHOTS], run)
}

const fn as_of(pattern: Pattern) -> Case {
    restore("a restored volume has the data from the time of the snapshot", pattern, case!(data_as_of))
}

const fn larger(pattern: Pattern) -> Case {
    restore(
        "a volume restored larger than its snapshot has a filesystem of its full size",
        pattern,
        case!(grows),
    )
}

/// With xfs both file systems have the same UUID, so that the driver needs the mount option `nouuid`
/// (kubernetes#102538).
const fn in_one_pod(pattern: Pattern) -> Case {
    row(
        SUITE,
        "a restored volume and its source are mounted in one pod with independent data",
        "multiVolume",
        pattern,
        &[SNAPSHOTS],
        case!(in_one_pod_with_source),
    )
}

pub(super) const ROWS: &[Case] = &[
    as_of(Pattern::IMMEDIATE),
    as_of(Pattern::WAIT_FOR_FIRST_CONSUMER),
    as_of(Pattern::EXT4),
    as_of(Pattern::XFS),
    larger(Pattern::EXT4),
    larger(Pattern::XFS),
    restore(
        "a PVC smaller than its source snapshot is rejected with event ProvisioningFailed",
        Pattern::EXT4,
        case!(too_small),
    ),
    row(
        SUITE,
        "a PVC with another volumeMode than its source snapshot is rejected with event ProvisioningFailed",
        "none",
        Pattern::IMMEDIATE,
        &[Need::LongWait, SNAPSHOTS],
        case!(of_other_mode),
    ),
    row(
        SUITE,
        "a PVC stays Pending until its source snapshot is ready",
        "provisioning",
        Pattern::IMMEDIATE,
        &[Need::Tap, Need::LongWait, SNAPSHOTS],
        case!(waits),
    ),
    restore(
        "a snapshot can be restored after its source PVC is deleted",
        Pattern::IMMEDIATE,
        case!(source_deleted),
    ),
    restore(
        "several PVCs are restored from one snapshot at the same time",
        Pattern::IMMEDIATE,
        case!(several),
    ),
    in_one_pod(Pattern::EXT4),
    in_one_pod(Pattern::XFS),
    row(
        SUITE,
        "a snapshot deleted during a CreateVolume of unknown outcome remains until the outcome is known",
        "provisioning",
        Pattern::IMMEDIATE,
        &[Need::Tap, Need::LongWait, Need::FixedSidecars("external-provisioner#1449"), SNAPSHOTS],
        case!(in_doubt),
    ),
    row(
        SUITE,
        "a PVC is bound although its source snapshot is deleted during a CreateVolume of unknown outcome",
        "none",
        Pattern::IMMEDIATE,
        &[Need::Tap, SNAPSHOTS],
        case!(continues),
    ),
    restore(
        "a namespace is removed with a snapshot and a restored PVC that waits for its first consumer",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(removed_with_namespace),
    ),
    row(
        SUITE,
        "a volume restored as ReadOnlyMany is readable by pods on two nodes",
        "provisioning",
        Pattern::IMMEDIATE,
        &[Need::Nodes(2), SNAPSHOTS, Need::Capability(Capability::CapReadOnlyMany)],
        case!(read_by_many),
    ),
];

async fn data_as_of(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "before").await?;
    t.taken("snapshot", &claim).await?;
    write(&t, &claim, "after").await?;
    let restored = t.claim_from("restored", VolumeSource::Snapshot("snapshot"), &t.usual_size()).await?;
    expect(&t, &restored, "before").await?;
    expect(&t, &claim, "after").await
}

async fn grows(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "grown").await?;
    t.taken("snapshot", &claim).await?;
    let restored = t.claim_from("restored", VolumeSource::Snapshot("snapshot"), &t.larger_size()).await?;
    let script =
        "cat /data/file && df -kP /data | tail -n 1 | while read -r _ size _; do echo \"$size\"; done";
    let output = t.output(&TestPod::run_to_completion("reader", &restored, script)).await?;
    let (text, size) = output.split_once('\n').unwrap_or((output.as_str(), ""));
    ensure!(text == "grown", "the restored volume contains {text:?}");
    // The size of a file system does not include its own metadata.
    let size: u64 = size.trim().parse()?;
    let larger = claimcheck_informer::quantity::parse(&t.larger_size()).context("not a size")?;
    let due = u64::try_from(larger)? / 1024 * 3 / 4;
    ensure!(size > due, "the file system has {size} KiB on a volume of {}", t.larger_size());
    Ok(())
}

async fn too_small(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "large").await?;
    let snapshot = t.taken("snapshot", &claim).await?;
    if restore_size(&snapshot).unwrap_or_default() == 0 {
        return Err(skip("the driver does not report the sizes of its snapshots"));
    }
    t.claim_from("restored", VolumeSource::Snapshot("snapshot"), "16Mi").await?;
    t.event_containing("restored", &["ProvisioningFailed"], "is less than the size").await
}

async fn waits(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "late").await?;
    let volume = t.bound(&claim).await?;
    let size = t.size_to_restore("snapshot", Some(&claim));
    let restored = t.claim_from("restored", VolumeSource::Snapshot("snapshot"), &size).await?;
    t.event_containing("restored", &["ProvisioningFailed"], "error getting snapshot snapshot").await?;
    t.fail_calls(&volume, CsiMethod::CreateSnapshot, Code::Internal, None).await?;
    let class = t.snapshot_class(Policy::Delete).await?;
    t.snapshot("snapshot", &claim, &class).await?;
    t.injected(CsiMethod::CreateSnapshot).await?;
    t.bound(&t.claim("control").await?).await?;
    t.is_not_provisioned(&restored).await?;
    t.end_faults().await;
    t.ready_before("snapshot", &restored).await?;
    expect(&t, &restored, "late").await
}

/// A snapshot of a file system that a user has written to a block volume could harm the kernel (KEP-3141).
async fn of_other_mode(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    t.taken("snapshot", &claim).await?;
    t.manual_class().await?;
    let source = json!({
        "accessModes": t.access_modes(),
        "dataSource": VolumeSource::Snapshot("snapshot").source(),
        "volumeMode": "Block",
    });
    let restored = t.manual_claim("restored", &t.size_to_restore("snapshot", None), source).await?;
    let reason = "modifies the mode of the source volume";
    t.event_containing("restored", &["ProvisioningFailed"], reason).await?;
    t.is_not_provisioned(&restored).await
}

async fn source_deleted(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "kept").await?;
    t.taken("snapshot", &claim).await?;
    let volume = t.bound(&claim).await?.name_any();
    t.delete_claim(&claim).await?;
    t.deleted(Kind::Claim, &claim.name).await?;
    t.deleted_or_refused(&volume).await?;
    let restored = t.claim_from("restored", VolumeSource::Snapshot("snapshot"), &t.usual_size()).await?;
    expect(&t, &restored, "kept").await
}

async fn several(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "shared").await?;
    t.taken("snapshot", &claim).await?;
    let names: Vec<String> = (0..4).map(|n| format!("restored-{n}")).collect();
    let restored = names.iter().map(|name| {
        let t = &t;
        async move {
            let claim = t.claim_from(name, VolumeSource::Snapshot("snapshot"), &t.usual_size()).await?;
            expect(t, &claim, "shared").await
        }
    });
    try_join_all(restored).await.map(drop)
}

async fn in_one_pod_with_source(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "before").await?;
    t.taken("snapshot", &claim).await?;
    let restored = t.claim_from("restored", VolumeSource::Snapshot("snapshot"), &t.usual_size()).await?;
    let script = "cat /data1/file && echo source > /data/file && echo restored > /data1/file && sync\n\
                  cat /data/file /data1/file";
    let output = t.output(&TestPod::run_to_completion("pod", &claim, script).also(&restored)).await?;
    ensure!(output == "before\nsource\nrestored", "unexpected pod output {output:?}");
    Ok(())
}

/// Two claims: the source of the snapshot `snapshot`, and one that restores it with a CreateVolume of unknown outcome.
async fn restore_in_doubt(t: &Fixture) -> Result<(Claim, Claim)> {
    let claim = written(t, "claim", "still read").await?;
    t.taken("snapshot", &claim).await?;
    // The restore waits for its class until the outcome of CreateVolume is made unknown.
    let source = json!({ "dataSource": VolumeSource::Snapshot("snapshot").source() });
    let restored = t.manual_claim("restored", &t.size_to_restore("snapshot", None), source).await?;
    t.event("restored", "ProvisioningFailed").await?;
    t.doubt_creation(&restored).await;
    t.manual_class().await?;
    t.event_containing("restored", &["ProvisioningFailed"], "DeadlineExceeded").await?;
    Ok((claim, restored))
}

async fn in_doubt(t: Arc<Fixture>) -> Result<()> {
    let (claim, restored) = restore_in_doubt(&t).await?;
    t.remove_claim(&restored).await?;
    t.delete_snapshot("snapshot").await?;
    t.event("snapshot", "SnapshotDeletePending").await?;
    let remains = t.snapshot_remains("snapshot", &claim, &t.global("delete")).await;
    remains.context("the snapshot was deleted during the restore")?;
    t.end_faults().await;
    t.deleted(Kind::Snapshot, "snapshot").await?;
    // The volume of the deleted claim has got an object, and is deleted with it.
    t.volume_deleted(&format!("pvc-{}", restored.uid)).await
}

/// The volume may exist already, so its creation is continued (external-provisioner#1448).
async fn continues(t: Arc<Fixture>) -> Result<()> {
    let (_, restored) = restore_in_doubt(&t).await?;
    t.delete_snapshot("snapshot").await?;
    t.event("snapshot", "SnapshotDeletePending").await?;
    t.end_faults().await;
    t.bound(&restored).await.context("the restore is not continued")?;
    expect(&t, &restored, "still read").await?;
    // A driver may keep a snapshot as long as a volume that was created from it exists.
    t.remove_claim(&restored).await?;
    t.deleted(Kind::Snapshot, "snapshot").await
}

/// The waiting claim protects the snapshot (velero#8120).
async fn removed_with_namespace(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "read").await?;
    let snapshot = t.taken("snapshot", &claim).await?;
    let content = t.content_of(&snapshot).await?.name_any();
    let restored = t.claim_from("restored", VolumeSource::Snapshot("snapshot"), &t.usual_size()).await?;
    t.event("restored", "WaitForFirstConsumer").await?;
    t.delete_snapshot("snapshot").await?;
    t.delete_namespace().await?;
    // A namespace controller does so, too; --cluster envtest has none.
    t.delete_claim(&restored).await?;
    t.delete_claim(&claim).await?;
    t.deleted(Kind::Claim, &restored.name).await?;
    t.deleted(Kind::Claim, &claim.name).await?;
    t.deleted(Kind::Snapshot, "snapshot").await?;
    t.content_deleted(&content).await
}

async fn read_by_many(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "read").await?;
    let class = t.snapshot_class(Policy::Delete).await?;
    let source = json!({ "persistentVolumeClaimName": claim.name });
    t.snapshot_like("snapshot", json!({ "source": source, "volumeSnapshotClassName": class })).await?;
    t.restorable("snapshot").await?;
    let modes = json!(["ReadOnlyMany"]);
    let restored =
        t.claim_from_as("restored", VolumeSource::Snapshot("snapshot"), &t.usual_size(), modes).await?;
    if let Err(error) = t.bound(&restored).await {
        // No call declares it: a driver file does, or the driver refuses.
        let refused = format!("{error:#}").contains("InvalidArgument");
        return Err(match refused && !t.declares(Capability::CapReadOnlyMany) {
            true => skip(format!("the driver provisions no ReadOnlyMany volumes: {error:#}")),
            false => error,
        });
    }
    let read = "cat /data/file; touch /data/other 2> /dev/null && echo written || echo refused";
    let nodes = t.nodes();
    let names = ["reader-0", "reader-1"];
    let readers = names.iter().zip(&nodes).map(async |(name, node)| {
        let reader = TestPod::long_running(name, &restored, "").probing(read).read_only_claims().on(node);
        t.ready_pod(&reader).await
    });
    let readers = try_join_all(readers).await?;
    let bound = t.bound(&restored).await?;
    let volume = bound.name_any();
    // Both run by now.
    for reader in &readers {
        let seen = t.probed(reader).await?;
        ensure!(seen == "read refused", "pod {} reads and writes: {seen:?}", reader.name);
        t.published_read_only(reader, &volume).await?;
    }
    t.remove_pod(&readers[0]).await?;
    t.detached_from(&bound, &nodes[0]).await?;
    let seen = t.probed(&readers[1]).await?;
    ensure!(
        seen == "read refused",
        "after the other was deleted, the second reader reads and writes: {seen:?}"
    );
    Ok(())
}
