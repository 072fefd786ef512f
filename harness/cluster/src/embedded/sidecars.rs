//! Starts stock programs: their service accounts, a tap before the driver for each, and their processes.

use std::{path::Path, sync::Arc};

use claimcheck_csi::{
    BindError, Driver, Endpoint, NO_DEADLINE, Server, proxy,
    tap::{TAP_ENV, Tap, TapError},
};
use claimcheck_substrate::{Capabilities, KUBELET_DIR, SpawnError};
use futures::future::join_all;
use kube::Client;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::{
    common::{Common, Paths},
    node::Node,
    supervisor::Supervised,
};
use crate::disruption::Disruption;
use claimcheck_vendor::sidecars::{
    ApplyObjectError, Credentials, CredentialsError, Issuer, Program, StockSidecars, Values, apply_all,
    plan::{Placement, Role, Socket},
    unlimited_account,
};

/// The namespace of programs without a service account.
const NAMESPACE: &str = "kube-system";
/// The kubeconfig of programs without credentials: an empty one.
const NO_KUBECONFIG: &str = "/dev/null";

/// Stock programs cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartSidecarsError {
    /// An object of `--sidecar-rbac` or `--deployment` cannot be applied.
    #[error(transparent)]
    Apply(#[from] ApplyObjectError),
    /// A program has no credentials.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The socket of a tap cannot be created.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The calls cannot be recorded.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// A program cannot be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// What stock programs run on.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub common: &'a Common,
    /// The nodes; never empty.
    pub nodes: &'a [Arc<Node>],
    /// The API server.
    pub issuer: &'a Issuer,
    /// The name of the driver.
    pub driver: &'a str,
}

/// Running stock programs. Dropping it kills them.
#[derive(Debug, Default)]
pub(super) struct Sidecars {
    processes: Vec<(Role, Supervised)>,
    /// Which are refreshed.
    credentials: Vec<Credentials>,
    taps: Vec<TapTask>,
}

/// The task of a tap. Dropping it ends the task.
#[derive(Debug)]
struct TapTask(JoinHandle<()>);

impl Drop for TapTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Sidecars {
    /// Applies the accounts and roles, and the other objects of `--deployment`, before any program starts.
    ///
    /// # Errors
    /// [`StartSidecarsError`], which names the object.
    pub(super) async fn apply(client: &Client, sidecars: &StockSidecars) -> Result<(), StartSidecarsError> {
        let unlimited = sidecars.programs.iter().filter(|program| program.account.is_none());
        let unlimited = unlimited.filter(|program| program.sidecar.uses_api());
        let unlimited = unlimited.filter_map(|program| match program.sidecar.role() {
            Role::Additional(_) => Some(unlimited_account(program.sidecar.name())),
            Role::Replaces(_) => None,
        });
        let objects: Vec<Value> =
            sidecars.objects.iter().cloned().chain(unlimited.flat_map(|(_, objects)| objects)).collect();
        if objects.is_empty() {
            return Ok(());
        }
        let unknown = apply_all(client, &objects).await?;
        if !unknown.is_empty() {
            let objects = unknown.join(", ");
            tracing::warn!(
                "--deployment: not created, since the API server does not serve their kinds: {objects}"
            );
        }
        Ok(())
    }

    /// Starts the programs after [`apply`](Self::apply); the driver must respond already, since upstream's sidecars exit
    /// if its Probe fails.
    ///
    /// # Errors
    /// [`StartSidecarsError`], which names the program.
    pub(super) async fn start(
        target: Target<'_>,
        sidecars: &StockSidecars,
    ) -> Result<Self, StartSidecarsError> {
        let mut running = Self::default();
        if sidecars.programs.is_empty() {
            return Ok(running);
        }
        let tap = Tap::connect(&target.common.tap)?;
        for program in &sidecars.programs {
            running.add(target, program, &tap).await?;
        }
        Ok(running)
    }

    /// Starts one program.
    async fn add(
        &mut self,
        target: Target<'_>,
        program: &Program,
        tap: &Tap,
    ) -> Result<(), StartSidecarsError> {
        let Program { sidecar, .. } = program;
        let role = sidecar.role();
        let account = program.account();
        let credentials = match &account {
            Some(account) => {
                let name = format!("sidecar-{}", sidecar.name());
                Some(Credentials::issue(target.issuer, &name, account).await?)
            }
            None => None,
        };
        let kubeconfig =
            credentials.as_ref().map_or(&target.common.accounts.kubeconfig, |own| &own.kubeconfig);
        let namespace = account.as_ref().map_or(NAMESPACE, |account| account.namespace.as_str());
        let placement = sidecar.placement();
        let nodes = match placement {
            Placement::FirstNode => &target.nodes[..1],
            Placement::EveryNode => target.nodes,
        };
        for node in nodes {
            let socket = match role.socket() {
                Socket::Tapped => {
                    let file = format!("sidecar-{}.sock", sidecar.name());
                    self.taps.push(serve_tap(target, &node.paths, (sidecar.name(), placement), &file, tap)?);
                    target.common.plugin.in_node(&file)
                }
                Socket::Driver => target.common.plugin.socket_in_node(),
            };
            let values = Values {
                socket,
                kubeconfig: kubeconfig.clone(),
                node: node.paths.name.clone(),
                state_dir: target.common.plugin.state_dir.clone(),
                namespace: namespace.to_owned(),
                registration_dir: Path::new(KUBELET_DIR).join("plugins_registry"),
                node_root: KUBELET_DIR.into(),
            };
            let (name, pod) = match placement {
                Placement::FirstNode => {
                    (format!("sidecar {}", sidecar.name()), format!("{}-0", sidecar.name()))
                }
                Placement::EveryNode => (
                    format!("sidecar {} {}", sidecar.name(), node.paths.name),
                    format!("{}-{}", sidecar.name(), node.paths.name),
                ),
            };
            let (program, args) = sidecar.at(&values);
            let mut spec = target.common.component(name, args, Some(node.namespace.clone()));
            spec.program = program;
            spec.capabilities = match role {
                Role::Replaces(_) => Capabilities::Files,
                Role::Additional(_) => Capabilities::All,
            };
            // A built-in component in this place would record its calls a second time.
            spec.env.retain(|(variable, _)| variable != TAP_ENV);
            let variables = environment(&values, &pod, credentials.is_some());
            spec.env.extend(variables.map(|(name, value)| (name.to_owned(), value.into())));
            if let Some(credentials) = &credentials {
                credentials.give(&mut spec);
            }
            let spec = target.common.without_secrets(spec);
            self.processes.push((role, target.common.start(spec)?));
        }
        self.credentials.extend(credentials);
        Ok(())
    }

