//! Claims that grow: used and unused, refused, and recovered from what the driver cannot give.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_csi::Code;
use claimcheck_informer::{Kind, growth::Progress};
use claimcheck_model::Capability;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, FsType, Needs, Pattern, Run},
    fixture::{Claim, Fixture, Script, Variant, Wanted, refusal},
};

const SUITE: &str = "volume_expand";
const UPSTREAM: &str = "volume-expand";
const MOCK: &str = "CSI Mock volume expansion";
const UNUSED: Needs = Needs::NOTHING.exercising(&[Capability::OfflineExpansion]);
const USED: Needs = Needs::NOTHING.exercising(&[Capability::OnlineExpansion]);
const CONTROLLER: Needs = Needs::FAULTS.exercising(&[Capability::ControllerExpansion]);
const NODE: Needs = Needs::FAULTS.exercising(&[Capability::NodeExpansion, Capability::OnlineExpansion]);

const fn grows(name: &'static str, pattern: Pattern, needs: Needs, run: Run) -> Case {
    row(SUITE, name, UPSTREAM, pattern, needs, run)
}

const fn recovers(name: &'static str, pattern: Pattern, needs: Needs, run: Run) -> Case {
    row(SUITE, name, MOCK, pattern, needs, run)
}

pub(super) const ROWS: &[Case] = &[
    grows("a claim does not grow unless its class lets it", Pattern::IMMEDIATE, UNUSED, case!(not_allowed)),
    grows("a claim never becomes smaller", Pattern::IMMEDIATE, UNUSED, case!(never_smaller)),
    grows(UNUSED_VOLUME, Pattern::IMMEDIATE, UNUSED, case!(unused)),
    grows(UNUSED_VOLUME, Pattern::EXT4_LATE, UNUSED, case!(unused)),
    grows(UNUSED_VOLUME, Pattern::XFS, UNUSED, case!(unused)),
    grows(UNUSED_VOLUME, Pattern::BLOCK, UNUSED, case!(unused)),
    grows(USED_VOLUME, Pattern::IMMEDIATE, USED, case!(used)),
    grows(USED_VOLUME, Pattern::EXT4, USED, case!(used)),
    grows(USED_VOLUME, Pattern::XFS_LATE, USED, case!(used)),
    grows(USED_VOLUME, Pattern::BLOCK_LATE, USED, case!(used)),
    grows(
        "what does not grow under one pod does so under the next",
        Pattern::EXT4,
        UNUSED,
        case!(under_the_next_pod),
    ),
    grows("a claim that grows twice in a row has the last size", Pattern::IMMEDIATE, UNUSED, case!(twice)),
    grows("the claim of an ephemeral volume grows", Pattern::IMMEDIATE, USED, case!(ephemeral)),
    recovers(
        "a volume that cannot grow is tried again, and its claim says why",
        Pattern::IMMEDIATE,
        CONTROLLER,
        case!(controller_fails),
    ),
    recovers(
        "a claim that asked for too much has what it asks for then",
        Pattern::IMMEDIATE,
        CONTROLLER,
        case!(controller_refuses),
    ),
    recovers(
        "a node that cannot grow a volume tries again, and the pod says why",
        Pattern::XFS,
        NODE,
        case!(node_fails),
    ),
    recovers(
        "what a node refuses for good is looked at by the controller again",
        Pattern::XFS,
        NODE,
        case!(node_refuses),
    ),
    recovers(
        "a driver that grows unused volumes only is asked again once the pod is gone",
        Pattern::IMMEDIATE,
        Needs::variant(Variant::GrowsUnused).exercising(&[Capability::OfflineExpansion]),
        case!(waits_until_unused),
    ),
];

const UNUSED_VOLUME: &str = "an unused volume grows, and its data stays";
const USED_VOLUME: &str = "a volume grows under its pod";

/// A claim of the case's, bound if it can be without a pod.
async fn claim(t: &Fixture) -> Result<Claim> {
    t.claim("claim").await
}

