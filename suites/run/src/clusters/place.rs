//! A cluster that arguments select, before it is started: one implementation per kind. The defaults are for kinds that
//! have nothing of the sort.

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::Path};

use anyhow::Result;
use async_trait::async_trait;
use claimcheck_cluster::{Cluster, ClusterCapabilities, Instrumentation, Options, SupportedCalls};
use claimcheck_harness::Privilege;
use claimcheck_kind::Controllers;
use claimcheck_model::ClusterKind;
use claimcheck_report::RunFolder;
use claimcheck_suites::{Environment, FileSystems, Kubernetes, pod_security::PodSecurity};
use claimcheck_vendor::AbsentSidecars;

/// A cluster of one kind. Its start is awaited by the main task, so that it need not be `Send`.
#[async_trait(?Send)]
pub trait Place: fmt::Debug + Send + Sync {
    /// Starts the cluster, or connects to an existing one. Components that the run starts emit the requested telemetry.
    ///
    /// # Errors
    /// It cannot be started or used; nothing is left behind then.
    async fn start(&self, folder: &RunFolder, instrumentation: Instrumentation) -> Result<Cluster>;

    /// What is known of the cluster before it is started, with this privilege if it is known.
    fn expected(&self, privilege: Option<Privilege>) -> Environment;

    /// How `claimcheck cluster up` provides it.
    fn development(&self) -> Development;

    /// The message to print before the cluster is started, if any.
    fn startup_notice(&self) -> Option<String> {
        None
    }

    /// The message to print at the end of a run if anything is kept.
    fn shutdown_notice(&self) -> Option<String> {
        None
    }

    /// The storage class that the arguments name for an existing cluster.
    fn storage_class(&self) -> Option<&str> {
        None
    }

    /// The storage controllers that run, if the run chooses them.
    fn controllers(&self) -> Option<Controllers> {
        None
    }

    /// The stock programs of `--sidecar`, if any.
    fn sidecars(&self) -> Option<String> {
        None
    }

    /// The period at which real kubelets report their node status, if the run configures them.
    fn node_status_period(&self) -> Option<String> {
        None
    }
}

/// The options of a cluster at this address, with files in this folder.
pub type OptionsOf = Box<dyn FnOnce(SocketAddr, &RunFolder) -> Result<Options>>;

/// How `claimcheck cluster up` provides a cluster.
pub enum Development {
    /// It runs until Ctrl-C.
    Foreground(OptionsOf),
    /// It outlives the command: this one, which is kept.
    Detached(Box<dyn Place>),
    /// It is running already.
    Running,
}

pub(super) const NO_INLINE: &str =
    "support for CSI inline volumes is unknown: use --driver-config with InlineVolumes";

/// A cluster and a driver of which nothing is known yet: every case that can run on some cluster is attempted.
pub(super) const UNKNOWN: Environment = Environment {
    cluster: ClusterKind::Existing,
    nodes: usize::MAX,
    builtin: false,
    topology_keys: None,
    supported_calls: SupportedCalls::ALL,
    declared: BTreeMap::new(),
    pod_security: PodSecurity::Privileged,
    classes: Ok(()),
    inline: Err(NO_INLINE),
    largest_file: None,
    cluster_capabilities: ClusterCapabilities::EXISTING,
    kubernetes: Kubernetes::NEWEST,
    absent_sidecars: AbsentSidecars::NONE,
    file_systems: FileSystems { ext3: Ok(()), ext4: Ok(()), xfs: Ok(()), block: Ok(()) },
};

/// Whether image-backed volumes can be created on this machine.
pub(super) fn loop_devices(privilege: Option<Privilege>) -> Result<(), &'static str> {
    match privilege {
        Some(Privilege::User) => Err("needs root: unprivileged users have no loop devices"),
        _ if !Path::new("/dev/loop-control").exists() => Err("needs loop devices: modprobe loop"),
        Some(Privilege::Root) | None => Ok(()),
    }
}
