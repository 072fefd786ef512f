//! A driver on a node: its process, and its registration with the node's agent.

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
    /// How it is started.
    pub command: DriverCommand,
    /// The same for all nodes.
    pub state_dir: PathBuf,
}

impl Plugin {
    /// Its socket on a node, for those outside of the node's namespace.
    pub(super) fn socket(&self, paths: &Paths) -> PathBuf {
        paths.kubelet.join(self.below_kubelet())
    }

    /// Its socket as the node's agent sees it.
    fn socket_in_node(&self) -> PathBuf {
        Path::new(KUBELET_DIR).join(self.below_kubelet())
    }

    fn below_kubelet(&self) -> PathBuf {
        ["plugins", &self.directory, "csi.sock"].iter().collect()
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
        let socket = plugin.socket(paths);
        for path in [socket.parent().expect("the socket is in a directory"), &paths.registry()] {
            let failed = |source| NodeDriverError::Prepare { path: path.to_owned(), source };
            fs::create_dir_all(path).map_err(failed)?;
        }
        let place = Place {
            endpoint: format!("unix://{}", plugin.socket_in_node().display()),
            node_id: paths.name.clone(),
            state_dir: plugin.state_dir.display().to_string(),
            node_root: KUBELET_DIR.to_owned(),
        };
        let (program, args) = plugin.command.at(&place, &common.ourselves);
        let mut spec =
            common.component(format!("{} {}", plugin.directory, paths.name), args, Some(namespace));
        spec.program = program;
        let process = Supervised::new(spec.clone(), spec.spawn()?);
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
    let endpoint = plugin.socket_in_node().display().to_string();
    let registry = paths.registry();
    let served = claimcheck_node::registrar::run(&driver, &registry, &endpoint, std::future::pending()).await;
    if let Err(error) = served {
        tracing::error!(node = %paths.name, %error, "the driver cannot be registered");
    }
}