async fn not_allowed(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    t.bound(&claim).await?;
    t.allow_growth(&claim, false).await?;
    let said = refusal(t.resize(&claim, &t.larger_size()).await)?;
    ensure!(said.contains("only dynamically provisioned pvc can be resized"), "refused with {said:?}");
    t.allow_growth(&claim, true).await?;
    t.resize(&claim, &t.larger_size()).await.context("the class lets it, but it cannot grow")
}

async fn never_smaller(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    t.bound(&claim).await?;
    let said = refusal(t.resize(&claim, "1Mi").await)?;
    ensure!(said.contains("field can not be less than status.capacity"), "refused with {said:?}");
    Ok(())
}

/// What leaves a mark on a volume, and what prints it.
fn mark(t: &Fixture) -> (&'static str, &'static str) {
    match t.pattern().fs {
        FsType::Block => ("echo kept | dd of=/dev/data conv=notrunc,fsync", "head -c 5 /dev/data"),
        _ => ("echo kept > /data/ticket && sync", "cat /data/ticket"),
    }
}

/// Prints how many KiB a volume has, as its pods see it.
fn size(t: &Fixture) -> &'static str {
    match t.pattern().fs {
        FsType::Block => "echo $(($(blockdev --getsize64 /dev/data) / 1024))",
        _ => "df -k -P /data | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2",
    }
}

/// Checks in a pod that the mark is there, and that the volume is larger than before. A file system takes some
/// of its device for itself, and the driver's default may be a directory that has no size of its own.
async fn is_larger(t: &Fixture, name: &str, claim: &Claim, node: &str) -> Result<()> {
    let script = format!("{} && {}", mark(t).1, size(t));
    let said = t.output(&Wanted::ending(name, claim, &script).on(node)).await?;
    let words: Vec<&str> = said.split_whitespace().collect();
    let [mark, kib] = words[..] else { anyhow::bail!("pod {name} said {said:?}") };
    ensure!(mark == "kept", "the data is gone: pod {name} read {mark:?}");
    let kib: u64 = kib.parse().with_context(|| format!("pod {name} said {said:?}"))?;
    let before = claimcheck_informer::quantity::parse(&t.usual_size()).context("not a size")?;
    let before = u64::try_from(before)? / 1024;
    ensure!(t.pattern().fs == FsType::Default || kib > before, "it has {kib} KiB, no more than {before}");
    Ok(())
}

async fn unused(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    t.output(&Wanted::ending("writer", &claim, mark(&t).0).on(&node)).await?;
    t.remove_named_pod("writer").await?;
    let volume = t.bound(&claim).await?;
    t.attachments_gone(&volume).await?;
    let volume = volume.metadata.name.unwrap_or_default();
    t.grow(&claim).await?;
    t.volume_has(&volume, &t.larger_size()).await?;
    t.grown_but_for_the_node(&claim, &t.larger_size()).await?;
    is_larger(&t, "reader", &claim, &node).await?;
    t.grown_at_last(&claim, &t.larger_size()).await
}

async fn used(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    let pod = t.ready_pod(&Wanted::staying("pod", &claim, mark(&t).0).on(&node)).await?;
    t.grow(&claim).await?;
    t.grown(&claim, &t.larger_size()).await?;
    is_larger(&t, "reader", &claim, &node).await?;
    let restarts = t.pod_now(&pod).await?.status.and_then(|status| status.container_statuses);
    let restarts: i32 = restarts.iter().flatten().map(|status| status.restart_count).sum();
    ensure!(restarts == 0, "the pod was restarted");
    Ok(())
}

async fn under_the_next_pod(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    let pod = t.ready_pod(&Wanted::staying("pod", &claim, mark(&t).0).on(&node)).await?;
    t.grow(&claim).await?;
    t.grown_but_for_the_node(&claim, &t.larger_size()).await?;
    t.remove_pod(&pod).await?;
    is_larger(&t, "next", &claim, &node).await?;
    t.grown_at_last(&claim, &t.larger_size()).await
}

