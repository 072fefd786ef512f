//! The embedded cluster: an API server, the built-in one in this process or upstream's, and components as processes
//! around it.

pub(crate) mod accounts;
pub(crate) mod control_plane;
mod controller_manager;
pub(crate) mod controllers;
mod denials;
mod last_lines;
mod leaks;
pub(crate) mod node;
pub(crate) mod node_driver;
mod options;
pub(crate) mod orphaned_loop_devices;
pub(crate) mod stock;
pub(crate) mod stock_controllers;
pub(crate) mod supervisor;
mod unserved;
mod up;

use std::{
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

use claimcheck_csi::{
    Driver as DriverClient,
    tap::{FaultControl, FaultRule, KnownSecrets},
};
use claimcheck_driver::host::LoopHolder;
use claimcheck_model::{ComponentFault, Denial, DeniedObject, Leak, Log, Unserved};
use futures::future::join_all;
use kube::Client;
use tokio::sync::Mutex;

pub(super) use self::up::writing;
use self::{
    control_plane::ControlPlane,
    controllers::Controllers,
    node::{Common, Node},
    supervisor::Supervised,
};
pub use self::{
    options::{DriverPolicy, Instrumentation, Options},
    up::UpError,
};
use crate::{
    DisruptError, Disruption, NoFaults, Victim,
    additional_driver::{AdditionalDriver, DeployError, DriverLease, RunningDriver},
    call_faults::CallFaults,
    component_faults, component_logs,
    faults::{self, FaultSpec},
    log_search::LogSearch,
    observer::Observer,
    sidecars::{Refresh, Sidecars},
};

/// The processes of an embedded cluster. Dropping it kills them.
pub(crate) struct Embedded {
    control_plane: ControlPlane,
    nodes: Vec<Node>,
    controllers: Controllers,
    /// The stock programs of `--sidecar`.
    sidecars: Sidecars,
    /// A client of its controller's socket.
    driver: DriverClient,
    driver_controller: Option<Supervised>,
    faults: FaultControl,
    call_faults: Mutex<CallFaults>,
    api_faults_active: AtomicBool,
    common: Common,
    additional_drivers: Mutex<BTreeMap<&'static str, RunningDriver>>,
    /// The tokens of projected volumes.
    _refreshed: Vec<Refresh>,
    /// Last, so that it outlives the drivers.
    _loop_holder: LoopHolder,
}

impl Embedded {
    /// The names of all nodes.
    fn nodes(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.paths.name.clone()).collect()
    }

    /// Whether upstream's controllers bind and attach.
    pub(crate) fn controllers_are_stock(&self) -> bool {
        self.control_plane.controllers_are_stock()
    }

    /// The secrets in calls of stock programs.
    pub(crate) fn known_secrets(&self) -> KnownSecrets {
        self.common.known_secrets.clone()
    }

    /// Whether stock sidecars call the driver's controller.
    pub(crate) fn sidecars_are_stock(&self) -> bool {
        self.sidecars.replace_controllers()
    }

    /// Activates these faults for the whole run, replacing all others.
    ///
    /// # Errors
    /// Faults cannot be injected into an upstream API server.
    pub async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        let (requests, calls) = faults::split(specs);
        self.api_faults_active.store(!requests.is_empty(), Ordering::Relaxed);
        match self.control_plane.faults() {
            Some(faults) => faults.set(requests),
            None if requests.is_empty() => {}
            None => return Err(NoFaults::NotHere { of: "requests to the API server" }),
        }
        let mut call_faults = self.call_faults.lock().await;
        *call_faults = CallFaults::of_run(calls.rules);
        self.faults.set(call_faults.plan()).await;
        Ok(())
    }

    /// Whether faults are injected into requests to the API server.
    pub fn api_faults_active(&self) -> bool {
        self.api_faults_active.load(Ordering::Relaxed)
    }

    /// Replaces the call faults of `case` with these; they precede those of the run, and are independent of
    /// those of others.
    pub async fn set_call_faults(&self, case: &str, rules: Vec<FaultRule>) {
        // Held until the plan is active, so that no older one overtakes it.
        let mut call_faults = self.call_faults.lock().await;
        call_faults.set_case(case, rules);
        self.faults.set(call_faults.plan()).await;
    }

    /// Disrupts a component; returns once that is done.
    ///
    /// # Errors
    /// The node does not exist.
    pub async fn disrupt(&self, victim: &Victim, disruption: Disruption) -> Result<(), DisruptError> {
        let find = |name: &str| self.nodes.iter().find(|node| node.paths.name == name);
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
        };
        match component {
            Some(component) => {
                component.disrupt(disruption).await;
                Ok(())
            }
            None => Err(DisruptError::Absent(victim.clone())),
        }
    }

    /// Leaks on the host of the objects in `of` (volume names and handles, pod uids): mounts of the
    /// nodes and loop devices. All of this cluster if `of` is empty.
    pub fn host_leaks(&self, of: &[String]) -> Vec<Leak> {
        let processes = self.nodes.iter().filter_map(|node| node.driver.process.pid().or(node.agent.pid()));
        let mut left: Vec<Leak> = processes.flat_map(|pid| leaks::mounts(pid, of)).collect();
        left.extend(leaks::loop_devices(&self.common.plugin.state_dir, of));
        left
    }

    /// The number of loop devices of the cluster's driver.
    pub fn loop_devices(&self) -> u64 {
        leaks::loop_devices(&self.common.plugin.state_dir, &[]).len() as u64
    }

    /// The number of requests that the API server has served.
    pub async fn api_requests(&self, client: &Client) -> Option<u64> {
        self.control_plane.requests(client).await
    }

    /// What RBAC did not permit programs so far, with their roles; without the built-in components, see
    /// [`component_faults`](Self::component_faults).
    pub async fn denials(&self, client: &Client) -> Vec<Denial> {
        let users = self.controllers.builtin_users();
        let denials = self.control_plane.denials().into_iter().filter(|denial| !users.sent(denial));
        denials::with_roles(client, denials.collect()).await
    }

    /// The faults of built-in components so far, except for crash loops, which their exits show.
    pub async fn component_faults(&self) -> Vec<ComponentFault> {
        let users = self.controllers.builtin_users();
        let denied = self.control_plane.denials().into_iter().filter(|denial| users.sent(denial));
        let mut faults: Vec<_> = denied.map(ComponentFault::Denied).collect();
        let is_audited = self.control_plane.audits_builtin_users();
        let additional = self.additional_drivers.lock().await;
        let builtin = self.processes(&additional).filter(|process| process.is_builtin());
        let mut logs: Vec<(String, String)> =
            builtin.map(|process| (process.name().to_owned(), process.output())).collect();
        drop(additional);
        logs.extend(self.nodes.iter().map(Node::runtime_log));
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
    pub fn denied_objects(&self) -> Vec<DeniedObject> {
        self.control_plane.denied_objects()
    }

    /// What programs requested in versions that are not served, with those that are.
    pub async fn unserved(&self, client: &Client) -> Vec<Unserved> {
        unserved::with_served(client, self.control_plane.unserved()).await
    }

    /// The ids of the processes of controllers: of the built-in ones, of the stock programs that replace them, and of
    /// sidecars.
    pub fn controllers(&self) -> Vec<u32> {
        let processes = self.controllers.processes().iter().chain(self.sidecars.processes());
        processes.filter_map(Supervised::pid).collect()
    }

    /// Volumes that the drivers still have, if they can list them.
    pub async fn backend_leaks(&self) -> Vec<Leak> {
        let mut leaks = leaks::volumes_of(&self.driver).await;
        for additional in self.additional_drivers.lock().await.values() {
            leaks.extend(leaks::volumes_of(&additional.client).await);
            leaks.extend(leaks::loop_devices(&additional.plugin.state_dir, &[]));
        }
        leaks
    }

    /// The number of snapshots of a volume that the driver lists.
    pub async fn snapshots_of(&self, volume: &str) -> Option<usize> {
        leaks::snapshots_of(&self.driver, volume).await
    }

    /// The components' log lines about some objects: those that contain one of their names.
    pub async fn logs_mentioning(&self, names: &[String]) -> Vec<Log> {
        let additional = self.additional_drivers.lock().await;
        component_logs::by_processes(self.processes(&additional), names)
    }

    /// Searches the output of all processes for secrets and tokens.
    pub async fn search_logs(&self) -> LogSearch {
        let known = &self.common.known_secrets;
        let mut search = LogSearch { found: self.common.disclosures.found(), ..LogSearch::default() };
        let additional = self.additional_drivers.lock().await;
        for process in self.processes(&additional) {
            let log = process.log().file_name().unwrap_or_default().display().to_string();
            match fs::read(process.log()) {
                Ok(bytes) => search.search(log, &String::from_utf8_lossy(&bytes), known),
                Err(error) => search.unread.push(format!("{log} cannot be read ({error})")),
            }
        }
        search
    }

    /// All supervised processes.
    fn processes<'a>(
        &'a self,
        additional: &'a BTreeMap<&'static str, RunningDriver>,
    ) -> impl Iterator<Item = &'a Supervised> {
        let others = additional.values().flat_map(|additional| {
            [&*additional.controllers]
                .into_iter()
                .chain(additional.on_nodes.iter().map(|driver| &driver.process))
        });
        let of_nodes = self.nodes.iter().flat_map(|node| [&node.agent, &node.driver.process]);
        let processes = self.controllers.processes().iter().chain(of_nodes).chain(&self.driver_controller);
        processes.chain(self.sidecars.processes()).chain(others)
    }

    /// Deploys an additional driver, unless it exists already, and waits for exclusive use of it: the
    /// caller has it until the returned value is dropped.
    ///
    /// # Errors
    /// It cannot be started, or is not registered on all nodes in time.
    pub async fn deploy(
        &self,
        client: &Client,
        observer: &Observer,
        wanted: &AdditionalDriver,
    ) -> Result<DriverLease, DeployError> {
        let lease = {
            let mut deployed = self.additional_drivers.lock().await;
            if !deployed.contains_key(wanted.name) {
                let additional = RunningDriver::start(&self.common, &self.nodes, client, wanted).await?;
                self.registered(observer, wanted.name, up::REGISTERED).await?;
                deployed.insert(wanted.name, additional);
            }
            deployed.get(wanted.name).map(RunningDriver::lease).expect("it has just been put there")
        };
        Ok(lease.await)
    }

    /// Takes the cluster down in order: agents first, so that no driver is called during its shutdown.
    pub async fn down(self) {
        let additional = self.additional_drivers.into_inner();
        let others = additional.values().map(|additional| &additional.controllers);
        let others = join_all(others.map(|process| process.disrupt(Disruption::Stop)));
        let sidecars = self.sidecars.disrupt_controllers(Disruption::Stop);
        tokio::join!(others, self.controllers.disrupt(Disruption::Stop), sidecars);
        join_all(self.nodes.iter().map(|node| node.agent.disrupt(Disruption::Stop))).await;
        // A registrar that exits while its agent runs would unregister the driver.
        self.sidecars.stop().await;
        let others = additional.values().flat_map(|additional| &additional.on_nodes);
        let drivers = others.chain(self.nodes.iter().map(|node| &node.driver));
        let drivers: Vec<&Supervised> =
            drivers.map(|driver| &driver.process).chain(&self.driver_controller).collect();
        join_all(drivers.iter().map(|process| process.disrupt(Disruption::Stop))).await;
        // Lines were written without the secrets that were known then; one may consist of several lines, or be known later.
        let logs = self.sidecars.processes().chain(drivers).map(Supervised::log);
        component_logs::redact_logs(logs, &self.common.known_secrets);
        self.control_plane.shutdown().await;
    }
}
