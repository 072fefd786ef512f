//! The operations that differ between kinds of cluster: each is one function with an arm per kind.

use std::{io, path::PathBuf, time::Duration};

use claimcheck_csi::tap::{FaultAction, FaultRule, KnownSecrets};
use claimcheck_model::{ComponentFault, Denial, DeniedObject, Leak, Log, Unserved};
use kube::{Api, Client};

use crate::{
    DisruptError, Disruption,
    additional_driver::{AdditionalDriver, DeployError, DriverLease},
    api_requests, component_logs,
    embedded::Embedded,
    existing::{self, installation::Installation},
    faults::FaultSpec,
    kind::OnKind,
    log_search::{self, LogSearch},
    observer::Observer,
    properties::Properties,
    real_nodes::components::COMPONENTS,
};

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

/// What runs behind the API of a cluster.
pub(crate) enum Backend {
    /// Virtual nodes on this machine.
    Embedded(Box<Embedded>),
    /// Containers of this machine as nodes, created by kind.
    Kind(Box<OnKind>),
    /// Nodes that claimcheck has not created, with the components that were installed for the run, if any.
    Existing(Option<Box<Installation>>),
}

impl Backend {
    /// The properties of a cluster with this backend.
    pub(crate) fn properties(&self) -> Properties {
        match self {
            Self::Embedded(embedded) => {
                Properties::embedded(embedded.controllers_are_stock(), embedded.sidecars_are_stock())
            }
            Self::Kind(kind) => Properties::real(kind.cluster_capabilities()),
            Self::Existing(Some(installation)) => Properties::real(installation.cluster_capabilities),
            Self::Existing(None) => Properties::existing(),
        }
    }

    /// See [`Cluster::search_logs`](super::Cluster::search_logs).
    pub(crate) async fn search_logs(&self, client: &Client, driver: &str, known: &KnownSecrets) -> LogSearch {
        let builtin = || (Api::namespaced(client.clone(), COMPONENTS.namespace), component_logs::COMPONENTS);
        match self {
            Self::Embedded(embedded) => embedded.search_logs().await,
            Self::Kind(_) | Self::Existing(Some(_)) => {
                log_search::of_pods(client, builtin(), known, |_| true).await
            }
            Self::Existing(None) => {
                let pods = (Api::all(client.clone()), "");
                log_search::of_pods(client, pods, known, |pod| log_search::is_of_driver(pod, driver)).await
            }
        }
    }

    /// See [`Cluster::denials`](super::Cluster::denials).
    pub(crate) async fn denials(&self, client: &Client) -> Vec<Denial> {
        match self {
            Self::Embedded(embedded) => embedded.denials(client).await,
            Self::Kind(_) | Self::Existing(_) => Vec::new(),
        }
    }

    /// See [`Cluster::component_faults`](super::Cluster::component_faults).
    pub(crate) async fn component_faults(&self, client: &Client, since: Duration) -> Vec<ComponentFault> {
        match self {
            Self::Embedded(embedded) => embedded.component_faults().await,
            Self::Kind(kind) => component_logs::faults(client, kind.components(), since).await,
            Self::Existing(Some(installation)) => {
                component_logs::faults(client, installation.components(), since).await
            }
            Self::Existing(None) => Vec::new(),
        }
    }

    /// See [`Cluster::denied_objects`](super::Cluster::denied_objects).
    pub(crate) fn denied_objects(&self) -> Vec<DeniedObject> {
        match self {
            Self::Embedded(embedded) => embedded.denied_objects(),
            Self::Kind(_) | Self::Existing(_) => Vec::new(),
        }
    }

    /// See [`Cluster::outlives_run`](super::Cluster::outlives_run).
    pub(crate) fn outlives_run(&self) -> bool {
        match self {
            Self::Embedded(_) => false,
            Self::Kind(kind) => kind.nodes().outlives_run(),
            Self::Existing(_) => true,
        }
    }

    /// See [`Cluster::unserved`](super::Cluster::unserved).
    pub(crate) async fn unserved(&self, client: &Client) -> Vec<Unserved> {
        match self {
            Self::Embedded(embedded) => embedded.unserved(client).await,
            Self::Kind(_) | Self::Existing(_) => Vec::new(),
        }
    }

