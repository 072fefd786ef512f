//! Files that only their owner can read: what runs write contains the messages of drivers and clusters.
//!
//! The mode is 0600 whatever the umask is, and whatever mode a file had that existed before. Devices and pipes, which a
//! user may name instead of a file, keep their modes.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The mode of private files.
const FILE: u32 = 0o600;
/// The mode of private folders.
const FOLDER: u32 = 0o700;
/// The bit of folders like `/tmp`, which are shared on purpose.
const STICKY: u32 = 0o1000;

/// Creates a file, or empties the existing one.
///
/// # Errors
/// It cannot be opened, or belongs to another user.
pub fn create_private(path: &Path) -> io::Result<File> {
    let file = private(OpenOptions::new().write(true).create(true).truncate(false), path)?;
    // Only now, so that what is written next is never readable for others.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file to append to it, and creates it if it does not exist.
///
/// # Errors
/// As [`create_private`].
pub fn append_private(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().append(true).create(true), path)
}

/// Writes a file, in the place of its earlier content.
///
/// # Errors
/// As [`create_private`], or the content cannot be written.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    create_private(path)?.write_all(content)
}

/// Replaces a file atomically by renaming: who reads it gets the earlier or the new content.
///
/// # Errors
/// The folder is not writable, or the content cannot be written.
pub fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let part = part(path);
    // One that a killed process left may have any mode, or be a link.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private(OpenOptions::new().write(true).create_new(true), &part)?;
    let replaced = file.write_all(content).and_then(|()| fs::rename(&part, path));
    if replaced.is_err() {
        // Its path is in no error message; the error that prevented it is the one to report.
        let _ = fs::remove_file(&part);
    }
    replaced
}

/// Makes an existing folder accessible to its owner only, if it belongs to this user and is not shared on purpose, as
/// `/tmp` is.
///
/// # Errors
/// It cannot be examined or changed.
pub fn make_folder_private(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & STICKY != 0 || mode & 0o777 == FOLDER {
        return Ok(());
    }
    match fs::set_permissions(path, Permissions::from_mode(FOLDER)) {
        // The folder of another user, who decides about it. Its files are private by themselves.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        changed => changed,
    }
}

/// Makes all files and folders below a folder private, for programs that write with modes of their own choice.
///
/// # Errors
/// One of them cannot be examined or changed.
pub fn make_tree_private(folder: &Path) -> io::Result<()> {
    make_folder_private(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            make_tree_private(&entry.path())?;
        } else if kind.is_file() {
            fs::set_permissions(entry.path(), Permissions::from_mode(FILE))?;
        }
    }
    Ok(())
}

fn private(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.mode(FILE).open(path)?;
    let found = file.metadata()?;
    // The mode above is that of a new file, without what the umask removes.
    if found.is_file() && found.permissions().mode() & 0o7777 != FILE {
        file.set_permissions(Permissions::from_mode(FILE))?;
    }
    Ok(file)
}

/// The hidden file next to a file that [`replace_private`] writes.
fn part(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".part");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    /// A world-readable file.
    fn earlier(path: &Path) {
        fs::write(path, "earlier and longer").unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }

    #[test]
    fn files_are_private_whatever_existed_before() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        for path in [&new, &old] {
            earlier(&old);
            write_private(path, b"written").unwrap();
            assert_eq!((mode(path), text(path).as_str()), (FILE, "written"));

            earlier(path);
            append_private(path).unwrap().write_all(b", appended").unwrap();
            assert_eq!((mode(path), text(path).as_str()), (FILE, "earlier and longer, appended"));

            earlier(path);
            replace_private(path, b"replaced").unwrap();
            assert_eq!((mode(path), text(path).as_str()), (FILE, "replaced"));
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_replacement_follows_no_link_and_leaves_no_part() {
        let folder = tempfile::tempdir().unwrap();
        let (page, other) = (folder.path().join("page"), folder.path().join("other"));
        fs::write(&other, "of another").unwrap();
        symlink(&other, part(&page)).unwrap();
        replace_private(&page, b"new").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "of another");
        assert!(!part(&page).exists());
        fs::create_dir(folder.path().join("taken")).unwrap();
        replace_private(&folder.path().join("taken"), b"new").unwrap_err();
        assert!(!part(&folder.path().join("taken")).exists());
    }

    #[test]
    fn folders_are_private_except_shared_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (inner, shared) = (folder.path().join("inner"), folder.path().join("shared"));
        for (path, mode) in [(&inner, 0o755), (&shared, 0o1777)] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        earlier(&inner.join("file"));
        make_tree_private(folder.path()).unwrap();
        assert_eq!((mode(&inner), mode(&inner.join("file")), mode(&shared)), (FOLDER, FILE, 0o1777));
    }

    #[test]
    fn devices_keep_their_mode() {
        let before = mode(Path::new("/dev/null"));
        write_private(Path::new("/dev/null"), b"nowhere").unwrap();
        append_private(Path::new("/dev/null")).unwrap();
        assert_eq!(mode(Path::new("/dev/null")), before);
    }
}
