//! hostPath: a path of the node, which must be of the expected type.
//! Upstream: `pkg/volume/hostpath/host_path.go`.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

/// A path of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// The path.
    pub path: PathBuf,
    /// The expected type.
    pub kind: HostPathKind,
}

/// The expected type of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostPathKind {
    /// Any; the container's mount fails if it does not exist.
    #[default]
    Any,
    /// A directory.
    Directory,
    /// A directory, created (0755) if it does not exist.
    DirectoryOrCreate,
    /// A file.
    File,
    /// A file, created (0644) if it does not exist; its directory must exist.
    FileOrCreate,
    /// A unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// Why the path cannot be used. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum HostPathError {
    /// It is of another type, or does not exist.
    #[error("hostPath type check failed: {} is not a {expected}", path.display())]
    Other {
        /// The path.
        path: PathBuf,
        /// The expected type.
        expected: &'static str,
    },
    /// It cannot be accessed, or created.
    #[error("hostPath type check failed: {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl HostPath {
    /// Parses the volume source of a pod's spec; `None` if the type is unknown.
    pub fn of(source: &HostPathVolumeSource) -> Option<Self> {
        let kind = match source.type_.as_deref().unwrap_or_default() {
            "" => HostPathKind::Any,
            "Directory" => HostPathKind::Directory,
            "DirectoryOrCreate" => HostPathKind::DirectoryOrCreate,
            "File" => HostPathKind::File,
            "FileOrCreate" => HostPathKind::FileOrCreate,
            "Socket" => HostPathKind::Socket,
            "CharDevice" => HostPathKind::CharDevice,
            "BlockDevice" => HostPathKind::BlockDevice,
            _ => return None,
        };
        Some(Self { path: source.path.clone().into(), kind })
    }

    /// Creates a missing path, if the type requires it, and checks an existing one. Blocks.
    ///
    /// # Errors
    /// If the path is not of the expected type.
    pub fn check(&self) -> Result<(), HostPathError> {
        let failed = |source| HostPathError::Io { path: self.path.clone(), source };
        make(&self.path, self.kind).map_err(failed)?;
        let found = match fs::metadata(&self.path) {
            Ok(found) => Some(found.file_type()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let is = |test: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(test);
        let (fits, expected) = match self.kind {
            HostPathKind::Any => return Ok(()),
            HostPathKind::Directory | HostPathKind::DirectoryOrCreate => {
                (is(fs::FileType::is_dir), "directory")
            }
            HostPathKind::File | HostPathKind::FileOrCreate => (is(fs::FileType::is_file), "file"),
            HostPathKind::Socket => (is(FileTypeExt::is_socket), "socket file"),
            HostPathKind::CharDevice => (is(FileTypeExt::is_char_device), "character device"),
            HostPathKind::BlockDevice => (is(FileTypeExt::is_block_device), "block device"),
        };
        if fits { Ok(()) } else { Err(HostPathError::Other { path: self.path.clone(), expected }) }
    }
}

fn make(path: &Path, kind: HostPathKind) -> io::Result<()> {
    let made = match kind {
        HostPathKind::DirectoryOrCreate if !path.exists() => {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
        }
        HostPathKind::FileOrCreate if !path.exists() => {
            fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path).map(drop)
        }
        _ => Ok(()),
    };
    // Another pod was faster.
    made.or_else(|error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn every_type_takes_its_own_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("file"), b"").unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let places = [at("dir"), at("file"), at("socket"), "/dev/null".into(), at("none")];
        // Which of the places each type takes.
        let rows = [
            ("", [true, true, true, true, true]),
            ("Directory", [true, false, false, false, false]),
            ("File", [false, true, false, false, false]),
            ("Socket", [false, false, true, false, false]),
            ("CharDevice", [false, false, false, true, false]),
            ("BlockDevice", [false, false, false, false, false]),
        ];
        for (kind, takes) in rows {
            for (place, expected) in places.iter().zip(takes) {
                let source =
                    HostPathVolumeSource { path: place.display().to_string(), type_: Some(kind.to_owned()) };
                let checked = HostPath::of(&source).unwrap().check();
                assert_eq!(checked.is_ok(), expected, "{kind:?} at {}", place.display());
            }
        }
    }

    #[test]
    fn what_is_missing_is_made() {
        let root = tempfile::tempdir().unwrap();
        let check = |name: &str, kind| HostPath { path: root.path().join(name), kind }.check();
        check("a/b", HostPathKind::DirectoryOrCreate).unwrap();
        check("a/f", HostPathKind::FileOrCreate).unwrap();
        check("a/f", HostPathKind::FileOrCreate).unwrap();
        assert!(root.path().join("a/b").is_dir() && root.path().join("a/f").is_file());
        assert!(check("none/f", HostPathKind::FileOrCreate).is_err(), "its directory is not made");
        let wrong = check("a/f", HostPathKind::DirectoryOrCreate).unwrap_err().to_string();
        assert!(wrong.ends_with("a/f is not a directory"), "{wrong}");
        let unknown = HostPathVolumeSource { path: "/".into(), type_: Some("Door".into()) };
        assert_eq!(HostPath::of(&unknown), None);
    }
}
