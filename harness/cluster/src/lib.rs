//! Clusters: startup, observation, disruption, teardown.
//!
//! Suites use a cluster through a `Session` of the harness: an API client, waits ([`Observer`]), and the only
//! access that bypasses the API, [`Disruption`] of a [`Victim`]. They are independent of the kind of cluster:
//! each kind declares its [`ClusterCapabilities`], and cases that require a missing one are skipped.
//!
//! ```text
//! Cluster ─┬─ Embedded   virtual nodes, built-in components; API server: embedded or upstream (control_plane, stock)
//!          └─ Real       real nodes: an existing cluster (kubeconfig), or one created by kind
//! ```

mod additional_driver;
mod api_disrupt;
pub mod calibration_loop;
mod call_faults;
mod capabilities;
mod component_logs;
mod control_plane;
mod controller_manager;
mod controller_node;
mod controllers;
mod driver_command;
mod embedded;
pub mod faults;
mod install_components;
mod installation;
#[cfg(test)]
mod installation_tests;
mod kind;
mod kind_additional_driver;
mod kind_disrupt;
#[cfg(test)]
mod kind_disrupt_tests;
mod kind_image;
mod kind_loops;
#[cfg(test)]
mod kind_tests;
mod leaks;
mod node;
mod node_driver;
mod objects;
mod observer;
mod on_kind;
#[cfg(test)]
mod on_kind_tests;
mod orphaned_loop_devices;
mod reachable_nodes;
mod real;
mod secrets;
mod stock;
mod supervisor;
mod unregistered;
pub mod usage;

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use claimcheck_csi::tap::{FaultAction, FaultRule, TapRecord};
use claimcheck_model::{ApiWrite, ComponentEnd, Leak, Log, Rule, Stamp};
use kube::Client;
use tokio::sync::mpsc;

pub use additional_driver::{AdditionalDriver, DeployError, DriverLease};
pub use capabilities::{
    DescribeDriverError, DriverCapabilities, DriverDescription, SupportedCalls, declared_by, describe_driver,
};
pub use control_plane::{Api, ControlPlaneError};
pub use driver_command::{DriverCommand, DriverCommandError, PlaceholderValues};
pub use embedded::{DriverPolicy, Embedded, Instrumentation, Options, UpError};
pub use install_components::InstallComponentsError;
pub use installation::{Install, InstallationError};
pub use kind::{Collected, KindCluster, KindError, KindOptions};
pub use kind_disrupt::{Components, DisruptError};
pub use kind_image::Image;
pub use observer::{Check, Observer, Trigger, WaitError};
pub use on_kind::{KIND_FAULTS, OnKindError};
pub use orphaned_loop_devices::{OrphanedLoopDevice, OrphanedLoopDevicesError, detach_orphaned_loop_devices};
pub use reachable_nodes::ReachableNodes;
pub use real::{ClassChoice, Real, RealError, Target};
pub use stock::{Assets, AssetsError, StockError};
pub use supervisor::{Disruption, Supervised};

use crate::faults::FaultSpec;

/// A component that a disruptive case may disrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The node agent of this node.
    NodeAgent(String),
    /// The driver's process on this node.
    Driver(String),
    /// The storage controllers.
    Controllers,
}

/// The abilities of a kind of cluster in addition to its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterCapabilities {
    /// Driver and controllers can be stopped and killed.
    pub disrupt: bool,
    /// Node agents can be stopped and killed.
    pub agents: bool,
    /// Components can be restarted with other arguments.
    pub configure: bool,
    /// Additional drivers can be deployed.
    pub additional_drivers: bool,
    /// Every CSI call is recorded, and faults can be injected.
    pub tap: bool,
    /// VolumeAttachments that are no longer required are deleted when the CSIDriver changes to attachRequired: false.
    /// The built-in controllers do that; with upstream's attach/detach controller they remain, if the attach call timed
    /// out only after that: it can no longer note the volume as attached (`AddVolumeNode` in its
    /// `actual_state_of_world.go`).
    pub retracts: bool,
    /// The sidecars are those of kubernetes-csi. They may repeat completed calls to the driver's controller:
    /// they decide by caches that may not contain their own last write yet.
    pub upstream_sidecars: bool,
}

/// Faults that this cluster does not support.
#[derive(Debug, thiserror::Error)]
pub enum NoFaults {
    /// They cannot be injected.
    #[error("--fault: faults cannot be injected into {of} on this kind of cluster: use --cluster embedded")]
    NotHere {
        /// The target of the faults.
        of: &'static str,
    },
    /// The fault file for the nodes' drivers cannot be written.
    #[error("cannot write the fault file {} for the nodes' drivers", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A running cluster.
pub enum Cluster {
    /// Virtual nodes on this machine.
    Embedded(Box<Embedded>),
    /// Real nodes.
    Real(Box<Real>),
}

impl Cluster {
    /// Whether its nodes run on this machine.
    pub fn is_on_this_machine(&self) -> bool {
        match self {
            Self::Embedded(_) => true,
            Self::Real(real) => real.is_kind(),
        }
    }

