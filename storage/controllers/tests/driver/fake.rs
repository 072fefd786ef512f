//! A CSI driver without storage: it records requests, counts calls and can be made to fail.

mod groups;
mod node;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use claimcheck_csi::v1::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerServiceCapability, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse, CreateVolumeRequest,
    CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetPluginCapabilitiesRequest,
    GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse, GetSnapshotRequest,
    GetSnapshotResponse, PluginCapability, ProbeRequest, ProbeResponse, Snapshot, Topology, Volume,
    controller_server::Controller,
    controller_service_capability::{self, Rpc, rpc},
    identity_server::Identity,
    plugin_capability::{self, Service, service},
};
use claimcheck_informer::testing::DRIVER;
use tonic::{Request, Response, Status};

/// The topology key of the driver.
pub const ZONE: &str = "test/zone";

/// The driver; clones are the same one.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
pub struct State {
    /// From name to parameters.
    pub volumes: BTreeMap<String, BTreeMap<String, String>>,
    /// From name to the volume that they are of.
    pub snapshots: BTreeMap<String, String>,
    /// From the name of a group of snapshots to the names of its snapshots.
    pub groups: BTreeMap<String, Vec<String>>,
    /// How often a snapshot is still to be said not to be ready.
    pub unready: usize,
    /// The seconds of creation_time, if they are not left out.
    pub created: Option<i64>,
    /// Volume and node.
    pub published: BTreeSet<(String, String)>,
    /// Method and volume of every call, in order.
    pub calls: Vec<(&'static str, String)>,
    /// The secrets of the last CreateVolume, DeleteVolume or CreateSnapshot.
    pub secrets: BTreeMap<String, String>,
    /// CreateVolume fails for good.
    pub refuses: bool,
    /// How many of the next volumes are smaller than requested.
    pub too_small: usize,
    /// The MiB that GetCapacity returns for a zone, if not the default.
    pub room: BTreeMap<String, i64>,
    /// A capability that the driver does not declare.
    pub lacks: Option<rpc::Type>,
    /// The driver does not declare that it creates groups of snapshots.
    pub lacks_groups: bool,
    /// The node service declares EXPAND_VOLUME.
    pub node_expands: bool,
    /// The node service does not return its capabilities.
    pub node_fails: bool,
    faults: BTreeMap<&'static str, VecDeque<Fault>>,
}

impl State {
    /// The snapshot of this name, which is its id, too.
    fn snapshot(&mut self, name: &str) -> Snapshot {
        let ready_to_use = self.unready == 0;
        self.unready = self.unready.saturating_sub(1);
        let source_volume_id = self.snapshots[name].clone();
        let snapshot_id = name.to_owned();
        let mut snapshot = Snapshot {
            snapshot_id,
            source_volume_id,
            size_bytes: 64 << 20,
            ready_to_use,
            ..Snapshot::default()
        };
        if let Some(seconds) = self.created {
            snapshot.creation_time.get_or_insert_default().seconds = seconds;
        }
        snapshot
    }
}

struct Fault {
    status: Status,
    after_effect: bool,
}

impl Fake {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The next call of this method fails without effect; later calls follow later injections, in order.
    pub fn fail(&self, method: &'static str, status: Status) {
        let fault = Fault { status, after_effect: false };
        self.state().faults.entry(method).or_default().push_back(fault);
    }

    /// Likewise, but the call takes effect before it fails.
    pub fn lose_answer(&self, method: &'static str, status: Status) {
        let fault = Fault { status, after_effect: true };
        self.state().faults.entry(method).or_default().push_back(fault);
    }

    /// How often each method was called for each volume; the name of a volume is its handle, too.
    pub fn counts(&self) -> BTreeMap<&'static str, Vec<usize>> {
        let mut by_volume: BTreeMap<(&'static str, String), usize> = BTreeMap::new();
        for call in &self.state().calls {
            *by_volume.entry(call.clone()).or_default() += 1;
        }
        let mut counts: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
        for ((method, _), count) in by_volume {
            counts.entry(method).or_default().push(count);
        }
        counts
    }

