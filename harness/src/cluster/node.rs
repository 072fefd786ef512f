//! One virtual node: its runtime, its driver, its agent, and the driver's registration.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use claimcheck_csi::{Driver, Endpoint, tap::Tap};
use claimcheck_substrate::{KUBELET_DIR, NodeNamespace, Process, ProcessSpec, STATE_DIR, SpawnError};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    task::JoinHandle,
};

use super::{
    driver_command::{DriverCommand, Place},
    supervisor::Supervised,
};
use crate::component::MARKER;

/// Below the kubelet directory: where the driver listens. A fixed name, since a driver's own is known
/// only once it runs.
const DRIVER_SOCKET: &str = "plugins/driver/csi.sock";

/// How long a driver may take until it answers.
const REGISTER: Duration = Duration::from_secs(30);

/// Where things of a node are.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub name: String,
    /// In the run's namespace.
    pub kubelet: PathBuf,
    pub runtime_socket: PathBuf,
}

impl Paths {
    pub(super) fn of(name: &str) -> Self {
        let dir = Path::new(STATE_DIR).join("n").join(name);
        Self { name: name.to_owned(), kubelet: dir.join("kubelet"), runtime_socket: dir.join("runtime.sock") }
    }

    /// The driver's socket, for those outside of the node's namespace.
    pub(super) fn driver_socket(&self) -> PathBuf {
        self.kubelet.join(DRIVER_SOCKET)
    }

    pub(super) fn registry(&self) -> PathBuf {
        self.kubelet.join("plugins_registry")
    }
}

/// The driver's socket as the node's agent sees it.
pub(super) fn driver_socket_in_node() -> PathBuf {
    Path::new(KUBELET_DIR).join(DRIVER_SOCKET)
}

/// What all nodes of a cluster have in common.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub ourselves: PathBuf,
    pub logs: PathBuf,
    pub driver: DriverCommand,
    pub state_dir: PathBuf,
    pub kubeconfig: PathBuf,
    pub tap: PathBuf,
}

impl Common {
    /// One of our own components as a process.
    pub(super) fn component(
        &self,
        name: String,
        args: Vec<OsString>,
        namespace: Option<NodeNamespace>,
    ) -> ProcessSpec {
        ProcessSpec {
            log: self.logs.join(format!("{}.log", name.replace(' ', "-"))),
            name,
            program: self.ourselves.clone(),
            args,
            env: vec![(MARKER.into(), "1".into()), ("CLAIMCHECK_TAP".into(), self.tap.clone().into())],
            namespace,
        }
    }
}

/// A virtual node that runs.
#[derive(Debug)]
pub(super) struct Node {
    pub paths: Paths,
    pub agent: Supervised,
    pub driver: Supervised,
    registrar: JoinHandle<()>,
    // Not supervised: without its runtime a node has lost its pods, and the run with it.
    _runtime: Process,
}

/// Why a node does not come up.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("cannot prepare {path} for {node}")]
    Prepare {
        node: String,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the container runtime of {node} does not start: {log}")]
    Runtime { node: String, log: String },
}

impl Node {
    /// Starts a node's processes. It is ready when its agent says so in the API.
    pub(super) async fn start(common: &Common, name: &str) -> Result<Self, NodeError> {
        let paths = Paths::of(name);
        let prepare = |path: &Path| {
            fs::create_dir_all(path).map_err(|source| NodeError::Prepare {
                node: name.to_owned(),
                path: path.to_owned(),
                source,
            })
        };
        prepare(paths.driver_socket().parent().expect("the socket is in a directory"))?;
        prepare(&paths.registry())?;
        let (runtime, namespace) = start_runtime(common, &paths).await?;
        let spec = driver_spec(common, &paths, namespace.clone());
        let driver = Supervised::new(spec.clone(), spec.spawn()?);
        let args = [
            OsString::from("node"),
            "--name".into(),
            name.into(),
            "--kubeconfig".into(),
            common.kubeconfig.clone().into(),
            "--root-dir".into(),
            KUBELET_DIR.into(),
            "--runtime-socket".into(),
            paths.runtime_socket.clone().into(),
        ];
        let spec = common.component(format!("agent {name}"), args.into(), Some(namespace));
        let agent = Supervised::new(spec.clone(), spec.spawn()?);
        let registrar = tokio::spawn(register(paths.clone()));
        Ok(Self { paths, agent, driver, registrar, _runtime: runtime })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.registrar.abort();
    }
}

/// What a node-driver-registrar does beside a driver.
async fn register(paths: Paths) {
    let driver = Driver::new(Endpoint::Unix(paths.driver_socket()), Tap::none(), "registrar");
    let endpoint = driver_socket_in_node().display().to_string();
    let served = async {
        driver.wait_ready(REGISTER).await?;
        claimcheck_node::registrar::serve(&driver, &paths.registry(), &endpoint, std::future::pending())
            .await?;
        anyhow::Ok(())
    };
    if let Err(error) = served.await {
        tracing::error!(node = %paths.name, "the driver cannot be registered: {error:#}");
    }
}

/// Starts the zygote, and catches the node's namespace before it leaves it.
async fn start_runtime(common: &Common, paths: &Paths) -> Result<(Process, NodeNamespace), NodeError> {
    let args = [
        OsString::from("runtime"),
        "--socket".into(),
        paths.runtime_socket.clone().into(),
        "--kubelet-dir".into(),
        paths.kubelet.clone().into(),
    ];
    let spec = common.component(format!("runtime {}", paths.name), args.into(), None);
    let mut process = spec.spawn_piped()?;
    match handshake(&mut process).await {
        Some(namespace) => Ok((process, namespace)),
        None => {
            let _ = process.wait().await;
            let log = fs::read_to_string(&spec.log).unwrap_or_default();
            Err(NodeError::Runtime { node: paths.name.clone(), log: log.trim().to_owned() })
        }
    }
}

async fn handshake(process: &mut Process) -> Option<NodeNamespace> {
    let (mut go_on, said) = process.pipes()?;
    let mut said = BufReader::new(said).lines();
    said.next_line().await.ok()?.filter(|word| word == "node")?;
    let namespace = NodeNamespace::of(process.pid()?).ok()?;
    go_on.write_all(b"\n").await.ok()?;
    said.next_line().await.ok()?.filter(|word| word == "ready")?;
    Some(namespace)
}

fn driver_spec(common: &Common, paths: &Paths, namespace: NodeNamespace) -> ProcessSpec {
    let place = Place {
        endpoint: format!("unix://{}", driver_socket_in_node().display()),
        node_id: paths.name.clone(),
        state_dir: common.state_dir.display().to_string(),
        node_root: KUBELET_DIR.to_owned(),
    };
    let (program, args) = common.driver.at(&place, &common.ourselves);
    ProcessSpec { program, ..common.component(format!("driver {}", paths.name), args, Some(namespace)) }
}
