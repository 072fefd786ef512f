//! Whether a driver's volumes are attached at all: what its CSIDriver object says, and what happens
//! without one.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Needs, Pattern},
    fixture::{Fixture, Variant, Wanted},
};

const SUITE: &str = "attach_required";
const UPSTREAM: &str = "CSI Mock volume attach";
const SCRIPT: &str = "echo here > /data/file && test \"$(cat /data/file)\" = here";

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "volumes that need no attaching get no VolumeAttachment",
        UPSTREAM,
        Pattern::IMMEDIATE,
        Needs::VARIANT,
        case!(not_attached),
    ),
    row(
        SUITE,
        "volumes of a driver without CSIDriver object are attached",
        UPSTREAM,
        Pattern::IMMEDIATE,
        Needs::VARIANT,
        case!(undeclared),
    ),
];

async fn not_attached(t: Arc<Fixture>) -> Result<()> {
    let driver = t.further(Variant::NotAttached, json!({})).await?;
    let claim = t.further_claim(&driver, "claim", "1Mi").await?;
    let pod = t.ready_pod(&Wanted::staying("pod", &claim, SCRIPT)).await?;
    let volume = t.bound(&claim).await?;
    let attachments = t.attachments_of(&volume);
    ensure!(attachments.is_empty(), "the volume has attachments: {attachments:?}");
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    let expected = [
        ("CreateVolume", 1),
        ("NodeStageVolume", 1),
        ("NodePublishVolume", 1),
        ("NodeUnpublishVolume", 1),
        ("NodeUnstageVolume", 1),
        ("DeleteVolume", 1),
    ];
    t.expect_calls(&expected).await
}

async fn undeclared(t: Arc<Fixture>) -> Result<()> {
    let driver = t.further(Variant::Undeclared, json!({})).await?;
    let claim = t.further_claim(&driver, "claim", "1Mi").await?;
    let pod = t.ready_pod(&Wanted::staying("pod", &claim, SCRIPT)).await?;
    let volume = t.bound(&claim).await?;
    let attachments = t.attachments_of(&volume);
    ensure!(attachments.len() == 1, "the volume has attachments: {attachments:?}");
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    let balance = t.balance().await?;
    for method in ["ControllerPublishVolume", "ControllerUnpublishVolume"] {
        let calls = balance.calls.get(method).copied().unwrap_or_default();
        ensure!(calls == 1, "{method} was called {calls} times");
    }
    Ok(())
}
