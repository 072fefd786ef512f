//! Additional drivers on virtual nodes: processes, as those of the driver under test.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use claimcheck_component::accounts::ACCOUNTS_ENV;
use claimcheck_controllers::Name;
use claimcheck_csi::{Driver as DriverClient, Endpoint, tap::Tap};
use claimcheck_substrate::{Capabilities, STATE_DIR};
use kube::Client;
use tokio::{runtime::Handle, sync::RwLock};

use super::{
    common::Common,
    controllers::SIDECAR_FLAGS,
    node::Node,
    node_driver::{NodeDriver, NodeDriverError, Plugin, Registrar},
    supervisor::Supervised,
    users::OF_ADDITIONAL_DRIVERS,
};
use crate::{
    additional_driver::{AdditionalDriver, DeployError, DriverLease, declare},
    disruption::Disruption,
};
use claimcheck_vendor::{
    deployment::ProcessCredentials,
    driver_command::{BUILTIN, DriverCommand},
};

/// How long the controllers of an unused driver keep running for the next case that requests it.
const IDLE: Duration = Duration::from_millis(500);

/// A running additional driver. Dropping it kills its processes.
pub(super) struct RunningDriver {
    pub on_nodes: Vec<NodeDriver>,
    pub controllers: Arc<Supervised>,
    pub plugin: Plugin,
    pub client: DriverClient,
    lock: Arc<RwLock<()>>,
    shared: bool,
}

/// Stops the controllers of a driver, when dropped, unless the driver is used again soon.
#[derive(Debug)]
struct StopWhenIdle {
    lock: Arc<RwLock<()>>,
    controllers: Arc<Supervised>,
    runtime: Handle,
}

impl Drop for StopWhenIdle {
    fn drop(&mut self) {
        let (lock, controllers) = (self.lock.clone(), self.controllers.clone());
        self.runtime.spawn(async move {
            tokio::time::sleep(IDLE).await;
            // The driver may be in use again, which requires them.
            if let Ok(_held) = lock.try_write() {
                controllers.disrupt(Disruption::Stop).await;
            }
        });
    }
}

impl RunningDriver {
    /// Starts the driver on all nodes, and the controllers that call it.
    pub(super) async fn start(
        common: &Common,
        nodes: &[Arc<Node>],
        client: &Client,
        expected: &AdditionalDriver,
    ) -> Result<Self, DeployError> {
        let name = expected.name;
        declare(client, expected).await?;
        let plugin = Plugin {
            directory: name.to_owned(),
            command: command(expected),
            controller: None,
            state_dir: sibling_directory(&common.plugin.state_dir, name),
            registrar: Registrar::Builtin,
            credentials: ProcessCredentials::default(),
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
        let mut args: Vec<OsString> = vec!["controller".into()];
        let controllers = OF_ADDITIONAL_DRIVERS.into_iter();
        let controllers = controllers.filter(|name| *name != Name::Attacher || expected.attacher);
        args.extend(controllers.map(|name| OsString::from(name.as_str())));
        args.extend(["--kubeconfig".into(), common.accounts.kubeconfig.clone().into()]);
        args.extend(["--csi-address".into(), socket.clone().into()]);
        args.extend(SIDECAR_FLAGS.map(Into::into));
        args.extend(common.metrics_args(&format!("controllers-{name}"), None));
        let mut spec = common.component(format!("controllers {name}"), args, None);
        spec.env.push((ACCOUNTS_ENV.to_owned(), common.accounts.tokens.clone().into()));
        spec.capabilities = Capabilities::Files;
        let controllers = Arc::new(common.start(spec)?);
        let client = DriverClient::new(Endpoint::Unix(socket), Tap::none(), "harness");
        Ok(Self { on_nodes, controllers, plugin, client, lock: Arc::default(), shared: expected.shared })
    }

    /// The use of the driver, once that is possible.
    pub(super) fn lease(&self) -> impl Future<Output = DriverLease> + Send + use<> {
        lease(self.lock.clone(), self.shared, self.controllers.clone())
    }
}

/// Waits until the driver can be used, and starts its controllers.
async fn lease(lock: Arc<RwLock<()>>, shared: bool, controllers: Arc<Supervised>) -> DriverLease {
    let lease = DriverLease::wait(lock.clone(), shared).await;
    controllers.disrupt(Disruption::Start).await;
    lease.before(StopWhenIdle { lock, controllers, runtime: Handle::current() })
}

/// The built-in driver under another name.
fn command(expected: &AdditionalDriver) -> DriverCommand {
    let named = ["--driver-name", expected.name];
    let words = BUILTIN.iter().chain(&named).chain(expected.args);
    DriverCommand::OwnProgram(words.map(|&word| word.to_owned()).collect())
}

/// A separate state directory, which is deleted with the run, and is distinct from those of other runs.
fn sibling_directory(state_dir: &Path, name: &str) -> PathBuf {
    let run = state_dir.file_name().unwrap_or_default().display().to_string();
    Path::new(STATE_DIR).join(format!("{run}-{name}"))
}

#[cfg(test)]
mod tests {
    use claimcheck_substrate::ProcessSpec;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_controllers_of_a_driver_run_while_it_is_leased() {
        let folder = tempfile::tempdir().unwrap();
        let spec = ProcessSpec {
            name: "controllers".to_owned(),
            program: "sleep".into(),
            args: vec!["600".into()],
            env: Vec::new(),
            log: folder.path().join("controllers.log"),
            filter: None,
            namespace: None,
            run_directory: None,
            capabilities: Capabilities::All,
        };
        let (sender, _ends) = tokio::sync::mpsc::unbounded_channel();
        let controllers = Arc::new(Supervised::start(spec, sender).unwrap());
        let lock = Arc::<RwLock<()>>::default();
        let lease = || lease(lock.clone(), false, controllers.clone());
        let shared = || super::lease(lock.clone(), true, controllers.clone());

        let first_process = controllers.pid();
        drop(lease().await);
        let next = lease().await;
        tokio::time::sleep(2 * IDLE).await;
        assert_eq!(controllers.pid(), first_process, "the driver was used again soon enough");
        drop(next);
        while controllers.pid().is_some() {
            tokio::time::sleep(IDLE / 10).await;
        }
        let (last, other) = (shared().await, shared().await);
        let process = controllers.pid();
        assert!(process.is_some() && process != first_process, "started again");
        drop(last);
        tokio::time::sleep(2 * IDLE).await;
        assert_eq!(controllers.pid(), process, "another case uses the driver");
        drop(other);
    }
}
