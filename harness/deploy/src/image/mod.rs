//! Builds the image of the components without a container engine: a root file system and one binary.
//!
//! ```text
//! rootfs (folder or tar) ──layer──┐
//! binary ──layer──────────────────┴──> config, manifest ──> one tar: OCI layout and docker-archive at once
//! ```
//!
//! `kind load image-archive`, `docker load`, `podman load` and `ctr images import` all take it. The same inputs
//! give the same bytes: everything in it has the same time and a fixed order. With an engine `ci/Dockerfile`
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

/// Where the binary lies in the image.
pub const ENTRYPOINT: &str = "/usr/local/bin/claimcheck";

/// Programs of the root file system that the driver starts.
const PROGRAMS: [&str; 2] = ["mkfs.ext4", "mkfs.xfs"];

/// What an image is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// The root file system: a folder, or a tar archive that is not compressed.
    pub rootfs: PathBuf,
    /// The binary of claimcheck.
    pub binary: PathBuf,
    /// Under which name engines know the image, such as `claimcheck:dev`.
    pub tag: String,
    /// For which machines it is.
    pub platform: Platform,
    /// The archive; replaced if it exists.
    pub out: PathBuf,
}

/// What machines an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// `linux/amd64`
    Amd64,
    /// `linux/arm64`
    Arm64,
}

impl Platform {
    /// This machine's; none if images for it are not made.
    pub fn ours() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }

    /// As in an image's configuration.
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

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The root file system cannot be read.
    #[error("cannot read the root file system at {}: give a folder, or a tar archive that is not compressed", .path.display())]
    Rootfs {
        /// The file at fault.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The binary cannot be read.
    #[error("cannot read the binary {}", .path.display())]
    Binary {
        /// The binary.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The binary does not run on the platform.
    #[error("{} is no program for {platform}: build it for that, and give it with --binary", .path.display())]
    Platform {
        /// The binary.
        path: PathBuf,
        /// What the image is for.
        platform: Platform,
    },
    /// The image cannot be written.
    #[error("cannot write the image {}", .path.display())]
    Write {
        /// The archive.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// An image that was built.
#[derive(Clone, Debug)]
pub struct Image {
    /// The digest of its manifest, `sha256:...`.
    pub digest: String,
    /// What it lacks, each with what does not work without.
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
    let base = layer::of_rootfs(rootfs, scratch()?)?;
    let program = layer::of_binary(binary, ENTRYPOINT, scratch()?).map_err(unreadable)?;
    let lacks = PROGRAMS.iter().filter(|program| !base.programs.contains(**program));
    let notes = lacks.map(|program| format!("there is no {program}: the driver cannot make such volumes"));
    let notes = notes.collect();
    match archive::write(options, vec![base, program]) {
        Ok(digest) => Ok(Image { digest, notes }),
        Err(source) => {
            // What is half an image must not be taken for one. There may be none at all.
            let _ = fs::remove_file(out);
            Err(failed(source))
        }
    }
}
