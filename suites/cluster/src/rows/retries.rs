//! Failing CSI calls: retries, cleanup, and the Events for users.
//!
//! Faults are injected between Kubernetes and the driver, so the result does not depend on the driver.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_csi::Code;
use claimcheck_informer::Kind;
use claimcheck_model::CsiMethod;

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Fixture, TestPod},
    need::Need,
};

const SUITE: &str = "retries";
const STAGE: &str = "CSI Mock volume node stage";

const fn retry(name: &'static str, upstream: &'static str, needs: &'static [Need], run: Run) -> Case {
    row(SUITE, name, upstream, Pattern::IMMEDIATE, needs, run)
}

const ANY: &[Need] = &[Need::Tap];
const ATTACHES: &[Need] = &[Need::Tap, Need::Attach];
const STAGES: &[Need] = &[Need::Tap, Need::Stage];

pub(super) const ROWS: &[Case] = &[
    retry(
        "CreateVolume is retried after failure, and the PVC gets event ProvisioningFailed",
        "provisioning",
        ANY,
        case!(create_fails),
    ),
    retry(
        "DeleteVolume is retried after failure, and the PV gets event VolumeFailedDelete",
        "provisioning",
        ANY,
        case!(delete_fails),
    ),
    retry(
        "ControllerPublishVolume is retried after failure, and the pod gets event FailedAttachVolume",
        "CSI Mock volume attach",
        ATTACHES,
        case!(attach_fails),
    ),
    retry(
        "ControllerUnpublishVolume is retried after failure",
        "CSI Mock volume attach",
        ATTACHES,
        case!(detach_fails),
    ),
    retry(
        "NodeStageVolume is retried after InvalidArgument, and the pod gets event FailedMount",
        STAGE,
        STAGES,
        case!(stage_fails),
    ),
    retry("NodeStageVolume is retried after Aborted", STAGE, STAGES, case!(stage_is_busy)),
    retry(
        "NodeUnstageVolume is called on pod deletion if NodeStageVolume timed out",
        STAGE,
        STAGES,
        case!(uncertain_stage_is_undone),
    ),
    retry(
        "NodeUnstageVolume is not called if NodeStageVolume failed with a final error",
        STAGE,
        STAGES,
        case!(failed_stage_is_not_undone),
    ),
    retry(
        "NodePublishVolume is retried after failure, and the pod gets event FailedMount",
        STAGE,
        ANY,
        case!(publish_fails),
    ),
    retry(
        "NodeUnpublishVolume is retried after failure before the pod is removed",
        STAGE,
        ANY,
        case!(unpublish_fails),
    ),
];

const SCRIPT: &str = "echo here > /data/file && test \"$(cat /data/file)\" = here";

async fn create_fails(t: Arc<Fixture>) -> Result<()> {
    // The volume's name is derived from the claim, so the claim must exist first: it waits for its class.
    let modes = serde_json::json!({ "accessModes": t.access_modes() });
    let claim = t.manual_claim("claim", &t.usual_size(), modes).await?;
    t.event("claim", "ProvisioningFailed").await?;
    t.fail_creation(&claim, Code::Internal, 2).await;
    t.manual_class().await?;
    t.bound(&claim).await?;
    t.event_containing("claim", &["ProvisioningFailed"], "Internal").await?;
    t.remove_claim(&claim).await
}

async fn delete_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    t.fail_calls(&volume, CsiMethod::DeleteVolume, Code::Internal, Some(2)).await?;
    t.delete_claim(&claim).await?;
    let name = volume.metadata.name.unwrap_or_default();
    let message = t.volume_event(&name, "VolumeFailedDelete").await?;
    ensure!(message.contains("Internal"), "the Event message is {message:?}");
    t.volume_deleted(&name).await?;
    t.called(CsiMethod::DeleteVolume).await.context("the PV is gone although no DeleteVolume succeeded")
}

async fn attach_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    // The fault persists until the Event is seen: Kubernetes checks an attachment twice a second, and may miss a
    // short-lived error (`waitForVolumeAttachmentWithLister` of its CSI plugin).
    t.fail_calls(&volume, CsiMethod::ControllerPublishVolume, Code::Internal, None).await?;
    let pod = t.pod(&TestPod::long_running("pod", &claim, SCRIPT)).await?;
    t.event_containing("pod", &["FailedAttachVolume"], "Internal").await?;
    t.end_faults().await;
    t.ready(&pod).await?;
    Ok(())
}

