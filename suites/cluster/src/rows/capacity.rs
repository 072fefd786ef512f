//! How much room is left for volumes: published by zone, and used to place pods.

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
    capacity("the capacity of each zone is published for a class", Pattern::LATE, case!(published)),
    capacity("what a volume takes is no longer published as free", Pattern::LATE, case!(used_up)),
    capacity("a pod whose volume fits nowhere waits, and says so", Pattern::LATE, case!(fits_nowhere)),
    capacity("a pod goes where there is room for its volume", Pattern::LATE, case!(where_there_is_room)),
    capacity(
        "a claim for more than there is stays Pending, and says so",
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
    ensure!(node.as_ref() != Some(&nodes[0]), "the pod is on {node:?}, where there is no room");
    Ok(())
}

async fn exhausted(t: Arc<Fixture>) -> Result<()> {
    let small = t.further(Variant::Small, json!({})).await?;
    let claim = t.further_claim(&small, "claim", "300Mi").await?;
    t.event_saying("claim", &["ProvisioningFailed"], "ResourceExhausted").await?;
    t.claim_in_phase(&claim, "Pending").await.map(drop)
}
