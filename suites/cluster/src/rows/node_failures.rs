//! Nodes that fall silent, are created again, or lose their agent in the middle of an operation.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_cluster::{Disruption, Victim};
use claimcheck_csi::Code;
use claimcheck_informer::Kind;
use claimcheck_model::{Capability, CsiMethod};
use serde_json::{Value, json};

use super::{case, disruptive::moves_once_allowed, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Claim, Fixture, Pod, Script, TestPod},
    need::Need,
    workload::IMAGE,
};

const SUITE: &str = "node_failures";

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "a silent node becomes Unknown and tainted, its pods are evicted, and their volumes attach to another node \
         once it is tainted out-of-service",
        "NodeLease",
        Pattern::IMMEDIATE,
        &[Need::Nodes(2), Need::Disrupt, Need::OwnNode, Need::LongWait, Need::Agents, Need::Attach],
        case!(silent),
    ),
    row(
        SUITE,
        "all files have the pod's fsGroup although the kubelet is killed while it changes them",
        "fsgroupchangepolicy",
        Pattern::EXT4,
        &[Need::Disrupt, Need::OwnNode, Need::Agents, Need::Tap, Need::Capability(Capability::FsGroup)],
        case!(killed_in_ownership),
    ),
    row(
        SUITE,
        "a terminating pod writes until its end although the kubelet is killed meanwhile",
        "disruptive",
        Pattern::EXT4,
        &[Need::Disrupt, Need::OwnNode, Need::Agents, Need::Tap],
        case!(killed_while_terminating),
    ),
    row(
        SUITE,
        "a pod with CSI and hostPath subPaths, force-deleted while the kubelet is down, is ended and its data is kept",
        "disruptive",
        Pattern::IMMEDIATE,
        &[Need::Disrupt, Need::OwnNode, Need::Agents, Need::HostPaths],
        case!(sub_paths_force_deleted),
    ),
    row(
        SUITE,
        "NodeStageVolume is called again for the next pod if the response of NodeUnstageVolume is lost",
        "CSI Mock volume node stage",
        Pattern::EXT4,
        &[Need::Tap, Need::Stage],
        case!(unstage_in_doubt),
    ),
    row(
        SUITE,
        "a driver is registered once NodeGetInfo succeeds again after a kubelet restart",
        "none",
        Pattern::IMMEDIATE,
        &[Need::Disrupt, Need::Agents, Need::Tap],
        case!(registration_fails),
    ),
    row(
        SUITE,
        "a node that is deleted and created again runs pods with volumes, and its new CSINode lists the driver",
        "none",
        Pattern::IMMEDIATE,
        &[Need::Disrupt, Need::OwnNode, Need::Agents],
        case!(recreated),
    ),
];

/// The claim as a volume source.
fn source(claim: &Claim) -> Value {
    json!({ "persistentVolumeClaim": { "claimName": claim.name } })
}

fn on(node: &str) -> Value {
    json!({ "kubernetes.io/hostname": node })
}

async fn silent(t: Arc<Fixture>) -> Result<()> {
    let (dead, living) = (t.own_node()?, t.nodes().remove(0));
    let agent = Victim::NodeAgent(dead.clone());
    let claim = t.claim_of_one_node("claim").await?;
    // Without the default of five minutes; data that is not synced would be lost with the node.
    let tolerated = json!({
        "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0,
    });
    let expected = Script::long_running("pod", "echo here > /v/data/ticket && sync")
        .volume("data", source(&claim))
        .spec(json!({ "nodeSelector": on(&dead), "tolerations": [tolerated] }));
    let pod = t.script(&expected).await?;
    t.ready(&pod).await?;
    t.disrupt(agent.clone(), Disruption::Stop).await?;
    let moved = moves_after_silence(&t, &pod, &claim, &dead, &living).await;
    // Also after a failure, since the next cases need the node.
    t.taint_node(&dead, &[]).await?;
    t.disrupt(agent, Disruption::Start).await?;
    t.node_ready(&dead).await?;
    moved
}

async fn moves_after_silence(t: &Fixture, pod: &Pod, claim: &Claim, dead: &str, living: &str) -> Result<()> {
    t.node_silent(dead).await?;
    t.terminating(pod).await?;
    moves_once_allowed(t, claim, dead, living).await
}

