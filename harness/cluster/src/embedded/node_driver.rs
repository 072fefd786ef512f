//! A driver on a node: its process, and its registration with the node's agent; and the controller of
//! drivers with a separate one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use claimcheck_csi::{Driver, Endpoint, tap::Tap};
use claimcheck_substrate::{KUBELET_DIR, NodeNamespace, SpawnError};
use tokio::task::JoinHandle;

use super::{
    common::{Common, Paths},
    supervisor::Supervised,
};
use claimcheck_vendor::{
    deployment::ProcessCredentials,
    driver_command::{DriverCommand, PlaceholderValues},
};

/// A driver and its directory.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    /// Its directory below `plugins`. Not the driver's name, which is known only once it runs.
    pub directory: String,
    /// Its command line on a node.
    pub command: DriverCommand,
    /// The command line of its controller, if that is a separate process.
    pub controller: Option<DriverCommand>,
    /// The state directory, the same for all nodes.
    pub state_dir: PathBuf,
    /// What registers it on the nodes.
    pub registrar: Registrar,
    /// The credentials of its processes at the API server, if manifests give it an account.
    pub credentials: ProcessCredentials,
}

/// What registers a driver with the agent of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registrar {
    /// A task of this process.
    Builtin,
    /// A program of `--sidecar registrar`.
    Stock,
}

/// The name of a socket in the driver's directory.
const NODE_SOCKET: &str = "csi.sock";
/// The same for a separate controller process.
const CONTROLLER_SOCKET: &str = "controller.sock";

impl Plugin {
    /// Its socket on a node, as seen from outside of the node's namespace.
    pub(crate) fn socket(&self, paths: &Paths) -> PathBuf {
        self.outside_node(paths, NODE_SOCKET)
    }

    /// The socket of its controller service, which runs on the first node.
    pub(crate) fn controller_socket(&self, first: &Paths) -> PathBuf {
        let socket = if self.controller.is_some() { CONTROLLER_SOCKET } else { NODE_SOCKET };
        self.outside_node(first, socket)
    }

    /// Its socket on a node, as seen by the node's agent and the driver.
    pub(crate) fn socket_in_node(&self) -> PathBuf {
        self.in_node(NODE_SOCKET)
    }

    /// A socket in its directory on a node, as seen from outside of the node's namespace.
    pub(crate) fn outside_node(&self, paths: &Paths, socket: &str) -> PathBuf {
        paths.kubelet.join(self.below_kubelet(socket))
    }

    /// A socket as seen by the node's agent and the driver.
    pub(crate) fn in_node(&self, socket: &str) -> PathBuf {
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
        let values = PlaceholderValues {
            socket: self.in_node(socket),
            node_id: paths.name.clone(),
            state_dir: self.state_dir.display().to_string(),
            node_root: KUBELET_DIR.to_owned(),
        };
        let (program, mut args) = command.at(&values, &common.ourselves);
        if command.is_builtin() {
            args.extend(common.metrics_args(&self.directory, Some(name)));
        }
        let mut spec = common.component(format!("{} {name}", self.directory), args, Some(namespace));
        spec.program = program;
        let credentials = match socket {
            CONTROLLER_SOCKET => &self.credentials.controller,
            _ => &self.credentials.node,
        };
        if let Some(credentials) = credentials {
            // Not the user's, which may be that of another cluster.
            spec.env.push(("KUBECONFIG".to_owned(), credentials.kubeconfig.clone().into()));
            credentials.give(&mut spec);
        }
        let spec = if command.is_builtin() { spec } else { common.without_secrets(spec) };
        Ok(common.start(spec)?)
    }

    /// Starts its controller, if that is a separate process: on the first node, like the pod of a
    /// Deployment that was scheduled there.
    pub(crate) fn start_controller(
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

/// A running driver on a node. Dropping it kills the process and removes the registration.
#[derive(Debug)]
pub(crate) struct NodeDriver {
    pub process: Supervised,
    /// None if a stock program registers it.
    registrar: Option<JoinHandle<()>>,
}

/// A driver cannot be started on a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeDriverError {
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
    /// Starts the driver. It is ready once the node's CSINode contains it.
    pub(crate) fn start(
        common: &Common,
        paths: &Paths,
        namespace: NodeNamespace,
        plugin: &Plugin,
    ) -> Result<Self, NodeDriverError> {
        let process = plugin.start(common, paths, namespace, (&plugin.command, &paths.name, NODE_SOCKET))?;
        let registrar = match plugin.registrar {
            Registrar::Builtin => Some(tokio::spawn(register(paths.clone(), plugin.clone()))),
            Registrar::Stock => None,
        };
        Ok(Self { process, registrar })
    }
}

impl Drop for NodeDriver {
    fn drop(&mut self) {
        if let Some(registrar) = &self.registrar {
            registrar.abort();
        }
    }
}

/// Registers the driver like node-driver-registrar.
async fn register(paths: Paths, plugin: Plugin) {
    let driver = Driver::new(Endpoint::Unix(plugin.socket(&paths)), Tap::none(), "registrar");
    let endpoint = plugin.socket_in_node().display().to_string();
    let registry = paths.registry();
    let served = claimcheck_node::registrar::run(&driver, &registry, &endpoint, std::future::pending()).await;
    if let Err(error) = served {
        tracing::error!(node = %paths.name, %error, "cannot register the driver");
    }
}
