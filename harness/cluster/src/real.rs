//! A cluster with real nodes: whatever a kubeconfig points to, where nothing is taken down but what was installed
//! for this run (`installation`), or one that kind made for it (`on_kind`). Cases work in namespaces of their own.

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
    Abilities, Declared, DisruptError, Disruption, NoFaults, Takes, Victim, api_disrupt,
    equip::COMPONENTS,
    further::{DeployError, FurtherDriver, Turn},
    installation::Installation,
    observer::Observer,
    on_kind::OnKind,
    reach::Reach,
    said,
};
use crate::faults::FaultSpec;

/// Which cluster, and what of it is to be tried.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The kubeconfig; KUBECONFIG or ~/.kube/config where absent.
    pub kubeconfig: Option<PathBuf>,
    /// Its context; the current one where absent.
    pub context: Option<String>,
    /// The class whose driver is tried, and after whose parameters classes are made.
    pub class: ClassChoice,
}

/// The class whose driver is tried, and after whose parameters classes are made.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ClassChoice {
    /// The cluster's default class.
    #[default]
    Default,
    /// The cluster's class of this name.
    Named(String),
    /// One that need not be there: a driver file has it.
    Given(Box<StorageClass>),
}

/// Why a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// The kubeconfig cannot be read, or lacks the context.
    #[error("the kubeconfig cannot be used: check --kubeconfig and --context")]
    Kubeconfig(#[from] KubeconfigError),
    /// The API server does not answer.
    #[error("the API server at {url} does not answer")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// There is no such class.
    #[error("there is no StorageClass {0}: name one of {1} with --storage-class")]
    NoClass(String, String),
    /// There is no default class.
    #[error("the cluster has no default StorageClass: name one of {0} with --storage-class")]
    NoDefault(String),
    /// No pod could use the driver.
    #[error("driver {driver} of StorageClass {class} is on no node that is ready and takes pods: {why}")]
    NoNode {
        /// The driver.
        driver: String,
        /// The class.
        class: String,
        /// Each node, with what keeps pods from it.
        why: String,
    },
}

/// A cluster in use.
pub struct Real {
    client: Client,
    observer: Observer,
    class: StorageClass,
    reach: Reach,
    without_driver: Vec<String>,
    declared: Declared,
    ours: Ours,
}

/// What of a cluster is ours, and ends with the run.
enum Ours {
    Nothing,
    Components(Box<Installation>),
    Nodes(Box<OnKind>),
}

impl Target {
    /// A client with the rights of the kubeconfig, for a server that answers.
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
    /// Nothing beside the API.
    pub const ABILITIES: Abilities = Abilities {
        disrupt: false,
        agents: false,
        configure: false,
        further: false,
        tap: false,
        retracts: false,
        upstream_sidecars: false,
    };

    /// What its owner can do, where it is of kind; of the components, kubelets take other arguments.
    pub const ABILITIES_ON_KIND: Abilities = Abilities {
        disrupt: true,
        agents: true,
        configure: true,
        further: true,
        tap: true,
        ..Self::ABILITIES
    };

    /// Looks at a cluster.
    ///
    /// # Errors
    /// [`RealError`] says what is missing and which argument names another.
    pub async fn at(target: &Target) -> Result<Self, RealError> {
        let client = target.connect().await?;
        let observer = Observer::start(client.clone()).await;
        Self::of(client, observer, &target.class)
    }

    /// Looks at a cluster that is being watched.
    pub(super) fn of(client: Client, observer: Observer, wanted: &ClassChoice) -> Result<Self, RealError> {
        let (class, reach, without_driver, declared) = observer.look(|world| {
            let class = class(world, wanted)?;
            let usable = usable_nodes(world, &class)?;
            let reach = Reach::of(world, &class.provisioner, &usable, None);
            let takes_pods = world.nodes.iter().filter(|node| obstacle(node).is_none());
            let without = takes_pods.map(|node| node.name_any()).filter(|node| !usable.contains(node));
            let declared = declared(world, &class);
            Ok::<_, RealError>((class, reach, without.collect::<Vec<_>>(), declared))
        })?;
        if !without_driver.is_empty() {
            tracing::warn!(
                "driver {} is on {} of the {} nodes that take pods: the cases' pods run there only",
                class.provisioner,
                reach.nodes.len(),
                reach.nodes.len() + without_driver.len(),
            );
        }
        Ok(Self { client, observer, class, reach, without_driver, declared, ours: Ours::Nothing })
    }

    /// The same cluster, tried with another class.
    ///
    /// # Errors
    /// There is no such class, or its driver is on no node.
    pub fn choosing(self, wanted: &ClassChoice) -> Result<Self, RealError> {
        let ours = self.ours;
        Ok(Self { ours, ..Self::of(self.client, self.observer, wanted)? })
    }

    /// Its nodes are those of this cluster of kind, which ends with it.
    pub(super) fn on(self, kind: OnKind) -> Self {
        Self { ours: Ours::Nodes(Box::new(kind)), ..self }
    }

    /// With components that end with it.
    pub(super) fn with(self, installation: Installation) -> Self {
        Self { ours: Ours::Components(Box::new(installation)), ..self }
    }

    /// If the driver keeps nodes apart, those around this one count.
    pub(super) fn around(&mut self, node: &str) -> Result<(), RealError> {
        self.reach = self.observer.look(|world| {
            let nodes = usable_nodes(world, &self.class)?;
            Ok::<_, RealError>(Reach::of(world, &self.class.provisioner, &nodes, Some(node)))
        })?;
        Ok(())
    }

