//! The components as processes: what an embedded cluster starts, and what runs in a real one.
//!
//! Every program that links the harness can play them, so the end-to-end test binary needs no other
//! binary beside it.

use std::{convert::Infallible, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use claimcheck_controllers as controllers;
use claimcheck_runtime as runtime;
use clap::{Args, Parser, Subcommand};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::signal::unix::{SignalKind, signal};

/// In the environment of a process that shall play a component.
pub(crate) const MARKER: &str = "CLAIMCHECK_COMPONENT";

/// A component, with its arguments.
#[derive(Debug, Subcommand)]
pub enum Component {
    /// The CSI driver alone
    Driver(claimcheck_driver::Args),
    /// The node agent: the kubelet's volume manager, plugin registration and pods
    Node(claimcheck_node::Args),
    /// Storage controllers: one by its name, or all
    Controller(ControllerArgs),
    /// Watches a node's mount table: when volumes of any driver are staged and published
    Observe(claimcheck_observe::Args),
    /// The container runtime of a virtual node
    #[command(hide = true)]
    Runtime(RuntimeArgs),
}

/// Arguments of the controllers.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// `all`, or any of binder, provisioner, attach-detach, attacher, scheduler, protection,
    /// ephemeral-volume, node-lifecycle; and garbage, where the API server has no garbage collector
    #[arg(required = true)]
    names: Vec<String>,
    /// Path of the CSI driver's socket, for provisioner and attacher
    #[arg(long)]
    csi_address: Option<PathBuf>,
    /// The provisioner tells the driver for which claim a volume is
    #[arg(long)]
    extra_create_metadata: bool,
    /// The provisioner asks for the selected node's topology and no other
    #[arg(long)]
    strict_topology: bool,
    /// The provisioner publishes the driver's room for classes that bind at once, too
    #[arg(long)]
    capacity_for_immediate_binding: bool,
    /// How many seconds a node may be silent before it is held to be gone (default: 50)
    #[arg(long, value_name = "SECONDS")]
    node_monitor_grace_period: Option<u64>,
    #[command(flatten)]
    api: ApiArgs,
}

/// How to reach the API server.
#[derive(Debug, Args)]
pub struct ApiArgs {
    /// The kubeconfig; otherwise KUBECONFIG, ~/.kube/config or the pod's service account
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Arguments of a container runtime.
#[derive(Debug, Args)]
pub struct RuntimeArgs {
    /// The unix socket to listen on
    #[arg(long)]
    socket: PathBuf,
    /// The node's kubelet directory
    #[arg(long)]
    kubelet_dir: PathBuf,
}

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    component: Component,
}

/// Plays a component if this process was started as one.
pub(crate) fn play() -> Option<ExitCode> {
    std::env::var_os(MARKER)?;
    crate::logging::start(crate::logging::Style::Component);
    Some(Line::parse().component.main())
}

impl Component {
    /// Runs the component until it is told to end; to be called before any thread exists.
    pub fn main(self) -> ExitCode {
        let result = match self {
            Self::Runtime(args) => args.run().map(|never| match never {}),
            Self::Driver(args) => block_on(async {
                claimcheck_driver::run(args, termination()?).await.context("the driver cannot run")
            }),
            Self::Node(args) => block_on(async {
                let api = ApiArgs { kubeconfig: args.kubeconfig.clone() };
                let client = api.client("node").await?;
                claimcheck_node::run(args, client, termination()?).await.context("the node agent cannot run")
            }),
            Self::Controller(args) => block_on(args.run()),
            Self::Observe(args) => block_on(async {
                claimcheck_observe::run(args, termination()?).await.context("the node cannot be observed")
            }),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("claimcheck: {error:#}");
                ExitCode::from(3)
            }
        }
    }
}

impl ControllerArgs {
    async fn run(self) -> Result<()> {
        let mut names = Vec::new();
        for name in &self.names {
            match name.as_str() {
                "all" => names.extend(controllers::Name::ALL),
                name => names.push(name.parse()?),
            }
        }
        let client = self.api.client("controller").await?;
        let options = controllers::Options {
            csi_address: self.csi_address,
            tap: std::env::var_os("CLAIMCHECK_TAP").map(PathBuf::from),
            provisioning: controllers::Provisioning {
                extra_create_metadata: self.extra_create_metadata,
                strict_topology: self.strict_topology,
                capacity_for_immediate_binding: self.capacity_for_immediate_binding,
            },
            node_monitor_grace: self.node_monitor_grace_period.map(Duration::from_secs),
        };
        controllers::run(&names, client, &options, termination()?).await?;
        Ok(())
    }
}

impl RuntimeArgs {
    fn run(self) -> Result<Infallible> {
        let args = runtime::Args {
            socket: self.socket,
            kubelet_dir: self.kubelet_dir,
            kubelet_at: claimcheck_substrate::KUBELET_DIR.into(),
        };
        runtime::serve(&args).context("the container runtime cannot run")
    }
}

impl ApiArgs {
    /// A client that names its component to the API server.
    async fn client(&self, component: &str) -> Result<Client> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path)
                    .with_context(|| format!("--kubeconfig {} cannot be used", path.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
            }
            None => Config::infer().await.context("no API server is known: give --kubeconfig")?,
        };
        config.headers.push((
            http::header::USER_AGENT,
            http::HeaderValue::from_str(&format!("claimcheck-{component}/{}", env!("CARGO_PKG_VERSION")))?,
        ));
        // Watches are quiet for minutes.
        config.read_timeout = None;
        config.connect_timeout = Some(Duration::from_secs(10));
        Ok(Client::try_from(config)?)
    }
}

fn block_on(run: impl Future<Output = Result<()>>) -> Result<()> {
    // Two threads: components mostly wait, and a node's machine has better things to do.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(run);
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Resolves at SIGTERM or SIGINT.
fn termination() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
