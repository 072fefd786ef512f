//! Variants of the calls of the controller.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use claimcheck_csi::v1::{
    self, CapacityRange, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerGetVolumeRequest,
    ControllerGetVolumeResponse, ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest,
    CreateSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest,
    DeleteSnapshotResponse, DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest,
    GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, Topology,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, controller_server::Controller,
    validate_volume_capabilities_response::Confirmed, volume_content_source::Type,
};
use tonic::{Request, Response, Status};

use super::{
    Variant, Varied,
    pages::page,
    service::{Answer, serve},
};
use crate::{
    driver::Driver,
    error::Result as Outcome,
    fields,
    volume::{NodeId, Source, Volume, VolumeId},
};

/// The size of which all sizes are multiples, with [`Variant::SizesInGibibytes`].
const GIBIBYTE: u64 = 1 << 30;
/// How long after its creation a snapshot is not ready, with [`Variant::ReadyToUseLate`].
const PROCESSING: Duration = Duration::from_secs(1);
/// A node that no volume is published to, with [`Variant::PublishedNodesStale`].
const STALE: &str = "claimcheck-node-of-the-past";

serve! { Controller {
    varied {
        controller_get_capabilities(ControllerGetCapabilitiesRequest) -> ControllerGetCapabilitiesResponse;
        create_volume(CreateVolumeRequest) -> CreateVolumeResponse;
        delete_volume(DeleteVolumeRequest) -> DeleteVolumeResponse;
        controller_publish_volume(ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse;
        controller_unpublish_volume(ControllerUnpublishVolumeRequest) -> ControllerUnpublishVolumeResponse;
        validate_volume_capabilities(ValidateVolumeCapabilitiesRequest) -> ValidateVolumeCapabilitiesResponse;
        list_volumes(ListVolumesRequest) -> ListVolumesResponse;
        get_capacity(GetCapacityRequest) -> GetCapacityResponse;
        create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse;
        delete_snapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse;
        list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse;
        get_snapshot(GetSnapshotRequest) -> GetSnapshotResponse;
        controller_expand_volume(ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse;
        controller_get_volume(ControllerGetVolumeRequest) -> ControllerGetVolumeResponse;
    }
    sound {
        controller_modify_volume(ControllerModifyVolumeRequest) -> v1::ControllerModifyVolumeResponse;
    }
} }

/// The reply that contains an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// To the first call that creates it.
    Create,
    /// To a later query.
    Query,
}

async fn controller_get_capabilities(
    d: &Varied,
    request: ControllerGetCapabilitiesRequest,
) -> Answer<ControllerGetCapabilitiesResponse> {
    if d.has(Variant::WithoutController) {
        return Err(Status::unimplemented("the plugin has no controller service"));
    }
    d.sound.controller_get_capabilities(Request::new(request)).await
}

/// A volume as callers see it.
fn vary_volume(d: &Varied, volume: Option<&mut v1::Volume>, reply: Reply) {
    let Some(volume) = volume else { return };
    if d.has(Variant::CapacityUnknown) || (d.has(Variant::CapacityLate) && reply == Reply::Create) {
        volume.capacity_bytes = 0;
    }
    if d.has(Variant::ContentSourceUnset) {
        volume.content_source = None;
    }
    if d.has(Variant::VolumeTopologyUnset) {
        volume.accessible_topology.clear();
    }
    if d.has(Variant::VolumeTopologyWider)
        && let Some(Topology { segments }) = volume.accessible_topology.first().cloned()
    {
        let elsewhere = segments.into_keys().map(|key| (key, "elsewhere".to_owned())).collect();
        volume.accessible_topology.insert(0, Topology { segments: elsewhere });
    }
}

/// The range with a required size that is a multiple of 1 GiB.
fn rounded(range: CapacityRange) -> Result<CapacityRange, Status> {
    let required = u64::try_from(range.required_bytes).ok();
    let multiple = required.and_then(|required| required.checked_next_multiple_of(GIBIBYTE));
    // The driver itself rejects sizes that are negative or too large.
    let Some(required_bytes) = multiple.and_then(|it| i64::try_from(it).ok()) else { return Ok(range) };
    let limit = range.limit_bytes;
    if limit >= range.required_bytes && (1..required_bytes).contains(&limit) {
        return Err(Status::out_of_range(format!("sizes are multiples of {GIBIBYTE} bytes")));
    }
    Ok(CapacityRange { required_bytes, ..range })
}

async fn create_volume(d: &Varied, mut request: CreateVolumeRequest) -> Answer<CreateVolumeResponse> {
    if d.has(Variant::SizesInGibibytes) {
        request.capacity_range = request.capacity_range.map(rounded).transpose()?;
    }
    let source = request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref());
    if d.has(Variant::ReadyToUseLate)
        && let Some(Type::Snapshot(source)) = source
    {
        let id = source.snapshot_id.clone();
        // A snapshot that does not exist is the driver's to report.
        let found = d.sound.call(move |driver| driver.existing_snapshot("snapshot_id", &id)).await;
        if found.is_ok_and(|snapshot| !is_ready(snapshot.into_inner().created)) {
            return Err(Status::unavailable("the snapshot is not ready to use"));
        }
    }
    // A repeated call is a query: what was late is known by now.
    let again = d.sound.volume(&VolumeId::from_name(&request.name)).is_ok();
    let mut answer = d.sound.create_volume(Request::new(request)).await?;
    vary_volume(d, answer.get_mut().volume.as_mut(), if again { Reply::Query } else { Reply::Create });
    Ok(answer)
}

