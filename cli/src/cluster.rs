//! `claimcheck cluster`: a cluster to play with.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use claimcheck_cluster::{Api, Embedded, Options};
use claimcheck_model::ClusterKind;
use claimcheck_report::RunFolder;
use claimcheck_run::{KindPlace, Place, PlaceArgs, interrupt};

use crate::kind;

/// What can be done with a cluster.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Start a cluster: one with virtual nodes stays in the foreground, and Ctrl-C ends it and leaves nothing;
    /// one of kind stays until `claimcheck cluster down`
    Up(Box<Up>),
    /// Clusters of kind that we have made: how old they are, and whether a run still uses them
    List,
    /// Delete a cluster of kind that we have made, whether it was kept or left
    Down {
        /// Its name, with or without the prefix `claimcheck-`
        name: String,
    },
    /// Delete the clusters of kind that killed runs have left, also halves of some, and detach their loop devices
    Prune {
        /// Those too that were kept, or made by another account or machine; never one that a run here uses
        #[arg(long)]
        all: bool,
    },
}

/// What `cluster up` takes.
#[derive(Debug, clap::Args)]
pub struct Up {
    #[command(flatten)]
    place: PlaceArgs,
    /// Port of the API server on loopback, for virtual nodes; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Where to put kubeconfig and logs, which must not exist yet [default: runs/TIME-CLUSTER]
    #[arg(long, value_name = "DIR")]
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

    /// Does it.
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
            Err(error) => return Ok(crate::misplaced(&error)),
        };
        let folder = |kind| RunFolder::choose(self.out.as_deref(), "runs".as_ref(), kind);
        match place {
            Place::Embedded { api, nodes, driver } => {
                let kind =
                    if matches!(api, Api::Ours) { ClusterKind::Embedded } else { ClusterKind::Envtest };
                let folder = folder(kind)?;
                let listen = SocketAddr::from(([127, 0, 0, 1], self.port));
                let options = driver.on(api, nodes, listen, &folder)?;
                foreground(&options).await
            }
            Place::Kind { place, .. } => detached(&place.kept(), &folder(ClusterKind::Kind)?).await,
            Place::Existing { .. } => {
                eprintln!("claimcheck: an existing cluster is up: use --cluster embedded, envtest or kind");
                Ok(ExitCode::from(2))
            }
        }
    }
}

/// A cluster that ends with this process.
async fn foreground(options: &Options) -> Result<ExitCode> {
    let interrupted = interrupt::token()?;
    let cluster = Box::pin(Embedded::up(options)).await.context("the cluster cannot be started")?;
    println!("{} nodes with driver {} at {}", cluster.nodes().len(), cluster.driver_name(), cluster.url());
    println!("export KUBECONFIG={}", options.kubeconfig.display());
    println!("Ctrl-C ends it.");
    interrupted.cancelled().await;
    cluster.down().await;
    Ok(ExitCode::SUCCESS)
}

/// A cluster that outlives this process.
async fn detached(place: &KindPlace, folder: &RunFolder) -> Result<ExitCode> {
    let interrupted = interrupt::token()?;
    crate::say(Some(place.foreword()));
    let cluster = tokio::select! {
        cluster = place.bring_up(folder) => cluster.context("the cluster cannot be started")?,
        () = interrupted.cancelled() => return Ok(ExitCode::from(130)),
    };
    println!("{} nodes with driver {}", cluster.reach().nodes.len(), cluster.driver_name());
    println!("export KUBECONFIG={}", folder.kubeconfig().display());
    cluster.leave(false).await;
    crate::say(place.afterword());
    Ok(ExitCode::SUCCESS)
}
