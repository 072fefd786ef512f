//! Deletion protection of claims and volumes in use.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_informer::Kind;
use kube::ResourceExt;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Fixture, TestPod},
};

const SUITE: &str = "protection";

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "an unused PVC has the pvc-protection finalizer and is deleted immediately",
        "PVC Protection",
        Pattern::IMMEDIATE,
        &[],
        case!(unused_claim_goes),
    ),
    row(
        SUITE,
        "a PVC that is being deleted cannot be used by a new pod",
        "PVC Protection",
        Pattern::IMMEDIATE,
        &[],
        case!(no_new_pod),
    ),
    row(
        SUITE,
        "deletion of a PVC completes after its completed pod is deleted",
        "PVC Protection",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        &[],
        case!(completed_pod_unmounts),
    ),
    row(
        SUITE,
        "deletion of a bound PV is deferred until its PVC is deleted",
        "PV Protection",
        Pattern::STATIC,
        &[],
        case!(bound_volume_stays),
    ),
    row(
        SUITE,
        "an unbound PV is deleted immediately",
        "PV Protection",
        Pattern::STATIC,
        &[],
        case!(free_volume_goes),
    ),
];

async fn unused_claim_goes(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    let finalizers = t.claim_now(&claim).await?.metadata.finalizers.unwrap_or_default();
    ensure!(finalizers == ["kubernetes.io/pvc-protection"], "its finalizers are {finalizers:?}");
    t.remove_claim(&claim).await
}

async fn no_new_pod(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let first = t.ready_pod(&TestPod::long_running("first", &claim, "")).await?;
    t.delete_claim(&claim).await?;
    let second = t.pod(&TestPod::long_running("second", &claim, "")).await?;
    // With a stale cache the scheduler binds the pod to a node, and the kubelet reports the error instead.
    t.event_containing("second", &["FailedScheduling", "FailedMount"], "is being deleted").await?;
    t.container_waits(&second, "main").await?;
    t.remove_pod(&first).await?;
    // Once scheduled, the pod counts as a user of the claim, although it never mounts the volume.
    if t.node_of(&second).is_some() {
        t.remove_pod(&second).await?;
    }
    t.deleted(Kind::Claim, &claim.name).await
}

async fn completed_pod_unmounts(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.output(&TestPod::run_to_completion("pod", &claim, "echo done")).await?;
    t.delete_claim(&claim).await?;
    t.claim_remains(&claim).await.context("the claim is gone although its completed pod exists")?;
    t.remove_named_pod("pod").await?;
    t.deleted(Kind::Claim, &claim.name).await
}

async fn bound_volume_stays(t: Arc<Fixture>) -> Result<()> {
    let volume = t.static_volume("volume", json!({})).await?.name_any();
    let claim = t.manual_claim("claim", "1Gi", json!({})).await?;
    t.bound(&claim).await?;
    t.delete_volume(&volume).await?;
    let finalizers = t.volume_now(&volume).await?.metadata.finalizers.unwrap_or_default();
    ensure!(finalizers == ["kubernetes.io/pv-protection"], "its finalizers are {finalizers:?}");
    t.volume_remains(&volume).await.context("the volume is gone although a claim is bound to it")?;
    t.claim_in_phase(&claim, "Bound").await?;
    t.delete_claim(&claim).await?;
    t.volume_deleted(&volume).await
}

async fn free_volume_goes(t: Arc<Fixture>) -> Result<()> {
    let volume = t.static_volume("volume", json!({})).await?.name_any();
    t.volume_in_phase(&volume, "Available").await?;
    t.delete_volume(&volume).await?;
    t.volume_deleted(&volume).await
}
