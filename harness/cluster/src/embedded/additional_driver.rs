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
use tokio::{runtime::Handle, sync::Mutex};

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
    lease: Arc<Mutex<()>>,
}

/// Stops the controllers of a driver, when dropped, unless the driver is used again soon.
#[derive(Debug)]
struct StopWhenIdle {
    lease: Arc<Mutex<()>>,
    controllers: Arc<Supervised>,
    runtime: Handle,
}

impl Drop for StopWhenIdle {
    fn drop(&mut self) {
        let (lease, controllers) = (self.lease.clone(), self.controllers.clone());
        self.runtime.spawn(async move {
            tokio::time::sleep(IDLE).await;
            // The driver may be in use again, which requires them.
            if let Ok(_held) = lease.try_lock() {
                controllers.disrupt(Disruption::Stop).await;
            }
        });
    }
}

impl RunningDriver {
    /// Starts the driver on all nodes, and the controllers that call it.
    pub(super) async fn start(
        common: &Common,
        nodes: &[Node],
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
        Ok(Self { on_nodes, controllers, plugin, client, lease: Arc::default() })
    }

    /// The lock for exclusive use.
    pub(super) fn lease(&self) -> impl Future<Output = DriverLease> + Send + use<> {
        exclusive_use(self.lease.clone(), self.controllers.clone())
    }
}

/// Waits for exclusive use, and starts the driver's controllers.
async fn exclusive_use(lease: Arc<Mutex<()>>, controllers: Arc<Supervised>) -> DriverLease {
    let held = lease.clone().lock_owned().await;
    controllers.disrupt(Disruption::Start).await;
    DriverLease::new(held, StopWhenIdle { lease, controllers, runtime: Handle::current() })
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
        let lock = Arc::<Mutex<()>>::default();
        let lease = || exclusive_use(lock.clone(), controllers.clone());

        let first_process = controllers.pid();
        drop(lease().await);
        let next = lease().await;
        tokio::time::sleep(2 * IDLE).await;
        assert_eq!(controllers.pid(), first_process, "the driver was used again soon enough");
        drop(next);
        while controllers.pid().is_some() {
            tokio::time::sleep(IDLE / 10).await;
        }
        let _last = lease().await;
        assert!(controllers.pid().is_some_and(|pid| Some(pid) != first_process), "started again");
    }
}
