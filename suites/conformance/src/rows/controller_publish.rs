//! ControllerPublishVolume and ControllerUnpublishVolume.

use anyhow::{Context as _, Result, anyhow, ensure};
use claimcheck_csi::{Code, Status, v1::Volume};
use claimcheck_engine::skip;

use super::{ATTACH, CREATE, LIST, LIST_NODES, MOUNTS, PERSISTS, READONLY, case, controller_list};
use crate::{
    alone::Alone,
    case::Row,
    effect::Effect,
    expect::{Answer, INVALID, NOT_FOUND, status_text},
    fixture::{Fixture, VolumeOnNode},
    need::Need,
    spec,
    verdict::{Breaks, breaking},
};

pub(super) const ROWS: &[Row] = &[
    Row::new("ControllerPublishVolume without a volume_id returns InvalidArgument", spec::MISSING, case!(no_volume))
        .needs(&[ATTACH])
        .upstream("Controller Service [Controller Server] ControllerPublishVolume should fail when no volume id is provided"),
    Row::new("ControllerPublishVolume without a node_id returns InvalidArgument", spec::MISSING, case!(no_node))
        .needs(&[ATTACH, CREATE])
        .upstream("Controller Service [Controller Server] ControllerPublishVolume should fail when no node id is provided"),
    Row::new("ControllerPublishVolume without a volume_capability returns InvalidArgument", spec::MISSING, case!(no_capability))
        .needs(&[ATTACH, CREATE])
        .upstream("Controller Service [Controller Server] ControllerPublishVolume should fail when no volume capability is provided"),
    Row::new("ControllerPublishVolume of a nonexistent volume returns NotFound", spec::ATTACH_GONE, case!(unknown_volume))
        .needs(&[ATTACH])
        .upstream("Controller Service [Controller Server] ControllerPublishVolume should fail when the volume does not exist"),
    Row::new("ControllerPublishVolume of a deleted volume returns NotFound", spec::ATTACH_GONE, case!(deleted)).needs(&[ATTACH, CREATE]),
    Row::new("ControllerPublishVolume to a nonexistent node returns NotFound", spec::ATTACH_NO_NODE, case!(unknown_node))
        .needs(&[ATTACH, CREATE])
        .establishes(&[Effect::NodeChecked])
        .upstream("Controller Service [Controller Server] ControllerPublishVolume should fail when the node does not exist"),
    Row::new("ControllerPublishVolume called twice returns the same publish_context", spec::ATTACH_SAME, case!(twice))
        .also(&[spec::PUBLISH_CONTEXT_FIXED])
        .needs(&[ATTACH, CREATE])
        .establishes(&[Effect::AttachAgain])
        .each(),
    Row::new("ControllerPublishVolume returns a publish_context within the size limits", spec::LIMITS, case!(short_context)).needs(&[ATTACH, CREATE]),
    Row::new("ControllerPublishVolume with the readonly flag succeeds", spec::ATTACH_READONLY, case!(readonly)).needs(&[ATTACH, READONLY, CREATE, MOUNTS, PERSISTS]),
    Row::new("ControllerPublishVolume with a different readonly flag returns AlreadyExists", spec::ATTACH_OTHERWISE, case!(incompatible))
        .needs(&[ATTACH, READONLY, CREATE, MOUNTS, PERSISTS])
        .upstream("Controller Service [Controller Server] ControllerPublishVolume should fail when the volume is already published but is incompatible"),
    Row::new("ControllerPublishVolume beyond max_volumes_per_node returns ResourceExhausted", spec::ATTACH_FULL, case!(limit))
        .needs(&[ATTACH, CREATE])
        .alone(Alone::FillsNode)
        .upstream("Controller Service [Controller Server] ControllerPublishVolume should fail when publishing more volumes than the node max attach limit"),
    Row::new("ControllerPublishVolume of an attached volume to a second node returns FailedPrecondition", spec::ATTACH_ELSEWHERE, case!(second_node))
        .also(&[spec::ATTACH_NAMES_NODE])
        .needs(&[ATTACH, CREATE, Need::SecondNode]),
    Row::new("ControllerPublishVolume to another node after ControllerUnpublishVolume succeeds", spec::DETACH_NODE, case!(moves))
        .also(&[spec::DETACH_WORK, spec::ATTACH_ANYWHERE, spec::DETACH_ANYWHERE])
        .needs(&[ATTACH, CREATE, Need::SecondNode, MOUNTS, PERSISTS]),
    Row::new("ControllerUnpublishVolume without a volume_id returns InvalidArgument", spec::MISSING, case!(undo_no_volume))
        .needs(&[ATTACH])
        .upstream("Controller Service [Controller Server] ControllerUnpublishVolume should fail when no volume id is provided"),
    Row::new("ControllerUnpublishVolume of a volume that is not attached succeeds", spec::DETACH_DONE, case!(undo_unattached)).needs(&[ATTACH, CREATE]),
    Row::new("ControllerUnpublishVolume of a nonexistent volume succeeds or returns NotFound", spec::DETACH_GONE, case!(undo_unknown))
        .also(&[spec::DETACH_UNKNOWN])
        .needs(&[ATTACH]),
    Row::new("ControllerUnpublishVolume from a nonexistent node succeeds or returns NotFound", spec::DETACH_NO_NODE, case!(undo_unknown_node))
        .also(&[spec::DETACH_UNKNOWN])
        .needs(&[ATTACH, CREATE]),
    Row::new("ControllerUnpublishVolume without a node_id detaches the volume from all nodes", spec::DETACH_ALL, case!(undo_everywhere)).needs(&[ATTACH, CREATE]),
    Row::new("ControllerUnpublishVolume from another node leaves the volume attached", spec::DETACH_NODE, case!(undo_elsewhere))
        .needs(&[ATTACH, CREATE, MOUNTS]),
];