async fn twice(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = claim(&t).await?;
    t.bound(&claim).await?;
    t.grow(&claim).await?;
    t.resize(&claim, &t.times_usual(3)).await?;
    // The second wish may have to wait until a node has fulfilled the first.
    t.ready_pod(&Wanted::staying("pod", &claim, mark(&t).0).on(&node)).await?;
    t.grown_at_last(&claim, &t.times_usual(3)).await
}

async fn ephemeral(t: Arc<Fixture>) -> Result<()> {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": t.class().await?,
        "resources": { "requests": { "storage": t.usual_size() } },
    });
    let source = json!({ "ephemeral": { "volumeClaimTemplate": { "spec": spec } } });
    let pod = t.script(&Script::staying("pod", "echo here > /v/data/file").volume("data", source)).await?;
    t.ready(&pod).await?;
    let claim = t.adopt_claim("pod-data").await?;
    t.grow(&claim).await?;
    t.grown(&claim, &t.larger_size()).await?;
    t.remove_pod(&pod).await?;
    t.gone(Kind::Claim, &claim.name).await
}

async fn controller_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    let volume = t.bound(&claim).await?;
    t.fail_calls(&volume, "ControllerExpandVolume", Code::Internal, Some(2)).await?;
    t.grow(&claim).await?;
    t.event_saying("claim", &["VolumeResizeFailed"], "Internal").await?;
    t.grown_but_for_the_node(&claim, &t.larger_size()).await
}

async fn controller_refuses(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    let volume = t.bound(&claim).await?;
    let name = volume.metadata.name.clone().unwrap_or_default();
    t.ready_pod(&Wanted::staying("pod", &claim, mark(&t).0)).await?;
    t.fail_calls(&volume, "ControllerExpandVolume", Code::OutOfRange, Some(1)).await?;
    t.resize(&claim, "1Ti").await?;
    t.growth_is(&claim, Progress::ControllerInfeasible).await?;
    t.event_saying("claim", &["VolumeResizeFailed"], "OutOfRange").await?;
    t.resize(&claim, &t.larger_size()).await.context("it cannot go back to a size above what it has")?;
    t.volume_has(&name, &t.larger_size()).await?;
    t.grown(&claim, &t.larger_size()).await
}

async fn node_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    let volume = t.bound(&claim).await?;
    t.ready_pod(&Wanted::staying("pod", &claim, mark(&t).0)).await?;
    t.fail_calls(&volume, "NodeExpandVolume", Code::Internal, Some(2)).await?;
    t.grow(&claim).await?;
    t.event_saying("pod", &["VolumeResizeFailed"], "Internal").await?;
    t.grown(&claim, &t.larger_size()).await
}

async fn node_refuses(t: Arc<Fixture>) -> Result<()> {
    let claim = claim(&t).await?;
    let volume = t.bound(&claim).await?;
    t.ready_pod(&Wanted::staying("pod", &claim, mark(&t).0)).await?;
    t.fail_calls(&volume, "NodeExpandVolume", Code::OutOfRange, Some(1)).await?;
    t.grow(&claim).await?;
    t.event_saying("pod", &["VolumeResizeFailed"], "OutOfRange").await?;
    t.grown(&claim, &t.larger_size()).await?;
    // Once at first, and once more before the node was let try again.
    let calls = t.balance_now().await?.calls.get("ControllerExpandVolume").copied().unwrap_or_default();
    ensure!(calls >= 2, "the controller was asked {calls} times");
    Ok(())
}

async fn waits_until_unused(t: Arc<Fixture>) -> Result<()> {
    let further = t.further(Variant::GrowsUnused, json!({ "allowVolumeExpansion": true })).await?;
    let claim = t.further_claim(&further, "claim", "64Mi").await?;
    let pod = t.ready_pod(&Wanted::staying("pod", &claim, "")).await?;
    t.resize(&claim, "128Mi").await?;
    t.event_saying("claim", &["VolumeResizeFailed"], "only supports offline expansion").await?;
    t.remove_pod(&pod).await?;
    t.grown_but_for_the_node(&claim, "128Mi").await?;
    t.output(&Wanted::ending("next", &claim, "true")).await?;
    t.grown_at_last(&claim, "128Mi").await
}
