//! The full life cycle of a dynamically provisioned volume: each CSI call once, no leaks.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_informer::growth;
use claimcheck_model::SELECTED_NODE;

use super::{EACH_ONCE, case, row};
use crate::{
    case::{Binding, Case, Pattern},
    fixture::{Fixture, TestPod},
    need::Need,
};

const SUITE: &str = "provisioning";

pub(super) const ROWS: &[Case] = &[
    life_cycle(Pattern::IMMEDIATE),
    life_cycle(Pattern::WAIT_FOR_FIRST_CONSUMER),
    life_cycle(Pattern::EXT4),
    life_cycle(Pattern::EXT4_WAIT_FOR_FIRST_CONSUMER),
    life_cycle(Pattern::EXT3),
    life_cycle(Pattern::XFS),
    life_cycle(Pattern::XFS_WAIT_FOR_FIRST_CONSUMER),
    row(
        SUITE,
        "a WaitForFirstConsumer PVC stays Pending until a pod uses it",
        "provisioning",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        &[Need::Nodes(2)],
        case!(unbound_claim_waits_for_consumer),
    ),
    row(
        SUITE,
        "the capacity of a bound PVC is that of its PV, and at least the requested size",
        "provisioning",
        Pattern::IMMEDIATE,
        &[],
        case!(capacity_is_stated),
    ),
    row(
        SUITE,
        "deletion of a PVC in use is deferred until its pod is deleted",
        "PVC Protection",
        Pattern::IMMEDIATE,
        &[],
        case!(claim_in_use_is_protected),
    ),
];

const fn life_cycle(pattern: Pattern) -> Case {
    row(
        SUITE,
        "a volume is provisioned, used by a pod and deleted with each CSI call exactly once",
        "provisioning",
        pattern,
        &[Need::Tap],
        case!(whole_life),
    )
}

async fn whole_life(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    if t.binding() == Binding::Immediate {
        t.bound(&claim).await?;
    }
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "echo checked > /data/ticket")).await?;
    let volume = t.bound(&claim).await?;
    let reference = volume.spec.and_then(|spec| spec.claim_ref).and_then(|claim| claim.uid);
    ensure!(
        reference.as_ref() == Some(&claim.uid),
        "the volume is bound to {reference:?}, not to {}",
        claim.uid
    );
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    t.expect_calls(&EACH_ONCE).await
}

async fn unbound_claim_waits_for_consumer(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.event("claim", "WaitForFirstConsumer").await?;
    let now = t.claim_now(&claim).await?;
    let volume = now.spec.and_then(|spec| spec.volume_name);
    ensure!(volume.is_none(), "the claim has volume {volume:?} before any pod uses it");
    t.output(&TestPod::run_to_completion("control", &t.claim("control").await?, "true")).await?;
    t.is_not_provisioned(&claim).await?;
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "").on(&node)).await?;
    let selected = t.claim_now(&claim).await?.metadata.annotations.unwrap_or_default().remove(SELECTED_NODE);
    ensure!(selected.as_ref() == Some(&node), "selected-node is {selected:?}, expected {node}");
    t.remove_pod(&pod).await
}

async fn capacity_is_stated(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    let now = t.claim_now(&claim).await?;
    let (requested, stated) = (growth::requested(&now), growth::capacity(&now));
    let provisioned = growth::volume_capacity(&volume);
    ensure!(requested > 0, "nothing is requested");
    ensure!(stated > 0, "the status of the bound claim states no capacity");
    ensure!(provisioned > 0, "the volume has no capacity");
    ensure!(
        stated == provisioned,
        "the status of the claim states {stated} bytes, and its volume has {provisioned}"
    );
    ensure!(stated >= requested, "{requested} bytes were requested, and the volume has {stated}");
    Ok(())
}

async fn claim_in_use_is_protected(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "")).await?;
    t.bound(&claim).await?;
    t.delete_claim(&claim).await?;
    t.claim_remains(&claim).await.context("the claim is gone although a pod uses it")?;
    t.remove_pod(&pod).await?;
    t.deleted(claimcheck_informer::Kind::Claim, &claim.name).await
}
