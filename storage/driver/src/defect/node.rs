//! Defects in the calls of a node.

use std::{
    future,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use claimcheck_csi::v1::{
    self, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, VolumeCapability,
    node_server::Node, volume_capability::AccessType,
};
use rustix::process::{Signal, getpid, kill_process};
use tonic::{Code, Request, Status};
use tracing::warn;

use super::{
    Defect, Defective,
    service::{Answer, done, serve},
};
use crate::{parameters::Kind, volume::Usage};

/// How long a mount takes after NodePublishVolume, with [`Defect::PublishBeforeMount`].
const LATE: Duration = Duration::from_secs(1);

serve! { Node {
    altered {
        node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse;
        node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
        node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
        node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
        node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
    }
    sound {
        node_get_info(NodeGetInfoRequest) -> v1::NodeGetInfoResponse;
        node_get_capabilities(NodeGetCapabilitiesRequest) -> v1::NodeGetCapabilitiesResponse;
        node_expand_volume(NodeExpandVolumeRequest) -> v1::NodeExpandVolumeResponse;
    }
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

    /// Mounts a directory at `path` after the mount there was removed.
    fn mount_again(&self, path: &Path, source: &Path) {
        let host = &self.sound.host;
        if let Err(error) = host.make_dir(path, 0o750).and_then(|()| host.bind(source, path)) {
            warn!(%error, path = %path.display(), "the defect cannot be triggered");
        }
    }
}

fn is_block(capability: Option<&VolumeCapability>) -> bool {
    matches!(capability.and_then(|it| it.access_type.as_ref()), Some(AccessType::Block(_)))
}

async fn node_stage_volume(
    d: &Defective,
    request: NodeStageVolumeRequest,
) -> Answer<NodeStageVolumeResponse> {
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
        Defect::LoopLeak => d.leak_loop(&id),
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
    let record = d.record(&request.volume_id, "staged");
    let answer = d.sound.node_unstage_volume(Request::new(request)).await?;
    if let (Defect::StageTrustsRecord, Some(record)) = (d.defect, record) {
        let _ = std::fs::remove_file(record);
    }
    Ok(answer)
}

async fn node_publish_volume(
    d: &Defective,
    request: NodePublishVolumeRequest,
) -> Answer<NodePublishVolumeResponse> {
    if d.defect == Defect::PublishBeforeMount {
        return publish_late(d, request).await;
    }
    let target = request.target_path.clone();
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
            d.mount_again(Path::new(&target), &staging);
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
    let record =
        d.record(&request.volume_id, "published").filter(|_| d.defect == Defect::UnpublishRequiresMount);
    let recorded =
        record.as_ref().is_some_and(|record| std::fs::read_to_string(record).is_ok_and(|it| it == path));
    if recorded && matches!(d.sound.host.mounted(Path::new(&path)), Ok(None)) {
        return Err(Status::internal(format!("unmount {path}: not mounted")));
    }
    let answer = d.sound.node_unpublish_volume(Request::new(request)).await?;
    // Not after a successful call, so that a repeated one succeeds.
    record.iter().filter(|_| recorded).for_each(|record| drop(std::fs::remove_file(record)));
    Ok(answer)
}

async fn node_get_volume_stats(
    d: &Defective,
    request: NodeGetVolumeStatsRequest,
) -> Answer<NodeGetVolumeStatsResponse> {
    if d.volume(&request.volume_id).is_none() && !request.volume_id.is_empty() {
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
    d.sound.node_get_volume_stats(Request::new(request)).await
}
