//! What the volume manager does to the host besides calling drivers, behind one small trait, so that
//! faults can be injected and nothing needs root in a test.
//!
//! The calls are short (a directory, a small file, a table of mounts), so they are made where they are
//! needed; the two that go over a whole volume, [`Host::apply_group`] and [`Host::remove_tree`], belong
//! on a blocking thread.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown},
    path::{Path, PathBuf},
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

    /// Removes a file or an empty directory.
    ///
    /// # Errors
    /// As the file system says; absent is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and all in it, but never crosses into a mount.
    ///
    /// # Errors
    /// As the file system says; absent is none; a mount below it is [`io::ErrorKind::ResourceBusy`].
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

    /// Hands a tree to a group: it owns everything, may read and write, and new files inherit it.
    /// Upstream: `SetVolumeOwnership` in `pkg/volume/volume_linux.go`.
    ///
    /// # Errors
    /// As the file system says; not being root, mostly.
    fn apply_group(&self, path: &Path, group: u32, read_only: bool) -> io::Result<()>;
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

    fn remove(&self, path: &Path) -> io::Result<()> {
        let Some(found) = absent_is_none(fs::symlink_metadata(path))? else { return Ok(()) };
        let removed = if found.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        absent_is_none(removed).map(|_| ())
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match absent_is_none(fs::symlink_metadata(path))? {
            None => Ok(()),
            Some(found) if !found.is_dir() => self.remove(path),
            Some(found) => remove_below(path, found.dev()),
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

    fn apply_group(&self, path: &Path, group: u32, read_only: bool) -> io::Result<()> {
        let found = fs::symlink_metadata(path)?;
        lchown(path, None, Some(group))?;
        if found.is_symlink() {
            return Ok(());
        }
        let wanted = match (read_only, found.is_dir()) {
            (false, true) => 0o2770,
            (false, false) => 0o660,
            (true, true) => 0o2550,
            (true, false) => 0o440,
        };
        let mode = found.mode() | wanted;
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))?;
        if found.is_dir() {
            for entry in fs::read_dir(path)? {
                self.apply_group(&entry?.path(), group, read_only)?;
            }
        }
        Ok(())
    }
}

/// Removes a directory that lies on `device`, children first. A child on another device is a mount: the
/// walk stops there, since what is in it is somebody's data.
fn remove_below(path: &Path, device: u64) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let child = entry?.path();
        let found = fs::symlink_metadata(&child)?;
        if found.dev() != device {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{} is a mount", child.display()),
            ));
        }
        if found.is_dir() { remove_below(&child, device)? } else { fs::remove_file(&child)? }
    }
    fs::remove_dir(path)
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
    fn a_group_gets_the_whole_tree() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("f");
        fs::write(&file, b"").unwrap();
        // One's own group needs no privilege.
        let own = fs::metadata(&file).unwrap().gid();
        RealHost.apply_group(root.path(), own, false).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o660, 0o660);
        assert_eq!(fs::metadata(root.path()).unwrap().mode() & 0o2770, 0o2770);
    }
}
