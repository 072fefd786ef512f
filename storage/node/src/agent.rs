//! The agent's event loop: receives events, and reconciles pods and volumes until no work is left.
//!
//! All state is owned here and changed by no other task; everything that takes time is a task that sends a
//! message when it is done. Nothing is polled: the loop sleeps until a watch, a task, a container, a plugin or
//! a timer wakes it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use claimcheck_informer::{
    Backoff as Delays, Change, EventRecorder, Informer, Kind, KindSet, Options, Pending, World,
};
use claimcheck_model::{Meter, Stamp, metric::RECONSTRUCT_VOLUMES};
use claimcheck_runtime::{Runtime, RuntimeError, State};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use kube::{Api, Client, config::KubeconfigError};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use crate::{
    effects::Host,
    layout::Layout,
    logs::LogClock,
    node_object::{self, RegisterError},
    operations::Executor,
    pods::{self, Backoff, ContainerId, Done, PodImage, PodManager},
    populator::uid_of,
    reconciler::{InUse, Moment, Notice, Start, VolumeManager},
    reconstruct::{self, Found, ReconstructError},
    registration::{self, Dial, NodeInfo, PluginEvent},
    server::{Credentials, ListenError, Logs, Server},
    survey::{self, Question},
    volumes::PodUid,
};

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name.
    pub name: String,
    /// The node's address in its status.
    pub ip: String,
    /// The kubelet's directory.
    pub root: PathBuf,
    /// The attach/detach controller attaches volumes to this node; otherwise they are not attached at all.
    pub controller_attach_detach: bool,
    /// Restart back-off of containers.
    pub restart_backoff: Backoff,
    /// The programs that stand for images in pods.
    pub pod_images: Vec<PodImage>,
    /// Credentials of clients that may read container logs.
    pub credentials: Credentials,
}

/// Delays of repeated requests for the volume of a directory.
const READ_AGAIN: Delays = Delays { base: Duration::from_millis(50), max: Duration::from_secs(30) };

