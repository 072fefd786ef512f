//! `--cluster kind`: its arguments, and how the cluster is created.

use std::path::PathBuf;

use anyhow::Result;
use claimcheck_cluster::{KindOptions, Real};
use claimcheck_deploy::install::Variant;
use claimcheck_kind::{
    Controllers, DEFAULT_WORKERS, NODE_STATUS_PERIOD_S, OwnedError, Store, Tools, cluster_name,
};
use claimcheck_report::RunFolder;
use clap::Args;

use crate::component_args::{self, ComponentArgs};

/// Arguments of `--cluster kind`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "kind clusters")]
pub struct KindArgs {
    /// Cluster name; the prefix `claimcheck-` is added if missing [default: generated]
    #[arg(long, value_name = "NAME", env = "CLAIMCHECK_NAME")]
    name: Option<String>,
    /// Node image, which determines the Kubernetes version: kindest/node:v1.36.0 [default: kind's default]
    #[arg(long, value_name = "IMAGE", env = "CLAIMCHECK_NODE_IMAGE")]
    node_image: Option<String>,
    /// kind config file, which is merged with the generated one
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_KIND_CONFIG")]
    kind_config: Option<PathBuf>,
    /// Argument of all kubelets, without dashes, for example v=4; overrides the generated config, in which kubelets
    /// report their node status every second; can be repeated
    #[arg(long = "kubelet-arg", value_name = "NAME=VALUE", value_parser = kubelet_arg)]
    kubelet_args: Vec<(String, String)>,
    /// Base image of the component image, if that is built [default: debian:trixie-slim]
    #[arg(long, value_name = "IMAGE", conflicts_with = "image", env = "CLAIMCHECK_BASE_IMAGE")]
    base_image: Option<String>,
    /// Additional image to load onto all nodes: name in the container engine, or image archive; can be repeated.
    /// Otherwise upstream sidecars, a vendor's driver and --workload-image are pulled from a registry
    #[arg(
        long = "load-image",
        value_name = "NAME|FILE.tar",
        value_delimiter = ',',
        env = "CLAIMCHECK_LOAD_IMAGE"
    )]
    load_images: Vec<String>,
    /// Reuse the kept cluster of this name, or create it; it is kept at the end
    #[arg(long, requires = "name")]
    reuse: bool,
}

/// Parses an argument of kubelets.
fn kubelet_arg(text: &str) -> Result<(String, String), String> {
    let name = |name: &str| !name.is_empty() && !name.starts_with('-');
    match text.split_once('=') {
        Some((key, value)) if name(key) => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE without dashes, for example v=4".to_owned()),
    }
}

impl KindArgs {
    /// The first of these arguments that was given, for kinds of cluster that accept none of them.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--name", self.name.is_some()),
            ("--node-image", self.node_image.is_some()),
            ("--kind-config", self.kind_config.is_some()),
            ("--kubelet-arg", !self.kubelet_args.is_empty()),
            ("--base-image", self.base_image.is_some()),
            ("--load-image", !self.load_images.is_empty()),
            ("--reuse", self.reuse),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(argument, _)| argument)
    }

    /// The cluster that the arguments select, with this number of workers, these components and storage controllers.
    ///
    /// # Errors
    /// kind does not accept the name.
    pub fn place(
        self,
        workers: Option<usize>,
        components: ComponentArgs,
        controllers: Controllers,
    ) -> Result<KindTarget, OwnedError> {
        let name = cluster_name(self.name.as_deref())?;
        Ok(KindTarget { name, args: self, components, workers, controllers })
    }
}

/// A kind cluster to be created or reused.
#[derive(Clone, Debug)]
pub struct KindTarget {
    name: String,
    args: KindArgs,
    components: ComponentArgs,
    workers: Option<usize>,
    controllers: Controllers,
}

impl KindTarget {
    /// Whether the sidecars are those of kubernetes-csi.
    pub fn has_upstream_sidecars(&self) -> bool {
        self.components.has_upstream_sidecars()
    }

    /// The period at which kubelets report their node status, for the report.
    pub fn node_status_period(&self) -> String {
        let of_config = self.args.kind_config.is_some().then_some(" unless --kind-config overrides it");
        let given =
            self.args.kubelet_args.iter().rev().find(|(name, _)| name == "node-status-update-frequency");
        match given {
            Some((_, period)) => period.clone(),
            None => format!("{NODE_STATUS_PERIOD_S}s{}", of_config.unwrap_or_default()),
        }
    }

    /// The storage controllers that run: built-in or stock.
    pub fn controllers(&self) -> Controllers {
        self.controllers
    }

    /// The number of schedulable nodes, as far as it is known: a config file may set another number.
    pub fn workers(&self) -> usize {
        match (self.workers, &self.args.kind_config) {
            (Some(workers), _) => workers,
            (None, None) => DEFAULT_WORKERS,
            (None, Some(_)) => usize::MAX,
        }
    }

    /// The same cluster, kept at the end of the run.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.components.keep = true;
        self
    }

    /// The message to print before the cluster is created, which takes a while.
    pub fn startup_notice(&self) -> String {
        format!(
            "creating kind cluster {}: this takes one or two minutes, longer if its image must be pulled",
            self.name
        )
    }

    /// The message to print at the end of a run if the cluster is kept.
    pub fn shutdown_notice(&self) -> Option<String> {
        let stays = self.components.keep || self.args.reuse;
        stays.then(|| format!("{0} is kept: `claimcheck cluster down {0}` deletes it", self.name))
    }

    /// Creates the cluster, with the built-in components.
    ///
    /// # Errors
    /// It cannot be created; nothing is left behind then.
    pub async fn bring_up(&self, folder: &RunFolder) -> Result<Real> {
        let options = self.options(folder)?;
        let variant = match options.controllers {
            Controllers::Builtin => Variant::Kind,
            Controllers::Stock => Variant::Stock,
        };
        let components = self.components.components(variant);
        // Boxed: bringing up a cluster is a large future, and is awaited once.
        Ok(Box::pin(Real::on_kind(&options, &components)).await?)
    }

    fn options(&self, folder: &RunFolder) -> Result<KindOptions> {
        let args = self.args.clone();
        let loaded = args.load_images.iter().map(|image| component_args::given(image));
        let images = std::iter::once(self.components.image(args.base_image)).chain(loaded).collect();
        Ok(KindOptions {
            tools: Tools::from_environment(),
            store: Store::of_user()?,
            name: Some(self.name.clone()),
            workers: self.workers,
            node_image: args.node_image,
            config: args.kind_config,
            controllers: self.controllers,
            kubelet_args: args.kubelet_args.into_iter().collect(),
            images,
            keep: self.components.keep || args.reuse,
            reuse: args.reuse,
            logs: folder.cluster_dir()?,
            kubeconfig: folder.kubeconfig(),
        })
    }
}