async fn detach_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, SCRIPT)).await?;
    t.fail_calls(&volume, CsiMethod::ControllerUnpublishVolume, Code::Internal, Some(2)).await?;
    t.remove_pod(&pod).await?;
    t.attachments_deleted(&volume).await?;
    t.injected_times(CsiMethod::ControllerUnpublishVolume, 2).await?;
    t.called(CsiMethod::ControllerUnpublishVolume)
        .await
        .context("the VolumeAttachment is gone although no ControllerUnpublishVolume succeeded")?;
    t.remove_claim(&claim).await
}

async fn stage_fails(t: Arc<Fixture>) -> Result<()> {
    stage_recovers(&t, Code::InvalidArgument).await?;
    t.event_containing("pod", &["FailedMount"], "InvalidArgument").await?;
    Ok(())
}

async fn stage_is_busy(t: Arc<Fixture>) -> Result<()> {
    stage_recovers(&t, Code::Aborted).await
}

async fn stage_recovers(t: &Fixture, code: Code) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    t.fail_calls(&volume, CsiMethod::NodeStageVolume, code, Some(1)).await?;
    t.ready_pod(&TestPod::long_running("pod", &claim, SCRIPT)).await?;
    t.injected_times(CsiMethod::NodeStageVolume, 1).await?;
    t.called(CsiMethod::NodeStageVolume).await?;
    let staged = t.balance_now().await?.calls.get(&CsiMethod::NodeStageVolume).copied();
    ensure!(staged == Some(1), "staged {staged:?} times after the failure");
    Ok(())
}

async fn uncertain_stage_is_undone(t: Arc<Fixture>) -> Result<()> {
    unstaged_after(&t, Code::DeadlineExceeded).await?;
    // Without attachment, no component waits for NodeUnstageVolume.
    t.called(CsiMethod::NodeUnstageVolume)
        .await
        .context("NodeUnstageVolume was not called after NodeStageVolume timed out")
}

async fn failed_stage_is_not_undone(t: Arc<Fixture>) -> Result<()> {
    let undone = unstaged_after(&t, Code::InvalidArgument).await?;
    ensure!(undone == 0, "NodeUnstageVolume was called {undone} times after NodeStageVolume failed");
    Ok(())
}

/// The number of NodeUnstageVolume calls for a volume for which NodeStageVolume never succeeded.
async fn unstaged_after(t: &Fixture, code: Code) -> Result<u64> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    t.fail_calls(&volume, CsiMethod::NodeStageVolume, code, None).await?;
    let pod = t.pod(&TestPod::long_running("pod", &claim, "")).await?;
    // A kubelet also emits FailedMount before the call, while its caches lack the claim or a ConfigMap.
    t.event_containing("pod", &["FailedMount"], &format!("{code:?}")).await?;
    t.delete_pod(&pod).await?;
    t.deleted(Kind::Pod, "pod").await?;
    t.attachments_deleted(&volume).await?;
    t.end_faults().await;
    t.remove_claim(&claim).await?;
    Ok(t.balance().await?.calls.get(&CsiMethod::NodeUnstageVolume).copied().unwrap_or_default())
}

async fn publish_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    t.fail_calls(&volume, CsiMethod::NodePublishVolume, Code::Internal, Some(1)).await?;
    t.ready_pod(&TestPod::long_running("pod", &claim, SCRIPT)).await?;
    t.event_containing("pod", &["FailedMount"], "Internal").await?;
    Ok(())
}

async fn unpublish_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, SCRIPT)).await?;
    t.fail_calls(&volume, CsiMethod::NodeUnpublishVolume, Code::Internal, None).await?;
    t.delete_pod(&pod).await?;
    // It is retried while the pod still exists.
    t.injected_times(CsiMethod::NodeUnpublishVolume, 2).await?;
    t.terminating(&pod).await?;
    let seen = t.pod_now(&pod).await.context("the pod is gone although its volume is still published")?;
    ensure!(
        seen.metadata.uid.as_ref() == Some(&pod.uid),
        "the pod was replaced although its volume is still published"
    );
    t.end_faults().await;
    t.deleted(Kind::Pod, &pod.name).await?;
    t.called(CsiMethod::NodeUnpublishVolume).await?;
    let calls = t.balance_now().await?.calls.get(&CsiMethod::NodeUnpublishVolume).copied();
    ensure!(calls == Some(1), "unpublished {calls:?} times after the failure");
    t.remove_claim(&claim).await
}
