//! Additional drivers: the built-in driver with other capabilities than by default, for cases about
//! Kubernetes' behaviour with such a driver.
//!
//! Each is deployed once, when the first case requests it, and runs until the cluster is deleted; but its controllers
//! run only while a case uses it, since they receive all events of the cluster. Its name is fixed,
//! so that metrics do not get a series per case.

use std::{fmt, sync::Arc};

use claimcheck_substrate::SpawnError;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::sync::RwLock;

use crate::observer::WaitError;

/// The parameters of an additional driver.
#[derive(Clone, Debug)]
pub struct AdditionalDriver {
    /// Its name, which also identifies it.
    pub name: &'static str,
    /// Arguments of the built-in driver, in addition to endpoint, node and state directory. `{node_id}` stands for the
    /// node.
    pub args: &'static [&'static str],
    /// Whether an attacher runs for it.
    pub attacher: bool,
    /// Whether cases use it at the same time: none of them changes what it does for the others.
    pub shared: bool,
    /// The settings of its CSIDriver object; none is installed if absent.
    pub spec: Option<CSIDriverSpec>,
}

/// An additional driver cannot be deployed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// A process cannot be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It cannot be started on a node.
    #[error("cannot start driver {name} on {node}")]
    Node {
        /// The driver.
        name: &'static str,
        /// The node.
        node: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Its pods do not run.
    #[error(transparent)]
    Pods(#[from] claimcheck_deploy::install::InstallError),
    /// Its CSIDriver object cannot be installed.
    #[error("cannot create the CSIDriver object of {name}")]
    Install {
        /// The driver.
        name: &'static str,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// No additional drivers are deployed to existing clusters.
    #[error("this cluster does not support additional drivers: use --cluster embedded or kind")]
    NotHere,
    /// It is not registered in time.
    #[error(transparent)]
    NotReady(#[from] WaitError),
}

/// The use of an additional driver, with its controllers running: exclusive, since changes to a driver's limits by one case
/// would affect another, unless the driver is [shared](AdditionalDriver::shared). Dropping it releases the driver.
#[derive(Debug)]
pub struct DriverLease {
    _held: Box<dyn fmt::Debug + Send + Sync>,
    /// Dropped after the driver is released.
    _then: Option<Box<dyn fmt::Debug + Send + Sync>>,
}

impl DriverLease {
    /// Waits until a driver with this lock can be used.
    pub(crate) async fn wait(lock: Arc<RwLock<()>>, shared: bool) -> Self {
        let held: Box<dyn fmt::Debug + Send + Sync> = match shared {
            true => Box::new(lock.read_owned().await),
            false => Box::new(lock.write_owned().await),
        };
        Self { _held: held, _then: None }
    }

    /// The same; `then` is dropped after the release.
    pub(crate) fn before(self, then: impl fmt::Debug + Send + Sync + 'static) -> Self {
        Self { _then: Some(Box::new(then)), ..self }
    }
}

/// Creates the driver's CSIDriver object, if requested.
pub(crate) async fn declare(client: &Client, expected: &AdditionalDriver) -> Result<(), DeployError> {
    let (name, Some(spec)) = (expected.name, &expected.spec) else { return Ok(()) };
    let mut object: CSIDriver =
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": {} })).expect("a CSIDriver");
    object.spec = spec.clone();
    match Api::all(client.clone()).create(&PostParams::default(), &object).await {
        // Created by an earlier attempt that failed later.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop).map_err(|source| DeployError::Install { name, source }),
    }
}
