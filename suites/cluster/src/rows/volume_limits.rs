//! Volume limits per node: reported by the driver and CSINode, enforced by the scheduler.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use claimcheck_model::Capability;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Fixture, LIMIT_PERIOD, TestPod, Variant},
    kubernetes::Feature,
    need::Need,
};

const SUITE: &str = "volume_limits";
const LIMITED: &[Need] = &[Need::Variant(Variant::Limited), Need::Capability(Capability::VolumeLimits)];

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "CSINode reports the driver's volume limit",
        "volumeLimits",
        Pattern::IMMEDIATE,
        LIMITED,
        case!(limit_is_reported),
    ),
    row(
        SUITE,
        "a pod beyond its node's volume limit stays Pending until another volume is detached",
        "volumeLimits",
        Pattern::IMMEDIATE,
        LIMITED,
        case!(beyond_the_limit),
    ),
    row(
        SUITE,
        "pods are scheduled to nodes below the volume limit",
        "volumeLimits",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        &[Need::Nodes(2), Need::Variant(Variant::Limited), Need::Capability(Capability::VolumeLimits)],
        case!(with_capacity),
    ),
    row(
        SUITE,
        "CSINode follows the driver's limit if CSIDriver has nodeAllocatableUpdatePeriodSeconds",
        "CSI Mock node volume limit",
        Pattern::IMMEDIATE,
        &[
            Need::Feature(Feature::AllocatableUpdates),
            Need::Variant(Variant::Shrinking),
            Need::LongWait,
            Need::Capability(Capability::VolumeLimits),
        ],
        case!(limit_changes),
    ),
];

async fn limit_is_reported(t: Arc<Fixture>) -> Result<()> {
    let _limited = t.install_driver(Variant::Limited, json!({})).await?;
    for node in t.nodes() {
        let count = t.limit_of(&node, Variant::Limited.name()).await?;
        ensure!(count == Some(2), "{node} reports {count:?} instead of 2");
    }
    Ok(())
}

/// KEP-4876; `runPeriodicUpdate` in pkg/volume/csi/csi_node_updater.go.
async fn limit_changes(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::Shrinking, json!({})).await?;
    let (node, late) = (t.nodes().remove(0), Duration::from_secs(LIMIT_PERIOD.unsigned_abs()));
    let before = t.limit_of(&node, Variant::Shrinking.name()).await?;
    let before = before.context("CSINode reports no limit")?;
    let claim = t.claim_of_driver(&driver, "claim", "1Mi").await?;
    t.bound(&claim).await?;
    t.limit_becomes(&node, Variant::Shrinking.name(), before - 1, late).await?;
    t.remove_claim(&claim).await
}

async fn beyond_the_limit(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().remove(0);
    let limited = t.install_driver(Variant::Limited, json!({})).await?;
    let mut pods = Vec::new();
    for name in ["first", "second"] {
        let claim = t.claim_of_driver(&limited, name, "1Mi").await?;
        pods.push(t.ready_pod(&TestPod::long_running(name, &claim, "").on(&node)).await?);
    }
    let claim = t.claim_of_driver(&limited, "third", "1Mi").await?;
    let third = t.pod(&TestPod::long_running("third", &claim, "").on(&node)).await?;
    t.unschedulable(&third, &["exceed max volume count"]).await?;
    t.remove_pod(&pods[0]).await?;
    t.ready(&third).await?;
    Ok(())
}

async fn with_capacity(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    let limited =
        t.install_driver(Variant::Limited, json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await?;
    let full = &nodes[0];
    for name in ["first", "second"] {
        let claim = t.claim_of_driver(&limited, name, "1Mi").await?;
        t.ready_pod(&TestPod::long_running(name, &claim, "").on(full)).await?;
    }
    for name in ["third", "fourth"] {
        let claim = t.claim_of_driver(&limited, name, "1Mi").await?;
        // Without the limit, the pod would run there.
        let pod = t.ready_pod(&TestPod::long_running(name, &claim, "").preferring(full)).await?;
        let node = t.node_of(&pod);
        ensure!(node.as_ref() != Some(full), "{name} is on {full}, which has reached its limit");
    }
    Ok(())
}