    /// See [`Cluster::set_faults`](super::Cluster::set_faults).
    pub(crate) async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        match self {
            Self::Embedded(embedded) => embedded.set_faults(specs).await,
            Self::Kind(kind) => kind.set_faults(specs).await,
            Self::Existing(_) if specs.is_empty() => Ok(()),
            Self::Existing(_) => Err(NoFaults::NotHere { of: "requests and calls" }),
        }
    }

    /// See [`Cluster::api_faults_active`](super::Cluster::api_faults_active).
    pub(crate) fn api_faults_active(&self) -> bool {
        match self {
            Self::Embedded(embedded) => embedded.api_faults_active(),
            Self::Kind(_) | Self::Existing(_) => false,
        }
    }

    /// See [`Cluster::set_call_faults`](super::Cluster::set_call_faults).
    pub(crate) async fn set_call_faults(&self, case: &str, rules: Vec<FaultRule>) {
        match self {
            Self::Embedded(embedded) => embedded.set_call_faults(case, rules).await,
            Self::Kind(kind) => kind.set_call_faults(case, rules).await,
            Self::Existing(_) => {}
        }
    }

    /// See [`Cluster::hold_call`](super::Cluster::hold_call).
    pub(crate) async fn hold_call(
        &self,
        case: &str,
        node: &str,
        method: &str,
        volume: &str,
    ) -> Result<(), DisruptError> {
        match self {
            // Calls are recorded by the caller: a paused driver accepts one and cannot respond.
            Self::Embedded(embedded) => {
                embedded.disrupt(&Victim::Driver(node.to_owned()), Disruption::Pause).await
            }
            // They are recorded in the driver's process, or the tap's: it has to run.
            Self::Kind(kind) => {
                let rule = FaultRule::new(method, FaultAction::Hang).on_volume(volume);
                kind.set_call_faults(case, vec![rule]).await;
                Ok(())
            }
            // Cases that require a tap do not run here.
            Self::Existing(_) => Ok(()),
        }
    }

    /// See [`Cluster::disrupt`](super::Cluster::disrupt).
    pub(crate) async fn disrupt(
        &self,
        client: &Client,
        victim: &Victim,
        disruption: Disruption,
    ) -> Result<(), DisruptError> {
        match self {
            Self::Embedded(embedded) => embedded.disrupt(victim, disruption).await,
            Self::Kind(kind) => kind.nodes().disrupt(client, &COMPONENTS, victim, disruption).await,
            Self::Existing(Some(installation)) if installation.cluster_capabilities.disrupt => {
                existing::disrupt::disrupt(client, &COMPONENTS, victim, disruption).await
            }
            Self::Existing(_) => Err(DisruptError::Absent(victim.clone())),
        }
    }

    /// See [`Cluster::deploy`](super::Cluster::deploy).
    pub(crate) async fn deploy(
        &self,
        client: &Client,
        observer: &Observer,
        driver: &AdditionalDriver,
    ) -> Result<DriverLease, DeployError> {
        match self {
            Self::Embedded(embedded) => embedded.deploy(client, observer, driver).await,
            Self::Kind(kind) => kind.deploy(client, observer, driver).await,
            Self::Existing(_) => Err(DeployError::NotHere),
        }
    }

    /// See [`Cluster::host_leaks`](super::Cluster::host_leaks).
    pub(crate) fn host_leaks(&self, of: &[String]) -> Vec<Leak> {
        match self {
            Self::Embedded(embedded) => embedded.host_leaks(of),
            Self::Kind(_) | Self::Existing(_) => Vec::new(),
        }
    }

    /// See [`Cluster::backend_leaks`](super::Cluster::backend_leaks).
    pub(crate) async fn volumes_left(&self) -> Vec<Leak> {
        match self {
            Self::Embedded(embedded) => embedded.backend_leaks().await,
            Self::Kind(_) | Self::Existing(_) => Vec::new(),
        }
    }

    /// See [`Cluster::snapshots_of`](super::Cluster::snapshots_of).
    pub(crate) async fn snapshots_of(&self, volume: &str) -> Option<usize> {
        match self {
            Self::Embedded(embedded) => embedded.snapshots_of(volume).await,
            Self::Kind(_) | Self::Existing(_) => None,
        }
    }

    /// See [`Cluster::loop_devices`](super::Cluster::loop_devices).
    pub(crate) fn loop_devices(&self) -> u64 {
        match self {
            Self::Embedded(embedded) => embedded.loop_devices(),
            Self::Kind(_) | Self::Existing(_) => 0,
        }
    }

    /// See [`Cluster::api_requests`](super::Cluster::api_requests).
    pub(crate) async fn api_requests(&self, client: &Client) -> Option<u64> {
        match self {
            Self::Embedded(embedded) => embedded.api_requests(client).await,
            Self::Kind(_) => api_requests::served(client).await,
            Self::Existing(_) => None,
        }
    }

    /// See [`Cluster::controllers`](super::Cluster::controllers).
    pub(crate) fn controllers(&self) -> Vec<u32> {
        match self {
            Self::Embedded(embedded) => embedded.controllers(),
            Self::Kind(_) | Self::Existing(_) => Vec::new(),
        }
    }

    /// See [`Cluster::logs_mentioning`](super::Cluster::logs_mentioning).
    pub(crate) async fn logs_mentioning(&self, client: &Client, names: &[String]) -> Vec<Log> {
        match self {
            Self::Embedded(embedded) => embedded.logs_mentioning(names).await,
            Self::Kind(_) => component_logs::by_pods(client, COMPONENTS.namespace, names).await,
            Self::Existing(Some(installation)) => {
                let mut logs = component_logs::by_pods(client, COMPONENTS.namespace, names).await;
                logs.extend(installation.moved());
                logs
            }
            Self::Existing(None) => Vec::new(),
        }
    }

    /// See [`Cluster::down`](super::Cluster::down).
    pub(crate) async fn down(self, client: &Client, failed: bool) {
        match self {
            Self::Embedded(embedded) => embedded.down().await,
            Self::Kind(kind) => kind.end(client, failed).await,
            Self::Existing(Some(installation)) => installation.end(failed).await,
            Self::Existing(None) => {}
        }
    }
}
