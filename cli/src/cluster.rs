//! `claimcheck cluster`: a cluster to play with.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use claimcheck_harness::{
    cluster::{Api, DriverCommand, Embedded, Options},
    report::RunFolder,
};
use claimcheck_model::ClusterKind;
use tokio::signal::unix::{SignalKind, signal};

use crate::kind;

/// What can be done with a cluster.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Start an embedded cluster and stay in the foreground; Ctrl-C ends it and leaves nothing
    Up(Up),
    /// Clusters of kind that we have made: how old they are, and whether a run still uses them
    List,
    /// Delete a cluster of kind that we have made, whether it was kept or left
    Down {
        /// Its name, with or without the prefix `claimcheck-`
        name: String,
    },
    /// Delete the clusters of kind that killed runs have left, also halves of some
    Prune {
        /// Those too that were kept, or made by another account or machine; never one that a run here uses
        #[arg(long)]
        all: bool,
    },
}

/// What `cluster up` takes.
#[derive(Debug, clap::Args)]
pub struct Up {
    /// `builtin`, or `exec:<command with {endpoint} {node_id} {state_dir}>` for a driver of your own
    #[arg(long, default_value = "builtin")]
    driver: DriverCommand,
    /// How many nodes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// Port of the API server on loopback; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Where to put kubeconfig and logs, which must not exist yet [default: runs/TIME-embedded]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Command {
    /// Whether virtual nodes are started on this machine.
    pub fn needs_cluster(&self) -> bool {
        match self {
            Self::Up(_) => true,
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
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let folder = RunFolder::choose(self.out.as_deref(), "runs".as_ref(), ClusterKind::Embedded)?;
        let options = Options {
            nodes: self.nodes.into(),
            driver: self.driver,
            api: Api::Ours,
            logs: folder.cluster_dir()?,
            listen: SocketAddr::from(([127, 0, 0, 1], self.port)),
            kubeconfig: folder.kubeconfig(),
        };
        let cluster =
            Box::pin(Embedded::up(&options)).await.context("the embedded cluster cannot be started")?;
        println!(
            "{} nodes with driver {} at {}",
            cluster.nodes().len(),
            cluster.driver_name(),
            cluster.url()
        );
        println!("export KUBECONFIG={}", folder.kubeconfig().display());
        println!("Ctrl-C ends it.");
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        cluster.down().await;
        Ok(ExitCode::SUCCESS)
    }
}
