//! A scripted CSI driver without storage: it answers as the scenario of the volume says, and records its calls.
//!
//! The scenario of a call is in the volume's handle, which begins with its name and a dot.

mod form;
mod groups;
mod identity;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use claimcheck_csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest,
    CreateSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest,
    DeleteSnapshotResponse, DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest,
    GetCapacityResponse, ListVolumesRequest, ListVolumesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    Snapshot, Topology, Volume,
    controller_server::Controller,
    controller_service_capability::{self, Rpc, rpc},
    list_volumes_response::{Entry, VolumeStatus},
    node_server::Node,
    volume_content_source,
};
use claimcheck_scenario::{Answer, Call, Record, Script, code, scenario_of};
use serde_json::{Value, json};
use tonic::{Code, Request, Response, Status};

use self::form::{capability, sorted, topologies};
use crate::{
    lock,
    objects::{
        CAPACITY_DRIVER, DRIVER, INCAPABLE_DRIVER, LISTING_DRIVER, LOCAL_DRIVER, LOCAL_NODE,
        NO_RECOVERY_DRIVER, TOPOLOGY_DRIVER,
    },
};

type Pending = HashMap<(String, String), VecDeque<Answer>>;

/// The time of snapshots, in seconds since 1970.
const CREATED: prost_types::Timestamp = prost_types::Timestamp { seconds: 1_767_323_045, nanos: 0 };

/// The names of the driver, with different capabilities, so that most scenarios are not concerned by those that act on
/// all volumes or classes of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// [`DRIVER`].
    Main,
    /// [`TOPOLOGY_DRIVER`].
    Topology,
    /// [`CAPACITY_DRIVER`].
    Capacity,
    /// [`LISTING_DRIVER`].
    Listing,
    /// [`INCAPABLE_DRIVER`].
    Incapable,
    /// [`LOCAL_DRIVER`].
    Local,
    /// [`NO_RECOVERY_DRIVER`].
    NoRecovery,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Main => DRIVER,
            Self::Topology => TOPOLOGY_DRIVER,
            Self::Capacity => CAPACITY_DRIVER,
            Self::Listing => LISTING_DRIVER,
            Self::Incapable => INCAPABLE_DRIVER,
            Self::Local => LOCAL_DRIVER,
            Self::NoRecovery => NO_RECOVERY_DRIVER,
        }
    }

    fn has_topology(self) -> bool {
        matches!(self, Self::Topology | Self::Capacity | Self::Local)
    }
}

/// The driver of one side; clones are the same.
#[derive(Clone)]
pub struct Driver {
    record: Record,
    variant: Variant,
    script: Arc<Mutex<Pending>>,
    /// Handles by the names of CreateVolume.
    handles: Arc<Mutex<BTreeMap<String, String>>>,
    /// The nodes of ListVolumes, by volume.
    published: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
}

impl Driver {
    pub fn new(record: Record) -> Self {
        Self {
            record,
            variant: Variant::Main,
            script: Arc::default(),
            handles: Arc::default(),
            published: Arc::default(),
        }
    }

    /// The same script and record under another name.
    pub fn as_variant(&self, variant: Variant) -> Self {
        Self { variant, ..self.clone() }
    }

    /// Whether its provisioner runs on a node.
    pub fn is_local(&self) -> bool {
        self.variant == Variant::Local
    }

    /// From now on calls of the scenario are answered so.
    pub fn follow(&self, scenario: &str, script: &Script) {
        for (method, answers) in script {
            let key = (scenario.to_owned(), method.clone());
            lock(&self.script).insert(key, answers.clone().into());
        }
    }

    fn next(&self, scenario: &str, method: &str) -> Answer {
        let mut script = lock(&self.script);
        let Some(answers) = script.get_mut(&(scenario.to_owned(), method.to_owned())) else {
            return Answer::default();
        };
        let Some(first) = answers.front_mut() else { return Answer::default() };
        let answer = first.clone();
        match first.times {
            0 => {}
            1 => drop(answers.pop_front()),
            _ => first.times -= 1,
        }
        answer
    }

    /// Records the call, and answers with the fields that the script says, or its error.
    async fn answer(&self, method: &'static str, of: &str, arguments: Value) -> Result<Value, Status> {
        let scenario = of.split_once('.').map_or("", |(scenario, _)| scenario).to_owned();
        let answer = self.next(&scenario, method);
        self.record.call(Call { scenario, method, of: of.to_owned(), arguments });
        if answer.hang {
            std::future::pending::<()>().await;
        }
        if let Some(late) = answer.late {
            tokio::time::sleep(Duration::from_millis(late)).await;
        }
        match answer.fail {
            None => Ok(answer.with),
            Some(text) => {
                let (name, message) = text.split_once(' ').unwrap_or((&text, ""));
                Err(Status::new(code(name).unwrap_or(Code::Unknown), message))
            }
        }
    }

