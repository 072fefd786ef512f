//! The `kind` program: what it can do for us, typed.

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

/// What a question may take.
const QUERY: Duration = Duration::from_secs(60);
/// What a deletion may take: an engine stops nodes one after the other.
const DELETE: Duration = Duration::from_secs(180);
/// What an image may take on its way into all nodes.
const LOAD: Duration = Duration::from_secs(600);
/// What a creation may take beside the wait for the control plane: the node image may have to be pulled.
const CREATE: Duration = Duration::from_secs(1200);

/// The `kind` program, told which engine to use.
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
    /// The image of all nodes, whatever the config says.
    pub image: Option<String>,
    /// The kubeconfig to write, which is made if it is not there. Without one, kind changes the user's own.
    pub kubeconfig: PathBuf,
    /// Leave the nodes of a failed creation for their logs.
    pub retain: bool,
    /// How long to wait for the control plane to be ready, after it has started.
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
    /// It cannot be run, or does not tell a version.
    pub async fn version(&self) -> Result<Version, ProgramError> {
        let args = ["version", "--quiet"];
        let answer = self.program.call(&args, QUERY).await?;
        answer.parse().map_err(|_| self.program.strange(&args, &answer, "a version such as 0.33.0"))
    }

    /// `kind create cluster`. Dropping the future kills it halfway: whoever does deletes the cluster.
    ///
    /// # Errors
    /// It fails. kind deletes what it has made by then, unless it is told to retain it.
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

    /// `kind delete cluster`, halves of one too. No error if there is none.
    ///
    /// # Errors
    /// Something of it cannot be deleted.
    pub async fn delete(&self, name: &str, kubeconfig: &Path) -> Result<(), ProgramError> {
        let mut args = words(["delete", "cluster", "--name", name]);
        args.extend(["--kubeconfig".into(), kubeconfig.into()]);
        self.program.call(&args, DELETE).await.map(drop)
    }

    /// `kind get clusters`: the names of all, also of those half made.
    ///
    /// # Errors
    /// The engine does not answer.
    pub async fn clusters(&self) -> Result<Vec<String>, ProgramError> {
        Ok(lines(&self.program.call(&["get", "clusters"], QUERY).await?))
    }

    /// `kind get nodes`: the names of a cluster's containers, which are those of its nodes.
    ///
    /// # Errors
    /// The engine does not answer.
    pub async fn nodes(&self, name: &str) -> Result<Vec<String>, ProgramError> {
        Ok(lines(&self.program.call(&["get", "nodes", "--name", name], QUERY).await?))
    }

    /// `kind get kubeconfig`: for the API server's port on this machine, with all rights.
    ///
    /// # Errors
    /// There is no such cluster, or it does not run.
    pub async fn kubeconfig(&self, name: &str) -> Result<String, ProgramError> {
        self.program.call(&["get", "kubeconfig", "--name", name], QUERY).await
    }

    /// `kind load image-archive`: brings the images of a tar file to all nodes.
    ///
    /// # Errors
    /// A node does not take it, or there is no such file.
    pub async fn load_archive(&self, name: &str, archive: &Path) -> Result<(), ProgramError> {
        let mut args = words(["load", "image-archive"]);
        args.push(archive.into());
        args.extend(words(["--name", name]));
        self.program.call(&args, LOAD).await.map(drop)
    }

    /// Brings an image that the engine has to all nodes.
    ///
    /// `kind load docker-image` asks the program `docker`, whatever the engine is, so for the others the image
    /// goes through a file in `scratch`.
    ///
    /// # Errors
    /// The engine has no such image, or a node does not take it.
    pub async fn load_image(&self, name: &str, image: &str, scratch: &Path) -> Result<(), ProgramError> {
        if self.engine.is_docker() {
            let args = ["load", "docker-image", image, "--name", name];
            return self.program.call(&args, LOAD).await.map(drop);
        }
        let archive = scratch.join("image.tar");
        self.engine.save_for_docker_io(image, &archive).await?;
        let loaded = self.load_archive(name, &archive).await;
        // What stays goes with the folder.
        let _ = tokio::fs::remove_file(&archive).await;
        loaded
    }

    /// `kind export logs`: the journals, container logs and images of all nodes, as files in a folder.
    ///
    /// # Errors
    /// There is no such cluster, or not all could be had: the rest is there.
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
