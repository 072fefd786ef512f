//! The cluster of a run: its kind, what its arguments select, and the driver file.

use std::sync::Arc;

use anyhow::{Result, bail};
use claimcheck_cluster::{Cluster, Instrumentation};
use claimcheck_harness::Privilege;
use claimcheck_kind::Controllers;
use claimcheck_model::{Capability, ClusterKind};
use claimcheck_report::RunFolder;
use claimcheck_suites::{
    Environment, FileSystems, Kubernetes,
    testdriver::{Class, TestDriver},
};

use super::place::{Development, Place};

/// The cluster of a run.
#[derive(Clone, Debug)]
pub struct ClusterTarget {
    pub(crate) kind: ClusterKind,
    pub(crate) has_virtual_nodes: bool,
    pub(crate) place: Arc<dyn Place>,
    /// The driver file (`--driver-config`).
    pub(crate) config: Option<Arc<TestDriver>>,
}

impl ClusterTarget {
    /// The driver file (`--driver-config`).
    pub fn config(&self) -> Option<&Arc<TestDriver>> {
        self.config.as_ref()
    }

    /// The storage class that the arguments name for an existing cluster.
    pub fn storage_class(&self) -> Option<&str> {
        self.place.storage_class()
    }

    /// The kind of cluster, as reports name it.
    pub fn kind(&self) -> ClusterKind {
        self.kind
    }

    /// How `claimcheck cluster up` provides it.
    pub fn development(&self) -> Development {
        self.place.development()
    }

    /// The message to print before the cluster is started, if any.
    pub fn startup_notice(&self) -> Option<String> {
        let idle = self.config().map(|config| config.without_effect()).filter(|fields| !fields.is_empty());
        let idle =
            idle.map(|fields| format!("no case uses these fields of --driver-config: {}", fields.join(", ")));
        let wait = self.place.startup_notice();
        let ignored = self.config().map(|config| config.ignored()).filter(|fields| !fields.is_empty());
        let ignored = ignored.map(|fields| {
            format!("fields of --driver-config that are ignored, as upstream: {}", fields.join(", "))
        });
        let lines: Vec<String> = idle.into_iter().chain(ignored).chain(wait).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// The message to print at the end of a run if anything is kept.
    pub fn shutdown_notice(&self) -> Option<String> {
        self.place.shutdown_notice()
    }

    /// The storage controllers that run, if the run chooses them.
    pub fn controllers(&self) -> Option<Controllers> {
        self.place.controllers()
    }

    /// The stock programs of `--sidecar`, if any.
    pub fn sidecars(&self) -> Option<String> {
        self.place.sidecars()
    }

    /// The period at which real kubelets report their node status, if the run configures them.
    pub fn node_status_period(&self) -> Option<String> {
        self.place.node_status_period()
    }

    /// Whether its nodes are virtual.
    pub fn is_virtual(&self) -> bool {
        self.has_virtual_nodes
    }

    /// Starts the cluster, or connects to an existing one. Components that the run starts emit the requested telemetry.
    ///
    /// # Errors
    /// It cannot be started or used.
    pub async fn bring_up(&self, folder: &RunFolder, instrumentation: Instrumentation) -> Result<Cluster> {
        let cluster = self.place.start(folder, instrumentation).await?;
        match self.config() {
            Some(config) if config.name() != cluster.driver_name() => {
                let (expected, is) = (config.name().to_owned(), cluster.driver_name().to_owned());
                cluster.down(true).await;
                bail!("DriverInfo.Name of --driver-config is {expected}, but GetPluginInfo returns {is}")
            }
            Some(_) | None => Ok(cluster),
        }
    }

    /// What is known of the cluster before it is started: enough to list the cases and, for virtual nodes, to predict
    /// which of them will run.
    pub fn expected(&self, privilege: Option<Privilege>) -> Environment {
        self.described(self.place.expected(privilege))
    }

    /// The same, with the properties from the driver file.
    fn described(&self, environment: Environment) -> Environment {
        match self.config() {
            Some(config) => described(environment, config),
            None => environment,
        }
    }

    /// The capabilities of the running cluster.
    ///
    /// # Errors
    /// The API server does not return its version and resources.
    pub async fn environment(&self, privilege: Privilege, cluster: &Cluster) -> Result<Environment> {
        let declared = cluster.declared();
        Ok(self.described(Environment {
            nodes: cluster.nodes().len(),
            topology_keys: cluster.reachable_nodes().topology_keys(),
            supported_calls: declared.supported_calls,
            declared: declared.capabilities.clone(),
            kubernetes: Kubernetes::of(&cluster.client()).await?,
            ..self.place.expected(Some(privilege))
        }))
    }
}

/// Applies the driver file, which takes precedence over the driver's declared capabilities.
fn described(environment: Environment, config: &TestDriver) -> Environment {
    let file = config.file();
    let known =
        |name: &str, why| if config.file_systems().any(|known| known == name) { Ok(()) } else { Err(why) };
    let classes = match config.class() {
        Class::None => Err("--driver-config has no StorageClass, so claims cannot be provisioned"),
        Class::Name | Class::Object(_) | Class::Existing(_) => Ok(()),
    };
    let inline = match file.inline_volumes.is_empty() {
        true => Err("--driver-config has no InlineVolumes"),
        false => Ok(()),
    };
    Environment {
        nodes: if file.client_node_name.is_empty() { environment.nodes } else { 1 },
        declared: config.capabilities(),
        classes,
        inline,
        largest_file: (file.driver_info.max_file_size > 0).then_some(file.driver_info.max_file_size),
        file_systems: FileSystems {
            ext3: known("ext3", "SupportedFsType of --driver-config has no ext3"),
            ext4: known("ext4", "SupportedFsType of --driver-config has no ext4"),
            xfs: known("xfs", "SupportedFsType of --driver-config has no xfs"),
            block: match config.capabilities().get(&Capability::Block) {
                Some(true) => Ok(()),
                Some(false) | None => Err("--driver-config does not declare block"),
            },
        },
        ..environment
    }
}
