//! The Controller service: creates, deletes and attaches volumes. One file per pair of calls.

mod content;
mod create;
mod delete;
mod expand;
mod groups;
mod list;
mod modify;
mod page;
mod publish;
mod snapshots;

use claimcheck_csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeRequest, ControllerGetVolumeResponse,
    ControllerModifyVolumeRequest, ControllerModifyVolumeResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerServiceCapability, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse, CreateVolumeRequest,
    CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse,
    ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, controller_server::Controller,
    controller_service_capability,
};
use tonic::{Request, Response, Status, async_trait};

use crate::{capability::Capability, driver::Driver};

type Answer<T> = Result<Response<T>, Status>;

#[async_trait]
impl Controller for Driver {
    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Answer<ControllerGetCapabilitiesResponse> {
        let capabilities = self.config.capabilities.controller();
        let capabilities = capabilities
            .map(|rpc| ControllerServiceCapability {
                r#type: Some(controller_service_capability::Type::Rpc(controller_service_capability::Rpc {
                    r#type: rpc.into(),
                })),
            })
            .collect();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume(&self, request: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        self.config.capabilities.demand(Capability::CreateDeleteVolume)?;
        self.call(|driver| driver.create(request.into_inner())).await
    }

    async fn delete_volume(&self, request: Request<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        self.config.capabilities.demand(Capability::CreateDeleteVolume)?;
        self.call(|driver| driver.delete(request.into_inner())).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Answer<ControllerPublishVolumeResponse> {
        self.config.capabilities.demand(Capability::PublishUnpublishVolume)?;
        self.call(|driver| driver.attach(request.into_inner())).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Answer<ControllerUnpublishVolumeResponse> {
        self.config.capabilities.demand(Capability::PublishUnpublishVolume)?;
        self.call(|driver| driver.detach(request.into_inner())).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<ValidateVolumeCapabilitiesResponse> {
        self.call(|driver| driver.validate(request.into_inner())).await
    }

    async fn list_volumes(&self, request: Request<ListVolumesRequest>) -> Answer<ListVolumesResponse> {
        self.config.capabilities.demand(Capability::ListVolumes)?;
        self.call(|driver| driver.list(request.into_inner())).await
    }

    async fn get_capacity(&self, request: Request<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        self.config.capabilities.demand(Capability::GetCapacity)?;
        self.call(|driver| driver.capacity(request.into_inner())).await
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Answer<CreateSnapshotResponse> {
        self.config.capabilities.demand(Capability::CreateDeleteSnapshot)?;
        self.call(|driver| driver.create_snapshot(request.into_inner())).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Answer<DeleteSnapshotResponse> {
        self.config.capabilities.demand(Capability::CreateDeleteSnapshot)?;
        self.call(|driver| driver.delete_snapshot(request.into_inner())).await
    }

    async fn list_snapshots(&self, request: Request<ListSnapshotsRequest>) -> Answer<ListSnapshotsResponse> {
        self.config.capabilities.demand(Capability::ListSnapshots)?;
        self.call(|driver| driver.list_snapshots(request.into_inner())).await
    }

    async fn get_snapshot(&self, request: Request<GetSnapshotRequest>) -> Answer<GetSnapshotResponse> {
        self.config.capabilities.demand(Capability::GetSnapshot)?;
        self.call(|driver| driver.get_snapshot(request.into_inner())).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Answer<ControllerExpandVolumeResponse> {
        self.config.capabilities.demand(Capability::ExpandVolume)?;
        self.call(|driver| driver.expand(request.into_inner())).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Answer<ControllerGetVolumeResponse> {
        self.config.capabilities.demand(Capability::GetVolume)?;
        self.call(|driver| driver.get(request.into_inner())).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Answer<ControllerModifyVolumeResponse> {
        self.config.capabilities.demand(Capability::ModifyVolume)?;
        self.call(|driver| driver.modify(request.into_inner())).await
    }
}
