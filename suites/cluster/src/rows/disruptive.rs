//! Components that are stopped and killed while pods run.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_cluster::{Disruption, Victim};
use claimcheck_csi::Code;
use claimcheck_informer::Kind;
use claimcheck_model::{CsiMethod, OUT_OF_SERVICE};
use k8s_openapi::api::core::v1::Pod as PodObject;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Claim, Fixture, Pod, TestPod},
    need::Need,
};

const SUITE: &str = "disruptive";
const AGENTS: &[Need] = &[Need::Disrupt, Need::OwnNode, Need::Agents];

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "a running pod and its mount survive a kubelet restart and are cleaned up afterwards",
        "disruptive",
        Pattern::EXT4,
        AGENTS,
        case!(pod_outlives_agent),
    ),
    row(
        SUITE,
        "a pod deleted while the kubelet is down is cleaned up when the kubelet returns",
        "disruptive",
        Pattern::IMMEDIATE,
        AGENTS,
        case!(deleted_while_agent_is_down),
    ),
    row(
        SUITE,
        "a pod force-deleted while the kubelet is down is cleaned up when the kubelet returns",
        "disruptive",
        Pattern::EXT4,
        AGENTS,
        case!(force_deleted_while_agent_is_down),
    ),
    row(
        SUITE,
        "a pod waits with event FailedAttachVolume while its node disables controller attach-detach",
        "CSI Mock volume attach",
        Pattern::IMMEDIATE,
        &[Need::Disrupt, Need::OwnNode, Need::Agents, Need::Configure, Need::Attach],
        case!(controller_may_not_attach),
    ),
    row(
        SUITE,
        "pods on a node tainted out-of-service are deleted and their volumes attach to another node",
        "NodeOutOfService",
        Pattern::IMMEDIATE,
        &[Need::Nodes(2), Need::Disrupt, Need::OwnNode, Need::Agents, Need::Attach],
        case!(out_of_service),
    ),
    row(
        SUITE,
        "NodeStageVolume is retried after the driver is killed during the call",
        "CSI Mock volume node stage",
        Pattern::EXT4,
        // The first node's driver is also the cluster's controller, which attaches nothing while it is paused.
        &[Need::Nodes(2), Need::Disrupt, Need::OwnNode, Need::Tap, Need::Stage],
        case!(driver_killed_during_stage),
    ),
    row(
        SUITE,
        "a pod on the node of a failed detach starts after the controllers are killed",
        "none",
        Pattern::IMMEDIATE,
        &[Need::Disrupt, Need::Tap, Need::Attach],
        case!(killed_during_detach),
    ),
    row(
        SUITE,
        "killing the controllers during provisioning leaks no volumes and repeats no node calls",
        "none",
        Pattern::IMMEDIATE,
        &[Need::Disrupt, Need::Tap],
        case!(controllers_killed),
    ),
];

async fn pod_outlives_agent(t: Arc<Fixture>) -> Result<()> {
    let node = t.own_node()?;
    let (claim, other) = (t.claim("claim").await?, t.claim("other").await?);
    let uses = "echo again >> /data/log && tail -n 1 /data/log && cat /data/ticket";
    let pod = TestPod::long_running("pod", &claim, "echo here > /data/ticket").probing(uses).on(&node);
    let pod = t.ready_pod(&pod).await?;
    let before = container(&t.pod_now(&pod).await?)?;
    t.disrupt(Victim::NodeAgent(node.clone()), Disruption::Kill).await?;
    // The new kubelet has taken over once it runs another pod.
    let other_pod = t.ready_pod(&TestPod::long_running("other", &other, "").on(&node)).await?;
    // It may still release what it has found.
    t.keeps_running(&pod).await?;
    let output = t.probed(&pod).await?;
    ensure!(output == "again here", "the running pod no longer reads and writes its volume: {output:?}");
    t.not_unpublished().await?;
    let after = container(&t.pod_now(&pod).await?)?;
    ensure!(before == after, "the pod's container changed from {before:?} to {after:?} in the restart");
    // The new kubelet may stage and publish again what it finds: such calls are not counted.
    t.remove_pod(&other_pod).await?;
    t.remove_pod(&pod).await
}

/// The identity of a container: its ID and restart count.
fn container(pod: &PodObject) -> Result<(Option<String>, i32)> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let status = statuses.and_then(|statuses| statuses.first()).context("the pod has no container status")?;
    Ok((status.container_id.clone(), status.restart_count))
}

