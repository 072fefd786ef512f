//! Defects in the calls of the controller.

use claimcheck_csi::v1::{
    self, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeRequest, ControllerGetVolumeResponse,
    ControllerModifyVolumeRequest, ControllerModifyVolumeResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse,
    CreateSnapshotRequest, CreateSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse,
    DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest, DeleteVolumeResponse,
    GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest,
    ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
    controller_server::Controller,
    controller_service_capability::{Type, rpc},
    validate_volume_capabilities_response::Confirmed,
    volume_content_source::Type as Source,
};
use tonic::{Code, Request, Response, Status};

use super::{
    Defect, Defective,
    service::{Answer, done, serve},
};
use crate::{
    capability::Capability,
    id::{SnapshotId, VolumeId},
    volume::{NodeId, Source as Origin, Volume},
};

serve! { Controller {
    altered {
        controller_get_capabilities(ControllerGetCapabilitiesRequest) -> ControllerGetCapabilitiesResponse;
        create_volume(CreateVolumeRequest) -> CreateVolumeResponse;
        delete_volume(DeleteVolumeRequest) -> DeleteVolumeResponse;
        controller_publish_volume(ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse;
        controller_unpublish_volume(ControllerUnpublishVolumeRequest) -> ControllerUnpublishVolumeResponse;
        validate_volume_capabilities(ValidateVolumeCapabilitiesRequest) -> ValidateVolumeCapabilitiesResponse;
        list_volumes(ListVolumesRequest) -> ListVolumesResponse;
        create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse;
        delete_snapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse;
        list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse;
        get_snapshot(GetSnapshotRequest) -> GetSnapshotResponse;
        controller_expand_volume(ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse;
        controller_get_volume(ControllerGetVolumeRequest) -> ControllerGetVolumeResponse;
        controller_modify_volume(ControllerModifyVolumeRequest) -> ControllerModifyVolumeResponse;
    }
    sound {
        get_capacity(GetCapacityRequest) -> v1::GetCapacityResponse;
    }
} }

async fn controller_get_capabilities(
    d: &Defective,
    request: ControllerGetCapabilitiesRequest,
) -> Answer<ControllerGetCapabilitiesResponse> {
    let mut answer = d.sound.controller_get_capabilities(Request::new(request)).await?;
    let capabilities = &mut answer.get_mut().capabilities;
    match d.defect {
        Defect::CapabilityTwice => capabilities.extend(capabilities.first().cloned()),
        Defect::ImplementedUndeclared => capabilities.retain(|capability| {
            !matches!(&capability.r#type, Some(Type::Rpc(rpc)) if rpc.r#type() == rpc::Type::ListVolumes)
        }),
        _ => {}
    }
    Ok(answer)
}

async fn create_volume(d: &Defective, mut request: CreateVolumeRequest) -> Answer<CreateVolumeResponse> {
    if d.defect == Defect::RequestsLogged {
        tracing::info!(?request, "CreateVolume");
    }
    let present = d.sound.volume(&VolumeId::from_name(&request.name)).ok();
    let there = present.is_some();
    let source = request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref());
    let from_volume = matches!(source, Some(Source::Volume(_)));
    let remakes = match d.defect {
        Defect::CreateRepeatRemakes => true,
        Defect::RestoreRepeats => matches!(source, Some(Source::Snapshot(_))),
        Defect::CloneRepeats => from_volume,
        _ => false,
    };
    if let Some(volume) = present.filter(|volume| remakes && volume.in_use().is_none()) {
        // Unless the volume is not compatible with the request.
        d.sound.create_volume(Request::new(request.clone())).await?;
        d.forget(&volume);
    }
    let mut forgotten = None;
    match d.defect {
        Defect::CreateRepeatRefused if there => {
            return Err(Status::already_exists(format!("volume {} already exists", request.name)));
        }
        Defect::CreateRepeatMakesAnother if there => request.name.push('2'),
        Defect::CapacityLimitIgnored => {
            request.capacity_range.iter_mut().for_each(|range| range.limit_bytes = 0);
        }
        Defect::SourceIgnored => forgotten = request.volume_content_source.take(),
        Defect::UndeclaredSourceIgnored if from_volume && !d.clones() => request.volume_content_source = None,
        _ => {}
    }
    let answer = d.sound.create_volume(Request::new(request.clone())).await;
    let mut answer = match (d.defect, answer) {
        (Defect::CreateConflictAccepted, Err(status)) if status.code() == Code::AlreadyExists => {
            request.capacity_range = None;
            d.sound.create_volume(Request::new(request)).await?
        }
        (Defect::SecretInError, Err(status)) => {
            let message = format!("{} (secrets: {:?})", status.message(), request.secrets);
            return Err(Status::new(status.code(), message));
        }
        (_, answer) => answer?,
    };
    let Some(volume) = &mut answer.get_mut().volume else { return Ok(answer) };
    match d.defect {
        Defect::CapacityZero => volume.capacity_bytes = 0,
        Defect::CapacityHalved => volume.capacity_bytes /= 2,
        Defect::TopologyOfAnotherNode => {
            let segments = volume.accessible_topology.iter_mut().flat_map(|term| term.segments.values_mut());
            segments.for_each(|segment| *segment = "elsewhere".to_owned());
        }
        Defect::SourceIgnored => volume.content_source = forgotten,
        _ => {}
    }
    Ok(answer)
}

impl Defective {
    fn clones(&self) -> bool {
        self.sound.config.capabilities.has(Capability::CloneVolume)
    }

    /// Triggers the defects of the deletion of one volume that affect others.
    fn deleted(&self, volume: &Volume) {
        let source = match (self.defect, &volume.source) {
            (Defect::CloneDeleteEmptiesSource, Some(Origin::Volume(id))) => self.volume(id.as_str()),
            (Defect::RestoreDeleteEmptiesSource, Some(Origin::Snapshot(id))) => {
                let snapshot = self.sound.store.load(id).ok().flatten();
                snapshot.and_then(|snapshot| self.volume(snapshot.source.as_str()))
            }
            _ => None,
        };
        source.iter().for_each(|source| self.empty(source));
        if self.defect == Defect::DeleteByPrefix {
            self.longer_names(volume).iter().for_each(|other| self.forget(other));
        }
    }
}

async fn delete_volume(d: &Defective, request: DeleteVolumeRequest) -> Answer<DeleteVolumeResponse> {
    let id = request.volume_id.clone();
    let volume = d.volume(&id);
    if d.defect == Defect::DeleteRepeatFails && !id.is_empty() && d.volume(&id).is_none() {
        return Err(Status::not_found("the volume does not exist"));
    }
    match d.sound.delete_volume(Request::new(request)).await {
        Err(status)
            if matches!(d.defect, Defect::DeleteInUse | Defect::DeletePublished)
                && status.code() == Code::FailedPrecondition =>
        {
            let Some(volume) = d.volume(&id) else { return Err(status) };
            if d.defect == Defect::DeleteInUse {
                d.sound.store.remove(&volume.id).map_err(Status::from)?;
            } else {
                // Its directory contains a mount, and cannot be removed.
                d.empty(&volume);
            }
            Ok(Response::new(DeleteVolumeResponse {}))
        }
        answer => {
            if let Some(volume) = volume.filter(|_| answer.is_ok()) {
                d.deleted(&volume);
            }
            answer
        }
    }
}

async fn controller_publish_volume(
    d: &Defective,
    request: ControllerPublishVolumeRequest,
) -> Answer<ControllerPublishVolumeResponse> {
    if d.defect == Defect::AttachForgotten {
        let id = request.volume_id.clone();
        return d.cancellable(id, d.sound.controller_publish_volume(Request::new(request))).await;
    }
    let there = d.volume(&request.volume_id).is_some();
    let answer = d.sound.controller_publish_volume(Request::new(request)).await;
    let Err(status) = &answer else { return answer };
    match (d.defect, status.code()) {
        (Defect::TwoNodesAtOnce, Code::FailedPrecondition) => done(),
        (Defect::UnknownNodeAccepted, Code::NotFound) if there => done(),
        _ => answer,
    }
}

async fn controller_unpublish_volume(
    d: &Defective,
    request: ControllerUnpublishVolumeRequest,
) -> Answer<ControllerUnpublishVolumeResponse> {
    let there = d.volume(&request.volume_id).is_some();
    let node = NodeId::parse(&request.node_id).and_then(|node| d.sound.store.node(&node).ok().flatten());
    match d.defect {
        Defect::DetachVolumeNotFound if !there && !request.volume_id.is_empty() => {
            return Err(Status::not_found("the volume does not exist"));
        }
        Defect::DetachNodeNotFound if there && node.is_none() && !request.node_id.is_empty() => {
            return Err(Status::not_found("the node does not exist"));
        }
        Defect::AttachForgotten if d.memory().cancelled.contains(&request.volume_id) => return done(),
        _ => {}
    }
    d.sound.controller_unpublish_volume(Request::new(request)).await
}

async fn validate_volume_capabilities(
    d: &Defective,
    request: ValidateVolumeCapabilitiesRequest,
) -> Answer<ValidateVolumeCapabilitiesResponse> {
    let mut answer = d.sound.validate_volume_capabilities(Request::new(request.clone())).await?;
    if d.defect == Defect::ValidateConfirmsAll {
        answer.get_mut().confirmed = Some(Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
        });
    }
    Ok(answer)
}

async fn list_volumes(d: &Defective, mut request: ListVolumesRequest) -> Answer<ListVolumesResponse> {
    let token = request.starting_token.clone();
    let answer = d.sound.list_volumes(Request::new(request.clone())).await;
    let mut answer = match answer {
        Err(_) if d.defect == Defect::PagingTokenIgnored && !token.is_empty() => {
            request.starting_token.clear();
            d.sound.list_volumes(Request::new(request)).await?
        }
        answer => answer?,
    };
    let ListVolumesResponse { entries, next_token } = answer.get_mut();
    match d.defect {
        Defect::PagingDrops if !next_token.is_empty() => drop(entries.pop()),
        Defect::PagingRepeats => {
            let mut memory = d.memory();
            let last = entries.last().cloned();
            memory.pages.extend(last.filter(|_| !next_token.is_empty()).map(|it| (next_token.clone(), it)));
            entries.splice(0..0, memory.pages.get(&token).cloned());
        }
        Defect::ListForgetsNodes => {
            let statuses = entries.iter_mut().filter_map(|entry| entry.status.as_mut());
            statuses.for_each(|status| status.published_node_ids.clear());
        }
        _ => {}
    }
    Ok(answer)
}

/// A snapshot as callers see it.
fn distort(d: &Defective, snapshot: Option<&mut v1::Snapshot>) {
    let Some(snapshot) = snapshot else { return };
    match d.defect {
        Defect::NeverReady => snapshot.ready_to_use = false,
        Defect::TimeInMilliseconds => {
            if let Some(time) = &mut snapshot.creation_time {
                (time.seconds, time.nanos) = (time.seconds * 1000 + i64::from(time.nanos) / 1_000_000, 0);
            }
        }
        _ => {}
    }
}

async fn create_snapshot(d: &Defective, request: CreateSnapshotRequest) -> Answer<CreateSnapshotResponse> {
    let (name, secrets) = (request.name.clone(), request.secrets.clone());
    let mut answer = match Controller::create_snapshot(&d.sound, Request::new(request)).await {
        Err(status)
            if d.defect == Defect::SnapshotConflictAccepted && status.code() == Code::AlreadyExists =>
        {
            let snapshot_id = SnapshotId::from_name(&name).to_string();
            let found =
                Controller::get_snapshot(&d.sound, Request::new(GetSnapshotRequest { snapshot_id, secrets }))
                    .await?;
            Response::new(CreateSnapshotResponse { snapshot: found.into_inner().snapshot })
        }
        answer => answer?,
    };
    distort(d, answer.get_mut().snapshot.as_mut());
    Ok(answer)
}

async fn delete_snapshot(d: &Defective, request: DeleteSnapshotRequest) -> Answer<DeleteSnapshotResponse> {
    if d.defect == Defect::SnapshotDeleteForgotten && !request.snapshot_id.is_empty() {
        return done();
    }
    let snapshot =
        SnapshotId::parse(&request.snapshot_id).and_then(|id| d.sound.store.load(&id).ok().flatten());
    let answer = Controller::delete_snapshot(&d.sound, Request::new(request)).await?;
    if let (Defect::SnapshotDeleteEmptiesSource, Some(snapshot)) = (d.defect, snapshot) {
        d.volume(snapshot.source.as_str()).iter().for_each(|source| d.empty(source));
    }
    Ok(answer)
}

async fn list_snapshots(d: &Defective, mut request: ListSnapshotsRequest) -> Answer<ListSnapshotsResponse> {
    let exists = |id: SnapshotId| d.sound.store.load(&id).ok().flatten().is_some();
    match d.defect {
        Defect::SnapshotFilterIgnored => request.source_volume_id.clear(),
        Defect::SnapshotSourceGoneIgnored if d.volume(&request.source_volume_id).is_none() => {
            request.source_volume_id.clear();
        }
        Defect::SnapshotIdGoneIgnored if !SnapshotId::parse(&request.snapshot_id).is_some_and(exists) => {
            request.snapshot_id.clear();
        }
        Defect::SnapshotPageNegative if request.max_entries < 0 => {
            return Err(Status::internal("slice bounds out of range"));
        }
        _ => {}
    }
    let mut answer = Controller::list_snapshots(&d.sound, Request::new(request)).await?;
    answer.get_mut().entries.iter_mut().for_each(|entry| distort(d, entry.snapshot.as_mut()));
    Ok(answer)
}

async fn get_snapshot(d: &Defective, request: GetSnapshotRequest) -> Answer<GetSnapshotResponse> {
    let mut answer = Controller::get_snapshot(&d.sound, Request::new(request)).await?;
    distort(d, answer.get_mut().snapshot.as_mut());
    Ok(answer)
}

async fn controller_expand_volume(
    d: &Defective,
    request: ControllerExpandVolumeRequest,
) -> Answer<ControllerExpandVolumeResponse> {
    let asked = request.capacity_range.map_or(0, |range| range.required_bytes);
    if d.defect == Defect::ExpandForgotten && asked > 0 && d.volume(&request.volume_id).is_some() {
        return Ok(Response::new(ControllerExpandVolumeResponse {
            capacity_bytes: asked,
            node_expansion_required: false,
        }));
    }
    d.sound.controller_expand_volume(Request::new(request)).await
}

async fn controller_get_volume(
    d: &Defective,
    request: ControllerGetVolumeRequest,
) -> Answer<ControllerGetVolumeResponse> {
    if d.defect == Defect::DeclaredUnimplemented {
        return Err(Status::unimplemented("ControllerGetVolume"));
    }
    d.sound.controller_get_volume(Request::new(request)).await
}

async fn controller_modify_volume(
    d: &Defective,
    request: ControllerModifyVolumeRequest,
) -> Answer<ControllerModifyVolumeResponse> {
    let there = d.volume(&request.volume_id).is_some();
    match d.sound.controller_modify_volume(Request::new(request)).await {
        Err(status)
            if d.defect == Defect::ModifyAcceptsAll && there && status.code() == Code::InvalidArgument =>
        {
            done()
        }
        answer => answer,
    }
}
