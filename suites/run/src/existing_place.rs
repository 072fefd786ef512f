//! Somebody's cluster: its arguments, and what is installed on it for a run.

use std::path::PathBuf;

use anyhow::{Context, Result};
use claimcheck_cluster::{ClassChoice, Cluster, Install, Real, Target};
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
    /// The kubeconfig [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The class whose driver is tried [default: the default class, or that of the driver of --install]
    #[arg(long, value_name = "NAME", conflicts_with = "driver_config", env = "CLAIMCHECK_STORAGE_CLASS")]
    storage_class: Option<String>,
    /// Install our driver and observers for the run, and remove them at its end; needs --image
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
    /// The kubelets' directory, where it is not /var/lib/kubelet, with symbolic links resolved: /var/lib/k0s/kubelet on
    /// k0s, /var/snap/microk8s/common/var/lib/kubelet on MicroK8s; for what --install installs
    #[arg(
        long,
        value_name = "DIR",
        requires = "install",
        value_parser = kubelet_dir,
        env = "CLAIMCHECK_KUBELET_DIR"
    )]
    kubelet_dir: Option<String>,
    /// Let disruptive cases kill what --install has installed, and taint nodes
    #[arg(long)]
    allow_disruptive: bool,
}

fn kubelet_dir(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    let is_plain = !path.contains("//") && !path.split('/').any(|part| part == "." || part == "..");
    match path.starts_with('/') && is_plain {
        true => Ok(path.to_owned()),
        false => Err("write an absolute path, without links, `.` or `..`".to_owned()),
    }
}

/// What is installed on somebody's cluster: the variants of the manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Installed {
    /// The driver with its sidecars, on nodes that share no folder: all volumes are on one node
    Existing,
    /// The same, on nodes that have one and the same /var/lib/claimcheck
    Stock,
    /// As stock, with our storage controllers in place of those of Kubernetes, which must be off
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
    /// The first that was given, for places that take none.
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

    /// Whether components of ours are installed.
    pub fn installs(&self) -> bool {
        self.install.is_some()
    }

    /// Whether components shall be hit that are not ours.
    pub fn disrupts_others(&self) -> bool {
        self.allow_disruptive && self.install.is_none()
    }

    /// The place that they name, with the class of a driver file and a driver that makes these file systems.
    pub fn place(
        self,
        class: Option<ClassChoice>,
        file_systems: Vec<FsType>,
        components: &ComponentArgs,
    ) -> ExistingPlace {
        let class = class.or(self.storage_class.map(ClassChoice::Named)).unwrap_or_default();
        let target = Target { kubeconfig: self.kubeconfig, context: self.context, class };
        let install = self.install.map(|installed| {
            let mut options = components.components(installed.variant());
            if let Some(directory) = self.kubelet_dir {
                options.kubelet_dir = directory;
            }
            Install { components: options, keep: components.keep, disrupt: self.allow_disruptive }
        });
        ExistingPlace { target, file_systems, install }
    }
}

/// Somebody's cluster.
#[derive(Clone, Debug)]
pub struct ExistingPlace {
    target: Target,
    file_systems: Vec<FsType>,
    install: Option<Install>,
}

impl ExistingPlace {
    /// What to tell before something is installed.
    pub fn foreword(&self) -> Option<String> {
        let Install { components, keep, .. } = self.install.as_ref()?;
        Some(format!(
            "driver, sidecars and observers (manifests/{}, image {}) are installed in namespace {}; {}",
            components.overlay(),
            components.image,
            components.namespace,
            if *keep { "they stay" } else { "the end of the run removes them" },
        ))
    }

    /// What to tell when a run is over, if something stays.
    pub fn afterword(&self) -> Option<String> {
        let Install { components, keep, .. } = self.install.as_ref()?;
        let overlay = components.overlay();
        keep.then(|| {
            format!("our components stay: `kubectl delete -k manifests/{overlay} -k manifests/observe` removes them")
        })
    }

    /// Looks at the cluster, with our components installed if they are to be.
    ///
    /// # Errors
    /// It cannot be used; nothing is left then.
    pub async fn bring_up(&self, folder: &RunFolder) -> Result<Cluster> {
        // Boxed: these are large futures, and are awaited once.
        let real = match &self.install {
            None => Box::pin(Real::at(&self.target)).await?,
            Some(install) => Box::pin(Real::with_components(&self.target, install, &folder.cluster_dir()?))
                .await
                .context("our components cannot be used on the cluster")?,
        };
        Ok(Cluster::Real(Box::new(real)))
    }

    /// What is known of it before it is looked at, beside what is known of all clusters.
    pub fn expected(&self, unknown: Environment) -> Environment {
        let file_systems = match &self.install {
            // The image of our driver brings the programs.
            Some(_) if self.target.class == ClassChoice::Default => {
                FileSystems { ext3: Ok(()), ext4: Ok(()), xfs: Ok(()), block: Ok(()) }
            }
            Some(_) | None => FileSystems::told(&self.file_systems),
        };
        let abilities = self.install.as_ref().map_or(unknown.abilities, Install::abilities);
        Environment { file_systems, abilities, ..unknown }
    }
}
