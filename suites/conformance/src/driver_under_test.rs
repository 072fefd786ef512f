//! The driver under test: its connections, its capabilities, and the state that all cases of a run share.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use claimcheck_csi::{
    Code, Driver, Endpoint, NotReady, Status,
    tap::{KnownSecrets, Tap, is_searched_for, without_secrets},
    v1::{
        CreateVolumeRequest, DeleteVolumeRequest, NodePublishVolumeRequest, Topology,
        ValidateVolumeCapabilitiesRequest, Volume, snapshot_metadata_client::SnapshotMetadataClient,
        volume_capability::access_mode::Mode,
    },
};
use claimcheck_model::{CaseId, Event};
use serde_json::json;
use thiserror::Error;
use tokio::{sync::mpsc::UnboundedSender, task::JoinHandle};

use crate::{
    capabilities::DriverCapabilities,
    case::Access,
    config::Config,
    effect::{AbsentEffects, NodeEffects},
    expect::status_text,
    fixture::{Step, Trace, with_mode},
    health::DriverFailures,
    process::{ProcessError, Restart},
    traffic::{self, Answers},
    unknown,
};

/// Maximum number of volumes that a case attaches at a time, unless it runs serially.
const ATTACHED_BY_A_CASE: usize = 3;

/// The largest size that is tried as the size of volumes.
const MAXIMUM_SIZE: i64 = 16 << 40;

/// The largest size to which a driver may round up, so that it becomes the size of volumes: an unlimited share may have
/// any capacity.
const LARGEST_ROUNDED: i64 = 1 << 40;

/// Access modes of which the first that a driver supports is used, if it does not support SINGLE_NODE_WRITER. Drivers
/// of other modes of a single writer must support that one.
const OTHER_MODES: [Mode; 4] = [
    Mode::MultiNodeMultiWriter,
    Mode::MultiNodeSingleWriter,
    Mode::MultiNodeReaderOnly,
    Mode::SingleNodeReaderOnly,
];

/// The key of service account tokens, in the field that contains them.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// The driver cannot be tested.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// It does not listen, or Probe does not report it as ready.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// A call that every driver must support failed.
    #[error("cannot read the driver's capabilities: {call} returned {answer}")]
    Silent {
        /// The call.
        call: &'static str,
        /// The status, as text.
        answer: String,
    },
    /// Restarting it failed.
    #[error("the driver cannot be restarted")]
    Restart(#[from] ProcessError),
}

/// The endpoints of the driver.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// The endpoint of the node service.
    pub node: Endpoint,
    /// The endpoint of the controller service, if it is separate.
    pub controller: Option<Endpoint>,
    /// The endpoint of the node service on a second node.
    pub second: Option<Endpoint>,
}

/// The driver under test. Shared by all cases of a run.
#[derive(Debug)]
pub struct DriverUnderTest {
    pub(crate) config: Config,
    pub(crate) capabilities: DriverCapabilities,
    pub(crate) controller: Driver,
    pub(crate) node: Driver,
    pub(crate) second: Option<Driver>,
    /// The value of the secret that must not appear in any error.
    pub(crate) marker: String,
    /// The service account token, which must not appear in any error either.
    token: String,
    /// The values of all secrets that are passed to the driver: none may be in a report.
    secrets: Vec<String>,
    /// The same, with those for which the driver's output is searched.
    known_secrets: KnownSecrets,
    /// The number of configured values that it is not searched for.
    pub(crate) not_searched: usize,
    /// The access mode of volumes.
    pub(crate) mode: Mode,
    /// Access types of which it is not known whether the driver supports them: it fails for one of two, with an error
    /// that does not show that.
    pub(crate) unsure: Vec<Access>,
    /// The id of a volume that was deleted, if ids of volumes that do not exist must have its format.
    pub(crate) deleted_volume: Option<String>,
    /// A unique part of the names of this run.
    pub(crate) run: String,
    /// The parent directories of the staging and target directories of the cases.
    pub(crate) staging: PathBuf,
    pub(crate) targets: PathBuf,
    pub(crate) restart: Option<Restart>,
    pub(crate) failures: DriverFailures,
    pub(crate) answers: Answers,
    known: Mutex<Known>,
}

