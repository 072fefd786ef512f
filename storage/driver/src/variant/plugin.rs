//! Variants of the services other than controller and node.

use std::{collections::BTreeMap, time::Duration};

use claimcheck_csi::v1::{
    self, CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse,
    DeleteVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotResponse, GetMetadataAllocatedRequest,
    GetMetadataAllocatedResponse, GetMetadataDeltaRequest, GetMetadataDeltaResponse,
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse, GroupControllerGetCapabilitiesRequest,
    GroupControllerGetCapabilitiesResponse, ProbeRequest, ProbeResponse, VolumeGroupSnapshot,
    group_controller_server::GroupController,
    identity_server::Identity,
    plugin_capability::{Type, service::Type as Service},
    snapshot_metadata_server::SnapshotMetadata,
};
use tonic::{Request, Status, codegen::BoxStream};

use super::{
    Variant, Varied, blocks,
    controller::{Reply, in_use, vary_snapshot},
    service::{Answer, serve},
};
use crate::{fields, snapshot::Group};

/// How long Probe returns ready=false, with [`Variant::ReadyLate`].
const STARTING: Duration = Duration::from_millis(500);

serve! { Identity {
    varied {
        get_plugin_info(GetPluginInfoRequest) -> GetPluginInfoResponse;
        get_plugin_capabilities(GetPluginCapabilitiesRequest) -> GetPluginCapabilitiesResponse;
        probe(ProbeRequest) -> ProbeResponse;
    }
    sound {}
} }

serve! { GroupController {
    varied {
        group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest)
            -> GroupControllerGetCapabilitiesResponse;
        create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest) -> CreateVolumeGroupSnapshotResponse;
        delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest) -> DeleteVolumeGroupSnapshotResponse;
        get_volume_group_snapshot(GetVolumeGroupSnapshotRequest) -> GetVolumeGroupSnapshotResponse;
    }
    sound {}
} }

serve! { SnapshotMetadata {
    varied {
        get_metadata_allocated(GetMetadataAllocatedRequest) -> BoxStream<GetMetadataAllocatedResponse>;
        get_metadata_delta(GetMetadataDeltaRequest) -> BoxStream<GetMetadataDeltaResponse>;
    }
    sound {}
} }

async fn get_plugin_info(d: &Varied, request: GetPluginInfoRequest) -> Answer<GetPluginInfoResponse> {
    let mut answer = d.sound.get_plugin_info(Request::new(request)).await?;
    if d.has(Variant::ManifestSet) {
        answer.get_mut().manifest = BTreeMap::from([("commit".to_owned(), "unknown".to_owned())]);
    }
    Ok(answer)
}

async fn get_plugin_capabilities(
    d: &Varied,
    request: GetPluginCapabilitiesRequest,
) -> Answer<GetPluginCapabilitiesResponse> {
    let mut answer = d.sound.get_plugin_capabilities(Request::new(request)).await?;
    if d.has(Variant::WithoutController) {
        let controller = Service::ControllerService;
        answer.get_mut().capabilities.retain(|capability| {
            !matches!(&capability.r#type, Some(Type::Service(service)) if service.r#type() == controller)
        });
    }
    Ok(answer)
}

async fn probe(d: &Varied, request: ProbeRequest) -> Answer<ProbeResponse> {
    let mut answer = d.sound.probe(Request::new(request)).await?;
    if d.has(Variant::ReadyUnset) {
        answer.get_mut().ready = None;
    }
    if d.has(Variant::ReadyLate) {
        answer.get_mut().ready = Some(d.started.elapsed() >= STARTING);
    }
    Ok(answer)
}

async fn group_controller_get_capabilities(
    d: &Varied,
    request: GroupControllerGetCapabilitiesRequest,
) -> Answer<GroupControllerGetCapabilitiesResponse> {
    if d.has(Variant::WithoutController) {
        return Err(Status::unimplemented("the plugin has no group controller service"));
    }
    d.sound.group_controller_get_capabilities(Request::new(request)).await
}

/// A group as callers see it.
fn vary_group(d: &Varied, group: Option<&mut VolumeGroupSnapshot>, reply: Reply) {
    let Some(group) = group else { return };
    if d.has(Variant::TimesInSeconds)
        && let Some(time) = &mut group.creation_time
    {
        time.nanos = 0;
    }
    group.snapshots.iter_mut().for_each(|snapshot| vary_snapshot(d, Some(snapshot), reply));
    group.ready_to_use = group.snapshots.iter().all(|snapshot| snapshot.ready_to_use);
}

async fn create_volume_group_snapshot(
    d: &Varied,
    request: CreateVolumeGroupSnapshotRequest,
) -> Answer<CreateVolumeGroupSnapshotResponse> {
    if d.has(Variant::GroupsOfOneVolume) && request.source_volume_ids.len() > 1 {
        return Err(Status::failed_precondition("the volumes are not in one consistency group"));
    }
    request.source_volume_ids.iter().try_for_each(|id| d.must_be_used(id))?;
    let mut answer = d.sound.create_volume_group_snapshot(Request::new(request)).await?;
    vary_group(d, answer.get_mut().group_snapshot.as_mut(), Reply::Create);
    Ok(answer)
}

async fn delete_volume_group_snapshot(
    d: &Varied,
    request: DeleteVolumeGroupSnapshotRequest,
) -> Answer<DeleteVolumeGroupSnapshotResponse> {
    if d.has(Variant::SourcesInUse) {
        let id = request.group_snapshot_id.clone();
        in_use(d, move |driver| {
            let group = fields::group_id(&id).ok().map(|id| driver.store.load(&id)).transpose()?.flatten();
            Ok(group.iter().flat_map(Group::snapshots).map(|id| id.to_string()).collect())
        })
        .await?;
    }
    d.sound.delete_volume_group_snapshot(Request::new(request)).await
}

async fn get_volume_group_snapshot(
    d: &Varied,
    request: GetVolumeGroupSnapshotRequest,
) -> Answer<GetVolumeGroupSnapshotResponse> {
    let mut answer = d.sound.get_volume_group_snapshot(Request::new(request)).await?;
    vary_group(d, answer.get_mut().group_snapshot.as_mut(), Reply::Query);
    Ok(answer)
}

/// `FailedPrecondition` for a snapshot that exists, if its blocks are not tracked.
fn is_tracked(d: &Varied) -> Result<(), Status> {
    match d.has(Variant::MetadataUntracked) {
        true => Err(Status::failed_precondition("changed block tracking is not enabled")),
        false => Ok(()),
    }
}

async fn get_metadata_allocated(
    d: &Varied,
    request: GetMetadataAllocatedRequest,
) -> Answer<BoxStream<GetMetadataAllocatedResponse>> {
    let most = request.max_results;
    let answer = d.sound.get_metadata_allocated(Request::new(request)).await?;
    is_tracked(d)?;
    blocks::rewritten(&d.variants, most, answer).await
}

async fn get_metadata_delta(
    d: &Varied,
    request: GetMetadataDeltaRequest,
) -> Answer<BoxStream<GetMetadataDeltaResponse>> {
    let most = request.max_results;
    let answer = d.sound.get_metadata_delta(Request::new(request)).await?;
    is_tracked(d)?;
    blocks::rewritten(&d.variants, most, answer).await
}