async fn deleted_while_agent_is_down(t: Arc<Fixture>) -> Result<()> {
    let node = t.own_node()?;
    let claim = t.claim("claim").await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "").on(&node)).await?;
    t.disrupt(Victim::NodeAgent(node.clone()), Disruption::Stop).await?;
    let deleted = t.delete_pod(&pod).await;
    // Also after a failure, since the next cases need the node.
    let seen = t.pod_now(&pod).await;
    t.disrupt(Victim::NodeAgent(node), Disruption::Start).await?;
    deleted?;
    let seen = seen.context("the pod is gone although its volume is still mounted")?;
    ensure!(seen.metadata.deletion_timestamp.is_some(), "the deleted pod has no deletionTimestamp");
    t.deleted(Kind::Pod, &pod.name).await
}

async fn force_deleted_while_agent_is_down(t: Arc<Fixture>) -> Result<()> {
    let node = t.own_node()?;
    let claim = t.claim("claim").await?;
    let pod =
        t.ready_pod(&TestPod::long_running("pod", &claim, "echo here > /data/ticket").on(&node)).await?;
    let volume = t.bound(&claim).await?;
    t.disrupt(Victim::NodeAgent(node.clone()), Disruption::Stop).await?;
    let deleted = t.force_delete_pod(&pod).await;
    // Also after a failure, since the next cases need the node.
    t.disrupt(Victim::NodeAgent(node.clone()), Disruption::Start).await?;
    deleted?;
    t.attachments_deleted(&volume).await?;
    // Afterwards the volume is usable as usual.
    let output = t.output(&TestPod::run_to_completion("next", &claim, "cat /data/ticket").on(&node)).await?;
    ensure!(output == "here", "the next pod read {output:?}");
    Ok(())
}

async fn controller_may_not_attach(t: Arc<Fixture>) -> Result<()> {
    let node = t.own_node()?;
    let agent = Victim::NodeAgent(node.clone());
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    t.disrupt(agent.clone(), Disruption::Configure(&["--enable-controller-attach-detach=false"])).await?;
    let waiting = pod_waits_for_attachment(&t, &claim, &node).await;
    // Also after a failure, since the next cases need the default arguments.
    t.disrupt(agent, Disruption::Configure(&[])).await?;
    t.node_annotated(&node, MANAGED, true).await?;
    let pod = waiting?;
    t.ready(&pod).await?;
    t.remove_pod(&pod).await?;
    t.attachments_deleted(&volume).await?;
    t.remove_claim(&claim).await
}

async fn out_of_service(t: Arc<Fixture>) -> Result<()> {
    let (dead, living) = (t.own_node()?, t.nodes().remove(0));
    let agent = Victim::NodeAgent(dead.clone());
    let claim = t.claim_of_one_node("claim").await?;
    // Data that is not synced would be lost with the node.
    t.ready_pod(&TestPod::long_running("pod", &claim, "echo here > /data/ticket && sync").on(&dead)).await?;
    t.disrupt(agent.clone(), Disruption::Stop).await?;
    let moved = volume_moves_on(&t, &claim, &dead, &living).await;
    // Also after a failure, since the next cases need the node.
    t.taint_node(&dead, &[]).await?;
    t.disrupt(agent, Disruption::Start).await?;
    t.node_ready(&dead).await?;
    moved
}

/// The steps of an administrator who knows that a node is down.
async fn volume_moves_on(t: &Fixture, claim: &Claim, dead: &str, living: &str) -> Result<()> {
    // The control plane would detect this itself after most of a minute.
    t.lose_node(dead).await?;
    moves_once_allowed(t, claim, dead, living).await
}

/// A pod on another node waits for a volume of a node that is down, until an administrator states that.
pub(super) async fn moves_once_allowed(t: &Fixture, claim: &Claim, dead: &str, living: &str) -> Result<()> {
    let next = t.pod(&TestPod::run_to_completion("next", claim, "cat /data/ticket").on(living)).await?;
    t.event("next", "FailedAttachVolume").await?;
    t.taint_node(dead, &[json!({ "key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute" })])
        .await?;
    t.deleted(Kind::Pod, "pod").await?;
    let output = t.ended(&next).await?;
    ensure!(output == "here", "the next pod read {output:?}");
    Ok(())
}

