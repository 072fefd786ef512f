//! `--image-rootfs IMAGE=docker`: an image that the container engine has, unpacked into a folder.
//!
//! No container is started: one is created, its root file system is read (`export`), and it is removed.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use claimcheck_kind::{Engine, EngineError, Tools};
use serde::Deserialize;

/// An unpacked image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unpacked {
    /// Its root file system.
    pub folder: PathBuf,
    /// What a container without `command` starts.
    pub entrypoint: Vec<String>,
    /// The arguments of a container without `command` and `args`.
    pub arguments: Vec<String>,
    /// Its variables, except `PATH`, which names directories of the image.
    pub variables: Vec<(String, String)>,
}

/// An image cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// There is no container engine.
    #[error(
        "--image-rootfs {image}=docker requires a container engine: use {image}=DIR or {image}=exec:PROGRAM"
    )]
    NoEngine {
        /// The image.
        image: String,
        /// The cause.
        #[source]
        source: EngineError,
    },
    /// The engine cannot be run.
    #[error("--image-rootfs {image}=docker: {engine} cannot be started")]
    Start {
        /// The image.
        image: String,
        /// The engine's program.
        engine: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The engine reports an error.
    #[error(
        "--image-rootfs {image}=docker: {engine} {command} failed: {output}: is the engine running, and does it have the \
         image ({engine} pull {image})?"
    )]
    Engine {
        /// The image.
        image: String,
        /// The engine's program.
        engine: String,
        /// Its command.
        command: &'static str,
        /// What it printed.
        output: String,
    },
    /// The engine's answer is not understood.
    #[error("--image-rootfs {image}=docker: {engine} image inspect printed no configuration of an image")]
    Inspect {
        /// The image.
        image: String,
        /// The engine's program.
        engine: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The file system cannot be written.
    #[error("--image-rootfs {image}=docker: the image cannot be unpacked into {}", folder.display())]
    Write {
        /// The image.
        image: String,
        /// The folder.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The part of an image's configuration that counts here (`Config` in the OCI image specification).
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
}

/// Unpacks an image into this folder, which it creates.
///
/// # Errors
/// [`UnpackError`], with the image and the remedy.
pub(super) fn unpack(image: &str, folder: &Path) -> Result<Unpacked, UnpackError> {
    let engine = Engine::find(&Tools::from_environment())
        .map_err(|source| UnpackError::NoEngine { image: image.to_owned(), source })?;
    let call = Call { engine: engine.name(), image };
    let config =
        call.output("image inspect", &["image", "inspect", "--format", "{{json .Config}}", image])?;
    let config = serde_json::from_str(&config).map_err(|source| UnpackError::Inspect {
        image: image.to_owned(),
        engine: engine.name().to_owned(),
        source,
    })?;
    // An image without command gets one, which `create` requires.
    let container = call.output("create", &["create", "--network", "none", image, "none"])?;
    let exported = call.export(&container, folder);
    // The container is removed whatever the outcome.
    call.output("rm", &["rm", "--force", &container])?;
    exported?;
    Ok(unpacked(folder, config))
}

fn unpacked(folder: &Path, config: Config) -> Unpacked {
    let variable = |text: String| {
        let (name, value) = text.split_once('=')?;
        (name != "PATH").then(|| (name.to_owned(), value.to_owned()))
    };
    Unpacked {
        folder: folder.to_owned(),
        entrypoint: config.entrypoint.unwrap_or_default(),
        arguments: config.cmd.unwrap_or_default(),
        variables: config.env.into_iter().flatten().filter_map(variable).collect(),
    }
}

/// Calls of the engine for an image.
struct Call<'a> {
    engine: &'a str,
    image: &'a str,
}

impl Call<'_> {
    fn not_started(&self, source: io::Error) -> UnpackError {
        UnpackError::Start { image: self.image.to_owned(), engine: self.engine.to_owned(), source }
    }

    fn failed(&self, command: &'static str, output: &[u8]) -> UnpackError {
        let output = String::from_utf8_lossy(output).trim().to_owned();
        UnpackError::Engine { image: self.image.to_owned(), engine: self.engine.to_owned(), command, output }
    }

    /// What a command prints, without the end of its line.
    fn output(&self, command: &'static str, args: &[&str]) -> Result<String, UnpackError> {
        let done = Command::new(self.engine).args(args).stdin(Stdio::null()).output();
        let done = done.map_err(|source| self.not_started(source))?;
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
            false => Err(self.failed(command, &done.stderr)),
        }
    }

    /// Unpacks the file system of a container while the engine prints it.
    fn export(&self, container: &str, folder: &Path) -> Result<(), UnpackError> {
        let mut child = Command::new(self.engine)
            .args(["export", container])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| self.not_started(source))?;
        let stdout = child.stdout.take().expect("it is piped");
        let written = std::fs::create_dir_all(folder).and_then(|()| extract(stdout, folder));
        let done = child.wait_with_output().map_err(|source| self.not_started(source))?;
        written.map_err(|source| UnpackError::Write {
            image: self.image.to_owned(),
            folder: folder.to_owned(),
            source,
        })?;
        if done.status.success() { Ok(()) } else { Err(self.failed("export", &done.stderr)) }
    }
}

/// Writes the entries of an archive below a folder. The user may not be root, so owners are not kept, and devices, which
/// no program of a driver takes from its image, are left out.
fn extract(archive: impl Read, folder: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    archive.set_preserve_permissions(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link() {
            entry.unpack_in(folder)?;
        }
    }
    // The padding after the last entry: the engine fails if it is not read.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_container_starts_what_its_image_configures() {
        let text =
            r#"{"Entrypoint":["/csi-provisioner","-a"],"Cmd":null,"Env":["PATH=/bin","A=b=c"],"User":"1"}"#;
        let unpacked = unpacked(Path::new("/f"), serde_json::from_str(text).unwrap());
        let expected = Unpacked {
            folder: "/f".into(),
            entrypoint: vec!["/csi-provisioner".into(), "-a".into()],
            arguments: Vec::new(),
            variables: vec![("A".into(), "b=c".into())],
        };
        assert_eq!(unpacked, expected);
    }

    #[test]
    fn programs_links_and_folders_are_written_and_nothing_outside() {
        let mut archive = tar::Builder::new(Vec::new());
        let mut add = |path: &str, kind, link: Option<&str>, mode| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(0);
            if let Some(link) = link {
                header.set_link_name(link).unwrap();
            }
            // Paths that `append_data` rejects are written as they are.
            let name = &mut header.as_gnu_mut().unwrap().name;
            name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            archive.append(&header, io::empty()).unwrap();
        };
        add("bin/", tar::EntryType::Directory, None, 0o755);
        add("bin/driver", tar::EntryType::Regular, None, 0o755);
        add("driver", tar::EntryType::Symlink, Some("bin/driver"), 0o777);
        add("dev/null", tar::EntryType::Char, None, 0o666);
        add("../outside", tar::EntryType::Regular, None, 0o644);
        let archive = archive.into_inner().unwrap();
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("image");
        fs::create_dir(&folder).unwrap();
        extract(archive.as_slice(), &folder).unwrap();
        let mode = fs::metadata(folder.join("driver")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert!(!folder.join("dev/null").exists() && !top.path().join("outside").exists());
    }
}
