//! Where a run takes place: which cluster, how it is brought up, and what it offers to cases.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result};
use claimcheck_harness::{
    Lane,
    cluster::{Api, Cluster, DriverCommand, Embedded, Options, Real, Target},
    report::RunFolder,
};
use claimcheck_model::ClusterKind;

use crate::plan::Environment;

/// Where a run takes place.
#[derive(Clone, Debug)]
pub enum Place {
    /// On virtual nodes of this machine, with all components ours.
    Embedded {
        /// Ours, or a stock one.
        api: Api,
        /// How many nodes.
        nodes: usize,
        /// Which driver.
        driver: DriverCommand,
    },
    /// On somebody's cluster, with the driver that is there.
    Existing(Target),
}

impl Place {
    /// As reports name it.
    pub fn kind(&self) -> ClusterKind {
        match self {
            Self::Embedded { api: Api::Ours, .. } => ClusterKind::Embedded,
            Self::Embedded { api: Api::Stock(_), .. } => ClusterKind::Envtest,
            Self::Existing(_) => ClusterKind::Existing,
        }
    }

    /// Brings the cluster up, or looks at the one that is there.
    ///
    /// # Errors
    /// It does not come up, or cannot be used.
    pub async fn bring_up(&self, folder: &RunFolder) -> Result<Cluster> {
        let failed = || format!("the {} cluster cannot be started", self.kind().name());
        match self {
            Self::Embedded { api, nodes, driver } => {
                let options = Options {
                    nodes: *nodes,
                    driver: driver.clone(),
                    api: api.clone(),
                    logs: folder.cluster_dir()?,
                    listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                    kubeconfig: folder.kubeconfig(),
                };
                // Boxed: bringing up a cluster is a large future, and is awaited once.
                let embedded = Box::pin(Embedded::up(&options)).await.with_context(failed)?;
                Ok(Cluster::Embedded(Box::new(embedded)))
            }
            Self::Existing(target) => Ok(Cluster::Real(Box::new(Box::pin(Real::reach(target)).await?))),
        }
    }

    /// What is known of it before it is there: enough to say which cases exist, and for virtual nodes which of
    /// them will run.
    pub fn expected(&self, lane: Option<Lane>) -> Environment {
        match self {
            Self::Embedded { nodes, driver, .. } => Environment {
                nodes: *nodes,
                builtin: *driver == DriverCommand::Builtin,
                abilities: Embedded::ABILITIES,
                file_systems: file_systems(lane),
                xfs: program("mkfs.xfs", "needs mkfs.xfs: apt-get install xfsprogs"),
            },
            Self::Existing(_) => {
                let unknown = Err("nobody knows whether the driver makes this file system");
                Environment {
                    nodes: usize::MAX,
                    builtin: false,
                    abilities: Real::ABILITIES,
                    file_systems: unknown,
                    xfs: unknown,
                }
            }
        }
    }

    /// What it offers, now that it is there.
    pub fn environment(&self, lane: Lane, cluster: &Cluster) -> Environment {
        Environment { nodes: cluster.nodes().len(), ..self.expected(Some(lane)) }
    }
}

/// Whether volumes with a file system of their own can be made on this machine.
fn file_systems(lane: Option<Lane>) -> Result<(), &'static str> {
    match lane {
        Some(Lane::User) => Err("needs root: an ordinary user has no loop devices"),
        _ if !Path::new("/dev/loop-control").exists() => Err("needs loop devices: modprobe loop"),
        Some(Lane::Root) | None => program("mkfs.ext4", "needs mkfs.ext4: apt-get install e2fsprogs"),
    }
}

fn program(name: &str, remedy: &'static str) -> Result<(), &'static str> {
    let directories = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let found = directories.iter().any(|directory| Path::new(directory).join(name).exists());
    if found { Ok(()) } else { Err(remedy) }
}
