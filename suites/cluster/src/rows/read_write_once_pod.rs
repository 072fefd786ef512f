//! Access mode `ReadWriteOncePod` (KEP-2485).

use std::sync::Arc;

use anyhow::Result;
use claimcheck_model::Capability;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Claim, Fixture, Script, TestPod},
    need::Need,
};

const SUITE: &str = "read_write_once_pod";
const UPSTREAM: &str = "read-write-once-pod";
const ALONE: Need = Need::Capability(Capability::ReadWriteOncePod);

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "a second pod on the same node stays Pending until the first pod is deleted",
        UPSTREAM,
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        &[ALONE],
        case!(second_waits),
    ),
    row(
        SUITE,
        "a second pod on another node stays Pending until the first pod is deleted",
        UPSTREAM,
        Pattern::IMMEDIATE,
        &[Need::Nodes(2), ALONE],
        case!(second_waits_elsewhere),
    ),
];

async fn claim(t: &Fixture) -> Result<Claim> {
    t.claim_like(json!({
        "metadata": { "name": "claim" },
        "spec": {
            "accessModes": ["ReadWriteOncePod"],
            "storageClassName": t.class().await?,
            "resources": { "requests": { "storage": t.usual_size() } },
        },
    }))
    .await
}

/// The scheduler keeps a pod away from the node, and the kubelet refuses the volume to a pod that has the node already.
async fn second_waits(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().remove(0);
    let claim = claim(&t).await?;
    let holder = t.ready_pod(&TestPod::long_running("holder", &claim, "").on(&node)).await?;
    let waiter = t.pod(&TestPod::long_running("waiter", &claim, "").on(&node)).await?;
    t.unschedulable(&waiter, &["ReadWriteOncePod access mode"]).await?;
    let volume = json!({ "persistentVolumeClaim": { "claimName": claim.name } });
    let assigned = Script::long_running("assigned", "").volume("data", volume);
    let assigned = t.script(&assigned.spec(json!({ "nodeName": node }))).await?;
    let refused = "ReadWriteOncePod access mode and is already in use by another pod";
    t.event_containing("assigned", &["FailedMount"], refused).await?;
    t.container_waits(&assigned, "main").await?;
    t.remove_pod(&holder).await?;
    t.ready(&assigned).await?;
    t.remove_pod(&assigned).await?;
    t.ready(&waiter).await?;
    t.remove_pod(&waiter).await
}

async fn second_waits_elsewhere(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    let claim = claim(&t).await?;
    let holder = t.ready_pod(&TestPod::long_running("holder", &claim, "").on(&nodes[0])).await?;
    let waiter = t.pod(&TestPod::long_running("waiter", &claim, "").on(&nodes[1])).await?;
    // The rest of the message differs between versions of Kubernetes.
    t.unschedulable(&waiter, &["ReadWriteOncePod access mode"]).await?;
    t.remove_pod(&holder).await?;
    t.ready(&waiter).await?;
    t.remove_pod(&waiter).await
}
