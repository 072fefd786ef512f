//! `subPath` and `subPathExpr`: a path in a volume, resolved so that nothing in the volume can lead out of it.
//! Upstream: `doSafeMakeDir` and `doBindSubPath` in `pkg/volume/util/subpath/subpath_linux.go`.
//!
//! Upstream bind mounts it below the pod's directory to have a path for the runtime, and has to unmount it
//! later. Here the runtime accepts volumes by descriptor, so an open one is enough: there is nothing to undo,
//! and whatever happens to the path meanwhile, the container gets the checked file.

use std::{
    ffi::OsStr,
    fmt, fs,
    io::{self, Read as _},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat2};

/// A path in a volume, valid as long as it is held.
#[derive(Debug)]
pub struct SubPath(OwnedFd);

impl SubPath {
    /// A path that refers to exactly this file or directory while this value exists, in this process.
    pub fn path(&self) -> PathBuf {
        by_descriptor(&self.0)
    }
}

/// Why a sub path cannot be resolved.
#[derive(Debug, thiserror::Error)]
#[error("failed to prepare subPath {path:?} of the volume: {reason}")]
pub struct SubPathError {
    path: String,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    /// The path itself is invalid.
    Shape(&'static str),
    /// It leads out of the volume.
    Escapes,
    /// The file system returned an error.
    Io(io::Error),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape(what) => f.write_str(what),
            Self::Escapes => f.write_str("it leads out of the volume, by a symbolic link"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl From<rustix::io::Errno> for Reason {
    fn from(errno: rustix::io::Errno) -> Self {
        if errno == rustix::io::Errno::XDEV { Self::Escapes } else { Self::Io(errno.into()) }
    }
}

/// Opens `sub_path` in the volume that is mounted at `volume`. Missing directories are created, with
/// the mode of the volume's root.
///
/// # Errors
/// If the path is absolute or has `..`, leads out of the volume, or the file system refuses.
pub fn open_in(volume: &Path, sub_path: &str) -> Result<SubPath, SubPathError> {
    let parts = parts(sub_path).map_err(Reason::Shape);
    let opened = parts.and_then(|parts| {
        let root = open(volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let found = look(&root, Path::new(sub_path));
        match found {
            Err(rustix::io::Errno::NOENT) => make(&root, &parts),
            found => Ok(found?),
        }
    });
    opened.map(SubPath).map_err(|reason| SubPathError { path: sub_path.to_owned(), reason })
}

/// The largest file that is read: the limit of a ConfigMap.
const LARGEST: u64 = 1 << 20;

/// The content of a regular file in the volume that is mounted at `volume`. Links lead to files of the volume only, as
/// with `SecureJoin` of filepath-securejoin.
///
/// # Errors
/// The file does not exist, is not a regular one, or is larger than a ConfigMap.
pub fn read_in(volume: &Path, path: &str) -> io::Result<Vec<u8>> {
    let root = open(volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // A named pipe would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = fs::File::from(openat2(&root, path, flags, Mode::empty(), resolve)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return Err(io::Error::other("it is not a regular file of at most 1 MiB"));
    }
    let mut content = Vec::new();
    file.take(LARGEST).read_to_end(&mut content)?;
    Ok(content)
}

/// The components of the path. Upstream: `validateLocalNonReservedPath` forbids the same.
fn parts(sub_path: &str) -> Result<Vec<&OsStr>, &'static str> {
    let part = |component| match component {
        Component::Normal(name) => Some(Ok(name)),
        Component::CurDir => None,
        Component::ParentDir => Some(Err("must not contain '..'")),
        Component::RootDir | Component::Prefix(_) => Some(Err("must be a relative path")),
    };
    Path::new(sub_path).components().filter_map(part).collect()
}

/// Links are followed, but the kernel rejects each step that would leave `root`.
fn look(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Creates missing directories, one after the other, each looked up from the root again.
fn make(root: &OwnedFd, parts: &[&OsStr]) -> Result<OwnedFd, Reason> {
    let mode = Mode::from_raw_mode(fstat(root.as_fd())?.st_mode & 0o7777);
    let mut path = PathBuf::new();
    let mut parent = look(root, &path)?;
    for part in parts {
        path.push(part);
        parent = match look(root, &path) {
            Err(rustix::io::Errno::NOENT) => {
                match mkdirat(&parent, *part, mode) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                let made = look(root, &path)?;
                // Again, past the umask.
                rustix::fs::chmodat(CWD, by_descriptor(&made), mode, rustix::fs::AtFlags::empty())?;
                made
            }
            found => found?,
        };
    }
    Ok(parent)
}

fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use rustix::mount::{OpenTreeFlags, open_tree};

    use super::*;

    fn reason(volume: &Path, path: &str) -> String {
        open_in(volume, path).unwrap_err().to_string()
    }

    #[test]
    fn a_part_is_made_where_it_is_missing() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let part = open_in(root.path(), "a/./b").unwrap();
        fs::write(part.path().join("f"), b"x").unwrap();
        assert_eq!(fs::read(root.path().join("a/b/f")).unwrap(), b"x");
        assert_eq!(fs::metadata(root.path().join("a/b")).unwrap().permissions().mode() & 0o7777, 0o777);
        // A file is a part too, and one that is there stays as it is.
        assert_eq!(fs::read(open_in(root.path(), "a/b/f").unwrap().path()).unwrap(), b"x");
    }

    #[test]
    fn links_within_the_volume_are_followed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("..2026/d")).unwrap();
        std::os::unix::fs::symlink("..2026", root.path().join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/d", root.path().join("d")).unwrap();
        fs::write(root.path().join("..2026/d/f"), b"x").unwrap();
        assert_eq!(fs::read(open_in(root.path(), "d/f").unwrap().path()).unwrap(), b"x");
    }

    #[test]
    fn nothing_leads_out() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(outside.path(), root.path().join("absolute")).unwrap();
        std::os::unix::fs::symlink("../../..", root.path().join("relative")).unwrap();
        std::os::unix::fs::symlink("/proc/self/root", root.path().join("magic")).unwrap();
        for path in ["absolute", "absolute/made", "relative", "relative/made", "magic/etc"] {
            assert!(reason(root.path(), path).contains("leads out of the volume"), "{path}");
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert!(reason(root.path(), "a/../b").ends_with("must not contain '..'"));
        assert!(reason(root.path(), "/etc").ends_with("must be a relative path"));
        fs::write(root.path().join("file"), b"").unwrap();
        assert!(reason(root.path(), "file/below").contains("Not a directory"));
    }

    #[test]
    fn only_regular_files_of_the_volume_are_read() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(root.path().join("d")).unwrap();
        fs::write(root.path().join("d/f"), b"x").unwrap();
        fs::write(outside.path().join("f"), b"secret").unwrap();
        for (link, target) in [("root", Path::new("/d/f")), ("out", &outside.path().join("f"))] {
            std::os::unix::fs::symlink(target, root.path().join(link)).unwrap();
        }
        for path in ["d/f", "/d/f", "root", "../d/f"] {
            assert_eq!(read_in(root.path(), path).unwrap(), b"x", "{path}");
        }
        rustix::fs::mknodat(CWD, root.path().join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        fs::File::create(root.path().join("large")).unwrap().set_len(LARGEST + 1).unwrap();
        for path in ["out", "d", "pipe", "large", "none"] {
            assert!(read_in(root.path(), path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_path_that_is_swapped_later_does_not_matter() {
        let root = tempfile::tempdir().unwrap();
        let part = open_in(root.path(), "a").unwrap();
        fs::rename(root.path().join("a"), root.path().join("b")).unwrap();
        std::os::unix::fs::symlink("/etc", root.path().join("a")).unwrap();
        fs::write(part.path().join("f"), b"x").unwrap();
        assert!(root.path().join("b/f").exists());
    }

    #[test]
    #[ignore = "requires root"]
    fn the_runtime_can_mount_it() {
        claimcheck_needs::require("root");
        let root = tempfile::tempdir().unwrap();
        let part = open_in(root.path(), "a").unwrap();
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, part.path(), flags).unwrap();
        assert_eq!(fstat(tree).unwrap().st_ino, fstat(&part.0).unwrap().st_ino);
    }
}
