//! The data of a cluster with real nodes, from its API objects: an existing one, given by a kubeconfig, where only the
//! components installed for this run are removed (`existing/`), or one created by kind (`kind/`). Cases work in
//! their own namespaces.

pub(crate) mod components;
pub(crate) mod controllers;
pub(crate) mod unregistered;

use std::{collections::BTreeMap, time::Instant};

use claimcheck_csi::tap::KnownSecrets;
use claimcheck_informer::World;
use claimcheck_model::{Capability, DEFAULT_CLASS};
use k8s_openapi::api::{core::v1::Node, storage::v1::StorageClass};
use kube::{Client, ResourceExt, config::KubeconfigError};

use crate::{
    backend::Backend,
    capabilities::{DriverCapabilities, SupportedCalls},
    cluster::{Cluster, DriverUnderTest, Streams},
    observer::Observer,
    reachable_nodes::ReachableNodes,
};

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
    #[error("driver {driver} of StorageClass {class} is on no ready and schedulable node: {reason}")]
    NoNode {
        /// The driver.
        driver: String,
        /// The class.
        class: String,
        /// Each node with the reason.
        reason: String,
    },
}

/// A cluster with real nodes and the class under test, before it is known what is behind its API.
pub(super) struct Real {
    client: Client,
    observer: Observer,
    class: StorageClass,
    driver: DriverUnderTest,
}

impl Cluster {
    /// The same cluster, tested with another class.
    ///
    /// # Errors
    /// The class does not exist, or its driver is on no node.
    pub fn choosing(self, expected: &ClassChoice) -> Result<Self, RealError> {
        let Real { driver, .. } = Real::of(self.client.clone(), self.observer.clone(), expected)?;
        Ok(Self { driver, ..self })
    }
}

impl Real {
    /// Finds the class under test, and the nodes that have its driver.
    pub(super) fn of(client: Client, observer: Observer, expected: &ClassChoice) -> Result<Self, RealError> {
        let (class, driver) = observer.look(|world| {
            let class = class(world, expected)?;
            let usable = usable_nodes(world, &class)?;
            let takes_pods = world.nodes.iter().filter(|node| obstacle(node).is_none());
            let without = takes_pods.map(|node| node.name_any()).filter(|node| !usable.contains(node));
            let driver = DriverUnderTest {
                name: class.provisioner.clone(),
                class_parameters: class.parameters.clone().unwrap_or_default(),
                class_mount_options: class.mount_options.clone().unwrap_or_default(),
                declared: declared(world, &class),
                reachable_nodes: ReachableNodes::of(world, &class.provisioner, &usable, None),
                nodes_without_driver: without.collect(),
            };
            Ok::<_, RealError>((class, driver))
        })?;
        if !driver.nodes_without_driver.is_empty() {
            tracing::warn!(
                "driver {} is on {} of the {} schedulable nodes: the cases' pods run only there",
                driver.name,
                driver.reachable_nodes.nodes.len(),
                driver.reachable_nodes.nodes.len() + driver.nodes_without_driver.len(),
            );
        }
        Ok(Self { client, observer, class, driver })
    }

    /// If the driver has topology, uses the nodes in the segment of this node.
    pub(super) fn around(&mut self, node: &str) -> Result<(), RealError> {
        self.driver.reachable_nodes = self.observer.look(|world| {
            let nodes = usable_nodes(world, &self.class)?;
            Ok::<_, RealError>(ReachableNodes::of(world, &self.driver.name, &nodes, Some(node)))
        })?;
        Ok(())
    }

    /// The cluster, with what is behind its API.
    pub(super) fn with(self, backend: impl Backend + 'static) -> Cluster {
        let Self { client, observer, driver, .. } = self;
        let (properties, streams, started) = (backend.properties(), Streams::default(), Instant::now());
        let known_secrets = KnownSecrets::default();
        Cluster {
            client,
            observer,
            driver,
            properties,
            known_secrets,
            streams,
            started,
            api_server: None,
            backend: Box::new(backend),
        }
    }
}

fn class(world: &World, expected: &ClassChoice) -> Result<StorageClass, RealError> {
    let all = || {
        let mut names: Vec<String> = world.classes.iter().map(|class| class.name_any()).collect();
        names.sort();
        if names.is_empty() { "none, since no classes exist".to_owned() } else { names.join(", ") }
    };
    match expected {
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
    let (mut usable, mut reason) = (Vec::new(), Vec::new());
    for node in world.nodes.iter() {
        let registered = world.csi_nodes.named(&node.name_any()).is_some_and(|csi_node| {
            csi_node.spec.drivers.iter().any(|driver| driver.name == class.provisioner)
        });
        match obstacle(node).or((!registered).then_some("does not have the driver")) {
            None => usable.push(node.name_any()),
            Some(obstacle) => reason.push(format!("{} {obstacle}", node.name_any())),
        }
    }
    usable.sort();
    reason.sort();
    if usable.is_empty() {
        let reason =
            if reason.is_empty() { "the cluster has no nodes".to_owned() } else { reason.join(", ") };
        return Err(RealError::NoNode { driver: class.provisioner.clone(), class: class.name_any(), reason });
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
    let groups = world.group_snapshot_classes.iter().any(|of| of.driver == class.provisioner);
    let capabilities = BTreeMap::from([
        (Capability::VolumeLimits, limited),
        (Capability::Topology, zoned),
        (Capability::ControllerExpansion, grows),
        (Capability::Capacity, published == Some(true)),
        (Capability::SnapshotDataSource, snapshots),
        (Capability::GroupSnapshot, groups),
    ]);
    DriverCapabilities { capabilities, supported_calls: SupportedCalls { attach, ..SupportedCalls::ALL } }
}