/// The kubelet publishes the volume, and changes the group of its files afterwards. When the restarted kubelet starts
/// the pod, all files must have it: a mount does not show that this was completed (kubernetes#89776).
async fn killed_in_ownership(t: Arc<Fixture>) -> Result<()> {
    let node = t.own_node()?;
    let claim = t.claim("claim").await?;
    // Enough files that their change takes longer than to kill a process, and few enough for a small file system.
    let fill = "mkdir /data/files; cd /data/files; seq 10000 | xargs touch";
    t.output(&TestPod::run_to_completion("fill", &claim, fill).on(&node)).await?;
    t.remove_named_pod("fill").await?;
    let published = t.balance_now().await?.all_calls(CsiMethod::NodePublishVolume);
    // The volume's root is changed last, so that this policy does not take a part for the whole.
    let context = json!({ "fsGroup": 4321, "fsGroupChangePolicy": "OnRootMismatch" });
    let expected = Script::run_to_completion("pod", "find /v/data ! -group 4321 | wc -l")
        .volume("data", source(&claim))
        .spec(json!({ "nodeSelector": on(&node), "securityContext": context }));
    let pod = t.script(&expected).await?;
    t.called_more_than(CsiMethod::NodePublishVolume, published).await?;
    t.disrupt(Victim::NodeAgent(node), Disruption::Kill).await?;
    let output = t.ended(&pod).await?;
    ensure!(output == "0", "{output} files do not have the pod's fsGroup");
    Ok(())
}

async fn killed_while_terminating(t: Arc<Fixture>) -> Result<()> {
    let node = t.own_node()?;
    let claim = t.claim("claim").await?;
    // The container runs until the file `stop` exists, and ignores a second SIGTERM.
    let script = "trap 'trap \"\" TERM; echo terminating; until [ -e /data/stop ]; do \
                  echo line >> /data/lines; sleep 0.1; done; exit 0' TERM\n\
                  echo armed\nwhile :; do sleep 3600 & wait $!; done";
    let main = json!({
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", script],
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
    });
    let mut data = source(&claim);
    data["name"] = json!("data");
    let pod = t
        .pod_like(json!({
            "metadata": { "name": "pod" },
            "spec": {
                "nodeSelector": on(&node),
                "terminationGracePeriodSeconds": 600,
                "containers": [main],
                "volumes": [data],
            },
        }))
        .await?;
    t.running(&pod).await?;
    let armed = t.follow(&pod, "main", 1).await?;
    ensure!(armed == ["armed"], "the pod's log begins with {armed:?}");
    t.delete_pod(&pod).await?;
    let log = t.follow(&pod, "main", 2).await?;
    ensure!(log == ["armed", "terminating"], "the pod's log is {log:?}");
    t.disrupt(Victim::NodeAgent(node.clone()), Disruption::Kill).await?;
    // Becomes ready only once the kubelet is back, and if the terminating pod still writes.
    let grows = "lines=$(wc -l < /data/lines); sleep 2; test \"$(wc -l < /data/lines)\" -gt \"$lines\"";
    t.ready_pod(&TestPod::long_running("witness", &claim, grows).on(&node)).await?;
    let unpublished = t.balance_now().await?.all_calls(CsiMethod::NodeUnpublishVolume);
    ensure!(unpublished == 0, "NodeUnpublishVolume was called while the terminating pod still ran");
    t.output(&TestPod::run_to_completion("end", &claim, "touch /data/stop").on(&node)).await?;
    t.deleted(Kind::Pod, &pod.name).await?;
    t.called(CsiMethod::NodeUnpublishVolume).await
}

