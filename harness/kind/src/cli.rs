//! A typed interface to the `kind` program.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    engine::Engine,
    program::{Program, ProgramError, Tools},
    version::Version,
};

const PROGRAM: &str = "kind";
const INSTALL: &str = "install it from https://kind.sigs.k8s.io/docs/user/quick-start/#installation";

/// The timeout of a query.
const QUERY: Duration = Duration::from_secs(60);
/// The timeout of a deletion: an engine stops nodes one after the other.
const DELETE: Duration = Duration::from_secs(180);
/// The timeout of loading an image into all nodes.
const LOAD: Duration = Duration::from_secs(600);
/// The timeout of a creation, in addition to the wait for the control plane: the node image may have to be pulled.
const CREATE: Duration = Duration::from_secs(1200);

/// The `kind` program, configured with an engine.
#[derive(Clone, Debug)]
pub struct Kind {
    program: Program,
    engine: Engine,
}

/// A cluster to create.
#[derive(Clone, Debug)]
pub struct Create {
    /// Its name.
    pub name: String,
    /// The config file; see `config.rs`.
    pub config: Option<PathBuf>,
    /// The image of all nodes, overriding the config.
    pub image: Option<String>,
    /// The kubeconfig to write, created if missing. Without one, kind modifies the user's own.
    pub kubeconfig: PathBuf,
    /// Whether to retain the nodes of a failed creation for their logs.
    pub retain: bool,
    /// The timeout for the control plane to become ready, after it has started.
    pub wait: Duration,
}

impl Kind {
    /// Finds the program.
    ///
    /// # Errors
    /// It is not on the PATH.
    pub fn find(tools: &Tools, engine: &Engine) -> Result<Self, ProgramError> {
        let program = tools.find(PROGRAM, INSTALL)?.with("KIND_EXPERIMENTAL_PROVIDER", engine.name());
        Ok(Self { program, engine: engine.clone() })
    }

    /// Whether the program is missing.
    pub(super) fn missing(tools: &Tools) -> Option<ProgramError> {
        tools.find(PROGRAM, INSTALL).err()
    }

    /// `kind version`.
    ///
    /// # Errors
    /// It cannot be run, or does not print a version.
    pub async fn version(&self) -> Result<Version, ProgramError> {
        let args = ["version", "--quiet"];
        let answer = self.program.call(&args, QUERY).await?;
        answer.parse().map_err(|_| self.program.strange(&args, &answer, "a version such as 0.33.0"))
    }

    /// `kind create cluster`. Dropping the future kills it halfway: then the caller must delete the cluster.
    ///
    /// # Errors
    /// It fails. kind deletes the partial cluster, unless `retain` is set.
    pub async fn create(&self, create: &Create) -> Result<(), ProgramError> {
        let mut args = words(["create", "cluster", "--name", &create.name]);
        if let Some(config) = &create.config {
            args.extend(["--config".into(), config.into()]);
        }
        if let Some(image) = &create.image {
            args.extend(words(["--image", image]));
        }
        args.extend(["--kubeconfig".into(), (&create.kubeconfig).into()]);
        args.extend(create.retain.then(|| "--retain".into()));
        args.extend(words(["--wait", &format!("{}s", create.wait.as_secs())]));
        self.program.call(&args, CREATE + create.wait).await.map(drop)
    }

    /// `kind delete cluster`, also for partially created ones. No error if it does not exist.
    ///
    /// # Errors
    /// A part of it cannot be deleted.
    pub async fn delete(&self, name: &str, kubeconfig: &Path) -> Result<(), ProgramError> {
        let mut args = words(["delete", "cluster", "--name", name]);
        args.extend(["--kubeconfig".into(), kubeconfig.into()]);
        self.program.call(&args, DELETE).await.map(drop)
    }

    /// `kind get clusters`: the names of all, including partially created ones.
    ///
    /// # Errors
    /// The engine does not respond.
    pub async fn clusters(&self) -> Result<Vec<String>, ProgramError> {
        Ok(lines(&self.program.call(&["get", "clusters"], QUERY).await?))
    }

    /// `kind get nodes`: the names of a cluster's containers, which are those of its nodes.
    ///
    /// # Errors
    /// The engine does not respond.
    pub async fn nodes(&self, name: &str) -> Result<Vec<String>, ProgramError> {
        Ok(lines(&self.program.call(&["get", "nodes", "--name", name], QUERY).await?))
    }

    /// `kind get kubeconfig`: for the API server's port on this machine, with all permissions.
    ///
    /// # Errors
    /// The cluster does not exist, or is not running.
    pub async fn kubeconfig(&self, name: &str) -> Result<String, ProgramError> {
        self.program.call(&["get", "kubeconfig", "--name", name], QUERY).await
    }

    /// `kind load image-archive`: loads the images of a tar file into all nodes.
    ///
    /// # Errors
    /// A node rejects it, or the file does not exist.
    pub async fn load_archive(&self, name: &str, archive: &Path) -> Result<(), ProgramError> {
        let mut args = words(["load", "image-archive"]);
        args.push(archive.into());
        args.extend(words(["--name", name]));
        self.program.call(&args, LOAD).await.map(drop)
    }

    /// Loads a local image of the engine into all nodes.
    ///
    /// `kind load docker-image` calls `docker` with any engine, so for the others the image
    /// is loaded through a file in `scratch`.
    ///
    /// # Errors
    /// The engine has no such image, or a node rejects it.
    pub async fn load_image(&self, name: &str, image: &str, scratch: &Path) -> Result<(), ProgramError> {
        if self.engine.is_docker() {
            let args = ["load", "docker-image", image, "--name", name];
            return self.program.call(&args, LOAD).await.map(drop);
        }
        let archive = scratch.join("image.tar");
        self.engine.save_for_docker_io(image, &archive).await?;
        let loaded = self.load_archive(name, &archive).await;
        // A leftover is deleted with the folder.
        let _ = tokio::fs::remove_file(&archive).await;
        loaded
    }

    /// `kind export logs`: the journals, container logs and images of all nodes, as files in a folder.
    ///
    /// # Errors
    /// The cluster does not exist, or some logs could not be exported: the others are.
    pub async fn export_logs(&self, name: &str, folder: &Path) -> Result<(), ProgramError> {
        let mut args = words(["export", "logs"]);
        args.push(folder.into());
        args.extend(words(["--name", name]));
        self.program.call(&args, LOAD).await.map(drop)
    }
}

pub(super) fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.iter().map(|word| OsStr::new(word).to_owned()).collect()
}

pub(super) fn lines(answer: &str) -> Vec<String> {
    answer.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
