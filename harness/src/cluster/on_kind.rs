//! A cluster of kind with our components on it: what `--cluster kind` runs on.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kube::Client;
use tracing::{error, info, warn};

use super::{
    equip::{EquipError, equip},
    kind::{KindCluster, KindError, KindOptions},
    objects,
    real::{ClassChoice, Real},
};
use crate::{
    client::{self, ClientError},
    install,
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
    /// Our components do not work there.
    #[error(transparent)]
    Equip(#[from] EquipError),
}

impl Real {
    /// Brings up a cluster of kind with our components. Dropping the future deletes what there is by then.
    ///
    /// # Errors
    /// [`OnKindError`] says what is missing or went wrong. The nodes' logs are then in the folder for them, and
    /// nothing is left, unless the cluster is to be kept.
    pub async fn on_kind(options: &KindOptions, components: &install::Options) -> Result<Self, OnKindError> {
        let kind = Box::pin(KindCluster::up(options)).await?;
        let equipped = async {
            let client = connect(&kind.kubeconfig()).await?;
            Ok::<_, OnKindError>(equip(client, components, &ClassChoice::Default).await?)
        };
        match Box::pin(equipped).await {
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