/// Errors that end the agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A directory cannot be created.
    #[error("cannot prepare {}: check who owns it", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error.
        #[source]
        source: std::io::Error,
    },
    /// The node cannot be registered with the API server.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Existing mounts on the node cannot be determined.
    #[error(transparent)]
    Reconstruct(#[from] ReconstructError),
    /// The log server cannot start.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The token of clients cannot be read.
    #[error("--client-token-file {} cannot be read", path.display())]
    ClientToken {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: std::io::Error,
    },
    /// The kubeconfig cannot be read.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[from] KubeconfigError),
    /// Log files cannot be watched.
    #[error("cannot watch the logs of containers")]
    Logs(#[source] std::io::Error),
    /// The container runtime failed.
    #[error("the container runtime failed")]
    Runtime(#[from] RuntimeError),
    /// The container runtime exited while the agent was running.
    #[error("the container runtime exited, and with it all containers: restart the node")]
    RuntimeStopped,
    /// The plugin directory cannot be watched.
    #[error("cannot watch {} for plugins", path.display())]
    Plugins {
        /// The directory.
        path: PathBuf,
        /// The error.
        #[source]
        source: std::io::Error,
    },
}

/// The agent of one node, over any runtime and host.
pub struct Agent<R, H> {
    /// Name, paths and other configuration.
    pub config: Config,
    /// The API server.
    pub client: Client,
    /// The container runtime.
    pub runtime: Arc<R>,
    /// The host.
    pub host: Arc<H>,
    /// Connects to a driver.
    pub dial: Dial,
    /// Metrics of the agent.
    pub meter: Meter,
}

/// An event of the loop.
enum Event {
    World(Change),
    /// The kinds that have not been listed, or the reasons, have changed.
    Pending,
    Container(String, State),
    Volume(Notice),
    Pod(Done),
    Plugin(PluginEvent),
    Asked(Question),
    Timer,
}

impl<R: Runtime, H: Host> Agent<R, H> {
    /// Runs until `shutdown` resolves, or until a fatal error. Containers and mounts stay as they are; the next
    /// agent adopts them.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), AgentError> {
        let Self { config, client, runtime, host, dial, meter } = self;
        let layout = Layout::new(prepare(&config.root)?);
        let informer = Informer::start(client.clone(), watched(), &selected(&config.name));
        let server = Server::listen(&config.name, &config.ip, config.credentials.clone()).await?;
        let node = node_object::register(&client, &config, server.port()).await?;
        informer.apply(node.clone());
        // Listening before listing, so that no exit falls in between.
        let containers = runtime.events();
        let listed = runtime.list().await?;
        let clock = LogClock::new().map_err(AgentError::Logs)?;
        for (id, _) in listed.iter().filter(|(_, state)| matches!(state, State::Running { .. })) {
            if let Ok(ContainerId { pod, container, attempt }) = id.parse() {
                clock.watch(&layout.container_log(&pod, &container, attempt));
            }
        }
        let logs = Logs { informer: informer.clone(), runtime: runtime.clone(), layout: layout.clone() };
        let node_info = Arc::new(NodeInfo::new(client.clone(), &config.name));
        let (plugin, plugins) = mpsc::unbounded_channel();
        let registry = layout.plugins_registry();
        let managed = Managed {
            config,
            client: client.clone(),
            runtime,
            host,
            meter,
            layout,
            informer: informer.clone(),
            clock: clock.clone(),
            node_info: node_info.clone(),
            in_use: node.status.as_ref().and_then(|status| status.volumes_in_use.clone()).unwrap_or_default(),
        };
        // What does not depend on the kinds that the agent lists works from the start: a kind that cannot be listed
        // stops only the pods that need it.
        tokio::select! {
            ended = managed.run(containers, listed, plugins) => ended,
            watched = registration::run(&registry, dial, node_info, plugin) => {
                watched.map_err(|source| AgentError::Plugins { path: registry.clone(), source })
            }
            () = node_object::keep_alive(client, node, informer) => Ok(()),
            () = server.run(logs) => Ok(()),
            error = clock.run() => Err(AgentError::Logs(error)),
            () = shutdown => Ok(()),
        }
    }
}

/// The parts of the pods' and volumes' management.
struct Managed<R, H> {
    config: Config,
    client: Client,
    runtime: Arc<R>,
    host: Arc<H>,
    meter: Meter,
    layout: Layout,
    informer: Informer,
    clock: LogClock,
    node_info: Arc<NodeInfo>,
    /// `volumesInUse` of the node's status.
    in_use: Vec<String>,
}

impl<R: Runtime, H: Host> Managed<R, H> {
    /// Manages pods and volumes, once the pods of the node have been listed.
    async fn run(
        self,
        containers: mpsc::UnboundedReceiver<(String, State)>,
        listed: Vec<(String, State)>,
        plugins: mpsc::UnboundedReceiver<PluginEvent>,
    ) -> Result<(), AgentError> {
        let Self { config, client, runtime, host, meter, layout, informer, clock, node_info, in_use } = self;
        // All existing pods are known before anything found on the node is considered orphaned.
        informer.for_user_of(KindSet::of(&[Kind::Pod])).synced().await;
        let node = informer.read().nodes.named(&config.name).cloned();
        let found = found(&*host, &layout, &client, node).await?;
        let recorder = EventRecorder::new(client.clone(), "kubelet");
        let executor = Executor {
            layout: layout.clone(),
            host: host.clone(),
            client: client.clone(),
            informer: informer.clone(),
            recorder: recorder.clone(),
            node: config.name.clone(),
            meter: meter.clone(),
        };
        let (notice, notices) = mpsc::unbounded_channel();
        let (done, dones) = mpsc::unbounded_channel();
        let questions = survey::begin(&meter);
        meter.record(&RECONSTRUCT_VOLUMES, &[], found.actual.iter().count() as f64);
        let pod_node = pods::Node {
            runtime,
            host,
            layout,
            clock,
            client,
            informer: informer.clone(),
            recorder,
            name: config.name.clone(),
            host_ip: config.ip,
            backoff: config.restart_backoff,
            images: config.pod_images.into(),
        };
        let start = Start {
            actual: found.actual,
            in_use: InUse::from_status(in_use),
            controller_attaches: config.controller_attach_detach,
            node_info,
        };
        let volumes = VolumeManager::new(executor, notice, start);
        let mut state = Loop {
            node: config.name,
            volumes,
            pods: PodManager::new(pod_node, done),
            due: BTreeSet::new(),
            clock: Clock::start(),
            next_turn: None,
        };
        let mut sources = Sources {
            pending: informer.pending(),
            world: informer.subscribe(read()),
            containers,
            notices,
            dones,
            plugins,
            questions,
        };
        while let Ok(change) = sources.world.try_recv() {
            state.take(Event::World(change));
        }
        state.adopt(found.pods, listed);
        state.settle();
        meter.ready();
        state.run(&mut sources).await
    }
}

/// What the previous agent has left. Where a record does not identify a volume, PersistentVolumes are read: those with
/// the names of directories.
async fn found<H: Host>(
    host: &H,
    layout: &Layout,
    client: &Client,
    node: Option<Arc<Node>>,
) -> Result<Found, AgentError> {
    if let Some(found) = reconstruct::reconstruct(host, layout, None)? {
        return Ok(found);
    }
    let mut world = World::default();
    if let Some(node) = node {
        world.apply(Node::clone(&node));
    }
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    for name in reconstruct::volume_names(host, layout)? {
        let mut failures = 0;
        let volume = loop {
            match volumes.get_opt(&name).await {
                // The API server refuses one that no pod of this node uses, whether or not it exists.
                Err(kube::Error::Api(status)) if status.is_forbidden() => break None,
                Err(error) => {
                    tracing::warn!(volume = name, %error, "cannot read the volume of a directory; trying again");
                    failures += 1;
                    tokio::time::sleep(READ_AGAIN.delay(failures)).await;
                }
                Ok(volume) => break volume,
            }
        };
        volume.into_iter().for_each(|volume| drop(world.apply(volume)));
    }
    Ok(reconstruct::reconstruct(host, layout, Some(&world))?.unwrap_or_default())
}

/// The kinds that are watched as a whole, as far as the node is concerned.
fn watched() -> KindSet {
    KindSet::of(&[Kind::Pod, Kind::Node, Kind::CsiDriver])
}

/// The same, and those of which single objects are followed.
fn read() -> KindSet {
    watched().union(KindSet::of(&[Kind::Claim, Kind::Volume, Kind::Attachment]))
}

fn selected(node: &str) -> Options {
    Options::default()
        .fields(Kind::Pod, format!("spec.nodeName={node}"))
        .fields(Kind::Node, format!("metadata.name={node}"))
}

/// Creates the directories; returns the root as the mount table spells it.
fn prepare(root: &Path) -> Result<PathBuf, AgentError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| AgentError::Directory { path, source }
    };
    let layout = Layout::new(root);
    for path in [layout.plugins_registry(), layout.csi(), layout.pods()] {
        std::fs::create_dir_all(&path).map_err(failed(&path))?;
    }
    root.canonicalize().map_err(failed(root))
}

