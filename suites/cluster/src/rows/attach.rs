//! Attaching one volume to two nodes.

use std::sync::Arc;

use anyhow::Result;

use super::{case, row};
use crate::{
    case::{Case, Needs, Pattern},
    fixture::{Fixture, TestPod},
};

const SUITE: &str = "attach";

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "a ReadWriteOnce volume attaches to a second node only after it is detached from the first",
        "CSI Mock volume attach",
        Pattern::IMMEDIATE,
        Needs::TWO_NODES.attaching(),
        case!(second_node_waits),
    ),
    row(
        SUITE,
        "a ReadWriteOnce volume attaches to a second node only after it is detached from the first",
        "CSI Mock volume attach",
        Pattern::EXT4,
        Needs::TWO_NODES.attaching(),
        case!(second_node_waits),
    ),
];

async fn second_node_waits(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    let claim = t.claim("claim").await?;
    let first =
        t.ready_pod(&TestPod::long_running("first", &claim, "echo first > /data/who").on(&nodes[0])).await?;
    let second = TestPod::long_running("second", &claim, "test \"$(cat /data/who)\" = first").on(&nodes[1]);
    let second = t.pod(&second).await?;
    t.event_saying("second", &["FailedAttachVolume"], "Multi-Attach error").await?;
    t.expect_called(&t.balance_now().await?, "ControllerPublishVolume", 1)?;
    t.remove_pod(&first).await?;
    t.ready(&second).await?;
    t.remove_pod(&second).await?;
    t.remove_claim(&claim).await?;
    let expected = [
        ("CreateVolume", 1),
        ("ControllerPublishVolume", 2),
        ("NodeStageVolume", 2),
        ("NodePublishVolume", 2),
        ("NodeUnpublishVolume", 2),
        ("NodeUnstageVolume", 2),
        ("ControllerUnpublishVolume", 2),
        ("DeleteVolume", 1),
    ];
    t.expect_calls(&expected).await
}
