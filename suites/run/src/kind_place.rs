//! A place that kind makes: its arguments, and how it is brought up.

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
#[command(next_help_heading = "Clusters of kind")]
pub struct KindArgs {
    /// The cluster's name; it begins with `claimcheck-` in any case [default: one that is made up]
    #[arg(long, value_name = "NAME", env = "CLAIMCHECK_NAME")]
    name: Option<String>,
    /// The image of the nodes, and so the version of Kubernetes: kindest/node:v1.36.0 [default: kind's own]
    #[arg(long, value_name = "IMAGE", env = "CLAIMCHECK_NODE_IMAGE")]
    node_image: Option<String>,
    /// A config file of kind, which is joined with ours
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_KIND_CONFIG")]
    kind_config: Option<PathBuf>,
    /// An argument of all kubelets, without dashes, as v=4: it counts for more than the config that is generated,
    /// in which kubelets report the status of their node each second; can be repeated
    #[arg(long = "kubelet-arg", value_name = "NAME=VALUE", value_parser = kubelet_arg)]
    kubelet_args: Vec<(String, String)>,
    /// The image below ours, where it is built [default: debian:trixie-slim]
    #[arg(long, value_name = "IMAGE", conflicts_with = "image", env = "CLAIMCHECK_BASE_IMAGE")]
    base_image: Option<String>,
    /// A further image that is brought to all nodes: what the engine calls it, or an archive of images; can be
    /// repeated. Upstream's sidecars, a vendor's driver and --workload-image come from a registry otherwise
    #[arg(
        long = "load-image",
        value_name = "NAME|FILE.tar",
        value_delimiter = ',',
        env = "CLAIMCHECK_LOAD_IMAGE"
    )]
    load_images: Vec<String>,
    /// Use the cluster of this name that an earlier run has kept, or make it; it stays
    #[arg(long, requires = "name")]
    reuse: bool,
}

/// An argument of kubelets.
fn kubelet_arg(text: &str) -> Result<(String, String), String> {
    let name = |name: &str| !name.is_empty() && !name.starts_with('-');
    match text.split_once('=') {
        Some((key, value)) if name(key) => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE without dashes, as in v=4".to_owned()),
    }
}

impl KindArgs {
    /// The first that was given, for places that take none.
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

    /// The place that they name, with so many workers, these components and these storage controllers.
    ///
    /// # Errors
    /// kind would not take the name.
    pub fn place(
        self,
        workers: Option<usize>,
        components: ComponentArgs,
        controllers: Controllers,
    ) -> Result<KindPlace, OwnedError> {
        let name = cluster_name(self.name.as_deref())?;
        Ok(KindPlace { name, args: self, components, workers, controllers })
    }
}

/// A place that kind makes.
#[derive(Clone, Debug)]
pub struct KindPlace {
    name: String,
    args: KindArgs,
    components: ComponentArgs,
    workers: Option<usize>,
    controllers: Controllers,
}

impl KindPlace {
    /// Whether the sidecars are those of kubernetes-csi.
    pub fn has_upstream_sidecars(&self) -> bool {
        self.components.has_upstream_sidecars()
    }

    /// How often kubelets report the status of their node, as reports show it.
    pub fn node_status_period(&self) -> String {
        let of_config = self.args.kind_config.is_some().then_some(" unless --kind-config says otherwise");
        let given =
            self.args.kubelet_args.iter().rev().find(|(name, _)| name == "node-status-update-frequency");
        match given {
            Some((_, period)) => period.clone(),
            None => format!("{NODE_STATUS_PERIOD_S}s{}", of_config.unwrap_or_default()),
        }
    }

    /// Whose storage controllers run.
    pub fn controllers(&self) -> Controllers {
        self.controllers
    }

    /// How many nodes take pods, as far as that is known: a config file may say another number.
    pub fn workers(&self) -> usize {
        match (self.workers, &self.args.kind_config) {
            (Some(workers), _) => workers,
            (None, None) => DEFAULT_WORKERS,
            (None, Some(_)) => usize::MAX,
        }
    }

    /// The same, to outlive its run.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.components.keep = true;
        self
    }

    /// What to tell before it is brought up: that takes a while.
    pub fn foreword(&self) -> String {
        format!("kind brings up {}: a minute or two, and longer if its image must be pulled", self.name)
    }

    /// What to tell when a run is over, if the cluster stays.
    pub fn afterword(&self) -> Option<String> {
        let stays = self.components.keep || self.args.reuse;
        stays.then(|| format!("{0} stays: `claimcheck cluster down {0}` deletes it", self.name))
    }

    /// Brings the cluster up, with our components.
    ///
    /// # Errors
    /// It does not come up; nothing is left then.
    pub async fn bring_up(&self, folder: &RunFolder) -> Result<Real> {
        let options = self.options(folder)?;
        let variant = match options.controllers {
            Controllers::Ours => Variant::Kind,
            Controllers::Stock => Variant::Stock,
        };
        let components = self.components.components(variant);
        // Boxed: bringing up a cluster is a large future, and is awaited once.
        Ok(Box::pin(Real::on_kind(&options, &components)).await?)
    }

    fn options(&self, folder: &RunFolder) -> Result<KindOptions> {
        let args = self.args.clone();
        let further = args.load_images.iter().map(|image| component_args::given(image));
        let images = std::iter::once(self.components.image(args.base_image)).chain(further).collect();
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
