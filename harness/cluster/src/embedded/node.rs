//! One virtual node: its runtime, its driver and its agent.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use claimcheck_apiserver::kubeconfig;
use claimcheck_csi::tap::KnownSecrets;
use claimcheck_driver::host::LOOP_HOLDER_ENV;
use claimcheck_model::ComponentEnd;
use claimcheck_substrate::{
    Capabilities, KUBELET_DIR, NodeNamespace, Process, ProcessSpec, STATE_DIR, SpawnError,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    sync::mpsc,
};

use super::{
    accounts::ControllerAccounts,
    node_driver::{NodeDriver, NodeDriverError, Plugin},
    supervisor::Supervised,
};
use crate::{
    log_search::Disclosures,
    secrets::Secrets,
    sidecars::{Init, InitError},
};
use claimcheck_component::writes::WRITES_ENV;
use claimcheck_component::{MARKER, logging};
use claimcheck_report::metrics::Components;

/// The paths of a node.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub name: String,
    /// In the run's namespace.
    pub kubelet: PathBuf,
    pub runtime_socket: PathBuf,
    /// The credentials of its agent.
    pub kubeconfig: PathBuf,
}

impl Paths {
    pub(crate) fn of(name: &str) -> Self {
        let dir = Path::new(STATE_DIR).join("n").join(name);
        Self {
            name: name.to_owned(),
            kubelet: dir.join("kubelet"),
            runtime_socket: dir.join("runtime.sock"),
            kubeconfig: dir.join("kubeconfig"),
        }
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.kubelet.join("plugins_registry")
    }
}

/// The common data of all nodes of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub ourselves: PathBuf,
    pub logs: PathBuf,
    pub plugin: Plugin,
    /// The administrator's.
    pub kubeconfig: PathBuf,
    /// The secrets in calls of stock programs.
    pub known_secrets: KnownSecrets,
    /// The lines in which programs logged them.
    pub disclosures: Disclosures,
    /// The init containers of `--deployment`.
    pub init: Vec<Init>,
    /// Where controllers find their accounts.
    pub accounts: ControllerAccounts,
    /// `IMAGE=PROGRAM`: what stands for images in pods.
    pub pod_images: Vec<String>,
    /// The CA of clients that may read logs from nodes.
    pub client_ca: Option<PathBuf>,
    /// The file with the token of clients that may do so.
    pub node_token: Option<PathBuf>,
    pub tap: PathBuf,
    /// The socket at which this process holds loop devices open for drivers.
    pub loop_holder: PathBuf,
    /// The same socket as `tap`, if components report their API writes there.
    pub writes: Option<PathBuf>,
    /// The directory in which components serve their metrics, if enabled.
    pub metrics: Option<Components>,
    /// The channel for unexpected exits of components.
    pub ends: mpsc::UnboundedSender<ComponentEnd>,
}

impl Common {
    /// One of the built-in components as a process.
    pub(crate) fn component(
        &self,
        name: String,
        args: Vec<OsString>,
        namespace: Option<NodeNamespace>,
    ) -> ProcessSpec {
        ProcessSpec {
            log: self.logs.join(format!("{}.log", name.replace(' ', "-"))),
            filter: None,
            name,
            program: self.ourselves.clone(),
            args,
            env: [(MARKER.into(), "1".into()), ("CLAIMCHECK_TAP".into(), self.tap.clone().into())]
                .into_iter()
                .chain([(LOOP_HOLDER_ENV.into(), self.loop_holder.clone().into())])
                .chain(self.writes.as_ref().map(|socket| (WRITES_ENV.into(), socket.clone().into())))
                .chain(logging::for_components())
                .collect(),
            namespace,
            run_directory: None,
            capabilities: Capabilities::All,
        }
    }

    /// Removes the secrets of the run, those of the program's own command line, and tokens from what it logs, as it logs
    /// them.
    pub(crate) fn without_secrets(&self, mut spec: ProcessSpec) -> ProcessSpec {
        let (known, own) = (self.known_secrets.clone(), KnownSecrets::default());
        own.add(Secrets::of(spec.args.iter().filter_map(|word| word.to_str())).iter());
        spec.filter = Some(self.disclosures.filter(&spec.log, known, own));
        spec
    }

    /// Arguments with which one of the built-in components serves its metrics.
    pub(crate) fn metrics_args(&self, component: &str, node: Option<&str>) -> Vec<OsString> {
        let args = self.metrics.as_ref().map(|metrics| metrics.args(component, node));
        args.into_iter().flatten().map(OsString::from).collect()
    }

