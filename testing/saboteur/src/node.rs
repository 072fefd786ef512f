//! Effects on the node: mounts, and the data of volumes where they are published.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, FileTypeExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use crate::row::{Harm, Leave, Mount, Owner};

/// The size of a piece that [`Harm::First4k`] clears.
const PIECE: u64 = 4 << 10;
/// The distance of the pieces that it clears on a device.
const APART: u64 = 1 << 20;

/// Changes the data of a volume at the path where it is published.
///
/// # Errors
/// The data cannot be changed: the volume is published read-only, or the other content is missing.
pub(crate) fn harm(path: &Path, harm: &Harm, content: Option<&Path>) -> io::Result<()> {
    if path.is_dir() { harm_files(path, harm, content) } else { harm_device(path, harm, content) }
}

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the other volume was never published")
}

fn harm_files(path: &Path, harm: &Harm, content: Option<&Path>) -> io::Result<()> {
    match harm {
        Harm::Wipe => empty(path),
        Harm::Keep(bytes) => keep(path, *bytes),
        Harm::KeepPercent(hundredths) => {
            let total: u64 = files(path)?.iter().map(|file| length(file)).sum();
            keep(path, total * hundredths / 100)
        }
        Harm::First4k => files(path)?.iter().try_for_each(|file| clear(file, 0, PIECE.min(length(file)))),
        Harm::Attributes => plain(path),
        Harm::User => disown(path),
        Harm::Swap | Harm::CopySource | Harm::Stale => {
            let content = content.filter(|content| content.is_dir()).ok_or_else(missing)?;
            empty(path)?;
            copy(&content.join("."), path)?;
            match harm {
                Harm::Stale => harm_files(path, &Harm::First4k, None),
                _ => Ok(()),
            }
        }
    }
}

/// Clears all files beyond so many bytes, in the order of their names.
fn keep(path: &Path, bytes: u64) -> io::Result<()> {
    let mut left = bytes;
    for file in files(path)? {
        let length = length(&file);
        let kept = left.min(length);
        left -= kept;
        clear(&file, kept, length - kept)?;
    }
    Ok(())
}

fn length(file: &Path) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}

/// All regular files, in the order of their paths.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() && entry.file_name() != "lost+found" => found.extend(files(&entry.path())?),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

/// Takes owners, modes and links from all that is in a directory.
fn plain(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        let kind = entry?;
        if kind.is_symlink() {
            let content = fs::read(&path)?;
            fs::remove_file(&path)?;
            fs::write(&path, content)?;
        }
        if kind.is_dir() {
            plain(&path)?;
        }
        chown(&path, Some(0), Some(0))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(if kind.is_dir() { 0o755 } else { 0o644 }))?;
    }
    Ok(())
}

/// Makes root the user of all that is in a directory but links.
fn disown(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if !kind.is_symlink() {
            chown(entry.path(), Some(0), None)?;
        }
        if kind.is_dir() {
            disown(&entry.path())?;
        }
    }
    Ok(())
}

fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()? {
            _ if entry.file_name() == "lost+found" => {}
            kind if kind.is_dir() => fs::remove_dir_all(entry.path())?,
            _ => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Overwrites a part of a file or device with zeros.
fn clear(path: &Path, from: u64, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let zeros = vec![0; 1 << 20];
    let mut done = 0;
    while done < bytes {
        let part = (bytes - done).min(zeros.len() as u64);
        file.write_all_at(&zeros[..usize::try_from(part).unwrap_or(zeros.len())], from + done)?;
        done += part;
    }
    file.sync_all()
}

fn harm_device(path: &Path, harm: &Harm, content: Option<&Path>) -> io::Result<()> {
    let size = File::open(path)?.seek(SeekFrom::End(0))?;
    match harm {
        Harm::Wipe => clear(path, 0, size),
        Harm::Keep(bytes) => clear(path, *bytes, size.saturating_sub(*bytes)),
        Harm::KeepPercent(hundredths) => {
            let kept = size * hundredths / 100;
            clear(path, kept, size - kept)
        }
        Harm::First4k => (0..size / APART).try_for_each(|piece| clear(path, piece * APART, PIECE)),
        Harm::Attributes | Harm::User => Ok(()),
        Harm::Swap | Harm::CopySource | Harm::Stale => {
            let mut content = File::open(content.filter(|content| content.is_file()).ok_or_else(missing)?)?;
            let mut device = OpenOptions::new().write(true).open(path)?;
            // As far as it fits: the other volume may be larger.
            let fitting = &mut io::Read::take(&mut content, size);
            io::copy(fitting, &mut device)?;
            device.flush()?;
            device.sync_all()?;
            match harm {
                Harm::Stale => harm_device(path, &Harm::First4k, None),
                _ => Ok(()),
            }
        }
    }
}

/// Saves the content of a volume, which replaces what was saved before.
///
/// # Errors
/// It cannot be copied.
pub(crate) fn save(path: &Path, into: &Path) -> io::Result<()> {
    remove(into)?;
    into.parent().map(fs::create_dir_all).transpose()?;
    match path.is_dir() {
        true => {
            fs::create_dir_all(into)?;
            copy(&path.join("."), into)
        }
        false => {
            let mut source = File::open(path)?;
            io::copy(&mut source, &mut File::create(into)?).map(drop)
        }
    }
}

/// Removes what was saved.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove(saved: &Path) -> io::Result<()> {
    let removed = if saved.is_dir() { fs::remove_dir_all(saved) } else { fs::remove_file(saved) };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn copy(from: &Path, into: &Path) -> io::Result<()> {
    let output = Command::new("cp").arg("-a").arg(from).arg(into).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// Changes the mount at a path.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn change_mount(path: &Path, change: Mount, empty: &Path) -> io::Result<()> {
    match change {
        Mount::Drop => unmount(path, UnmountFlags::empty())?,
        Mount::Double => mount_bind(path, path)?,
        Mount::Empty => mount_bind(empty_like(path, empty)?, path)?,
        Mount::Writable => mount_remount(path, MountFlags::BIND, c"")?,
        Mount::Readonly => mount_remount(path, MountFlags::BIND | MountFlags::RDONLY, c"")?,
        Mount::SuperReadonly => mount_remount(path, MountFlags::RDONLY, c"")?,
    }
    Ok(())
}

/// An empty directory, or file, as that at the path.
fn empty_like(path: &Path, empty: &Path) -> io::Result<PathBuf> {
    let (folder, file) = (empty.join("directory"), empty.join("file"));
    fs::create_dir_all(&folder)?;
    if path.is_dir() {
        return Ok(folder);
    }
    File::create(&file)?;
    Ok(file)
}

/// Leaves something behind.
///
/// # Errors
/// It cannot be created.
pub(crate) fn leave(path: &Path, what: &Leave, empty: &Path) -> io::Result<()> {
    match what {
        Leave::Directory => fs::create_dir_all(path),
        Leave::File => File::create(path).map(drop),
        Leave::Nothing if path.is_dir() => fs::remove_dir(path),
        Leave::Nothing => fs::remove_file(path),
        Leave::NoParent => path.parent().map_or(Ok(()), fs::remove_dir),
        Leave::Descriptor => File::open("/").map(std::mem::forget),
        Leave::At(path) => {
            let path = Path::new(path);
            path.parent().map(fs::create_dir_all).transpose()?;
            fs::write(path, "left by the saboteur\n")
        }
        Leave::Mount => {
            fs::create_dir_all(path)?;
            change_mount(path, Mount::Empty, empty)
        }
        Leave::Loop => {
            fs::create_dir_all(empty)?;
            let image = empty.join("image");
            File::create(&image)?.set_len(1 << 20)?;
            let output = Command::new("losetup").args(["--find", "--show"]).arg(&image).output()?;
            match output.status.success() {
                true => Ok(()),
                false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
            }
        }
    }
}

/// Changes owner and mode.
///
/// # Errors
/// The kernel refuses, or the mode is no number.
pub(crate) fn own(path: &Path, owner: &Owner) -> io::Result<()> {
    if let Some(group) = owner.group {
        chown(path, None, Some(group))?;
    }
    let mode =
        owner.mode.as_ref().map(|mode| u32::from_str_radix(mode, 8).map_err(io::Error::other)).transpose()?;
    mode.map_or(Ok(()), |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
}

/// Whether a path is a device or directory with content that can be saved.
pub(crate) fn is_published(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.is_dir() || it.is_file() || it.file_type().is_block_device())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_lost_as_described() {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        let fresh = || {
            let _ = fs::remove_dir_all(&volume);
            fs::create_dir_all(volume.join("sub")).unwrap();
            fs::write(volume.join("a"), vec![1; 6000]).unwrap();
            fs::write(volume.join("sub/b"), vec![2; 6000]).unwrap();
        };
        let ones =
            |name: &str| fs::read(volume.join(name)).unwrap().iter().filter(|byte| **byte != 0).count();
        fresh();
        harm(&volume, &Harm::Keep(7000), None).unwrap();
        assert_eq!((ones("a"), ones("sub/b")), (6000, 1000));
        harm(&volume, &Harm::First4k, None).unwrap();
        assert_eq!((ones("a"), ones("sub/b")), (6000 - 4096, 0));
        fresh();
        harm(&volume, &Harm::KeepPercent(50), None).unwrap();
        assert_eq!((ones("a"), ones("sub/b")), (6000, 0));
        fresh();
        let saved = folder.path().join("contents/v");
        save(&volume, &saved).unwrap();
        harm(&volume, &Harm::Wipe, None).unwrap();
        assert_eq!(fs::read_dir(&volume).unwrap().count(), 0);
        assert!(harm(&volume, &Harm::Swap, None).is_err());
        harm(&volume, &Harm::Swap, Some(&saved)).unwrap();
        assert_eq!((ones("a"), ones("sub/b")), (6000, 6000));
        let device = folder.path().join("device");
        fs::write(&device, vec![3; 3 << 20]).unwrap();
        harm(&device, &Harm::Keep(1 << 20), None).unwrap();
        assert_eq!(fs::read(&device).unwrap().iter().filter(|byte| **byte == 3).count(), 1 << 20);
    }
}
