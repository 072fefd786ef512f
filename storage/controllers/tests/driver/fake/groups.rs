//! The driver's groups of snapshots: their name is their id, and a snapshot is called after its group and volume.

use claimcheck_csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse,
    GroupControllerServiceCapability, Snapshot, VolumeGroupSnapshot,
    group_controller_server::GroupController,
    group_controller_service_capability::{self, Rpc, rpc},
};
use tonic::{Request, Response, Status};

use super::{Fake, State};

impl State {
    fn group(&mut self, name: &str) -> VolumeGroupSnapshot {
        let members = self.groups[name].clone();
        let member = |snapshot: Snapshot| Snapshot { group_snapshot_id: name.to_owned(), ..snapshot };
        let snapshots: Vec<_> = members.iter().map(|id| member(self.snapshot(id))).collect();
        VolumeGroupSnapshot {
            group_snapshot_id: name.to_owned(),
            ready_to_use: snapshots.iter().all(|snapshot| snapshot.ready_to_use),
            snapshots,
            ..VolumeGroupSnapshot::default()
        }
    }
}

#[tonic::async_trait]
impl GroupController for Fake {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<GroupControllerGetCapabilitiesResponse>, Status> {
        let rpc = Rpc { r#type: rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into() };
        let r#type = Some(group_controller_service_capability::Type::Rpc(rpc));
        let declared = (!self.state().lacks_groups).then_some(GroupControllerServiceCapability { r#type });
        Ok(Response::new(GroupControllerGetCapabilitiesResponse { capabilities: Vec::from_iter(declared) }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<CreateVolumeGroupSnapshotResponse>, Status> {
        let CreateVolumeGroupSnapshotRequest { name, source_volume_ids, secrets, .. } = request.into_inner();
        self.call("CreateVolumeGroupSnapshot", &name.clone(), |state| {
            state.secrets = secrets;
            let members = source_volume_ids.into_iter().map(|volume| (format!("{name}-{volume}"), volume));
            let members: Vec<_> = members.collect();
            state.groups.insert(name.clone(), members.iter().map(|(snapshot, _)| snapshot.clone()).collect());
            state.snapshots.extend(members);
            Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: Some(state.group(&name)) })
        })
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<DeleteVolumeGroupSnapshotResponse>, Status> {
        let DeleteVolumeGroupSnapshotRequest { group_snapshot_id: name, snapshot_ids, .. } =
            request.into_inner();
        self.call("DeleteVolumeGroupSnapshot", &name.clone(), |state| {
            let members = state.groups.remove(&name).unwrap_or_default();
            if !members.is_empty() && members != snapshot_ids {
                return Err(Status::invalid_argument("these are not the snapshots of the group"));
            }
            members.iter().for_each(|snapshot| drop(state.snapshots.remove(snapshot)));
            Ok(DeleteVolumeGroupSnapshotResponse {})
        })
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<GetVolumeGroupSnapshotResponse>, Status> {
        let name = request.into_inner().group_snapshot_id;
        self.call("GetVolumeGroupSnapshot", &name.clone(), |state| {
            if !state.groups.contains_key(&name) {
                return Err(Status::not_found("no such group"));
            }
            Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(state.group(&name)) })
        })
    }
}
