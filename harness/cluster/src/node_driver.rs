//! A driver on a node: its process, and its registration with the node's agent; and the controller of a
//! vendor who has one apart.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use claimcheck_csi::{Driver, Endpoint, tap::Tap};
use claimcheck_substrate::{KUBELET_DIR, NodeNamespace, SpawnError};
use tokio::task::JoinHandle;

use super::{
    driver_command::{DriverCommand, Place},
    node::{Common, Paths},
    supervisor::Supervised,
};

/// Which driver, and where it lives.
#[derive(Clone, Debug)]
pub(super) struct Plugin {
    /// Its directory below `plugins`. Not the driver's name, which is known only once it runs.
    pub directory: String,
    /// How it is started on a node.
    pub command: DriverCommand,
    /// How its controller is started, where that is a process of its own.
    pub controller: Option<DriverCommand>,
    /// The same for all nodes.
    pub state_dir: PathBuf,
}

/// The name of a socket in the driver's directory.
const NODE_SOCKET: &str = "csi.sock";
/// The same of a controller that is a process of its own.
const CONTROLLER_SOCKET: &str = "controller.sock";

impl Plugin {
    /// Its socket on a node, for those outside of the node's namespace.
    pub(super) fn socket(&self, paths: &Paths) -> PathBuf {
        paths.kubelet.join(self.below_kubelet(NODE_SOCKET))
    }

    /// The socket of its controller service, which lives on the first node.
    pub(super) fn controller_socket(&self, first: &Paths) -> PathBuf {
        let socket = if self.controller.is_some() { CONTROLLER_SOCKET } else { NODE_SOCKET };
        first.kubelet.join(self.below_kubelet(socket))
    }

    /// A socket as the node's agent and the driver see it.
    fn in_node(&self, socket: &str) -> PathBuf {
        Path::new(KUBELET_DIR).join(self.below_kubelet(socket))
    }

    fn below_kubelet(&self, socket: &str) -> PathBuf {
        ["plugins", &self.directory, socket].iter().collect()
    }

    /// Starts one of its processes on a node. It listens some time later.
    fn start(
        &self,
        common: &Common,
        paths: &Paths,
        namespace: NodeNamespace,
        process: (&DriverCommand, &str, &str),
    ) -> Result<Supervised, NodeDriverError> {
        let (command, name, socket) = process;
        let directory = paths.kubelet.join("plugins").join(&self.directory);
        for path in [&directory, &paths.registry()] {
            let failed = |source| NodeDriverError::Prepare { path: path.clone(), source };
            fs::create_dir_all(path).map_err(failed)?;
        }
        let place = Place {
            socket: self.in_node(socket),
            node_id: paths.name.clone(),
            state_dir: self.state_dir.display().to_string(),
            node_root: KUBELET_DIR.to_owned(),
        };
        let (program, mut args) = command.at(&place, &common.ourselves);
        if command.is_ours() {
            args.extend(common.metrics_args(&self.directory, Some(name)));
        }
        let mut spec = common.component(format!("{} {name}", self.directory), args, Some(namespace));
        spec.program = program;
        Ok(common.start(spec)?)
    }

    /// Starts its controller, where that is a process of its own: on the first node, as the pod of a
    /// Deployment that has landed there.
    pub(super) fn start_controller(
        &self,
        common: &Common,
        first: &Paths,
        namespace: NodeNamespace,
    ) -> Result<Option<Supervised>, NodeDriverError> {
        let start =
            |command| self.start(common, first, namespace, (command, "controller", CONTROLLER_SOCKET));
        self.controller.as_ref().map(start).transpose()
    }
}

/// A driver that runs on a node. Dropping it kills the process and takes the registration back.
#[derive(Debug)]
pub(super) struct NodeDriver {
    pub process: Supervised,
    registrar: JoinHandle<()>,
}

/// Why a driver does not start on a node.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeDriverError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("cannot prepare {path} for a driver")]
    Prepare {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl NodeDriver {
    /// Starts the driver. It is there when the node's CSINode says so.
    pub(super) fn start(
        common: &Common,
        paths: &Paths,
        namespace: NodeNamespace,
        plugin: &Plugin,
    ) -> Result<Self, NodeDriverError> {
        let process = plugin.start(common, paths, namespace, (&plugin.command, &paths.name, NODE_SOCKET))?;
        let registrar = tokio::spawn(register(paths.clone(), plugin.clone()));
        Ok(Self { process, registrar })
    }
}

impl Drop for NodeDriver {
    fn drop(&mut self) {
        self.registrar.abort();
    }
}

/// What a node-driver-registrar does beside a driver.
async fn register(paths: Paths, plugin: Plugin) {
    let driver = Driver::new(Endpoint::Unix(plugin.socket(&paths)), Tap::none(), "registrar");
    let endpoint = plugin.in_node(NODE_SOCKET).display().to_string();
    let registry = paths.registry();
    let served = claimcheck_node::registrar::run(&driver, &registry, &endpoint, std::future::pending()).await;
    if let Err(error) = served {
        tracing::error!(node = %paths.name, %error, "the driver cannot be registered");
    }
}