    /// The handle of a volume: scenario and claim, and a number if the claim was created again.
    fn handle(&self, name: &str, parameters: &BTreeMap<String, String>) -> String {
        let of = |key: &str| parameters.get(key).map_or("", String::as_str);
        let base =
            namespaced_handle(of("csi.storage.k8s.io/pvc/namespace"), of("csi.storage.k8s.io/pvc/name"));
        let mut handles = lock(&self.handles);
        if let Some(known) = handles.get(name) {
            return known.clone();
        }
        let (mut handle, mut number) = (base.clone(), 1);
        while handles.values().any(|taken| *taken == handle) {
            number += 1;
            handle = format!("{base}-{number}");
        }
        handles.insert(name.to_owned(), handle.clone());
        handle
    }
}

#[tonic::async_trait]
impl Node for Driver {
    /// Of a driver with a provisioner on its node.
    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let segments = [(format!("{LOCAL_DRIVER}/node"), LOCAL_NODE.to_owned())].into();
        Ok(Response::new(NodeGetInfoResponse {
            node_id: LOCAL_NODE.into(),
            accessible_topology: Some(Topology { segments }),
            ..NodeGetInfoResponse::default()
        }))
    }
}

/// The segments of a topology that a scenario names.
fn segments(chosen: &Value) -> Result<BTreeMap<String, String>, Status> {
    serde_json::from_value(chosen.clone()).map_err(|error| {
        Status::invalid_argument(format!("the scenario's topology is no map of texts: {error}"))
    })
}

/// The handle for a claim: a dot follows its scenario.
fn namespaced_handle(namespace: &str, claim: &str) -> String {
    match scenario_of(namespace) {
        scenario if scenario == namespace => format!("{scenario}.{claim}"),
        scenario => format!("{scenario}.other-{claim}"),
    }
}

