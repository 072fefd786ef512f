//! Snapshots: made of claims, kept or deleted, taken in again.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_csi::Code;
use claimcheck_informer::Kind;
use claimcheck_model::Capability;
use futures::future::try_join_all;
use kube::ResourceExt;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Needs, Pattern, Run},
    fixture::{Claim, Fixture, From, Policy, Script, Wanted},
};

const SUITE: &str = "snapshottable";
const SNAPSHOTS: &[Capability] = &[Capability::SnapshotDataSource];

const fn snapshot(name: &'static str, pattern: Pattern, run: Run) -> Case {
    row(SUITE, name, "snapshottable", pattern, Needs::NOTHING.exercising(SNAPSHOTS), run)
}

const fn failing(name: &'static str, run: Run) -> Case {
    let needs = Needs::FAULTS.exercising(SNAPSHOTS);
    row(SUITE, name, "CSI Mock volume snapshot", Pattern::IMMEDIATE, needs, run)
}

pub(super) const ROWS: &[Case] = &[
    snapshot("a snapshot and its content say what they are", Pattern::IMMEDIATE, case!(fields)),
    snapshot("a snapshot of policy Delete goes with its object", Pattern::IMMEDIATE, case!(deleted)),
    snapshot(
        "a snapshot of policy Retain is kept, and can be taken in again",
        Pattern::IMMEDIATE,
        case!(retained),
    ),
    snapshot(
        "a snapshot that the driver has already is bound and restored",
        Pattern::IMMEDIATE,
        case!(pre_provisioned),
    ),
    snapshot("a snapshot is made of a volume in use", Pattern::IMMEDIATE, case!(in_use)),
    snapshot("a snapshot is made of a volume in use", Pattern::EXT4, case!(in_use)),
    snapshot("a snapshot of a pod's own volume outlives the pod", Pattern::LATE, case!(of_ephemeral)),
    snapshot("a snapshot waits for its claim to be bound", Pattern::LATE, case!(of_unbound)),
    snapshot("a snapshot without its class says so, and is then made", Pattern::IMMEDIATE, case!(no_class)),
    snapshot(
        "a snapshot that a claim is to be made from stays until the claim is gone",
        Pattern::LATE,
        case!(used),
    ),
    row(
        SUITE,
        "many snapshots of many volumes hold each its own data",
        "snapshottable-stress",
        Pattern::IMMEDIATE,
        Needs::NOTHING.exercising(SNAPSHOTS),
        case!(many),
    ),
    failing("a snapshot that cannot be made is tried again, and says why", case!(create_fails)),
    failing("a snapshot whose making nobody heard of is made once", case!(answer_lost)),
    failing("a snapshot that cannot be deleted is tried again, and says why", case!(delete_fails)),
];

/// A claim with this text on it.
pub(super) async fn written(t: &Fixture, name: &str, text: &str) -> Result<Claim> {
    let claim = t.claim(name).await?;
    write(t, &claim, text).await?;
    Ok(claim)
}

/// Writes this text to a claim.
pub(super) async fn write(t: &Fixture, claim: &Claim, text: &str) -> Result<()> {
    let pod = format!("writer-of-{}", claim.name);
    let script = format!("echo {text} > /data/file && sync");
    t.output(&Wanted::ending(&pod, claim, &script)).await?;
    t.remove_named_pod(&pod).await
}

/// Whether a claim has this text on it.
pub(super) async fn expect(t: &Fixture, claim: &Claim, text: &str) -> Result<()> {
    let pod = format!("reader-of-{}", claim.name);
    let read = t.output(&Wanted::ending(&pod, claim, "cat /data/file")).await?;
    ensure!(read == text, "claim {} has {read:?}, not {text:?}", claim.name);
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
    ensure!(content.spec.volume_snapshot_class_name == class, "the content is of another class");
    ensure!(content.spec.source.volume_handle == handle, "the content is of {:?}", content.spec.source);
    ensure!(content.spec.deletion_policy == "Delete", "the policy is {}", content.spec.deletion_policy);
    ensure!(content.is_ready() && content.handle().is_some(), "the content says {:?}", content.status);
    let status = snapshot.status.clone().context("the snapshot has no status")?;
    ensure!(status.error.is_none() && status.creation_time.is_some(), "the snapshot says {status:?}");
    let said = t.event("snapshot", "SnapshotReady").await?;
    ensure!(said.contains("is ready to use"), "the event says {said:?}");
    t.remove_snapshot(&snapshot).await?;
    t.remove_claim(&claim).await
}

async fn deleted(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    let snapshot = t.taken("snapshot", &claim).await?;
    t.remove_snapshot(&snapshot).await?;
    t.remove_claim(&claim).await?;
    let calls = [("CreateVolume", 1), ("CreateSnapshot", 1), ("DeleteSnapshot", 1), ("DeleteVolume", 1)];
    t.expect_calls(&calls).await
}

/// A snapshot that only the driver knows; its handle.
async fn only_in_the_driver(t: &Fixture, claim: &Claim) -> Result<String> {
    let class = t.snapshot_class(Policy::Retain).await?;
    t.snapshot("first", claim, &class).await?;
    let snapshot = t.ready_snapshot("first").await?;
    let content = t.content_of(&snapshot).await?;
    let handle = content.handle().context("the content has no handle")?.to_owned();
    t.remove_snapshot(&snapshot).await?;
    t.remove_content(&content.name_any()).await?;
    Ok(handle)
}

