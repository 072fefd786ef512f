//! `claimcheck cluster`: development clusters, and clusters that earlier runs left behind.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use claimcheck_cluster::{Cluster, Instrumentation, Options, faults::FaultSpec};
use claimcheck_model::ComponentEnd;
use claimcheck_report::RunFolder;
use claimcheck_run::{ClusterArgs, Development, FREQUENT, Place, explain, interrupt, with_sources};

use crate::kind;

/// How often the components are checked for requests that were denied, and for panics.
const CHECK: Duration = Duration::from_secs(2);

/// Subcommands of `cluster`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Start a development cluster and print its kubeconfig; with virtual nodes it runs in the foreground until
    /// Ctrl-C and leaves nothing behind, on kind it stays until `claimcheck cluster down`
    Up(Box<Up>),
    /// List kind clusters created by claimcheck, with their age and whether a run uses them
    List,
    /// Delete a kind cluster created by claimcheck, whether kept or left behind
    Down {
        /// Cluster name, with or without the prefix `claimcheck-`
        name: String,
    },
    /// Delete kind clusters left behind by killed runs, including partially created ones, and detach their loop
    /// devices
    Prune {
        /// Also delete kept clusters and those created by another account or machine; never one that a run on this
        /// machine uses
        #[arg(long)]
        all: bool,
    },
}

/// Arguments of `cluster up`.
#[derive(Debug, clap::Args)]
pub struct Up {
    #[command(flatten)]
    place: ClusterArgs,
    /// Port of the API server on the loopback interface, for clusters with virtual nodes; 0 chooses a free port
    #[arg(long, default_value_t = 0, help_heading = FREQUENT)]
    port: u16,
    /// Inject a fault until the cluster ends, as `run` does, for example api=429@5% or rpc/CreateVolume=Internal; for
    /// clusters with virtual nodes; can be repeated
    #[arg(long = "fault", value_name = "WHERE=WHAT[@RATE][xCOUNT]", help_heading = FREQUENT)]
    faults: Vec<FaultSpec>,
    /// Directory for kubeconfig and logs, which must not exist yet, unless the cluster could not start [default: runs/TIME-CLUSTER]
    #[arg(long, value_name = "DIR", help_heading = FREQUENT)]
    out: Option<PathBuf>,
}

impl Command {
    /// Whether virtual nodes are started on this machine.
    pub fn needs_cluster(&self) -> bool {
        match self {
            Self::Up(up) => up.place.is_virtual(),
            Self::List | Self::Down { .. } | Self::Prune { .. } => false,
        }
    }

    /// Runs the subcommand.
    pub fn run(self) -> Result<ExitCode> {
        crate::runtime()?.block_on(async {
            match self {
                Self::Up(up) => up.up().await,
                Self::List => kind::list().await,
                Self::Down { name } => kind::down(&name).await,
                Self::Prune { all } => kind::prune(all).await,
            }
        })
    }
}

impl Up {
    async fn up(self) -> Result<ExitCode> {
        let place = match self.place.place() {
            Ok(place) => place,
            Err(error) => return Ok(crate::invalid_target(&error)),
        };
        let (kind, notice) = (place.kind(), place.startup_notice());
        let folder = || RunFolder::choose(self.out.as_deref(), "runs".as_ref(), kind);
        match place.development() {
            Development::Foreground(options) => {
                let folder = folder()?;
                crate::print(notice);
                let listen = SocketAddr::from(([127, 0, 0, 1], self.port));
                reusable(&folder, foreground(&options(listen, &folder)?, &self.faults).await)
            }
            Development::Detached(_) if !self.faults.is_empty() => {
                eprintln!("claimcheck: --fault is for --cluster embedded or envtest, which run until Ctrl-C");
                Ok(ExitCode::from(2))
            }
            Development::Detached(place) => {
                let folder = folder()?;
                reusable(&folder, detached(&*place, &folder).await)
            }
            Development::Running => {
                eprintln!(
                    "claimcheck: an existing cluster is already running: use --cluster embedded, envtest or kind"
                );
                Ok(ExitCode::from(2))
            }
        }
    }
}

/// Permits the use of the folder of a cluster that did not start for the next attempt.
fn reusable(folder: &RunFolder, started: Result<ExitCode>) -> Result<ExitCode> {
    if let Err(error) = &started
        && let Err(unwritten) = folder.record_failed_start(&explain(error))
    {
        eprintln!("claimcheck: {}", with_sources(&unwritten));
    }
    started
}

/// Runs a cluster that ends with this process.
async fn foreground(options: &Options, faults: &[FaultSpec]) -> Result<ExitCode> {
    let interrupted = interrupt::token()?;
    let mut cluster = Box::pin(Cluster::embedded(options)).await.context("the cluster cannot be started")?;
    cluster.set_faults(faults).await?;
    let url = cluster.api_server().map_or("", |api| api.url.as_str());
    println!("{} nodes with driver {} at {url}", options.nodes.max(1), cluster.driver_name());
    println!("export KUBECONFIG={}", options.kubeconfig.display());
    if !options.permits_inline() {
        println!(
            "The CSIDriver does not permit inline volumes in pods (volumeLifecycleModes without Ephemeral): use \
             --driver-config with InlineVolumes, or --deployment with a CSIDriver."
        );
    }
    println!("Ctrl-C deletes the cluster.");
    let mut ends = cluster.take_ends();
    let (mut printed, mut checks) = (BTreeSet::new(), tokio::time::interval(CHECK));
    loop {
        tokio::select! {
            () = interrupted.cancelled() => break,
            Some(end) = async { ends.as_mut()?.recv().await } => println!("{}", exit_line(&end)),
            _ = checks.tick() => {
                for problem in problems(&cluster).await {
                    if !printed.contains(&problem) {
                        println!("! {problem}");
                        printed.insert(problem);
                    }
                }
            }
        }
    }
    cluster.down(false).await;
    Ok(ExitCode::SUCCESS)
}

/// What went wrong in components so far.
async fn problems(cluster: &Cluster) -> Vec<String> {
    let faults = cluster.component_faults().await;
    let denials = cluster.denials().await;
    let denials =
        denials.iter().map(|denial| format!("403 Forbidden: {denial}: {}", denial.remedy(&denial.verb)));
    faults.iter().map(ToString::to_string).chain(denials).collect()
}

fn exit_line(end: &ComponentEnd) -> String {
    let last_line = end.last_lines.last().map(|line| format!(": {line}")).unwrap_or_default();
    format!("! {} exited ({}) and is restarted{last_line}", end.component, end.status)
}

/// Starts a cluster that outlives this process.
async fn detached(place: &dyn Place, folder: &RunFolder) -> Result<ExitCode> {
    let interrupted = interrupt::token()?;
    crate::print(place.startup_notice());
    let cluster = tokio::select! {
        cluster = place.start(folder, Instrumentation::default()) => cluster?,
        () = interrupted.cancelled() => return Ok(ExitCode::from(interrupt::INTERRUPTED)),
    };
    println!("{} nodes with driver {}", cluster.nodes().len(), cluster.driver_name());
    println!("export KUBECONFIG={}", folder.kubeconfig().display());
    cluster.down(false).await;
    crate::print(place.shutdown_notice());
    Ok(ExitCode::SUCCESS)
}
