//! Builds the image of the components without a container engine: a root file system and one binary.
//!
//! ```text
//! rootfs (folder or tar) ──layer──┐
//! binary ──layer──────────────────┴──> config, manifest ──> one tar: OCI layout and docker-archive at once
//! ```
//!
//! `kind load image-archive`, `docker load`, `podman load` and `ctr images import` all accept it. It is
//! reproducible: everything in it has the same time and a fixed order. With an engine `ci/Dockerfile`
//! does the same.

mod archive;
mod elf;
mod layer;
#[cfg(test)]
mod tests;

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

/// The path of the binary in the image.
pub const ENTRYPOINT: &str = "/usr/local/bin/claimcheck";

/// Programs in the root file system that the driver runs.
const PROGRAMS: [&str; 2] = ["mkfs.ext4", "mkfs.xfs"];

/// The parameters of an image.
#[derive(Clone, Debug)]
pub struct Options {
    /// The root file system: a folder, or an uncompressed tar archive.
    pub rootfs: PathBuf,
    /// The binary of claimcheck.
    pub binary: PathBuf,
    /// The name of the image, such as `claimcheck:dev`.
    pub tag: String,
    /// Its platform.
    pub platform: Platform,
    /// The archive; replaced if it exists.
    pub out: PathBuf,
}

/// The platform of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// `linux/amd64`
    Amd64,
    /// `linux/arm64`
    Arm64,
}

impl Platform {
    /// This machine's platform; none if it is not supported.
    pub fn native() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }

    /// The architecture in an image's configuration.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture())
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "linux/amd64" => Ok(Self::Amd64),
            "linux/arm64" => Ok(Self::Arm64),
            _ => Err("use linux/amd64 or linux/arm64".to_owned()),
        }
    }
}

/// An image cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The root file system cannot be read.
    #[error("cannot read the root file system at {}: pass a folder, or an uncompressed tar archive", .path.display())]
    Rootfs {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The binary cannot be read.
    #[error("cannot read the binary {}", .path.display())]
    Binary {
        /// The binary.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The binary does not run on the platform.
    #[error("{} is not a program for {platform}: build it for that and pass it with --binary", .path.display())]
    Platform {
        /// The binary.
        path: PathBuf,
        /// The platform of the image.
        platform: Platform,
    },
    /// The image cannot be written.
    #[error("cannot write the image {}", .path.display())]
    Write {
        /// The archive.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// An image that was built.
#[derive(Clone, Debug)]
pub struct Image {
    /// The digest of its manifest, `sha256:...`.
    pub digest: String,
    /// Missing programs, each with the resulting limitation.
    pub notes: Vec<String>,
}

/// Builds an image.
///
/// # Errors
/// [`ImageError`]; an archive that was not completed is removed.
pub fn build(options: &Options) -> Result<Image, ImageError> {
    let Options { rootfs, binary, platform, out, .. } = options;
    let unreadable = |source| ImageError::Binary { path: binary.clone(), source };
    if elf::machine(binary).map_err(unreadable)? != Some(*platform) {
        return Err(ImageError::Platform { path: binary.clone(), platform: *platform });
    }
    let failed = |source| ImageError::Write { path: out.clone(), source };
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = || tempfile::tempfile_in(folder).map_err(failed);
    let base = layer::from_rootfs(rootfs, scratch()?)?;
    let program = layer::from_binary(binary, ENTRYPOINT, scratch()?).map_err(unreadable)?;
    let lacks = PROGRAMS.iter().filter(|program| !base.programs.contains(**program));
    let notes = lacks.map(|program| format!("{program} is missing: the driver cannot create such volumes"));
    let notes = notes.collect();
    match archive::write(options, vec![base, program]) {
        Ok(digest) => Ok(Image { digest, notes }),
        Err(source) => {
            // A partial image must not remain. It may not exist at all.
            let _ = fs::remove_file(out);
            Err(failed(source))
        }
    }
}
