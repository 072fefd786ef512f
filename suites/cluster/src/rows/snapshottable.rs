//! Snapshots of claims: creation, deletion policies, and import of existing snapshots.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_csi::Code;
use claimcheck_informer::Kind;
use claimcheck_model::{Capability, CsiMethod};
use futures::future::try_join_all;
use kube::ResourceExt;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Claim, Fixture, Policy, Script, TestPod, VolumeSource, restore_size},
    need::Need,
};

const SUITE: &str = "snapshottable";
const SNAPSHOTS: Need = Need::Capability(Capability::SnapshotDataSource);

const fn snapshot(name: &'static str, pattern: Pattern, run: Run) -> Case {
    row(SUITE, name, "snapshottable", pattern, &[SNAPSHOTS], run)
}

const fn failing(name: &'static str, run: Run) -> Case {
    row(SUITE, name, "CSI Mock volume snapshot", Pattern::IMMEDIATE, &[Need::Tap, SNAPSHOTS], run)
}

pub(super) const ROWS: &[Case] = &[
    snapshot(
        "a snapshot and its VolumeSnapshotContent are bound to each other with complete status",
        Pattern::IMMEDIATE,
        case!(fields),
    ),
    snapshot(
        "a snapshot with deletionPolicy Delete is deleted with its VolumeSnapshot",
        Pattern::IMMEDIATE,
        case!(deleted),
    ),
    snapshot(
        "a snapshot with deletionPolicy Retain is kept and can be imported and restored",
        Pattern::IMMEDIATE,
        case!(retained),
    ),
    snapshot(
        "a snapshot imported by a pre-provisioned VolumeSnapshotContent becomes ready",
        Pattern::IMMEDIATE,
        case!(pre_provisioned),
    ),
    snapshot("a snapshot of a volume in use can be created and restored", Pattern::IMMEDIATE, case!(in_use)),
    snapshot("a snapshot of a volume in use can be created and restored", Pattern::EXT4, case!(in_use)),
    snapshot(
        "a snapshot of a generic ephemeral volume can be restored after the pod is deleted",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(ephemeral_volume),
    ),
    snapshot(
        "a snapshot reports an error until its source PVC is Bound",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(unbound_claim),
    ),
    snapshot(
        "a snapshot reports an error until its VolumeSnapshotClass exists",
        Pattern::IMMEDIATE,
        case!(no_class),
    ),
    row(
        SUITE,
        "a snapshot with a missing VolumeSnapshotClass does not keep its source PVC",
        "snapshottable",
        Pattern::IMMEDIATE,
        &[Need::FixedSidecars("external-snapshotter#1305"), SNAPSHOTS],
        case!(no_class_keeps_no_claim),
    ),
    snapshot(
        "a snapshot deleted while a PVC restores from it remains until that PVC is deleted",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(used),
    ),
    row(
        SUITE,
        "many snapshots of several volumes each restore their own data",
        "snapshottable-stress",
        Pattern::IMMEDIATE,
        &[SNAPSHOTS],
        case!(many),
    ),
    failing(
        "a snapshot is retried after CreateSnapshot fails, and its status reports the error",
        case!(create_fails),
    ),
    failing("a snapshot is created only once if the response of CreateSnapshot is lost", case!(answer_lost)),
    failing(
        "a snapshot's deletion is retried after failure with event SnapshotDeleteError",
        case!(delete_fails),
    ),
];

/// A claim with this text on its volume.
pub(super) async fn written(t: &Fixture, name: &str, text: &str) -> Result<Claim> {
    let claim = t.claim(name).await?;
    write(t, &claim, text).await?;
    Ok(claim)
}

/// Writes this text to a claim's volume.
pub(super) async fn write(t: &Fixture, claim: &Claim, text: &str) -> Result<()> {
    let pod = format!("writer-of-{}", claim.name);
    let script = format!("echo {text} > /data/file && sync");
    t.output(&TestPod::run_to_completion(&pod, claim, &script)).await?;
    t.remove_named_pod(&pod).await
}

/// Checks that a claim's volume contains this text.
pub(super) async fn expect(t: &Fixture, claim: &Claim, text: &str) -> Result<()> {
    let pod = format!("reader-of-{}", claim.name);
    let read = t.output(&TestPod::run_to_completion(&pod, claim, "cat /data/file")).await?;
    ensure!(read == text, "the volume of claim {} contains {read:?} instead of {text:?}", claim.name);
    t.remove_named_pod(&pod).await
}

