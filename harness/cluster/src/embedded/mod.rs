//! The embedded cluster: an API server, the built-in one in this process or upstream's, and components as processes
//! around it.

pub(crate) mod accounts;
mod additional_driver;
mod common;
pub(crate) mod control_plane;
mod controller_manager;
pub(crate) mod controllers;
mod denials;
mod error;
mod init;
mod last_lines;
mod leaks;
mod node;
mod node_driver;
mod options;
pub(crate) mod orphaned_loop_devices;
mod own_nodes;
mod reboot;
mod remaining_controllers;
pub(crate) mod sidecars;
pub(crate) mod stock;
pub(crate) mod stock_controllers;
pub(crate) mod supervisor;
mod unserved;
mod up;
mod users;

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use claimcheck_csi::{
    Driver as DriverClient,
    tap::{FaultControl, FaultRule, KnownSecrets},
};
use claimcheck_driver::host::LoopHolder;
use claimcheck_informer::Kind;
use claimcheck_model::{ComponentFault, Denial, DeniedObject, Leak, Log, ObjectKey, Unserved};
use futures::future::join_all;
use kube::Client;
use tokio::sync::Mutex;

use self::{
    additional_driver::RunningDriver, common::Common, control_plane::ControlPlane, controllers::Controllers,
    node::Node, own_nodes::OwnNodes, sidecars::Sidecars, supervisor::Supervised,
};
pub use self::{
    error::UpError,
    options::{DriverPolicy, Instrumentation, Options},
};
use crate::{
    additional_driver::{AdditionalDriver, DeployError, DriverLease},
    backend::{Backend, NoFaults},
    call_faults::CallFaults,
    component_faults, component_logs,
    disruption::{DisruptError, Disruption, Victim},
    faults::{self, FaultSpec},
    log_search::LogSearch,
    observer::{Check, Observer, Trigger, WaitError},
    own_node::{OwnNode, OwnNodeError},
    properties::Properties,
    reachable_nodes,
};
use claimcheck_vendor::sidecars::Refresh;

/// The timeout until an additional driver is registered on all nodes, or the driver on an additional node.
const REGISTERED: Duration = Duration::from_secs(30);

/// The processes of an embedded cluster. Dropping it kills them.
pub(crate) struct Embedded {
    control_plane: ControlPlane,
    nodes: Vec<Arc<Node>>,
    own_nodes: OwnNodes,
    controllers: Controllers,
    /// The stock programs of `--sidecar`.
    sidecars: Sidecars,
    /// A client of its controller's socket.
    driver: DriverClient,
    driver_controller: Option<Supervised>,
    faults: FaultControl,
    call_faults: Mutex<CallFaults>,
    /// The timeout for a step of a case, if given.
    step_timeout: Option<Duration>,
    api_faults_active: AtomicBool,
    common: Common,
    additional_drivers: Mutex<BTreeMap<&'static str, RunningDriver>>,
    /// The tokens of projected volumes.
    _refreshed: Vec<Refresh>,
    /// Last, so that it outlives the drivers.
    _loop_holder: LoopHolder,
}