const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// A pod on a node with controller attach-detach disabled: a kubelet cannot attach CSI volumes itself. A
/// VolumeAttachment may exist nevertheless: upstream's controller continues with a node that had the annotation once
/// (`addNodeToDswp` in `attach_detach_controller.go`). The kubelet does not look for it.
async fn pod_waits_for_attachment(t: &Fixture, claim: &Claim, node: &str) -> Result<Pod> {
    t.node_annotated(node, MANAGED, false).await?;
    let pod = t.pod(&TestPod::long_running("pod", claim, "echo here > /data/ticket").on(node)).await?;
    let refused = "attaching volumes from the kubelet is not supported";
    t.event_containing("pod", &["FailedAttachVolume"], refused).await?;
    let staged = t.balance_now().await?.calls.get(&CsiMethod::NodeStageVolume).copied().unwrap_or_default();
    ensure!(staged == 0, "the volume was staged although its node rejected the attachment");
    Ok(pod)
}

async fn driver_killed_during_stage(t: Arc<Fixture>) -> Result<()> {
    let node = t.own_node()?;
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    // The driver is killed during the call, since the call has started and is blocked.
    t.hold_call(&node, &volume, CsiMethod::NodeStageVolume).await?;
    let script = "echo staged > /data/ticket; cat /data/ticket";
    let pod = t.pod(&TestPod::run_to_completion("pod", &claim, script).on(&node)).await;
    let in_stage = t.call_started(&volume, CsiMethod::NodeStageVolume).await;
    t.end_faults().await;
    t.disrupt(Victim::Driver(node), Disruption::Kill).await?;
    in_stage?;
    let output = t.ended(&pod?).await?;
    ensure!(output == "staged", "unexpected pod output {output:?}");
    t.called(CsiMethod::NodeStageVolume).await.context("NodeStageVolume was not retried")
}

/// The restarted controllers know from the VolumeAttachment alone that the volume is still attached
/// (kubernetes#120571).
async fn killed_during_detach(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().remove(0);
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    let first = t
        .ready_pod(&TestPod::long_running("first", &claim, "echo here > /data/ticket && sync").on(&node))
        .await?;
    t.fail_calls(&volume, CsiMethod::ControllerUnpublishVolume, Code::Internal, None).await?;
    t.remove_pod(&first).await?;
    // Without its failed call, the detach may be over already.
    t.detach_failed(&volume).await?;
    t.disrupt(Victim::Controllers, Disruption::Kill).await?;
    let second = TestPod::run_to_completion("second", &claim, "cat /data/ticket").on(&node);
    let second = t.pod(&second).await;
    t.end_faults().await;
    let output = t.ended(&second?).await?;
    ensure!(output == "here", "the second pod read {output:?}");
    t.remove_named_pod("second").await?;
    t.attachments_deleted(&volume).await?;
    t.remove_claim(&claim).await
}

/// How often a case kills the controllers: a kubelet waits twice as long before each further start of a container.
const KILLS: u64 = 2;

async fn controllers_killed(t: Arc<Fixture>) -> Result<()> {
    let before = t.listed_volumes().await;
    for round in 0..KILLS {
        let name = format!("claim-{round}");
        let claim =
            t.manual_claim(&name, &t.usual_size(), json!({ "accessModes": t.access_modes() })).await?;
        if round == 0 {
            // The volume's name is derived from the claim, so the claim must exist before the fault and the class.
            t.lose_creation(&claim).await;
            t.manual_class().await?;
            // The driver has created the volume, and nothing in the API shows that.
            t.event_containing(&name, &["ProvisioningFailed"], "Unavailable").await?;
        }
        t.disrupt(Victim::Controllers, Disruption::Kill).await?;
        t.end_faults().await;
        let pod = t.ready_pod(&TestPod::long_running(&format!("pod-{round}"), &claim, "")).await?;
        t.remove_pod(&pod).await?;
        t.remove_claim(&claim).await?;
    }
    let balance = t.balance().await?;
    ensure!(balance.is_clean(), "leaked objects: {:?}", balance.left);
    // A volume that was created before a kill may have no object. No other case runs meanwhile.
    let leaked = t.listed_volumes().await.into_iter().filter(|volume| !before.contains(volume));
    let leaked: Vec<_> = leaked.collect();
    ensure!(leaked.is_empty(), "the driver still has volumes of deleted claims: {leaked:?}");
    let mounted = [
        (CsiMethod::NodeStageVolume, KILLS),
        (CsiMethod::NodePublishVolume, KILLS),
        (CsiMethod::NodeUnpublishVolume, KILLS),
        (CsiMethod::NodeUnstageVolume, KILLS),
    ];
    let node_calls = balance.calls.iter().filter(|(method, _)| method.is_node());
    let only_node = claimcheck_timeline::Balance {
        calls: node_calls.map(|(method, count)| (*method, *count)).collect(),
        ..balance.clone()
    };
    // The controllers' calls may be repeated after a kill; the node's calls may not.
    t.check_calls(&only_node, &mounted)
}
