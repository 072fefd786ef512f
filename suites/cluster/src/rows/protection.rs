//! What is in use is not taken away.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_informer::Kind;
use kube::ResourceExt;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Needs, Pattern},
    fixture::{Fixture, Wanted},
};

const SUITE: &str = "protection";

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "a new claim is protected, and goes at once while nobody uses it",
        "PVC Protection",
        Pattern::IMMEDIATE,
        Needs::NOTHING,
        case!(unused_claim_goes),
    ),
    row(
        SUITE,
        "a claim that is being deleted takes no new pod",
        "PVC Protection",
        Pattern::IMMEDIATE,
        Needs::NOTHING,
        case!(no_new_pod),
    ),
    row(
        SUITE,
        "a claim is not held by a pod that has ended and is gone",
        "PVC Protection",
        Pattern::LATE,
        Needs::NOTHING,
        case!(ended_pod_lets_go),
    ),
    row(
        SUITE,
        "a bound volume outlives its deletion until its claim has gone",
        "PV Protection",
        Pattern::STATIC,
        Needs::NOTHING,
        case!(bound_volume_stays),
    ),
    row(
        SUITE,
        "a volume without a claim goes at once",
        "PV Protection",
        Pattern::STATIC,
        Needs::NOTHING,
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
    let first = t.ready_pod(&Wanted::staying("first", &claim, "")).await?;
    t.delete_claim(&claim).await?;
    let second = t.pod(&Wanted::staying("second", &claim, "")).await?;
    // A scheduler whose cache is behind gives the pod a node, and the node says it instead.
    t.event_saying("second", &["FailedScheduling", "FailedMount"], "is being deleted").await?;
    t.remove_pod(&first).await?;
    // With a node it has the claim in use, though it never gets to see the volume; without one it has not.
    if t.node_of(&second).is_some() {
        t.remove_pod(&second).await?;
    }
    t.gone(Kind::Claim, &claim.name).await
}

async fn ended_pod_lets_go(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.output(&Wanted::ending("pod", &claim, "echo done")).await?;
    t.delete_claim(&claim).await?;
    t.remove_named_pod("pod").await?;
    t.gone(Kind::Claim, &claim.name).await
}

async fn bound_volume_stays(t: Arc<Fixture>) -> Result<()> {
    let volume = t.static_volume("volume", json!({})).await?.name_any();
    let claim = t.manual_claim("claim", "1Gi", json!({})).await?;
    t.bound(&claim).await?;
    t.delete_volume(&volume).await?;
    let finalizers = t.volume_now(&volume).await?.metadata.finalizers.unwrap_or_default();
    ensure!(finalizers == ["kubernetes.io/pv-protection"], "its finalizers are {finalizers:?}");
    t.claim_in_phase(&claim, "Bound").await?;
    t.delete_claim(&claim).await?;
    t.volume_gone(&volume).await
}

async fn free_volume_goes(t: Arc<Fixture>) -> Result<()> {
    let volume = t.static_volume("volume", json!({})).await?.name_any();
    t.volume_in_phase(&volume, "Available").await?;
    t.delete_volume(&volume).await?;
    t.volume_gone(&volume).await
}
