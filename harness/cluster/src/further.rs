//! Drivers beside the cluster's own: ours, with other abilities than it has by default, for cases about
//! what Kubernetes does with such a driver.
//!
//! Each is deployed once, when the first case asks for it, and stays until the cluster goes; but its controllers
//! run only while a case has it, since they are told of everything that happens in the cluster. Its name is fixed,
//! so that metrics do not gain a series per case.

use std::{ffi::OsString, path::Path, sync::Arc, time::Duration};

use claimcheck_csi::{Driver as DriverClient, Endpoint, tap::Tap};
use claimcheck_substrate::{STATE_DIR, SpawnError};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::{
    runtime::Handle,
    sync::{Mutex, OwnedMutexGuard},
};

use super::{
    driver_command::{BUILTIN, DriverCommand},
    node::{Common, Node},
    node_driver::{NodeDriver, NodeDriverError, Plugin},
    supervisor::{Disruption, Supervised},
};

/// How long the controllers of a driver that nobody has are kept for the next who wants it.
const IDLE: Duration = Duration::from_millis(500);

/// What a further driver is to be.
#[derive(Clone, Debug)]
pub struct FurtherDriver {
    /// Its name, which also tells it from others.
    pub name: &'static str,
    /// Arguments of our driver beside endpoint, node and state directory. `{node_id}` stands for the node.
    pub args: &'static [&'static str],
    /// Whether an attacher runs for it.
    pub attacher: bool,
    /// How it wants to be treated; no CSIDriver object is installed where absent.
    pub spec: Option<CSIDriverSpec>,
}

