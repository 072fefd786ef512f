//! Storage capacity tracking: CSIStorageCapacity per zone, and its use by the scheduler.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_model::Capability;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Needs, Pattern, Run},
    fixture::{Fixture, Variant, Wanted},
};

const SUITE: &str = "capacity";
const SMALL: Needs = Needs::variant(Variant::Small).on_two_nodes().exercising(&[Capability::Capacity]);
const LATE: &str = "WaitForFirstConsumer";

const fn capacity(name: &'static str, pattern: Pattern, run: Run) -> Case {
    row(SUITE, name, "capacity", pattern, SMALL, run)
}

pub(super) const ROWS: &[Case] = &[
    capacity(
        "CSIStorageCapacity is published for each zone and StorageClass",
        Pattern::LATE,
        case!(published),
    ),
    capacity(
        "CSIStorageCapacity decreases when a volume is created and increases when it is deleted",
        Pattern::LATE,
        case!(used_up),
    ),
    capacity(
        "a pod stays Pending with event FailedScheduling if no node has capacity for its volume",
        Pattern::LATE,
        case!(fits_nowhere),
    ),
    capacity(
        "a pod is scheduled to a node with enough capacity for its volume",
        Pattern::LATE,
        case!(where_there_is_room),
    ),
    capacity(
        "an Immediate PVC larger than the capacity stays Pending with event ProvisioningFailed",
        Pattern::IMMEDIATE,
        case!(exhausted),
    ),
];

async fn published(t: Arc<Fixture>) -> Result<()> {
    let small = t.further(Variant::Small, json!({ "volumeBindingMode": LATE })).await?;
    for node in t.nodes() {
        t.capacity_of(&small, &node, |bytes| bytes == 256 << 20).await?;
    }
    Ok(())
}

async fn used_up(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().remove(0);
    let small = t.further(Variant::Small, json!({ "volumeBindingMode": LATE })).await?;
    let claim = t.further_claim(&small, "claim", "200Mi").await?;
    let pod = t.ready_pod(&Wanted::staying("pod", &claim, "").on(&node)).await?;
    t.capacity_of(&small, &node, |bytes| bytes == 56 << 20).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    t.capacity_of(&small, &node, |bytes| bytes == 256 << 20).await
}

async fn fits_nowhere(t: Arc<Fixture>) -> Result<()> {
    let small = t.further(Variant::Small, json!({ "volumeBindingMode": LATE })).await?;
    let claim = t.further_claim(&small, "claim", "300Mi").await?;
    t.pod(&Wanted::staying("pod", &claim, "")).await?;
    t.event_saying("pod", &["FailedScheduling"], "did not have enough free storage").await?;
    Ok(())
}

async fn where_there_is_room(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    let small = t.further(Variant::Small, json!({ "volumeBindingMode": LATE })).await?;
    let first = t.further_claim(&small, "first", "200Mi").await?;
    t.ready_pod(&Wanted::staying("first", &first, "").on(&nodes[0])).await?;
    let second = t.further_claim(&small, "second", "200Mi").await?;
    let pod = t.ready_pod(&Wanted::staying("second", &second, "")).await?;
    let node = t.node_of(&pod);
    ensure!(node.as_ref() != Some(&nodes[0]), "the pod is on node {node:?}, which has no capacity left");
    Ok(())
}

async fn exhausted(t: Arc<Fixture>) -> Result<()> {
    let small = t.further(Variant::Small, json!({})).await?;
    let claim = t.further_claim(&small, "claim", "300Mi").await?;
    t.event_saying("claim", &["ProvisioningFailed"], "ResourceExhausted").await?;
    t.claim_in_phase(&claim, "Pending").await.map(drop)
}