async fn fields(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    let handle = volume.spec.and_then(|spec| spec.csi).map(|csi| csi.volume_handle);
    let snapshot = t.taken("snapshot", &claim).await?;
    let content = t.content_of(&snapshot).await?;
    let class = snapshot.spec.volume_snapshot_class_name.clone();
    ensure!(content.is_bound_to(&snapshot), "the content is bound to {:?}", content.spec.volume_snapshot_ref);
    ensure!(content.spec.volume_snapshot_class_name == class, "the content has another class");
    ensure!(
        content.spec.source.volume_handle == handle,
        "the source of the content is {:?}",
        content.spec.source
    );
    ensure!(content.spec.deletion_policy == "Delete", "deletionPolicy is {}", content.spec.deletion_policy);
    ensure!(
        content.is_ready() && content.handle().is_some(),
        "the status of the content is {:?}",
        content.status
    );
    let status = snapshot.status.clone().context("the snapshot has no status")?;
    ensure!(
        status.error.is_none() && status.creation_time.is_some(),
        "the status of the snapshot is {status:?}"
    );
    // None, if the driver does not know it: csi-snapshotter ignores a size_bytes of 0.
    let sizes = (restore_size(&snapshot), content.status.as_ref().and_then(|status| status.restore_size));
    ensure!(
        sizes.0 == sizes.1 && sizes.0.is_none_or(|size| size > 0),
        "restoreSize of the snapshot and of its content are {sizes:?} bytes"
    );
    let message = t.event("snapshot", "SnapshotReady").await?;
    ensure!(message.contains("is ready to use"), "the Event message is {message:?}");
    t.remove_snapshot(&snapshot).await?;
    t.remove_claim(&claim).await
}

async fn deleted(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    let snapshot = t.taken("snapshot", &claim).await?;
    t.remove_snapshot(&snapshot).await?;
    t.remove_claim(&claim).await?;
    let calls = [
        (CsiMethod::CreateVolume, 1),
        (CsiMethod::CreateSnapshot, 1),
        (CsiMethod::DeleteSnapshot, 1),
        (CsiMethod::DeleteVolume, 1),
    ];
    t.expect_calls(&calls).await
}

/// Creates a snapshot that exists in the driver only; returns its handle.
async fn only_in_the_driver(t: &Fixture, claim: &Claim) -> Result<String> {
    let class = t.snapshot_class(Policy::Retain).await?;
    t.snapshot("first", claim, &class).await?;
    let snapshot = t.restorable("first").await?;
    let content = t.content_of(&snapshot).await?;
    let handle = content.handle().context("the content has no handle")?.to_owned();
    t.remove_snapshot(&snapshot).await?;
    t.remove_content(&content.name_any()).await?;
    Ok(handle)
}

/// Imports a snapshot that exists in the driver, with a content of policy Delete.
async fn take_in(t: &Fixture, handle: &str) -> Result<()> {
    let content = t.content_like("content", handle, "second", Policy::Delete).await?;
    t.snapshot_like("second", json!({ "source": { "volumeSnapshotContentName": content } })).await?;
    t.ready_snapshot("second").await?;
    Ok(())
}

async fn retained(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "kept").await?;
    let handle = only_in_the_driver(&t, &claim).await?;
    let calls = t.balance_now().await?.calls;
    ensure!(
        !calls.contains_key(&CsiMethod::DeleteSnapshot),
        "DeleteSnapshot was called although the policy is Retain: {calls:?}"
    );
    take_in(&t, &handle).await?;
    let restored = t.claim_from("restored", VolumeSource::Snapshot("second"), &t.usual_size()).await?;
    expect(&t, &restored, "kept").await
}

async fn pre_provisioned(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "there").await?;
    let handle = only_in_the_driver(&t, &claim).await?;
    t.snapshot_like("second", json!({ "source": { "volumeSnapshotContentName": t.global("content") } }))
        .await?;
    t.snapshot_reports("second", "VolumeSnapshotContent is missing").await?;
    t.content_like("content", &handle, "second", Policy::Delete).await?;
    let snapshot = t.ready_snapshot("second").await?;
    ensure!(
        t.content_of(&snapshot).await?.handle() == Some(handle.as_str()),
        "the snapshot has another handle"
    );
    t.remove_snapshot(&snapshot).await
}

async fn in_use(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let write = "echo before > /data/file && sync";
    let read = "cat /data/file && date > /data/later";
    let pod = t.ready_pod(&TestPod::long_running("writer", &claim, write).probing(read)).await?;
    t.taken_in_use("snapshot", &claim).await?;
    let read = t.probed(&pod).await?;
    ensure!(read == "before", "after the snapshot the pod that uses its source reads and writes: {read:?}");
    let restored = t.claim_from("restored", VolumeSource::Snapshot("snapshot"), &t.usual_size()).await?;
    expect(&t, &restored, "before").await
}

async fn ephemeral_volume(t: Arc<Fixture>) -> Result<()> {
    let spec = json!({
        "accessModes": t.access_modes(),
        "storageClassName": t.class().await?,
        "resources": { "requests": { "storage": t.usual_size() } },
    });
    let volume = json!({ "ephemeral": { "volumeClaimTemplate": { "spec": spec } } });
    let script = "echo mine > /v/data/file && sync";
    let pod = t.script(&Script::long_running("pod", script).volume("data", volume)).await?;
    t.ready(&pod).await?;
    let claim = t.adopt_claim("pod-data").await?;
    t.taken_in_use("snapshot", &claim).await?;
    t.remove_pod(&pod).await?;
    t.deleted(Kind::Claim, &claim.name).await?;
    let restored = t.claim_from("restored", VolumeSource::Snapshot("snapshot"), &t.usual_size()).await?;
    expect(&t, &restored, "mine").await
}

