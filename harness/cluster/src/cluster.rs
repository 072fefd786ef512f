//! A running cluster: the data that every kind of cluster has, and a backend for the operations that differ.
//!
//! Cases and reports use the data alone, and so are independent of the kind of cluster. A new kind is one more
//! implementation of [`Backend`], and a function that fills in the data.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use claimcheck_csi::tap::{Barrier, FaultRule, KnownSecrets, TapRecord};
use claimcheck_model::{
    ApiWrite, ComponentEnd, ComponentFault, Denial, DeniedObject, Leak, Log, Rule, Stamp, Unserved,
};
use kube::Client;
use tokio::sync::mpsc;

use super::{
    additional_driver::{AdditionalDriver, DeployError, DriverLease},
    backend::{Backend, NoFaults},
    capabilities::DriverCapabilities,
    disruption::{DisruptError, Disruption, Victim},
    faults::FaultSpec,
    log_search::LogSearch,
    observer::Observer,
    own_node::{OwnNode, OwnNodeError},
    properties::{ClusterCapabilities, Properties},
    reachable_nodes::ReachableNodes,
};

/// A running cluster. Dropping it removes what was created for it, unless that is kept.
pub struct Cluster {
    pub(super) client: Client,
    pub(super) observer: Observer,
    pub(super) driver: DriverUnderTest,
    pub(super) properties: Properties,
    pub(super) known_secrets: KnownSecrets,
    pub(super) streams: Streams,
    /// When it became ready.
    pub(super) started: Instant,
    /// None if claimcheck has not started it.
    pub(super) api_server: Option<ApiServer>,
    pub(super) backend: Box<dyn Backend>,
}

/// The driver under test, and the nodes that have it.
pub(super) struct DriverUnderTest {
    pub name: String,
    pub class_parameters: BTreeMap<String, String>,
    pub class_mount_options: Vec<String>,
    pub declared: DriverCapabilities,
    pub reachable_nodes: ReachableNodes,
    pub nodes_without_driver: Vec<String>,
}

/// The reports of components that claimcheck starts as processes; none on real nodes.
#[derive(Default)]
pub(super) struct Streams {
    pub ends: Option<mpsc::UnboundedReceiver<ComponentEnd>>,
    pub records: Option<(mpsc::UnboundedReceiver<TapRecord>, Barrier)>,
    pub writes: Option<mpsc::UnboundedReceiver<ApiWrite>>,
}

/// An API server that claimcheck has started.
#[derive(Clone, Debug)]
pub struct ApiServer {
    /// Its address.
    pub url: String,
    /// When it became ready.
    pub ready: Stamp,
}

impl Cluster {
    /// Whether kubelets run its nodes; otherwise they are virtual.
    pub fn has_real_nodes(&self) -> bool {
        self.properties.real_nodes
    }

    /// The secrets that are passed to the driver, as far as they are known here.
    pub fn known_secrets(&self) -> KnownSecrets {
        self.known_secrets.clone()
    }

    /// Searches the output of drivers and sidecars for the secrets that no log may contain, and for tokens of service
    /// accounts: that of all processes, or of the pods of driver and sidecars.
    pub async fn search_logs(&self) -> LogSearch {
        self.backend.search_logs(&self.client, self.driver_name(), &self.known_secrets).await
    }

    /// The faults of built-in components so far, as far as their logs can be read; on virtual nodes without crash loops,
    /// which [their exits](Self::take_ends) show.
    pub async fn component_faults(&self) -> Vec<ComponentFault> {
        self.backend.component_faults(&self.client, self.started.elapsed()).await
    }

    /// What RBAC did not permit programs so far: the rules that are missing in a vendor's roles. Known on virtual nodes only.
    pub async fn denials(&self) -> Vec<Denial> {
        self.backend.denials(&self.client).await
    }

    /// The objects that denied requests were about, with the embedded API server.
    pub fn denied_objects(&self) -> Vec<DeniedObject> {
        self.backend.denied_objects()
    }

    /// Whether it exists after the run, with what the run leaves there.
    pub fn outlives_run(&self) -> bool {
        self.backend.outlives_run()
    }

    /// What programs requested so far in versions that the API server does not serve. Known on virtual nodes only.
    pub async fn unserved(&self) -> Vec<Unserved> {
        self.backend.unserved(&self.client).await
    }

    /// Its abilities in addition to the API.
    pub fn cluster_capabilities(&self) -> ClusterCapabilities {
        self.properties.capabilities
    }

