//! Clusters of kind: nodes that are containers of this machine, brought up for a run and taken down after it.
//!
//! What runs on them is installed through their API, as on anybody's cluster; what only their owner can do is
//! here: create and delete them, bring them an image, hit them, and collect what they say.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tracing::{error, info, warn};

use super::{kind_image::Image, kind_loops};
use claimcheck_kind::{
    Claim, Cluster, ConfigError, Controllers, Create, Engine, Kind, Needs, Owned, OwnedError, Preflight,
    ProgramError, Ready, Store, Teardown, TeardownError, Tools, Wanted, cluster_name, preflight,
};

/// How long the first control plane may take to be ready, once its image is there.
const READY: Duration = Duration::from_secs(300);

/// How to bring up a cluster of kind.
#[derive(Clone, Debug)]
pub struct KindOptions {
    /// Where `kind` and the engine are found.
    pub tools: Tools,
    /// Where clusters are recorded.
    pub store: Store,
    /// Its name; one that is made up without.
    pub name: Option<String>,
    /// How many workers, beside one control plane.
    pub workers: Option<usize>,
    /// The image of the nodes; kind's choice without.
    pub node_image: Option<String>,
    /// A config file to join with ours.
    pub config: Option<PathBuf>,
    /// Whose storage controllers will run.
    pub controllers: Controllers,
    /// Further arguments of all kubelets, without dashes.
    pub kubelet_args: BTreeMap<String, String>,
    /// What is brought to all nodes.
    pub images: Vec<Image>,
    /// It shall outlive the run.
    pub keep: bool,
    /// One that an earlier run kept is used, if there is one of this name.
    pub reuse: bool,
    /// An existing folder for the nodes' logs.
    pub logs: PathBuf,
    /// Where people find the kubeconfig (mode 0600).
    pub kubeconfig: PathBuf,
}

/// Why a cluster of kind does not come up.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// Something that is needed is missing.
    #[error(transparent)]
    Preflight(#[from] Preflight),
    /// Its name cannot be used, or it is somebody's.
    #[error(transparent)]
    Owned(#[from] OwnedError),
    /// The user's config file does not do.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// kind does not create it.
    #[error("cluster {name} is not created{}", logged(.logs))]
    Create {
        /// Its name.
        name: String,
        /// Where the nodes' logs are, if there were nodes.
        logs: Option<PathBuf>,
        /// What kind said.
        #[source]
        source: ProgramError,
    },
    /// There is no such archive.
    #[error("there is no image archive {}: `claimcheck image` makes one", .0.display())]
    NoArchive(PathBuf),
    /// The engine has no such image.
    #[error(
        "{engine} has no image {image}: build or pull it, or give an archive (`claimcheck image` makes ours)"
    )]
    NoImage {
        /// The engine.
        engine: String,
        /// The image.
        image: String,
        /// What the engine said.
        #[source]
        source: ProgramError,
    },
    /// The engine does not build our image.
    #[error(
        "image {image} cannot be built: name another base with --base-image, or give --image (`claimcheck image` \
         makes an archive without an engine or a network)"
    )]
    Build {
        /// The image.
        image: String,
        /// What the engine said.
        #[source]
        source: ProgramError,
    },
    /// Nobody says which its nodes are.
    #[error("the nodes of {name} cannot be listed: does its engine answer?")]
    Nodes {
        /// The cluster.
        name: String,
        /// What kind said.
        #[source]
        source: ProgramError,
    },
    /// An image does not come to its nodes.
    #[error("an image cannot be brought to the nodes of {name}")]
    Load {
        /// The cluster.
        name: String,
        /// What kind said.
        #[source]
        source: ProgramError,
    },
    /// There is no kubeconfig of a cluster that is reused.
    #[error("cluster {name} has no kubeconfig: does it run? `claimcheck cluster down {name}` removes it")]
    Kubeconfig {
        /// The cluster.
        name: String,
        /// What kind said.
        #[source]
        source: ProgramError,
    },
    /// A file cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn logged(logs: &Option<PathBuf>) -> String {
    logs.as_ref().map(|logs| format!("; its nodes' logs are in {}", logs.display())).unwrap_or_default()
}

/// A running cluster of kind. Dropping it deletes it, unless it is to be kept.
#[derive(Debug)]
pub struct KindCluster {
    kind: Kind,
    engine: Engine,
    owned: Owned,
    logs: PathBuf,
}

impl KindCluster {
    /// Brings the nodes up, with our images; nothing is installed yet. Dropping the future deletes what there
    /// is by then.
    ///
    /// # Errors
    /// [`KindError`] says what is missing or went wrong; nothing is left.
    pub async fn up(options: &KindOptions) -> Result<Self, KindError> {
        let name = cluster_name(options.name.as_deref())?;
        let theirs = options.config.as_deref().map(Cluster::read).transpose()?;
        let needs = Needs { name, reuse: options.reuse };
        let ready = preflight(&options.tools, &options.store, &needs).await?;
        for image in &options.images {
            image.prepare(&ready.engine).await?;
        }
        let Needs { name, .. } = needs;
        info!(name, kind = %ready.kind_version, engine = ready.engine.name(), "is brought up");
        let (kind, engine) = (ready.kind.clone(), ready.engine.clone());
        let teardown = Teardown::with(Some(kind.clone()), engine.clone());
        let mut owned = if ready.is_there {
            adopt(options, &ready, teardown, &name).await?
        } else {
            create(options, &ready, teardown, &name, theirs).await?
        };
        if options.keep {
            owned.keep()?;
        }
        let cluster = Self { kind, engine, owned, logs: options.logs.clone() };
        let nodes = cluster.kind.nodes(&name).await;
        let nodes = nodes.map_err(|source| KindError::Nodes { name: name.clone(), source })?;
        kind_loops::make(&cluster.engine, &nodes).await;
        for image in &options.images {
            let loaded = cluster.load(image).await;
            loaded.map_err(|source| KindError::Load { name: name.clone(), source })?;
        }
        let written = fs::read(cluster.kubeconfig()).and_then(|text| private(&options.kubeconfig, &text));
        written.map_err(|source| KindError::Write { path: options.kubeconfig.clone(), source })?;
        Ok(cluster)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.owned.claim().name()
    }