    /// Starts a component, and keeps it running.
    pub(crate) fn start(&self, spec: ProcessSpec) -> Result<Supervised, SpawnError> {
        Supervised::start(spec, self.ends.clone())
    }
}

/// A running virtual node.
#[derive(Debug)]
pub(crate) struct Node {
    pub paths: Paths,
    pub agent: Supervised,
    pub driver: NodeDriver,
    pub namespace: NodeNamespace,
    // Not supervised: without its runtime a node loses its pods, which fails the run.
    _runtime: Process,
    runtime_log: PathBuf,
}

/// A node cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Driver(#[from] NodeDriverError),
    #[error(transparent)]
    Init(#[from] InitError),
    #[error("cannot prepare {path} for {node}")]
    Prepare {
        node: String,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the container runtime of {node} failed to start: {log}")]
    Runtime { node: String, log: String },
}

impl Node {
    /// Starts a node's processes, after its init containers, with this kubeconfig for its agent. It is ready once its agent reports so in the API.
    pub(crate) async fn start(
        common: &Common,
        (name, is_first): (&str, bool),
        kubeconfig: &str,
    ) -> Result<Self, NodeError> {
        let paths = Paths::of(name);
        let preparing = |path: &PathBuf| {
            let (node, path) = (name.to_owned(), path.clone());
            move |source| NodeError::Prepare { node, path, source }
        };
        fs::create_dir_all(&paths.kubelet).map_err(preparing(&paths.kubelet))?;
        kubeconfig::write(&paths.kubeconfig, kubeconfig).map_err(preparing(&paths.kubeconfig))?;
        let (runtime, runtime_log, namespace) = start_runtime(common, &paths).await?;
        for init in &common.init {
            init.run(common, &paths, &namespace, is_first).await?;
        }
        let driver = NodeDriver::start(common, &paths, namespace.clone(), &common.plugin)?;
        let mut args = vec![
            OsString::from("node"),
            "--name".into(),
            name.into(),
            "--kubeconfig".into(),
            paths.kubeconfig.clone().into(),
            "--root-dir".into(),
            KUBELET_DIR.into(),
            "--runtime-socket".into(),
            paths.runtime_socket.clone().into(),
        ];
        if let Some(client_ca) = &common.client_ca {
            args.extend(["--client-ca-file".into(), client_ca.clone().into()]);
        }
        if let Some(token) = &common.node_token {
            args.extend(["--client-token-file".into(), token.clone().into()]);
        }
        args.extend(common.pod_images.iter().flat_map(|image| [OsString::from("--pod-image"), image.into()]));
        args.extend(common.metrics_args("node", Some(name)));
        let spec = common.component(format!("agent {name}"), args, Some(namespace.clone()));
        let agent = common.start(spec)?;
        Ok(Self { paths, agent, driver, namespace, _runtime: runtime, runtime_log })
    }

    /// The name of its runtime, and its log.
    pub(crate) fn runtime_log(&self) -> (String, String) {
        let log = fs::read(&self.runtime_log).unwrap_or_default();
        (runtime_name(&self.paths), String::from_utf8_lossy(&log).into_owned())
    }
}

fn runtime_name(paths: &Paths) -> String {
    format!("runtime {}", paths.name)
}

/// Starts the zygote, and opens the node's namespace before the zygote leaves it.
async fn start_runtime(
    common: &Common,
    paths: &Paths,
) -> Result<(Process, PathBuf, NodeNamespace), NodeError> {
    let args = [
        OsString::from("runtime"),
        "--socket".into(),
        paths.runtime_socket.clone().into(),
        "--kubelet-dir".into(),
        paths.kubelet.clone().into(),
    ];
    let spec = common.component(runtime_name(paths), args.into(), None);
    let mut process = spec.spawn_piped()?;
    match handshake(&mut process).await {
        Some(namespace) => Ok((process, spec.log, namespace)),
        None => {
            let _ = process.wait().await;
            let log = fs::read_to_string(&spec.log).unwrap_or_default();
            Err(NodeError::Runtime { node: paths.name.clone(), log: log.trim().to_owned() })
        }
    }
}

async fn handshake(process: &mut Process) -> Option<NodeNamespace> {
    let (mut go_on, output) = process.pipes()?;
    let mut output = BufReader::new(output).lines();
    output.next_line().await.ok()?.filter(|word| word == "node")?;
    let namespace = NodeNamespace::of(process.pid()?).ok()?;
    go_on.write_all(b"\n").await.ok()?;
    output.next_line().await.ok()?.filter(|word| word == "ready")?;
    Some(namespace)
}
