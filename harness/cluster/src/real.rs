//! A cluster with real nodes: an existing one, given by a kubeconfig, where only the components installed
//! for this run are removed (`installation`), or one created by kind (`on_kind`). Cases work in their own namespaces.

use std::{collections::BTreeMap, path::PathBuf};

use claimcheck_csi::tap::FaultRule;
use claimcheck_informer::World;
use claimcheck_model::{Capability, DEFAULT_CLASS, Log};
use k8s_openapi::api::{core::v1::Node, storage::v1::StorageClass};
use kube::{
    Client, Config, ResourceExt,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::{
    ClusterCapabilities, DisruptError, Disruption, DriverCapabilities, NoFaults, SupportedCalls, Victim,
    additional_driver::{AdditionalDriver, DeployError, DriverLease},
    api_disrupt, component_logs,
    install_components::COMPONENTS,
    installation::Installation,
    observer::Observer,
    on_kind::OnKind,
    reachable_nodes::ReachableNodes,
};
use crate::faults::FaultSpec;

/// The cluster and the storage class under test.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The kubeconfig; by default KUBECONFIG or ~/.kube/config.
    pub kubeconfig: Option<PathBuf>,
    /// Its context; by default the current one.
    pub context: Option<String>,
    /// The class with the driver under test, and the parameters for the classes of cases.
    pub class: ClassChoice,
}

/// The class with the driver under test, and the parameters for the classes of cases.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ClassChoice {
    /// The cluster's default class.
    #[default]
    Default,
    /// The cluster's class of this name.
    Named(String),
    /// One from a driver file, which need not exist in the cluster.
    Given(Box<StorageClass>),
}

/// A cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// The kubeconfig cannot be read, or lacks the context.
    #[error("the kubeconfig cannot be used: check --kubeconfig and --context")]
    Kubeconfig(#[from] KubeconfigError),
    /// The API server does not respond.
    #[error("the API server at {url} does not respond")]
    Unreachable {
        /// Its address.
        url: String,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// The class does not exist.
    #[error("StorageClass {0} does not exist: use one of {1} with --storage-class")]
    NoClass(String, String),
    /// There is no default class.
    #[error("the cluster has no default StorageClass: set --storage-class to one of {0}")]
    NoDefault(String),
    /// No pod can use the driver.
    #[error("driver {driver} of StorageClass {class} is on no ready and schedulable node: {why}")]
    NoNode {
        /// The driver.
        driver: String,
        /// The class.
        class: String,
        /// Each node with the reason.
        why: String,
    },
}

/// A cluster in use.
pub struct Real {
    client: Client,
    observer: Observer,
    class: StorageClass,
    reachable_nodes: ReachableNodes,
    without_driver: Vec<String>,
    declared: DriverCapabilities,
    owned: OwnedParts,
}

/// The parts of a cluster that claimcheck created, and that are removed with the run.
enum OwnedParts {
    Nothing,
    Components(Box<Installation>),
    Nodes(Box<OnKind>),
}

impl Target {
    /// A client with the permissions of the kubeconfig, for a responding server.
    pub(super) async fn connect(&self) -> Result<Client, RealError> {
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path)?,
            None => Kubeconfig::read()?,
        };
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        let url = config.cluster_url.to_string();
        let unreachable = |source| RealError::Unreachable { url, source };
        let client = match claimcheck_component::client::of_config(config) {
            Ok(client) => client,
            Err(source) => return Err(unreachable(source)),
        };
        client.apiserver_version().await.map_err(unreachable)?;
        Ok(client)
    }
}

impl Real {
    /// Nothing: only the API is available.
    pub const CAPABILITIES: ClusterCapabilities = ClusterCapabilities {
        disrupt: false,
        agents: false,
        configure: false,
        additional_drivers: false,
        tap: false,
        retracts: false,
        upstream_sidecars: false,
    };