async fn unbound_claim(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let class = t.snapshot_class(Policy::Delete).await?;
    t.snapshot("snapshot", &claim, &class).await?;
    t.snapshot_reports("snapshot", "is not yet bound to a PV").await?;
    t.output(&TestPod::run_to_completion("pod", &claim, "true")).await?;
    t.ready_snapshot("snapshot").await.map(drop)
}

async fn no_class(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    t.snapshot("snapshot", &claim, &t.global("delete")).await?;
    let snapshot = t.snapshot_reports("snapshot", "not found").await?;
    ensure!(snapshot.content().is_none(), "a content was created without a class");
    t.event("snapshot", "GetSnapshotClassFailed").await?;
    t.snapshot_class(Policy::Delete).await?;
    let snapshot = t.ready_snapshot("snapshot").await?;
    let error = snapshot.status.and_then(|status| status.error);
    ensure!(error.is_none(), "the snapshot is ready but reports {error:?}");
    Ok(())
}

async fn no_class_keeps_no_claim(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?.name_any();
    t.snapshot("without-class", &claim, &t.global("missing")).await?;
    t.snapshot_reports("without-class", "not found").await?;
    // Another snapshot of the same claim makes the controller protect the claim, and release it again.
    t.taken("snapshot", &claim).await?;
    t.delete_claim(&claim).await?;
    t.deleted(Kind::Claim, &claim.name).await?;
    // A driver may keep a volume of which there are snapshots.
    t.deleted_or_refused(&volume).await?;
    let snapshot = t.snapshot_reports("without-class", "").await.context("the snapshot was deleted")?;
    ensure!(snapshot.content().is_none(), "a content was created without a class");
    Ok(())
}

async fn used(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "used").await?;
    t.taken("snapshot", &claim).await?;
    // The PVC is WaitForFirstConsumer and no pod uses it, so it stays Pending. Whether it could still be provisioned
    // is unspecified: upstream's provisioner rejects it (`getSnapshotSource` in its `controller.go`).
    let restored = t.claim_from("restored", VolumeSource::Snapshot("snapshot"), &t.usual_size()).await?;
    t.claim_in_phase(&restored, "Pending").await?;
    t.delete_snapshot("snapshot").await?;
    t.event("snapshot", "SnapshotDeletePending").await?;
    t.snapshot_remains("snapshot", &claim, &t.global("delete")).await?;
    t.remove_claim(&restored).await?;
    t.deleted(Kind::Snapshot, "snapshot").await
}

async fn many(t: Arc<Fixture>) -> Result<()> {
    let class = t.snapshot_class(Policy::Delete).await?;
    let volumes = (0..3).map(|volume| {
        let (t, class) = (&t, &class);
        async move {
            let claim = t.claim(&format!("claim-{volume}")).await?;
            for round in 0..3 {
                write(t, &claim, &format!("{volume}-{round}")).await?;
                let name = format!("snapshot-{volume}-{round}");
                t.snapshot(&name, &claim, class).await?;
                t.restorable(&name).await?;
            }
            for round in 0..3 {
                let name = format!("snapshot-{volume}-{round}");
                let restored = format!("restored-{volume}-{round}");
                let restored =
                    t.claim_from(&restored, VolumeSource::Snapshot(&name), &t.usual_size()).await?;
                expect(t, &restored, &format!("{volume}-{round}")).await?;
            }
            anyhow::Ok(())
        }
    });
    try_join_all(volumes).await.map(drop)
}

async fn create_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    // Until the error is reported: a snapshot-controller that is slow would otherwise find a content that is ready.
    t.fail_calls(&volume, CsiMethod::CreateSnapshot, Code::Internal, None).await?;
    let class = t.snapshot_class(Policy::Delete).await?;
    t.snapshot("snapshot", &claim, &class).await?;
    t.snapshot_reports("snapshot", "Internal").await?;
    t.end_faults().await;
    let snapshot = t.ready_snapshot("snapshot").await?;
    t.remove_snapshot(&snapshot).await
}

async fn answer_lost(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    t.lose_answer(&volume, CsiMethod::CreateSnapshot).await?;
    let class = t.snapshot_class(Policy::Delete).await?;
    t.snapshot("snapshot", &claim, &class).await?;
    t.injected(CsiMethod::CreateSnapshot).await?;
    let snapshot = t.ready_snapshot("snapshot").await?;
    t.has_snapshots(&volume, 1).await?;
    t.remove_snapshot(&snapshot).await?;
    t.has_snapshots(&volume, 0).await?;
    t.remove_claim(&claim).await
}

async fn delete_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    let snapshot = t.taken("snapshot", &claim).await?;
    let content = t.content_of(&snapshot).await?;
    t.fail_snapshot_deletion(&content, Code::Internal, 2).await;
    t.delete_snapshot("snapshot").await?;
    let message = t.volume_event(&content.name_any(), "SnapshotDeleteError").await?;
    ensure!(message.contains("Failed to delete snapshot"), "the Event message is {message:?}");
    t.content_deleted(&content.name_any()).await?;
    t.deleted(Kind::Snapshot, "snapshot").await
}
