//! Plugin registration: a driver's registrar creates a socket in `plugins_registry`; the node requests its
//! plugin info and the driver's node info, writes CSINode and Node, and from then on calls the driver.
//!
//! Upstream: `pkg/kubelet/pluginmanager`, `pkg/volume/csi/csi_plugin.go`.

mod node_info;
mod plan;
pub mod protocol;
mod watch;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use claimcheck_csi::{Driver, v1};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};

use crate::drivers::{NodeCapabilities, RegisteredDriver};

pub use node_info::{NodeInfo, NodeInfoError};
pub use plan::{DriverInfo, Refusal};
pub use protocol::ProtocolError;
pub use watch::{SocketEvent, SocketWatch};

/// Delay before a failed registration is retried: doubled each time, up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Creates the connection to a driver's endpoint; the driver need not be running yet.
pub type Dial = Arc<dyn Fn(&Path) -> Driver + Send + Sync>;

/// A change of a plugin's registration.
#[derive(Debug)]
pub enum PluginEvent {
    /// The driver can be called. It may have been registered before, and restarted since.
    Registered(Box<RegisteredDriver>),
    /// The driver's socket was removed.
    Gone {
        /// Its name.
        name: String,
    },
}

/// Why a plugin is not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// A call to the registration socket failed.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The plugin is not supported.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A call to the driver failed.
    #[error("driver {name} failed {call}: {}", status.message())]
    Driver {
        /// The driver.
        name: String,
        /// The method.
        call: &'static str,
        /// Its response.
        status: Box<tonic::Status>,
    },
    /// CSINode or Node was not updated.
    #[error("node info of driver {name} was not written")]
    NodeInfo {
        /// The driver.
        name: String,
        /// The error.
        #[source]
        source: NodeInfoError,
    },
}

/// Requests a registered driver's node info again, and updates CSINode. Upstream: `updateCSIDriver` in
/// `pkg/volume/csi/csi_plugin.go`.
///
/// # Errors
/// If the driver or the API server returns an error.
pub async fn update(driver: &RegisteredDriver, node: &NodeInfo) -> Result<(), RegistrationError> {
    let info = driver_info(&driver.driver, &driver.info.name).await?;
    node.update(&info).await.map_err(|source| RegistrationError::NodeInfo { name: info.name, source })
}

/// Registers plugins that appear in `directory`, until the receiver of `events` is dropped.
///
/// # Errors
/// If the directory cannot be watched.
pub async fn run(
    directory: &Path,
    dial: Dial,
    node: Arc<NodeInfo>,
    events: mpsc::UnboundedSender<PluginEvent>,
) -> io::Result<()> {
    let mut watch = SocketWatch::new(directory)?;
    let mut sockets = Sockets { dial, node, events, known: BTreeMap::new(), attempts: JoinSet::new() };
    loop {
        tokio::select! {
            event = watch.next() => match event? {
                SocketEvent::Added(path) => sockets.added(path),
                SocketEvent::Removed(path) => sockets.removed(&path).await,
            },
            Some(Ok(attempt)) = sockets.attempts.join_next() => sockets.ended(attempt).await,
            () = sockets.events.closed() => return Ok(()),
        }
    }
}

/// State of a registration socket.
enum Socket {
    /// Registration is in progress.
    Registering {
        /// Ends the delay between two attempts.
        hurry: Arc<Notify>,
        /// Changes of the socket since, if any.
        since: Option<Since>,
    },
    /// It is registered for this driver.
    Registered(String),
}

/// A change of a socket during registration.
enum Since {
    /// It was removed.
    Gone,
    /// It was created again: another process may serve it.
    Replaced,
}

/// Result of a registration.
struct Attempt {
    path: PathBuf,
    /// `None` if it was abandoned.
    driver: Option<RegisteredDriver>,
    /// The driver that was written to CSINode, whether or not the rest succeeded.
    written_driver: Option<String>,
}

struct Sockets {
    dial: Dial,
    node: Arc<NodeInfo>,
    events: mpsc::UnboundedSender<PluginEvent>,
    known: BTreeMap<PathBuf, Socket>,
    attempts: JoinSet<Attempt>,
}

impl Sockets {
    fn added(&mut self, path: PathBuf) {
        if let Some(Socket::Registering { hurry, since }) = self.known.get_mut(&path) {
            *since = Some(Since::Replaced);
            hurry.notify_one();
            return;
        }
        let hurry = Arc::new(Notify::new());
        let attempt = register_until_done(path.clone(), self.dial.clone(), self.node.clone(), hurry.clone());
        self.attempts.spawn(attempt);
        self.known.insert(path, Socket::Registering { hurry, since: None });
    }

