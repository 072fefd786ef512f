//! `--cluster existing`: its arguments, and the components installed on the cluster for a run.

use std::path::PathBuf;

use anyhow::{Context, Result};
use claimcheck_cluster::{ClassChoice, Cluster, Install, Target};
use claimcheck_deploy::install::Variant;
use claimcheck_report::RunFolder;
use clap::{Args, ValueEnum};

use crate::component_args::ComponentArgs;
use claimcheck_suites::FsType;
use claimcheck_suites::{Environment, FileSystems};

/// Arguments of `--cluster existing`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Existing clusters")]
pub struct ExistingArgs {
    /// Path of the kubeconfig [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Storage class of the driver under test [default: the default class, or the class of the driver of --install]
    #[arg(long, value_name = "NAME", conflicts_with = "driver_config", env = "CLAIMCHECK_STORAGE_CLASS")]
    storage_class: Option<String>,
    /// Install the built-in driver and observers for the run and remove them at its end; requires --image
    #[arg(
        long,
        value_enum,
        value_name = "VARIANT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "existing",
        env = "CLAIMCHECK_INSTALL"
    )]
    install: Option<Installed>,
    /// Root directory of the kubelets for --install, if not /var/lib/kubelet, with symbolic links resolved:
    /// /var/lib/k0s/kubelet on k0s, /var/snap/microk8s/common/var/lib/kubelet on MicroK8s
    #[arg(
        long,
        value_name = "DIR",
        requires = "install",
        value_parser = kubelet_dir,
        env = "CLAIMCHECK_KUBELET_DIR"
    )]
    kubelet_dir: Option<String>,
    /// Permit disruptive cases to kill the components installed by --install, and to taint nodes
    #[arg(long)]
    allow_disruptive: bool,
}

fn kubelet_dir(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    let is_plain = !path.contains("//") && !path.split('/').any(|part| part == "." || part == "..");
    match path.starts_with('/') && is_plain {
        true => Ok(path.to_owned()),
        false => Err("write an absolute path, without symbolic links, `.` or `..`".to_owned()),
    }
}

/// The variants of the manifests that can be installed on an existing cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Installed {
    /// The driver with its sidecars, on nodes without a shared directory: all volumes are on one node
    Existing,
    /// The same, on nodes that share /var/lib/claimcheck
    Stock,
    /// As stock, with the built-in storage controllers in place of those of Kubernetes, which must be disabled
    Kind,
}

impl Installed {
    fn variant(self) -> Variant {
        match self {
            Self::Existing => Variant::Existing,
            Self::Stock => Variant::Stock,
            Self::Kind => Variant::Kind,
        }
    }
}

impl ExistingArgs {
    /// The first of these arguments that was given, for kinds of cluster that accept none of them.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--kubeconfig", self.kubeconfig.is_some()),
            ("--context", self.context.is_some()),
            ("--storage-class", self.storage_class.is_some()),
            ("--install", self.install.is_some()),
            ("--kubelet-dir", self.kubelet_dir.is_some()),
            ("--allow-disruptive", self.allow_disruptive),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(argument, _)| argument)
    }

    /// Whether built-in components are installed.
    pub fn installs(&self) -> bool {
        self.install.is_some()
    }

    /// Whether disruptions are requested for components that claimcheck has not installed.
    pub fn disrupts_others(&self) -> bool {
        self.allow_disruptive && self.install.is_none()
    }

    /// The cluster that the arguments select, with the class of a driver file and the driver's file systems.
    pub fn place(
        self,
        class: Option<ClassChoice>,
        file_systems: Vec<FsType>,
        components: &ComponentArgs,
    ) -> ExistingTarget {
        let class = class.or(self.storage_class.map(ClassChoice::Named)).unwrap_or_default();
        let target = Target { kubeconfig: self.kubeconfig, context: self.context, class };
        let install = self.install.map(|installed| {
            let mut options = components.components(installed.variant());
            if let Some(directory) = self.kubelet_dir {
                options.kubelet_dir = directory;
            }
            Install { components: options, keep: components.keep, disrupt: self.allow_disruptive }
        });
        ExistingTarget { target, file_systems, install }
    }
}

/// An existing cluster.
#[derive(Clone, Debug)]
pub struct ExistingTarget {
    target: Target,
    file_systems: Vec<FsType>,
    install: Option<Install>,
}

impl ExistingTarget {
    /// The storage class of `--storage-class`.
    pub(crate) fn storage_class(&self) -> Option<&str> {
        match &self.target.class {
            ClassChoice::Named(name) => Some(name),
            ClassChoice::Default | ClassChoice::Given(_) => None,
        }
    }

    /// The message to print before anything is installed.
    pub fn startup_notice(&self) -> Option<String> {
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
    pub fn shutdown_notice(&self) -> Option<String> {
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
    pub async fn bring_up(&self, folder: &RunFolder) -> Result<Cluster> {
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
    pub fn expected(&self, unknown: Environment) -> Environment {
        let file_systems = match &self.install {
            // The image of the built-in driver contains the programs.
            Some(_) if self.target.class == ClassChoice::Default => {
                FileSystems { ext3: Ok(()), ext4: Ok(()), xfs: Ok(()), block: Ok(()) }
            }
            Some(_) | None => FileSystems::given(&self.file_systems),
        };
        let cluster_capabilities =
            self.install.as_ref().map_or(unknown.cluster_capabilities, Install::cluster_capabilities);
        Environment { file_systems, cluster_capabilities, ..unknown }
    }
}
