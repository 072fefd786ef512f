//! A kind cluster with the built-in components: `--cluster kind`.

mod additional_driver;
pub(crate) mod disrupt;
#[cfg(test)]
mod disrupt_tests;
pub(crate) mod image;
mod loops;
pub(crate) mod nodes;
#[cfg(test)]
mod nodes_tests;
mod objects;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use claimcheck_csi::tap::{FaultAction, FaultRule, KnownSecrets, write_faults};
use claimcheck_model::{ComponentFault, Log};
use kube::Client;
use tokio::sync::Mutex;
use tracing::{error, info, warn};

use self::{
    additional_driver::AdditionalDrivers,
    nodes::{Collected, KindCluster, KindEnvironment, KindError},
};
use crate::{
    additional_driver::{AdditionalDriver, DeployError, DriverLease},
    api_requests,
    backend::{Backend, NoFaults},
    call_faults::CallFaults,
    cluster::Cluster,
    component_logs,
    disruption::{DisruptError, Disruption, Victim},
    faults::{self, FaultSpec},
    log_search::LogSearch,
    observer::Observer,
    properties::{ClusterCapabilities, Properties},
    real_nodes::{
        ClassChoice,
        components::{self, COMPONENTS, InstallComponentsError, install_components},
        unregistered::by_kubelets,
    },
};
use claimcheck_component::client::{self, ClientError};
use claimcheck_deploy::install::{self, Sidecars, Variant};
use claimcheck_kind::{DATA_DIR, KindOptions};

/// The file on the kind nodes with faults to inject into calls, in the folder that all of them share ([`DATA_DIR`]).
pub const KIND_FAULTS: &str = "/var/lib/claimcheck/faults.json";