struct Sources {
    pending: watch::Receiver<Pending>,
    world: mpsc::UnboundedReceiver<Change>,
    containers: mpsc::UnboundedReceiver<(String, State)>,
    notices: mpsc::UnboundedReceiver<Notice>,
    dones: mpsc::UnboundedReceiver<Done>,
    plugins: mpsc::UnboundedReceiver<PluginEvent>,
    questions: mpsc::UnboundedReceiver<Question>,
}

impl Sources {
    /// The next event; `None` if the container runtime exited. The other senders exist as long as the loop.
    async fn next(&mut self, next_turn: Option<Instant>) -> Option<Event> {
        let timer = async {
            match next_turn {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(change) = self.world.recv() => Some(Event::World(change)),
            Ok(()) = self.pending.changed() => Some(Event::Pending),
            Some(notice) = self.notices.recv() => Some(Event::Volume(notice)),
            Some(done) = self.dones.recv() => Some(Event::Pod(done)),
            Some(plugin) = self.plugins.recv() => Some(Event::Plugin(plugin)),
            Some(question) = self.questions.recv() => Some(Event::Asked(question)),
            container = self.containers.recv() => container.map(|(id, state)| Event::Container(id, state)),
            () = timer => Some(Event::Timer),
        }
    }

    /// A queued event. Draining the queue before reconciling lets one write cover many events.
    fn ready(&mut self) -> Option<Event> {
        if let Ok(change) = self.world.try_recv() {
            return Some(Event::World(change));
        }
        if let Ok(notice) = self.notices.try_recv() {
            return Some(Event::Volume(notice));
        }
        if let Ok(done) = self.dones.try_recv() {
            return Some(Event::Pod(done));
        }
        self.containers.try_recv().ok().map(|(id, state)| Event::Container(id, state))
    }
}

/// The clock of all plans: the machine's clocks, advanced by tokio's, so that tests can pause it.
struct Clock {
    base: Stamp,
    started: Instant,
}

impl Clock {
    fn start() -> Self {
        Self { base: Stamp::now(), started: Instant::now() }
    }