    /// Where its kubeconfig lies, with all rights.
    pub fn kubeconfig(&self) -> PathBuf {
        self.owned.claim().kubeconfig()
    }

    /// The folder of this machine that all nodes see at [`DATA_DIR`](claimcheck_kind::DATA_DIR).
    pub(super) fn data(&self) -> PathBuf {
        self.owned.claim().data()
    }

    /// Whether it outlives this run.
    pub fn is_kept(&self) -> bool {
        self.owned.claim().record().keep
    }

    /// The folder for what it has to say.
    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }

    /// The engine whose containers its nodes are.
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    async fn load(&self, image: &Image) -> Result<(), ProgramError> {
        info!(?image, "is brought to all nodes");
        match image {
            Image::Archive(archive) => self.kind.load_archive(self.name(), archive).await,
            Image::Named(image) | Image::Built { name: image, .. } => {
                self.kind.load_image(self.name(), image, self.owned.claim().folder()).await
            }
        }
    }

    /// Collects what the nodes and all that runs on them have said, as far as it can be had.
    ///
    /// # Errors
    /// There is nothing of it.
    pub async fn collect(&self) -> Result<Collected, ProgramError> {
        collect(&self.kind, self.name(), &self.logs).await
    }

    /// Leaves it, if it was to be kept; otherwise deletes it with all it has.
    ///
    /// # Errors
    /// Something of it is left, and what finds it.
    pub async fn down(self) -> Result<(), TeardownError> {
        if self.is_kept() {
            return Ok(());
        }
        self.owned.delete().await
    }
}

/// Creates it, as claimed and configured.
async fn create(
    options: &KindOptions,
    ready: &Ready,
    teardown: Teardown,
    name: &str,
    theirs: Option<Cluster>,
) -> Result<Owned, KindError> {
    let claim = options.store.claim(name, ready.engine.name(), ready.network_was_there)?;
    let create = match configure(options, ready, &claim, theirs) {
        Ok(create) => create,
        Err(error) => {
            // There is nothing but the claim.
            drop(Owned::adopt(teardown, claim));
            return Err(error);
        }
    };
    let (mut owned, created) = Owned::create(&ready.kind, teardown, claim, &create).await;
    let Err(source) = created else { return Ok(owned) };
    let logs = collect(&ready.kind, name, &options.logs).await;
    let logs = logs.inspect_err(|error| info!(%error, "no logs of the nodes")).ok();
    if let Some(missing) = logs.as_ref().and_then(|logs| logs.missing.as_ref()) {
        warn!(missing = missing.to_string(), "some of what the nodes have said cannot be collected");
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
    ready: &Ready,
    claim: &Claim,
    theirs: Option<Cluster>,
) -> Result<Create, KindError> {
    let wanted = Wanted {
        workers: options.workers,
        image: options.node_image.clone(),
        kind_version: Some(ready.kind_version),
        controllers: options.controllers,
        kubelet_args: options.kubelet_args.clone(),
        keep: options.keep,
        data: claim.data(),
        ..Wanted::default()
    };
    let config = Cluster::generate(&wanted, theirs)?;
    let path = claim.config();
    // Beside the logs, too: it says what the cluster was.
    for path in [&path, &options.logs.join("kind.yaml")] {
        let written = fs::write(path, config.to_yaml());
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

/// Takes one over that an earlier run kept.
async fn adopt(
    options: &KindOptions,
    ready: &Ready,
    teardown: Teardown,
    name: &str,
) -> Result<Owned, KindError> {
    let owned = Owned::adopt(teardown, options.store.take(name, ready.engine.name())?);
    let path = owned.claim().kubeconfig();
    let text = ready.kind.kubeconfig(name).await;
    // Its port may be another after a restart, so it is always asked for.
    let text = text.map_err(|source| KindError::Kubeconfig { name: name.to_owned(), source })?;
    private(&path, text.as_bytes()).map_err(|source| KindError::Write { path, source })?;
    Ok(owned)
}

/// What the nodes of a cluster and all that runs on them have said.
#[derive(Debug)]
pub struct Collected {
    /// The folder with it.
    pub folder: PathBuf,
    /// Why it is not all: kind goes on where one thing of a node cannot be had, and fails at its end.
    pub missing: Option<ProgramError>,
}

async fn collect(kind: &Kind, name: &str, logs: &Path) -> Result<Collected, ProgramError> {
    let folder = logs.join("kind");
    let exported = kind.export_logs(name, &folder).await;
    match exported {
        Ok(()) => Ok(Collected { folder, missing: None }),
        Err(error) if holds_a_file(&folder) => Ok(Collected { folder, missing: Some(error) }),
        Err(error) => Err(error),
    }
}

/// Whether anything was written below a folder: files without a byte say nothing.
fn holds_a_file(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| (entry.path(), entry.metadata())).any(|(path, data)| match data {
        Ok(data) if data.is_dir() => holds_a_file(&path),
        Ok(data) => data.len() > 0,
        Err(_) => false,
    })
}

/// Writes a file that only its owner can read.
fn private(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    io::Write::write_all(&mut file, text)
}
