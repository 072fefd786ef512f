//! The client of an installation: a context of a kubeconfig.

use std::path::Path;

use kube::{
    Client, Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

/// No client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig, or its context, cannot be used.
    #[error("the kubeconfig {file} cannot be used: check --kubeconfig and --context")]
    Kubeconfig {
        /// The file, or the default ones.
        file: String,
        /// The reason.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// There is no configuration.
    #[error("no API server is configured: set --kubeconfig")]
    Infer(#[source] Box<InferConfigError>),
    /// The configuration is invalid.
    #[error("the configuration of the API server cannot be used: check --kubeconfig")]
    Client(#[source] Box<kube::Error>),
}

/// A client of this context of a kubeconfig. Without a kubeconfig by KUBECONFIG or `~/.kube/config`; without a context the
/// current one, or the pod's service account.
///
/// # Errors
/// The kubeconfig or the context does not exist, or cannot be used.
pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, ConnectError> {
    let config = if kubeconfig.is_none() && context.is_none() {
        Config::infer().await.map_err(|source| ConnectError::Infer(Box::new(source)))?
    } else {
        let failed = |source| ConnectError::Kubeconfig {
            file: kubeconfig
                .map_or("of KUBECONFIG or ~/.kube/config".into(), |path| path.display().to_string()),
            source: Box::new(source),
        };
        let file = match kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let options =
            KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(file.map_err(failed)?, &options).await.map_err(failed)?
    };
    Client::try_from(config).map_err(|source| ConnectError::Client(Box::new(source)))
}