/// Why a further driver is not there.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// A process cannot be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It cannot be started on a node.
    #[error("driver {name} does not start on {node}")]
    Node {
        /// The driver.
        name: &'static str,
        /// The node.
        node: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Its pods do not run.
    #[error(transparent)]
    Pods(#[from] claimcheck_deploy::install::InstallError),
    /// Its CSIDriver object cannot be installed.
    #[error("the CSIDriver object of {name} cannot be made")]
    Install {
        /// The driver.
        name: &'static str,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// Somebody's cluster is not ours to deploy drivers in.
    #[error("this cluster takes no further drivers: use --cluster embedded or kind")]
    NotHere,
    /// It is not registered in time.
    #[error(transparent)]
    NotReady(#[from] super::WaitError),
}

/// A further driver that runs. Dropping it kills its processes.
pub(super) struct Further {
    pub on_nodes: Vec<NodeDriver>,
    pub controllers: Arc<Supervised>,
    pub plugin: Plugin,
    pub client: DriverClient,
    turn: Arc<Mutex<()>>,
}

/// A further driver in a case's hands, with its controllers running: what one case does to a driver's limits would
/// surprise another. Dropping it lets the next one have it.
#[derive(Debug)]
pub struct Turn {
    _held: OwnedMutexGuard<()>,
    _then: Option<StopWhenIdle>,
}

/// Stops the controllers of a driver, when dropped, unless somebody has the driver soon.
#[derive(Debug)]
struct StopWhenIdle {
    turn: Arc<Mutex<()>>,
    controllers: Arc<Supervised>,
    runtime: Handle,
}

impl Turn {
    /// Waits for it, and starts the driver's controllers.
    pub(super) async fn of(turn: Arc<Mutex<()>>, controllers: Arc<Supervised>) -> Self {
        let held = turn.clone().lock_owned().await;
        controllers.disrupt(Disruption::Start).await;
        let then = StopWhenIdle { turn, controllers, runtime: Handle::current() };
        Self { _held: held, _then: Some(then) }
    }

    /// Waits for that of a driver whose controllers always run.
    pub(super) async fn shared(turn: Arc<Mutex<()>>) -> Self {
        Self { _held: turn.lock_owned().await, _then: None }
    }
}

impl Drop for StopWhenIdle {
    fn drop(&mut self) {
        let (turn, controllers) = (self.turn.clone(), self.controllers.clone());
        self.runtime.spawn(async move {
            tokio::time::sleep(IDLE).await;
            // Whoever has it by then needs them.
            if let Ok(_held) = turn.try_lock() {
                controllers.disrupt(Disruption::Stop).await;
            }
        });
    }
}

impl Further {
    /// Starts the driver on all nodes, and the controllers that speak to it.
    pub(super) async fn start(
        common: &Common,
        nodes: &[Node],
        client: &Client,
        wanted: &FurtherDriver,
    ) -> Result<Self, DeployError> {
        let name = wanted.name;
        declare(client, wanted).await?;
        let plugin = Plugin {
            directory: name.to_owned(),
            command: command(wanted),
            controller: None,
            state_dir: beside(&common.plugin.state_dir, name),
        };
        let on_nodes = nodes.iter().map(|node| {
            let started = NodeDriver::start(common, &node.paths, node.namespace.clone(), &plugin);
            started.map_err(|source: NodeDriverError| DeployError::Node {
                name,
                node: node.paths.name.clone(),
                source: Box::new(source),
            })
        });
        let on_nodes = on_nodes.collect::<Result<Vec<_>, _>>()?;
        let socket = plugin.socket(&nodes[0].paths);
        let mut args: Vec<OsString> = vec!["controller".into(), "provisioner".into(), "resizer".into()];
        args.extend(wanted.attacher.then(|| "attacher".into()));
        args.extend(["--kubeconfig".into(), common.kubeconfig.clone().into()]);
        args.extend(["--csi-address".into(), socket.clone().into()]);
        args.extend(common.metrics_args(&format!("controllers-{name}"), None));
        let spec = common.component(format!("controllers {name}"), args, None);
        let controllers = Arc::new(common.start(spec)?);
        let client = DriverClient::new(Endpoint::Unix(socket), Tap::none(), "harness");
        Ok(Self { on_nodes, controllers, plugin, client, turn: Arc::default() })
    }

    /// What to wait for its turn with.
    pub(super) fn turn(&self) -> impl Future<Output = Turn> + Send + use<> {
        Turn::of(self.turn.clone(), self.controllers.clone())
    }
}

/// Makes the driver's CSIDriver object, if it is to have one.
pub(super) async fn declare(client: &Client, wanted: &FurtherDriver) -> Result<(), DeployError> {
    let (name, Some(spec)) = (wanted.name, &wanted.spec) else { return Ok(()) };
    let mut object: CSIDriver =
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": {} })).expect("a CSIDriver");
    object.spec = spec.clone();
    match Api::all(client.clone()).create(&PostParams::default(), &object).await {
        // By an earlier try that went wrong later.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop).map_err(|source| DeployError::Install { name, source }),
    }
}

/// Our driver under another name.
fn command(wanted: &FurtherDriver) -> DriverCommand {
    let named = ["--driver-name", wanted.name];
    let words = BUILTIN.iter().chain(&named).chain(wanted.args);
    DriverCommand::Ourselves(words.map(|&word| word.to_owned()).collect())
}

/// A state directory of its own, which ends with the run as the first does, and is told from other runs'.
fn beside(state_dir: &Path, name: &str) -> std::path::PathBuf {
    let run = state_dir.file_name().unwrap_or_default().display().to_string();
    Path::new(STATE_DIR).join(format!("{run}-{name}"))
}

#[cfg(test)]
mod tests {
    use claimcheck_substrate::ProcessSpec;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_controllers_of_a_driver_run_while_somebody_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let spec = ProcessSpec {
            name: "controllers".to_owned(),
            program: "sleep".into(),
            args: vec!["600".into()],
            env: Vec::new(),
            log: folder.path().join("controllers.log"),
            namespace: None,
        };
        let (tell, _ends) = tokio::sync::mpsc::unbounded_channel();
        let controllers = Arc::new(Supervised::start(spec, tell).unwrap());
        let lock = Arc::<Mutex<()>>::default();
        let turn = || Turn::of(lock.clone(), controllers.clone());

        let first_process = controllers.pid();
        drop(turn().await);
        let next = turn().await;
        tokio::time::sleep(2 * IDLE).await;
        assert_eq!(controllers.pid(), first_process, "the next one had it soon enough");
        drop(next);
        while controllers.pid().is_some() {
            tokio::time::sleep(IDLE / 10).await;
        }
        let _last = turn().await;
        assert!(controllers.pid().is_some_and(|pid| Some(pid) != first_process), "started again");
    }
}