/// No kind cluster is available to run on.
#[derive(Debug, thiserror::Error)]
pub enum OnKindError {
    /// Its nodes cannot be started.
    #[error(transparent)]
    Nodes(#[from] KindError),
    /// Its kubeconfig cannot be read.
    #[error("the kubeconfig {} cannot be read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Its kubeconfig cannot be used.
    #[error("the kubeconfig that kind wrote cannot be used")]
    Client(#[from] ClientError),
    /// The components do not become ready.
    #[error(transparent)]
    Components(#[from] InstallComponentsError),
}

impl Cluster {
    /// Creates a kind cluster with the built-in components. Dropping the future deletes whatever exists by then.
    ///
    /// # Errors
    /// [`OnKindError`] describes what is missing or failed. The nodes' logs are then in their folder, and
    /// nothing is leaked, unless the cluster is kept.
    pub async fn on_kind(
        options: &KindOptions,
        environment: &KindEnvironment,
        components: &install::Options,
    ) -> Result<Self, OnKindError> {
        let kind = Box::pin(KindCluster::up(options, environment)).await?;
        let components = with_faults(components);
        let equipped = async {
            let client = connect(&kind.kubeconfig()).await?;
            Ok::<_, OnKindError>(install_components(client, &components, &ClassChoice::Default).await?)
        };
        match Box::pin(equipped).await {
            Ok(real) => Ok(real.with(OnKind::new(kind, components))),
            Err(mut error) => {
                if let OnKindError::Components(InstallComponentsError::Registration {
                    nodes,
                    log_lines,
                    ..
                }) = &mut error
                {
                    log_lines.extend(by_kubelets(kind.engine(), &components.driver_name, nodes).await);
                }
                end(kind, true).await;
                Err(error)
            }
        }
    }
}

/// The same components, which read faults from the run's file.
pub(super) fn with_faults(components: &install::Options) -> install::Options {
    install::Options { faults: Some(KIND_FAULTS.to_owned()), ..components.clone() }
}

/// Each additional driver has a pod of several containers on each node.
const DRIVERS_AT_A_TIME: usize = 3;

/// The access of a run to a kind cluster in addition to its API.
pub(super) struct OnKind {
    nodes: KindCluster,
    components: install::Options,
    additional_drivers: AdditionalDrivers,
    call_faults: Mutex<CallFaults>,
}

impl OnKind {
    fn new(nodes: KindCluster, components: install::Options) -> Self {
        Self {
            nodes,
            components,
            additional_drivers: AdditionalDrivers::default(),
            call_faults: Mutex::default(),
        }
    }

    /// Its abilities: everything that its owner can do.
    fn cluster_capabilities(&self) -> ClusterCapabilities {
        ClusterCapabilities {
            retracts: self.components.variant == Variant::Kind,
            stops_binder: self.components.variant == Variant::Kind,
            upstream_sidecars: self.components.sidecars == Sidecars::Upstream,
            ..ClusterCapabilities::KIND
        }
    }

    /// All drivers check the file before each call.
    fn arm(&self, faults: &CallFaults) -> Result<(), NoFaults> {
        let name = Path::new(KIND_FAULTS).strip_prefix(DATA_DIR).expect("it is in that folder");
        let path = self.nodes.data().join(name);
        write_faults(&path, &faults.plan()).map_err(|source| NoFaults::Write { path, source })
    }
}

#[async_trait]
impl Backend for OnKind {
    fn properties(&self) -> Properties {
        Properties::real(self.cluster_capabilities())
    }

    fn outlives_run(&self) -> bool {
        self.nodes.outlives_run()
    }

    async fn search_logs(&self, client: &Client, _driver: &str, known: &KnownSecrets) -> LogSearch {
        components::search_logs(client, known).await
    }

    async fn component_faults(&self, client: &Client, since: Duration) -> Vec<ComponentFault> {
        component_logs::faults(client, &self.components, since).await
    }

    async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        let (requests, calls) = faults::split(specs);
        if !requests.is_empty() {
            return Err(NoFaults::NotHere { of: "requests to the API server" });
        }
        let mut call_faults = self.call_faults.lock().await;
        *call_faults = CallFaults::from_rules(calls.rules);
        self.arm(&call_faults)
    }

    async fn set_call_faults(&self, case: &str, rules: Vec<FaultRule>) {
        let mut call_faults = self.call_faults.lock().await;
        call_faults.set_case(case, rules);
        if let Err(error) = self.arm(&call_faults) {
            error!(%error, case, "the faults of a case are not active");
        }
    }

    /// Calls are recorded in the driver's process, or the tap's: it has to run.
    async fn hold_call(
        &self,
        case: &str,
        _node: &str,
        method: &str,
        volume: &str,
    ) -> Result<(), DisruptError> {
        let rule = FaultRule::new(method, FaultAction::Hang).on_volume(volume);
        self.set_call_faults(case, vec![rule]).await;
        Ok(())
    }

    async fn disrupt(
        &self,
        client: &Client,
        victim: &Victim,
        disruption: Disruption,
    ) -> Result<(), DisruptError> {
        self.nodes.disrupt(client, &COMPONENTS, victim, disruption).await
    }

    async fn on_node(&self, node: &str, script: &str) -> Result<(), DisruptError> {
        self.nodes.sh(node, script).await
    }

    async fn deploy(
        &self,
        client: &Client,
        observer: &Observer,
        driver: &AdditionalDriver,
    ) -> Result<DriverLease, DeployError> {
        self.additional_drivers.deploy(client, observer, &self.components, driver).await
    }

    fn drivers_at_a_time(&self) -> usize {
        DRIVERS_AT_A_TIME
    }

    async fn end_driver(&self, client: &Client, driver: &'static str) {
        self.additional_drivers.end(client, &self.components, driver).await;
    }

    async fn api_requests(&self, client: &Client) -> Option<u64> {
        api_requests::served(client).await
    }

    async fn logs_mentioning(&self, client: &Client, names: &[String]) -> Vec<Log> {
        component_logs::by_pods(client, COMPONENTS.namespace, names).await
    }

    /// Deletes the cluster, after collecting its logs if something failed. From a kept one only the resources of
    /// this run are removed.
    async fn down(self: Box<Self>, client: &Client, failed: bool) {
        if self.nodes.outlives_run() {
            if let Err(error) = self.arm(&CallFaults::default()) {
                warn!(%error, "the faults of this run remain active");
            }
            self.additional_drivers.remove(client, &self.components).await;
        }
        end(self.nodes, failed).await;
    }
}

/// Deletes a kind cluster, after collecting its logs if something failed.
async fn end(kind: KindCluster, failed: bool) {
    if failed {
        collect(&kind).await;
    }
    if let Err(left) = kind.down().await {
        error!("{left}");
    }
}

/// The logs of nodes, components and pods, and the objects; as far as available.
async fn collect(kind: &KindCluster) {
    match kind.collect().await {
        Ok(Collected { folder, missing }) => {
            let folder = folder.display();
            if let Some(missing) = missing {
                warn!(%folder, missing = missing.to_string(), "some of the nodes' logs cannot be collected");
            }
            info!(%folder, "collected the nodes' logs");
        }
        Err(error) => warn!(%error, "cannot collect the nodes' logs"),
    }
    match connect(&kind.kubeconfig()).await {
        Ok(client) => objects::write(&client, &kind.logs().join("objects")).await,
        Err(error) => warn!(%error, "cannot collect the cluster's objects"),
    }
}

async fn connect(kubeconfig: &Path) -> Result<Client, OnKindError> {
    let text = fs::read_to_string(kubeconfig)
        .map_err(|source| OnKindError::Read { path: kubeconfig.to_owned(), source })?;
    Ok(client::client(&text).await?)
}