    /// The calls that may be repeated although the first one succeeded.
    pub fn repeatable_calls(&self) -> &'static [Rule] {
        self.properties.repeatable_calls
    }

    /// The timeout for a step of a case. Far above what any step takes: latencies are judged by thresholds (SLOs).
    pub fn step_timeout(&self) -> Duration {
        self.properties.step_timeout
    }

    /// How long a deletion may take before the object counts as leaked.
    pub fn settling_time(&self) -> Duration {
        self.properties.settling_time
    }

    /// A client with all available permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Everything that can be waited for.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// The driver's name.
    pub fn driver_name(&self) -> &str {
        &self.driver.name
    }

    /// The parameters of the driver's classes, in addition to those of a case.
    pub fn class_parameters(&self) -> BTreeMap<String, String> {
        self.driver.class_parameters.clone()
    }

    /// The mount options of the driver's classes.
    pub fn class_mount_options(&self) -> &[String] {
        &self.driver.class_mount_options
    }

    /// The driver's capabilities, as far as available.
    pub fn declared(&self) -> &DriverCapabilities {
        &self.driver.declared
    }

    /// The nodes that pods with a volume of the driver can run on.
    pub fn reachable_nodes(&self) -> &ReachableNodes {
        &self.driver.reachable_nodes
    }

    /// Their names.
    pub fn nodes(&self) -> Vec<String> {
        self.driver.reachable_nodes.nodes.clone()
    }

    /// The schedulable nodes without the driver: a pod with an unprovisioned volume could be scheduled there.
    pub fn nodes_without_driver(&self) -> &[String] {
        &self.driver.nodes_without_driver
    }

    /// The API server, if claimcheck has started it.
    pub fn api_server(&self) -> Option<&ApiServer> {
        self.api_server.as_ref()
    }

    /// Unexpected exits of components; can be taken once, if claimcheck starts them.
    pub fn take_ends(&mut self) -> Option<mpsc::UnboundedReceiver<ComponentEnd>> {
        self.streams.ends.take()
    }

    /// The tap's records, and what waits for those of all processes; can be taken once, if a tap exists.
    pub fn take_records(&mut self) -> Option<(mpsc::UnboundedReceiver<TapRecord>, Barrier)> {
        self.streams.records.take()
    }

    /// The API writes of the built-in components, if they report them; can be taken once.
    pub fn take_writes(&mut self) -> Option<mpsc::UnboundedReceiver<ApiWrite>> {
        self.streams.writes.take()
    }

    /// Activates these faults for the whole run, replacing all others.
    ///
    /// # Errors
    /// This kind of cluster does not support them.
    pub async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        self.backend.set_faults(specs).await
    }

    /// Whether faults are injected into requests to the API server.
    pub fn api_faults_active(&self) -> bool {
        self.backend.api_faults_active()
    }

    /// Replaces the call faults of `case` with these; they precede those of the run, and are independent of
    /// those of others. Without a tap this has no effect: cases that require it do not run there.
    pub async fn set_call_faults(&self, case: &str, rules: Vec<FaultRule>) {
        self.backend.set_call_faults(case, rules).await;
    }

    /// Makes the driver on a node accept its next call of `method` for a volume without responding, until the driver is
    /// killed. Callers that wait for the call to start must remove the faults of `case` before they kill the driver.
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
        self.backend.hold_call(case, node, method, volume).await
    }

    /// Disrupts a component; returns once that is done.
    ///
    /// # Errors
    /// It does not exist, or does not support this disruption.
    pub async fn disrupt(&self, victim: &Victim, disruption: Disruption) -> Result<(), DisruptError> {
        self.backend.disrupt(&self.client, victim, disruption).await
    }

    /// Runs a script of `sh` as root in the mounts of a node.
    ///
    /// # Errors
    /// It fails, or this kind of cluster permits none.
    pub async fn on_node(&self, node: &str, script: &str) -> Result<(), DisruptError> {
        self.backend.on_node(node, script).await
    }

    /// Deploys an additional driver, unless it exists already, and waits for its use: the caller has it
    /// until the returned value is dropped.
    ///
    /// # Errors
    /// It cannot be started, or is not registered on all nodes in time.
    pub async fn deploy(&self, driver: &AdditionalDriver) -> Result<DriverLease, DeployError> {
        self.backend.deploy(&self.client, &self.observer, driver).await
    }

    /// Waits for a node with the driver that no other case uses, where such nodes
    /// [can be added](ClusterCapabilities::own_nodes). It is cordoned: pods must tolerate that.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn own_node(&self) -> Result<OwnNode, OwnNodeError> {
        self.backend.own_node(&self.client, &self.observer, self.driver_name()).await
    }

    /// The number of additional drivers that are to be in use at a time, so that they do not slow down the cases.
    pub fn drivers_at_a_time(&self) -> usize {
        self.backend.drivers_at_a_time()
    }

    /// Removes an additional driver that is no longer in use, where drivers that do nothing cost much; otherwise it ends
    /// with the cluster.
    pub async fn end_driver(&self, driver: &'static str) {
        self.backend.end_driver(&self.client, driver).await;
    }

    /// Leaks on the host of the objects in `of` (volume names and handles, pod uids); all of this cluster if `of` is
    /// empty. Real nodes are not inspected: leaks there show in API objects.
    pub fn host_leaks(&self, of: &[String]) -> Vec<Leak> {
        self.backend.host_leaks(of)
    }

    /// Volumes that the drivers still have, if they can be queried.
    pub async fn backend_leaks(&self) -> Vec<Leak> {
        self.backend.volumes_left().await
    }

    /// The number of snapshots of a volume, by its handle, that the driver lists; none if it does not list them, or is not
    /// accessible from here.
    pub async fn snapshots_of(&self, volume: &str) -> Option<usize> {
        self.backend.snapshots_of(volume).await
    }

    /// The number of loop devices of the driver; 0 on real nodes.
    pub fn loop_devices(&self) -> u64 {
        self.backend.loop_devices()
    }

    /// The number of requests that the API server has served so far; none on existing clusters, which may have several
    /// API servers. A real one is asked for its metrics, which are large.
    pub async fn api_requests(&self) -> Option<u64> {
        self.backend.api_requests(&self.client).await
    }

    /// The ids of the processes of storage controllers and sidecars; none if they run in pods.
    pub fn controllers(&self) -> Vec<u32> {
        self.backend.controllers()
    }

    /// The log lines of the built-in components about some objects: those that contain one of their names.
    pub async fn logs_mentioning(&self, names: &[String]) -> Vec<Log> {
        self.backend.logs_mentioning(&self.client, names).await
    }

    /// Takes down everything that was started, in order; if something `failed`, after collecting the logs of real
    /// nodes.
    pub async fn down(self, failed: bool) {
        let Self { client, observer, backend, .. } = self;
        drop(observer);
        backend.down(&client, failed).await;
    }
}
