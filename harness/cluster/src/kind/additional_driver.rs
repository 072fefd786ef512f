//! Additional drivers on a kind cluster: deployed once, when the first case requests one, and removed after the last one.
//! Changes to a driver's limits by one case would affect another, so cases use them exclusively, unless they share one.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::Kind;
use kube::Client;
use tokio::sync::{Mutex, OnceCell, RwLock};

use crate::{
    additional_driver::{AdditionalDriver, DeployError, DriverLease, declare},
    observer::{Observer, Trigger},
    real_nodes::components::registered,
};
use claimcheck_deploy::install::{self, additional_driver_objects};

/// The additional drivers of a cluster, by name.
#[derive(Debug, Default)]
pub(super) struct AdditionalDrivers(Mutex<BTreeMap<&'static str, Deployed>>);

/// A driver, once it is deployed: the lock grants its use.
type Deployed = Arc<OnceCell<Arc<RwLock<()>>>>;

impl AdditionalDrivers {
    /// Deploys a driver, unless it exists already, and waits for its use.
    ///
    /// # Errors
    /// It does not start, or is not registered on all nodes in time.
    pub(super) async fn deploy(
        &self,
        client: &Client,
        observer: &Observer,
        options: &install::Options,
        expected: &AdditionalDriver,
    ) -> Result<DriverLease, DeployError> {
        // Other cases may deploy other drivers meanwhile.
        let deployed = self.0.lock().await.entry(expected.name).or_default().clone();
        let lease = deployed.get_or_try_init(|| start(client, observer, options, expected)).await?;
        Ok(DriverLease::wait(lease.clone(), expected.shared).await)
    }

    /// Removes a driver; its CSIDriver object remains.
    pub(super) async fn end(&self, client: &Client, options: &install::Options, name: &'static str) {
        if self.0.lock().await.remove(name).is_some() {
            remove(client, options, name).await;
        }
    }

    /// Removes all of them, if the cluster is kept.
    pub(super) async fn remove(self, client: &Client, options: &install::Options) {
        for name in self.0.into_inner().into_keys() {
            remove(client, options, name).await;
        }
    }
}

async fn remove(client: &Client, options: &install::Options, name: &'static str) {
    let driver = install::AdditionalDriver { name, args: &[], attacher: true };
    let objects = additional_driver_objects(options, driver);
    if let Err(error) = install::remove_objects(client, options, objects).await {
        tracing::error!(%error, name, "an additional driver was not removed");
    }
}

async fn start(
    client: &Client,
    observer: &Observer,
    options: &install::Options,
    expected: &AdditionalDriver,
) -> Result<Arc<RwLock<()>>, DeployError> {
    let name = expected.name;
    declare(client, expected).await?;
    let driver = install::AdditionalDriver { name, args: expected.args, attacher: expected.attacher };
    install::install_objects(client, options, additional_driver_objects(options, driver)).await?;
    let on = [Trigger::Any(Kind::Node), Trigger::Any(Kind::CsiNode)];
    let what = format!("driver {name} to be registered on all nodes");
    observer.until(&what, options.timeout, &on, |world| registered(world, name)).await?;
    Ok(Arc::default())
}
