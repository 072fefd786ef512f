//! Puts our components on a cluster with real nodes, and waits until pods can use them.

use claimcheck_informer::{Kind, World};
use kube::{Client, ResourceExt};
use tracing::info;

use super::{
    kind_disrupt::Components,
    observer::{Observer, On, Seen, WaitError},
    real::{ClassChoice, Real, RealError, is_ready},
};
use crate::install::{self, InstallError};

/// The class whose driver is tried unless another is named: ours.
pub(super) const CLASS: &str = "claimcheck-directory";

/// As the manifests name them.
pub(super) const COMPONENTS: Components = Components {
    namespace: install::NAMESPACE,
    controllers: install::CONTROLLERS,
    replicas: install::REPLICAS,
    driver: install::DRIVER,
};

/// Why a cluster does not have our components.
#[derive(Debug, thiserror::Error)]
pub enum EquipError {
    /// They do not run.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The kubelets do not know the driver.
    #[error(transparent)]
    Registration(#[from] WaitError),
    /// They cannot be used.
    #[error(transparent)]
    Reach(#[from] RealError),
}

/// Installs our components, and waits until pods can use them.
pub(super) async fn equip(
    client: Client,
    components: &install::Options,
    class: &ClassChoice,
) -> Result<Real, EquipError> {
    info!(variant = %components.variant, "our components are installed");
    install::install(&client, components).await?;
    let observer = Observer::start(client.clone()).await;
    let on = [On::Any(Kind::Node), On::Any(Kind::CsiNode)];
    let driver = &components.driver_name;
    let what = format!("driver {driver} to be registered on all nodes");
    observer.until(&what, components.patience, &on, |world| registered(world, driver)).await?;
    let ours = ClassChoice::Named(CLASS.to_owned());
    let class = if *class == ClassChoice::Default { &ours } else { class };
    Ok(Real::of(client, observer, class)?)
}

/// Whether all kubelets that work, and have the system that our images are for, know the driver.
fn registered(world: &World, driver: &str) -> Seen<()> {
    let knows = |node: &str| {
        let csi_node = world.csi_nodes.named(node);
        csi_node.is_some_and(|csi_node| csi_node.spec.drivers.iter().any(|known| known.name == driver))
    };
    let is_linux = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get("kubernetes.io/os").is_none_or(|system| system == "linux")
    };
    let mut without: Vec<_> = world
        .nodes
        .iter()
        .filter(|node| is_ready(node) && is_linux(node.labels()))
        .map(|node| node.name_any())
        .filter(|node| !knows(node))
        .collect();
    without.sort();
    if without.is_empty() { Seen::Yes(()) } else { Seen::NotYet(format!("not on {}", without.join(", "))) }
}
