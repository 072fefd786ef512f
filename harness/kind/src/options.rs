//! The options of a kind cluster: the arguments of `--cluster kind`, and what a run decides by other arguments.
//!
//! The command line fills them, and the config file is generated from them, so that each option is declared once.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;

use super::{config::Controllers, node_images::Selection};

/// The options of a kind cluster.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "kind clusters")]
pub struct KindOptions {
    /// Cluster name; the prefix `claimcheck-` is added if missing [default: generated]
    #[arg(long, value_name = "NAME", env = "CLAIMCHECK_NAME")]
    pub name: Option<String>,
    /// Node image, which determines the Kubernetes version: kindest/node:v1.36.0 [default: kind's default]
    #[arg(long, value_name = "IMAGE", env = "CLAIMCHECK_NODE_IMAGE")]
    pub node_image: Option<String>,
    /// Kubernetes version, by the newest node image of that version that the container engine has: 1.34 or 1.34.9. `run`
    /// accepts several, and all, and then runs once per version
    #[arg(
        long,
        value_name = "VERSION",
        value_delimiter = ',',
        conflicts_with = "node_image",
        env = "CLAIMCHECK_KUBERNETES"
    )]
    pub kubernetes: Vec<Selection>,
    /// kind config file, which is merged with the generated one
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_KIND_CONFIG")]
    pub kind_config: Option<PathBuf>,
    /// Argument of all kubelets, without dashes, for example v=4; overrides the generated config, in which kubelets
    /// report their node status every second; can be repeated
    #[arg(long = "kubelet-arg", value_name = "NAME=VALUE", value_parser = kubelet_arg)]
    pub kubelet_args: Vec<(String, String)>,
    /// Base image of the component image, if that is built [default: debian:trixie-slim]
    #[arg(long, value_name = "IMAGE", conflicts_with = "image", env = "CLAIMCHECK_BASE_IMAGE")]
    pub base_image: Option<String>,
    /// Additional image to load onto all nodes: name in the container engine, or image archive; can be repeated.
    /// Otherwise upstream sidecars, a vendor's driver and --workload-image are pulled from a registry
    #[arg(
        long = "load-image",
        value_name = "NAME|FILE.tar",
        value_delimiter = ',',
        env = "CLAIMCHECK_LOAD_IMAGE"
    )]
    pub load_images: Vec<String>,
    /// Reuse the kept cluster of this name, or create it; it is kept at the end
    #[arg(long, requires = "name")]
    pub reuse: bool,
    /// The number of workers, in addition to one control plane; default [`DEFAULT_WORKERS`](crate::DEFAULT_WORKERS).
    #[arg(skip)]
    pub workers: Option<usize>,
    /// The storage controllers.
    #[arg(skip)]
    pub controllers: Controllers,
    /// Whether it outlives its run; then the controller manager serves its metrics on the loopback only, as with
    /// kubeadm.
    #[arg(skip)]
    pub keep: bool,
    /// Feature gates of all components.
    #[arg(skip)]
    pub feature_gates: BTreeMap<String, bool>,
    /// The value of `kube-apiserver --runtime-config`.
    #[arg(skip)]
    pub runtime_config: BTreeMap<String, String>,
}

/// Parses an argument of kubelets.
fn kubelet_arg(text: &str) -> Result<(String, String), String> {
    let name = |name: &str| !name.is_empty() && !name.starts_with('-');
    match text.split_once('=') {
        Some((key, value)) if name(key) => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE without dashes, for example v=4".to_owned()),
    }
}

impl KindOptions {
    /// The first of the arguments that was given, for kinds of cluster that accept none of them.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--name", self.name.is_some()),
            ("--node-image", self.node_image.is_some()),
            ("--kubernetes", !self.kubernetes.is_empty()),
            ("--kind-config", self.kind_config.is_some()),
            ("--kubelet-arg", !self.kubelet_args.is_empty()),
            ("--base-image", self.base_image.is_some()),
            ("--load-image", !self.load_images.is_empty()),
            ("--reuse", self.reuse),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(argument, _)| argument)
    }
}
