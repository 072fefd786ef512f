//! Attaching one volume to two nodes.

use std::sync::Arc;

use anyhow::Result;
use claimcheck_model::CsiMethod;

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Fixture, TestPod},
    need::Need,
};

const SUITE: &str = "attach";

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "a ReadWriteOnce volume attaches to a second node only after it is detached from the first",
        "CSI Mock volume attach",
        Pattern::IMMEDIATE,
        &[Need::Nodes(2), Need::Attach],
        case!(second_node_waits),
    ),
    row(
        SUITE,
        "a ReadWriteOnce volume attaches to a second node only after it is detached from the first",
        "CSI Mock volume attach",
        Pattern::EXT4,
        &[Need::Nodes(2), Need::Attach],
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
    t.event_containing("second", &["FailedAttachVolume"], "Multi-Attach error").await?;
    t.expect_called(&t.balance_now().await?, CsiMethod::ControllerPublishVolume, 1)?;
    t.remove_pod(&first).await?;
    t.ready(&second).await?;
    t.remove_pod(&second).await?;
    t.remove_claim(&claim).await?;
    let expected = [
        (CsiMethod::CreateVolume, 1),
        (CsiMethod::ControllerPublishVolume, 2),
        (CsiMethod::NodeStageVolume, 2),
        (CsiMethod::NodePublishVolume, 2),
        (CsiMethod::NodeUnpublishVolume, 2),
        (CsiMethod::NodeUnstageVolume, 2),
        (CsiMethod::ControllerUnpublishVolume, 2),
        (CsiMethod::DeleteVolume, 1),
    ];
    t.expect_calls(&expected).await
}
