//! Clusters of kind: nodes are containers on this machine, created for a run and deleted after it.
//!
//! Components are installed through their API, as on an existing cluster; operations that only their owner can do are
//! here: creating and deleting them, loading images, disrupting nodes, and collecting logs.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use claimcheck_files::{make_tree_private, write_private};
use tracing::{error, info, warn};

use super::{image::Image, loops};
use claimcheck_kind::{
    Cluster, ClusterLock, ConfigError, Create, Engine, Kind, KindOptions, OwnedCluster, OwnedError,
    Preflight, PreflightRequest, Prerequisites, ProgramError, Store, Teardown, TeardownError, Tools,
    cluster_name, preflight,
};

/// The timeout for the first control plane to become ready, once its image is pulled.
const READY: Duration = Duration::from_secs(300);

/// What a kind cluster is created with, in addition to its options.
#[derive(Clone, Debug)]
pub struct KindEnvironment {
    /// The search path of `kind` and the engine.
    pub tools: Tools,
    /// The store of cluster records.
    pub store: Store,
    /// The images to load into all nodes.
    pub images: Vec<Image>,
    /// An existing folder for the nodes' logs.
    pub logs: PathBuf,
    /// The path of the kubeconfig for users (mode 0600).
    pub kubeconfig: PathBuf,
}

/// A kind cluster cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// A prerequisite is missing.
    #[error(transparent)]
    Preflight(#[from] Preflight),
    /// Its name is invalid or in use.
    #[error(transparent)]
    Owned(#[from] OwnedError),
    /// The user's config file cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// kind failed to create it.
    #[error("cluster {name} was not created{}", logged(.logs))]
    Create {
        /// Its name.
        name: String,
        /// The folder of the nodes' logs, if there were nodes.
        logs: Option<PathBuf>,
        /// The error of kind.
        #[source]
        source: ProgramError,
    },
    /// The archive does not exist.
    #[error("image archive {} does not exist: `docker save` writes one", .0.display())]
    NoArchive(PathBuf),
    /// The engine has no such image.
    #[error("{engine} has no image {image}: build or pull it, or pass an archive of it")]
    NoImage {
        /// The engine.
        engine: String,
        /// The image.
        image: String,
        /// The error of the engine.
        #[source]
        source: ProgramError,
    },
    /// The engine failed to build the image.
    #[error(
        "cannot build image {image}: set another base with --base-image, or pass --image (made without a registry: \
         docs/ci/kind.md)"
    )]
    Build {
        /// The image.
        image: String,
        /// The error of the engine.
        #[source]
        source: ProgramError,
    },
    /// Its nodes cannot be listed.
    #[error("cannot list the nodes of {name}: check that its engine responds")]
    Nodes {
        /// The cluster.
        name: String,
        /// The error of kind.
        #[source]
        source: ProgramError,
    },
    /// An image cannot be loaded into its nodes.
    #[error("cannot load an image into the nodes of {name}")]
    Load {
        /// The cluster.
        name: String,
        /// The error of kind.
        #[source]
        source: ProgramError,
    },
    /// A reused cluster has no kubeconfig.
    #[error(
        "cluster {name} has no kubeconfig: check that it is running; `claimcheck cluster down {name}` deletes it"
    )]
    Kubeconfig {
        /// The cluster.
        name: String,
        /// The error of kind.
        #[source]
        source: ProgramError,
    },
    /// A file cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

fn logged(logs: &Option<PathBuf>) -> String {
    logs.as_ref().map(|logs| format!("; its nodes' logs are in {}", logs.display())).unwrap_or_default()
}

/// A running kind cluster. Dropping it deletes it, unless it is kept.
#[derive(Debug)]
pub struct KindCluster {
    kind: Kind,
    engine: Engine,
    owned: OwnedCluster,
    logs: PathBuf,
}

impl KindCluster {
    /// Creates the nodes and loads the images; nothing is installed yet. Dropping the future deletes whatever exists
    /// by then.
    ///
    /// # Errors
    /// [`KindError`] describes what is missing or failed; nothing is leaked.
    pub async fn up(options: &KindOptions, environment: &KindEnvironment) -> Result<Self, KindError> {
        let name = cluster_name(options.name.as_deref())?;
        let given = options.kind_config.as_deref().map(Cluster::read).transpose()?;
        let needs = PreflightRequest { name, reuse: options.reuse };
        let ready = preflight(&environment.tools, &environment.store, &needs).await?;
        for image in &environment.images {
            image.prepare(&ready.engine).await?;
        }
        let PreflightRequest { name, .. } = needs;
        info!(name, kind = %ready.kind_version, engine = ready.engine.name(), "creating kind cluster");
        let (kind, engine) = (ready.kind.clone(), ready.engine.clone());
        let teardown = Teardown::with(Some(kind.clone()), engine.clone());
        let mut owned = if ready.exists {
            adopt(environment, &ready, teardown, &name).await?
        } else {
            create(options, environment, &ready, teardown, &name, given).await?
        };
        if options.keep {
            owned.keep()?;
        }
        let cluster = Self { kind, engine, owned, logs: environment.logs.clone() };
        let nodes = cluster.kind.nodes(&name).await;
        let nodes = nodes.map_err(|source| KindError::Nodes { name: name.clone(), source })?;
        loops::make(&cluster.engine, &nodes).await;
        for image in &environment.images {
            let loaded = cluster.load(image).await;
            loaded.map_err(|source| KindError::Load { name: name.clone(), source })?;
        }
        let kubeconfig = &environment.kubeconfig;
        let written = fs::read(cluster.kubeconfig()).and_then(|text| write_private(kubeconfig, &text));
        written.map_err(|source| KindError::Write { path: kubeconfig.clone(), source })?;
        Ok(cluster)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.owned.claim().name()
    }

