//! Attaching one volume to two nodes.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
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
    row(
        SUITE,
        "a volume is detached from a node that no longer exists and attaches to another node",
        "none",
        Pattern::IMMEDIATE,
        &[Need::Disrupt, Need::Attach],
        case!(node_deleted),
    ),
];

/// A driver that does not know the node has to answer ControllerUnpublishVolume with OK (CSI specification: "the plugin
/// SHOULD return 0 OK"): the attacher repeats the call until then, and the volume stays attached.
async fn node_deleted(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    t.attach_to_deleted_node(&volume).await?;
    t.attachments_deleted(&volume)
        .await
        .context("the volume stays attached to a node that does not exist")?;
    let output =
        t.output(&TestPod::run_to_completion("pod", &claim, "echo here > /data/who; cat /data/who")).await?;
    ensure!(output == "here", "the pod on another node read {output:?}");
    Ok(())
}

async fn second_node_waits(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    let claim = t.claim_of_one_node("claim").await?;
    let attachments = t.follow_attachments(&t.bound(&claim).await?);
    let first =
        t.ready_pod(&TestPod::long_running("first", &claim, "echo first > /data/who").on(&nodes[0])).await?;
    let second = TestPod::long_running("second", &claim, "test \"$(cat /data/who)\" = first").on(&nodes[1]);
    let second = t.pod(&second).await?;
    t.event_containing("second", &["FailedAttachVolume"], "Multi-Attach error").await?;
    t.expect_called(&t.balance_now().await?, CsiMethod::ControllerPublishVolume, 1)?;
    t.remove_pod(&first).await?;
    t.ready(&second).await?;
    t.attached_in_turn(&attachments).await?;
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