impl Embedded {
    /// The names of the nodes that all cases use.
    fn nodes(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.paths.name.clone()).collect()
    }

    /// All nodes, with those that single cases use.
    fn all_nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.iter().chain(&*self.own_nodes.started()).cloned().collect()
    }

    async fn disrupt_component(&self, victim: &Victim, disruption: Disruption) -> Result<(), DisruptError> {
        let nodes = self.all_nodes();
        let find = |name: &str| nodes.iter().find(|node| node.paths.name == name);
        let component = match victim {
            Victim::Controllers => {
                tokio::join!(
                    self.controllers.disrupt(disruption),
                    self.sidecars.disrupt_controllers(disruption)
                );
                return Ok(());
            }
            Victim::NodeAgent(name) => find(name).map(|node| &node.agent),
            Victim::Driver(name) => find(name).map(|node| &node.driver.process),
            Victim::Registration { node, driver } => {
                let cannot = || DisruptError::Cannot { victim: victim.clone(), disruption };
                let script = disruption.of_registration(driver).ok_or_else(cannot)?;
                return self.on_node(node, &script).await;
            }
            Victim::Node(name) => {
                let node = find(name).ok_or_else(|| DisruptError::Absent(victim.clone()))?;
                return match disruption {
                    Disruption::Kill => node.reboot(&self.common).await,
                    _ => Err(DisruptError::Cannot { victim: victim.clone(), disruption }),
                };
            }
        };
        match component {
            Some(component) => {
                component.disrupt(disruption).await;
                Ok(())
            }
            None => Err(DisruptError::Absent(victim.clone())),
        }
    }

    /// The secrets in calls of stock programs.
    pub(crate) fn known_secrets(&self) -> KnownSecrets {
        self.common.known_secrets.clone()
    }

    /// All supervised processes, with those of these nodes.
    fn processes<'a>(
        &'a self,
        nodes: &'a [Arc<Node>],
        additional: &'a BTreeMap<&'static str, RunningDriver>,
    ) -> impl Iterator<Item = &'a Supervised> {
        let others = additional.values().flat_map(|additional| {
            [&*additional.controllers]
                .into_iter()
                .chain(additional.on_nodes.iter().map(|driver| &driver.process))
        });
        let of_nodes = nodes.iter().flat_map(|node| [&node.agent, &node.driver.process]);
        let processes = self.controllers.processes().iter().chain(of_nodes).chain(&self.driver_controller);
        processes.chain(self.sidecars.processes()).chain(others)
    }

    /// Returns once a driver is registered on these nodes.
    async fn registered(
        &self,
        observer: &Observer,
        driver: &str,
        names: &[String],
        timeout: Duration,
    ) -> Result<(), WaitError> {
        let on: Vec<Trigger> = names
            .iter()
            .flat_map(|name| {
                [Kind::CsiNode, Kind::Node].map(|kind| Trigger::Object(kind, ObjectKey::cluster(name)))
            })
            .collect();
        let what = format!("driver {driver} to be registered on {}", names.join(", "));
        observer
            .until(&what, timeout, &on, |world| {
                let registered = |name: &String| {
                    let node = world.csi_nodes.get(&ObjectKey::cluster(name));
                    node.is_some_and(|node| {
                        node.spec.drivers.iter().any(|registered| registered.name == driver)
                    }) && reachable_nodes::is_labelled(world, driver, name)
                };
                match names.iter().find(|name| !registered(name)) {
                    None => Check::Yes(()),
                    Some(missing) => Check::NotYet(format!("not on {missing}")),
                }
            })
            .await
    }
}

#[async_trait]
impl Backend for Embedded {
    fn properties(&self) -> Properties {
        let (stock, sidecars) =
            (self.control_plane.controllers_are_stock(), self.sidecars.replace_controllers());
        let usual = Properties::embedded(stock, sidecars);
        Properties { step_timeout: self.step_timeout.unwrap_or(usual.step_timeout), ..usual }
    }

    fn outlives_run(&self) -> bool {
        false
    }

