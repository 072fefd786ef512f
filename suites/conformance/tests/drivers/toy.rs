//! A driver without mounts: a volume is a directory, and publishing it makes a symbolic link. It is legal in ways that
//! few drivers are, or illegal, as a test requires.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_csi::{
    Server, Services, Status,
    v1::{
        self,
        controller_server::{Controller, ControllerServer},
        controller_service_capability::{self, rpc::Type as ControllerType},
        identity_server::{Identity, IdentityServer},
        list_volumes_response::Entry,
        node_server::{Node, NodeServer},
        node_service_capability::{self, rpc::Type as NodeType},
        plugin_capability::{self, service::Type as ServiceType},
        volume_capability::{AccessType, access_mode::Mode},
        volume_usage::Unit,
    },
};
use tokio::task::JoinHandle;
use tonic::{Request, Response};

type Answer<T> = Result<Response<T>, Status>;

/// How the driver differs from others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    /// Declares VOLUME_ACCESSIBILITY_CONSTRAINTS.
    pub topology: bool,
    /// Returns a topology for nodes and volumes.
    pub places: bool,
    /// Returns OutOfRange for an expansion to a smaller size; otherwise volumes shrink.
    pub keeps_size: bool,
    /// Publishes an empty directory if the volume is not staged; otherwise the volume.
    pub empty_unless_staged: bool,
    /// Attaches volumes, and returns InvalidArgument for the deletion of attached ones.
    pub keeps_attached: bool,
    /// Returns Internal from NodeStageVolume of a volume that does not exist.
    pub fails_to_find: bool,
    /// Compares the parameters of ValidateVolumeCapabilities with those of CreateVolume, which are `type: fast`.
    pub compares_parameters: bool,
    /// Creates no more volumes; otherwise any number.
    pub full: bool,
    /// Returns tokens for pages that never end.
    pub endless: bool,
    /// Publishes nothing.
    pub fake_node: bool,
    /// Leaves what it has published.
    pub leaves_target: bool,
    /// Returns Internal for names with other characters than digits, dashes and small letters, or of more than 64 bytes.
    pub plain_names: bool,
    /// Returns Internal for every new volume, once one with a control character in its name or with parameters beyond the
    /// limits was requested.
    pub fails_after_invalid: bool,
    /// Attaches volumes, and deletes attached ones.
    pub attaches: bool,
    /// Returns NotFound for a volume from a source: it has none.
    pub rejects_sources: bool,
    /// Returns Internal for a new volume while another one is being created.
    pub one_at_a_time: bool,
    /// Returns OutOfRange for volumes of less than 1 GiB.
    pub large: bool,
    /// Removes the staging directory in NodeUnstageVolume, and requires it in NodeStageVolume.
    pub removes_staging: bool,
    /// Returns NotFound for NodeUnstageVolume of a volume that does not exist.
    pub checks_unstaged: bool,
    /// Returns Internal for NodeUnstageVolume of a volume that does not exist.
    pub fails_unstaged: bool,
    /// Does not stage, and publishes a volume for reading only after it was published for writing.
    pub formats_when_published: bool,
    /// Returns Internal from every call about all volumes, once a volume with a control character in its name or with
    /// parameters beyond the limits was requested.
    pub names_culprit: bool,
    /// Returns ResourceExhausted as long as another volume is attached.
    pub attaches_one: bool,
    /// Accepts access mode UNKNOWN in CreateVolume.
    pub any_mode: bool,
    /// Returns Internal from every NodeStageVolume.
    pub stages_nothing: bool,
    /// Returns Internal from every NodePublishVolume, with the command that failed: its options and the target.
    pub publishes_nothing: bool,
    /// The only access mode of its volumes; otherwise all but UNKNOWN.
    pub only_mode: Option<Mode>,
    /// Volumes have at least 10 GiB: smaller sizes are rounded up.
    pub rounds_up: bool,
    /// Sizes of volumes are multiples of 10 GiB: other ones are rejected.
    pub in_steps: bool,
    /// Supports no block volumes, and fails for them.
    pub no_block: bool,
    /// Has no NodeGetInfo.
    pub no_node_info: bool,
    /// Has no node service: the endpoint is that of a controller.
    pub no_node: bool,
    /// Attaches volumes, and returns NotFound for the detachment of one that does not exist.
    pub finds_detached: bool,
    /// Returns tokens for pages, and Aborted for each of them.
    pub rejects_tokens: bool,
    /// Returns Unknown for parameters beyond the limits.
    pub limits_parameters: bool,
    /// Ids of volumes are numbers: ValidateVolumeCapabilities and NodeStageVolume return InvalidArgument for other texts,
    /// and NotFound for volumes that do not exist.
    pub numbers: bool,
}

