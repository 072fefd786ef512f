//! `claimcheck node`: the agent as a separate process.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use claimcheck_csi::{Driver, Endpoint, KUBELET_DEADLINE, tap::Tap};
use claimcheck_model::Meter;
use kube::{
    Client,
    config::{Config as ClientConfig, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use secrecy::ExposeSecret;

use crate::{
    agent::{Agent, AgentError, Config},
    effects::RealHost,
    pods::{Backoff, PodImage},
    server::Credentials,
};

/// Arguments of the node agent.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The node's name
    #[arg(long)]
    pub name: String,
    /// Path of the kubeconfig for the API server
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The kubelet's root directory; CSI drivers expect it at the default path
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// The socket of the container runtime
    #[arg(long)]
    pub runtime_socket: PathBuf,
    /// The node's address in its status, at which the API server requests container logs
    #[arg(long, default_value = "127.0.0.1")]
    pub node_ip: String,
    /// CA bundle for client certificates: a client with a certificate of these CAs, or with the bearer token
    /// (--client-token-file), may read container logs
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// File with a bearer token that clients must send, in place of that of the kubeconfig
    #[arg(long, value_name = "FILE")]
    pub client_token_file: Option<PathBuf>,
    /// Let the attach/detach controller attach volumes to this node. If false, pods with volumes that must be
    /// attached stay pending: like the kubelet, the agent does not attach CSI volumes itself
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub enable_controller_attach_detach: bool,
    /// Seconds before a container that keeps exiting is restarted for the second time; doubled for each later
    /// restart
    #[arg(long, default_value_t = Backoff::default().first.as_secs())]
    pub restart_backoff: u64,
    /// Upper bound of the restart delay, in seconds
    #[arg(long, default_value_t = Backoff::default().longest.as_secs())]
    pub max_restart_backoff: u64,
    /// The program of this machine that stands for an image in pods: containers see it at /NAME, and it gets the
    /// arguments of those without a command. IMAGE is the whole reference, or without tag and digest, or its last
    /// component; can be repeated
    #[arg(
        long = "pod-image",
        value_name = "IMAGE=PROGRAM",
        value_delimiter = '\n',
        env = "CLAIMCHECK_POD_IMAGE"
    )]
    pub pod_images: Vec<PodImage>,
}

/// Runs the agent until `shutdown` resolves; its calls to drivers are recorded in `tap`, and its metrics in
/// `meter`. Containers and mounts stay; the next agent adopts them.
///
/// # Errors
/// See [`AgentError`].
pub async fn run(
    args: Args,
    client: Client,
    tap: Tap,
    meter: Meter,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let runtime = Arc::new(claimcheck_runtime::Client::connect(&args.runtime_socket)?);
    let token = match &args.client_token_file {
        Some(path) => {
            let failed = |source| AgentError::ClientToken { path: path.clone(), source };
            Some(fs::read_to_string(path).map_err(failed)?.trim().to_owned())
        }
        None => own_token(args.kubeconfig.as_deref()).await?,
    };
    let component = format!("node/{}", args.name);
    let dial = move |endpoint: &Path| {
        Driver::new(Endpoint::Unix(endpoint.to_owned()), tap.clone(), component.clone())
            .with_deadline(KUBELET_DEADLINE)
            .stripping_secrets()
    };
    let config = Config {
        name: args.name,
        ip: args.node_ip,
        root: args.root_dir,
        controller_attach_detach: args.enable_controller_attach_detach,
        restart_backoff: Backoff {
            first: Duration::from_secs(args.restart_backoff),
            longest: Duration::from_secs(args.max_restart_backoff),
        },
        pod_images: args.pod_images,
        credentials: Credentials::new(token.as_deref(), args.client_ca_file),
    };
    Agent { config, client, runtime, host: Arc::new(RealHost), dial: Arc::new(dial), meter }
        .run(shutdown)
        .await
}

/// The bearer token of the kubeconfig, for clients of a node without `--client-token-file`.
/// `None` if the kubeconfig has none; then a client certificate is required.
async fn own_token(kubeconfig: Option<&Path>) -> Result<Option<String>, KubeconfigError> {
    let Some(path) = kubeconfig else { return Ok(None) };
    let kubeconfig = Kubeconfig::read_from(path)?;
    let config = ClientConfig::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(config.auth_info.token.map(|token| token.expose_secret().to_owned()))
}