async fn no_volume(f: &Fixture) -> Result<()> {
    let request = f.attach_request(&Default::default(), f.access());
    f.controller_publish_volume(request).await.refused("ControllerPublishVolume without a volume_id", INVALID)
}

async fn no_node(f: &Fixture) -> Result<()> {
    let mut request = f.attach_request(&f.volume().await?, f.access());
    request.node_id.clear();
    f.controller_publish_volume(request).await.refused("ControllerPublishVolume without a node_id", INVALID)
}

async fn no_capability(f: &Fixture) -> Result<()> {
    let mut request = f.attach_request(&f.volume().await?, f.access());
    request.volume_capability = None;
    let answer = f.controller_publish_volume(request).await;
    answer.refused("ControllerPublishVolume without a volume_capability", INVALID)
}

async fn unknown_volume(f: &Fixture) -> Result<()> {
    let mut request = f.attach_request(&Default::default(), f.access());
    request.volume_id = f.unknown_volume();
    let answer = f.controller_publish_volume(request).await;
    answer.refused("ControllerPublishVolume of a volume that does not exist", NOT_FOUND)
}

async fn deleted(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    f.delete_volume(f.delete_request(&volume.volume_id)).await.works("DeleteVolume")?;
    let answer = f.controller_publish_volume(f.attach_request(&volume, f.access())).await;
    answer.refused("ControllerPublishVolume of a deleted volume", NOT_FOUND)
}

async fn unknown_node(f: &Fixture) -> Result<()> {
    let mut request = f.attach_request(&f.volume().await?, f.access());
    request.node_id = f.unknown_node();
    let answer = f.controller_publish_volume(request).await;
    answer.refused("ControllerPublishVolume to a node that does not exist", NOT_FOUND)
}

async fn twice(f: &Fixture) -> Result<()> {
    let request = f.attach_request(&f.volume().await?, f.access());
    let first = f.controller_publish_volume(request.clone()).await.works("ControllerPublishVolume")?;
    let again = f.controller_publish_volume(request).await.works("ControllerPublishVolume called again")?;
    if first.publish_context != again.publish_context {
        let differ = anyhow!("ControllerPublishVolume called twice returned two publish_contexts");
        return Err(breaking(differ, spec::PUBLISH_CONTEXT_FIXED));
    }
    Ok(())
}

async fn short_context(f: &Fixture) -> Result<()> {
    let request = f.attach_request(&f.volume().await?, f.access());
    let context =
        f.controller_publish_volume(request).await.works("ControllerPublishVolume")?.publish_context;
    let bytes: usize = context.iter().map(|(key, value)| key.len() + value.len()).sum();
    ensure!(
        bytes <= 4096,
        "ControllerPublishVolume returned a publish_context of {bytes} bytes, at most 4096 are allowed"
    );
    Ok(())
}

const TEXT: &str = "written while attached writable";

