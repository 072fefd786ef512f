//! The GroupController service: snapshots of several volumes at one point in time.
//!
//! Locks are always acquired in this order: volumes by id, the group, its snapshots.

use std::collections::BTreeSet;

use claimcheck_csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse,
    GroupControllerServiceCapability, VolumeGroupSnapshot, group_controller_server::GroupController,
    group_controller_service_capability,
};
use tonic::{Request, Response, async_trait};

use super::{
    Answer,
    snapshots::{describe, none_but_the_sidecars},
};
use crate::{
    capability::Capability,
    driver::Driver,
    error::{Error, Result},
    fields,
    id::{GroupId, VolumeId},
    point_in_time::Copy,
    secrets::Call,
    snapshot::{Group, Snapshot},
    volume::Volume,
};

#[async_trait]
impl GroupController for Driver {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Answer<GroupControllerGetCapabilitiesResponse> {
        use group_controller_service_capability::{Rpc, Type, rpc};
        self.config.capabilities.demand(Capability::GroupSnapshot)?;
        let rpc = Rpc { r#type: rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into() };
        Ok(Response::new(GroupControllerGetCapabilitiesResponse {
            capabilities: vec![GroupControllerServiceCapability { r#type: Some(Type::Rpc(rpc)) }],
        }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Answer<CreateVolumeGroupSnapshotResponse> {
        self.config.capabilities.demand(Capability::GroupSnapshot)?;
        self.call(|driver| driver.create_group(request.into_inner())).await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Answer<DeleteVolumeGroupSnapshotResponse> {
        self.config.capabilities.demand(Capability::GroupSnapshot)?;
        self.call(|driver| driver.delete_group(request.into_inner())).await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Answer<GetVolumeGroupSnapshotResponse> {
        self.config.capabilities.demand(Capability::GroupSnapshot)?;
        self.call(|driver| driver.get_group(request.into_inner())).await
    }
}

impl Driver {
    /// Creates snapshots of several volumes at one point in time, or returns those that an earlier call with
    /// the same name created. The group's record is written last; until then none of its snapshots exist.
    pub fn create_group(
        &self,
        request: CreateVolumeGroupSnapshotRequest,
    ) -> Result<CreateVolumeGroupSnapshotResponse> {
        self.config.secrets.check(Call::CreateVolumeGroupSnapshot, &request.secrets)?;
        let name = fields::name(&request.name)?;
        let sources = distinct(&request.source_volume_ids)?;
        none_but_the_sidecars(&request.parameters)?;
        let id = GroupId::from_name(name);
        let answer = |group| Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: Some(group) });
        // Before the volumes are looked for: they may be gone by now.
        if let Some(present) = self.store.load(&id)? {
            return answer(self.describe_group(&same_sources(present, name, &sources)?)?);
        }
        let volumes = sources.iter().map(|source| self.lock(source)).collect::<Result<Vec<_>>>()?;
        let _lock = self.store.lock_or_make(&id)?;
        if let Some(present) = self.store.load(&id)? {
            return answer(self.describe_group(&same_sources(present, name, &sources)?)?);
        }
        let members = sources.iter().map(|source| id.snapshot_of(source));
        let _member_locks =
            members.map(|member| self.store.lock_or_make(&member)).collect::<Result<Vec<_>>>()?;
        let group = self.copy_group(&id, volumes.iter().map(|(_, volume)| volume)).inspect_err(|_| {
            for source in &sources {
                self.discard(&id.snapshot_of(source));
            }
            self.discard(&id);
        })?;
        answer(self.describe_group(&group)?)
    }

    fn copy_group<'a>(
        &self,
        id: &GroupId,
        volumes: impl Iterator<Item = &'a Volume> + Clone,
    ) -> Result<Group> {
        let to = |volume: &Volume| self.store.content(&id.snapshot_of(&volume.id), volume.kind);
        let copies: Vec<_> = volumes.clone().map(|volume| Copy { volume, to: to(volume) }).collect();
        let created = self.copy_at_one_time(&copies)?;
        for volume in volumes.clone() {
            self.store.save(&Snapshot {
                id: id.snapshot_of(&volume.id),
                source: volume.id.clone(),
                kind: volume.kind,
                size_bytes: volume.capacity_bytes,
                fs_type: volume.fs_type,
                created,
                group: Some(id.clone()),
            })?;
        }
        let sources = volumes.map(|volume| volume.id.clone()).collect();
        let group = Group { id: id.clone(), sources, created };
        self.store.save(&group)?;
        Ok(group)
    }

    /// Deletes a group and all its snapshots. Succeeds if it does not exist.
    pub fn delete_group(
        &self,
        request: DeleteVolumeGroupSnapshotRequest,
    ) -> Result<DeleteVolumeGroupSnapshotResponse> {
        self.config.secrets.check(Call::DeleteVolumeGroupSnapshot, &request.secrets)?;
        let id = match fields::group_id(&request.group_snapshot_id) {
            Err(Error::NoGroup(_)) => return Ok(DeleteVolumeGroupSnapshotResponse {}),
            id => id?,
        };
        let Some(_lock) = self.store.lock(&id)? else { return Ok(DeleteVolumeGroupSnapshotResponse {}) };
        let group = self.store.load(&id)?;
        if let Some(group) = &group {
            check_members(group, &request.snapshot_ids)?;
        }
        // The snapshots end with the group's record. What a crash leaves of them the next start clears.
        self.store.remove(&id)?;
        for member in group.iter().flat_map(Group::snapshots) {
            if let Some(_lock) = self.store.lock(&member)? {
                self.store.remove(&member)?;
            }
        }
        Ok(DeleteVolumeGroupSnapshotResponse {})
    }

    /// The group snapshot as callers see it.
    pub fn get_group(
        &self,
        request: GetVolumeGroupSnapshotRequest,
    ) -> Result<GetVolumeGroupSnapshotResponse> {
        self.config.secrets.check(Call::GetVolumeGroupSnapshot, &request.secrets)?;
        let id = fields::group_id(&request.group_snapshot_id)?;
        let group = self.store.load(&id)?.ok_or_else(|| Error::NoGroup(id.to_string()))?;
        check_members(&group, &request.snapshot_ids)?;
        Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(self.describe_group(&group)?) })
    }

    fn describe_group(&self, group: &Group) -> Result<VolumeGroupSnapshot> {
        let members = group.snapshots().map(|id| {
            let snapshot = self.store.load(&id)?.ok_or_else(|| Error::NoSnapshot(id.to_string()))?;
            Ok(describe(&snapshot))
        });
        Ok(VolumeGroupSnapshot {
            group_snapshot_id: group.id.to_string(),
            snapshots: members.collect::<Result<_>>()?,
            creation_time: Some(group.created.into()),
            ready_to_use: true,
        })
    }
}

fn distinct(ids: &[String]) -> Result<BTreeSet<VolumeId>> {
    if ids.is_empty() || ids.iter().any(String::is_empty) {
        return Err(Error::Missing("source_volume_ids"));
    }
    let distinct = ids.iter().map(|id| fields::volume_id(id)).collect::<Result<BTreeSet<_>>>()?;
    if distinct.len() < ids.len() {
        return Err(Error::invalid("source_volume_ids", "names a volume twice"));
    }
    Ok(distinct)
}

/// The existing group, if it is compatible with the request.
fn same_sources(present: Group, name: &str, sources: &BTreeSet<VolumeId>) -> Result<Group> {
    if present.sources == *sources {
        return Ok(present);
    }
    Err(Error::AlreadyExists(format!("group snapshot {name:?} already exists, of other volumes")))
}

/// The driver needs no list of snapshots and so requires none; if the request has one, it must match the
/// group's (CSI specification, DeleteVolumeGroupSnapshotRequest).
fn check_members(group: &Group, ids: &[String]) -> Result<()> {
    let given: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    let members: Vec<_> = group.snapshots().collect();
    let members: BTreeSet<&str> = members.iter().map(|id| id.as_str()).collect();
    if given.is_empty() || given == members {
        return Ok(());
    }
    let reason = format!("are not those of group snapshot {}, which has {}", group.id, members.len());
    Err(Error::invalid("snapshot_ids", reason))
}
