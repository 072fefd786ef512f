//! An existing cluster, given by a kubeconfig: `--cluster existing`.

mod controller_node;
mod disrupt;
pub(crate) mod installation;
#[cfg(test)]
mod installation_tests;
pub(crate) mod target;

use async_trait::async_trait;
use claimcheck_csi::tap::KnownSecrets;
use kube::{Api, Client};

use self::target::Target;
use crate::{
    backend::Backend,
    cluster::Cluster,
    log_search::{self, LogSearch},
    observer::Observer,
    properties::Properties,
    real_nodes::{Real, RealError},
};

/// A cluster in which nothing was installed: only its API is available.
struct Untouched;

impl Cluster {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// [`RealError`] describes the problem and the flag to change.
    pub async fn existing(target: &Target) -> Result<Self, RealError> {
        let client = target.connect().await?;
        let observer = Observer::start(client.clone()).await;
        Ok(Real::of(client, observer, &target.class)?.with(Untouched))
    }
}

#[async_trait]
impl Backend for Untouched {
    fn properties(&self) -> Properties {
        Properties::existing()
    }

    fn outlives_run(&self) -> bool {
        true
    }

    async fn search_logs(&self, client: &Client, driver: &str, known: &KnownSecrets) -> LogSearch {
        let pods = (Api::all(client.clone()), "");
        log_search::search_pods(client, pods, known, |pod| log_search::is_of_driver(pod, driver)).await
    }
}
