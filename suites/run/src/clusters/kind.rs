//! The cluster of `--cluster kind`, and how it is created.

use anyhow::Result;
use claimcheck_cluster::{Cluster, KindEnvironment};
use claimcheck_deploy::install::Variant;
use claimcheck_kind::{
    Controllers, DEFAULT_WORKERS, KindOptions, NODE_STATUS_PERIOD_S, OwnedError, Store, Tools, cluster_name,
};
use claimcheck_report::RunFolder;

use crate::component_args::{self, ComponentArgs};

/// A kind cluster to be created or reused.
#[derive(Clone, Debug)]
pub struct KindTarget {
    options: KindOptions,
    components: ComponentArgs,
}

impl KindTarget {
    /// The cluster that the arguments select, with this number of workers, these components and storage controllers.
    ///
    /// # Errors
    /// kind does not accept the name.
    pub fn new(
        args: KindOptions,
        workers: Option<usize>,
        components: ComponentArgs,
        controllers: Controllers,
    ) -> Result<Self, OwnedError> {
        let name = Some(cluster_name(args.name.as_deref())?);
        let keep = components.keep || args.reuse;
        Ok(Self { options: KindOptions { name, workers, controllers, keep, ..args }, components })
    }

    fn name(&self) -> &str {
        self.options.name.as_deref().expect("`new` sets it")
    }

    /// Whether the sidecars are those of kubernetes-csi.
    pub fn has_upstream_sidecars(&self) -> bool {
        self.components.has_upstream_sidecars()
    }

    /// The period at which kubelets report their node status, for the report.
    pub fn node_status_period(&self) -> String {
        let of_config = self.options.kind_config.is_some().then_some(" unless --kind-config overrides it");
        let given =
            self.options.kubelet_args.iter().rev().find(|(name, _)| name == "node-status-update-frequency");
        match given {
            Some((_, period)) => period.clone(),
            None => format!("{NODE_STATUS_PERIOD_S}s{}", of_config.unwrap_or_default()),
        }
    }

    /// The storage controllers that run: built-in or stock.
    pub fn controllers(&self) -> Controllers {
        self.options.controllers
    }

    /// The number of schedulable nodes, as far as it is known: a config file may set another number.
    pub fn workers(&self) -> usize {
        match (self.options.workers, &self.options.kind_config) {
            (Some(workers), _) => workers,
            (None, None) => DEFAULT_WORKERS,
            (None, Some(_)) => usize::MAX,
        }
    }

    /// The same cluster, kept at the end of the run.
    #[must_use]
    pub fn with_keep(mut self) -> Self {
        self.options.keep = true;
        self
    }

    /// The message to print before the cluster is created, which takes a while.
    pub fn startup_notice(&self) -> String {
        format!(
            "creating kind cluster {}: this takes one or two minutes, longer if its image must be pulled",
            self.name()
        )
    }

    /// The message to print at the end of a run if the cluster is kept.
    pub fn shutdown_notice(&self) -> Option<String> {
        let name = self.name();
        self.options.keep.then(|| format!("{name} is kept: `claimcheck cluster down {name}` deletes it"))
    }

    /// Creates the cluster, with the built-in components.
    ///
    /// # Errors
    /// It cannot be created; nothing is left behind then.
    pub async fn bring_up(&self, folder: &RunFolder) -> Result<Cluster> {
        let environment = self.environment(folder)?;
        let variant = match self.options.controllers {
            Controllers::Builtin => Variant::Kind,
            Controllers::Stock => Variant::Stock,
        };
        let components = self.components.components(variant);
        // Boxed: bringing up a cluster is a large future, and is awaited once.
        Ok(Box::pin(Cluster::on_kind(&self.options, &environment, &components)).await?)
    }

    fn environment(&self, folder: &RunFolder) -> Result<KindEnvironment> {
        let loaded = self.options.load_images.iter().map(|image| component_args::given(image));
        let component_image = self.components.image(self.options.base_image.clone());
        Ok(KindEnvironment {
            tools: Tools::from_environment(),
            store: Store::of_user()?,
            images: std::iter::once(component_image).chain(loaded).collect(),
            logs: folder.cluster_dir()?,
            kubeconfig: folder.kubeconfig(),
        })
    }
}
