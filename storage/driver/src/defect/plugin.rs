//! Defects in the services other than controller and node.

use claimcheck_csi::v1::{
    self, CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, GetMetadataAllocatedResponse,
    GetMetadataDeltaRequest, GetMetadataDeltaResponse, ProbeRequest, ProbeResponse,
    group_controller_server::GroupController, identity_server::Identity,
    snapshot_metadata_server::SnapshotMetadata,
};
use tokio_stream::StreamExt;
use tonic::{Request, Response, codegen::BoxStream};

use super::{
    Defect, Defective,
    service::{Answer, serve},
};

serve! { Identity {
    altered {
        probe(ProbeRequest) -> ProbeResponse;
    }
    sound {
        get_plugin_info(GetPluginInfoRequest) -> v1::GetPluginInfoResponse;
        get_plugin_capabilities(GetPluginCapabilitiesRequest) -> v1::GetPluginCapabilitiesResponse;
    }
} }

serve! { GroupController {
    altered {
        create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest) -> CreateVolumeGroupSnapshotResponse;
    }
    sound {
        group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest)
            -> v1::GroupControllerGetCapabilitiesResponse;
        delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest)
            -> v1::DeleteVolumeGroupSnapshotResponse;
        get_volume_group_snapshot(GetVolumeGroupSnapshotRequest) -> v1::GetVolumeGroupSnapshotResponse;
    }
} }

serve! { SnapshotMetadata {
    altered {
        get_metadata_delta(GetMetadataDeltaRequest) -> BoxStream<GetMetadataDeltaResponse>;
    }
    sound {
        get_metadata_allocated(GetMetadataAllocatedRequest) -> BoxStream<GetMetadataAllocatedResponse>;
    }
} }

async fn probe(d: &Defective, request: ProbeRequest) -> Answer<ProbeResponse> {
    let mut answer = d.sound.probe(Request::new(request)).await?;
    if d.defect == Defect::ProbeWithoutReady {
        answer.get_mut().ready = None;
    }
    Ok(answer)
}

async fn create_volume_group_snapshot(
    d: &Defective,
    request: CreateVolumeGroupSnapshotRequest,
) -> Answer<CreateVolumeGroupSnapshotResponse> {
    let mut answer = d.sound.create_volume_group_snapshot(Request::new(request)).await?;
    if let (Defect::GroupLacksMember, Some(group)) = (d.defect, &mut answer.get_mut().group_snapshot) {
        group.snapshots.pop();
    }
    Ok(answer)
}

async fn get_metadata_delta(
    d: &Defective,
    request: GetMetadataDeltaRequest,
) -> Answer<BoxStream<GetMetadataDeltaResponse>> {
    let answer = d.sound.get_metadata_delta(Request::new(request)).await?;
    if d.defect != Defect::DeltaLacksBlock {
        return Ok(answer);
    }
    let lacking = answer.into_inner().map(|message| {
        message.map(|mut message| {
            message.block_metadata.pop();
            message
        })
    });
    Ok(Response::new(Box::pin(lacking)))
}