    /// Activates these faults for the whole run, replacing all others.
    ///
    /// # Errors
    /// Faults cannot be injected into an upstream API server.
    async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        let (requests, calls) = faults::split(specs);
        self.api_faults_active.store(!requests.is_empty(), Ordering::Relaxed);
        match self.control_plane.faults() {
            Some(faults) => faults.set(requests),
            None if requests.is_empty() => {}
            None => return Err(NoFaults::NotHere { of: "requests to the API server" }),
        }
        let mut call_faults = self.call_faults.lock().await;
        *call_faults = CallFaults::from_rules(calls.rules);
        self.faults.set(call_faults.plan()).await;
        Ok(())
    }

    /// Whether faults are injected into requests to the API server.
    fn api_faults_active(&self) -> bool {
        self.api_faults_active.load(Ordering::Relaxed)
    }

    /// Replaces the call faults of `case` with these; they precede those of the run, and are independent of
    /// those of others.
    async fn set_call_faults(&self, case: &str, rules: Vec<FaultRule>) {
        // Held until the plan is active, so that no older one overtakes it.
        let mut call_faults = self.call_faults.lock().await;
        call_faults.set_case(case, rules);
        self.faults.set(call_faults.plan()).await;
    }

    /// Calls are recorded by the caller: a paused driver accepts one and cannot respond.
    async fn hold_call(
        &self,
        _case: &str,
        node: &str,
        _method: &str,
        _volume: &str,
    ) -> Result<(), DisruptError> {
        self.disrupt_component(&Victim::Driver(node.to_owned()), Disruption::Pause).await
    }

    async fn disrupt(
        &self,
        _client: &Client,
        victim: &Victim,
        disruption: Disruption,
    ) -> Result<(), DisruptError> {
        self.disrupt_component(victim, disruption).await
    }

    async fn on_node(&self, node: &str, script: &str) -> Result<(), DisruptError> {
        let found = self.all_nodes().into_iter().find(|of| of.paths.name == node);
        let found = found.ok_or_else(|| DisruptError::Absent(Victim::Node(node.to_owned())))?;
        found.run(&self.common, script).await
    }

    /// Leaks on the host of the objects in `of` (volume names and handles, pod uids): mounts of the
    /// nodes and loop devices. All of this cluster if `of` is empty.
    fn host_leaks(&self, of: &[String]) -> Vec<Leak> {
        let nodes = self.all_nodes();
        let processes = nodes.iter().filter_map(|node| node.driver.process.pid().or(node.agent.pid()));
        let mut left: Vec<Leak> = processes.flat_map(|pid| leaks::mounts(pid, of)).collect();
        left.extend(leaks::loop_devices(&self.common.plugin.state_dir, of));
        left
    }

    /// The number of loop devices of the cluster's driver.
    fn loop_devices(&self) -> u64 {
        leaks::loop_devices(&self.common.plugin.state_dir, &[]).len() as u64
    }

    /// The number of requests that the API server has served.
    async fn api_requests(&self, client: &Client) -> Option<u64> {
        self.control_plane.requests(client).await
    }

    /// What RBAC did not permit programs so far, with their roles; without the built-in components, see
    /// [`component_faults`](Self::component_faults).
    async fn denials(&self, client: &Client) -> Vec<Denial> {
        let users = self.controllers.builtin_users();
        let denials = self.control_plane.denials().into_iter().filter(|denial| !users.sent(denial));
        denials::with_roles(client, denials.collect()).await
    }

    /// The faults of built-in components so far, except for crash loops, which their exits show.
    async fn component_faults(&self, _client: &Client, _since: Duration) -> Vec<ComponentFault> {
        let users = self.controllers.builtin_users();
        let denied = self.control_plane.denials().into_iter().filter(|denial| users.sent(denial));
        let mut faults: Vec<_> = denied.map(ComponentFault::Denied).collect();
        let is_audited = self.control_plane.audits_builtin_users();
        let (nodes, additional) = (self.all_nodes(), self.additional_drivers.lock().await);
        let builtin = self.processes(&nodes, &additional).filter(|process| process.is_builtin());
        let mut logs: Vec<(String, String)> =
            builtin.map(|process| (process.name().to_owned(), process.output())).collect();
        drop(additional);
        logs.extend(nodes.iter().map(|node| node.runtime_log()));
        for (component, log) in logs {
            faults.extend(component_faults::panics(&component, &log));
            if !is_audited {
                faults.extend(component_faults::denials(&log));
            }
        }
        faults.extend(component_faults::panics_of_this_process());
        faults
    }

    /// The objects that denied requests were about.
    fn denied_objects(&self) -> Vec<DeniedObject> {
        self.control_plane.denied_objects()
    }

    /// What programs requested in versions that are not served, with those that are.
    async fn unserved(&self, client: &Client) -> Vec<Unserved> {
        unserved::with_served(client, self.control_plane.unserved()).await
    }

    /// The ids of the processes of controllers: of the built-in ones, of the stock programs that replace them, and of
    /// sidecars.
    fn controllers(&self) -> Vec<u32> {
        let processes = self.controllers.processes().iter().chain(self.sidecars.processes());
        processes.filter_map(Supervised::pid).collect()
    }

    /// Volumes that the drivers still have, if they can list them.
    async fn volumes_left(&self) -> Vec<Leak> {
        let mut leaks = leaks::volumes_of(&self.driver).await;
        for additional in self.additional_drivers.lock().await.values() {
            leaks.extend(leaks::volumes_of(&additional.client).await);
            leaks.extend(leaks::loop_devices(&additional.plugin.state_dir, &[]));
        }
        leaks
    }

    /// The number of snapshots of a volume that the driver lists.
    async fn snapshots_of(&self, volume: &str) -> Option<usize> {
        leaks::snapshots_of(&self.driver, volume).await
    }

    /// The components' log lines about some objects: those that contain one of their names.
    async fn logs_mentioning(&self, _client: &Client, names: &[String]) -> Vec<Log> {
        let (nodes, additional) = (self.all_nodes(), self.additional_drivers.lock().await);
        let processes = self.processes(&nodes, &additional);
        processes.filter_map(|process| Log::about(process.name(), &process.output(), names)).collect()
    }

    /// Searches the output of all processes for secrets and tokens.
    async fn search_logs(&self, _client: &Client, _driver: &str, _known: &KnownSecrets) -> LogSearch {
        let known = &self.common.known_secrets;
        let mut search = LogSearch { found: self.common.disclosures.found(), ..LogSearch::default() };
        let (nodes, additional) = (self.all_nodes(), self.additional_drivers.lock().await);
        for process in self.processes(&nodes, &additional) {
            let log = process.log().file_name().unwrap_or_default().display().to_string();
            match fs::read(process.log()) {
                Ok(bytes) => search.search(log, &String::from_utf8_lossy(&bytes), known),
                Err(error) => search.unread.push(format!("{log} cannot be read ({error})")),
            }
        }
        search
    }

    /// Deploys an additional driver, unless it exists already, and waits for its use: the
    /// caller has it until the returned value is dropped.
    ///
    /// # Errors
    /// It cannot be started, or is not registered on all nodes in time.
    async fn deploy(
        &self,
        client: &Client,
        observer: &Observer,
        driver: &AdditionalDriver,
    ) -> Result<DriverLease, DeployError> {
        let lease = {
            let mut deployed = self.additional_drivers.lock().await;
            if !deployed.contains_key(driver.name) {
                let additional = RunningDriver::start(&self.common, &self.nodes, client, driver).await?;
                self.registered(observer, driver.name, &self.nodes(), REGISTERED).await?;
                deployed.insert(driver.name, additional);
            }
            deployed.get(driver.name).map(RunningDriver::lease).expect("it has just been put there")
        };
        Ok(lease.await)
    }

    async fn own_node(
        &self,
        client: &Client,
        observer: &Observer,
        driver: &str,
    ) -> Result<OwnNode, OwnNodeError> {
        self.lease_node(client, observer, driver).await
    }

    /// Takes the cluster down in order: agents first, so that no driver is called during its shutdown.
    async fn down(self: Box<Self>, _client: &Client, _failed: bool) {
        let nodes = self.all_nodes();
        let additional = self.additional_drivers.into_inner();
        let others = additional.values().map(|additional| &additional.controllers);
        let others = join_all(others.map(|process| process.disrupt(Disruption::Stop)));
        let sidecars = self.sidecars.disrupt_controllers(Disruption::Stop);
        tokio::join!(others, self.controllers.disrupt(Disruption::Stop), sidecars);
        join_all(nodes.iter().map(|node| node.agent.disrupt(Disruption::Stop))).await;
        // A registrar that exits while its agent runs would unregister the driver.
        self.sidecars.stop().await;
        let others = additional.values().flat_map(|additional| &additional.on_nodes);
        let drivers = others.chain(nodes.iter().map(|node| &node.driver));
        let drivers: Vec<&Supervised> =
            drivers.map(|driver| &driver.process).chain(&self.driver_controller).collect();
        join_all(drivers.iter().map(|process| process.disrupt(Disruption::Stop))).await;
        // Lines were written without the secrets that were known then; one may consist of several lines, or be known later.
        let logs = self.sidecars.processes().chain(drivers).map(Supervised::log);
        component_logs::redact_logs(logs, &self.common.known_secrets);
        self.control_plane.shutdown().await;
    }
}
