//! The driver's groups of snapshots. The id of a group is its scenario and name, that of a member its volume and the
//! group, so that the scenario of every call is known.

use claimcheck_csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse,
    GroupControllerServiceCapability, Snapshot, VolumeGroupSnapshot,
    group_controller_server::GroupController,
    group_controller_service_capability::{self, Rpc, rpc},
};
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use super::{CREATED, Driver};

#[tonic::async_trait]
impl GroupController for Driver {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<GroupControllerGetCapabilitiesResponse>, Status> {
        let rpc = Rpc { r#type: rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into() };
        let r#type = Some(group_controller_service_capability::Type::Rpc(rpc));
        let capabilities = vec![GroupControllerServiceCapability { r#type }];
        Ok(Response::new(GroupControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<CreateVolumeGroupSnapshotResponse>, Status> {
        let CreateVolumeGroupSnapshotRequest { name, source_volume_ids, secrets, parameters } =
            request.into_inner();
        let first = source_volume_ids.first().map_or("", String::as_str);
        let scenario = first.split_once('.').map_or("", |(scenario, _)| scenario);
        let group = parameters.get("csi.storage.k8s.io/volumegroupsnapshot/name").map_or("", String::as_str);
        let group_snapshot_id = format!("{scenario}.group-{group}");
        let arguments = json!({
            "name": name,
            "volumes": source_volume_ids,
            "secrets": secrets,
            "parameters": parameters,
        });
        let with = self.answer("CreateVolumeGroupSnapshot", &group_snapshot_id, arguments).await?;
        let ready_to_use = with.get("unready").is_none();
        let member = |source_volume_id: &String| Snapshot {
            snapshot_id: format!("{source_volume_id}-in-{group}"),
            source_volume_id: source_volume_id.clone(),
            size_bytes: with.get("size").and_then(Value::as_i64).unwrap_or(1 << 30),
            creation_time: Some(CREATED),
            ready_to_use,
            group_snapshot_id: group_snapshot_id.clone(),
        };
        let group_snapshot = VolumeGroupSnapshot {
            snapshots: source_volume_ids.iter().map(member).collect(),
            group_snapshot_id: group_snapshot_id.clone(),
            creation_time: Some(CREATED),
            ready_to_use,
        };
        Ok(Response::new(CreateVolumeGroupSnapshotResponse { group_snapshot: Some(group_snapshot) }))
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<DeleteVolumeGroupSnapshotResponse>, Status> {
        let DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets } =
            request.into_inner();
        let arguments = json!({ "snapshots": snapshot_ids, "secrets": secrets });
        self.answer("DeleteVolumeGroupSnapshot", &group_snapshot_id, arguments).await?;
        Ok(Response::new(DeleteVolumeGroupSnapshotResponse {}))
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<GetVolumeGroupSnapshotResponse>, Status> {
        let GetVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets } = request.into_inner();
        let arguments = json!({ "snapshots": snapshot_ids, "secrets": secrets });
        let with = self.answer("GetVolumeGroupSnapshot", &group_snapshot_id, arguments).await?;
        let ready_to_use = with.get("unready").is_none();
        let member = |snapshot_id: String| Snapshot {
            source_volume_id: format!("{snapshot_id}-source"),
            snapshot_id,
            size_bytes: 1 << 30,
            creation_time: Some(CREATED),
            ready_to_use,
            group_snapshot_id: group_snapshot_id.clone(),
        };
        let group_snapshot = VolumeGroupSnapshot {
            snapshots: snapshot_ids.into_iter().map(member).collect(),
            group_snapshot_id: group_snapshot_id.clone(),
            creation_time: Some(CREATED),
            ready_to_use,
        };
        Ok(Response::new(GetVolumeGroupSnapshotResponse { group_snapshot: Some(group_snapshot) }))
    }
}