async fn sub_paths_force_deleted(t: Arc<Fixture>) -> Result<()> {
    let node = t.own_node()?;
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    let host = json!({ "hostPath": { "path": "/tmp", "type": "Directory" } });
    let part = json!({ "subPath": t.namespace() });
    let main = json!([{
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", "n=0; while :; do n=$((n + 1)); echo $n > /v/host/beat; sleep 0.1; done"],
        "volumeMounts": [
            { "name": "data", "mountPath": "/v/data", "subPath": "part" },
            { "name": "host", "mountPath": "/v/host", "subPath": t.namespace() },
        ],
    }]);
    let expected = Script::long_running("pod", "echo here > /v/data/ticket; echo here > /v/host/ticket")
        .mounted("data", source(&claim), json!({ "subPath": "part" }))
        .mounted("host", host.clone(), part.clone())
        .spec(json!({ "nodeSelector": on(&node), "containers": main }));
    let pod = t.script(&expected).await?;
    t.ready(&pod).await?;
    t.disrupt(Victim::NodeAgent(node.clone()), Disruption::Stop).await?;
    let deleted = t.force_delete_pod(&pod).await;
    // Also after a failure, since the next cases need the node.
    t.disrupt(Victim::NodeAgent(node.clone()), Disruption::Start).await?;
    deleted?;
    t.attachments_deleted(&volume).await?;
    let read = "before=$(cat /v/host/beat); sleep 1\n\
                test \"$before\" = \"$(cat /v/host/beat)\" || echo runs\n\
                cat /v/data/ticket /v/host/ticket; rm /v/host/*";
    let reader = Script::run_to_completion("reader", read)
        .mounted("data", source(&claim), json!({ "subPath": "part" }))
        .mounted("host", host.clone(), part)
        .spec(json!({ "nodeSelector": on(&node) }));
    let output = t.script_output(&reader).await;
    let remove = format!("rm -rf /v/host/{}", t.namespace());
    let remover = Script::run_to_completion("remover", &remove)
        .volume("host", host)
        .spec(json!({ "nodeSelector": on(&node) }));
    t.script_output(&remover).await?;
    let output = output?;
    ensure!(output == "here\nhere", "after the forced deletion the subPaths contain {output:?}");
    Ok(())
}

/// All responses are lost until the next pod needs the volume, so the kubelet cannot know that it is not staged.
async fn unstage_in_doubt(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().remove(0);
    let claim = t.claim("claim").await?;
    let volume = t.bound(&claim).await?;
    let first = TestPod::long_running("first", &claim, "echo here > /data/ticket").on(&node);
    let first = t.ready_pod(&first).await?;
    t.lose_all_answers(&volume, CsiMethod::NodeUnstageVolume).await?;
    t.remove_pod(&first).await?;
    t.injected(CsiMethod::NodeUnstageVolume).await?;
    let next = TestPod::run_to_completion("next", &claim, "cat /data/ticket").on(&node);
    let output = t.output(&next).await?;
    ensure!(output == "here", "the next pod read {output:?}");
    t.end_faults().await;
    t.called_more_than(CsiMethod::NodeStageVolume, 1).await
}

/// A kubelet lists no driver that does not return its node ID, and tries again (kubernetes#118317).
async fn registration_fails(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().remove(0);
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    t.fail_method(CsiMethod::NodeGetInfo, Code::Unavailable).await;
    let waits = pod_waits_for_driver(&t, &claim, &node).await;
    // Also after a failure, since the next cases need the driver.
    t.end_faults().await;
    let output = t.ended(&waits?).await?;
    ensure!(output == "mounted", "unexpected pod output {output:?}");
    Ok(())
}

/// A pod on a node with a restarted kubelet, to which the driver does not return its node ID.
async fn pod_waits_for_driver(t: &Fixture, claim: &Claim, node: &str) -> Result<Pod> {
    t.disrupt(Victim::NodeAgent(node.to_owned()), Disruption::Kill).await?;
    let pod = t.pod(&TestPod::run_to_completion("pod", claim, "echo mounted").on(node)).await?;
    // A kubelet removes the driver from the CSINode, so that an attacher may find it missing first.
    t.event_containing("pod", &["FailedMount", "FailedAttachVolume"], t.driver_name()).await?;
    Ok(pod)
}

/// As by an administrator, or by a cloud's node controller.
async fn recreated(t: Arc<Fixture>) -> Result<()> {
    let node = t.own_node()?;
    let agent = Victim::NodeAgent(node.clone());
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    t.disrupt(agent.clone(), Disruption::Stop).await?;
    let recreated = t.recreate_node(&node).await;
    // Also after a failure, since the next cases need the node.
    t.disrupt(agent, Disruption::Start).await?;
    let (before, after) = recreated?;
    ensure!(before != after, "the new node has the UID of the deleted one");
    t.node_ready(&node).await?;
    t.driver_registered(&node, &after).await?;
    let pod =
        TestPod::run_to_completion("pod", &claim, "echo here > /data/ticket; cat /data/ticket").on(&node);
    let output = t.output(&pod).await?;
    ensure!(output == "here", "unexpected pod output {output:?}");
    Ok(())
}
