//! Installs the built-in components on a cluster with real nodes, and waits until pods can use them.

use claimcheck_csi::tap::KnownSecrets;
use claimcheck_informer::{Kind, World};
use kube::{Api, Client, ResourceExt};
use tracing::info;

use super::{
    ClassChoice, Real, RealError,
    controllers::Components,
    is_ready,
    unregistered::{NodeLogLine, by_registrars},
};
use crate::{
    component_logs,
    log_search::{self, LogSearch},
    observer::{Check, Observer, Trigger, WaitError},
};
use claimcheck_deploy::install::{self, InstallError, nodes::takes_driver};

/// The default class under test: that of the built-in driver.
pub(crate) const CLASS: &str = "claimcheck-directory";

/// The names in the manifests.
pub(crate) const COMPONENTS: Components = Components {
    namespace: install::NAMESPACE,
    controllers: install::CONTROLLERS,
    replicas: install::REPLICAS,
    driver: install::DRIVER,
};

/// The components could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallComponentsError {
    /// They do not run.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The driver is not registered with all kubelets.
    #[error("{wait}{}", log_lines.iter().map(|log_lines| format!("\n  {log_lines}")).collect::<String>())]
    Registration {
        /// The timeout, and the nodes without the driver.
        wait: WaitError,
        /// Those nodes.
        nodes: Vec<String>,
        /// The relevant log lines of these nodes.
        log_lines: Vec<NodeLogLine>,
    },
    /// They cannot be used.
    #[error(transparent)]
    Reach(#[from] RealError),
}

/// Searches the logs of their pods.
pub(crate) async fn search_logs(client: &Client, known: &KnownSecrets) -> LogSearch {
    let pods = (Api::namespaced(client.clone(), COMPONENTS.namespace), component_logs::COMPONENTS);
    log_search::search_pods(client, pods, known, |_| true).await
}

/// Installs the components, and waits until pods can use them.
pub(crate) async fn install_components(
    client: Client,
    components: &install::Options,
    class: &ClassChoice,
) -> Result<Real, InstallComponentsError> {
    info!(variant = %components.variant, "installed the components");
    install::install(&client, components).await?;
    let observer = Observer::start(client.clone()).await;
    let on = [Trigger::Any(Kind::Node), Trigger::Any(Kind::CsiNode)];
    let driver = &components.driver_name;
    let what = format!("driver {driver} to be registered on all nodes");
    let registered = observer.until(&what, components.timeout, &on, |world| registered(world, driver));
    if let Err(wait) = registered.await {
        let nodes = observer.look(|world| lacking(world, driver));
        let log_lines = by_registrars(&client, components, &nodes).await;
        return Err(InstallComponentsError::Registration { wait, nodes, log_lines });
    }
    let builtin = ClassChoice::Named(CLASS.to_owned());
    let class = if *class == ClassChoice::Default { &builtin } else { class };
    Ok(Real::of(client, observer, class)?)
}

/// Whether the driver is registered with all working kubelets that require it.
pub(crate) fn registered(world: &World, driver: &str) -> Check<()> {
    match lacking(world, driver) {
        nodes if nodes.is_empty() => Check::Yes(()),
        nodes => Check::NotYet(format!("not on {}", nodes.join(", "))),
    }
}

/// The nodes on which the driver is not registered, of the working ones that require it.
fn lacking(world: &World, driver: &str) -> Vec<String> {
    let knows = |node: &str| {
        let csi_node = world.csi_nodes.named(node);
        csi_node.is_some_and(|csi_node| csi_node.spec.drivers.iter().any(|known| known.name == driver))
    };
    let mut without: Vec<_> = world
        .nodes
        .iter()
        .filter(|node| is_ready(node) && takes_driver(node))
        .map(|node| node.name_any())
        .filter(|node| !knows(node))
        .collect();
    without.sort();
    without
}
