//! Arguments of `--cluster existing`.

use std::path::PathBuf;

use claimcheck_deploy::install::Variant;
use clap::{Args, ValueEnum};

/// Arguments of `--cluster existing`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Existing clusters")]
pub struct ExistingArgs {
    /// Path of the kubeconfig [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Storage class of the driver under test [default: the default class, or the class of the driver of --install]
    #[arg(long, value_name = "NAME", conflicts_with = "driver_config", env = "CLAIMCHECK_STORAGE_CLASS")]
    pub storage_class: Option<String>,
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
    pub install: Option<Installed>,
    /// Root directory of the kubelets for --install, if not /var/lib/kubelet, with symbolic links resolved:
    /// /var/lib/k0s/kubelet on k0s, /var/snap/microk8s/common/var/lib/kubelet on MicroK8s
    #[arg(
        long,
        value_name = "DIR",
        requires = "install",
        value_parser = kubelet_dir,
        env = "CLAIMCHECK_KUBELET_DIR"
    )]
    pub kubelet_dir: Option<String>,
    /// Permit disruptive cases to kill the components installed by --install, and to taint nodes
    #[arg(long)]
    pub allow_disruptive: bool,
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
pub enum Installed {
    /// The driver with its sidecars, on nodes without a shared directory: all volumes are on one node
    Existing,
    /// The same, on nodes that share /var/lib/claimcheck
    Stock,
    /// As stock, with the built-in storage controllers in place of those of Kubernetes, which must be disabled
    Kind,
}

impl Installed {
    /// The variant of the manifests.
    pub fn variant(self) -> Variant {
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
}