    fn now(&self) -> Stamp {
        let passed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Stamp { mono_ns: self.base.mono_ns + passed, wall_ns: self.base.wall_ns + passed }
    }

    fn instant(&self, moment: Moment) -> Instant {
        self.started + moment.saturating_sub(Duration::from_nanos(self.base.mono_ns))
    }
}

struct Loop<R, H> {
    node: String,
    volumes: VolumeManager<H>,
    pods: PodManager<R, H>,
    /// Pods to plan.
    due: BTreeSet<PodUid>,
    clock: Clock,
    next_turn: Option<Instant>,
}

impl<R: Runtime, H: Host> Loop<R, H> {
    async fn run(&mut self, sources: &mut Sources) -> Result<(), AgentError> {
        loop {
            let mut event = Some(sources.next(self.next_turn).await.ok_or(AgentError::RuntimeStopped)?);
            while let Some(happened) = event {
                self.take(happened);
                event = sources.ready();
            }
            self.settle();
        }
    }

    /// Adopts running containers and pod directories of the previous agent.
    fn adopt(&mut self, pods: BTreeSet<PodUid>, containers: Vec<(String, State)>) {
        let now = self.clock.now();
        let ids = containers.iter().filter_map(|(id, _)| id.parse::<ContainerId>().ok()).map(|id| id.pod);
        for uid in pods.into_iter().chain(ids) {
            self.pods.found(&uid, now);
        }
        for (id, state) in containers {
            self.pods.learn(&id, state);
        }
        self.due.extend(self.pods.uids().cloned());
    }

    fn take(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::World(change) => self.changed(&change, now),
            Event::Pending => self.due.extend(self.pods.uids().cloned()),
            Event::Container(id, state) => self.due.extend(self.pods.learn(&id, state)),
            Event::Volume(notice) => self.volumes.notice(notice, moment(now)),
            Event::Pod(done) => drop(self.due.insert(self.pods.done(done, now))),
            Event::Plugin(PluginEvent::Registered(driver)) => self.volumes.driver_registered(*driver),
            Event::Plugin(PluginEvent::Gone { name }) => self.volumes.driver_unregistered(&name),
            // The client may have disconnected.
            Event::Asked(question) => drop(question.send(self.volumes.survey())),
            Event::Timer => self.due.extend(self.pods.expired(moment(now))),
        }
    }

    fn changed(&mut self, change: &Change, now: Stamp) {
        self.volumes.changed(change);
        self.due.extend(self.volumes.pods_of(change));
        if change.kind != Kind::Pod {
            return;
        }
        let (old, new) = change.both::<Pod>();
        if let Some(pod) = new.filter(|pod| self.is_managed(pod)) {
            self.pods.seen(pod.clone(), now);
            self.due.insert(uid_of(pod));
        }
        // A new pod may have taken the name.
        let old = old.map(|pod| uid_of(pod)).filter(|old| new.is_none_or(|new| uid_of(new) != *old));
        if let Some(uid) = old {
            self.pods.deleted(&uid);
            self.due.insert(uid);
        }
    }

    fn is_managed(&self, pod: &Pod) -> bool {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&self.node)
    }

    /// Plans pods and volumes in turn until neither wakes the other.
    fn settle(&mut self) {
        let now = self.clock.now();
        let volumes_wake = loop {
            while let Some(uid) = self.due.pop_first() {
                self.settle_pod(&uid, now);
            }
            let (mut touched, next_turn) = self.volumes.settle(moment(now));
            for (uid, why) in self.volumes.evictions() {
                self.pods.evict(&uid, why);
                touched.insert(uid);
            }
            if touched.is_empty() {
                break next_turn;
            }
            self.due.extend(touched);
        };
        let next = volumes_wake.into_iter().chain(self.pods.next_timer()).min();
        self.next_turn = next.map(|moment| self.clock.instant(moment));
    }

    fn settle_pod(&mut self, uid: &PodUid, now: Stamp) {
        let volumes = &self.volumes;
        let wants = self.pods.settle(uid, volumes.volumes(uid), |name| volumes.mounted_at(uid, name), now);
        match wants {
            Some(true) if self.pods.is_deleted(uid) => self.volumes.hold(uid),
            Some(true) => {
                if let Some(pod) = self.pods.pod(uid) {
                    self.volumes.want(pod, moment(now));
                }
            }
            Some(false) | None => self.volumes.release(uid),
        }
    }
}

fn moment(now: Stamp) -> Moment {
    Duration::from_nanos(now.mono_ns)
}