/// Findings of earlier cases that later cases do not repeat.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Steps that fail, and the case that reports each.
    pub failed_steps: BTreeMap<(Step, Access), CaseId>,
    /// Errors of requests that must succeed and are those of most cases, without what differs between volumes, and the case
    /// that reports each: any request returns them.
    pub failures: BTreeMap<(&'static str, String), CaseId>,
    /// The same for invalid requests.
    pub rejections: BTreeMap<(&'static str, String), CaseId>,
    /// Objects of a case that make the driver fail in others, and the case that reports each.
    pub foreign: BTreeMap<String, CaseId>,
    /// Cases that failed, by their numbers: their objects may make the driver fail in others.
    pub failed: BTreeMap<usize, CaseId>,
    /// Calls that the driver does not implement, and the case that reports each.
    pub unimplemented: BTreeMap<&'static str, CaseId>,
    /// Leftovers that every case leaves, and the case that reports each.
    pub traces: BTreeMap<Trace, CaseId>,
    /// Why the driver makes no group snapshots of the volumes of cases, which it may decide.
    pub ungrouped: Option<String>,
    /// The driver cuts snapshots only of volumes that are published.
    pub snapshots_of_used: bool,
    /// Errors that a call returned however often it was repeated, without what differs between volumes.
    pub persistent: BTreeSet<String>,
    /// Effects that are absent.
    pub absent_effects: AbsentEffects,
    /// Calls with errors that contained a secret.
    pub leaked_secrets: BTreeSet<String>,
    /// Calls with errors without a message.
    pub silent: BTreeSet<String>,
    /// Calls with errors that had details.
    pub details: BTreeSet<String>,
    /// Calls without a response, and the case that reports each.
    pub unanswered: BTreeMap<&'static str, CaseId>,
    /// Calls that timed out once: the following ones have a shorter deadline.
    pub late: BTreeSet<&'static str>,
    /// A volume was mounted at its target: some drivers provide plain directories.
    pub mounts: bool,
}

impl DriverUnderTest {
    /// Connects to a driver, waits until it is ready (for at most `patience`) and reads its capabilities. Calls are
    /// emitted to `events`; the handle ends once the suite and all of its cases are dropped.
    ///
    /// # Errors
    /// The driver is not ready, or its capabilities cannot be read.
    pub async fn connect(
        mut config: Config,
        endpoints: Endpoints,
        restart: Option<Restart>,
        timeout: Duration,
        events: UnboundedSender<Event>,
    ) -> Result<(Arc<Self>, JoinHandle<()>), ConnectError> {
        let (tap, records) = Tap::channel();
        let answers = Answers::default();
        let emitting = tokio::spawn(traffic::emit_calls(records, events, answers.clone()));
        let limit = config.call_limit();
        let to = |endpoint: Endpoint, who: &str| Driver::new(endpoint, tap.clone(), who).with_deadline(limit);
        let node = to(endpoints.node, "node");
        let two_endpoints = endpoints.controller.is_some();
        let controller = endpoints.controller.map_or_else(|| node.clone(), |at| to(at, "controller"));
        let second = endpoints.second.map(|at| to(at, "second node"));
        for driver in [Some(&node), Some(&controller), second.as_ref()].into_iter().flatten() {
            driver.wait_ready(timeout).await?;
        }
        let silent =
            |(call, status): (_, Status)| ConnectError::Silent { call, answer: status_text(&status) };
        let mut capabilities = DriverCapabilities::query(&controller, &node).await.map_err(silent)?;
        if let Some(second) = &second {
            let info = second.node().node_get_info(claimcheck_csi::v1::NodeGetInfoRequest {}).await;
            capabilities.second = Some(info.map_err(|status| silent(("NodeGetInfo", status)))?.into_inner());
        }
        let run = format!("{:08x}", fastrand::u32(..));
        let marker = format!("cc-marker-{run}-secret");
        if config.marker_secret {
            for secrets in config.secrets.all_mut() {
                secrets.insert("claimcheck-marker".to_owned(), marker.clone());
            }
        }
        let token = format!("cc-token-{run}-secret");
        let mut secrets: BTreeSet<String> =
            config.secrets.all_mut().into_iter().flat_map(|secrets| secrets.values().cloned()).collect();
        secrets.insert(token.clone());
        let known_secrets = KnownSecrets::default();
        known_secrets.add(&secrets);
        // A log that cuts long values off still discloses them.
        let cut = |secret: &String| secret[..secret.len() - "cret".len()].to_owned();
        known_secrets.search_for([&marker, &token, &cut(&marker), &cut(&token)]);
        let (searched, others): (Vec<_>, Vec<_>) = (config.secrets.all_mut().into_iter())
            .flat_map(|secrets| secrets.iter().filter(|(_, value)| **value != marker))
            .partition(|(key, value)| is_searched_for(key, value));
        known_secrets.search_for(searched.into_iter().map(|(_, value)| value));
        let not_searched = others.into_iter().map(|(_, value)| value).collect::<BTreeSet<_>>().len();
        let below = |dir: &Option<PathBuf>, name: &str| {
            let own = || std::env::temp_dir().join(format!("claimcheck-csi-{run}")).join(name);
            dir.clone().unwrap_or_else(own)
        };
        let (staging, targets) =
            (below(&config.staging_dir, "staging"), below(&config.target_dir, "targets"));
        capabilities.node_effects = config.node_effects;
        capabilities.files = config.paths.is_none() && config.node_effects == NodeEffects::Checked;
        capabilities.restart = restart.is_some() && config.restarts;
        capabilities.restarts = config.restarts;
        capabilities.two_endpoints = two_endpoints;
        capabilities.mutable = !config.mutable_parameters.is_empty();
        capabilities.tokens = !config.token_audience.is_empty();
        capabilities.invalid_mutable = !config.invalid_mutable_parameters.is_empty();
        capabilities.accesses = match config.access_types.is_empty() {
            true => vec![Access::Mount, Access::Block],
            false => config.access_types.clone(),
        };
        let mut driver = Self {
            config,
            capabilities,
            controller,
            node,
            second,
            marker,
            token,
            secrets: secrets.into_iter().collect(),
            known_secrets,
            not_searched,
            mode: Mode::SingleNodeWriter,
            unsure: Vec::new(),
            deleted_volume: None,
            run,
            staging,
            targets,
            restart,
            failures: DriverFailures::default(),
            answers,
            known: Mutex::default(),
        };
        if driver.capabilities.has(crate::rows::CREATE) {
            driver.probe_volumes().await;
        }
        Ok((Arc::new(driver), emitting))
    }

    /// Removes the directories that all cases share, if they are empty. No case may run: it could be creating its own
    /// directories there.
    pub(crate) fn leave(&self) {
        for root in [&self.staging, &self.targets] {
            let _ = std::fs::remove_dir(root);
            let _ =
                root.parent().filter(|own| own.starts_with(std::env::temp_dir())).map(std::fs::remove_dir);
        }
    }

    /// The number of cases that may run at a time: at most `requested`, and within the node's volume limit.
    pub fn parallel(&self, requested: usize) -> usize {
        requested.min(self.capabilities.node_limit() / ATTACHED_BY_A_CASE).max(1)
    }

    /// The capabilities of the driver.
    pub fn capabilities(&self) -> &DriverCapabilities {
        &self.capabilities
    }

    /// The size of volumes that cases request.
    pub fn volume_size(&self) -> i64 {
        self.config.volume_size
    }

    /// Finds out by creating volumes what cases may request of the driver, as far as it is not configured: CSI has no
    /// capabilities for access modes, access types and sizes.
    async fn probe_volumes(&mut self) {
        self.mode = self.least_mode().await;
        if self.config.is_any_size() {
            self.config.volume_size = self.least_size().await;
        }
        if self.config.access_types.is_empty() {
            (self.capabilities.accesses, self.unsure) = self.taken().await;
        }
        if self.config.unknown_volume_id == Config::default().unknown_volume_id {
            self.deleted_volume = self.sample_id().await;
        }
    }

    /// The id of a volume that was deleted, if the driver rejects the default id of an unknown volume as invalid, and does
    /// not find an id like this one.
    async fn sample_id(&self) -> Option<String> {
        let access = self.capabilities.accesses.first().copied().unwrap_or(Access::Mount);
        let validate = |volume_id: String| {
            let request = ValidateVolumeCapabilitiesRequest {
                volume_id,
                volume_capabilities: vec![self.capability(access)],
                secrets: self.config.secrets.validate_volume_capabilities.clone(),
                ..ValidateVolumeCapabilitiesRequest::default()
            };
            let mut controller = self.controller.controller();
            async move { controller.validate_volume_capabilities(request).await.err().map(|status| status.code()) }
        };
        let default = self.config.unknown_volume_id.replace("{unique}", &self.run);
        if validate(default).await != Some(Code::InvalidArgument) {
            return None;
        }
        let id = self.try_this(self.try_request(access, "id")).await.ok()?.volume_id;
        (validate(unknown::like(&id)?).await == Some(Code::NotFound)).then_some(id)
    }

    /// SINGLE_NODE_WRITER, unless the driver rejects it as invalid for volumes of any access type, and accepts another one.
    async fn least_mode(&self) -> Mode {
        for mode in [Mode::SingleNodeWriter].into_iter().chain(OTHER_MODES) {
            for &access in &self.capabilities.accesses {
                let mut request = self.try_request(access, "mode");
                for capability in &mut request.volume_capabilities {
                    *capability = with_mode(capability.clone(), mode);
                }
                match self.try_this(request).await {
                    Err(status) if is_unsupported(&status) => {}
                    // A larger size may be required.
                    Err(status) if mode != Mode::SingleNodeWriter && status.code() != Code::OutOfRange => {}
                    Ok(_) | Err(_) => return mode,
                }
            }
        }
        Mode::SingleNodeWriter
    }

    /// The default size, or the one to which the driver rounds it up. If the driver rejects it, which the specification
    /// permits: the size that the driver chooses itself, or the default doubled as often as necessary.
    async fn least_size(&mut self) -> i64 {
        let default = self.config.volume_size;
        let access = self.capabilities.accesses.first().copied().unwrap_or(Access::Mount);
        match self.try_size(access, Some(default)).await {
            Ok(size) => return if (default..=LARGEST_ROUNDED).contains(&size) { size } else { default },
            Err(code) if !is_of_size(code) => return default,
            Err(_) => {}
        }
        if let Ok(size) = self.try_size(access, None).await
            && (default..=MAXIMUM_SIZE).contains(&size)
            && self.try_size(access, Some(size)).await == Ok(size)
        {
            return size;
        }
        let mut size = default;
        while size <= MAXIMUM_SIZE {
            size *= 2;
            match self.try_size(access, Some(size)).await {
                Err(code) if is_of_size(code) => {}
                Err(_) => return default,
                Ok(_) => return size,
            }
        }
        // A driver that rejects every size is reported by the cases.
        default
    }

    /// The size of a volume that is created with at least this one, and deleted.
    async fn try_size(&self, access: Access, size: Option<i64>) -> Result<i64, Code> {
        let mut request = self.try_request(access, "size");
        request.capacity_range = size.map(|size| self.range(size));
        self.try_this(request).await.map(|volume| volume.capacity_bytes).map_err(|status| status.code())
    }

    /// Creates and deletes an ordinary volume.
    pub(crate) async fn try_create(&self, access: Access, purpose: &str) -> Result<(), Status> {
        self.try_this(self.try_request(access, purpose)).await.map(drop)
    }

    fn try_request(&self, access: Access, purpose: &str) -> CreateVolumeRequest {
        let name = format!("{}-{}-try-{purpose}-{access}", self.config.name_prefix, self.run);
        self.create_request(name, access)
    }

    /// Creates and deletes a volume.
    async fn try_this(&self, request: CreateVolumeRequest) -> Result<Volume, Status> {
        let made = self.controller.controller().create_volume(request).await?;
        let volume = made.into_inner().volume.unwrap_or_default();
        let secrets = self.config.secrets.delete_volume.clone();
        // A failing DeleteVolume is reported by the cases.
        let request = DeleteVolumeRequest { volume_id: volume.volume_id.clone(), secrets };
        let _ = self.controller.controller().delete_volume(request).await;
        Ok(volume)
    }

    /// The access types that the driver supports, and those of them that may be unsupported. An access type that is
    /// rejected with a code other than InvalidArgument or Unimplemented is tested.
    async fn taken(&self) -> (Vec<Access>, Vec<Access>) {
        let (mut taken, mut failed) = (Vec::new(), Vec::new());
        for access in [Access::Mount, Access::Block] {
            match self.try_create(access, "access").await {
                Err(status) if is_unsupported(&status) => {}
                Err(_) => {
                    taken.push(access);
                    failed.push(access);
                }
                Ok(()) => taken.push(access),
            }
        }
        // A driver that rejects all volumes is reported by the cases.
        if taken.is_empty() {
            return (vec![Access::Mount], Vec::new());
        }
        let unsure = if failed.len() < taken.len() { failed } else { Vec::new() };
        (taken, unsure)
    }

    /// The topology in which volumes must be accessible.
    pub(crate) fn topology(&self) -> Option<Topology> {
        match self.config.topology.is_empty() {
            true => self.capabilities.info.accessible_topology.clone(),
            false => Some(Topology { segments: self.config.topology.clone() }),
        }
    }

    /// A text for a report, without the secrets that a driver quotes in errors and in the fields of a response.
    pub(crate) fn reported(&self, text: &str) -> String {
        without_secrets(text, &self.secrets)
    }

    /// The secrets that are passed to the driver.
    pub fn known_secrets(&self) -> &KnownSecrets {
        &self.known_secrets
    }

    /// Whether the driver wrote something that it received as a secret into a text.
    pub(crate) fn leaks(&self, text: &str) -> bool {
        text.contains(&self.marker) || text.contains(&self.token)
    }

    /// The client of the snapshot metadata service.
    pub(crate) fn metadata(&self) -> SnapshotMetadataClient<claimcheck_csi::DriverService> {
        SnapshotMetadataClient::new(self.controller.service())
    }

    /// Adds a service account token of a pod, as the kubelet does, if the driver requests tokens: to the volume_context
    /// (KEP-1855), or to the secrets (KEP-5538, serviceAccountTokenInSecrets of CSIDriver).
    pub(crate) fn add_token(&self, request: &mut NodePublishVolumeRequest, expires: &str) {
        if self.config.token_audience.is_empty() {
            return;
        }
        let token = json!({ "token": self.token, "expirationTimestamp": expires });
        let tokens = json!({ (&self.config.token_audience): token }).to_string();
        let field = match self.config.tokens_in_secrets {
            true => &mut request.secrets,
            false => &mut request.volume_context,
        };
        field.insert(TOKENS.to_owned(), tokens);
    }

    pub(crate) fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a driver rejects a volume because it does not support its capabilities.
fn is_unsupported(status: &Status) -> bool {
    matches!(status.code(), Code::InvalidArgument | Code::Unimplemented)
}

/// Whether a driver may reject a size with this code. OutOfRange is required; a driver that returns InvalidArgument is
/// still tested with another size.
fn is_of_size(code: Code) -> bool {
    matches!(code, Code::OutOfRange | Code::InvalidArgument)
}
