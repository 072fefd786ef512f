//! Installs the built-in components on a cluster with real nodes, and waits until pods can use them.

use claimcheck_informer::{Kind, World};
use kube::{Client, ResourceExt};
use tracing::info;

use super::{
    kind_disrupt::Components,
    observer::{Observer, On, Seen, WaitError},
    real::{ClassChoice, Real, RealError, is_ready},
    unregistered::{Said, by_registrars},
};
use claimcheck_deploy::install::{self, InstallError, nodes::takes_driver};

/// The default class under test: that of the built-in driver.
pub(super) const CLASS: &str = "claimcheck-directory";

/// The names in the manifests.
pub(super) const COMPONENTS: Components = Components {
    namespace: install::NAMESPACE,
    controllers: install::CONTROLLERS,
    replicas: install::REPLICAS,
    driver: install::DRIVER,
};

/// The components could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum EquipError {
    /// They do not run.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The driver is not registered with all kubelets.
    #[error("{wait}{}", said.iter().map(|said| format!("\n  {said}")).collect::<String>())]
    Registration {
        /// The timeout, and the nodes without the driver.
        wait: WaitError,
        /// Those nodes.
        nodes: Vec<String>,
        /// The relevant log lines of these nodes.
        said: Vec<Said>,
    },
    /// They cannot be used.
    #[error(transparent)]
    Reach(#[from] RealError),
}

/// Installs the components, and waits until pods can use them.
pub(super) async fn equip(
    client: Client,
    components: &install::Options,
    class: &ClassChoice,
) -> Result<Real, EquipError> {
    info!(variant = %components.variant, "installed the components");
    install::install(&client, components).await?;
    let observer = Observer::start(client.clone()).await;
    let on = [On::Any(Kind::Node), On::Any(Kind::CsiNode)];
    let driver = &components.driver_name;
    let what = format!("driver {driver} to be registered on all nodes");
    let registered = observer.until(&what, components.patience, &on, |world| registered(world, driver));
    if let Err(wait) = registered.await {
        let nodes = observer.look(|world| lacking(world, driver));
        let said = by_registrars(&client, components, &nodes).await;
        return Err(EquipError::Registration { wait, nodes, said });
    }
    let ours = ClassChoice::Named(CLASS.to_owned());
    let class = if *class == ClassChoice::Default { &ours } else { class };
    Ok(Real::of(client, observer, class)?)
}

/// Whether the driver is registered with all working kubelets that require it.
pub(super) fn registered(world: &World, driver: &str) -> Seen<()> {
    match lacking(world, driver) {
        nodes if nodes.is_empty() => Seen::Yes(()),
        nodes => Seen::NotYet(format!("not on {}", nodes.join(", "))),
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
