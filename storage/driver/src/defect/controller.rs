//! Defects in the calls of the controller.

use claimcheck_csi::v1::{
    self, ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse, GetSnapshotRequest,
    GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse, controller_server::Controller,
};
use tonic::Request;

use super::{
    Defect, Defective,
    service::{Answer, done, serve},
};

serve! { Controller {
    altered {
        controller_publish_volume(ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse;
        controller_unpublish_volume(ControllerUnpublishVolumeRequest) -> ControllerUnpublishVolumeResponse;
        create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse;
        list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse;
        get_snapshot(GetSnapshotRequest) -> GetSnapshotResponse;
    }
    sound {
        controller_get_capabilities(ControllerGetCapabilitiesRequest) -> v1::ControllerGetCapabilitiesResponse;
        create_volume(CreateVolumeRequest) -> v1::CreateVolumeResponse;
        delete_volume(DeleteVolumeRequest) -> v1::DeleteVolumeResponse;
        validate_volume_capabilities(ValidateVolumeCapabilitiesRequest)
            -> v1::ValidateVolumeCapabilitiesResponse;
        list_volumes(ListVolumesRequest) -> v1::ListVolumesResponse;
        get_capacity(GetCapacityRequest) -> v1::GetCapacityResponse;
        delete_snapshot(DeleteSnapshotRequest) -> v1::DeleteSnapshotResponse;
        controller_expand_volume(ControllerExpandVolumeRequest) -> v1::ControllerExpandVolumeResponse;
        controller_get_volume(ControllerGetVolumeRequest) -> v1::ControllerGetVolumeResponse;
        controller_modify_volume(ControllerModifyVolumeRequest) -> v1::ControllerModifyVolumeResponse;
    }
} }

async fn controller_publish_volume(
    d: &Defective,
    request: ControllerPublishVolumeRequest,
) -> Answer<ControllerPublishVolumeResponse> {
    let id = request.volume_id.clone();
    let call = d.sound.controller_publish_volume(Request::new(request));
    if d.defect == Defect::AttachForgotten { d.cancellable(id, call).await } else { call.await }
}

async fn controller_unpublish_volume(
    d: &Defective,
    request: ControllerUnpublishVolumeRequest,
) -> Answer<ControllerUnpublishVolumeResponse> {
    if d.defect == Defect::AttachForgotten && d.memory().cancelled.contains(&request.volume_id) {
        return done();
    }
    d.sound.controller_unpublish_volume(Request::new(request)).await
}

/// A snapshot as callers see it.
fn distort(d: &Defective, snapshot: Option<&mut v1::Snapshot>) {
    let time = snapshot.and_then(|snapshot| snapshot.creation_time.as_mut());
    if let (Defect::TimeInMilliseconds, Some(time)) = (d.defect, time) {
        (time.seconds, time.nanos) = (time.seconds * 1000 + i64::from(time.nanos) / 1_000_000, 0);
    }
}

async fn create_snapshot(d: &Defective, request: CreateSnapshotRequest) -> Answer<CreateSnapshotResponse> {
    let mut answer = Controller::create_snapshot(&d.sound, Request::new(request)).await?;
    distort(d, answer.get_mut().snapshot.as_mut());
    Ok(answer)
}

async fn list_snapshots(d: &Defective, request: ListSnapshotsRequest) -> Answer<ListSnapshotsResponse> {
    let mut answer = Controller::list_snapshots(&d.sound, Request::new(request)).await?;
    answer.get_mut().entries.iter_mut().for_each(|entry| distort(d, entry.snapshot.as_mut()));
    Ok(answer)
}

async fn get_snapshot(d: &Defective, request: GetSnapshotRequest) -> Answer<GetSnapshotResponse> {
    let mut answer = Controller::get_snapshot(&d.sound, Request::new(request)).await?;
    distort(d, answer.get_mut().snapshot.as_mut());
    Ok(answer)
}
