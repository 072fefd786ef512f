//! Reclaim policies: the handling of a volume after its claim is deleted.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_informer::Kind;
use claimcheck_model::CsiMethod;
use kube::ResourceExt;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Claim, Fixture, TestPod},
};

const SUITE: &str = "reclaim";

const fn reclaim(name: &'static str, pattern: Pattern, run: Run) -> Case {
    row(SUITE, name, "PersistentVolumes", pattern, &[], run)
}

pub(super) const ROWS: &[Case] = &[
    reclaim(
        "a dynamically provisioned PV with policy Delete is deleted with its PVC",
        Pattern::IMMEDIATE,
        case!(dynamic_delete),
    ),
    reclaim(
        "a PV changed to policy Retain keeps its data for a new PVC",
        Pattern::IMMEDIATE,
        case!(retained_data),
    ),
    reclaim(
        "a PV changed from policy Retain to Delete is deleted with its PVC",
        Pattern::IMMEDIATE,
        case!(changed_to_delete),
    ),
    reclaim(
        "a Released PV changed to policy Delete is deleted",
        Pattern::IMMEDIATE,
        case!(changed_when_released),
    ),
    reclaim(
        "a dynamically provisioned PV deleted before its PVC remains until the PVC is deleted",
        Pattern::IMMEDIATE,
        case!(volume_deleted_first),
    ),
    reclaim(
        "a pre-provisioned PV with policy Retain becomes Released when its PVC is deleted",
        Pattern::STATIC,
        case!(static_retain),
    ),
    reclaim(
        "a PV with deprecated policy Recycle becomes Failed with event VolumeFailedRecycle",
        Pattern::STATIC,
        case!(recycle),
    ),
];

/// A claim, and its volume's name.
async fn claimed(t: &Fixture) -> Result<(Claim, String)> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    Ok((claim, volume.name_any()))
}

async fn dynamic_delete(t: Arc<Fixture>) -> Result<()> {
    let (claim, volume) = claimed(&t).await?;
    t.delete_claim(&claim).await?;
    t.volume_deleted(&volume).await?;
    t.expect_calls(&[(CsiMethod::CreateVolume, 1), (CsiMethod::DeleteVolume, 1)]).await
}

async fn retained_data(t: Arc<Fixture>) -> Result<()> {
    let (first, name) = claimed(&t).await?;
    t.set_policy(&name, "Retain").await?;
    t.output(&TestPod::run_to_completion("writer", &first, "echo kept > /data/file")).await?;
    t.remove_named_pod("writer").await?;
    t.delete_claim(&first).await?;
    t.deleted(Kind::Claim, &first.name).await?;
    t.volume_in_phase(&name, "Released").await?;
    t.patch_volume(&name, json!({ "spec": { "claimRef": null } })).await?;
    t.volume_in_phase(&name, "Available").await?;
    let class = t.class().await?;
    let of_volume = json!({ "accessModes": t.access_modes(), "storageClassName": class, "volumeName": name });
    let second = t.manual_claim("second", &t.usual_size(), of_volume).await?;
    t.bound(&second).await?;
    let output = t.output(&TestPod::run_to_completion("reader", &second, "cat /data/file")).await?;
    ensure!(output == "kept", "the second claim's volume contains {output:?}");
    t.remove_named_pod("reader").await?;
    t.set_policy(&name, "Delete").await?;
    t.remove_claim(&second).await
}

async fn changed_to_delete(t: Arc<Fixture>) -> Result<()> {
    let (claim, volume) = claimed(&t).await?;
    t.set_policy(&volume, "Retain").await?;
    t.set_policy(&volume, "Delete").await?;
    t.delete_claim(&claim).await?;
    t.volume_deleted(&volume).await
}

async fn changed_when_released(t: Arc<Fixture>) -> Result<()> {
    let (claim, volume) = claimed(&t).await?;
    t.set_policy(&volume, "Retain").await?;
    t.delete_claim(&claim).await?;
    t.volume_in_phase(&volume, "Released").await?;
    t.set_policy(&volume, "Delete").await?;
    t.volume_deleted(&volume).await?;
    t.expect_calls(&[(CsiMethod::CreateVolume, 1), (CsiMethod::DeleteVolume, 1)]).await
}

async fn volume_deleted_first(t: Arc<Fixture>) -> Result<()> {
    let (claim, name) = claimed(&t).await?;
    // Before the deletion, since the attacher does not attach a volume that is being deleted.
    let write = TestPod::long_running("pod", &claim, "echo still > /data/here");
    let pod = t.ready_pod(&write.probing("cat /data/here && date > /data/later")).await?;
    t.delete_volume(&name).await?;
    t.volume_remains(&name).await.context("the volume is gone although a claim is bound to it")?;
    t.claim_in_phase(&claim, "Bound").await?;
    t.not_deleted(&claim).await.context("a claim is bound to the volume")?;
    let seen = t.probed(&pod).await?;
    ensure!(seen == "still", "the pod on the deleted volume reads and writes: {seen:?}");
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    t.volume_deleted(&name).await?;
    t.expect_called(&t.balance().await?, CsiMethod::DeleteVolume, 1)
}

async fn static_retain(t: Arc<Fixture>) -> Result<()> {
    let volume = t.static_volume("volume", json!({})).await?.name_any();
    let claim = t.manual_claim("claim", "1Gi", json!({})).await?;
    t.bound(&claim).await?;
    t.delete_claim(&claim).await?;
    let released = t.volume_in_phase(&volume, "Released").await?;
    let pointed =
        released.spec.and_then(|spec| spec.claim_ref).context("the Released volume has no claimRef")?;
    ensure!(pointed.uid.as_ref() == Some(&claim.uid), "claimRef is {pointed:?}");
    // It is kept, and not deleted only later than its claim.
    t.released_volume_remains(&volume).await
}

async fn recycle(t: Arc<Fixture>) -> Result<()> {
    let policy = json!({ "persistentVolumeReclaimPolicy": "Recycle" });
    let volume = t.static_volume("volume", policy).await?.name_any();
    let claim = t.manual_claim("claim", "1Gi", json!({})).await?;
    t.bound(&claim).await?;
    t.delete_claim(&claim).await?;
    t.volume_in_phase(&volume, "Failed").await?;
    let message = t.volume_event(&volume, "VolumeFailedRecycle").await?;
    ensure!(message == "No recycler plugin found for the volume!", "the Event message is {message:?}");
    Ok(())
}