/// The driver.
#[derive(Clone, Debug)]
pub struct Toy {
    traits: Traits,
    folder: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    sizes: BTreeMap<String, i64>,
    staged: BTreeSet<String>,
    formatted: BTreeSet<String>,
    attached: BTreeSet<String>,
    had_invalid: bool,
    culprit: Option<String>,
    creating: bool,
}

impl Toy {
    /// With its volumes below a folder.
    pub fn new(traits: Traits, folder: &Path) -> Self {
        Self { traits, folder: folder.to_owned(), state: Arc::default() }
    }

    /// Serves at a socket until the task is aborted.
    pub fn serve(&self, socket: &Path) -> JoinHandle<()> {
        let services = Services::default()
            .with(IdentityServer::new(self.clone()))
            .with(ControllerServer::new(self.clone()));
        let services = match self.traits.no_node {
            true => services,
            false => services.with(NodeServer::new(self.clone())),
        };
        let server = Server::bind(socket).unwrap();
        tokio::spawn(async move { server.serve(services, std::future::pending()).await.unwrap() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails because of a volume that an earlier call left, if that is a trait of the driver.
    fn all_volumes(&self) -> Result<(), Status> {
        match &self.state().culprit {
            Some(name) => Err(Status::internal(format!("no such file: volumes/{name}/disk.img"))),
            None => Ok(()),
        }
    }

    /// The id of the volume with this name.
    fn id_of(&self, name: String) -> String {
        if !self.traits.numbers {
            return name;
        }
        // FNV-1a.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let id = format!("{:019}", name.bytes().fold(0xcbf2_9ce4_8422_2325, hash) >> 2);
        let mut state = self.state();
        let size = state.sizes.remove(&name).unwrap_or_default();
        state.sizes.entry(id.clone()).or_insert(size);
        id
    }

    /// Checks that a volume exists, if ids are numbers.
    fn find(&self, id: &str) -> Result<(), Status> {
        match () {
            () if !self.traits.numbers || self.state().sizes.contains_key(id) => Ok(()),
            () if id.parse::<u64>().is_err() => {
                Err(Status::invalid_argument("the volume_id is not a number"))
            }
            () => Err(Status::not_found("no such volume")),
        }
    }

    fn place(&self) -> Option<v1::Topology> {
        let segments = BTreeMap::from([("rack".to_owned(), "1".to_owned())]);
        self.traits.places.then_some(v1::Topology { segments })
    }
}

fn done<T: Default>() -> Answer<T> {
    Ok(Response::new(T::default()))
}

fn failed(error: io::Error) -> Status {
    Status::internal(error.to_string())
}

#[tonic::async_trait]
impl Identity for Toy {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Answer<v1::GetPluginInfoResponse> {
        let (name, vendor_version) = ("toy.example.com".to_owned(), "1".to_owned());
        Ok(Response::new(v1::GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Answer<v1::GetPluginCapabilitiesResponse> {
        let topology = self.traits.topology.then_some(ServiceType::VolumeAccessibilityConstraints);
        let services = [ServiceType::ControllerService].into_iter().chain(topology);
        let capabilities = services.map(|service| v1::PluginCapability {
            r#type: Some(plugin_capability::Type::Service(plugin_capability::Service {
                r#type: service.into(),
            })),
        });
        Ok(Response::new(v1::GetPluginCapabilitiesResponse { capabilities: capabilities.collect() }))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Answer<v1::ProbeResponse> {
        Ok(Response::new(v1::ProbeResponse { ready: Some(true) }))
    }
}

#[tonic::async_trait]
impl Controller for Toy {
    async fn controller_get_capabilities(
        &self,
        _: Request<v1::ControllerGetCapabilitiesRequest>,
    ) -> Answer<v1::ControllerGetCapabilitiesResponse> {
        let capabilities = [
            ControllerType::CreateDeleteVolume,
            ControllerType::ListVolumes,
            ControllerType::GetCapacity,
            ControllerType::ExpandVolume,
        ];
        let attaches = self.traits.attaches.then_some(ControllerType::PublishUnpublishVolume);
        let capabilities = capabilities.into_iter().chain(attaches);
        let capabilities = capabilities.map(|capability| v1::ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(controller_service_capability::Rpc {
                r#type: capability.into(),
            })),
        });
        Ok(Response::new(v1::ControllerGetCapabilitiesResponse { capabilities: capabilities.collect() }))
    }

    async fn create_volume(
        &self,
        request: Request<v1::CreateVolumeRequest>,
    ) -> Answer<v1::CreateVolumeResponse> {
        if self.traits.full {
            return Err(Status::resource_exhausted("no room is left"));
        }
        let request = request.into_inner();
        let is_plain = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || c == '-';
        if self.traits.plain_names && !(request.name.len() <= 64 && request.name.chars().all(is_plain)) {
            return Err(Status::internal("the back end rejects the name"));
        }
        let is_invalid = request.name.contains(char::is_control)
            || request.parameters.values().map(String::len).sum::<usize>() > 4096;
        if self.traits.fails_after_invalid {
            let mut state = self.state();
            state.had_invalid |= is_invalid;
            if state.had_invalid {
                return Err(Status::internal(format!("{}: cannot read the list of volumes", request.name)));
            }
        }
        if self.traits.limits_parameters && is_invalid {
            return Err(Status::unknown("the back end rejects the request"));
        }
        if self.traits.names_culprit {
            self.all_volumes()?;
            if is_invalid {
                self.state().culprit = Some(request.name.clone());
                return Err(Status::internal("cannot create the image"));
            }
        }
        for capability in &request.volume_capabilities {
            let mode = capability.access_mode.unwrap_or_default().mode();
            let is_known = self.traits.any_mode || mode != Mode::Unknown;
            if !is_known || self.traits.only_mode.is_some_and(|only| only != mode) {
                return Err(Status::invalid_argument("unsupported access mode"));
            }
            if self.traits.no_block && matches!(capability.access_type, Some(AccessType::Block(_))) {
                return Err(Status::unknown("assertion failed"));
            }
        }
        if self.traits.one_at_a_time {
            if std::mem::replace(&mut self.state().creating, true) {
                return Err(Status::internal(format!("{}: the list of volumes is locked", request.name)));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.state().creating = false;
        }
        let source = request.volume_content_source.and_then(|source| source.r#type);
        if self.traits.rejects_sources && source.is_some() {
            return Err(Status::not_found("no such source"));
        }
        let step = 10 << 30;
        let mut size = request.capacity_range.map_or(step, |range| range.required_bytes);
        if self.traits.in_steps && size % step != 0 {
            return Err(Status::out_of_range("sizes are multiples of 10 GiB"));
        }
        if self.traits.rounds_up {
            size = size.max(step);
        }
        if self.traits.large && size < 1 << 30 {
            return Err(Status::out_of_range("the smallest volume has 1 GiB"));
        }
        fs::create_dir_all(self.folder.join(&request.name)).map_err(failed)?;
        let capacity_bytes = *self.state().sizes.entry(request.name.clone()).or_insert(size);
        let volume = v1::Volume {
            volume_id: self.id_of(request.name),
            capacity_bytes,
            accessible_topology: self.place().into_iter().collect(),
            ..Default::default()
        };
        Ok(Response::new(v1::CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<v1::DeleteVolumeRequest>,
    ) -> Answer<v1::DeleteVolumeResponse> {
        let (id, mut state) = (request.into_inner().volume_id, self.state());
        if self.traits.keeps_attached && state.attached.contains(&id) {
            return Err(Status::invalid_argument("the volume is in use"));
        }
        state.sizes.remove(&id);
        done()
    }

    async fn controller_publish_volume(
        &self,
        request: Request<v1::ControllerPublishVolumeRequest>,
    ) -> Answer<v1::ControllerPublishVolumeResponse> {
        let (id, mut state) = (request.into_inner().volume_id, self.state());
        if self.traits.attaches_one && state.attached.iter().any(|other| *other != id) {
            return Err(Status::resource_exhausted("the node has a volume"));
        }
        state.attached.insert(id);
        done()
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<v1::ControllerUnpublishVolumeRequest>,
    ) -> Answer<v1::ControllerUnpublishVolumeResponse> {
        let (id, mut state) = (request.into_inner().volume_id, self.state());
        if self.traits.finds_detached && !state.sizes.contains_key(&id) {
            return Err(Status::not_found("no volume"));
        }
        state.attached.remove(&id);
        done()
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<v1::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<v1::ValidateVolumeCapabilitiesResponse> {
        if self.traits.compares_parameters {
            let request = request.into_inner();
            let is_same = request.parameters.get("type").is_some_and(|it| it == "fast");
            let volume_capabilities = request.volume_capabilities;
            let confirmed = v1::validate_volume_capabilities_response::Confirmed {
                volume_capabilities,
                ..Default::default()
            };
            return Ok(Response::new(v1::ValidateVolumeCapabilitiesResponse {
                confirmed: is_same.then_some(confirmed),
                message: "the type differs".to_owned(),
            }));
        }
        if !self.traits.numbers {
            return Err(Status::unimplemented("capabilities are not validated"));
        }
        self.find(&request.into_inner().volume_id)?;
        done()
    }

    async fn list_volumes(
        &self,
        request: Request<v1::ListVolumesRequest>,
    ) -> Answer<v1::ListVolumesResponse> {
        self.all_volumes()?;
        let volume = |id: &String| v1::Volume { volume_id: id.clone(), ..Default::default() };
        let entries =
            self.state().sizes.keys().map(|id| Entry { volume: Some(volume(id)), status: None }).collect();
        let token = request.into_inner().starting_token;
        if self.traits.rejects_tokens && !token.is_empty() {
            return Err(Status::aborted("invalid token"));
        }
        // Two tokens in turn, so that no page returns its own one.
        let next = if token == "a" { "b" } else { "a" };
        let next_token =
            if self.traits.endless || self.traits.rejects_tokens { next.to_owned() } else { String::new() };
        Ok(Response::new(v1::ListVolumesResponse { entries, next_token }))
    }

    async fn get_capacity(&self, _: Request<v1::GetCapacityRequest>) -> Answer<v1::GetCapacityResponse> {
        self.all_volumes()?;
        done()
    }

    async fn controller_expand_volume(
        &self,
        request: Request<v1::ControllerExpandVolumeRequest>,
    ) -> Answer<v1::ControllerExpandVolumeResponse> {
        let request = request.into_inner();
        let asked = request.capacity_range.unwrap_or_default().required_bytes;
        let mut state = self.state();
        let size = state.sizes.get_mut(&request.volume_id).ok_or_else(|| Status::not_found("no volume"))?;
        if self.traits.keeps_size && asked < *size {
            return Err(Status::out_of_range("the volume is larger"));
        }
        *size = asked;
        Ok(Response::new(v1::ControllerExpandVolumeResponse {
            capacity_bytes: asked,
            node_expansion_required: false,
        }))
    }
}

#[tonic::async_trait]
impl Node for Toy {
    async fn node_get_info(&self, _: Request<v1::NodeGetInfoRequest>) -> Answer<v1::NodeGetInfoResponse> {
        if self.traits.no_node_info {
            return Err(Status::unimplemented("no information about nodes"));
        }
        let (node_id, accessible_topology) = ("toy-node".to_owned(), self.place());
        Ok(Response::new(v1::NodeGetInfoResponse { node_id, accessible_topology, ..Default::default() }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        let stages = (!self.traits.formats_when_published).then_some(NodeType::StageUnstageVolume);
        let capabilities = stages.into_iter().chain([NodeType::GetVolumeStats]);
        let capabilities = capabilities.map(|capability| v1::NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(node_service_capability::Rpc {
                r#type: capability.into(),
            })),
        });
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities: capabilities.collect() }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        let request = request.into_inner();
        self.find(&request.volume_id)?;
        if self.traits.fails_to_find && !self.state().sizes.contains_key(&request.volume_id) {
            return Err(Status::internal(format!("no device of {}", request.volume_id)));
        }
        if self.traits.stages_nothing {
            return Err(Status::internal("mount failed: exit status 32"));
        }
        if self.traits.removes_staging && !Path::new(&request.staging_target_path).is_dir() {
            return Err(Status::internal("the staging directory does not exist"));
        }
        self.state().staged.insert(request.volume_id);
        done()
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        let (request, mut state) = (request.into_inner(), self.state());
        if self.traits.checks_unstaged && !state.sizes.contains_key(&request.volume_id) {
            return Err(Status::not_found("no volume"));
        }
        if self.traits.fails_unstaged && !state.sizes.contains_key(&request.volume_id) {
            return Err(Status::internal("cannot read the metadata"));
        }
        state.staged.remove(&request.volume_id);
        if self.traits.removes_staging {
            let _ = fs::remove_dir(request.staging_target_path);
        }
        done()
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        if self.traits.fake_node {
            return done();
        }
        let request = request.into_inner();
        if self.traits.publishes_nothing {
            let capability = request.volume_capability.unwrap_or_default();
            let flags = match capability.access_type {
                Some(AccessType::Mount(mount)) => mount.mount_flags,
                _ => Vec::new(),
            };
            let command = format!(
                "mount -o {} {}",
                [vec!["bind".into()], flags].concat().join(","),
                request.target_path
            );
            return Err(Status::internal(format!("{command}: exit status 32")));
        }
        let staged = self.state().staged.contains(&request.volume_id);
        if self.traits.formats_when_published {
            let formatted = &mut self.state().formatted;
            if request.readonly && !formatted.contains(&request.volume_id) {
                return Err(Status::internal("cannot format a volume that is published for reading"));
            }
            formatted.insert(request.volume_id.clone());
        }
        match self.traits.empty_unless_staged && !staged {
            true => fs::create_dir(&request.target_path),
            false => symlink(self.folder.join(&request.volume_id), &request.target_path),
        }
        .map_err(failed)?;
        done()
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        if self.traits.leaves_target {
            return done();
        }
        let target = PathBuf::from(request.into_inner().target_path);
        let removed = match target.is_symlink() {
            true => fs::remove_file(target),
            false => fs::remove_dir(target),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => done(),
        }
    }

    /// Counts inodes only.
    async fn node_get_volume_stats(
        &self,
        _: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Answer<v1::NodeGetVolumeStatsResponse> {
        let usage = v1::VolumeUsage { total: 8, used: 3, available: 5, unit: Unit::Inodes.into() };
        Ok(Response::new(v1::NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition: None }))
    }
}
