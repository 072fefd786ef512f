//! A driver that responds to every call with random messages, to test callers: they must neither panic nor hang, and
//! must not keep what they receive without a limit.
//!
//! All messages are valid protobuf. Their content is not: lists and texts of megabytes, control characters, unknown
//! enum values, sizes and times out of range, page tokens in circles, streams without end, calls without a response.

mod values;

use std::{
    iter::repeat_with,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use claimcheck_csi::v1::{
    self, controller_server::Controller, group_controller_server::GroupController, identity_server::Identity,
    node_server::Node, snapshot_metadata_server::SnapshotMetadata,
};
use tokio::time::sleep;
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status, codegen::BoxStream};

use self::values::{Dice, Random};

/// How many calls and streams of a process have no end: each costs its caller a deadline.
const ENDLESS: usize = 6;
/// How many of the first calls succeed: suites skip all cases that depend on a call that fails at the beginning.
const GENTLE: u64 = 100;
/// The maximum size of a response that is requested before anything else.
const GREETING: usize = 1 << 18;
/// The pause between the messages of a slow stream.
const DRIP: Duration = Duration::from_millis(50);

type Answer<T> = Result<Response<T>, Status>;

/// A driver without volumes; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Hostile {
    seed: u64,
    calls: Arc<AtomicU64>,
    /// How many more calls and streams may have no end.
    endless: Arc<AtomicUsize>,
}

impl Hostile {
    /// Calls in the same order receive the same responses for the same seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, calls: Arc::default(), endless: Arc::new(AtomicUsize::new(ENDLESS)) }
    }

    fn dice(&self) -> Dice {
        Dice::new(self.seed, self.calls.fetch_add(1, Ordering::Relaxed))
    }

    fn may_be_endless(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.endless.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// The response without which a caller would not make any other call.
    async fn greet<T: Random>(&self) -> Answer<T> {
        let mut dice = self.dice();
        dice.limit(GREETING);
        Ok(Response::new(T::random(&mut dice)))
    }

    /// Any response, an error, or none.
    async fn answer<T: Random>(&self) -> Answer<T> {
        let mut dice = self.dice();
        match dice.below(100) {
            _ if dice.call() < GENTLE => {}
            0 if self.may_be_endless() => std::future::pending().await,
            1..=5 => sleep(Duration::from_millis(dice.below(20))).await,
            6..=20 => return Err(dice.status()),
            _ => {}
        }
        Ok(Response::new(T::random(&mut dice)))
    }

    fn stream<T: Random + Send + 'static>(&self) -> Answer<BoxStream<T>> {
        let mut dice = self.dice();
        let (length, pause) = match dice.below(4) {
            0 if self.may_be_endless() => (usize::MAX, None),
            1 if self.may_be_endless() => (usize::MAX, Some(DRIP)),
            _ => (200, None),
        };
        let end = (dice.below(4) == 0).then(|| Err(dice.status()));
        let messages = repeat_with(move || {
            dice.limit(1 << 14);
            Ok(T::random(&mut dice))
        });
        let stream = tokio_stream::iter(messages.take(length).chain(end)).then(move |message| async move {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            message
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

/// Implements services: each call by a method of [`Hostile`].
macro_rules! serve {
    ($($service:ident { $($how:ident $call:ident($request:ident) -> $response:ident;)* })*) => {
        $(#[tonic::async_trait]
        impl $service for Hostile {
            $(async fn $call(&self, _: Request<v1::$request>) -> Answer<v1::$response> {
                self.$how().await
            })*
        })*
    };
}

serve! {
    Identity {
        greet get_plugin_info(GetPluginInfoRequest) -> GetPluginInfoResponse;
        greet get_plugin_capabilities(GetPluginCapabilitiesRequest) -> GetPluginCapabilitiesResponse;
        greet probe(ProbeRequest) -> ProbeResponse;
    }
    Controller {
        answer create_volume(CreateVolumeRequest) -> CreateVolumeResponse;
        answer delete_volume(DeleteVolumeRequest) -> DeleteVolumeResponse;
        answer controller_publish_volume(ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse;
        answer controller_unpublish_volume(ControllerUnpublishVolumeRequest)
            -> ControllerUnpublishVolumeResponse;
        answer validate_volume_capabilities(ValidateVolumeCapabilitiesRequest)
            -> ValidateVolumeCapabilitiesResponse;
        answer list_volumes(ListVolumesRequest) -> ListVolumesResponse;
        answer get_capacity(GetCapacityRequest) -> GetCapacityResponse;
        greet controller_get_capabilities(ControllerGetCapabilitiesRequest)
            -> ControllerGetCapabilitiesResponse;
        answer create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse;
        answer delete_snapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse;
        answer list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse;
        answer get_snapshot(GetSnapshotRequest) -> GetSnapshotResponse;
        answer controller_expand_volume(ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse;
        answer controller_get_volume(ControllerGetVolumeRequest) -> ControllerGetVolumeResponse;
        answer controller_modify_volume(ControllerModifyVolumeRequest) -> ControllerModifyVolumeResponse;
    }
    GroupController {
        greet group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest)
            -> GroupControllerGetCapabilitiesResponse;
        answer create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest)
            -> CreateVolumeGroupSnapshotResponse;
        answer delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest)
            -> DeleteVolumeGroupSnapshotResponse;
        answer get_volume_group_snapshot(GetVolumeGroupSnapshotRequest) -> GetVolumeGroupSnapshotResponse;
    }
    Node {
        answer node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse;
        answer node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
        answer node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
        answer node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
        answer node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
        answer node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
        greet node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
        greet node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse;
    }
}

#[tonic::async_trait]
impl SnapshotMetadata for Hostile {
    async fn get_metadata_allocated(
        &self,
        _: Request<v1::GetMetadataAllocatedRequest>,
    ) -> Answer<BoxStream<v1::GetMetadataAllocatedResponse>> {
        self.stream()
    }

    async fn get_metadata_delta(
        &self,
        _: Request<v1::GetMetadataDeltaRequest>,
    ) -> Answer<BoxStream<v1::GetMetadataDeltaResponse>> {
        self.stream()
    }
}
