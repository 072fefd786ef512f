//! `--cluster existing`, and the components installed on the cluster for a run.

use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use claimcheck_cluster::{ClassChoice, Cluster, Install, Instrumentation, Target};
use claimcheck_harness::Privilege;
use claimcheck_model::ClusterKind;
use claimcheck_report::RunFolder;
use claimcheck_suites::{Environment, FileSystems, FsType};

use super::{
    place::{Development, Place, UNKNOWN},
    row::Row,
};
use crate::{
    class_choice::choice, cluster_options::file_systems, component_args::ComponentArgs,
    existing_args::ExistingArgs,
};

/// The driver is installed there already, or for the run.
pub(super) const EXISTING: Row = Row {
    kind: ClusterKind::Existing,
    description: "The cluster of a kubeconfig, with the driver installed there",
    has_virtual_nodes: false,
    installs: |options| options.existing.installs(),
    place: |options, config| {
        let class = config.as_deref().map(choice);
        Ok(Arc::new(place(options.existing, class, file_systems(&options.fs_types), &options.components)))
    },
};

/// The cluster that the arguments select, with the class of a driver file and the driver's file systems.
fn place(
    args: ExistingArgs,
    class: Option<ClassChoice>,
    file_systems: Vec<FsType>,
    components: &ComponentArgs,
) -> ExistingTarget {
    let class = class.or(args.storage_class.map(ClassChoice::Named)).unwrap_or_default();
    let target = Target { kubeconfig: args.kubeconfig, context: args.context, class };
    let install = args.install.map(|installed| {
        let mut options = components.components(installed.variant());
        if let Some(directory) = args.kubelet_dir {
            options.kubelet_dir = directory;
        }
        Install { components: options, keep: components.keep, disrupt: args.allow_disruptive }
    });
    ExistingTarget { target, file_systems, install }
}

/// An existing cluster.
#[derive(Clone, Debug)]
struct ExistingTarget {
    target: Target,
    file_systems: Vec<FsType>,
    install: Option<Install>,
}

#[async_trait(?Send)]
impl Place for ExistingTarget {
    fn development(&self) -> Development {
        Development::Running
    }

    /// The storage class of `--storage-class`.
    fn storage_class(&self) -> Option<&str> {
        match &self.target.class {
            ClassChoice::Named(name) => Some(name),
            ClassChoice::Default | ClassChoice::Given(_) => None,
        }
    }

    /// The message to print before anything is installed.
    fn startup_notice(&self) -> Option<String> {
        let Install { components, keep, .. } = self.install.as_ref()?;
        Some(format!(
            "installing driver, sidecars and observers (manifests/{}, image {}) in namespace {}; {}",
            components.overlay(),
            components.image,
            components.namespace,
            if *keep { "they are kept" } else { "they are removed at the end of the run" },
        ))
    }

    /// The message to print at the end of a run if components are kept.
    fn shutdown_notice(&self) -> Option<String> {
        let Install { components, keep, .. } = self.install.as_ref()?;
        let overlay = components.overlay();
        keep.then(|| {
            format!("components are kept: `kubectl delete -k manifests/{overlay} -k manifests/observe` removes them")
        })
    }

    /// Connects to the cluster, and installs the built-in components if requested.
    ///
    /// # Errors
    /// It cannot be used; nothing is left behind then.
    async fn start(&self, folder: &RunFolder, _instrumentation: Instrumentation) -> Result<Cluster> {
        // Boxed: these are large futures, and are awaited once.
        match &self.install {
            None => Ok(Box::pin(Cluster::existing(&self.target)).await?),
            Some(install) => {
                let logs = folder.cluster_dir()?;
                Box::pin(Cluster::with_components(&self.target, install, &logs))
                    .await
                    .context("the built-in components cannot be used on the cluster")
            }
        }
    }

    /// What is known of the cluster before it is queried, in addition to what is known of all clusters.
    fn expected(&self, _privilege: Option<Privilege>) -> Environment {
        let file_systems = match &self.install {
            // The image of the built-in driver contains the programs.
            Some(_) if self.target.class == ClassChoice::Default => {
                FileSystems { ext3: Ok(()), ext4: Ok(()), xfs: Ok(()), block: Ok(()) }
            }
            Some(_) | None => FileSystems::given(&self.file_systems),
        };
        let cluster_capabilities =
            self.install.as_ref().map_or(UNKNOWN.cluster_capabilities, Install::cluster_capabilities);
        Environment { file_systems, cluster_capabilities, ..UNKNOWN }
    }
}
