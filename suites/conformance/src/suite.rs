//! A driver under trial: its connections, what it offers, and what all cases of a run know in common.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use claimcheck_csi::{
    Driver, Endpoint, NotReady, Status,
    tap::Tap,
    v1::{Topology, snapshot_metadata_client::SnapshotMetadataClient},
};
use claimcheck_model::{CaseId, Event};
use serde_json::json;
use thiserror::Error;
use tokio::{sync::mpsc::UnboundedSender, task::JoinHandle};

use crate::{
    case::{Access, Need},
    config::{Config, Map},
    expect::said,
    fixture::{Step, Trace},
    life::Ends,
    offers::Offers,
    process::{ProcessError, Restart},
    traffic,
};

/// How many volumes a case attaches at a time, at most, unless it runs alone.
const ATTACHED_BY_A_CASE: usize = 3;

/// The driver cannot be tried.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// It does not listen, or Probe does not say that it is ready.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// It does not answer what every driver must.
    #[error("the driver does not tell what it can do: {call} answered {answer}")]
    Silent {
        /// Which call.
        call: &'static str,
        /// The answer, in words.
        answer: String,
    },
    /// Restarting it failed.
    #[error("the driver cannot be restarted")]
    Restart(#[from] ProcessError),
}

/// Where the driver listens.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// The node's services.
    pub node: Endpoint,
    /// The controller's, if they are elsewhere.
    pub controller: Option<Endpoint>,
    /// The services of a second node.
    pub second: Option<Endpoint>,
}

/// A driver under trial. Shared by all cases of a run.
#[derive(Debug)]
pub struct Suite {
    pub(crate) config: Config,
    pub(crate) offers: Offers,
    pub(crate) controller: Driver,
    pub(crate) node: Driver,
    pub(crate) second: Option<Driver>,
    /// The value of the secret that must show up nowhere.
    pub(crate) marker: String,
    /// Tells the names of this run from those of others.
    pub(crate) run: String,
    /// Below which staging and target directories of the cases lie.
    pub(crate) staging: PathBuf,
    pub(crate) targets: PathBuf,
    pub(crate) restart: Option<Restart>,
    pub(crate) ends: Ends,
    known: Mutex<Known>,
}

/// What earlier cases have found that later ones need not find again.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Steps of a volume's way that do not work, and the case that says so.
    pub broken: BTreeMap<(Step, Access), CaseId>,
    /// What is left behind whatever the driver is asked, and the case that says so.
    pub traces: BTreeMap<Trace, CaseId>,
    /// Calls that quoted a secret in their error.
    pub told_secrets: BTreeSet<String>,
    /// Calls that the driver did not answer, and the case that says so.
    pub unanswered: BTreeMap<&'static str, CaseId>,
    /// Calls that were too late once: the next ones are not waited for as long.
    pub late: BTreeSet<&'static str>,
}

impl Suite {
    /// Connects to a driver, waits until it is ready (for at most `patience`) and asks what it offers. Its
    /// calls go into `events`; the handle ends once the suite and all of its cases are gone.
    ///
    /// # Errors
    /// It is not there, or does not say what it can do.
    pub async fn connect(
        mut config: Config,
        endpoints: Endpoints,
        restart: Option<Restart>,
        patience: Duration,
        events: UnboundedSender<Event>,
    ) -> Result<(Arc<Self>, JoinHandle<()>), ConnectError> {
        let (tap, records) = Tap::channel();
        let telling = tokio::spawn(traffic::tell(records, events));
        let limit = config.call_limit();
        let to = |endpoint: Endpoint, who: &str| Driver::new(endpoint, tap.clone(), who).with_deadline(limit);
        let node = to(endpoints.node, "node");
        let two_endpoints = endpoints.controller.is_some();
        let controller = endpoints.controller.map_or_else(|| node.clone(), |at| to(at, "controller"));
        let second = endpoints.second.map(|at| to(at, "second node"));
        for driver in [Some(&node), Some(&controller), second.as_ref()].into_iter().flatten() {
            driver.wait_ready(patience).await?;
        }
        let silent = |(call, status): (_, Status)| ConnectError::Silent { call, answer: said(&status) };
        let mut offers = Offers::ask(&controller, &node).await.map_err(silent)?;
        if let Some(second) = &second {
            let info = second.node().node_get_info(claimcheck_csi::v1::NodeGetInfoRequest {}).await;
            offers.second = Some(info.map_err(|status| silent(("NodeGetInfo", status)))?.into_inner());
        }
        let run = format!("{:08x}", fastrand::u32(..));
        let marker = format!("cc-marker-{run}-secret");
        if config.marker_secret {
            for secrets in config.secrets.all_mut() {
                secrets.insert("claimcheck-marker".to_owned(), marker.clone());
            }
        }
        let below = |dir: &Option<PathBuf>, name: &str| {
            let own = || std::env::temp_dir().join(format!("claimcheck-csi-{run}")).join(name);
            dir.clone().unwrap_or_else(own)
        };
        let (staging, targets) =
            (below(&config.staging_dir, "staging"), below(&config.target_dir, "targets"));
        offers.files = config.paths.is_none();
        offers.restart = restart.is_some();
        offers.two_endpoints = two_endpoints;
        offers.mutable = !config.mutable_parameters.is_empty();
        offers.tokens = !config.token_audience.is_empty();
        offers.invalid_mutable = !config.invalid_mutable_parameters.is_empty();
        offers.accesses = match config.access_types.is_empty() {
            true => vec![Access::Mount, Access::Block],
            false => config.access_types.clone(),
        };
        let mut suite = Self {
            config,
            offers,
            controller,
            node,
            second,
            marker,
            run,
            staging,
            targets,
            restart,
            ends: Ends::default(),
            known: Mutex::default(),
        };
        if suite.config.access_types.is_empty() {
            suite.offers.accesses = suite.taken().await;
        }
        Ok((Arc::new(suite), telling))
    }