    /// Its abilities in addition to the API.
    pub fn cluster_capabilities(&self) -> ClusterCapabilities {
        match self {
            Self::Embedded(_) => Embedded::CAPABILITIES,
            Self::Real(real) => real.cluster_capabilities(),
        }
    }

    /// The calls that may be repeated although the first one succeeded. A restarted real kubelet stages and
    /// publishes volumes that it finds mounted; upstream's attacher decides by a cache that may be stale.
    pub fn repeatable_calls(&self) -> &'static [Rule] {
        const BY_KUBELETS: [Rule; 2] = [Rule::StageTwice, Rule::PublishTwice];
        const BY_SIDECARS_TOO: [Rule; 3] = [Rule::StageTwice, Rule::PublishTwice, Rule::AttachTwice];
        match self {
            Self::Embedded(_) => &[],
            Self::Real(real) if real.has_our_sidecars() => &BY_KUBELETS,
            Self::Real(_) => &BY_SIDECARS_TOO,
        }
    }

    /// The timeout for a step of a case. Far above what any step
    /// takes: latencies are judged by thresholds (SLOs). A real kubelet checks
    /// mounted ConfigMaps every minute or two, and some backoffs of Kubernetes grow to two minutes.
    pub fn step_timeout(&self) -> Duration {
        match self {
            Self::Embedded(embedded) if !embedded.controllers_are_stock() => Duration::from_secs(60),
            Self::Embedded(_) | Self::Real(_) => Duration::from_secs(240),
        }
    }

    /// A client with all available permissions.
    pub fn client(&self) -> Client {
        match self {
            Self::Embedded(embedded) => embedded.client(),
            Self::Real(real) => real.client(),
        }
    }

    /// Everything that can be waited for.
    pub fn observer(&self) -> &Observer {
        match self {
            Self::Embedded(embedded) => embedded.observer(),
            Self::Real(real) => real.observer(),
        }
    }

    /// The driver's name.
    pub fn driver_name(&self) -> &str {
        match self {
            Self::Embedded(embedded) => embedded.driver_name(),
            Self::Real(real) => real.driver_name(),
        }
    }

    /// The parameters of the driver's classes, in addition to those of a case.
    pub fn class_parameters(&self) -> BTreeMap<String, String> {
        match self {
            Self::Embedded(embedded) => embedded.class_parameters(),
            Self::Real(real) => real.class_parameters(),
        }
    }

    /// The nodes that pods with a volume of the driver can run on.
    pub fn reachable_nodes(&self) -> &ReachableNodes {
        match self {
            Self::Embedded(embedded) => embedded.reachable_nodes(),
            Self::Real(real) => real.reachable_nodes(),
        }
    }

    /// The schedulable nodes without the driver: a pod with an unprovisioned volume could be scheduled there.
    pub fn nodes_without_driver(&self) -> &[String] {
        match self {
            Self::Embedded(_) => &[],
            Self::Real(real) => real.without_driver(),
        }
    }

    /// How long a deletion may take before the object counts as leaked. An upstream control plane
    /// detaches a volume only after the kubelet has reported it as unused, which it does each 10 s by default, and
    /// sidecars wait longer after each failure.
    pub fn settling_time(&self) -> Duration {
        match self {
            Self::Embedded(embedded) if !embedded.controllers_are_stock() => Duration::from_secs(5),
            Self::Embedded(_) => Duration::from_secs(30),
            Self::Real(_) => Duration::from_secs(90),
        }
    }

    /// Their names.
    pub fn nodes(&self) -> Vec<String> {
        self.reachable_nodes().nodes.clone()
    }

    /// The driver's capabilities, as far as available.
    pub fn declared(&self) -> &DriverCapabilities {
        match self {
            Self::Embedded(embedded) => embedded.declared(),
            Self::Real(real) => real.declared(),
        }
    }

    /// Unexpected exits of components; can be taken once, if claimcheck starts them.
    pub fn take_ends(&mut self) -> Option<mpsc::UnboundedReceiver<ComponentEnd>> {
        match self {
            Self::Embedded(embedded) => embedded.take_ends(),
            Self::Real(_) => None,
        }
    }

    /// When the API server became ready, if claimcheck starts it.
    pub fn api_ready(&self) -> Option<Stamp> {
        match self {
            Self::Embedded(embedded) => Some(embedded.api_ready()),
            Self::Real(_) => None,
        }
    }

    /// The tap's records; can be taken once, if a tap exists.
    pub fn take_records(&mut self) -> Option<mpsc::UnboundedReceiver<TapRecord>> {
        match self {
            Self::Embedded(embedded) => embedded.take_records(),
            Self::Real(_) => None,
        }
    }

