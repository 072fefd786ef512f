//! The operations that differ between kinds of cluster.

use std::{io, path::PathBuf, time::Duration};

use async_trait::async_trait;
use claimcheck_csi::tap::{FaultRule, KnownSecrets};
use claimcheck_model::{ComponentFault, Denial, DeniedObject, Leak, Log, Unserved};
use kube::Client;

use crate::{
    additional_driver::{AdditionalDriver, DeployError, DriverLease},
    disruption::{DisruptError, Disruption, Victim},
    faults::FaultSpec,
    log_search::LogSearch,
    observer::Observer,
    own_node::{OwnNode, OwnNodeError},
    properties::Properties,
};

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

/// What runs behind the API of a cluster: one implementation per kind. The defaults are for clusters that cannot do it.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// The properties of a cluster with this backend.
    fn properties(&self) -> Properties;

    /// See [`Cluster::outlives_run`](crate::Cluster::outlives_run).
    fn outlives_run(&self) -> bool;

    /// See [`Cluster::search_logs`](crate::Cluster::search_logs).
    async fn search_logs(&self, client: &Client, driver: &str, known: &KnownSecrets) -> LogSearch;

    /// See [`Cluster::denials`](crate::Cluster::denials).
    async fn denials(&self, _client: &Client) -> Vec<Denial> {
        Vec::new()
    }

    /// See [`Cluster::component_faults`](crate::Cluster::component_faults): those within the last `since`, where older
    /// ones may be of other runs.
    async fn component_faults(&self, _client: &Client, _since: Duration) -> Vec<ComponentFault> {
        Vec::new()
    }

    /// See [`Cluster::denied_objects`](crate::Cluster::denied_objects).
    fn denied_objects(&self) -> Vec<DeniedObject> {
        Vec::new()
    }

    /// See [`Cluster::unserved`](crate::Cluster::unserved).
    async fn unserved(&self, _client: &Client) -> Vec<Unserved> {
        Vec::new()
    }

    /// See [`Cluster::set_faults`](crate::Cluster::set_faults).
    async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        match specs {
            [] => Ok(()),
            _ => Err(NoFaults::NotHere { of: "requests and calls" }),
        }
    }

    /// See [`Cluster::api_faults_active`](crate::Cluster::api_faults_active).
    fn api_faults_active(&self) -> bool {
        false
    }

    /// See [`Cluster::set_call_faults`](crate::Cluster::set_call_faults).
    async fn set_call_faults(&self, _case: &str, _rules: Vec<FaultRule>) {}

    /// See [`Cluster::hold_call`](crate::Cluster::hold_call). Cases that require a tap do not run on clusters without.
    async fn hold_call(
        &self,
        _case: &str,
        _node: &str,
        _method: &str,
        _volume: &str,
    ) -> Result<(), DisruptError> {
        Ok(())
    }

    /// See [`Cluster::disrupt`](crate::Cluster::disrupt).
    async fn disrupt(
        &self,
        _client: &Client,
        victim: &Victim,
        _disruption: Disruption,
    ) -> Result<(), DisruptError> {
        Err(DisruptError::Absent(victim.clone()))
    }

    /// See [`Cluster::on_node`](crate::Cluster::on_node).
    async fn on_node(&self, node: &str, _script: &str) -> Result<(), DisruptError> {
        Err(DisruptError::Absent(Victim::Node(node.to_owned())))
    }

    /// See [`Cluster::deploy`](crate::Cluster::deploy).
    async fn deploy(
        &self,
        _client: &Client,
        _observer: &Observer,
        _driver: &AdditionalDriver,
    ) -> Result<DriverLease, DeployError> {
        Err(DeployError::NotHere)
    }

    /// See [`Cluster::own_node`](crate::Cluster::own_node).
    async fn own_node(
        &self,
        _client: &Client,
        _observer: &Observer,
        _driver: &str,
    ) -> Result<OwnNode, OwnNodeError> {
        Err(OwnNodeError::NotHere)
    }

    /// See [`Cluster::drivers_at_a_time`](crate::Cluster::drivers_at_a_time).
    fn drivers_at_a_time(&self) -> usize {
        usize::MAX
    }

    /// See [`Cluster::end_driver`](crate::Cluster::end_driver).
    async fn end_driver(&self, _client: &Client, _driver: &'static str) {}

    /// See [`Cluster::host_leaks`](crate::Cluster::host_leaks).
    fn host_leaks(&self, _of: &[String]) -> Vec<Leak> {
        Vec::new()
    }

    /// See [`Cluster::backend_leaks`](crate::Cluster::backend_leaks).
    async fn volumes_left(&self) -> Vec<Leak> {
        Vec::new()
    }

    /// See [`Cluster::snapshots_of`](crate::Cluster::snapshots_of).
    async fn snapshots_of(&self, _volume: &str) -> Option<usize> {
        None
    }

    /// See [`Cluster::loop_devices`](crate::Cluster::loop_devices).
    fn loop_devices(&self) -> u64 {
        0
    }

    /// See [`Cluster::api_requests`](crate::Cluster::api_requests).
    async fn api_requests(&self, _client: &Client) -> Option<u64> {
        None
    }

    /// See [`Cluster::controllers`](crate::Cluster::controllers).
    fn controllers(&self) -> Vec<u32> {
        Vec::new()
    }

    /// See [`Cluster::logs_mentioning`](crate::Cluster::logs_mentioning).
    async fn logs_mentioning(&self, _client: &Client, _names: &[String]) -> Vec<Log> {
        Vec::new()
    }

    /// See [`Cluster::down`](crate::Cluster::down).
    async fn down(self: Box<Self>, _client: &Client, _failed: bool) {}
}
