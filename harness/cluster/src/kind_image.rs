//! The images that a cluster of kind needs on its nodes, and where they come from.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tracing::{info, warn};

use super::kind::KindError;
use claimcheck_kind::Engine;

/// Describes our image; the same file that people build it with.
const DOCKERFILE: &str = include_str!("../../../ci/Dockerfile");
/// Where that file expects the binary, from the top of the source tree.
const BINARY: &str = "target/release/claimcheck";

/// Where an image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A tar file: an OCI layout or what `docker save` writes.
    Archive(PathBuf),
    /// The engine has it, by this name.
    Named(String),
    /// The engine builds it around this program.
    Built {
        /// What it will be called.
        name: String,
        /// The image below it; `ci/Dockerfile` names one where absent.
        base: Option<String>,
    },
}

impl Image {
    /// Looks for it, or builds it, before there is a cluster: it takes minutes until it is needed there.
    pub(super) async fn prepare(&self, engine: &Engine) -> Result<(), KindError> {
        match self {
            Self::Archive(path) if path.is_file() => Ok(()),
            Self::Archive(path) => Err(KindError::NoArchive(path.clone())),
            Self::Named(name) => match engine.image_id(name).await {
                Ok(_) => Ok(()),
                Err(source) => {
                    let engine = engine.name().to_owned();
                    Err(KindError::NoImage { engine, image: name.clone(), source })
                }
            },
            Self::Built { name, base } => build(engine, name, base.as_deref()).await,
        }
    }
}

/// Builds our image. Where that fails, as on a machine without a network, one of this name that was built before
/// does as well.
async fn build(engine: &Engine, name: &str, base: Option<&str>) -> Result<(), KindError> {
    let folder = tempfile::tempdir().map_err(|source| writing(&std::env::temp_dir(), source))?;
    let (dockerfile, binary) = (folder.path().join("Dockerfile"), folder.path().join(BINARY));
    fs::write(&dockerfile, DOCKERFILE).map_err(|source| writing(&dockerfile, source))?;
    let copied = fs::create_dir_all(folder.path().join("target/release"))
        .and_then(|()| fs::copy("/proc/self/exe", &binary));
    copied.map_err(|source| writing(&binary, source))?;
    info!(name, engine = engine.name(), "our image is built");
    let args: Vec<_> = base.map(|base| ("BASE_IMAGE", base)).into_iter().collect();
    match engine.build(folder.path(), &dockerfile, name, &args).await {
        Ok(()) => Ok(()),
        Err(error) if engine.image_id(name).await.is_ok() => {
            warn!(name, %error, "our image cannot be built: the one that is there is taken");
            Ok(())
        }
        Err(source) => Err(KindError::Build { image: name.to_owned(), source }),
    }
}

fn writing(path: &Path, source: io::Error) -> KindError {
    KindError::Write { path: path.to_owned(), source }
}
