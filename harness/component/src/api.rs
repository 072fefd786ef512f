//! How a component reaches the API server.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use claimcheck_controllers::named;
use claimcheck_model::Meter;
use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::requests::metered;
use crate::writes::{Teller, telling};

/// How to reach the API server.
#[derive(Debug, Args)]
pub struct ApiArgs {
    /// The kubeconfig; otherwise KUBECONFIG, ~/.kube/config or the pod's service account
    #[arg(long)]
    pub(super) kubeconfig: Option<PathBuf>,
}

impl ApiArgs {
    /// A client that names its component to the API server, and tells the meter of its requests and the run, where
    /// that wants to know, of what it writes.
    pub(super) async fn client(&self, component: &str, meter: &Meter) -> Result<Client> {
        let agent = format!("claimcheck-{component}/{}", env!("CARGO_PKG_VERSION"));
        Ok(named(&self.nameless(meter).await?, &agent))
    }

    /// A client that is still to be named, see [`named`].
    pub(super) async fn nameless(&self, meter: &Meter) -> Result<Client> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path)
                    .with_context(|| format!("--kubeconfig {} cannot be used", path.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
            }
            None => Config::infer().await.context("no API server is known: give --kubeconfig")?,
        };
        // Watches are quiet for minutes.
        config.read_timeout = None;
        config.connect_timeout = Some(Duration::from_secs(10));
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let client = metered(&Client::try_from(config)?, &host, meter);
        Ok(match Teller::of_environment().await {
            Some(teller) => telling(&client, &teller, ""),
            None => client,
        })
    }
}
