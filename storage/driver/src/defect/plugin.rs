//! The services other than controller and node, which have no defects of their own.

use claimcheck_csi::v1::{
    self, group_controller_server::GroupController, identity_server::Identity,
    snapshot_metadata_server::SnapshotMetadata,
};
use tonic::codegen::BoxStream;

use super::service::{Answer, serve};

serve! { Identity {
    altered {}
    sound {
        get_plugin_info(GetPluginInfoRequest) -> v1::GetPluginInfoResponse;
        get_plugin_capabilities(GetPluginCapabilitiesRequest) -> v1::GetPluginCapabilitiesResponse;
        probe(ProbeRequest) -> v1::ProbeResponse;
    }
} }

serve! { GroupController {
    altered {}
    sound {
        group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest)
            -> v1::GroupControllerGetCapabilitiesResponse;
        create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest)
            -> v1::CreateVolumeGroupSnapshotResponse;
        delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest)
            -> v1::DeleteVolumeGroupSnapshotResponse;
        get_volume_group_snapshot(GetVolumeGroupSnapshotRequest) -> v1::GetVolumeGroupSnapshotResponse;
    }
} }

serve! { SnapshotMetadata {
    altered {}
    sound {
        get_metadata_allocated(GetMetadataAllocatedRequest) -> BoxStream<v1::GetMetadataAllocatedResponse>;
        get_metadata_delta(GetMetadataDeltaRequest) -> BoxStream<v1::GetMetadataDeltaResponse>;
    }
} }