    /// The path of its kubeconfig, with all permissions.
    pub fn kubeconfig(&self) -> PathBuf {
        self.owned.claim().kubeconfig()
    }

    /// The folder of this machine that all nodes mount at [`DATA_DIR`](claimcheck_kind::DATA_DIR).
    pub(super) fn data(&self) -> PathBuf {
        self.owned.claim().data()
    }

    /// Whether it outlives this run.
    pub fn outlives_run(&self) -> bool {
        self.owned.claim().record().keep
    }

    /// The folder for its logs.
    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }

    /// The engine that runs its node containers.
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    async fn load(&self, image: &Image) -> Result<(), ProgramError> {
        info!(?image, "loading image into all nodes");
        match image {
            Image::Archive(archive) => self.kind.load_archive(self.name(), archive).await,
            Image::Named(image) | Image::Built { name: image, .. } => {
                self.kind.load_image(self.name(), image, self.owned.claim().folder()).await
            }
        }
    }

    /// Collects the logs of the nodes and everything on them, as far as available.
    ///
    /// # Errors
    /// No logs could be collected.
    pub async fn collect(&self) -> Result<Collected, ProgramError> {
        collect(&self.kind, self.name(), &self.logs).await
    }

    /// Keeps it, if requested; otherwise deletes it with all its data.
    ///
    /// # Errors
    /// A part of it still exists; the error describes how to find it.
    pub async fn down(self) -> Result<(), TeardownError> {
        if self.outlives_run() {
            return Ok(());
        }
        self.owned.delete().await
    }
}

/// Creates it, as claimed and configured.
async fn create(
    options: &KindOptions,
    environment: &KindEnvironment,
    ready: &Prerequisites,
    teardown: Teardown,
    name: &str,
    given: Option<Cluster>,
) -> Result<OwnedCluster, KindError> {
    let claim = environment.store.claim(name, ready.engine.name(), ready.network_existed)?;
    let create = match configure(options, environment, ready, &claim, given) {
        Ok(create) => create,
        Err(error) => {
            // Nothing but the claim exists.
            drop(OwnedCluster::adopt(teardown, claim));
            return Err(error);
        }
    };
    let (mut owned, created) = OwnedCluster::create(&ready.kind, teardown, claim, &create).await;
    let Err(source) = created else { return Ok(owned) };
    let logs = collect(&ready.kind, name, &environment.logs).await;
    let logs = logs.inspect_err(|error| info!(%error, "no logs of the nodes")).ok();
    if let Some(missing) = logs.as_ref().and_then(|logs| logs.missing.as_ref()) {
        warn!(missing = missing.to_string(), "some of the nodes' logs cannot be collected");
    }
    let logs = logs.map(|logs| logs.folder);
    let left = if options.keep { owned.keep().map_err(Into::into) } else { owned.delete().await };
    if let Err(left) = left {
        error!("{left}");
    }
    Err(KindError::Create { name: name.to_owned(), logs, source })
}

/// Writes the config file of a claimed cluster.
fn configure(
    options: &KindOptions,
    environment: &KindEnvironment,
    ready: &Prerequisites,
    claim: &ClusterLock,
    given: Option<Cluster>,
) -> Result<Create, KindError> {
    let config = Cluster::generate(options, Some(ready.kind_version), &claim.data(), given)?;
    let path = claim.config();
    // A copy next to the logs, to document the cluster.
    for path in [&path, &environment.logs.join("kind.yaml")] {
        let written = write_private(path, config.to_yaml().as_bytes());
        written.map_err(|source| KindError::Write { path: path.clone(), source })?;
    }
    Ok(Create {
        name: claim.name().to_owned(),
        config: Some(path),
        image: None,
        kubeconfig: claim.kubeconfig(),
        // For their logs; they are deleted after that.
        retain: true,
        wait: READY,
    })
}

/// Reuses one that an earlier run kept.
async fn adopt(
    environment: &KindEnvironment,
    ready: &Prerequisites,
    teardown: Teardown,
    name: &str,
) -> Result<OwnedCluster, KindError> {
    let owned = OwnedCluster::adopt(teardown, environment.store.take(name, ready.engine.name())?);
    let path = owned.claim().kubeconfig();
    let text = ready.kind.kubeconfig(name).await;
    // Its port may change after a restart, so it is always queried.
    let text = text.map_err(|source| KindError::Kubeconfig { name: name.to_owned(), source })?;
    write_private(&path, text.as_bytes()).map_err(|source| KindError::Write { path, source })?;
    Ok(owned)
}

/// The logs of the nodes of a cluster and everything on them.
#[derive(Debug)]
pub struct Collected {
    /// Their folder.
    pub folder: PathBuf,
    /// The error, if they are incomplete: kind continues if a log cannot be read, and fails at the end.
    pub missing: Option<ProgramError>,
}

async fn collect(kind: &Kind, name: &str, logs: &Path) -> Result<Collected, ProgramError> {
    let folder = logs.join("kind");
    let exported = kind.export_logs(name, &folder).await;
    // kind and the container engine write them with modes of their own choice.
    if folder.is_dir()
        && let Err(error) = make_tree_private(&folder)
    {
        info!(folder = %folder.display(), %error, "other users may be able to read the nodes' logs");
    }
    match exported {
        Ok(()) => Ok(Collected { folder, missing: None }),
        Err(error) if holds_a_file(&folder) => Ok(Collected { folder, missing: Some(error) }),
        Err(error) => Err(error),
    }
}

/// Whether anything was written below a folder: empty files do not count.
fn holds_a_file(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| (entry.path(), entry.metadata())).any(|(path, data)| match data {
        Ok(data) if data.is_dir() => holds_a_file(&path),
        Ok(data) => data.len() > 0,
        Err(_) => false,
    })
}
