//! Service account tokens for drivers (KEP-1855), in the volume context or in secrets (KEP-5538), and the repeated
//! NodePublishVolume that renews them.
//!
//! The drivers reject NodePublishVolume without a valid token, or with tokens in the other field: that a pod starts
//! shows that they are in the right one.

use std::sync::Arc;

use anyhow::Result;
use claimcheck_model::{Capability, CsiMethod};
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Claim, Fixture, InstalledDriver, Pod, Script, TestPod, Variant},
    kubernetes::Feature,
    need::Need,
};

const SUITE: &str = "service_account_tokens";
const UPSTREAM: &str = "CSI Mock volume service account token";
const METHOD: CsiMethod = CsiMethod::NodePublishVolume;

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "NodePublishVolume gets the tokens of CSIDriver's tokenRequests in volume_context",
        UPSTREAM,
        Pattern::IMMEDIATE,
        &[Need::Variant(Variant::Tokens)],
        case!(in_context),
    ),
    row(
        SUITE,
        "NodePublishVolume gets the tokens only in secrets if CSIDriver has serviceAccountTokenInSecrets",
        UPSTREAM,
        Pattern::IMMEDIATE,
        &[Need::Feature(Feature::TokenInSecrets), Need::Variant(Variant::TokensInSecrets)],
        case!(in_secrets),
    ),
    row(
        SUITE,
        "NodePublishVolume is repeated for a running pod if CSIDriver has requiresRepublish",
        UPSTREAM,
        Pattern::IMMEDIATE,
        &[Need::Tap, Need::Variant(Variant::Tokens)],
        case!(repeated),
    ),
    row(
        SUITE,
        "NodePublishVolume of a block volume has no tokens",
        UPSTREAM,
        Pattern::BLOCK,
        &[Need::Variant(Variant::Tokens), Need::Capability(Capability::Block)],
        case!(block_without),
    ),
];

/// Starts a pod with a volume of the driver.
async fn ready_pod(t: &Fixture, driver: &InstalledDriver) -> Result<(Pod, Claim)> {
    t.service_account().await?;
    let claim = t.claim_of_driver(driver, "claim", "1Mi").await?;
    let source = json!({ "persistentVolumeClaim": { "claimName": claim.name } });
    let expected =
        Script::long_running("pod", "echo here > /v/data/file && test \"$(cat /v/data/file)\" = here")
            .volume("data", source)
            // A token is issued to pods of its account only; not every cluster sets this by default.
            .spec(json!({ "serviceAccountName": "default" }));
    let pod = t.script(&expected).await?;
    t.ready(&pod).await?;
    Ok((pod, claim))
}

async fn in_context(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::Tokens, json!({})).await?;
    let (pod, claim) = ready_pod(&t, &driver).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await
}

async fn in_secrets(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::TokensInSecrets, json!({})).await?;
    let (pod, claim) = ready_pod(&t, &driver).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await
}

async fn repeated(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::Tokens, json!({})).await?;
    let (pod, claim) = ready_pod(&t, &driver).await?;
    t.called(METHOD).await?;
    let before = t.balance_now().await?.calls.get(&METHOD).copied().unwrap_or_default();
    // Kubelets repeat it with every sync of the pod: once a minute, and when the pod changes.
    t.label_pod(&pod, "changed").await?;
    t.called_more_than(METHOD, before).await?;
    t.ready(&pod).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await
}

/// `publishVolumeForBlock` in pkg/volume/csi/csi_block.go adds the pod's fields alone.
async fn block_without(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::Tokens, json!({ "parameters": { "kind": "image" } })).await?;
    t.service_account().await?;
    let claim = t.claim_of_driver_with(&driver, "claim", "1Mi", json!({ "volumeMode": "Block" })).await?;
    let pod = t.pod(&TestPod::long_running("pod", &claim, "")).await?;
    let reasons = ["FailedMapVolume", "FailedMount"];
    t.event_containing("pod", &reasons, "serviceAccount.tokens is missing").await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await
}
