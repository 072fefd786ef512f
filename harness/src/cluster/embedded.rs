//! The embedded cluster: an API server, ours in this process or a stock one, and components as processes
//! around it.

use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use claimcheck_csi::{
    Driver as DriverClient, Endpoint,
    tap::{self, FaultControl, FaultPlan, FaultRule, Tap, TapRecord},
    v1::{GetPluginInfoRequest, ListVolumesRequest},
};
use claimcheck_informer::Kind;
use claimcheck_model::{ApiWrite, Capability, ComponentEnd, Leak, LeakKind, Log, ObjectKey, Stamp};
use claimcheck_substrate::{STATE_DIR, SpawnError};
use futures::future::{join_all, select_all, try_join_all};
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        storage::v1::{CSIDriver, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Client, api::PostParams};
use serde_json::json;
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc};

use super::{
    Abilities, Declared, Disruption, NoFaults, Victim, capabilities,
    control_plane::{self, Api, ControlPlane, ControlPlaneError},
    controllers::Controllers,
    driver_command::DriverCommand,
    further::{DeployError, Further, FurtherDriver},
    leaks,
    node::{Common, Node},
    node_driver::Plugin,
    observer::{Observer, On, Seen, WaitError},
    reach::{self, Reach},
    said,
    supervisor::Supervised,
};
use crate::{
    client::client,
    faults::{self, FaultSpec},
    install::InstallError,
    metrics::Components,
};

/// How long the components may take until all nodes are ready.
const READY: Duration = Duration::from_secs(30);

/// A driver that ends this often before it has answered never will.
const GIVE_UP: u32 = 3;

/// How to bring up an embedded cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many virtual nodes.
    pub nodes: usize,
    /// Which driver.
    pub driver: DriverCommand,
    /// The driver's controller, where that is a process of its own.
    pub controller: Option<DriverCommand>,
    /// The parameters of the driver's classes.
    pub class_parameters: BTreeMap<String, String>,
    /// What its CSIDriver object says beside what the driver itself declares.
    pub policy: DriverPolicy,
    /// Which API server.
    pub api: Api,
    /// An existing directory for the components' logs and the API server's audit log.
    pub logs: PathBuf,
    /// Where the API server listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where people find the kubeconfig (mode 0600).
    pub kubeconfig: PathBuf,
    /// Whether components serve metrics, for [`Metrics::serve`](crate::metrics::Metrics::serve) to hand on.
    pub metrics: bool,
}

/// What a CSIDriver object says that no call to the driver tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverPolicy {
    /// Volumes can be part of a pod. The driver is then told of the pod, which is how it learns of the volume.
    pub inline: bool,
    /// Files of a volume are given the group of the pod.
    pub fs_group: bool,
    /// Free capacity is published and looked at when pods are scheduled.
    pub capacity: bool,
    /// Volumes are mounted with a SELinux context.
    pub se_linux: bool,
}

impl Default for DriverPolicy {
    fn default() -> Self {
        Self { inline: false, fs_group: true, capacity: false, se_linux: false }
    }
}

impl DriverPolicy {
    /// The object.
    fn object(self, name: &str, attach: bool) -> CSIDriver {
        let modes = if self.inline { vec!["Persistent", "Ephemeral"] } else { vec!["Persistent"] };
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "attachRequired": attach,
                "podInfoOnMount": self.inline,
                "fsGroupPolicy": if self.fs_group { "File" } else { "None" },
                "volumeLifecycleModes": modes,
                "storageCapacity": self.capacity,
                "seLinuxMount": self.se_linux,
            },
        }))
        .expect("a CSIDriver")
    }
}