    async fn ended(&mut self, Attempt { path, driver, written_driver }: Attempt) {
        let since = match self.known.remove(&path) {
            Some(Socket::Registering { since, .. }) => since,
            Some(Socket::Registered(_)) | None => Some(Since::Gone),
        };
        match (since, driver) {
            (None, Some(driver)) => {
                tracing::info!(driver = driver.info.name, "registered");
                self.known.insert(path, Socket::Registered(driver.info.name.clone()));
                self.notify(PluginEvent::Registered(Box::new(driver)));
            }
            (Some(Since::Replaced), _) | (None, None) => self.added(path),
            (Some(Since::Gone), _) => {
                if let Some(name) = written_driver {
                    self.take_out(&name).await;
                }
            }
        }
    }

    async fn removed(&mut self, path: &Path) {
        match self.known.get_mut(path) {
            None => {}
            Some(Socket::Registering { hurry, since }) => {
                *since = Some(Since::Gone);
                hurry.notify_one();
            }
            Some(Socket::Registered(name)) => {
                let name = std::mem::take(name);
                self.known.remove(path);
                tracing::info!(driver = name, "gone");
                self.notify(PluginEvent::Gone { name: name.clone() });
                self.take_out(&name).await;
            }
        }
    }

    async fn take_out(&self, name: &str) {
        if let Err(error) = self.node.remove(name).await {
            tracing::warn!(
                driver = name,
                error = &error as &dyn std::error::Error,
                "cannot unregister the driver"
            );
        }
    }

    fn notify(&self, event: PluginEvent) {
        // The receiver is gone when the agent stops; `run` ends by it too.
        let _ = self.events.send(event);
    }
}

/// Retries until it succeeds, or until the socket changes after a failure. An attempt in progress is never
/// interrupted, so that the content of CSINode is known.
async fn register_until_done(path: PathBuf, dial: Dial, node: Arc<NodeInfo>, hurry: Arc<Notify>) -> Attempt {
    let mut written_driver = None;
    let mut delay = FIRST_RETRY;
    loop {
        match register(&path, &dial, &node, &mut written_driver).await {
            Ok(driver) => return Attempt { path, driver: Some(driver), written_driver },
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(socket = %path.display(), error, "registration failed, retrying");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = hurry.notified() => return Attempt { path, driver: None, written_driver },
        }
        delay = (delay * 2).min(LONGEST_RETRY);
    }
}

/// `told` is set once CSINode contains the driver.
async fn register(
    socket: &Path,
    dial: &Dial,
    node: &NodeInfo,
    written_driver: &mut Option<String>,
) -> Result<RegisteredDriver, RegistrationError> {
    let mut plugin = protocol::Plugin::connect(socket).await?;
    let info = plugin.info().await?;
    let result = match plan::check(&info.r#type, &info.name, &info.supported_versions) {
        Ok(()) => introduce(&info, dial, node).await,
        Err(refusal) => Err(refusal.into()),
    };
    if let Ok(driver) = &result {
        *written_driver = Some(driver.info.name.clone());
    }
    plugin.notify(result.as_ref().err().map(ToString::to_string)).await?;
    result
}

/// Requests the driver's capabilities and node info, and writes CSINode and Node.
async fn introduce(
    plugin: &protocol::v1::PluginInfo,
    dial: &Dial,
    node: &NodeInfo,
) -> Result<RegisteredDriver, RegistrationError> {
    let name = plugin.name.clone();
    // Named before it is cloned, so that every record of the tap has the driver's name.
    let driver = dial(Path::new(plugin.endpoint.trim_start_matches("unix://"))).named(&plugin.name);
    let info = driver_info(&driver, &name).await?;
    let capabilities = driver.node().node_get_capabilities(v1::NodeGetCapabilitiesRequest {}).await;
    let capabilities = capabilities.map_err(failed(&name, "NodeGetCapabilities"))?.into_inner();
    node.add(&info).await.map_err(|source| RegistrationError::NodeInfo { name, source })?;
    Ok(RegisteredDriver { driver, info, capabilities: NodeCapabilities::new(&capabilities) })
}

/// Requests the driver's node info.
async fn driver_info(driver: &Driver, name: &str) -> Result<DriverInfo, RegistrationError> {
    let answer = driver.node().node_get_info(v1::NodeGetInfoRequest {}).await;
    let answer = answer.map_err(failed(name, "NodeGetInfo"))?.into_inner();
    if answer.node_id.is_empty() {
        return Err(Refusal::NoNodeId { name: name.to_owned() }.into());
    }
    Ok(DriverInfo {
        name: name.to_owned(),
        node_id: answer.node_id,
        topology: answer
            .accessible_topology
            .map(|topology| topology.segments)
            .unwrap_or_default()
            .into_iter()
            .collect(),
        max_volumes: answer.max_volumes_per_node,
    })
}

fn failed(name: &str, call: &'static str) -> impl FnOnce(tonic::Status) -> RegistrationError {
    let name = name.to_owned();
    move |status| RegistrationError::Driver { name, call, status: Box::new(status) }
}
