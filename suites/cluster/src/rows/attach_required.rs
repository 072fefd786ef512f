//! Attachment depending on the CSIDriver object: `attachRequired`, and drivers without a CSIDriver object.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_model::CsiMethod;
use k8s_openapi::api::storage::v1::CSIDriverSpec;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Fixture, TestPod, Variant},
    need::Need,
};

const SUITE: &str = "attach_required";
const UPSTREAM: &str = "CSI Mock volume attach";
const SCRIPT: &str = "echo here > /data/file && test \"$(cat /data/file)\" = here";

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "no VolumeAttachment is created when CSIDriver has attachRequired false",
        UPSTREAM,
        Pattern::IMMEDIATE,
        &[Need::Variant(Variant::NotAttached)],
        case!(not_attached),
    ),
    row(
        SUITE,
        "volumes are attached when the driver has no CSIDriver object",
        UPSTREAM,
        Pattern::IMMEDIATE,
        &[Need::Variant(Variant::Undeclared)],
        case!(undeclared),
    ),
    row(
        SUITE,
        "a pod waiting for attachment starts once CSIDriver sets attachRequired to false",
        UPSTREAM,
        Pattern::IMMEDIATE,
        &[Need::Variant(Variant::Unattended), Need::Retract],
        case!(declared_late),
    ),
];

async fn not_attached(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::NotAttached, json!({})).await?;
    let claim = t.claim_of_driver(&driver, "claim", "1Mi").await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, SCRIPT)).await?;
    let volume = t.bound(&claim).await?;
    let attachments = t.attachments_of(&volume);
    ensure!(attachments.is_empty(), "the volume has unexpected VolumeAttachments: {attachments:?}");
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    let expected = [
        (CsiMethod::CreateVolume, 1),
        (CsiMethod::NodeStageVolume, 1),
        (CsiMethod::NodePublishVolume, 1),
        (CsiMethod::NodeUnpublishVolume, 1),
        (CsiMethod::NodeUnstageVolume, 1),
        (CsiMethod::DeleteVolume, 1),
    ];
    t.expect_calls(&expected).await
}

async fn undeclared(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::Undeclared, json!({})).await?;
    let claim = t.claim_of_driver(&driver, "claim", "1Mi").await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, SCRIPT)).await?;
    let volume = t.bound(&claim).await?;
    let attachments = t.attachments_of(&volume);
    ensure!(attachments.len() == 1, "the volume has unexpected VolumeAttachments: {attachments:?}");
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    let balance = t.balance().await?;
    for method in [CsiMethod::ControllerPublishVolume, CsiMethod::ControllerUnpublishVolume] {
        t.expect_called(&balance, method, 1)?;
    }
    Ok(())
}

async fn declared_late(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::Unattended, json!({})).await?;
    t.declare(&driver, None).await?;
    let claim = t.claim_of_driver(&driver, "claim", "1Mi").await?;
    let pod = t.pod(&TestPod::long_running("pod", &claim, SCRIPT)).await?;
    let volume = t.bound(&claim).await?;
    t.attachment_made(&volume).await?;
    let balance = t.balance_now().await?;
    let staged = balance.calls.get(&CsiMethod::NodeStageVolume).copied().unwrap_or_default();
    ensure!(staged == 0, "the volume was staged before it was attached");
    let spec = CSIDriverSpec { attach_required: Some(false), ..CSIDriverSpec::default() };
    t.declare(&driver, Some(spec)).await?;
    t.ready(&pod).await?;
    t.attachments_deleted(&volume).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await
}