    /// Its abilities: all of a kind cluster's owner; for installed components, no change of kubelet arguments.
    pub const CAPABILITIES_ON_KIND: ClusterCapabilities = ClusterCapabilities {
        disrupt: true,
        agents: true,
        configure: true,
        additional_drivers: true,
        tap: true,
        ..Self::CAPABILITIES
    };

    /// Connects to a cluster.
    ///
    /// # Errors
    /// [`RealError`] describes the problem and the flag to change.
    pub async fn at(target: &Target) -> Result<Self, RealError> {
        let client = target.connect().await?;
        let observer = Observer::start(client.clone()).await;
        Self::of(client, observer, &target.class)
    }

    /// Connects to a cluster with an existing observer.
    pub(super) fn of(client: Client, observer: Observer, wanted: &ClassChoice) -> Result<Self, RealError> {
        let (class, reachable_nodes, without_driver, declared) = observer.look(|world| {
            let class = class(world, wanted)?;
            let usable = usable_nodes(world, &class)?;
            let reachable_nodes = ReachableNodes::of(world, &class.provisioner, &usable, None);
            let takes_pods = world.nodes.iter().filter(|node| obstacle(node).is_none());
            let without = takes_pods.map(|node| node.name_any()).filter(|node| !usable.contains(node));
            let declared = declared(world, &class);
            Ok::<_, RealError>((class, reachable_nodes, without.collect::<Vec<_>>(), declared))
        })?;
        if !without_driver.is_empty() {
            tracing::warn!(
                "driver {} is on {} of the {} schedulable nodes: the cases' pods run only there",
                class.provisioner,
                reachable_nodes.nodes.len(),
                reachable_nodes.nodes.len() + without_driver.len(),
            );
        }
        Ok(Self {
            client,
            observer,
            class,
            reachable_nodes,
            without_driver,
            declared,
            owned: OwnedParts::Nothing,
        })
    }

    /// The same cluster, tested with another class.
    ///
    /// # Errors
    /// The class does not exist, or its driver is on no node.
    pub fn choosing(self, wanted: &ClassChoice) -> Result<Self, RealError> {
        let owned = self.owned;
        Ok(Self { owned, ..Self::of(self.client, self.observer, wanted)? })
    }

    /// Its nodes are those of this kind cluster, which is deleted with it.
    pub(super) fn on(self, kind: OnKind) -> Self {
        Self { owned: OwnedParts::Nodes(Box::new(kind)), ..self }
    }

    /// With components that are removed with it.
    pub(super) fn with(self, installation: Installation) -> Self {
        Self { owned: OwnedParts::Components(Box::new(installation)), ..self }
    }

    /// If the driver has topology, uses the nodes in the segment of this node.
    pub(super) fn around(&mut self, node: &str) -> Result<(), RealError> {
        self.reachable_nodes = self.observer.look(|world| {
            let nodes = usable_nodes(world, &self.class)?;
            Ok::<_, RealError>(ReachableNodes::of(world, &self.class.provisioner, &nodes, Some(node)))
        })?;
        Ok(())
    }

    /// Its abilities in addition to the API.
    pub fn cluster_capabilities(&self) -> ClusterCapabilities {
        match &self.owned {
            OwnedParts::Nodes(kind) => kind.cluster_capabilities(),
            OwnedParts::Components(installation) => installation.cluster_capabilities,
            OwnedParts::Nothing => Self::CAPABILITIES,
        }
    }

    /// Whether the built-in provisioner, attacher and resizer call the driver's controller.
    pub(super) fn has_our_sidecars(&self) -> bool {
        match &self.owned {
            OwnedParts::Nodes(_) | OwnedParts::Components(_) => {
                !self.cluster_capabilities().upstream_sidecars
            }
            OwnedParts::Nothing => false,
        }
    }

    /// Whether its nodes are containers on this machine.
    pub(super) fn is_kind(&self) -> bool {
        matches!(self.owned, OwnedParts::Nodes(_))
    }

