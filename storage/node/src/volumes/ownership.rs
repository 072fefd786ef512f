//! `fsGroup`: changes the group of a volume's files to the pod's.
//! Upstream: `pkg/volume/volume_linux.go`; KEP-695 for the change policy.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, lchown},
    path::Path,
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
/// an interruption.
///
/// # Errors
/// As the file system says; not being root, mostly.
pub fn apply(root: &Path, group: FsGroup, read_only: bool) -> io::Result<()> {
    if group.on_root_mismatch && is_applied(&fs::metadata(root)?, group.gid, read_only) {
        return Ok(());
    }
    walk(root, group.gid, if read_only { READ_ONLY } else { READ_WRITE })
}

/// Upstream: `requiresPermissionChange`.
fn is_applied(root: &fs::Metadata, gid: u32, read_only: bool) -> bool {
    let wanted = EXECUTE | SET_GID | if read_only { READ_ONLY } else { READ_WRITE };
    root.is_dir() && root.gid() == gid && root.mode() & wanted == wanted
}

fn walk(path: &Path, gid: u32, mask: u32) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            walk(&entry?.path(), gid, mask)?;
        }
    }
    lchown(path, None, Some(gid))?;
    if found.is_symlink() {
        return Ok(());
    }
    let mask = if found.is_dir() { mask | EXECUTE | SET_GID } else { mask };
    fs::set_permissions(path, fs::Permissions::from_mode((found.mode() | mask) & 0o7777))
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
            apply(root.path(), FsGroup { gid, on_root_mismatch: false }, read_only).unwrap();
            assert_eq!((mode(&root.path().join("d")), mode(&root.path().join("d/f"))), (directory, file));
            assert_eq!(mode(root.path()) & SET_GID, SET_GID);
        }
    }

    #[test]
    fn a_root_that_matches_spares_the_walk() {
        let (root, gid) = tree();
        let careful = FsGroup { gid, on_root_mismatch: true };
        apply(root.path(), careful, false).unwrap();
        assert_eq!(mode(&root.path().join("d/f")), 0o660, "the root did not match");
        set(&root.path().join("d/f"), 0o600);
        apply(root.path(), careful, false).unwrap();
        assert_eq!(mode(&root.path().join("d/f")), 0o600);
        apply(root.path(), FsGroup { on_root_mismatch: false, ..careful }, false).unwrap();
        assert_eq!(mode(&root.path().join("d/f")), 0o660);
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
