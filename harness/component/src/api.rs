//! A component's client for the API server.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use claimcheck_controllers::named;
use claimcheck_model::Meter;
use clap::Args;
use http::Uri;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
    config::{KubeConfigOptions, Kubeconfig},
};
use tower::{BoxError, ServiceBuilder};

use super::{denials::logging_denials, requests::metered};
use crate::writes::{ApiWriteRecorder, recording_client};

/// Arguments for the connection to the API server.
#[derive(Debug, Args)]
pub struct ApiArgs {
    /// Path of the kubeconfig [default: KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long)]
    pub(super) kubeconfig: Option<PathBuf>,
    /// URL of the API server, instead of the kubeconfig's [default: that of the kubeconfig]
    #[arg(long, value_name = "URL", value_parser = server_url)]
    pub(super) master: Option<Uri>,
}

fn server_url(text: &str) -> Result<Uri, String> {
    let url = text.parse::<Uri>().ok().filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
    url.ok_or_else(|| "write the URL of the API server, for example https://10.0.0.1:6443".to_owned())
}

/// Where a pod finds its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The namespace of this pod, by POD_NAMESPACE or its service account; none outside of a pod.
pub fn pod_namespace() -> Option<String> {
    let named = env::var("POD_NAMESPACE").or_else(|_| fs::read_to_string(NAMESPACE_FILE)).ok()?;
    Some(named.trim().to_owned()).filter(|named| !named.is_empty())
}

/// The configuration of a client by this kubeconfig, with another URL if one is given; without both by KUBECONFIG,
/// `~/.kube/config` or the pod's service account. As with client-go, a URL alone comes without credentials
/// (`BuildConfigFromFlags`).
///
/// # Errors
/// The configuration cannot be used, or there is none.
async fn client_config(kubeconfig: Option<&Path>, master: Option<&Uri>) -> Result<Config> {
    let mut config = match (kubeconfig, master) {
        (Some(path), _) => {
            let failed = || format!("--kubeconfig {} cannot be used", path.display());
            let kubeconfig = Kubeconfig::read_from(path).with_context(failed)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(failed)?
        }
        (None, Some(master)) => Config::new(master.clone()),
        (None, None) => Config::infer().await.context("no API server is configured: set --kubeconfig")?,
    };
    if let Some(master) = master {
        config.cluster_url = master.clone();
    }
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
    let config = client_config(kubeconfig, None).await?;
    Client::try_from(config).context("the configuration of the API server cannot be used")
}

/// How often a connection with requests is checked, and how long it may take to answer: those of client-go
/// (`configureHTTP2Transport` in apimachinery `pkg/util/net/http.go`).
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(15);

/// A client with one connection for all requests, by HTTP/2, as those of client-go. kube's own have a connection for each
/// that is not finished, and nodes watch single objects.
///
/// The connection is checked by pings, since kube's timeout of reads is not part of it; a proxy is left to kube's.
fn multiplexed(config: &Config) -> Result<Client> {
    if config.proxy_url.is_some() {
        return Ok(Client::try_from(config.clone())?);
    }
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(config.connect_timeout);
    let client: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        .build(HttpsConnector::from((http, Arc::new(tls))));
    let layers = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from);
    Ok(Client::new(layers.service(client), config.default_namespace.clone()))
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
    /// it, records its writes; see [`multiplexed`].
    pub(super) async fn client(&self, component: &str, meter: &Meter) -> Result<Client> {
        let agent = format!("claimcheck-{component}/{}", env!("CARGO_PKG_VERSION"));
        Ok(named(&self.observed(meter, multiplexed).await?, &agent))
    }

    /// A client without a user agent, see [`named`].
    pub(super) async fn nameless(&self, meter: &Meter) -> Result<Client> {
        self.observed(meter, |config| Ok(Client::try_from(config.clone())?)).await
    }

    async fn observed(&self, meter: &Meter, client: fn(&Config) -> Result<Client>) -> Result<Client> {
        let config = client_config(self.kubeconfig.as_deref(), self.master.as_ref()).await?;
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let client = logging_denials(&metered(&client(&config)?, &host, meter));
        Ok(match ApiWriteRecorder::from_environment() {
            Some(recorder) => recording_client(&client, &recorder, ""),
            None => client,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_url_of_the_server_replaces_that_of_the_kubeconfig() {
        let url = server_url("https://10.0.0.1:6443").expect("it is valid");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let kubeconfig = "{apiVersion: v1, kind: Config, current-context: c, \
                          clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], \
                          users: [{name: u, user: {token: t}}], \
                          contexts: [{name: c, context: {cluster: c, user: u}}]}";
        fs::write(&path, kubeconfig).expect("a file");
        for (path, master, expected) in [
            (Some(&*path), None, "http://127.0.0.1:1/"),
            (Some(&*path), Some(&url), "https://10.0.0.1:6443/"),
            (None, Some(&url), "https://10.0.0.1:6443/"),
        ] {
            let config = client_config(path, master).await.expect("it is complete");
            assert_eq!(config.cluster_url.to_string(), expected);
            assert_eq!(config.auth_info.token.is_some(), path.is_some());
        }
        for malformed in ["10.0.0.1:6443", "ftp://10.0.0.1", ""] {
            assert!(server_url(malformed).is_err_and(|text| text.contains("https://")), "{malformed}");
        }
    }
}