/// A new volume that contains a text, where data can be checked, on no node.
async fn with_text(f: &Fixture) -> Result<VolumeOnNode> {
    let volume = if f.writes() { f.holding(TEXT).await? } else { f.volume().await? };
    f.place(volume).await
}

/// Attaches a volume read-only.
async fn attach_readonly(f: &Fixture, placed: &mut VolumeOnNode) -> Result<()> {
    let mut request = f.attach_request(&placed.volume, placed.access);
    request.readonly = true;
    let attached = f.controller_publish_volume(request).await;
    placed.publish_context = attached.works("ControllerPublishVolume with readonly")?.publish_context;
    Ok(())
}

/// Checks that a volume that is attached read-only shows its data, and that nothing can be written to it. A driver may
/// reject a publication without the readonly flag instead, so that the flag is set then, as the kubelet does. Whether the
/// volume was published.
async fn is_readonly(f: &Fixture, placed: &VolumeOnNode, what: &str) -> Result<bool> {
    if !f.writes() {
        return Ok(false);
    }
    if placed.staging.is_some() {
        let staged = f.node_stage_volume(f.stage_request(placed)).await;
        if let Err(status) = staged {
            f.warn(format!("{what}: NodeStageVolume returns {}", status_text(&status)));
            return Ok(false);
        }
    }
    let mut request = f.publish_request(placed);
    if f.node_publish_volume(request.clone()).await.is_err() {
        request.readonly = true;
        f.node_publish_volume(request).await.works(&format!("NodePublishVolume with readonly, {what}"))?;
    }
    f.must_hold_throughout(placed, TEXT, what).await?;
    f.must_not_write(placed, 0).await.with_context(|| format!("{what}, volume {:?}", placed.id()))?;
    Ok(true)
}

async fn readonly(f: &Fixture) -> Result<()> {
    let mut placed = with_text(f).await?;
    attach_readonly(f, &mut placed).await?;
    if !is_readonly(f, &placed, "after ControllerPublishVolume with readonly").await? {
        return Ok(());
    }
    f.withdraw(&placed).await?;
    let what =
        "after ControllerPublishVolume without readonly of a volume that was attached read-only before";
    let placed = f.publish_all(placed.volume).await.context(what)?;
    f.write(&placed, 0, "writable again").await.context(what)?;
    f.withdraw(&placed).await
}

async fn incompatible(f: &Fixture) -> Result<()> {
    let attached = f.attached().await?;
    let mut request = f.attach_request(&attached.volume, attached.access);
    request.readonly = true;
    let answer = f.controller_publish_volume(request).await;
    let codes = [Code::AlreadyExists];
    answer.refused("ControllerPublishVolume with readonly of a volume published writable", &codes)?;
    f.detach(&attached).await?;

    let mut placed = with_text(f).await?;
    attach_readonly(f, &mut placed).await?;
    let answer = f.controller_publish_volume(f.attach_request(&placed.volume, placed.access)).await;
    answer.refused("ControllerPublishVolume without readonly of a volume published read-only", &codes)?;
    let what = "after ControllerPublishVolume with another readonly flag was rejected";
    is_readonly(f, &placed, what).await.map(drop)
}

async fn limit(f: &Fixture) -> Result<()> {
    let limit = f.node_info().max_volumes_per_node;
    if limit == 0 {
        return Err(skip("the node reports no limit (max_volumes_per_node is 0)"));
    }
    if limit > f.config().attach_limit {
        return Err(skip(format!("the node accepts {limit} volumes, more than --attach-limit")));
    }
    let (others, mut attached) = (others_here(f).await?, 0);
    for _ in 0..=limit {
        let request = f.attach_request(&f.volume().await?, f.access());
        match f.controller_publish_volume(request).await {
            Ok(_) => attached += 1,
            refused => {
                let what = "ControllerPublishVolume beyond max_volumes_per_node";
                refused.refused(what, &[Code::ResourceExhausted])?;
                return is_full(f, attached + others).await;
            }
        }
    }
    anyhow::bail!("max_volumes_per_node is {limit}, but {attached} volumes were attached to the node")
}

/// The volumes of others that are attached to the node, if the driver lists them.
async fn others_here(f: &Fixture) -> Result<i64> {
    if !f.has(LIST) || !f.has(LIST_NODES) {
        return Ok(0);
    }
    let node = &f.node_info().node_id;
    let entries = controller_list::all(f, 0).await?.into_iter();
    let here =
        entries.filter(|entry| entry.status.as_ref().is_some_and(|it| it.published_node_ids.contains(node)));
    Ok(i64::try_from(here.count()).unwrap_or(i64::MAX))
}

