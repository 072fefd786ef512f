//! A component's client for the API server.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use claimcheck_controllers::named;
use claimcheck_model::Meter;
use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::requests::metered;
use crate::writes::{ApiWriteRecorder, recording_client};

/// Arguments for the connection to the API server.
#[derive(Debug, Args)]
pub struct ApiArgs {
    /// Path of the kubeconfig [default: KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long)]
    pub(super) kubeconfig: Option<PathBuf>,
}

/// Where a pod finds its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The namespace of this pod, by POD_NAMESPACE or its service account; none outside of a pod.
pub fn pod_namespace() -> Option<String> {
    let named = env::var("POD_NAMESPACE").or_else(|_| fs::read_to_string(NAMESPACE_FILE)).ok()?;
    Some(named.trim().to_owned()).filter(|named| !named.is_empty())
}

/// The configuration of a client by this kubeconfig; without one by KUBECONFIG, `~/.kube/config` or the pod's service
/// account.
///
/// # Errors
/// The configuration cannot be used, or there is none.
async fn client_config(kubeconfig: Option<&Path>) -> Result<Config> {
    let mut config = match kubeconfig {
        Some(path) => {
            let failed = || format!("--kubeconfig {} cannot be used", path.display());
            let kubeconfig = Kubeconfig::read_from(path).with_context(failed)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(failed)?
        }
        None => Config::infer().await.context("no API server is configured: set --kubeconfig")?,
    };
    // Watches may be idle for minutes.
    config.read_timeout = None;
    config.connect_timeout = Some(Duration::from_secs(10));
    Ok(config)
}

/// A client by this kubeconfig, or as without one; see [`ApiArgs`].
///
/// # Errors
/// The configuration cannot be used, or there is none.
pub async fn api_client(kubeconfig: Option<&Path>) -> Result<Client> {
    let config = client_config(kubeconfig).await?;
    Client::try_from(config).context("the configuration of the API server cannot be used")
}

impl ApiArgs {
    /// The namespace of this pod, if the client is that of the pod's service account. Upstream:
    /// `inClusterNamespace` in csi-lib-utils `leaderelection/leader_election.go`.
    pub(super) fn pod_namespace(&self) -> Option<String> {
        if self.kubeconfig.is_some() {
            return None;
        }
        pod_namespace()
    }

    /// A client with the component's user agent, which counts its requests in the meter and, if the run requires
    /// it, records its writes.
    pub(super) async fn client(&self, component: &str, meter: &Meter) -> Result<Client> {
        let agent = format!("claimcheck-{component}/{}", env!("CARGO_PKG_VERSION"));
        Ok(named(&self.nameless(meter).await?, &agent))
    }

    /// A client without a user agent, see [`named`].
    pub(super) async fn nameless(&self, meter: &Meter) -> Result<Client> {
        let config = client_config(self.kubeconfig.as_deref()).await?;
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let client = metered(&Client::try_from(config)?, &host, meter);
        Ok(match ApiWriteRecorder::of_environment() {
            Some(recorder) => recording_client(&client, &recorder, ""),
            None => client,
        })
    }
}
