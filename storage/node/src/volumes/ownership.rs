//! `fsGroup`: changes the group of a volume's files to the pod's.
//! Upstream: `pkg/volume/volume_linux.go`; KEP-695 for the change policy.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, lchown},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

/// Permissions of owner and group, in a writable volume and in a read-only one.
const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
/// Directories are searchable, and pass their group on to new entries.
const EXECUTE: u32 = 0o110;
const SET_GID: u32 = 0o2000;

/// A pod's `fsGroup`, and its change policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsGroup {
    /// The group.
    pub gid: u32,
    /// `OnRootMismatch`: a volume with correct ownership of its root is not walked.
    pub on_root_mismatch: bool,
}

/// Changes the group of everything below `root`, and grants it read permission, and write permission where the
/// volume is not read-only. Links are not followed.
///
/// The root is changed last: it marks everything below it as done, which `OnRootMismatch` relies on after an
/// interruption.
///
/// A file that cannot be changed is logged and skipped, as upstream (`changeFilePermission`): a file system may not
/// support owners, or reserve changes to its server. `count` is the number of processed files.
///
/// # Errors
/// If a file or directory cannot be read.
pub fn apply(root: &Path, group: FsGroup, read_only: bool, count: &AtomicU64) -> io::Result<()> {
    // A root that cannot be followed is walked, as upstream.
    let matches = |root: fs::Metadata| is_applied(&root, group.gid, read_only);
    if group.on_root_mismatch && fs::metadata(root).is_ok_and(matches) {
        return Ok(());
    }
    walk(root, group.gid, if read_only { READ_ONLY } else { READ_WRITE }, count)
}

/// Upstream: `requiresPermissionChange`.
fn is_applied(root: &fs::Metadata, gid: u32, read_only: bool) -> bool {
    let expected = EXECUTE | SET_GID | if read_only { READ_ONLY } else { READ_WRITE };
    root.is_dir() && root.gid() == gid && root.mode() & expected == expected
}

fn walk(path: &Path, gid: u32, mask: u32, count: &AtomicU64) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            walk(&entry?.path(), gid, mask, count)?;
        }
    }
    count.fetch_add(1, Ordering::Relaxed);
    if let Err(error) = lchown(path, None, Some(gid)) {
        tracing::warn!(path = %path.display(), %error, "cannot change the group of a file for fsGroup");
    }
    if found.is_symlink() {
        return Ok(());
    }
    let mask = if found.is_dir() { mask | EXECUTE | SET_GID } else { mask };
    let mode = fs::Permissions::from_mode((found.mode() | mask) & 0o7777);
    if let Err(error) = fs::set_permissions(path, mode) {
        tracing::warn!(path = %path.display(), %error, "cannot change the mode of a file for fsGroup");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Applies the group to a volume that may be written; returns the number of processed files.
    fn applied(root: &Path, group: FsGroup) -> u64 {
        let count = AtomicU64::default();
        apply(root, group, false, &count).unwrap();
        count.into_inner()
    }

    /// A tree with a directory, a file and a link to a file outside; one's own group needs no privilege.
    fn tree() -> (tempfile::TempDir, u32) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("d")).unwrap();
        fs::write(root.path().join("d/f"), b"").unwrap();
        set(&root.path().join("d"), 0o700);
        set(&root.path().join("d/f"), 0o600);
        std::os::unix::fs::symlink("/nowhere", root.path().join("d/l")).unwrap();
        let gid = fs::metadata(root.path()).unwrap().gid();
        (root, gid)
    }

    #[test]
    fn the_whole_tree_is_handed_over() {
        for (read_only, directory, file) in [(false, 0o2770, 0o660), (true, 0o2750, 0o640)] {
            let (root, gid) = tree();
            let count = AtomicU64::default();
            apply(root.path(), FsGroup { gid, on_root_mismatch: false }, read_only, &count).unwrap();
            assert_eq!(count.into_inner(), 4, "root, directory, file and link");
            assert_eq!((mode(&root.path().join("d")), mode(&root.path().join("d/f"))), (directory, file));
            assert_eq!(mode(root.path()) & SET_GID, SET_GID);
        }
    }

    #[test]
    fn a_root_that_matches_spares_the_walk() {
        let (root, gid) = tree();
        let careful = FsGroup { gid, on_root_mismatch: true };
        assert_eq!(applied(root.path(), careful), 4);
        assert_eq!(mode(&root.path().join("d/f")), 0o660, "the root did not match");
        set(&root.path().join("d/f"), 0o600);
        assert_eq!(applied(root.path(), careful), 0);
        assert_eq!(mode(&root.path().join("d/f")), 0o600);
        assert_eq!(applied(root.path(), FsGroup { on_root_mismatch: false, ..careful }), 4);
        assert_eq!(mode(&root.path().join("d/f")), 0o660);
    }

    #[test]
    fn what_cannot_be_changed_is_left_as_it_is() {
        let (root, gid) = tree();
        // The kernel refuses every change of its mode, also to root.
        let fixed = Path::new("/proc/self/status");
        assert!(fs::set_permissions(fixed, fs::Permissions::from_mode(0o660)).is_err());
        assert_eq!(applied(fixed, FsGroup { gid, on_root_mismatch: false }), 1);
        let dangling = root.path().join("d/l");
        assert_eq!(applied(&dangling, FsGroup { gid, on_root_mismatch: true }), 1);
        let missing = root.path().join("none");
        let group = FsGroup { gid, on_root_mismatch: true };
        assert!(apply(&missing, group, false, &AtomicU64::default()).is_err(), "it cannot be read");
    }

    #[test]
    fn when_a_root_matches() {
        let (root, gid) = tree();
        // (mode of the root, read-only, whether it matches)
        let rows = [
            (0o2770, false, true),
            (0o2777, false, true),
            (0o0770, false, false),
            (0o2750, false, false),
            (0o2750, true, true),
            (0o2740, true, false),
        ];
        for (mode, read_only, expected) in rows {
            set(root.path(), mode);
            let found = fs::metadata(root.path()).unwrap();
            assert_eq!(is_applied(&found, gid, read_only), expected, "{mode:o}");
            assert!(!is_applied(&found, gid + 1, read_only), "another group");
        }
        assert!(!is_applied(&fs::metadata(root.path().join("d/f")).unwrap(), gid, false), "a file");
    }
}