    fn call<T>(
        &self,
        method: &'static str,
        volume: &str,
        effect: impl FnOnce(&mut State) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let mut state = self.state();
        state.calls.push((method, volume.to_owned()));
        match state.faults.get_mut(method).and_then(VecDeque::pop_front) {
            None => effect(&mut state).map(Response::new),
            Some(Fault { status, after_effect }) => {
                if after_effect {
                    effect(&mut state)?;
                }
                Err(status)
            }
        }
    }
}

#[tonic::async_trait]
impl Identity for Fake {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse { name: DRIVER.into(), ..GetPluginInfoResponse::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let services = [
            service::Type::ControllerService,
            service::Type::VolumeAccessibilityConstraints,
            service::Type::GroupControllerService,
        ];
        let capabilities = services.map(|service| PluginCapability {
            r#type: Some(plugin_capability::Type::Service(Service { r#type: service.into() })),
        });
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities: capabilities.into() }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

#[tonic::async_trait]
impl Controller for Fake {
    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let rpcs = [
            rpc::Type::CreateDeleteVolume,
            rpc::Type::PublishUnpublishVolume,
            rpc::Type::GetCapacity,
            rpc::Type::CreateDeleteSnapshot,
            rpc::Type::GetSnapshot,
            rpc::Type::CloneVolume,
        ];
        let lacks = self.state().lacks;
        let declared = rpcs.into_iter().filter(|rpc| Some(*rpc) != lacks);
        let capabilities = declared.map(|rpc| ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: rpc.into() })),
        });
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities: capabilities.collect() }))
    }

    /// As many MiB are left as a thousand is more than there are volumes.
    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let zone = request.into_inner().accessible_topology.unwrap_or_default().segments[ZONE].clone();
        self.call("GetCapacity", &zone, |state| {
            let default = 1000 - i64::try_from(state.volumes.len()).unwrap();
            let left = state.room.get(&zone).copied().unwrap_or(default);
            Ok(GetCapacityResponse { available_capacity: left << 20, ..GetCapacityResponse::default() })
        })
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        self.call("CreateVolume", &request.name, |state| {
            if state.refuses {
                return Err(Status::internal("refused"));
            }
            state.volumes.insert(request.name.clone(), request.parameters.clone());
            state.secrets = request.secrets.clone();
            let preferred = request.accessibility_requirements.clone().unwrap_or_default().preferred;
            let accessible_topology: Vec<Topology> = preferred.into_iter().take(1).collect();
            let mut capacity_bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
            if state.too_small > 0 {
                state.too_small -= 1;
                capacity_bytes -= 1;
            }
            let volume_id = request.name.clone();
            let content_source = request.volume_content_source.clone();
            let volume = Volume {
                volume_id,
                capacity_bytes,
                accessible_topology,
                content_source,
                ..Volume::default()
            };
            Ok(CreateVolumeResponse { volume: Some(volume) })
        })
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let DeleteVolumeRequest { volume_id: volume, secrets } = request.into_inner();
        self.call("DeleteVolume", &volume, |state| {
            state.secrets = secrets;
            if state.published.iter().any(|(published, _)| *published == volume) {
                return Err(Status::failed_precondition("still published"));
            }
            state.volumes.remove(&volume);
            Ok(DeleteVolumeResponse {})
        })
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let CreateSnapshotRequest { name, source_volume_id, secrets, .. } = request.into_inner();
        self.call("CreateSnapshot", &name.clone(), |state| {
            state.secrets = secrets;
            state.snapshots.insert(name.clone(), source_volume_id);
            Ok(CreateSnapshotResponse { snapshot: Some(state.snapshot(&name)) })
        })
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        let name = request.into_inner().snapshot_id;
        self.call("GetSnapshot", &name.clone(), |state| {
            if !state.snapshots.contains_key(&name) {
                return Err(Status::not_found("no such snapshot"));
            }
            Ok(GetSnapshotResponse { snapshot: Some(state.snapshot(&name)) })
        })
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let name = request.into_inner().snapshot_id;
        self.call("DeleteSnapshot", &name.clone(), |state| {
            state.snapshots.remove(&name);
            Ok(DeleteSnapshotResponse {})
        })
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let ControllerPublishVolumeRequest { volume_id, node_id, .. } = request.into_inner();
        self.call("ControllerPublishVolume", &volume_id.clone(), |state| {
            let elsewhere = |(volume, node): &(String, String)| *volume == volume_id && *node != node_id;
            if state.published.iter().any(elsewhere) {
                return Err(Status::failed_precondition("published on another node"));
            }
            state.published.insert((volume_id, node_id));
            let publish_context = BTreeMap::from([("device".to_owned(), "/dev/fake".to_owned())]);
            Ok(ControllerPublishVolumeResponse { publish_context })
        })
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let ControllerUnpublishVolumeRequest { volume_id, node_id, .. } = request.into_inner();
        self.call("ControllerUnpublishVolume", &volume_id.clone(), |state| {
            state.published.remove(&(volume_id, node_id));
            Ok(ControllerUnpublishVolumeResponse {})
        })
    }
}