/// Takes in a snapshot that the driver has, by a content of policy Delete.
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
    ensure!(!calls.contains_key("DeleteSnapshot"), "it was to be kept, and the driver was called {calls:?}");
    take_in(&t, &handle).await?;
    let restored = t.claim_from("restored", From::Snapshot("second"), &t.usual_size()).await?;
    expect(&t, &restored, "kept").await
}

async fn pre_provisioned(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "there").await?;
    let handle = only_in_the_driver(&t, &claim).await?;
    t.snapshot_like("second", json!({ "source": { "volumeSnapshotContentName": t.global("content") } }))
        .await?;
    t.snapshot_says("second", "VolumeSnapshotContent is missing").await?;
    t.content_like("content", &handle, "second", Policy::Delete).await?;
    let snapshot = t.ready_snapshot("second").await?;
    ensure!(t.content_of(&snapshot).await?.handle() == Some(handle.as_str()), "it is another snapshot");
    t.remove_snapshot(&snapshot).await
}

async fn in_use(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let write = "echo before > /data/file && sync";
    let pod = t.ready_pod(&Wanted::staying("writer", &claim, write)).await?;
    t.taken("snapshot", &claim).await?;
    t.ready(&pod).await?;
    let restored = t.claim_from("restored", From::Snapshot("snapshot"), &t.usual_size()).await?;
    expect(&t, &restored, "before").await
}

async fn of_ephemeral(t: Arc<Fixture>) -> Result<()> {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": t.class().await?,
        "resources": { "requests": { "storage": t.usual_size() } },
    });
    let volume = json!({ "ephemeral": { "volumeClaimTemplate": { "spec": spec } } });
    let script = "echo mine > /v/data/file && sync";
    let pod = t.script(&Script::staying("pod", script).volume("data", volume)).await?;
    t.ready(&pod).await?;
    let claim = t.adopt_claim("pod-data").await?;
    t.taken("snapshot", &claim).await?;
    t.remove_pod(&pod).await?;
    t.gone(Kind::Claim, &claim.name).await?;
    let restored = t.claim_from("restored", From::Snapshot("snapshot"), &t.usual_size()).await?;
    expect(&t, &restored, "mine").await
}

async fn of_unbound(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let class = t.snapshot_class(Policy::Delete).await?;
    t.snapshot("snapshot", &claim, &class).await?;
    t.snapshot_says("snapshot", "is not yet bound to a PV").await?;
    t.output(&Wanted::ending("pod", &claim, "true")).await?;
    t.ready_snapshot("snapshot").await.map(drop)
}

async fn no_class(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    t.snapshot("snapshot", &claim, &t.global("delete")).await?;
    let snapshot = t.snapshot_says("snapshot", "not found").await?;
    ensure!(snapshot.content().is_none(), "a content was made without a class");
    t.event("snapshot", "GetSnapshotClassFailed").await?;
    t.snapshot_class(Policy::Delete).await?;
    let snapshot = t.ready_snapshot("snapshot").await?;
    let error = snapshot.status.and_then(|status| status.error);
    ensure!(error.is_none(), "the snapshot is ready and says {error:?}");
    Ok(())
}

async fn used(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "used").await?;
    t.taken("snapshot", &claim).await?;
    // It binds late, so it is Pending until a pod comes; no pod does. Whether a volume would still be made for one is
    // left open: upstream's provisioner refuses what it has not begun (`getSnapshotSource` in its `controller.go`).
    let restored = t.claim_from("restored", From::Snapshot("snapshot"), &t.usual_size()).await?;
    t.claim_in_phase(&restored, "Pending").await?;
    t.delete_snapshot("snapshot").await?;
    t.event("snapshot", "SnapshotDeletePending").await?;
    t.remove_claim(&restored).await?;
    t.gone(Kind::Snapshot, "snapshot").await
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
                t.ready_snapshot(&name).await?;
            }
            for round in [0, 2] {
                let name = format!("snapshot-{volume}-{round}");
                let restored = format!("restored-{volume}-{round}");
                let restored = t.claim_from(&restored, From::Snapshot(&name), &t.usual_size()).await?;
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
    t.fail_calls(&volume, "CreateSnapshot", Code::Internal, Some(2)).await?;
    let class = t.snapshot_class(Policy::Delete).await?;
    t.snapshot("snapshot", &claim, &class).await?;
    t.snapshot_says("snapshot", "Internal").await?;
    let snapshot = t.ready_snapshot("snapshot").await?;
    t.remove_snapshot(&snapshot).await
}

async fn answer_lost(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    t.lose_answer(&volume, "CreateSnapshot").await?;
    let class = t.snapshot_class(Policy::Delete).await?;
    t.snapshot("snapshot", &claim, &class).await?;
    let snapshot = t.ready_snapshot("snapshot").await?;
    t.remove_snapshot(&snapshot).await?;
    t.remove_claim(&claim).await
}

async fn delete_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    let snapshot = t.taken("snapshot", &claim).await?;
    let content = t.content_of(&snapshot).await?;
    t.fail_snapshot_deletion(&content, Code::Internal, 2).await;
    t.delete_snapshot("snapshot").await?;
    let said = t.volume_event(&content.name_any(), "SnapshotDeleteError").await?;
    ensure!(said.contains("Failed to delete snapshot"), "the event says {said:?}");
    t.content_gone(&content.name_any()).await?;
    t.gone(Kind::Snapshot, "snapshot").await
}
