//! Defects in the calls of a node.

use std::{
    future,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use claimcheck_csi::v1::{
    self, NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability,
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, VolumeCapability, VolumeUsage,
    node_server::Node,
    node_service_capability::{Rpc, Type, rpc},
    volume_capability::AccessType,
    volume_usage::Unit,
};
use rustix::process::{Signal, getpid, kill_process};
use tonic::{Code, Request, Response, Status};
use tracing::warn;

use super::{
    Defect, Defective,
    service::{Answer, done, serve},
};
use crate::{parameters::Kind, tokens, volume::Usage};

/// How long a mount takes after NodePublishVolume, with [`Defect::PublishBeforeMount`].
const LATE: Duration = Duration::from_secs(1);

serve! { Node {
    altered {
        node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse;
        node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
        node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse;
        node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
        node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
        node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
        node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
        node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
    }
    sound {}
} }

impl Defective {
    /// The node's use of a volume.
    fn usage(&self, volume_id: &str) -> Option<Usage> {
        Some(self.volume(volume_id)?.usage(self.sound.node_id()).cloned().unwrap_or_default())
    }

    /// The file by which a defect remembers the use of a volume, also after a restart.
    fn record(&self, volume_id: &str, use_of_it: &str) -> Option<PathBuf> {
        Some(self.sound.store.dir(&self.volume(volume_id)?.id).join(use_of_it))
    }

    /// Recreates an entry at `path` after it was removed.
    fn stand_again(&self, path: &str, source: Option<&Path>) {
        let path = Path::new(path);
        let host = &self.sound.host;
        let stands =
            host.make_dir(path, 0o750).and_then(|()| source.map_or(Ok(()), |it| host.bind(it, path)));
        if let Err(error) = stands {
            warn!(%error, path = %path.display(), "the defect cannot be triggered");
        }
    }
}

/// The capability without `volume_mount_group`.
fn without_group(capability: Option<&mut VolumeCapability>) {
    if let Some(AccessType::Mount(mount)) = capability.and_then(|it| it.access_type.as_mut()) {
        mount.volume_mount_group.clear();
    }
}

fn is_block(capability: Option<&VolumeCapability>) -> bool {
    matches!(capability.and_then(|it| it.access_type.as_ref()), Some(AccessType::Block(_)))
}

async fn node_get_info(d: &Defective, request: NodeGetInfoRequest) -> Answer<NodeGetInfoResponse> {
    let mut answer = d.sound.node_get_info(Request::new(request)).await?;
    if d.defect == Defect::LimitOffByOne && answer.get_ref().max_volumes_per_node > 1 {
        answer.get_mut().max_volumes_per_node -= 1;
    }
    Ok(answer)
}

async fn node_get_capabilities(
    d: &Defective,
    request: NodeGetCapabilitiesRequest,
) -> Answer<NodeGetCapabilitiesResponse> {
    let mut answer = d.sound.node_get_capabilities(Request::new(request)).await?;
    if d.defect == Defect::FsGroupIgnored {
        let rpc = Rpc { r#type: rpc::Type::VolumeMountGroup.into() };
        answer.get_mut().capabilities.push(NodeServiceCapability { r#type: Some(Type::Rpc(rpc)) });
    }
    Ok(answer)
}

async fn node_stage_volume(
    d: &Defective,
    mut request: NodeStageVolumeRequest,
) -> Answer<NodeStageVolumeResponse> {
    if d.defect == Defect::FsGroupIgnored {
        without_group(request.volume_capability.as_mut());
    }
    let id = request.volume_id.clone();
    let directory = !is_block(request.volume_capability.as_ref());
    let again = d.usage(&id).is_some_and(|usage| usage.staged.is_some());
    match d.defect {
        Defect::StageTrustsRecord if d.record(&id, "staged").is_some_and(|record| record.exists()) => {
            return done();
        }
        Defect::StageFormatsOther if !again => return stage_formatted(d, request).await,
        Defect::StageForgotten => {
            return d.cancellable(id, d.sound.node_stage_volume(Request::new(request))).await;
        }
        _ => {}
    }
    let answer = d.sound.node_stage_volume(Request::new(request)).await?;
    match d.defect {
        Defect::LoopLeak if directory => d.leak_loop(&id),
        Defect::StageTwiceTwoLoops if directory && again => d.leak_loop(&id),
        Defect::StageTrustsRecord => {
            if let Some(Err(error)) = d.record(&id, "staged").map(|record| std::fs::write(record, "")) {
                warn!(%error, "the defect cannot be triggered");
            }
        }
        _ => {}
    }
    Ok(answer)
}

/// Stages a volume; one with another file system than the requested one is emptied, so that it is formatted.
async fn stage_formatted(d: &Defective, request: NodeStageVolumeRequest) -> Answer<NodeStageVolumeResponse> {
    let volume = d.volume(&request.volume_id).filter(|volume| volume.kind == Kind::Image);
    match (d.sound.node_stage_volume(Request::new(request.clone())).await, volume) {
        (Err(status), Some(volume)) if status.code() == Code::FailedPrecondition => {
            let image = d.sound.store.content(&volume.id, volume.kind);
            let host = &d.sound.host;
            let emptied =
                host.remove_file(&image).and_then(|()| host.make_sparse(&image, volume.capacity_bytes));
            emptied.map_err(|error| Status::internal(error.to_string()))?;
            d.sound.node_stage_volume(Request::new(request)).await
        }
        (answer, _) => answer,
    }
}

async fn node_unstage_volume(
    d: &Defective,
    request: NodeUnstageVolumeRequest,
) -> Answer<NodeUnstageVolumeResponse> {
    if d.defect == Defect::StageForgotten && d.memory().cancelled.contains(&request.volume_id) {
        return done();
    }
    let path = request.staging_target_path.clone();
    let volume = d.volume(&request.volume_id);
    let staged = d.usage(&request.volume_id).map(|usage| usage.staged);
    let record = d.record(&request.volume_id, "staged");
    if d.defect == Defect::UnstageRepeatFails && staged == Some(None) {
        return Err(Status::internal(format!("unmount {path}: not mounted")));
    }
    let answer = d.sound.node_unstage_volume(Request::new(request)).await?;
    if let (Defect::UnstageEmptiesByPrefix, Some(volume)) = (d.defect, &volume) {
        d.longer_names(volume).iter().for_each(|other| d.empty(other));
    }
    if let (Defect::MountLeftAfterUnstage, Some(Some(staging)), Some(volume)) = (d.defect, staged, volume)
        && !staging.access.is_block()
    {
        let content = d.sound.store.content(&volume.id, volume.kind);
        let content = if content.is_dir() { content } else { d.sound.store.dir(&volume.id) };
        d.stand_again(&path, Some(&content));
    }
    if let (Defect::StageTrustsRecord, Some(record)) = (d.defect, record) {
        let _ = std::fs::remove_file(record);
    }
    Ok(answer)
}

async fn node_publish_volume(
    d: &Defective,
    mut request: NodePublishVolumeRequest,
) -> Answer<NodePublishVolumeResponse> {
    let target = request.target_path.clone();
    match d.defect {
        Defect::RequestsLogged => tracing::info!(?request, "NodePublishVolume"),
        Defect::ReadOnlyIgnored => request.readonly = false,
        Defect::FsGroupIgnored => without_group(request.volume_capability.as_mut()),
        Defect::ExpiredTokenAccepted => {
            [&mut request.volume_context, &mut request.secrets].into_iter().for_each(tokens::renew);
        }
        Defect::PublishBeforeMount => return publish_late(d, request).await,
        _ => {}
    }
    let there = d.volume(&request.volume_id).is_some();
    let staging = PathBuf::from(&request.staging_target_path);
    let record = d.record(&request.volume_id, "staged");
    let published = d.record(&request.volume_id, "published");
    match d.sound.node_publish_volume(Request::new(request)).await {
        Ok(answer) if d.defect == Defect::UnpublishRequiresMount => {
            if let Some(Err(error)) = published.map(|record| std::fs::write(record, target)) {
                warn!(%error, "the defect cannot be triggered");
            }
            Ok(answer)
        }
        Err(status)
            if d.defect == Defect::StageTrustsRecord
                && status.code() == Code::FailedPrecondition
                && record.is_some_and(|record| record.exists()) =>
        {
            d.stand_again(&target, Some(&staging));
            done()
        }
        Err(status)
            if d.defect == Defect::PublishWithoutStage
                && there
                && status.code() == Code::FailedPrecondition =>
        {
            d.stand_again(&target, None);
            done()
        }
        answer => answer,
    }
}

/// Validates the request, and publishes the volume after the response.
async fn publish_late(d: &Defective, request: NodePublishVolumeRequest) -> Answer<NodePublishVolumeResponse> {
    let is_published = |usage: Usage| usage.published.contains_key(Path::new(&request.target_path));
    let again = d.usage(&request.volume_id).is_some_and(is_published);
    let answer = d.sound.node_publish_volume(Request::new(request.clone())).await?;
    if again {
        return Ok(answer);
    }
    let undo = NodeUnpublishVolumeRequest {
        volume_id: request.volume_id.clone(),
        target_path: request.target_path.clone(),
    };
    d.sound.node_unpublish_volume(Request::new(undo)).await?;
    let driver = d.sound.clone();
    tokio::spawn(async move {
        tokio::time::sleep(LATE).await;
        if let Err(status) = driver.node_publish_volume(Request::new(request)).await {
            warn!(%status, "the delayed publication failed");
        }
    });
    Ok(answer)
}

async fn node_unpublish_volume(
    d: &Defective,
    request: NodeUnpublishVolumeRequest,
) -> Answer<NodeUnpublishVolumeResponse> {
    let path = request.target_path.clone();
    let (volume, usage) = (d.volume(&request.volume_id), d.usage(&request.volume_id));
    let grant = usage.as_ref().and_then(|usage| usage.published.get(Path::new(&path)));
    if d.defect == Defect::UnpublishRepeatFails && usage.is_some() && grant.is_none() {
        return Err(Status::internal(format!("unmount {path}: not mounted")));
    }
    let record = d.record(&request.volume_id, "published");
    let recorded =
        record.as_ref().is_some_and(|record| std::fs::read_to_string(record).is_ok_and(|it| it == path));
    let lost = recorded && matches!(d.sound.host.mounted(Path::new(&path)), Ok(None));
    if d.defect == Defect::UnpublishRequiresMount && lost {
        return Err(Status::internal(format!("unmount {path}: not mounted")));
    }
    let directory = grant.is_some_and(|grant| !grant.access.is_block());
    let answer = d.sound.node_unpublish_volume(Request::new(request)).await?;
    match d.defect {
        Defect::MountLeftAfterUnpublish if directory => {
            let staged = usage.and_then(|usage| usage.staged).map(|staging| staging.path);
            d.stand_again(&path, staged.as_deref());
        }
        Defect::UnpublishEmptiesInline => {
            volume.iter().filter(|volume| volume.name.starts_with("csi")).for_each(|volume| d.empty(volume));
        }
        Defect::TargetLeft if directory => d.stand_again(&path, None),
        // Not after a successful call, so that a repeated one succeeds.
        Defect::UnpublishRequiresMount if recorded => {
            record.iter().for_each(|record| drop(std::fs::remove_file(record)));
        }
        _ => {}
    }
    Ok(answer)
}

async fn node_get_volume_stats(
    d: &Defective,
    request: NodeGetVolumeStatsRequest,
) -> Answer<NodeGetVolumeStatsResponse> {
    let path = request.volume_path.clone();
    let there = d.volume(&request.volume_id).is_some();
    if !there && !request.volume_id.is_empty() {
        match d.defect {
            Defect::CrashInCall => process::abort(),
            Defect::HangInCall => {
                // It cannot fail: every process may stop itself. But it stops a moment later, when the kernel has
                // notified all threads, and this one would answer meanwhile.
                let _ = kill_process(getpid(), Signal::STOP);
                future::pending::<()>().await;
            }
            _ => {}
        }
    }
    let key = format!("{} {path}", request.volume_id);
    let mut answer = d.sound.node_get_volume_stats(Request::new(request)).await;
    if let (Defect::InodesUnlimited, Ok(answer)) = (d.defect, &mut answer) {
        let usages = &mut answer.get_mut().usage;
        usages.retain(|usage| usage.unit() != Unit::Inodes);
        usages.push(VolumeUsage {
            unit: Unit::Inodes.into(),
            total: i64::MAX,
            used: 1,
            available: i64::MAX - 1,
        });
    }
    if let (Defect::StatsRemembered, Ok(answer)) = (d.defect, &mut answer) {
        remember(d, key, &mut answer.get_mut().usage);
    }
    if d.defect != Defect::StatsOfAnotherVolume || answer.is_ok() || !there || path.is_empty() {
        return answer;
    }
    let Ok(usage) = d.sound.host.usage(Path::new(&path)) else { return answer };
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let usage = VolumeUsage {
        unit: Unit::Bytes.into(),
        total: signed(usage.total_bytes),
        used: signed(usage.used_bytes),
        available: signed(usage.available_bytes),
    };
    Ok(Response::new(NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition: None }))
}

/// Replaces the totals by those of the first answer.
fn remember(d: &Defective, key: String, usage: &mut [VolumeUsage]) {
    let mut memory = d.memory();
    let first = memory.statistics.entry(key).or_insert_with(|| usage.to_vec());
    for (now, first) in usage.iter_mut().zip(first) {
        now.total = first.total;
        now.available = now.available.min(now.total - now.used);
    }
}

async fn node_expand_volume(
    d: &Defective,
    request: NodeExpandVolumeRequest,
) -> Answer<NodeExpandVolumeResponse> {
    let there = d.usage(&request.volume_id).is_some_and(|usage| {
        usage.volume_mode_at(Path::new(&request.volume_path)).is_some() && usage.staged.is_some()
    });
    if d.defect == Defect::ExpandForgetsFilesystem && there {
        let capacity_bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
        return Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes }));
    }
    d.sound.node_expand_volume(Request::new(request)).await
}