    /// What it offers beside its API.
    pub fn abilities(&self) -> Abilities {
        match &self.ours {
            Ours::Nodes(kind) => kind.abilities(),
            Ours::Components(installation) => installation.abilities,
            Ours::Nothing => Self::ABILITIES,
        }
    }

    /// Whether our provisioner, attacher and resizer are what calls the driver's controller.
    pub(super) fn has_our_sidecars(&self) -> bool {
        match &self.ours {
            Ours::Nodes(_) | Ours::Components(_) => !self.abilities().upstream_sidecars,
            Ours::Nothing => false,
        }
    }

    /// Whether its nodes are containers of this machine.
    pub(super) fn is_kind(&self) -> bool {
        matches!(self.ours, Ours::Nodes(_))
    }

    /// Disrupts a component; returns once it is hit.
    ///
    /// # Errors
    /// Its nodes are not ours, or it cannot be hit so.
    pub async fn disrupt(&self, victim: &Victim, disruption: Disruption) -> Result<(), DisruptError> {
        match &self.ours {
            Ours::Nodes(kind) => kind.nodes().disrupt(&self.client, &COMPONENTS, victim, disruption).await,
            Ours::Components(installation) if installation.abilities.disrupt => {
                api_disrupt::disrupt(&self.client, &COMPONENTS, victim, disruption).await
            }
            Ours::Nothing | Ours::Components(_) => Err(DisruptError::Absent(victim.clone())),
        }
    }

    /// Brings up a further driver and waits for its turn.
    ///
    /// # Errors
    /// Its nodes are not ours, or it is not registered on all of them in time.
    pub async fn deploy(&self, driver: &FurtherDriver) -> Result<Turn, DeployError> {
        match &self.ours {
            Ours::Nodes(kind) => kind.deploy(&self.client, &self.observer, driver).await,
            Ours::Nothing | Ours::Components(_) => Err(DeployError::NotHere),
        }
    }

    /// Puts these faults in force for the whole run, in place of all others.
    ///
    /// # Errors
    /// They cannot be had here.
    pub async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        match &self.ours {
            Ours::Nodes(kind) => kind.set_faults(specs).await,
            Ours::Nothing | Ours::Components(_) if specs.is_empty() => Ok(()),
            Ours::Nothing | Ours::Components(_) => Err(NoFaults::NotHere { of: "requests and calls" }),
        }
    }

    /// Puts these faults of a case in place of those that it had; cases that need it do not run elsewhere.
    pub async fn set_call_faults(&self, case: &str, rules: Vec<FaultRule>) {
        if let Ours::Nodes(kind) = &self.ours
            && let Err(error) = kind.set_call_faults(case, rules).await
        {
            tracing::error!(%error, case, "the faults of a case are not in force");
        }
    }

    /// A client with the rights of the kubeconfig.
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

    /// The parameters that the driver's classes have here.
    pub fn class_parameters(&self) -> BTreeMap<String, String> {
        self.class.parameters.clone().unwrap_or_default()
    }

    /// The nodes that have the driver and take pods, as far as one volume can be on them.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The nodes that take pods and do not have the driver.
    pub fn without_driver(&self) -> &[String] {
        &self.without_driver
    }

    /// What the driver declares, as far as objects of the API show it.
    pub fn declared(&self) -> &Declared {
        &self.declared
    }

    /// What our components have said about some objects, where there are such.
    pub async fn said_about(&self, names: &[String]) -> Vec<Log> {
        match &self.ours {
            Ours::Nothing => Vec::new(),
            Ours::Components(installation) => {
                let mut said = said::by_pods(&self.client, COMPONENTS.namespace, names).await;
                said.extend(installation.moved());
                said
            }
            Ours::Nodes(_) => said::by_pods(&self.client, COMPONENTS.namespace, names).await,
        }
    }

    /// Ends the watches, and what of it was made for the run; the nodes' logs are kept if something `failed`.
    pub async fn leave(self, failed: bool) {
        match self.ours {
            Ours::Nothing => {}
            Ours::Components(installation) => installation.end(failed).await,
            Ours::Nodes(kind) => kind.end(&self.client, failed).await,
        }
    }
}

fn class(world: &World, wanted: &ClassChoice) -> Result<StorageClass, RealError> {
    let all = || {
        let mut names: Vec<String> = world.classes.iter().map(|class| class.name_any()).collect();
        names.sort();
        if names.is_empty() { "none, since there are no classes".to_owned() } else { names.join(", ") }
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
            // Of several the newest, as for claims.
            .max_by_key(|class| class.metadata.creation_timestamp.as_ref().map(|time| time.0))
            .map(|class| (**class).clone())
            .ok_or_else(|| RealError::NoDefault(all())),
    }
}

/// Nodes that a case's pods can be put on.
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
        let why = if why.is_empty() { "there are no nodes".to_owned() } else { why.join(", ") };
        return Err(RealError::NoNode { driver: class.provisioner.clone(), class: class.name_any(), why });
    }
    Ok(usable)
}

/// Whether a node's kubelet says that it works.
pub(super) fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What keeps pods without tolerations from a node.
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

/// What objects say of a driver. Whether it stages cannot be seen, so that is taken for granted.
fn declared(world: &World, class: &StorageClass) -> Declared {
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
    Declared { capabilities, takes: Takes { attach, ..Takes::ALL } }
}
