//! The Node service: mounts volumes as directories or devices on this node. One file per pair of calls.

mod block;
pub(crate) mod ephemeral;
mod expand;
mod paths;
mod publish;
mod stage;
mod stats;

use std::path::{Path, PathBuf};

use claimcheck_csi::v1::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability,
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, node_server::Node, node_service_capability,
};
use tonic::{Request, Response, Status, async_trait};

use crate::{
    capability::Capability,
    driver::Driver,
    error::{Doing, Error, Result},
    host::Mounted,
    mount_options::MountOptions,
    parameters::Kind,
    volume::{Volume, VolumeId},
};

type Answer<T> = std::result::Result<Response<T>, Status>;

#[async_trait]
impl Node for Driver {
    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Answer<NodeGetInfoResponse> {
        self.call(|driver| {
            Ok(NodeGetInfoResponse {
                node_id: driver.node_id().to_string(),
                max_volumes_per_node: driver.limit()?.try_into().unwrap_or(i64::MAX),
                accessible_topology: driver.config.topology.to_csi(),
            })
        })
        .await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Answer<NodeGetCapabilitiesResponse> {
        let capabilities = self.config.capabilities.node();
        let capabilities = capabilities
            .map(|rpc| NodeServiceCapability {
                r#type: Some(node_service_capability::Type::Rpc(node_service_capability::Rpc {
                    r#type: rpc.into(),
                })),
            })
            .collect();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Answer<NodeStageVolumeResponse> {
        self.config.capabilities.demand(Capability::StageUnstageVolume)?;
        self.call(|driver| driver.stage(request.into_inner())).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Answer<NodeUnstageVolumeResponse> {
        self.config.capabilities.demand(Capability::StageUnstageVolume)?;
        self.call(|driver| driver.unstage(request.into_inner())).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Answer<NodePublishVolumeResponse> {
        self.call(|driver| driver.publish(request.into_inner())).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Answer<NodeUnpublishVolumeResponse> {
        self.call(|driver| driver.unpublish(request.into_inner())).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Answer<NodeGetVolumeStatsResponse> {
        self.config.capabilities.demand(Capability::GetVolumeStats)?;
        self.call(|driver| driver.stats(request.into_inner())).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Answer<NodeExpandVolumeResponse> {
        self.config.capabilities.demand(Capability::ExpandVolume)?;
        self.call(|driver| driver.expand_on_node(request.into_inner())).await
    }
}

// What staging and publishing share: recognising, making and undoing mounts of a volume.
impl Driver {
    /// The mount at `path`, if it is this volume; any other mount there is an error, since mounting over it or
    /// unmounting it would disrupt its user. A mount stays the volume's if its content is deleted below it.
    pub(crate) fn mounted_volume(&self, volume: &Volume, path: &Path) -> Result<Option<Mounted>> {
        let Some(mounted) = self.host.mounted(path).doing("look at", path)? else { return Ok(None) };
        let name = self.store.content(&volume.id, volume.kind);
        let content = self.host.file_id(&name).doing("look at", &name)?;
        let shown = match volume.kind {
            Kind::Directory => Some(mounted.root),
            Kind::Image => mounted.backing.map(|backing| backing.file),
        };
        if shown.is_some() && shown == content {
            return Ok(Some(mounted));
        }
        // The kernel's names may begin in another mount namespace, so only their ends can be compared.
        let tail: PathBuf = name.components().skip(name.components().count().saturating_sub(2)).collect();
        let deleted = self.host.deleted_at(path).doing("look at", path)?;
        if deleted.iter().any(|deleted| deleted.ends_with(&tail)) {
            return Ok(Some(mounted));
        }
        Err(Error::Precondition(format!(
            "something other than volume {} is mounted at {}; unmount it there",
            volume.id,
            path.display()
        )))
    }

    /// The maximum number of volumes that NodeGetInfo reports; 0 for no limit.
    fn limit(&self) -> Result<u64> {
        let limit = self.config.max_volumes_per_node;
        if limit == 0 || !self.config.volumes_lower_limit {
            return Ok(limit);
        }
        let volumes = self.store.ids::<VolumeId>()?.len();
        // 0 would be no limit.
        Ok(limit.saturating_sub(volumes.try_into().unwrap_or(u64::MAX)).max(1))
    }

    /// Bind mounts the directory `source` at `target`, with the flags of `options`.
    fn bind(&self, volume: &Volume, source: &Path, target: &Path, options: &MountOptions) -> Result<()> {
        if self.mounted_volume(volume, target)?.is_none() {
            self.host.bind(source, target).doing("bind mount the volume at", target)?;
        }
        // A bind mount accepts no flags when it is made. The record has the desired ones, so a crash
        // between the two steps is made good by the repeat.
        if !options.point.is_empty() {
            self.host.remount_bind(target, options).doing("set the mount flags of", target)?;
        }
        Ok(())
    }

    /// Unmounts the volume from `path`, however many times it is mounted there.
    fn unmount(&self, volume: &Volume, path: &Path) -> Result<()> {
        while self.mounted_volume(volume, path)?.is_some() {
            self.host.unmount(path).doing("unmount", path)?;
        }
        Ok(())
    }
}
