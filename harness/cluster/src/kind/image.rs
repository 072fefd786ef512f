//! The images that the nodes of a kind cluster need, and their sources.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tracing::{info, warn};

use super::nodes::KindError;
use claimcheck_kind::Engine;

/// The Dockerfile of the image; the same file as for manual builds.
const DOCKERFILE: &str = include_str!("../../../../ci/Dockerfile");
/// The path at which that file expects the binary, relative to the source tree.
const BINARY: &str = "target/release/claimcheck";

/// The source of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A tar file: an OCI layout or the output of `docker save`.
    Archive(PathBuf),
    /// A local image of the engine with this name.
    Named(String),
    /// Built by the engine from this program.
    Built {
        /// Its name.
        name: String,
        /// The base image; the default is in `ci/Dockerfile`.
        base: Option<String>,
    },
}

impl Image {
    /// Checks for the image, or builds it, before the cluster is created: it is needed only minutes later.
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

/// Builds the image. If that fails, as on a machine without a network, a previously built one of this name
/// is used.
async fn build(engine: &Engine, name: &str, base: Option<&str>) -> Result<(), KindError> {
    let folder = tempfile::tempdir().map_err(|source| writing(&std::env::temp_dir(), source))?;
    let (dockerfile, binary) = (folder.path().join("Dockerfile"), folder.path().join(BINARY));
    fs::write(&dockerfile, DOCKERFILE).map_err(|source| writing(&dockerfile, source))?;
    let copied = fs::create_dir_all(folder.path().join("target/release"))
        .and_then(|()| fs::copy("/proc/self/exe", &binary));
    copied.map_err(|source| writing(&binary, source))?;
    info!(name, engine = engine.name(), "built the image");
    let args: Vec<_> = base.map(|base| ("BASE_IMAGE", base)).into_iter().collect();
    match engine.build(folder.path(), &dockerfile, name, &args).await {
        Ok(()) => Ok(()),
        Err(error) if engine.image_id(name).await.is_ok() => {
            warn!(name, %error, "cannot build the image, using the existing one");
            Ok(())
        }
        Err(source) => Err(KindError::Build { image: name.to_owned(), source }),
    }
}

fn writing(path: &Path, source: io::Error) -> KindError {
    KindError::Write { path: path.to_owned(), source }
}
