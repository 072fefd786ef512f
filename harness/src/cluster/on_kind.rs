//! A cluster of kind with our components on it: what `--cluster kind` runs on.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use claimcheck_informer::{Kind, World};
use kube::{Client, ResourceExt};
use tracing::{error, info, warn};

use super::{
    kind::{KindCluster, KindError, KindOptions},
    kind_disrupt::Components,
    objects,
    observer::{Observer, On, Seen, WaitError},
    real::{ClassChoice, Real, RealError},
};
use crate::{
    client::{self, ClientError},
    install::{self, InstallError},
};

/// The class whose driver is tried: ours.
const CLASS: &str = "claimcheck-directory";

/// As the manifests name them.
pub(super) const COMPONENTS: Components = Components {
    namespace: install::NAMESPACE,
    controllers: install::CONTROLLERS,
    replicas: install::REPLICAS,
    driver: install::DRIVER,
};

/// Why there is no cluster of kind to run on.
#[derive(Debug, thiserror::Error)]
pub enum OnKindError {
    /// Its nodes do not come up.
    #[error(transparent)]
    Nodes(#[from] KindError),
    /// Its kubeconfig is gone.
    #[error("the kubeconfig {} cannot be read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its kubeconfig does not do.
    #[error("the kubeconfig that kind wrote cannot be used")]
    Client(#[from] ClientError),
    /// Our components do not run.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The kubelets do not know the driver.
    #[error(transparent)]
    Registration(#[from] WaitError),
    /// It cannot be used.
    #[error(transparent)]
    Reach(#[from] RealError),
}

impl Real {
    /// Brings up a cluster of kind with our components. Dropping the future deletes what there is by then.
    ///
    /// # Errors
    /// [`OnKindError`] says what is missing or went wrong. The nodes' logs are then in the folder for them, and
    /// nothing is left, unless the cluster is to be kept.
    pub async fn on_kind(options: &KindOptions, components: &install::Options) -> Result<Self, OnKindError> {
        let kind = Box::pin(KindCluster::up(options)).await?;
        match Box::pin(equip(&kind.kubeconfig(), components)).await {
            Ok(real) => Ok(real.made_of(kind)),
            Err(error) => {
                end(kind, true).await;
                Err(error)
            }
        }
    }
}

/// Ends a cluster of kind: with all that it has to say, if something went wrong.
pub(super) async fn end(kind: KindCluster, failed: bool) {
    if failed {
        collect(&kind).await;
    }
    if let Err(left) = kind.down().await {
        error!("{left}");
    }
}

/// The logs of nodes, components and pods, and the objects; as far as they can be had.
async fn collect(kind: &KindCluster) {
    match kind.collect().await {
        Ok(folder) => info!(folder = %folder.display(), "what the nodes have said is collected"),
        Err(error) => warn!(%error, "what the nodes have said cannot be collected"),
    }
    match connect(&kind.kubeconfig()).await {
        Ok(client) => objects::write(&client, &kind.logs().join("objects")).await,
        Err(error) => warn!(%error, "the cluster's objects cannot be collected"),
    }
}

async fn connect(kubeconfig: &Path) -> Result<Client, OnKindError> {
    let text = fs::read_to_string(kubeconfig)
        .map_err(|source| OnKindError::Read { path: kubeconfig.to_owned(), source })?;
    Ok(client::client(&text).await?)
}

/// Installs our components, and waits until pods can use them.
async fn equip(kubeconfig: &Path, components: &install::Options) -> Result<Real, OnKindError> {
    let client = connect(kubeconfig).await?;
    info!(variant = %components.variant, "our components are installed");
    install::install(&client, components).await?;
    let observer = Observer::start(client.clone()).await;
    let on = [On::Any(Kind::Node), On::Any(Kind::CsiNode)];
    let driver = &components.driver_name;
    let what = format!("driver {driver} to be registered on all nodes");
    observer.until(&what, components.patience, &on, |world| registered(world, driver)).await?;
    Ok(Real::of(client, observer, &ClassChoice::Named(CLASS.to_owned()))?)
}

/// Whether all kubelets know the driver.
fn registered(world: &World, driver: &str) -> Seen<()> {
    let knows = |node: &str| {
        let csi_node = world.csi_nodes.named(node);
        csi_node.is_some_and(|csi_node| csi_node.spec.drivers.iter().any(|known| known.name == driver))
    };
    let mut without: Vec<_> =
        world.nodes.iter().map(|node| node.name_any()).filter(|node| !knows(node)).collect();
    without.sort();
    if without.is_empty() { Seen::Yes(()) } else { Seen::NotYet(format!("not on {}", without.join(", "))) }
}
