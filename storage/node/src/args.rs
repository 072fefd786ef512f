//! `claimcheck node`: the agent as a process of its own.

use std::{
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
    pods::Backoff,
    server::Credentials,
};

/// The agent's arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The node's name.
    #[arg(long)]
    pub name: String,
    /// The kubeconfig of the API server.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The kubelet's directory, which drivers expect at its default place.
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// The socket of the container runtime.
    #[arg(long)]
    pub runtime_socket: PathBuf,
    /// The address that the node says it has, and at which it can be asked for logs.
    #[arg(long, default_value = "127.0.0.1")]
    pub node_ip: String,
    /// Certificates of CAs: who has a certificate of theirs may ask for logs, as may who has the token of the
    /// kubeconfig.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// Let the attach/detach controller attach volumes to this node. Without it, pods on this node wait for volumes
    /// that must be attached: as a kubelet, the node does not attach CSI volumes itself.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub enable_controller_attach_detach: bool,
    /// Seconds that a container which keeps ending waits for its second restart; each further one waits
    /// for twice as long.
    #[arg(long, default_value_t = Backoff::default().first.as_secs())]
    pub restart_backoff: u64,
    /// Seconds that it waits at most.
    #[arg(long, default_value_t = Backoff::default().longest.as_secs())]
    pub max_restart_backoff: u64,
}

/// Runs the agent until `shutdown` resolves; its calls to drivers are recorded in `tap`, and `meter` is told of
/// what it does. Containers and mounts stay; the next agent takes over.
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
    let token = own_token(args.kubeconfig.as_deref()).await?;
    let component = format!("node/{}", args.name);
    let dial = move |endpoint: &Path| {
        Driver::new(Endpoint::Unix(endpoint.to_owned()), tap.clone(), component.clone())
            .with_deadline(KUBELET_DEADLINE)
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
        credentials: Credentials::new(token.as_deref(), args.client_ca_file),
    };
    Agent { config, client, runtime, host: Arc::new(RealHost), dial: Arc::new(dial), meter }
        .run(shutdown)
        .await
}

/// The bearer token of the kubeconfig, which our own API server hands on when it asks us. None where there is
/// none, and then a client certificate is needed.
async fn own_token(kubeconfig: Option<&Path>) -> Result<Option<String>, KubeconfigError> {
    let Some(path) = kubeconfig else { return Ok(None) };
    let kubeconfig = Kubeconfig::read_from(path)?;
    let config = ClientConfig::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(config.auth_info.token.map(|token| token.expose_secret().to_owned()))
}