    /// All processes.
    pub(super) fn processes(&self) -> impl Iterator<Item = &Supervised> {
        self.processes.iter().map(|(_, process)| process)
    }

    /// The processes that replace a built-in component, which are to run without end.
    pub(super) fn servers(&self) -> impl Iterator<Item = &Supervised> {
        self.processes.iter().filter_map(|(role, process)| match role {
            Role::Replaces(_) => Some(process),
            Role::Additional(_) => None,
        })
    }

    /// Whether any of them replaces a sidecar of the driver's controller or the snapshot-controller.
    pub(super) fn replace_controllers(&self) -> bool {
        self.processes.iter().any(|(role, _)| role.replaces_controller())
    }

    /// Disrupts those that replace controllers. They do not have the arguments of the built-in ones, so a change of
    /// these does not apply to them.
    pub(super) async fn disrupt_controllers(&self, disruption: Disruption) {
        match disruption {
            Disruption::Kill
            | Disruption::Stop
            | Disruption::Start
            | Disruption::Pause
            | Disruption::Resume => {}
            Disruption::Configure(_) => return,
        }
        let controllers = self.processes.iter().filter(|(role, _)| role.replaces_controller());
        join_all(controllers.map(|(_, process)| process.disrupt(disruption))).await;
    }

    /// Stops all of them.
    pub(super) async fn stop(&self) {
        join_all(self.processes().map(|process| process.disrupt(Disruption::Stop))).await;
    }
}

/// The variables that the manifests of drivers set; and `KUBECONFIG`, which upstream's provisioner prefers to its
/// argument: the user's own could be that of another cluster.
///
/// `POD_NAMESPACE` is where upstream's sidecars create the Lease of `--leader-election` (`inClusterNamespace` in
/// csi-lib-utils/leaderelection), for which they have rights in that namespace only.
fn environment(values: &Values, pod: &str, has_credentials: bool) -> [(&'static str, String); 7] {
    let kubeconfig = if has_credentials { values.kubeconfig.as_path() } else { Path::new(NO_KUBECONFIG) };
    [
        ("POD_NAME", pod.to_owned()),
        ("NAMESPACE", values.namespace.clone()),
        ("POD_NAMESPACE", values.namespace.clone()),
        ("NODE_NAME", values.node.clone()),
        ("KUBE_NODE_NAME", values.node.clone()),
        ("CSI_ADDRESS", values.socket.display().to_string()),
        ("KUBECONFIG", kubeconfig.display().to_string()),
    ]
}

/// Records the calls of a program to the driver's controller service, at a socket of this name next to the driver's: that
/// of the cluster, or, for a program on every node, that of the node's driver.
fn serve_tap(
    target: Target<'_>,
    paths: &Paths,
    (sidecar, placement): (&str, Placement),
    file: &str,
    tap: &Tap,
) -> Result<TapTask, BindError> {
    let plugin = &target.common.plugin;
    let behind = Endpoint::Unix(match placement {
        Placement::FirstNode => plugin.controller_socket(paths),
        Placement::EveryNode => plugin.socket(paths),
    });
    let server = Server::bind(&plugin.outside_node(paths, file))?;
    let driver = Driver::new(behind, tap.clone(), sidecar).named(target.driver).with_deadline(NO_DEADLINE);
    let driver = driver.with_known_secrets(target.common.known_secrets.clone());
    let sidecar = sidecar.to_owned();
    Ok(TapTask(tokio::spawn(async move {
        if let Err(error) = proxy(server, &driver, std::future::pending()).await {
            tracing::error!(sidecar, %error, "cannot record the calls of the sidecar");
        }
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_those_of_the_usual_manifests() {
        let values = Values {
            socket: "/csi.sock".into(),
            kubeconfig: "/k".into(),
            node: "node-1".into(),
            state_dir: "/d".into(),
            namespace: "storage".into(),
            registration_dir: "/r".into(),
            node_root: "/kubelet".into(),
        };
        for (has_credentials, kubeconfig) in [(true, "/k"), (false, "/dev/null")] {
            let expected = [
                ("POD_NAME", "attacher-0"),
                ("NAMESPACE", "storage"),
                ("POD_NAMESPACE", "storage"),
                ("NODE_NAME", "node-1"),
                ("KUBE_NODE_NAME", "node-1"),
                ("CSI_ADDRESS", "/csi.sock"),
                ("KUBECONFIG", kubeconfig),
            ];
            let expected = expected.map(|(name, value)| (name, value.to_owned()));
            assert_eq!(environment(&values, "attacher-0", has_credentials), expected);
        }
    }
}
