//! Where a run takes place: which cluster, how it is brought up, and what it offers to cases.

use std::{collections::BTreeMap, net::SocketAddr, path::Path};

use anyhow::{Context, Result};
use claimcheck_harness::{
    Lane,
    cluster::{Api, Cluster, DriverCommand, Embedded, Options, Real, Takes, Target},
    report::RunFolder,
};
use claimcheck_model::ClusterKind;

use crate::{
    case::FsType,
    kind_place::KindPlace,
    plan::{Environment, FileSystems},
};

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
        driver: Driver,
    },
    /// On a cluster that kind makes for it, with our driver.
    Kind(KindPlace),
    /// On somebody's cluster, with the driver that is there.
    Existing {
        /// Which.
        target: Target,
        /// The file systems that the driver can make.
        file_systems: Vec<FsType>,
    },
}

/// Which driver virtual nodes have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// How it is started on a node.
    pub command: DriverCommand,
    /// How its controller is started, where that is a process of its own.
    pub controller: Option<DriverCommand>,
    /// The parameters of its classes.
    pub class_parameters: BTreeMap<String, String>,
    /// The file systems that it can make, where it is not ours.
    pub file_systems: Vec<FsType>,
}

impl Place {
    /// As reports name it.
    pub fn kind(&self) -> ClusterKind {
        match self {
            Self::Embedded { api: Api::Ours, .. } => ClusterKind::Embedded,
            Self::Embedded { api: Api::Stock(_), .. } => ClusterKind::Envtest,
            Self::Kind(_) => ClusterKind::Kind,
            Self::Existing { .. } => ClusterKind::Existing,
        }
    }

    /// What to tell people before it is brought up, if that takes long.
    pub fn foreword(&self) -> Option<String> {
        match self {
            Self::Kind(place) => Some(place.foreword()),
            Self::Embedded { .. } | Self::Existing { .. } => None,
        }
    }

    /// What to tell people at the end, if something is to stay.
    pub fn afterword(&self) -> Option<String> {
        match self {
            Self::Kind(place) => place.afterword(),
            Self::Embedded { .. } | Self::Existing { .. } => None,
        }
    }

    /// Whether its nodes are virtual.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Self::Embedded { .. })
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
                    driver: driver.command.clone(),
                    controller: driver.controller.clone(),
                    class_parameters: driver.class_parameters.clone(),
                    api: api.clone(),
                    logs: folder.cluster_dir()?,
                    listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                    kubeconfig: folder.kubeconfig(),
                };
                // Boxed: bringing up a cluster is a large future, and is awaited once.
                let embedded = Box::pin(Embedded::up(&options)).await.with_context(failed)?;
                Ok(Cluster::Embedded(Box::new(embedded)))
            }
            Self::Kind(place) => place.bring_up(folder).await.with_context(failed),
            Self::Existing { target, .. } => {
                Ok(Cluster::Real(Box::new(Box::pin(Real::reach(target)).await?)))
            }
        }
    }

    /// What is known of it before it is there: enough to say which cases exist, and for virtual nodes which of
    /// them will run.
    pub fn expected(&self, lane: Option<Lane>) -> Environment {
        match self {
            Self::Embedded { nodes, driver, .. } => {
                let builtin = driver.command == DriverCommand::Builtin;
                let file_systems = if builtin {
                    FileSystems {
                        ext3: loop_devices(lane).and(program("mkfs.ext3", E2FSPROGS)),
                        ext4: loop_devices(lane).and(program("mkfs.ext4", E2FSPROGS)),
                        xfs: loop_devices(lane).and(program("mkfs.xfs", XFSPROGS)),
                    }
                } else {
                    told(&driver.file_systems)
                };
                let abilities = Embedded::ABILITIES;
                Environment { nodes: *nodes, builtin, abilities, file_systems, ..UNKNOWN }
            }
            Self::Kind(place) => Environment {
                nodes: place.workers(),
                builtin: true,
                abilities: Real::ABILITIES_ON_KIND,
                // The image of our driver brings the programs.
                file_systems: FileSystems {
                    ext3: loop_devices(None),
                    ext4: loop_devices(None),
                    xfs: loop_devices(None),
                },
                ..UNKNOWN
            },
            Self::Existing { file_systems, .. } => {
                Environment { file_systems: told(file_systems), ..UNKNOWN }
            }
        }
    }

    /// What it offers, now that it is there.
    pub fn environment(&self, lane: Lane, cluster: &Cluster) -> Environment {
        let declared = cluster.declared();
        Environment {
            nodes: cluster.nodes().len(),
            takes: declared.takes,
            declared: declared.capabilities.clone(),
            ..self.expected(Some(lane))
        }
    }
}

/// A cluster and a driver of which nothing is known yet: all is tried that can be tried anywhere.
const UNKNOWN: Environment = Environment {
    nodes: usize::MAX,
    builtin: false,
    takes: Takes::ALL,
    declared: BTreeMap::new(),
    abilities: Real::ABILITIES,
    file_systems: FileSystems { ext3: Ok(()), ext4: Ok(()), xfs: Ok(()) },
};

/// The file systems of a driver that is not ours: what was said that it can make.
fn told(file_systems: &[FsType]) -> FileSystems {
    let known = |wanted, why| if file_systems.contains(&wanted) { Ok(()) } else { Err(why) };
    FileSystems {
        ext3: known(FsType::Ext3, "--fs-type ext3 was not given"),
        ext4: known(FsType::Ext4, "--fs-type ext4 was not given"),
        xfs: known(FsType::Xfs, "--fs-type xfs was not given"),
    }
}

const E2FSPROGS: &str = "needs mkfs: apt-get install e2fsprogs";
const XFSPROGS: &str = "needs mkfs.xfs: apt-get install xfsprogs";

/// Whether volumes with a file system of their own can be made on this machine.
fn loop_devices(lane: Option<Lane>) -> Result<(), &'static str> {
    match lane {
        Some(Lane::User) => Err("needs root: an ordinary user has no loop devices"),
        _ if !Path::new("/dev/loop-control").exists() => Err("needs loop devices: modprobe loop"),
        Some(Lane::Root) | None => Ok(()),
    }
}

fn program(name: &str, remedy: &'static str) -> Result<(), &'static str> {
    let directories = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let found = directories.iter().any(|directory| Path::new(directory).join(name).exists());
    if found { Ok(()) } else { Err(remedy) }
}
