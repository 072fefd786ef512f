//! A driver that responds to every call with random messages, to test callers: they must neither panic nor hang, and
//! must not keep what they receive without a limit.
//!
//! All messages are valid protobuf. Their content is not: lists and texts of megabytes, control characters, unknown
//! enum values, sizes and times out of range, page tokens in circles, streams without end, calls without a response. Neither
//! is their transport: connections are reset, closed in one direction or slow, and the status of a call comes late.

mod late;
mod transport;
mod values;

use std::{
    iter::repeat_with,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use claimcheck_csi::{
    ServeError, Server, Services,
    v1::{
        self, controller_server::Controller, group_controller_server::GroupController,
        identity_server::Identity, node_server::Node, snapshot_metadata_server::SnapshotMetadata,
    },
};
use tokio::time::sleep;
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status, codegen::BoxStream};

use self::{
    late::LateTrailers,
    transport::{Connection, Course},
    values::{Dice, Random},
};

/// How many calls and streams of a process have no end: each costs its caller a deadline.
const ENDLESS: usize = 6;
/// How many connections of a process may keep their caller waiting: each call on one costs a deadline.
const WAITING: usize = 8;
/// Whether a connection fails is independent of the content of the responses.
const CONNECTIONS: u64 = 0x636f_6e6e;
/// The same for late trailers.
const TRAILERS: u64 = 0x7472_6169;
/// The topology segment of its nodes: without any, no volume would be created.
const TOPOLOGY: (&str, &str) = ("topology.claimcheck.dev/zone", "hostile");
/// The maximum size of a response that is requested before anything else.
const GREETING: usize = 1 << 18;
/// The pause between the messages of a slow stream.
const DRIP: Duration = Duration::from_millis(50);

type Answer<T> = Result<Response<T>, Status>;

/// A driver without volumes; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Hostile {
    seed: u64,
    /// The names with which it can be registered: of the driver, and of its node.
    names: (String, String),
    /// How many of the first calls succeed: callers give up, and suites skip cases, if a call fails at the beginning.
    gentle: u64,
    calls: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    /// How many more calls and streams may have no end.
    endless: Arc<AtomicUsize>,
    /// How many more connections may keep their caller waiting.
    waiting: Arc<AtomicUsize>,
}

impl Hostile {
    /// Calls in the same order receive the same responses for the same seed.
    pub(crate) fn new(seed: u64, names: (String, String), gentle: u64) -> Self {
        Self {
            seed,
            names,
            gentle,
            calls: Arc::default(),
            connections: Arc::default(),
            endless: Arc::new(AtomicUsize::new(ENDLESS)),
            waiting: Arc::new(AtomicUsize::new(WAITING)),
        }
    }

    /// Serves these services of it, until that fails.
    pub(crate) async fn serve(self, server: Server, services: Services) -> Result<(), ServeError> {
        let service = LateTrailers { services, driver: self.clone() };
        let wrap = move |accepted| Connection::new(accepted, self.course(), self.clone());
        server.serve_over(service, wrap, std::future::pending()).await
    }

    /// Whether the first calls are still to come.
    fn is_gentle(&self) -> bool {
        self.calls.load(Ordering::Relaxed) < self.gentle
    }

    /// What becomes of the next connection.
    fn course(&self) -> Course {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        match Course::random(number, &mut Dice::new(self.seed ^ CONNECTIONS, number)) {
            Course::HalfClosed { .. } | Course::Slow { .. } if !one_less(&self.waiting) => Course::Sound,
            course => course,
        }
    }

    /// How late a call's status is, if it is; past its deadline only as often as calls may have no end.
    fn trailers_after(&self, deadline: Duration) -> Option<Duration> {
        if self.is_gentle() {
            return None;
        }
        let call = self.calls.load(Ordering::Relaxed);
        let mut dice = Dice::new(self.seed ^ TRAILERS, call);
        match dice.below(50) {
            0 if self.may_be_endless() => Some(deadline),
            1 => Some(Duration::from_millis(dice.below(100))),
            _ => None,
        }
    }

    fn dice(&self) -> Dice {
        Dice::new(self.seed, self.calls.fetch_add(1, Ordering::Relaxed))
    }

    fn may_be_endless(&self) -> bool {
        one_less(&self.endless)
    }

    /// The response without which a caller would not make any other call.
    async fn greet<T: Random>(&self) -> Answer<T> {
        let mut dice = self.dice();
        dice.limit(GREETING);
        Ok(Response::new(T::random(&mut dice)))
    }

    /// Whether a random name is replaced: always at first, since no other call is made to a driver that cannot be
    /// registered, and mostly later.
    fn is_named(&self, dice: &mut Dice) -> bool {
        dice.call() < self.gentle || dice.below(4) > 0
    }

    async fn plugin_info(&self) -> Answer<v1::GetPluginInfoResponse> {
        let mut dice = self.dice();
        dice.limit(GREETING);
        let mut info = v1::GetPluginInfoResponse::random(&mut dice);
        if self.is_named(&mut dice) {
            info.name.clone_from(&self.names.0);
        }
        Ok(Response::new(info))
    }

    async fn node_info(&self) -> Answer<v1::NodeGetInfoResponse> {
        let mut dice = self.dice();
        dice.limit(GREETING);
        let mut info = v1::NodeGetInfoResponse::random(&mut dice);
        if self.is_named(&mut dice) {
            info.node_id.clone_from(&self.names.1);
            // Keys and values that are no labels keep a node from registering the driver.
            let (key, value) = TOPOLOGY;
            let segments = [(key.to_owned(), value.to_owned())].into();
            info.accessible_topology = Some(v1::Topology { segments });
        }
        Ok(Response::new(info))
    }

    /// Mostly a volume that callers go on with: one of another size or place is deleted at once.
    async fn volume(&self) -> Answer<v1::CreateVolumeResponse> {
        let mut answer = self.answer::<v1::CreateVolumeResponse>().await?;
        let mut dice = self.dice();
        if self.is_named(&mut dice) {
            let volume = answer.get_mut().volume.get_or_insert_default();
            volume.volume_id = format!("volume-{}", dice.call());
            volume.capacity_bytes = 1 << 30;
            volume.accessible_topology.clear();
            volume.content_source = None;
        }
        Ok(answer)
    }

    /// Any response, an error, or none.
    async fn answer<T: Random>(&self) -> Answer<T> {
        let mut dice = self.dice();
        match dice.below(100) {
            _ if dice.call() < self.gentle => {}
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

/// Takes one from a number; false if there is none left.
fn one_less(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
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
        plugin_info get_plugin_info(GetPluginInfoRequest) -> GetPluginInfoResponse;
        greet get_plugin_capabilities(GetPluginCapabilitiesRequest) -> GetPluginCapabilitiesResponse;
        greet probe(ProbeRequest) -> ProbeResponse;
    }
    Controller {
        volume create_volume(CreateVolumeRequest) -> CreateVolumeResponse;
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
        node_info node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse;
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