    /// Disrupts a component; returns once that is done.
    ///
    /// # Errors
    /// Its nodes were not created by claimcheck, or the disruption is not supported.
    pub async fn disrupt(&self, victim: &Victim, disruption: Disruption) -> Result<(), DisruptError> {
        match &self.owned {
            OwnedParts::Nodes(kind) => {
                kind.nodes().disrupt(&self.client, &COMPONENTS, victim, disruption).await
            }
            OwnedParts::Components(installation) if installation.cluster_capabilities.disrupt => {
                api_disrupt::disrupt(&self.client, &COMPONENTS, victim, disruption).await
            }
            OwnedParts::Nothing | OwnedParts::Components(_) => Err(DisruptError::Absent(victim.clone())),
        }
    }

    /// Deploys an additional driver and waits for exclusive use.
    ///
    /// # Errors
    /// Its nodes were not created by claimcheck, or the driver is not registered on all of them in time.
    pub async fn deploy(&self, driver: &AdditionalDriver) -> Result<DriverLease, DeployError> {
        match &self.owned {
            OwnedParts::Nodes(kind) => kind.deploy(&self.client, &self.observer, driver).await,
            OwnedParts::Nothing | OwnedParts::Components(_) => Err(DeployError::NotHere),
        }
    }

    /// Activates these faults for the whole run, replacing all others.
    ///
    /// # Errors
    /// They are not supported here.
    pub async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        match &self.owned {
            OwnedParts::Nodes(kind) => kind.set_faults(specs).await,
            OwnedParts::Nothing | OwnedParts::Components(_) if specs.is_empty() => Ok(()),
            OwnedParts::Nothing | OwnedParts::Components(_) => {
                Err(NoFaults::NotHere { of: "requests and calls" })
            }
        }
    }

    /// Replaces the faults of a case with these; cases that require faults do not run elsewhere.
    pub async fn set_call_faults(&self, case: &str, rules: Vec<FaultRule>) {
        if let OwnedParts::Nodes(kind) = &self.owned
            && let Err(error) = kind.set_call_faults(case, rules).await
        {
            tracing::error!(%error, case, "the faults of a case are not active");
        }
    }

    /// A client with the permissions of the kubeconfig.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Everything that can be waited for.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// The driver's name.
    pub fn driver_name(&self) -> &str {
        &self.class.provisioner
    }

    /// The parameters of the driver's classes.
    pub fn class_parameters(&self) -> BTreeMap<String, String> {
        self.class.parameters.clone().unwrap_or_default()
    }

    /// The schedulable nodes with the driver from which one volume is accessible.
    pub fn reachable_nodes(&self) -> &ReachableNodes {
        &self.reachable_nodes
    }

    /// The schedulable nodes without the driver.
    pub fn without_driver(&self) -> &[String] {
        &self.without_driver
    }

    /// The driver's capabilities, as far as API objects show them.
    pub fn declared(&self) -> &DriverCapabilities {
        &self.declared
    }

    /// The log lines of the built-in components about some objects, if installed.
    pub async fn logs_mentioning(&self, names: &[String]) -> Vec<Log> {
        match &self.owned {
            OwnedParts::Nothing => Vec::new(),
            OwnedParts::Components(installation) => {
                let mut logs = component_logs::by_pods(&self.client, COMPONENTS.namespace, names).await;
                logs.extend(installation.moved());
                logs
            }
            OwnedParts::Nodes(_) => component_logs::by_pods(&self.client, COMPONENTS.namespace, names).await,
        }
    }

    /// Stops the watches and removes everything created for the run; the nodes' logs are kept if something `failed`.
    pub async fn leave(self, failed: bool) {
        match self.owned {
            OwnedParts::Nothing => {}
            OwnedParts::Components(installation) => installation.end(failed).await,
            OwnedParts::Nodes(kind) => kind.end(&self.client, failed).await,
        }
    }
}

