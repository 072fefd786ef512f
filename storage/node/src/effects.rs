//! Effects of the volume manager on the host, apart from calls to drivers, behind one small trait, so that
//! faults can be injected and tests do not need root.
//!
//! The calls are short (a directory, a small file, a table of mounts), so they are made where they are
//! needed; those that go over a whole volume, [`Host::apply_group`], [`Host::remove_tree`],
//! [`Host::write_files`] and [`Host::usage`], belong on a blocking thread.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::AtomicU64,
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

use crate::volumes::{
    FsGroup,
    content::{Files, atomic},
    ownership,
};

/// Effects on the host.
pub trait Host: Send + Sync + 'static {
    /// Makes a directory (0750) and its parents.
    ///
    /// # Errors
    /// As the file system says; existing is none.
    fn make_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens a directory or file to every user: an emptyDir, a termination message.
    ///
    /// # Errors
    /// As the file system says.
    fn open_to_all(&self, path: &Path) -> io::Result<()>;

    /// Writes a whole file such that a crash leaves the old or the new one.
    ///
    /// # Errors
    /// As the file system says.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// Reads a whole file; none if there is none.
    ///
    /// # Errors
    /// As the file system says.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;

    /// Makes a symbolic link, in place of one that is there.
    ///
    /// # Errors
    /// As the file system says.
    fn link(&self, path: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file or an empty directory.
    ///
    /// # Errors
    /// As the file system says; absent is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and all in it, but never crosses into a mount, be it a bind mount of the same file
    /// system.
    ///
    /// # Errors
    /// As the file system says; absent is none; a mount at it or below is [`io::ErrorKind::ResourceBusy`].
    fn remove_tree(&self, path: &Path) -> io::Result<()>;

    /// The paths in a directory; empty if there is none.
    ///
    /// # Errors
    /// As the file system says.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// All mount points that this process sees.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    fn mount_points(&self) -> io::Result<BTreeSet<PathBuf>>;

    /// Hands a tree to a group; see [`ownership::apply`].
    ///
    /// # Errors
    /// If a file or directory cannot be read.
    fn apply_group(&self, path: &Path, group: FsGroup, read_only: bool, count: &AtomicU64) -> io::Result<()>;

    /// Makes a directory hold these files, all at once; see [`atomic::write`].
    ///
    /// # Errors
    /// As the file system says.
    fn write_files(&self, path: &Path, files: &Files, group: Option<FsGroup>) -> io::Result<bool>;

    /// Mounts a file system in memory, of this many bytes if that is given. Mounted already is none.
    ///
    /// # Errors
    /// As the kernel says; not being root, mostly.
    fn mount_memory(&self, path: &Path, size: Option<u64>) -> io::Result<()>;

    /// Unmounts whatever is mounted at the path; nothing is none.
    ///
    /// # Errors
    /// As the kernel says; in use, mostly.
    fn unmount(&self, path: &Path) -> io::Result<()>;

    /// The bytes that a tree takes on its disk.
    ///
    /// # Errors
    /// As the file system says; what vanishes meanwhile is none.
    fn usage(&self, path: &Path) -> io::Result<u64>;
}

/// The real host.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealHost;

impl Host for RealHost {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(path)
    }

    fn open_to_all(&self, path: &Path) -> io::Result<()> {
        let mode = if fs::metadata(path)?.is_dir() { 0o777 } else { 0o666 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, content)?;
        fs::rename(&new, path)
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        absent_is_none(fs::read(path))
    }

    fn link(&self, path: &Path, to: &Path) -> io::Result<()> {
        self.remove(path)?;
        symlink(to, path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let Some(found) = absent_is_none(fs::symlink_metadata(path))? else { return Ok(()) };
        let removed = if found.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        absent_is_none(removed).map(|_| ())
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match absent_is_none(fs::symlink_metadata(path))? {
            None => Ok(()),
            Some(found) if !found.is_dir() => self.remove(path),
            Some(_) => remove_dir_all(path),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let Some(entries) = absent_is_none(fs::read_dir(path))? else { return Ok(Vec::new()) };
        entries.map(|entry| Ok(entry?.path())).collect()
    }

    fn mount_points(&self) -> io::Result<BTreeSet<PathBuf>> {
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(table.lines().filter_map(mount_point).collect())
    }

    fn apply_group(&self, path: &Path, group: FsGroup, read_only: bool, count: &AtomicU64) -> io::Result<()> {
        ownership::apply(path, group, read_only, count)
    }

    fn write_files(&self, path: &Path, files: &Files, group: Option<FsGroup>) -> io::Result<bool> {
        atomic::write(path, files, group)
    }

    fn mount_memory(&self, path: &Path, size: Option<u64>) -> io::Result<()> {
        if self.mount_points()?.contains(path) {
            return Ok(());
        }
        let size = size.map(|bytes| format!("size={bytes},")).unwrap_or_default();
        let options = format!("{size}mode=0777");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        Ok(mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options.as_str()))?)
    }

    fn unmount(&self, path: &Path) -> io::Result<()> {
        match umount2(path, MntFlags::UMOUNT_NOFOLLOW) {
            // Not a mount, or not there.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
            // Without root nothing can have been mounted by us.
            Err(Errno::EPERM) if !self.mount_points()?.contains(path) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn usage(&self, path: &Path) -> io::Result<u64> {
        let Some(found) = absent_is_none(fs::symlink_metadata(path))? else { return Ok(0) };
        let mut bytes = found.blocks() * 512;
        if found.is_dir() {
            for child in self.list(path)? {
                bytes += self.usage(&child)?;
            }
        }
        Ok(bytes)
    }
}

/// Removes a directory, children first. The walk stops at a mount, since its content is user data. The device number
/// does not show every mount: a volume may be a directory of the file system that the node's directory tree is on.
fn remove_dir_all(path: &Path) -> io::Result<()> {
    refuse_mount(path)?;
    for entry in fs::read_dir(path)? {
        let child = entry?.path();
        if fs::symlink_metadata(&child)?.is_dir() {
            remove_dir_all(&child)?;
        } else {
            // A file that is a mount point cannot be removed.
            fs::remove_file(&child)?;
        }
    }
    fs::remove_dir(path)
}

/// Fails for a mount point. Requires Linux 5.8 (`STATX_ATTR_MOUNT_ROOT`), as the driver does.
fn refuse_mount(path: &Path) -> io::Result<()> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, StatxFlags::TYPE)?;
    if !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("{} is a mount", path.display())))
}

fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The fifth field of a line of mountinfo, its octal escapes undone (proc_pid_mountinfo(5)).
fn mount_point(line: &str) -> Option<PathBuf> {
    let field = line.split(' ').nth(4)?;
    let unescaped = ["\\040 ", "\\011\t", "\\012\n", "\\134\\"]
        .iter()
        .fold(field.to_owned(), |text, pair| text.replace(&pair[..4], &pair[4..]));
    Some(PathBuf::from(unescaped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_unescaped() {
        let line = r"36 35 98:0 /mnt1 /mnt/with\040space rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_point(line), Some(PathBuf::from("/mnt/with space")));
        assert!(RealHost.mount_points().unwrap().contains(Path::new("/proc")));
    }

    #[test]
    fn absent_is_removed_already_and_full_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        RealHost.make_dir(&dir).unwrap();
        RealHost.make_dir(&dir).unwrap();
        RealHost.write(&dir.join("f.json"), b"x").unwrap();
        assert_eq!(RealHost.read(&dir.join("f.json")).unwrap(), Some(b"x".to_vec()));
        assert_eq!(RealHost.list(&dir).unwrap(), [dir.join("f.json")]);
        assert!(RealHost.remove(&dir).is_err());
        RealHost.remove_tree(&root.path().join("a")).unwrap();
        RealHost.remove_tree(&root.path().join("a")).unwrap();
        RealHost.remove(&dir).unwrap();
        assert_eq!(RealHost.read(&dir).unwrap(), None);
        assert_eq!(RealHost.list(&dir).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    #[ignore = "requires root"]
    fn a_tree_is_not_removed_through_a_bind_mount() {
        claimcheck_needs::require("root");
        let root = tempfile::tempdir().unwrap();
        let (volume, target) = (root.path().join("volume"), root.path().join("pod/mount"));
        for dir in [&volume, &target] {
            RealHost.make_dir(dir).unwrap();
        }
        fs::write(volume.join("data"), b"x").unwrap();
        mount(Some(&volume), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        for path in [root.path().join("pod"), target.clone()] {
            let error = RealHost.remove_tree(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
        }
        assert!(volume.join("data").exists(), "the volume's data was deleted");
        RealHost.unmount(&target).unwrap();
        RealHost.remove_tree(&root.path().join("pod")).unwrap();
        assert!(volume.join("data").exists());
    }

    #[test]
    fn usage_counts_what_is_on_disk() {
        let root = tempfile::tempdir().unwrap();
        let empty = RealHost.usage(root.path()).unwrap();
        fs::create_dir(root.path().join("d")).unwrap();
        fs::write(root.path().join("d/f"), vec![1; 1 << 20]).unwrap();
        fs::File::create(root.path().join("sparse")).unwrap().set_len(1 << 30).unwrap();
        let used = RealHost.usage(root.path()).unwrap() - empty;
        assert!((1 << 20..1 << 22).contains(&used), "{used}");
        assert_eq!(RealHost.usage(&root.path().join("none")).unwrap(), 0);
    }

    #[test]
    #[ignore = "requires root"]
    fn a_memory_volume_is_as_big_as_asked() {
        claimcheck_needs::require("root");
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        RealHost.mount_memory(&path, Some(1 << 20)).unwrap();
        RealHost.mount_memory(&path, Some(1 << 20)).unwrap();
        assert!(fs::write(path.join("f"), vec![1; 2 << 20]).is_err(), "more than fits");
        RealHost.unmount(&path).unwrap();
        RealHost.unmount(&path).unwrap();
        assert!(!RealHost.mount_points().unwrap().contains(&path));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }
}