    /// Removes the directories that all cases share, if they are empty. No case may run: it could be about to make
    /// its own in there.
    pub(crate) fn leave(&self) {
        for root in [&self.staging, &self.targets] {
            let _ = std::fs::remove_dir(root);
            let _ =
                root.parent().filter(|own| own.starts_with(std::env::temp_dir())).map(std::fs::remove_dir);
        }
    }

    /// How many cases may run at a time, of `wanted`: so many that what they attach stays within the node's limit.
    pub fn parallel(&self, wanted: usize) -> usize {
        wanted.min(self.offers.node_limit() / ATTACHED_BY_A_CASE).max(1)
    }

    /// What the driver offers.
    pub fn offers(&self) -> &Offers {
        &self.offers
    }

    /// The kinds of volume that the driver makes, tried out: CSI has no way to say so. One that is refused with
    /// anything but InvalidArgument or Unimplemented stays, for cases to find out.
    async fn taken(&self) -> Vec<Access> {
        use claimcheck_csi::v1::controller_service_capability::rpc::Type;
        use claimcheck_csi::{Code, v1::DeleteVolumeRequest};
        if !self.offers.has(Need::Controller(Type::CreateDeleteVolume)) {
            return vec![Access::Mount, Access::Block];
        }
        let mut taken = Vec::new();
        for access in [Access::Mount, Access::Block] {
            let name = format!("{}-{}-try-{access}", self.config.name_prefix, self.run);
            let request = self.create_request(name, access);
            match self.controller.controller().create_volume(request).await {
                Ok(made) => {
                    let volume_id = made.into_inner().volume.unwrap_or_default().volume_id;
                    let secrets = self.config.secrets.delete_volume.clone();
                    // That deleting does not work is a finding of the cases.
                    let request = DeleteVolumeRequest { volume_id, secrets };
                    let _ = self.controller.controller().delete_volume(request).await;
                }
                Err(status) if matches!(status.code(), Code::InvalidArgument | Code::Unimplemented) => {
                    continue;
                }
                Err(_) => {}
            }
            taken.push(access);
        }
        // With none the driver refuses volumes altogether, which is for the cases to say.
        if taken.is_empty() { vec![Access::Mount] } else { taken }
    }

    /// Where volumes shall be accessible.
    pub(crate) fn topology(&self) -> Option<Topology> {
        match self.config.topology.is_empty() {
            true => self.offers.info.accessible_topology.clone(),
            false => Some(Topology { segments: self.config.topology.clone() }),
        }
    }

    /// The client of the service of snapshot metadata.
    pub(crate) fn metadata(&self) -> SnapshotMetadataClient<claimcheck_csi::DriverService> {
        SnapshotMetadataClient::new(self.controller.service())
    }

    /// A token of a pod's service account, as the kubelet passes it on (KEP-1855), if the driver wants any.
    pub(crate) fn add_token(&self, volume_context: &mut Map, expires: &str) {
        if !self.config.token_audience.is_empty() {
            let token = json!({ "token": "claimcheck-token", "expirationTimestamp": expires });
            let tokens = json!({ (&self.config.token_audience): token }).to_string();
            volume_context.insert("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), tokens);
        }
    }

    pub(crate) fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
