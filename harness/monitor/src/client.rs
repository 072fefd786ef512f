//! The monitor's client for the API server.

use std::{path::Path, time::Duration};

use kube::{
    Client, Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

/// There is no usable configuration of an API server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A kubeconfig cannot be used.
    #[error("--kubeconfig {path} cannot be used")]
    Kubeconfig {
        /// The path.
        path: String,
        /// The error.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// No kubeconfig and no service account exists.
    #[error("no API server is configured: set --kubeconfig")]
    Missing(#[source] Box<InferConfigError>),
    /// The configuration is invalid.
    #[error("the configuration of the API server cannot be used")]
    Invalid(#[source] Box<kube::Error>),
}

/// A client by this kubeconfig; without one by KUBECONFIG, `~/.kube/config` or the pod's service account.
///
/// # Errors
/// The configuration cannot be used.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let failed = |source| ClientError::Kubeconfig {
                path: path.display().to_string(),
                source: Box::new(source),
            };
            let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(failed)?
        }
        None => Config::infer().await.map_err(|error| ClientError::Missing(Box::new(error)))?,
    };
    // Watches may be idle for minutes.
    config.read_timeout = None;
    config.connect_timeout = Some(Duration::from_secs(10));
    Client::try_from(config).map_err(|error| ClientError::Invalid(Box::new(error)))
}