/// Checks that a node that rejects volumes has as many as it reports: what limits it may also have changed.
async fn is_full(f: &Fixture, attached: i64) -> Result<()> {
    let info = f.node_get_info(claimcheck_csi::v1::NodeGetInfoRequest {}).await.works("NodeGetInfo")?;
    let limit = info.max_volumes_per_node;
    ensure!(
        attached >= limit,
        "max_volumes_per_node of node {:?} is {limit}, but ControllerPublishVolume returned ResourceExhausted with \
         {attached} volumes attached",
        info.node_id
    );
    Ok(())
}

async fn second_node(f: &Fixture) -> Result<()> {
    f.must_be_single_node()?;
    let volume = f.volume().await?;
    // Its topology alone is a reason for FailedPrecondition.
    f.must_reach_second(&volume)?;
    let mut request = f.attach_request(&volume, f.access());
    f.controller_publish_volume(request.clone()).await.works("ControllerPublishVolume")?;
    let first = std::mem::replace(&mut request.node_id, f.second_node());
    let answer = f.controller_publish_volume(request.clone()).await;
    let named = answer.as_ref().map_or_else(|status| names(status, &first), |_| Ok(()));
    let what =
        format!("ControllerPublishVolume of a {} volume to a second node", f.driver().mode.as_str_name());
    answer.refused(&what, &[Code::FailedPrecondition])?;
    f.must_be_attached(&volume, "after ControllerPublishVolume to a second node was rejected").await?;
    if f.has(READONLY) {
        request.readonly = true;
        let answer = f.controller_publish_volume(request).await;
        answer.refused(&format!("{what} with the readonly flag"), &[Code::FailedPrecondition])?;
    }
    named.breaks(spec::ATTACH_NAMES_NODE)
}

impl Fixture {
    /// Skips a case about volumes that only one node may use, for a driver without such volumes.
    pub(super) fn must_be_single_node(&self) -> Result<()> {
        let mode = self.driver().mode.as_str_name();
        match self.is_single_node() {
            true => Ok(()),
            false => Err(skip(format!("the driver supports no volumes of a single node, only {mode}"))),
        }
    }

    /// Skips the case if an attached volume can be attached to the second node, which another case reports.
    pub(super) async fn skip_if_second_node_is_accepted(&self) -> Result<()> {
        let placed = self.attached().await?;
        match self.controller_publish_volume(self.attach_request_of_second(&placed.volume)).await {
            Ok(_) => Err(skip(
                "ControllerPublishVolume of an attached volume to a second node returns OK: see \
                 controller_publish::ControllerPublishVolume of an attached volume to a second node returns \
                 FailedPrecondition",
            )),
            Err(_) => Ok(()),
        }
    }
}

/// Checks that an error names the node that holds the volume.
fn names(status: &Status, node: &str) -> Result<()> {
    ensure!(
        status.message().contains(node),
        "ControllerPublishVolume to a second node returned {}, without the node_id {node:?} of the first",
        status_text(status)
    );
    Ok(())
}

async fn moves(f: &Fixture) -> Result<()> {
    let volume = with_text(f).await?.volume;
    f.must_reach_second(&volume)?;
    let mut request = f.attach_request(&volume, f.access());
    for node in [request.node_id.clone(), f.second_node(), request.node_id.clone()] {
        request.node_id.clone_from(&node);
        f.controller_publish_volume(request.clone())
            .await
            .works("ControllerPublishVolume to another node")?;
        let request = f.detach_request(&request.volume_id, &node);
        f.controller_unpublish_volume(request).await.works("ControllerUnpublishVolume")?;
    }
    if f.writes() {
        let what = "after ControllerUnpublishVolume from the first node, on the second one";
        let next = "written on the second node";
        let text = f.must_hold_on_second(&volume, [TEXT, next], what).await?;
        f.must_still_hold(&volume, text, &format!("back on the first node, in what was {text}")).await?;
    }
    Ok(())
}

async fn undo_no_volume(f: &Fixture) -> Result<()> {
    let request = f.detach_request("", &f.node_info().node_id);
    f.controller_unpublish_volume(request)
        .await
        .refused("ControllerUnpublishVolume without a volume_id", INVALID)
}