fn class(world: &World, wanted: &ClassChoice) -> Result<StorageClass, RealError> {
    let all = || {
        let mut names: Vec<String> = world.classes.iter().map(|class| class.name_any()).collect();
        names.sort();
        if names.is_empty() { "none, since no classes exist".to_owned() } else { names.join(", ") }
    };
    match wanted {
        ClassChoice::Given(class) => Ok((**class).clone()),
        ClassChoice::Named(name) => world
            .classes
            .named(name)
            .map(|class| (**class).clone())
            .ok_or_else(|| RealError::NoClass(name.to_owned(), all())),
        ClassChoice::Default => world
            .classes
            .iter()
            .filter(|class| class.annotations().get(DEFAULT_CLASS).is_some_and(|value| value == "true"))
            // The newest of several, as for claims.
            .max_by_key(|class| class.metadata.creation_timestamp.as_ref().map(|time| time.0))
            .map(|class| (**class).clone())
            .ok_or_else(|| RealError::NoDefault(all())),
    }
}

/// Nodes on which a case's pods can run.
fn usable_nodes(world: &World, class: &StorageClass) -> Result<Vec<String>, RealError> {
    let (mut usable, mut why) = (Vec::new(), Vec::new());
    for node in world.nodes.iter() {
        let registered = world.csi_nodes.named(&node.name_any()).is_some_and(|csi_node| {
            csi_node.spec.drivers.iter().any(|driver| driver.name == class.provisioner)
        });
        match obstacle(node).or((!registered).then_some("does not have the driver")) {
            None => usable.push(node.name_any()),
            Some(obstacle) => why.push(format!("{} {obstacle}", node.name_any())),
        }
    }
    usable.sort();
    why.sort();
    if usable.is_empty() {
        let why = if why.is_empty() { "the cluster has no nodes".to_owned() } else { why.join(", ") };
        return Err(RealError::NoNode { driver: class.provisioner.clone(), class: class.name_any(), why });
    }
    Ok(usable)
}

/// Whether a node is Ready.
pub(super) fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The reason why pods without tolerations cannot run on a node.
fn obstacle(node: &Node) -> Option<&'static str> {
    let spec = node.spec.as_ref();
    if !is_ready(node) {
        return Some("is not ready");
    }
    if spec.is_some_and(|spec| spec.unschedulable == Some(true)) {
        return Some("is cordoned");
    }
    let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.effect != "PreferNoSchedule").then_some("is tainted")
}

/// A driver's capabilities from API objects. Staging is not visible there, so it is assumed.
fn declared(world: &World, class: &StorageClass) -> DriverCapabilities {
    let on_nodes = || {
        let drivers = world.csi_nodes.iter().flat_map(|node| node.spec.drivers.iter());
        drivers.filter(|driver| driver.name == class.provisioner)
    };
    let limited = on_nodes()
        .any(|driver| driver.allocatable.as_ref().and_then(|allocatable| allocatable.count).is_some());
    let zoned = on_nodes().any(|driver| driver.topology_keys.as_ref().is_some_and(|keys| !keys.is_empty()));
    let grows = class.allow_volume_expansion == Some(true);
    let object = world.csi_drivers.named(&class.provisioner);
    let published = object.and_then(|driver| driver.spec.storage_capacity);
    let attach = object.and_then(|driver| driver.spec.attach_required) != Some(false);
    let snapshots = world.snapshot_classes.iter().any(|of| of.driver == class.provisioner);
    let capabilities = BTreeMap::from([
        (Capability::VolumeLimits, limited),
        (Capability::Topology, zoned),
        (Capability::ControllerExpansion, grows),
        (Capability::Capacity, published == Some(true)),
        (Capability::SnapshotDataSource, snapshots),
    ]);
    DriverCapabilities { capabilities, supported_calls: SupportedCalls { attach, ..SupportedCalls::ALL } }
}
