//! Storage capacity tracking: CSIStorageCapacity per zone, and its use by the scheduler.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_model::Capability;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Fixture, TestPod, Variant},
    need::Need,
};

const SUITE: &str = "capacity";
const SMALL: &[Need] =
    &[Need::Nodes(2), Need::Variant(Variant::Small), Need::Capability(Capability::Capacity)];
const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";

const fn capacity(name: &'static str, pattern: Pattern, run: Run) -> Case {
    row(SUITE, name, "capacity", pattern, SMALL, run)
}

pub(super) const ROWS: &[Case] = &[
    capacity(
        "CSIStorageCapacity is published for each zone and StorageClass",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(published),
    ),
    capacity(
        "CSIStorageCapacity decreases when a volume is created and increases when it is deleted",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(used_up),
    ),
    capacity(
        "a pod stays Pending with event FailedScheduling if no node has capacity for its volume",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(fits_nowhere),
    ),
    capacity(
        "a pod is scheduled to a node with enough capacity for its volume",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(with_capacity),
    ),
    capacity(
        "an Immediate PVC larger than the capacity stays Pending with event ProvisioningFailed",
        Pattern::IMMEDIATE,
        case!(exhausted),
    ),
];

async fn published(t: Arc<Fixture>) -> Result<()> {
    for _class in 0..2 {
        let small =
            t.install_driver(Variant::Small, json!({ "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER })).await?;
        for node in t.nodes() {
            t.capacity_of(&small, &node, |bytes| bytes == 256 << 20).await?;
        }
    }
    Ok(())
}

async fn used_up(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().remove(0);
    let small =
        t.install_driver(Variant::Small, json!({ "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER })).await?;
    let claim = t.claim_of_driver(&small, "claim", "200Mi").await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "").on(&node)).await?;
    t.capacity_of(&small, &node, |bytes| bytes == 56 << 20).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    t.capacity_of(&small, &node, |bytes| bytes == 256 << 20).await
}

async fn fits_nowhere(t: Arc<Fixture>) -> Result<()> {
    let small =
        t.install_driver(Variant::Small, json!({ "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER })).await?;
    let claim = t.claim_of_driver(&small, "claim", "300Mi").await?;
    let pod = t.pod(&TestPod::long_running("pod", &claim, "")).await?;
    t.unschedulable(&pod, &["did not have enough free storage"]).await?;
    let fits = t.claim_of_driver(&small, "control", "64Mi").await?;
    t.ready_pod(&TestPod::long_running("control", &fits, "")).await?;
    t.is_not_provisioned(&claim).await
}

async fn with_capacity(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    let small =
        t.install_driver(Variant::Small, json!({ "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER })).await?;
    let first = t.claim_of_driver(&small, "first", "200Mi").await?;
    t.ready_pod(&TestPod::long_running("first", &first, "").on(&nodes[0])).await?;
    // With the capacity of before, the scheduler would select that node for the next volume, and the driver could create
    // it in the zone of another node, where this pod may not run.
    t.capacity_of(&small, &nodes[0], |bytes| bytes == 56 << 20).await?;
    // The scheduler's copy of the capacity may be older than what was just read.
    let other = t.claim_of_driver(&small, "other", "200Mi").await?;
    let waits = t.pod(&TestPod::long_running("other", &other, "").on(&nodes[0])).await?;
    t.unschedulable(&waits, &["did not have enough free storage"]).await?;
    let second = t.claim_of_driver(&small, "second", "200Mi").await?;
    // Preferred, so that only its capacity rules the node out.
    let pod = TestPod::long_running("second", &second, "").preferring(&nodes[0]);
    let pod = t.ready_pod(&pod).await?;
    let node = t.node_of(&pod);
    ensure!(node.as_ref() != Some(&nodes[0]), "the pod is on node {node:?}, which has no capacity left");
    Ok(())
}

async fn exhausted(t: Arc<Fixture>) -> Result<()> {
    let small = t.install_driver(Variant::Small, json!({})).await?;
    let claim = t.claim_of_driver(&small, "claim", "300Mi").await?;
    t.event_containing("claim", &["ProvisioningFailed"], "ResourceExhausted").await?;
    t.bound(&t.claim_of_driver(&small, "control", "64Mi").await?).await?;
    t.stays_pending(&claim).await
}