async fn undo_unattached(f: &Fixture) -> Result<()> {
    let request = f.detach_request(&f.volume().await?.volume_id, &f.node_info().node_id);
    let answer = f.controller_unpublish_volume(request).await;
    answer.works("ControllerUnpublishVolume of a volume that is not attached")?;
    Ok(())
}

/// Checks a detachment of what does not exist. NotFound is for a volume that may still be attached, which one that never
/// was cannot be: csi-attacher repeats the call after any error (pkg/controller/csi_handler.go).
fn detached<T>(answer: Result<T, Status>, what: &str) -> Result<()> {
    match answer {
        Err(status) if status.code() != Code::NotFound => Err::<T, _>(status).refused(what, NOT_FOUND),
        answer => answer.works(what).map(drop).breaks(spec::DETACH_UNKNOWN),
    }
}

async fn undo_unknown(f: &Fixture) -> Result<()> {
    // An id in the driver's format: it may take any other for one of which it does not know whether it is attached.
    let unknown = if f.has(CREATE) {
        let deleted = f.volume().await?.volume_id;
        f.delete_volume(f.delete_request(&deleted)).await.works("DeleteVolume")?;
        deleted
    } else {
        f.unknown_volume()
    };
    let request = f.detach_request(&unknown, &f.node_info().node_id);
    let answer = f.controller_unpublish_volume(request).await;
    detached(answer, "ControllerUnpublishVolume of a volume that does not exist")
}

async fn undo_unknown_node(f: &Fixture) -> Result<()> {
    let request = f.detach_request(&f.volume().await?.volume_id, &f.unknown_node());
    let answer = f.controller_unpublish_volume(request).await;
    detached(answer, "ControllerUnpublishVolume from a node that does not exist")
}

async fn undo_everywhere(f: &Fixture) -> Result<()> {
    let volume = f.attached().await?.volume;
    detach_all(f, &volume).await?;
    let detached = f.must_be_detached(&volume, "after ControllerUnpublishVolume without a node_id").await;
    let deletable = is_deletable(f, &volume, "one node").await;
    detached.and(deletable)?;
    let Some(shared) = f.attached_to_both().await? else { return Ok(()) };
    detach_all(f, &shared).await?;
    is_deletable(f, &shared, "two nodes").await
}

async fn detach_all(f: &Fixture, volume: &Volume) -> Result<()> {
    let answer = f.controller_unpublish_volume(f.detach_request(&volume.volume_id, "")).await;
    answer.works("ControllerUnpublishVolume without a node_id (from all nodes)")?;
    Ok(())
}

/// Checks that a volume that was detached from all nodes can be deleted.
async fn is_deletable(f: &Fixture, volume: &Volume, nodes: &str) -> Result<()> {
    let id = &volume.volume_id;
    let deleted = f.delete_volume(f.delete_request(id)).await;
    // Whatever the call has done: a volume that it left attached would fill the node for other cases.
    for node in [f.node_info().node_id.clone(), f.second_node()] {
        let _ = f.controller_unpublish_volume(f.detach_request(id, &node)).await;
    }
    deleted.works(&format!(
        "DeleteVolume of a volume detached from all nodes, which was attached to {nodes},"
    ))?;
    Ok(())
}

async fn undo_elsewhere(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let second =
        Some(f.second_node()).filter(|node| f.has(Need::SecondNode) && *node != f.node_info().node_id);
    for node in [f.unknown_node()].into_iter().chain(second) {
        // Another row checks the answer; the volume must remain attached.
        let _ = f.controller_unpublish_volume(f.detach_request(placed.id(), &node)).await;
    }
    let what = "after ControllerUnpublishVolume from another node";
    f.must_be_attached(&placed.volume, what).await?;
    f.stage(&placed).await?;
    f.publish(&placed).await?;
    if f.writes() {
        f.write(&placed, 0, "still attached").await.context(what)?;
    }
    f.withdraw(&placed).await?;
    let Some(shared) = f.attached_to_both().await? else { return Ok(()) };
    let answer = f.controller_unpublish_volume(f.detach_request(&shared.volume_id, &f.second_node())).await;
    answer.works("ControllerUnpublishVolume from one of two nodes")?;
    const CALL: &str = "ControllerGetVolume after ControllerUnpublishVolume from the other node";
    match f.published_nodes(&shared).await? {
        Some(nodes) => f.must_list(&nodes, &[&f.node_info().node_id], CALL),
        None => Ok(()),
    }
}
