//! The cluster of a kubeconfig, and the storage class under test.

use std::path::PathBuf;

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::real_nodes::{ClassChoice, RealError};

/// The cluster and the storage class under test.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The kubeconfig; by default KUBECONFIG or ~/.kube/config.
    pub kubeconfig: Option<PathBuf>,
    /// Its context; by default the current one.
    pub context: Option<String>,
    /// The class with the driver under test, and the parameters for the classes of cases.
    pub class: ClassChoice,
}

impl Target {
    /// A client with the permissions of the kubeconfig, for a responding server.
    pub(crate) async fn connect(&self) -> Result<Client, RealError> {
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path)?,
            None => Kubeconfig::read()?,
        };
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        let url = config.cluster_url.to_string();
        let unreachable = |source| RealError::Unreachable { url, source };
        let client = match claimcheck_component::client::from_config(config) {
            Ok(client) => client,
            Err(source) => return Err(unreachable(source)),
        };
        client.apiserver_version().await.map_err(unreachable)?;
        Ok(client)
    }
}
