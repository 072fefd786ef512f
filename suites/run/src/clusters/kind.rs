//! The cluster of `--cluster kind`, and how it is created.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use claimcheck_cluster::{Cluster, ClusterCapabilities, Instrumentation, KindEnvironment};
use claimcheck_deploy::install::Variant;
use claimcheck_harness::Privilege;
use claimcheck_kind::{
    Controllers, DEFAULT_WORKERS, Engine, KindOptions, NODE_STATUS_PERIOD_S, OwnedError, Store, Tools,
    cluster_name,
};
use claimcheck_model::ClusterKind;
use claimcheck_report::RunFolder;
use claimcheck_suites::{Environment, FileSystems, testdriver::TestDriver};

use super::{
    place::{Development, Place, UNKNOWN, loop_devices},
    row::Row,
};
use crate::{
    class_choice::choice,
    component_args::{self, ComponentArgs},
};

/// Nodes are containers of this machine.
pub(super) const KIND: Row = Row {
    kind: ClusterKind::Kind,
    description: "Stock Kubernetes with containers of this machine as nodes, with built-in controllers and driver",
    has_virtual_nodes: false,
    installs: |_| true,
    place: |options, config| {
        let (controllers, workers) = (options.controllers(), options.nodes.map(usize::from));
        let target = KindTarget::new(options.kind, workers, options.components, controllers)?;
        Ok(Arc::new(KindPlace { target, config }))
    },
};

/// A kind cluster created for the run, with the built-in driver.
#[derive(Clone, Debug)]
struct KindPlace {
    target: KindTarget,
    /// The driver file (`--driver-config`).
    config: Option<Arc<TestDriver>>,
}

#[async_trait(?Send)]
impl Place for KindPlace {
    async fn start(&self, folder: &RunFolder, _instrumentation: Instrumentation) -> Result<Cluster> {
        let cluster = self.target.bring_up(folder).await.context("the kind cluster cannot be started")?;
        match &self.config {
            Some(config) => Ok(cluster.choosing(&choice(config))?),
            None => Ok(cluster),
        }
    }

    fn expected(&self, _privilege: Option<Privilege>) -> Environment {
        Environment {
            cluster: ClusterKind::Kind,
            nodes: self.target.workers(),
            builtin: true,
            inline: Ok(()),
            cluster_capabilities: ClusterCapabilities {
                retracts: self.target.controllers() == Controllers::Builtin,
                stops_binder: self.target.controllers() == Controllers::Builtin,
                upstream_sidecars: self.target.has_upstream_sidecars(),
                ..ClusterCapabilities::KIND
            },
            // The image of the built-in driver contains the programs.
            file_systems: FileSystems {
                ext3: loop_devices(None),
                ext4: loop_devices(None),
                xfs: loop_devices(None),
                block: loop_devices(None),
            },
            ..UNKNOWN
        }
    }

    fn development(&self) -> Development {
        Development::Detached(Box::new(Self { target: self.target.clone().with_keep(), config: None }))
    }

    fn startup_notice(&self) -> Option<String> {
        Some(self.target.startup_notice())
    }

    fn shutdown_notice(&self) -> Option<String> {
        self.target.shutdown_notice()
    }

    fn controllers(&self) -> Option<Controllers> {
        Some(self.target.controllers())
    }

    fn node_status_period(&self) -> Option<String> {
        Some(self.target.node_status_period())
    }
}

/// A kind cluster to be created or reused.
#[derive(Clone, Debug)]
struct KindTarget {
    options: KindOptions,
    components: ComponentArgs,
}

impl KindTarget {
    /// The cluster that the arguments select, with this number of workers, these components and storage controllers.
    ///
    /// # Errors
    /// kind does not accept the name.
    fn new(
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
    fn has_upstream_sidecars(&self) -> bool {
        self.components.has_upstream_sidecars()
    }

    /// The period at which kubelets report their node status, for the report.
    fn node_status_period(&self) -> String {
        let of_config = self.options.kind_config.is_some().then_some(" unless --kind-config overrides it");
        let given =
            self.options.kubelet_args.iter().rev().find(|(name, _)| name == "node-status-update-frequency");
        match given {
            Some((_, period)) => period.clone(),
            None => format!("{NODE_STATUS_PERIOD_S}s{}", of_config.unwrap_or_default()),
        }
    }

    /// The storage controllers that run: built-in or stock.
    fn controllers(&self) -> Controllers {
        self.options.controllers
    }

    /// The number of schedulable nodes, as far as it is known: a config file may set another number.
    fn workers(&self) -> usize {
        match (self.options.workers, &self.options.kind_config) {
            (Some(workers), _) => workers,
            (None, None) => DEFAULT_WORKERS,
            (None, Some(_)) => usize::MAX,
        }
    }

    /// The same cluster, kept at the end of the run.
    fn with_keep(mut self) -> Self {
        self.options.keep = true;
        self
    }

    /// The message to print before the cluster is created, which takes a while.
    fn startup_notice(&self) -> String {
        format!(
            "creating kind cluster {}: this takes one or two minutes, longer if its image must be pulled",
            self.name()
        )
    }

    /// The message to print at the end of a run if the cluster is kept.
    fn shutdown_notice(&self) -> Option<String> {
        let name = self.name();
        self.options.keep.then(|| format!("{name} is kept: `claimcheck cluster down {name}` deletes it"))
    }

    /// Creates the cluster, with the built-in components.
    ///
    /// # Errors
    /// It cannot be created; nothing is left behind then.
    async fn bring_up(&self, folder: &RunFolder) -> Result<Cluster> {
        let environment = self.environment(folder)?;
        let variant = match self.options.controllers {
            Controllers::Builtin => Variant::Kind,
            Controllers::Stock => Variant::Stock,
        };
        let components = self.components.components(variant);
        let options = KindOptions { node_image: self.node_image().await?, ..self.options.clone() };
        // Boxed: bringing up a cluster is a large future, and is awaited once.
        Ok(Box::pin(Cluster::on_kind(&options, &environment, &components)).await?)
    }

    /// The node image; none for kind's default.
    async fn node_image(&self) -> Result<Option<String>> {
        if self.options.kubernetes.is_empty() {
            return Ok(self.options.node_image.clone());
        }
        let engine = Engine::find(&Tools::from_environment())?;
        match engine.node_images(&self.options.kubernetes).await?.as_slice() {
            [(_, image)] => Ok(Some(image.clone())),
            images => bail!("--kubernetes names {} versions: only `run` accepts several", images.len()),
        }
    }

    fn environment(&self, folder: &RunFolder) -> Result<KindEnvironment> {
        let loaded = self.options.load_images.iter().map(|image| component_args::given(image));
        let component_image = self.components.image(self.options.base_image.clone());
        Ok(KindEnvironment {
            tools: Tools::from_environment(),
            store: Store::for_user()?,
            images: std::iter::once(component_image).chain(loaded).collect(),
            logs: folder.cluster_dir()?,
            kubeconfig: folder.kubeconfig(),
        })
    }
}
