//! ControllerPublishVolume and ControllerUnpublishVolume.

use anyhow::{Result, anyhow, ensure};
use claimcheck_csi::{Code, Status};
use claimcheck_engine::skip;

use super::{ATTACH, CREATE, READONLY, case};
use crate::{
    alone::Alone,
    case::Row,
    effect::Effect,
    expect::{Answer, INVALID, NOT_FOUND, status_text},
    fixture::Fixture,
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
    Row::new("ControllerPublishVolume with the readonly flag succeeds", spec::ATTACH_READONLY, case!(readonly)).needs(&[ATTACH, READONLY, CREATE]),
    Row::new("ControllerPublishVolume with a different readonly flag returns AlreadyExists", spec::ATTACH_OTHERWISE, case!(incompatible))
        .needs(&[ATTACH, READONLY, CREATE])
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
        .needs(&[ATTACH, CREATE, Need::SecondNode]),
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
        .needs(&[ATTACH, CREATE, Need::Controller(claimcheck_csi::v1::controller_service_capability::rpc::Type::GetVolume)]),
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

async fn readonly(f: &Fixture) -> Result<()> {
    let mut request = f.attach_request(&f.volume().await?, f.access());
    request.readonly = true;
    f.controller_publish_volume(request).await.works("ControllerPublishVolume with readonly")?;
    Ok(())
}

async fn incompatible(f: &Fixture) -> Result<()> {
    let mut request = f.attach_request(&f.volume().await?, f.access());
    f.controller_publish_volume(request.clone()).await.works("ControllerPublishVolume")?;
    request.readonly = true;
    let answer = f.controller_publish_volume(request).await;
    answer.refused(
        "ControllerPublishVolume with readonly of a volume published writable",
        &[Code::AlreadyExists],
    )
}

async fn limit(f: &Fixture) -> Result<()> {
    let limit = f.node_info().max_volumes_per_node;
    if limit == 0 {
        return Err(skip("the node reports no limit (max_volumes_per_node is 0)"));
    }
    if limit > f.config().attach_limit {
        return Err(skip(format!("the node accepts {limit} volumes, more than --attach-limit")));
    }
    let mut attached = 0;
    for _ in 0..=limit {
        let request = f.attach_request(&f.volume().await?, f.access());
        match f.controller_publish_volume(request).await {
            Ok(_) => attached += 1,
            refused => {
                return refused.refused(
                    "ControllerPublishVolume beyond max_volumes_per_node",
                    &[Code::ResourceExhausted],
                );
            }
        }
    }
    anyhow::bail!("max_volumes_per_node is {limit}, but {attached} volumes were attached to the node")
}

async fn second_node(f: &Fixture) -> Result<()> {
    let mut request = f.attach_request(&f.volume().await?, f.access());
    f.controller_publish_volume(request.clone()).await.works("ControllerPublishVolume")?;
    let first = std::mem::replace(&mut request.node_id, second(f));
    let answer = f.controller_publish_volume(request).await;
    let named = answer.as_ref().map_or_else(|status| names(status, &first), |_| Ok(()));
    answer.refused(
        "ControllerPublishVolume of a SINGLE_NODE_WRITER volume to a second node",
        &[Code::FailedPrecondition],
    )?;
    named.breaks(spec::ATTACH_NAMES_NODE)
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

fn second(f: &Fixture) -> String {
    f.capabilities().second.clone().unwrap_or_default().node_id
}

async fn moves(f: &Fixture) -> Result<()> {
    let mut request = f.attach_request(&f.volume().await?, f.access());
    for node in [request.node_id.clone(), second(f), request.node_id.clone()] {
        request.node_id.clone_from(&node);
        f.controller_publish_volume(request.clone())
            .await
            .works("ControllerPublishVolume to another node")?;
        let request = f.detach_request(&request.volume_id, &node);
        f.controller_unpublish_volume(request).await.works("ControllerUnpublishVolume")?;
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
    let request = f.detach_request(&f.unknown_volume(), &f.node_info().node_id);
    let answer = f.controller_unpublish_volume(request).await;
    detached(answer, "ControllerUnpublishVolume of a volume that does not exist")
}

async fn undo_unknown_node(f: &Fixture) -> Result<()> {
    let request = f.detach_request(&f.volume().await?.volume_id, &f.unknown_node());
    let answer = f.controller_unpublish_volume(request).await;
    detached(answer, "ControllerUnpublishVolume from a node that does not exist")
}

async fn undo_everywhere(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let answer = f.controller_unpublish_volume(f.detach_request(placed.id(), "")).await;
    answer.works("ControllerUnpublishVolume without a node_id (from all nodes)")?;
    f.delete_volume(f.delete_request(placed.id()))
        .await
        .works("DeleteVolume of a volume detached from all nodes")?;
    Ok(())
}

async fn undo_elsewhere(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    // Another row checks the answer; the volume must remain attached.
    let _ = f.controller_unpublish_volume(f.detach_request(placed.id(), &f.unknown_node())).await;
    if f.has(super::LIST_NODES) {
        let nodes = f.get(placed.id()).await?.status.unwrap_or_default().published_node_ids;
        ensure!(
            !nodes.is_empty(),
            "ControllerUnpublishVolume from an unknown node detached the volume from its node"
        );
    }
    Ok(())
}
