//! Writes a volume's files so that a reader sees all old ones or all new ones.
//!
//! ```text
//! volume/..2026_11_21_06_11_23.7/app/config   one directory per version
//! volume/..data -> ..2026_11_21_06_11_23.7     replaced by rename: the moment of change
//! volume/app    -> ..data/app                  what users see
//! ```
//!
//! Upstream: `pkg/volume/util/atomic_writer.go`.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::AtomicU64,
};

use super::Files;
use crate::volumes::ownership::{self, FsGroup};

/// The link to the current version, and its temporary name.
pub const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Updates the volume at `root` to exactly these files. Returns whether anything changed.
///
/// # Errors
/// As the file system returns them; then the old files stay.
pub fn write(root: &Path, files: &Files, group: Option<FsGroup>) -> io::Result<bool> {
    let old = match fs::read_link(root.join(DATA)) {
        Ok(version) => Some(root.join(version)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let shown: BTreeSet<&str> = files.keys().filter_map(|path| path.split('/').next()).collect();
    let changed = match &old {
        Some(old) => !holds(old, files)?,
        None => true,
    };
    if changed {
        let version = make_version(root, files, group)?;
        let name = version.file_name().unwrap_or_default();
        forget(&root.join(NEW_DATA))?;
        symlink(name, root.join(NEW_DATA))?;
        fs::rename(root.join(NEW_DATA), root.join(DATA))?;
    }
    // Also without a change: the last writer may have been interrupted here.
    for name in &shown {
        if fs::symlink_metadata(root.join(name)).is_err() {
            symlink(Path::new(DATA).join(name), root.join(name))?;
        }
    }
    let current = fs::read_link(root.join(DATA))?;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if !shown.contains(&*text) && text != DATA && name != current.as_os_str() {
            forget(&entry.path())?;
        }
    }
    Ok(changed)
}

/// Whether a version has exactly these files.
fn holds(version: &Path, files: &Files) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    let mut pending = vec![version.to_owned()];
    while let Some(directory) = pending.pop() {
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            } else {
                found.insert(entry.path());
            }
        }
    }
    for (path, file) in files {
        let path = version.join(path);
        if !found.remove(&path) || fs::read(&path)? != file.data {
            return Ok(false);
        }
        // The group's rights are added to the file's own.
        if fs::metadata(&path)?.permissions().mode() & file.mode != file.mode {
            return Ok(false);
        }
    }
    Ok(found.is_empty())
}

/// Writes a new version that is not visible yet.
fn make_version(root: &Path, files: &Files, group: Option<FsGroup>) -> io::Result<PathBuf> {
    let version = new_directory(root)?;
    for (path, file) in files {
        let path = version.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.data)?;
        // Past the umask.
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    }
    if let Some(group) = group {
        // A new version never matches, so the policy does not matter.
        let group = FsGroup { on_root_mismatch: false, ..group };
        ownership::apply(&version, group, true, &AtomicU64::default())?;
    }
    Ok(version)
}

fn new_directory(root: &Path) -> io::Result<PathBuf> {
    let time = jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S").to_string();
    let mut number = 0_u32;
    loop {
        let path = root.join(format!("..{time}.{number}"));
        match fs::create_dir(&path) {
            Ok(()) => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Removes a link, a file or a whole version; succeeds if it does not exist.
fn forget(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::content::payload::File;

    fn files(texts: &[(&str, &str)]) -> Files {
        let file = |text: &str| File { data: text.as_bytes().to_vec(), mode: 0o640 };
        texts.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect()
    }

    /// All names in the volume except the versions.
    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with("..2"))
            .collect();
        names.sort();
        names
    }

    fn versions(root: &Path) -> usize {
        fs::read_dir(root).unwrap().count() - names(root).len()
    }

    #[test]
    fn the_layout_is_upstreams() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert!(write(root, &files(&[("a", "1"), ("d/b", "2")]), None).unwrap());
        assert_eq!(names(root), ["..data", "a", "d"]);
        assert_eq!(fs::read_link(root.join("d")).unwrap(), Path::new("..data/d"));
        assert_eq!(fs::read(root.join("d/b")).unwrap(), b"2");
        assert_eq!(fs::metadata(root.join("a")).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_change_replaces_everything_at_once() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, &files(&[("a", "1"), ("gone/b", "2")]), None).unwrap();
        let old = fs::read_link(root.join(DATA)).unwrap();
        // One who has the old file open reads on.
        let mut reader = fs::File::open(root.join("a")).unwrap();
        assert!(write(root, &files(&[("a", "3"), ("new", "4")]), None).unwrap());
        assert_eq!(names(root), ["..data", "a", "new"]);
        assert_eq!(fs::read(root.join("a")).unwrap(), b"3");
        assert_ne!(fs::read_link(root.join(DATA)).unwrap(), old);
        assert_eq!(versions(root), 1);
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "1");
    }

    #[test]
    fn nothing_new_is_not_written() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let content = files(&[("a", "1")]);
        write(root, &content, None).unwrap();
        let version = fs::read_link(root.join(DATA)).unwrap();
        assert!(!write(root, &content, None).unwrap());
        assert_eq!(fs::read_link(root.join(DATA)).unwrap(), version);
        // A write that was interrupted after the version was made, and before the name was shown.
        fs::create_dir(root.join("..2020_01_01_00_00_00.0")).unwrap();
        fs::remove_file(root.join("a")).unwrap();
        assert!(!write(root, &content, None).unwrap());
        assert_eq!((names(root), versions(root)), (vec!["..data".into(), "a".into()], 1));
        assert!(write(root, &Files::new(), None).unwrap());
        assert_eq!(names(root), ["..data"]);
    }

    #[test]
    fn a_group_may_read() {
        let root = tempfile::tempdir().unwrap();
        let gid = std::os::unix::fs::MetadataExt::gid(&fs::metadata(root.path()).unwrap());
        let token = [("t".to_owned(), File { data: vec![], mode: 0o600 })].into();
        let group = Some(FsGroup { gid, on_root_mismatch: true });
        write(root.path(), &token, group).unwrap();
        assert_eq!(fs::metadata(root.path().join("t")).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(!write(root.path(), &token, group).unwrap(), "the added rights are no change");
    }
}
