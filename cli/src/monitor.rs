//! `claimcheck monitor`: every volume of an existing cluster, continuously, or what waits now.

use std::{collections::BTreeSet, env, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use claimcheck_component::{HttpEndpoint, api_client, pod_namespace};
use claimcheck_model::NAMESPACE;
use claimcheck_monitor::{Election, Monitor, Options, Scope, Timing, fetch, look, stuck::Status, table};
use clap::{Args, Subcommand, ValueEnum};
use jiff::SignedDuration;
use tokio::signal::unix::{SignalKind, signal};

/// The time between two tables of `status --watch`.
const REFRESH: Duration = Duration::from_secs(10);

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch all volumes and serve /metrics, /status.json and a page with what waits
    Run(RunArgs),
    /// List the volumes that wait and the usual remedies, and objects that nothing uses
    Status(StatusArgs),
}

/// What is followed.
#[derive(Debug, Args)]
struct Target {
    /// Path of the kubeconfig [default: KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Only claims in this namespace; may be repeated [default: all]
    #[arg(long = "namespace", value_name = "NAME")]
    namespaces: Vec<String>,
    /// Only claims of this storage class; may be repeated [default: all]
    #[arg(long = "storage-class", value_name = "NAME")]
    classes: Vec<String>,
    /// The time after which a wait counts as stuck
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    stuck_after: SignedDuration,
}

impl Target {
    fn scope(&self) -> Scope {
        let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
        Scope { namespaces: set(&self.namespaces), classes: set(&self.classes) }
    }
}

/// Arguments of `monitor run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    target: Target,
    /// Address to serve on, :PORT for all addresses of the machine
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    metrics_address: HttpEndpoint,
    /// Name of the Lease, in the pod's namespace: only its holder serves the series of volumes
    #[arg(long, value_name = "NAME", default_value = "claimcheck-monitor")]
    lease: String,
    /// Run without a Lease, as the only replica
    #[arg(long, conflicts_with = "lease")]
    no_lease: bool,
}

/// Arguments of `monitor status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    target: Target,
    /// Read the status of a running monitor, such as http://localhost:8080 of `kubectl port-forward`, instead of the
    /// cluster: it has observed when phases started
    #[arg(long, value_name = "URL", conflicts_with_all = ["kubeconfig", "namespaces", "classes", "stuck_after"])]
    url: Option<String>,
    /// Print the status every ten seconds, until interrupted
    #[arg(long)]
    watch: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Human-readable
    #[default]
    Table,
    /// The status as JSON
    Json,
}

impl Command {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Self::Run(args) => {
                let HttpEndpoint::Tcp(address) = args.metrics_address else {
                    eprintln!("claimcheck: --metrics-address must be a TCP address, such as :8080");
                    return Ok(ExitCode::from(2));
                };
                crate::runtime()?.block_on(args.run(address))?;
            }
            Self::Status(args) => crate::runtime()?.block_on(args.run())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl RunArgs {
    async fn run(self, address: SocketAddr) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let client = api_client(self.target.kubeconfig.as_deref()).await?;
        let election = (!self.no_lease).then(|| Election {
            // That of an installation outside of a pod.
            namespace: pod_namespace().unwrap_or_else(|| NAMESPACE.to_owned()),
            name: self.lease.clone(),
            identity: identity(),
            timing: Timing::default(),
        });
        let (scope, stuck_after) = (self.target.scope(), self.target.stuck_after);
        let monitor = Monitor::start(client, Options { scope, stuck_after, address, election }).await?;
        tracing::info!(address = %monitor.address(), "serves /metrics, /status.json and a page");
        let ended = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        Ok(monitor.run(ended).await?)
    }
}

impl StatusArgs {
    async fn run(self) -> Result<()> {
        let client = match &self.url {
            Some(_) => None,
            None => Some(api_client(self.target.kubeconfig.as_deref()).await?),
        };
        let mut ticks = tokio::time::interval(REFRESH);
        loop {
            ticks.tick().await;
            let status = match (&self.url, &client) {
                (Some(url), _) => fetch(url).await?,
                (None, Some(client)) => look(client, self.target.scope(), self.target.stuck_after).await?,
                (None, None) => return Ok(()),
            };
            self.print(&status)?;
            if !self.watch {
                return Ok(());
            }
        }
    }

    fn print(&self, status: &Status) -> Result<()> {
        match self.format {
            Format::Table => {
                let text = table(status);
                // Clears the terminal, as `watch` does.
                let clear = if self.watch { "\x1b[2J\x1b[H" } else { "" };
                print!("{clear}{text}");
            }
            Format::Json => {
                println!("{}", serde_json::to_string(status).context("the status cannot be printed")?);
            }
        }
        Ok(())
    }
}

/// The pod's name: a restarted container is the same candidate.
fn identity() -> String {
    let named = env::var("POD_NAME").or_else(|_| env::var("HOSTNAME"));
    named.unwrap_or_else(|_| format!("claimcheck-{}", std::process::id()))
}