#[tonic::async_trait]
impl Controller for Driver {
    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let rpcs = [
            rpc::Type::CreateDeleteVolume,
            rpc::Type::PublishUnpublishVolume,
            rpc::Type::PublishReadonly,
            rpc::Type::CreateDeleteSnapshot,
            rpc::Type::CloneVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::ModifyVolume,
            rpc::Type::SingleNodeMultiWriter,
        ];
        let more: &[rpc::Type] = match self.variant {
            Variant::Main | Variant::Topology | Variant::Incapable | Variant::Local | Variant::NoRecovery => {
                &[]
            }
            Variant::Capacity => &[rpc::Type::GetCapacity],
            Variant::Listing => &[rpc::Type::ListVolumes, rpc::Type::ListVolumesPublishedNodes],
        };
        let lacks =
            |rpc: &&rpc::Type| self.variant == Variant::Incapable && **rpc == rpc::Type::CreateDeleteVolume;
        let rpcs = rpcs.iter().filter(|rpc| !lacks(rpc));
        let capabilities = rpcs.chain(more).map(|rpc| ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: (*rpc).into() })),
        });
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities: capabilities.collect() }))
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let volume_id = self.handle(&request.name, &request.parameters);
        let range = request.capacity_range.unwrap_or_default();
        let source = request.volume_content_source.as_ref().and_then(|source| source.r#type.clone());
        let source = source.map(|source| match source {
            volume_content_source::Type::Snapshot(of) => format!("snapshot {}", of.snapshot_id),
            volume_content_source::Type::Volume(of) => format!("volume {}", of.volume_id),
        });
        let topology = request.accessibility_requirements.clone();
        let arguments = json!({
            "name": request.name,
            "required": range.required_bytes,
            "limit": range.limit_bytes,
            "capabilities": request.volume_capabilities.iter().map(capability).collect::<Value>(),
            "parameters": request.parameters,
            "mutable": request.mutable_parameters,
            "secrets": request.secrets,
            "source": source,
            "requisite": topology.as_ref().map(|topology| sorted(topologies(&topology.requisite))),
            "preferred": topology.as_ref().map(|topology| sorted(topologies(&topology.preferred))),
        });
        let with = self.answer("CreateVolume", &volume_id, arguments).await?;
        let accessible_topology = match with.get("topology") {
            Some(chosen) => vec![Topology { segments: segments(chosen)? }],
            None => Vec::new(),
        };
        let volume = Volume {
            volume_id,
            capacity_bytes: with.get("capacity").and_then(Value::as_i64).unwrap_or(range.required_bytes),
            content_source: if with.get("forget-source").is_some() {
                None
            } else {
                request.volume_content_source
            },
            volume_context: [("made".to_owned(), "yes".to_owned())].into(),
            accessible_topology,
        };
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let DeleteVolumeRequest { volume_id, secrets } = request.into_inner();
        self.answer("DeleteVolume", &volume_id, json!({ "secrets": secrets })).await?;
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let arguments = json!({
            "node": request.node_id,
            "capability": request.volume_capability.as_ref().map(capability),
            "readonly": request.readonly,
            "secrets": request.secrets,
            "context": request.volume_context,
        });
        let with = self.answer("ControllerPublishVolume", &request.volume_id, arguments).await?;
        if with.get("unlisted").is_none() {
            let mut published = lock(&self.published);
            published.entry(request.volume_id).or_default().insert(request.node_id);
        }
        let publish_context = [("device".to_owned(), "/dev/fake".to_owned())].into();
        Ok(Response::new(ControllerPublishVolumeResponse { publish_context }))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let ControllerUnpublishVolumeRequest { volume_id, node_id, secrets } = request.into_inner();
        let arguments = json!({ "node": node_id, "secrets": secrets });
        self.answer("ControllerUnpublishVolume", &volume_id, arguments).await?;
        if let Some(nodes) = lock(&self.published).get_mut(&volume_id) {
            nodes.remove(&node_id);
        }
        Ok(Response::new(ControllerUnpublishVolumeResponse {}))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let required = request.capacity_range.unwrap_or_default().required_bytes;
        let arguments = json!({
            "required": required,
            "secrets": request.secrets,
            "capability": request.volume_capability.as_ref().map(capability),
        });
        let with = self.answer("ControllerExpandVolume", &request.volume_id, arguments).await?;
        let capacity_bytes = with.get("capacity").and_then(Value::as_i64).unwrap_or(required);
        let node_expansion_required = with.get("node").is_some();
        Ok(Response::new(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required }))
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        let ControllerModifyVolumeRequest { volume_id, secrets, mutable_parameters } = request.into_inner();
        let arguments = json!({ "secrets": secrets, "mutable": mutable_parameters });
        self.answer("ControllerModifyVolume", &volume_id, arguments).await?;
        Ok(Response::new(ControllerModifyVolumeResponse {}))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let CreateSnapshotRequest { name, source_volume_id, secrets, parameters } = request.into_inner();
        let arguments = json!({ "name": name, "secrets": secrets, "parameters": parameters });
        let with = self.answer("CreateSnapshot", &source_volume_id, arguments).await?;
        let of = parameters.get("csi.storage.k8s.io/volumesnapshot/name").map_or("", String::as_str);
        let scenario = source_volume_id.split_once('.').map_or("", |(scenario, _)| scenario);
        let snapshot = Snapshot {
            snapshot_id: format!("{scenario}.snapshot-of-{of}"),
            source_volume_id: source_volume_id.clone(),
            size_bytes: with.get("size").and_then(Value::as_i64).unwrap_or(1 << 30),
            creation_time: Some(CREATED),
            ready_to_use: with.get("unready").is_none(),
            ..Snapshot::default()
        };
        Ok(Response::new(CreateSnapshotResponse { snapshot: Some(snapshot) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let DeleteSnapshotRequest { snapshot_id, secrets } = request.into_inner();
        self.answer("DeleteSnapshot", &snapshot_id, json!({ "secrets": secrets })).await?;
        Ok(Response::new(DeleteSnapshotResponse {}))
    }

    /// The scenario is the parameter `scenario` of the class.
    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let GetCapacityRequest { volume_capabilities, parameters, accessible_topology } =
            request.into_inner();
        let segments = accessible_topology.unwrap_or_default().segments;
        let segment: Vec<&str> = segments.values().map(String::as_str).collect();
        let scenario = parameters.get("scenario").map_or("", String::as_str);
        let of = format!("{scenario}.capacity in {}", segment.join(","));
        let arguments = json!({
            "parameters": parameters,
            "capabilities": volume_capabilities.iter().map(capability).collect::<Value>(),
        });
        let with = self.answer("GetCapacity", &of, arguments).await?;
        let bytes = |key: &str| with.get(key).and_then(Value::as_i64);
        Ok(Response::new(GetCapacityResponse {
            available_capacity: bytes("capacity").unwrap_or(10 << 30),
            maximum_volume_size: bytes("maximum"),
            minimum_volume_size: None,
        }))
    }

    /// Not recorded: its time is not a scenario's.
    async fn list_volumes(
        &self,
        _: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let published = lock(&self.published).clone();
        let entries = published.into_iter().map(|(volume_id, nodes)| Entry {
            volume: Some(Volume { volume_id, ..Volume::default() }),
            status: Some(VolumeStatus {
                published_node_ids: nodes.into_iter().collect(),
                ..VolumeStatus::default()
            }),
        });
        Ok(Response::new(ListVolumesResponse { entries: entries.collect(), next_token: String::new() }))
    }
}