/// Why an embedded cluster does not come up.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The API server cannot be started.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The tap's socket cannot be made.
    #[error(transparent)]
    Tap(#[from] claimcheck_csi::BindError),
    /// The API server refuses what a cluster starts with.
    #[error("the API server cannot be used")]
    Api(#[from] kube::Error),
    /// The API server's kubeconfig cannot be read.
    #[error("the API server's kubeconfig cannot be used")]
    Kubeconfig(#[from] crate::client::ClientError),
    /// A component cannot be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The controllers' rights cannot be installed.
    #[error(transparent)]
    Rights(#[from] InstallError),
    /// A node does not come up.
    #[error(transparent)]
    Node(Box<dyn std::error::Error + Send + Sync>),
    /// The driver does not answer.
    #[error("{component} {what}; it was started as\n  {command}\nthe end of its log:\n{log}")]
    Driver {
        /// Which of its processes: `driver node-1`.
        component: String,
        /// What it does instead.
        what: &'static str,
        /// The command line that ran, without secrets.
        command: String,
        /// The last lines that the driver wrote.
        log: String,
    },
    /// Two processes of one driver are of two drivers.
    #[error("--driver-controller calls itself {controller}, --driver {node}: both must be of one driver")]
    Names {
        /// What the controller says.
        controller: String,
        /// What the node's process says.
        node: String,
    },
    /// The nodes do not become ready.
    #[error(transparent)]
    NotReady(#[from] WaitError),
}

/// A running embedded cluster. Dropping it kills its processes.
pub struct Embedded {
    control_plane: ControlPlane,
    client: Client,
    observer: Observer,
    nodes: Vec<Node>,
    controllers: Controllers,
    /// At its controller's socket.
    driver: DriverClient,
    driver_controller: Option<Supervised>,
    driver_name: String,
    declared: Declared,
    reach: Reach,
    class_parameters: BTreeMap<String, String>,
    ends: Option<mpsc::UnboundedReceiver<ComponentEnd>>,
    records: Option<mpsc::UnboundedReceiver<TapRecord>>,
    faults: FaultControl,
    run_faults: Mutex<FaultPlan>,
    api_is_spoilt: AtomicBool,
    api_ready: Stamp,
    audit_log: PathBuf,
    common: Common,
    further: Mutex<BTreeMap<&'static str, Further>>,
}

impl Embedded {
    /// Everything.
    pub const ABILITIES: Abilities =
        Abilities { disrupt: true, agents: true, configure: true, further: true, tap: true, retracts: true };

    /// Brings a cluster up; returns when all nodes are ready and have the driver.
    ///
    /// # Errors
    /// [`UpError`] says which component is at fault and, where it wrote a log, what it said last.
    pub async fn up(options: &Options) -> Result<Self, UpError> {
        let audit_log = options.logs.join("api.ndjson");
        let control_plane = ControlPlane::start(control_plane::Options {
            api: &options.api,
            listen: options.listen,
            audit_log: audit_log.clone(),
            logs: &options.logs,
        })
        .await?;
        let api_ready = Stamp::now();
        let (tell_ends, ends) = mpsc::unbounded_channel();
        let common = common(options, &control_plane, tell_ends);
        if let Some(metrics) = &common.metrics {
            metrics.prepare().map_err(writing(Path::new(STATE_DIR)))?;
        }
        for kubeconfig in [&common.kubeconfig, &options.kubeconfig] {
            control_plane.write_kubeconfig(kubeconfig).map_err(writing(kubeconfig))?;
        }
        let state_dir = &common.plugin.state_dir;
        fs::create_dir_all(state_dir).map_err(writing(state_dir))?;
        let (records, faults) = tap::listen(&common.tap)?;
        let client = client(&control_plane.kubeconfig()).await?;
        Controllers::prepare(&control_plane, &client).await?;

        let names: Vec<String> = (1..=options.nodes.max(1)).map(|n| format!("node-{n}")).collect();
        let nodes = try_join_all(names.iter().map(|name| Node::start(&common, name)));
        let (nodes, observer) = tokio::join!(nodes, Observer::start(client.clone()));
        let nodes = nodes.map_err(|error| UpError::Node(Box::new(error)))?;
        let first = &nodes[0];
        let driver_controller = common
            .plugin
            .start_controller(&common, &first.paths, first.namespace.clone())
            .map_err(|error| UpError::Node(Box::new(error)))?;
        let controllers = Controllers::start(&common, first, &control_plane, &client).await?;
        let at = |socket| DriverClient::new(Endpoint::Unix(socket), Tap::none(), "harness");
        let on_node = at(common.plugin.socket(&first.paths));
        let driver = at(common.plugin.controller_socket(&first.paths));
        let driver_name = name_of(&on_node, &first.driver.process).await?;
        if let Some(process) = &driver_controller {
            let controller = name_of(&driver, process).await?;
            if controller != driver_name {
                return Err(UpError::Names { controller, node: driver_name });
            }
        }
        let declared = capabilities::declared(&driver, &on_node).await;
        let object = options.policy.object(&driver_name, declared.takes.attach);
        install(&client, &object, &options.class_parameters).await?;
        let mut cluster = Self {
            control_plane,
            client,
            observer,
            nodes,
            controllers,
            driver,
            driver_controller,
            driver_name,
            declared,
            reach: Reach::default(),
            class_parameters: options.class_parameters.clone(),
            ends: Some(ends),
            records: Some(records),
            faults,
            run_faults: Mutex::default(),
            api_is_spoilt: AtomicBool::new(false),
            api_ready,
            audit_log,
            common,
            further: Mutex::default(),
        };
        tokio::select! {
            registered = cluster.registered(&cluster.driver_name) => registered?,
            error = cluster.driver_fails() => return Err(error),
        }
        cluster.reach = cluster.find_reach();
        Ok(cluster)
    }

    /// A client with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The API server's address.
    pub fn url(&self) -> String {
        self.control_plane.url()
    }

    /// Everything that can be waited for.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// The driver's name.
    pub fn driver_name(&self) -> &str {
        &self.driver_name
    }

    /// What the driver declares.
    pub fn declared(&self) -> &Declared {
        &self.declared
    }

    /// The parameters that the driver's classes have here.
    pub fn class_parameters(&self) -> BTreeMap<String, String> {
        self.class_parameters.clone()
    }

    /// Components that end by themselves; to be taken once.
    pub fn take_ends(&mut self) -> Option<mpsc::UnboundedReceiver<ComponentEnd>> {
        self.ends.take()
    }

    /// The nodes that one volume can be on.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    fn find_reach(&self) -> Reach {
        let nodes = self.nodes();
        // Keys alone keep nothing apart: the driver has to say that its volumes are bound to them.
        match self.declared.capabilities.get(&Capability::Topology) {
            Some(true) => self.observer.look(|world| Reach::of(world, &self.driver_name, &nodes, None)),
            Some(false) | None => Reach { nodes, ..Reach::default() },
        }
    }

    /// The names of all nodes.
    pub fn nodes(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.paths.name.clone()).collect()
    }

    /// Whether Kubernetes' own controllers bind and attach.
    pub(super) fn controllers_are_stock(&self) -> bool {
        self.control_plane.controllers_are_stock()
    }

    /// When the API server began to answer.
    pub fn api_ready(&self) -> Stamp {
        self.api_ready
    }

    /// The API server's audit log: one JSON object a request.
    pub fn audit_log(&self) -> &Path {
        &self.audit_log
    }

    /// The tap's records; to be taken once.
    pub fn take_records(&mut self) -> Option<mpsc::UnboundedReceiver<TapRecord>> {
        self.records.take()
    }

    /// What is written to the API from now on that has to do with claims; only who asks first gets it.
    pub fn writes(&self) -> Option<mpsc::UnboundedReceiver<ApiWrite>> {
        self.control_plane.writes()
    }

    /// Injects faults into the components' calls to the driver.
    pub fn faults(&self) -> &FaultControl {
        &self.faults
    }

    /// Puts these faults in force for the whole run, in place of all others.
    ///
    /// # Errors
    /// A stock API server does not let its answers be spoilt.
    pub async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        let (requests, calls) = faults::split(specs);
        self.api_is_spoilt.store(!requests.is_empty(), Ordering::Relaxed);
        match self.control_plane.faults() {
            Some(faults) => faults.set(requests),
            None if requests.is_empty() => {}
            None => return Err(NoFaults { of: "requests to the API server" }),
        }
        *self.run_faults.lock().await = calls.clone();
        self.faults.set(calls).await;
        Ok(())
    }

    /// Whether requests to the API server are made to fail.
    pub fn api_is_spoilt(&self) -> bool {
        self.api_is_spoilt.load(Ordering::Relaxed)
    }

    /// Puts these faults of calls before those of the run. Their counts start afresh.
    pub async fn add_call_faults(&self, mut rules: Vec<FaultRule>) {
        rules.extend(self.run_faults.lock().await.rules.iter().cloned());
        self.faults.set(FaultPlan { rules }).await;
    }

    /// Disrupts a component; false where there is no such node.
    pub async fn disrupt(&self, victim: &Victim, disruption: Disruption) -> bool {
        let find = |name: &str| self.nodes.iter().find(|node| node.paths.name == name);
        let component = match victim {
            Victim::Controllers => {
                self.controllers.disrupt(disruption).await;
                return true;
            }
            Victim::NodeAgent(name) => find(name).map(|node| &node.agent),
            Victim::Driver(name) => find(name).map(|node| &node.driver.process),
        };
        match component {
            Some(component) => {
                component.disrupt(disruption).await;
                true
            }
            None => false,
        }
    }

    /// What of the things named by `of` (volume names and handles, pod uids) is on the host: mounts of the
    /// nodes and loop devices. Everything of this cluster's where `of` is empty.
    pub fn host_leaks(&self, of: &[String]) -> Vec<Leak> {
        let processes = self.nodes.iter().filter_map(|node| node.driver.process.pid().or(node.agent.pid()));
        let mut left: Vec<Leak> = processes.flat_map(|pid| leaks::mounts(pid, of)).collect();
        left.extend(leaks::loop_devices(&self.common.plugin.state_dir, of));
        left
    }

    /// Loop devices of the cluster's own driver, and requests that the API server has answered.
    pub fn counts(&self) -> (u64, Option<u64>) {
        let devices = leaks::loop_devices(&self.common.plugin.state_dir, &[]).len() as u64;
        (devices, self.control_plane.requests())
    }

    /// Volumes that the drivers still have, where they can list them.
    pub async fn backend_leaks(&self) -> Vec<Leak> {
        let mut leaks = volumes_of(&self.driver).await;
        for further in self.further.lock().await.values() {
            leaks.extend(volumes_of(&further.client).await);
            leaks.extend(leaks::loop_devices(&further.plugin.state_dir, &[]));
        }
        leaks
    }

    /// What components have said about some objects: the lines that name one of them.
    pub async fn said_about(&self, names: &[String]) -> Vec<Log> {
        let further = self.further.lock().await;
        let others = further.values().flat_map(|further| {
            [&further.controllers].into_iter().chain(further.on_nodes.iter().map(|driver| &driver.process))
        });
        let of_nodes = self.nodes.iter().flat_map(|node| [&node.agent, &node.driver.process]);
        let processes = self.controllers.processes().iter().chain(of_nodes).chain(&self.driver_controller);
        said::by_processes(processes.chain(others), names)
    }

    /// Brings up a further driver, unless it is there already, and waits for its turn: it is the
    /// caller's until the guard is dropped.
    ///
    /// # Errors
    /// It cannot be started, or is not registered on all nodes in time.
    pub async fn deploy(&self, wanted: &FurtherDriver) -> Result<OwnedMutexGuard<()>, DeployError> {
        let turn = {
            let mut deployed = self.further.lock().await;
            if !deployed.contains_key(wanted.name) {
                let further = Further::start(&self.common, &self.nodes, &self.client, wanted).await?;
                self.registered(wanted.name).await?;
                deployed.insert(wanted.name, further);
            }
            deployed.get(wanted.name).map(|further| further.turn.clone()).expect("it has just been put there")
        };
        Ok(turn.lock_owned().await)
    }

    /// Takes the cluster down in order: agents first, so that nobody calls a driver that is going.
    pub async fn down(self) {
        drop(self.observer);
        let further = self.further.into_inner();
        let others = further.values().map(|further| &further.controllers);
        let others = join_all(others.map(|process| process.disrupt(Disruption::Stop)));
        tokio::join!(others, self.controllers.disrupt(Disruption::Stop));
        join_all(self.nodes.iter().map(|node| node.agent.disrupt(Disruption::Stop))).await;
        let others = further.values().flat_map(|further| &further.on_nodes);
        let drivers = others.chain(self.nodes.iter().map(|node| &node.driver));
        let drivers = drivers.map(|driver| &driver.process).chain(&self.driver_controller);
        join_all(drivers.map(|process| process.disrupt(Disruption::Stop))).await;
        self.control_plane.shutdown().await;
    }

    /// Resolves once one of the driver's processes keeps ending.
    async fn driver_fails(&self) -> UpError {
        let processes = self.nodes.iter().map(|node| &node.driver.process).chain(&self.driver_controller);
        let fails = processes.map(|process| {
            Box::pin(async {
                process.has_failed(GIVE_UP).await;
                failed(process, KEEPS_ENDING)
            })
        });
        select_all(fails).await.0
    }

    /// Returns once a driver is registered on all nodes.
    async fn registered(&self, driver: &str) -> Result<(), WaitError> {
        let names = self.nodes();
        let on: Vec<On> = names
            .iter()
            .flat_map(|name| {
                [Kind::CsiNode, Kind::Node].map(|kind| On::Object(kind, ObjectKey::cluster(name)))
            })
            .collect();
        let what = format!("driver {driver} to be registered on all nodes");
        self.observer
            .until(&what, READY, &on, |world| {
                let registered = |name: &String| {
                    let node = world.csi_nodes.get(&ObjectKey::cluster(name));
                    node.is_some_and(|node| {
                        node.spec.drivers.iter().any(|registered| registered.name == driver)
                    }) && reach::is_labelled(world, driver, name)
                };
                match names.iter().find(|name| !registered(name)) {
                    None => Seen::Yes(()),
                    Some(missing) => Seen::NotYet(format!("{missing} does not have it")),
                }
            })
            .await
    }
}

/// What a driver says that it has. One that cannot list is not at fault.
async fn volumes_of(driver: &DriverClient) -> Vec<Leak> {
    let mut leaks = Vec::new();
    let mut token = String::new();
    loop {
        let request = ListVolumesRequest { starting_token: token.clone(), ..Default::default() };
        let Ok(answer) = driver.controller().list_volumes(request).await else { return leaks };
        let answer = answer.into_inner();
        let names =
            answer.entries.into_iter().filter_map(|entry| entry.volume).map(|volume| volume.volume_id);
        leaks.extend(names.map(|name| Leak { kind: LeakKind::BackendVolume, name, case: None }));
        token = answer.next_token;
        if token.is_empty() {
            return leaks;
        }
    }
}

fn common(
    options: &Options,
    control_plane: &ControlPlane,
    ends: mpsc::UnboundedSender<ComponentEnd>,
) -> Common {
    let state = Path::new(STATE_DIR);
    Common {
        // The link, not its target: a program that was rebuilt meanwhile has no path any more.
        ourselves: "/proc/self/exe".into(),
        logs: options.logs.clone(),
        plugin: Plugin {
            directory: "driver".to_owned(),
            command: options.driver.clone(),
            controller: options.controller.clone(),
            // Of this run alone: the host shows the loop devices of all runs to each of them.
            state_dir: state.join(format!("d-{:.8}", uuid::Uuid::new_v4().simple().to_string())),
        },
        kubeconfig: state.join("kubeconfig"),
        client_ca: control_plane.client_ca().map(Path::to_owned),
        tap: state.join("tap.sock"),
        metrics: options.metrics.then(Components::default),
        ends,
    }
}

pub(super) fn writing(path: &Path) -> impl FnOnce(io::Error) -> UpError {
    let path = path.to_owned();
    move |source| UpError::Write { path, source }
}

/// What a driver does that is started again and again.
const KEEPS_ENDING: &str = "ends as soon as it is started";

fn failed(process: &Supervised, what: &'static str) -> UpError {
    let (component, command) = (process.name().to_owned(), process.command_line());
    UpError::Driver { component, what, command, log: process.last_lines() }
}

/// The driver's name, once it answers.
async fn name_of(driver: &DriverClient, process: &Supervised) -> Result<String, UpError> {
    let answered = async {
        driver.wait_ready(READY).await.map_err(|_| failed(process, "does not answer at its socket"))?;
        let info = driver.identity().get_plugin_info(GetPluginInfoRequest {}).await;
        info.map(|info| info.into_inner().name).map_err(|_| failed(process, "fails GetPluginInfo"))
    };
    tokio::select! {
        name = answered => name,
        () = process.has_failed(GIVE_UP) => Err(failed(process, KEEPS_ENDING)),
    }
}

/// What an administrator would install with the driver: its CSIDriver object and storage classes.
async fn install(
    client: &Client,
    csi_driver: &CSIDriver,
    parameters: &BTreeMap<String, String>,
) -> Result<(), UpError> {
    let name = csi_driver.metadata.name.as_deref().unwrap_or_default();
    let create = PostParams::default();
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some("default".into()), ..Default::default() },
        ..Default::default()
    };
    match kube::Api::all(client.clone()).create(&create, &namespace).await {
        // The server may have made it itself.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other?),
    }
    kube::Api::all(client.clone()).create(&create, csi_driver).await?;
    let ours = name == claimcheck_driver::DRIVER_NAME;
    let kinds: &[&str] = if ours { &["directory", "image"] } else { &["default"] };
    for (class, binding) in
        kinds.iter().flat_map(|kind| [(kind, "Immediate"), (kind, "WaitForFirstConsumer")])
    {
        let late = if binding == "Immediate" { "" } else { "-late" };
        let default = class == &kinds[0] && binding == "Immediate";
        let mut parameters = parameters.clone();
        if ours {
            parameters.insert("kind".to_owned(), (*class).to_owned());
        }
        let class: StorageClass = serde_json::from_value(json!({
            "metadata": {
                "name": format!("claimcheck-{class}{late}"),
                "annotations": { claimcheck_model::DEFAULT_CLASS: default.to_string() },
            },
            "provisioner": name,
            "parameters": parameters,
            "volumeBindingMode": binding,
        }))
        .expect("a StorageClass");
        kube::Api::all(client.clone()).create(&create, &class).await?;
    }
    Ok(())
}