/// `FailedPrecondition` if a volume exists that was created from one of these volumes or snapshots.
pub(super) async fn in_use(
    d: &Varied,
    sources: impl FnOnce(&Driver) -> Outcome<Vec<String>> + Send + 'static,
) -> Result<(), Status> {
    let copy = d.sound.call(move |driver| {
        let sources = sources(driver)?;
        for id in driver.store.ids::<VolumeId>()? {
            let source = driver.store.load(&id)?.and_then(|volume: Volume| volume.source);
            let source = source.map(|source| match source {
                Source::Snapshot(id) => id.to_string(),
                Source::Volume(id) => id.to_string(),
            });
            if source.is_some_and(|source| sources.contains(&source)) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    });
    match copy.await?.into_inner() {
        Some(copy) => Err(Status::failed_precondition(format!("volume {copy} was created from it"))),
        None => Ok(()),
    }
}

async fn delete_volume(d: &Varied, request: DeleteVolumeRequest) -> Answer<DeleteVolumeResponse> {
    let source_volume_id = request.volume_id.clone();
    if d.has(Variant::SourcesInUse) {
        let id = source_volume_id.clone();
        in_use(d, move |_| Ok(vec![id])).await?;
    }
    if d.has(Variant::DeleteRefusedWithSnapshots) && !source_volume_id.is_empty() {
        let request = ListSnapshotsRequest { source_volume_id, ..Default::default() };
        let snapshots = d.sound.call(move |driver| driver.list_snapshots(request)).await;
        if snapshots.is_ok_and(|snapshots| !snapshots.get_ref().entries.is_empty()) {
            return Err(Status::failed_precondition("the volume has snapshots"));
        }
    }
    d.sound.delete_volume(Request::new(request)).await
}

async fn controller_publish_volume(
    d: &Varied,
    request: ControllerPublishVolumeRequest,
) -> Answer<ControllerPublishVolumeResponse> {
    let id = request.volume_id.clone();
    let mut answer = d.sound.controller_publish_volume(Request::new(request)).await?;
    if d.has(Variant::PublishContextSet) {
        let device = format!("/dev/disk/by-id/{id}");
        answer.get_mut().publish_context = BTreeMap::from([("device".to_owned(), device)]);
    }
    Ok(answer)
}

async fn controller_unpublish_volume(
    d: &Varied,
    request: ControllerUnpublishVolumeRequest,
) -> Answer<ControllerUnpublishVolumeResponse> {
    let mut deleted = d.deleted(&request.volume_id);
    if deleted.is_ok() && d.has(Variant::NotFoundWhenGone) && !request.node_id.is_empty() {
        let node = NodeId::parse(&request.node_id).and_then(|id| d.sound.store.node(&id).ok().flatten());
        deleted = node.map(drop).ok_or_else(|| Status::not_found("the node does not exist"));
    }
    let answer = d.sound.controller_unpublish_volume(Request::new(request)).await?;
    deleted?;
    Ok(answer)
}

impl Varied {
    /// `NotFound` for a volume that does not exist, where the driver returns OK.
    pub(super) fn deleted(&self, volume_id: &str) -> Result<(), Status> {
        let exists = |id: VolumeId| self.sound.volume(&id).is_ok();
        if self.has(Variant::NotFoundWhenGone) && !fields::volume_id(volume_id).is_ok_and(exists) {
            return Err(Status::not_found(format!("volume {volume_id:?} does not exist")));
        }
        Ok(())
    }
}

async fn validate_volume_capabilities(
    d: &Varied,
    request: ValidateVolumeCapabilitiesRequest,
) -> Answer<ValidateVolumeCapabilitiesResponse> {
    if d.has(Variant::WithoutController) {
        return Err(Status::unimplemented("the plugin has no controller service"));
    }
    let mut answer = d.sound.validate_volume_capabilities(Request::new(request)).await?;
    if d.has(Variant::ConfirmedWithoutContext)
        && let Some(confirmed) = &mut answer.get_mut().confirmed
    {
        let volume_capabilities = std::mem::take(&mut confirmed.volume_capabilities);
        *confirmed = Confirmed { volume_capabilities, ..Default::default() };
    }
    Ok(answer)
}

async fn list_volumes(d: &Varied, request: ListVolumesRequest) -> Answer<ListVolumesResponse> {
    let list = |max_entries: i32, starting_token: String| async move {
        let request = ListVolumesRequest { max_entries, starting_token };
        let answer = d.sound.list_volumes(Request::new(request)).await?.into_inner();
        Ok::<_, Status>((answer.entries, answer.next_token))
    };
    let place = (request.max_entries, request.starting_token);
    let (mut entries, next_token) = page(&d.variants, place, list).await?;
    for entry in &mut entries {
        vary_volume(d, entry.volume.as_mut(), Reply::Query);
        if d.has(Variant::ListStatusUnset) {
            entry.status = None;
        }
        let status = entry.status.as_mut().filter(|_| d.has(Variant::PublishedNodesStale));
        status.into_iter().for_each(|status| status.published_node_ids.push(STALE.to_owned()));
    }
    Ok(Response::new(ListVolumesResponse { entries, next_token }))
}

async fn get_capacity(d: &Varied, request: GetCapacityRequest) -> Answer<GetCapacityResponse> {
    let mut answer = d.sound.get_capacity(Request::new(request)).await?;
    if d.has(Variant::CapacityLimitsUnset) {
        (answer.get_mut().minimum_volume_size, answer.get_mut().maximum_volume_size) = (None, None);
    }
    Ok(answer)
}

/// Whether a snapshot of this time is ready to use, with [`Variant::ReadyToUseLate`].
fn is_ready(created: SystemTime) -> bool {
    created.elapsed().is_ok_and(|age| age >= PROCESSING)
}

/// A snapshot as callers see it.
pub(super) fn vary_snapshot(d: &Varied, snapshot: Option<&mut v1::Snapshot>, reply: Reply) {
    let Some(snapshot) = snapshot else { return };
    if d.has(Variant::SnapshotSizeUnknown) || (d.has(Variant::SnapshotSizeLate) && reply == Reply::Create) {
        snapshot.size_bytes = 0;
    }
    let Some(time) = &mut snapshot.creation_time else { return };
    if d.has(Variant::ReadyToUseLate) {
        snapshot.ready_to_use = SystemTime::try_from(*time).is_ok_and(is_ready);
    }
    if d.has(Variant::TimesInSeconds) || (d.has(Variant::ListedTimesInSeconds) && reply == Reply::Query) {
        time.nanos = 0;
    }
}

impl Varied {
    /// `FailedPrecondition` for a volume that no node uses, if snapshots require that.
    pub(super) fn must_be_used(&self, volume_id: &str) -> Result<(), Status> {
        let volume = fields::volume_id(volume_id).and_then(|id| self.sound.volume(&id));
        if self.has(Variant::SnapshotsOfUsedVolumes) && volume.is_ok_and(|volume| volume.in_use().is_none()) {
            return Err(Status::failed_precondition("no node uses the volume"));
        }
        Ok(())
    }
}

async fn create_snapshot(d: &Varied, request: CreateSnapshotRequest) -> Answer<CreateSnapshotResponse> {
    d.must_be_used(&request.source_volume_id)?;
    let source = fields::volume_id(&request.source_volume_id).and_then(|id| d.sound.volume(&id));
    if d.has(Variant::SnapshotsOfUnusedVolumes) && source.is_ok_and(|volume| volume.in_use().is_some()) {
        return Err(Status::failed_precondition("a node uses the volume"));
    }
    let mut answer = Controller::create_snapshot(&d.sound, Request::new(request)).await?;
    vary_snapshot(d, answer.get_mut().snapshot.as_mut(), Reply::Create);
    Ok(answer)
}

async fn delete_snapshot(d: &Varied, request: DeleteSnapshotRequest) -> Answer<DeleteSnapshotResponse> {
    if d.has(Variant::SourcesInUse) {
        let id = request.snapshot_id.clone();
        in_use(d, move |_| Ok(vec![id])).await?;
    }
    Controller::delete_snapshot(&d.sound, Request::new(request)).await
}

async fn list_snapshots(d: &Varied, request: ListSnapshotsRequest) -> Answer<ListSnapshotsResponse> {
    let place = (request.max_entries, request.starting_token.clone());
    let whole = &request;
    let list = |max_entries: i32, starting_token: String| async move {
        let request = ListSnapshotsRequest { max_entries, starting_token, ..whole.clone() };
        let answer = Controller::list_snapshots(&d.sound, Request::new(request)).await?.into_inner();
        Ok::<_, Status>((answer.entries, answer.next_token))
    };
    let (mut entries, next_token) = page(&d.variants, place, list).await?;
    entries.iter_mut().for_each(|entry| vary_snapshot(d, entry.snapshot.as_mut(), Reply::Query));
    Ok(Response::new(ListSnapshotsResponse { entries, next_token }))
}

async fn get_snapshot(d: &Varied, request: GetSnapshotRequest) -> Answer<GetSnapshotResponse> {
    let mut answer = Controller::get_snapshot(&d.sound, Request::new(request)).await?;
    vary_snapshot(d, answer.get_mut().snapshot.as_mut(), Reply::Query);
    Ok(answer)
}

async fn controller_expand_volume(
    d: &Varied,
    mut request: ControllerExpandVolumeRequest,
) -> Answer<ControllerExpandVolumeResponse> {
    if d.has(Variant::SizesInGibibytes) {
        request.capacity_range = request.capacity_range.map(rounded).transpose()?;
    }
    let required = request.capacity_range.map_or(0, |range| range.required_bytes);
    let volume = fields::volume_id(&request.volume_id).and_then(|id| d.sound.volume(&id));
    if d.has(Variant::ExpandSmallerRefused)
        && let (Ok(volume), Ok(required @ 1..)) = (volume, u64::try_from(required))
        && required < volume.capacity_bytes
    {
        return Err(Status::out_of_range(format!("the volume has {} bytes", volume.capacity_bytes)));
    }
    let mut answer = d.sound.controller_expand_volume(Request::new(request)).await?;
    answer.get_mut().node_expansion_required |= d.has(Variant::NodeExpansionRequired);
    Ok(answer)
}

async fn controller_get_volume(
    d: &Varied,
    request: ControllerGetVolumeRequest,
) -> Answer<ControllerGetVolumeResponse> {
    let mut answer = d.sound.controller_get_volume(Request::new(request)).await?;
    let ControllerGetVolumeResponse { volume, status } = answer.get_mut();
    vary_volume(d, volume.as_mut(), Reply::Query);
    let status = status.as_mut().filter(|_| d.has(Variant::PublishedNodesStale));
    status.into_iter().for_each(|status| status.published_node_ids.push(STALE.to_owned()));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_multiples_of_a_gibibyte() {
        let gibibyte = GIBIBYTE.cast_signed();
        // (required, limit, required then; none if it is out of range)
        for (required_bytes, limit_bytes, expected) in [
            (1, 0, Some(gibibyte)),
            (gibibyte, gibibyte, Some(gibibyte)),
            (gibibyte + 1, 0, Some(2 * gibibyte)),
            (0, 5, Some(0)),
            (1, 5, None),
            // For the driver to reject.
            (5, 1, Some(gibibyte)),
            (-1, 0, Some(-1)),
            (i64::MAX - 1, 0, Some(i64::MAX - 1)),
            (1, -1, Some(gibibyte)),
        ] {
            let found = rounded(CapacityRange { required_bytes, limit_bytes }).ok();
            assert_eq!(found.map(|range| range.required_bytes), expected, "{required_bytes} {limit_bytes}");
        }
    }
}
