//! Where a run takes place, as arguments: of `claimcheck run` and `load`, and, as environment variables, of
//! `cargo test --test e2e`.

use std::path::PathBuf;

use claimcheck_harness::cluster::{Api, Assets, DriverCommand, Target};
use clap::{Args, ValueEnum};

use crate::{
    case::FsType,
    place::Place,
    workload::{IMAGE, PullSecret, Workload},
};

/// Which cluster.
#[derive(Clone, Debug, Args)]
pub struct PlaceArgs {
    /// Where the cluster comes from
    #[arg(long, value_enum, default_value_t, env = "CLAIMCHECK_CLUSTER")]
    cluster: Kind,
    /// `builtin`, or `exec:<command with {endpoint} {node_id} {state_dir}>` for a driver of your own; embedded
    /// and envtest
    #[arg(long, default_value = "builtin", env = "CLAIMCHECK_DRIVER")]
    driver: DriverCommand,
    /// How many nodes; embedded and envtest
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64), env = "CLAIMCHECK_NODES")]
    nodes: u16,
    /// The kubeconfig of an existing cluster [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The class whose driver an existing cluster is tried with [default: its default class]
    #[arg(long, value_name = "NAME", env = "CLAIMCHECK_STORAGE_CLASS")]
    storage_class: Option<String>,
    /// A file system that the driver of an existing cluster can make: ext3, ext4 or xfs; can be repeated
    #[arg(long = "fs-type", value_name = "NAME", value_enum)]
    fs_types: Vec<FsKind>,
    /// The image of pods on real nodes: any with sh and what busybox brings
    #[arg(long, value_name = "IMAGE", default_value = IMAGE, env = "CLAIMCHECK_WORKLOAD_IMAGE")]
    workload_image: String,
    /// The secret with which it is pulled; it is copied to the namespaces of the cases
    #[arg(long, value_name = "NAMESPACE/NAME")]
    image_pull_secret: Option<PullSecret>,
}

/// File systems that somebody's driver may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FsKind {
    /// ext3
    Ext3,
    /// ext4
    Ext4,
    /// xfs
    Xfs,
}

impl From<FsKind> for FsType {
    fn from(kind: FsKind) -> Self {
        match kind {
            FsKind::Ext3 => Self::Ext3,
            FsKind::Ext4 => Self::Ext4,
            FsKind::Xfs => Self::Xfs,
        }
    }
}

/// The kinds of clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Everything ours, on this machine, without Docker
    #[default]
    Embedded,
    /// A stock kube-apiserver and etcd below our controllers and nodes, from KUBEBUILDER_ASSETS or PATH
    Envtest,
    /// Whatever a kubeconfig points to, with the driver that is there
    Existing,
}

/// Arguments that do not fit each other.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// One that only another kind of cluster takes.
    #[error("{argument} is for --cluster {wanted}, not {given}")]
    Misplaced {
        /// The argument.
        argument: &'static str,
        /// The kind that takes it.
        wanted: &'static str,
        /// The kind that was given.
        given: &'static str,
    },
    /// The stock programs are missing.
    #[error(transparent)]
    Assets(#[from] claimcheck_harness::cluster::AssetsError),
}

impl PlaceArgs {
    /// What pods run there.
    pub fn workload(&self) -> Workload {
        Workload { image: self.workload_image.clone(), pull_secret: self.image_pull_secret.clone() }
    }

    /// The place that they name.
    ///
    /// # Errors
    /// They do not fit each other, or name programs that are not there.
    pub fn place(self) -> Result<Place, PlaceError> {
        let given = match self.cluster {
            Kind::Embedded => "embedded",
            Kind::Envtest => "envtest",
            Kind::Existing => "existing",
        };
        let only_existing = [
            ("--kubeconfig", self.kubeconfig.is_some()),
            ("--context", self.context.is_some()),
            ("--storage-class", self.storage_class.is_some()),
            ("--fs-type", !self.fs_types.is_empty()),
        ];
        let api = match self.cluster {
            Kind::Existing if self.driver != DriverCommand::Builtin => {
                return Err(PlaceError::Misplaced { argument: "--driver", wanted: "embedded", given });
            }
            Kind::Existing => {
                let (kubeconfig, context, class) = (self.kubeconfig, self.context, self.storage_class);
                let target = Target { kubeconfig, context, class };
                let file_systems = self.fs_types.into_iter().map(FsType::from).collect();
                return Ok(Place::Existing { target, file_systems });
            }
            Kind::Embedded => Api::Ours,
            Kind::Envtest => Api::Stock(Assets::find()?),
        };
        if let Some((argument, _)) = only_existing.into_iter().find(|(_, is_given)| *is_given) {
            return Err(PlaceError::Misplaced { argument, wanted: "existing", given });
        }
        Ok(Place::Embedded { api, nodes: self.nodes.into(), driver: self.driver })
    }
}