    /// The API writes of the built-in components, if they report them; can be taken once.
    pub fn take_writes(&mut self) -> Option<mpsc::UnboundedReceiver<ApiWrite>> {
        match self {
            Self::Embedded(embedded) => embedded.take_writes(),
            Self::Real(_) => None,
        }
    }

    /// Activates these faults for the whole run, replacing all others.
    ///
    /// # Errors
    /// This kind of cluster does not support them.
    pub async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        match self {
            Self::Embedded(embedded) => embedded.set_faults(specs).await,
            Self::Real(real) => real.set_faults(specs).await,
        }
    }

    /// Whether faults are injected into requests to the API server.
    pub fn api_faults_active(&self) -> bool {
        match self {
            Self::Embedded(embedded) => embedded.api_faults_active(),
            Self::Real(_) => false,
        }
    }

    /// Replaces the call faults of `whose` with these; they precede those of the run, and are independent of
    /// those of others. Without a tap this has no effect: cases that require it do not run there.
    pub async fn set_call_faults(&self, case: &str, rules: Vec<FaultRule>) {
        match self {
            Self::Embedded(embedded) => embedded.set_call_faults(case, rules).await,
            Self::Real(real) => real.set_call_faults(case, rules).await,
        }
    }

    /// Makes the driver on a node accept its next call of `method` for a volume without responding, until the driver is
    /// killed. Callers that wait for the call to start must remove the faults of `whose` before they kill the driver.
    ///
    /// # Errors
    /// The driver cannot be disrupted.
    pub async fn hold_call(
        &self,
        case: &str,
        node: &str,
        method: &str,
        volume: &str,
    ) -> Result<(), DisruptError> {
        match self {
            // Calls are recorded by the caller: a paused driver accepts one and cannot respond.
            Self::Embedded(_) => self.disrupt(&Victim::Driver(node.to_owned()), Disruption::Pause).await,
            // They are recorded in the driver's process, or the tap's: it has to run.
            Self::Real(real) => {
                let rule = FaultRule::new(method, FaultAction::Hang).on_volume(volume);
                real.set_call_faults(case, vec![rule]).await;
                Ok(())
            }
        }
    }

    /// Disrupts a component; returns once that is done.
    ///
    /// # Errors
    /// It does not exist, or does not support this disruption.
    pub async fn disrupt(&self, victim: &Victim, disruption: Disruption) -> Result<(), DisruptError> {
        match self {
            Self::Embedded(embedded) if embedded.disrupt(victim, disruption).await => Ok(()),
            Self::Embedded(_) => Err(DisruptError::Absent(victim.clone())),
            Self::Real(real) => real.disrupt(victim, disruption).await,
        }
    }

    /// Deploys an additional driver and waits for exclusive use; see [`Embedded::deploy`].
    ///
    /// # Errors
    /// It cannot be started, or is not registered on all nodes in time.
    pub async fn deploy(&self, driver: &AdditionalDriver) -> Result<DriverLease, DeployError> {
        match self {
            Self::Embedded(embedded) => embedded.deploy(driver).await,
            Self::Real(real) => real.deploy(driver).await,
        }
    }

    /// Leaks on the host of the objects in `of`; see [`Embedded::host_leaks`]. Real nodes are not
    /// inspected: leaks there show in API objects.
    pub fn host_leaks(&self, of: &[String]) -> Vec<Leak> {
        match self {
            Self::Embedded(embedded) => embedded.host_leaks(of),
            Self::Real(_) => Vec::new(),
        }
    }

    /// Volumes that the drivers still have, if they can be queried.
    pub async fn backend_leaks(&self) -> Vec<Leak> {
        match self {
            Self::Embedded(embedded) => embedded.backend_leaks().await,
            Self::Real(_) => Vec::new(),
        }
    }

    /// The number of loop devices of the driver, and of requests served by the API server, if they can be counted.
    pub fn counts(&self) -> (u64, Option<u64>) {
        match self {
            Self::Embedded(embedded) => embedded.counts(),
            Self::Real(_) => (0, None),
        }
    }

    /// The log lines of the built-in components about some objects: those that contain one of their names.
    pub async fn logs_mentioning(&self, names: &[String]) -> Vec<Log> {
        match self {
            Self::Embedded(embedded) => embedded.logs_mentioning(names).await,
            Self::Real(real) => real.logs_mentioning(names).await,
        }
    }

    /// Takes down everything that was started, in order; if something `failed`, after collecting the logs of real
    /// nodes.
    pub async fn down(self, failed: bool) {
        match self {
            Self::Embedded(embedded) => embedded.down().await,
            Self::Real(real) => real.leave(failed).await,
        }
    }
}
