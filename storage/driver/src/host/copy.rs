//! Exact copies of files and directories: contents with their holes, modes, owners, times, links and extended
//! attributes.
//!
//! The source belongs to pods, which may change it meanwhile. So everything is opened relative to an open
//! directory and no symbolic link is ever followed: a copy never leaves its directory. Files that disappear
//! during the copy are omitted; the caller decides whether that matters, with [`stamp`].

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    ffi::{CStr, CString},
    fs::{File, OpenOptions},
    hash::{Hash, Hasher},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, Gid, Mode, OFlags, RawMode, Stat, Timespec, Timestamps, Uid, XattrFlags,
        chownat, copy_file_range, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, futimens,
        ioctl_ficlone, linkat, mkdirat, mknodat, openat, readlinkat, statat, symlinkat, syncfs, utimensat,
    },
    io::Errno,
};

use super::Stamp;
use crate::extents;

/// Maximum depth of nested directories: each level holds two descriptors open.
const MAX_DEPTH: usize = 200;
/// Bytes copied between two checks of the deadline.
const PIECE: u64 = 64 << 20;
/// The maximum size of the names, and of a value, of extended attributes (`XATTR_LIST_MAX`).
const XATTR_MAX: usize = 1 << 16;

/// Copies one file and flushes the copy.
pub(super) fn file(from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()> {
    let source = File::open(from)?;
    let target = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to)?;
    content(&source, &target, until)?;
    target.sync_all()
}

/// Copies a directory to `to`, which must not exist, and flushes the copy.
pub(super) fn tree(from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()> {
    let source = rustix::fs::open(from, DIRECTORY, Mode::empty())?;
    rustix::fs::mkdir(to, Mode::RWXU)?;
    let target = rustix::fs::open(to, DIRECTORY, Mode::empty())?;
    let mut copy = Tree { until, links: HashMap::new(), root: target.try_clone()? };
    copy.entries(source.as_fd(), target.as_fd(), &mut Vec::new())?;
    attributes(source.as_fd(), target.as_fd(), &fstat(&source)?)?;
    Ok(syncfs(&target)?)
}

/// Stamps a file, or a directory and everything in it.
pub(super) fn stamp(path: &Path) -> io::Result<Stamp> {
    let mut stamp = Stamp::default();
    let start = statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    note(&mut stamp, &start);
    if kind(&start) == FileType::Directory {
        note_entries(&mut stamp, rustix::fs::open(path, DIRECTORY, Mode::empty())?.as_fd(), 0)?;
    }
    Ok(stamp)
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Non-blocking, since a file may have been replaced by a pipe in the meantime.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const WRITE_NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode as RawMode)
}

/// Shares the blocks where the file system supports it, and otherwise copies all ranges with data.
fn content(source: &File, target: &File, until: Option<Instant>) -> io::Result<()> {
    if ioctl_ficlone(target, source).is_ok() {
        return Ok(());
    }
    target.set_len(source.metadata()?.len())?;
    for range in extents::data(source, 0) {
        let range = range?;
        let mut at = range.start;
        while at < range.end {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (mut from, mut to) = (at, at);
            let length = usize::try_from((range.end - at).min(PIECE)).expect("a piece fits into memory");
            match copy_file_range(source, Some(&mut from), target, Some(&mut to), length) {
                // Cut off meanwhile.
                Ok(0) => break,
                Ok(copied) => at += copied as u64,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

struct Tree {
    until: Option<Instant>,
    /// The first path of a file with several hard links, relative to the root of the copy.
    links: HashMap<(u64, u64), CString>,
    root: OwnedFd,
}

impl Tree {
    /// Copies the entries of a directory; `place` is its path relative to the root.
    fn entries(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, place: &mut Vec<u8>) -> io::Result<()> {
        too_deep(place.iter().filter(|byte| **byte == b'/').count())?;
        for name in names(from)? {
            let length = place.len();
            place.extend_from_slice(name.to_bytes());
            match self.entry(from, to, &name, place) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
            place.truncate(length);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        place: &mut Vec<u8>,
    ) -> io::Result<()> {
        let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = kind(&stat);
        if kind == FileType::Directory {
            let source = openat(from, name, DIRECTORY, Mode::empty())?;
            mkdirat(to, name, Mode::RWXU)?;
            let target = openat(to, name, DIRECTORY, Mode::empty())?;
            place.push(b'/');
            self.entries(source.as_fd(), target.as_fd(), place)?;
            return attributes(source.as_fd(), target.as_fd(), &stat);
        }
        if stat.st_nlink > 1 {
            let first = self.links.get(&(stat.st_dev, stat.st_ino));
            if let Some(first) = first {
                return Ok(linkat(&self.root, first, to, name, AtFlags::empty())?);
            }
        }
        match kind {
            FileType::RegularFile => {
                let source = File::from(openat(from, name, READ, Mode::empty())?);
                if !source.metadata()?.is_file() {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let target = File::from(openat(to, name, WRITE_NEW, Mode::RUSR | Mode::WUSR)?);
                content(&source, &target, self.until)?;
                attributes(source.as_fd(), target.as_fd(), &stat)?;
            }
            FileType::Symlink => {
                symlinkat(readlinkat(from, name, Vec::new())?, to, name)?;
                attributes_at(to, name, &stat)?;
            }
            kind => {
                mknodat(to, name, kind, Mode::from_raw_mode(stat.st_mode as RawMode), stat.st_rdev)?;
                attributes_at(to, name, &stat)?;
            }
        }
        if stat.st_nlink > 1 {
            let place = CString::new(place.as_slice()).expect("names of files have no zero bytes");
            self.links.insert((stat.st_dev, stat.st_ino), place);
        }
        Ok(())
    }
}

fn too_deep(depth: usize) -> io::Result<()> {
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    Err(io::Error::other(format!("its directories are nested more than {MAX_DEPTH} deep")))
}

/// All names in a directory except `.` and `..`, read in advance, so that no descriptor is kept open.
fn names(directory: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// Owner first, since changing it clears bits of the mode; times last.
fn attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>, stat: &Stat) -> io::Result<()> {
    let new = fstat(to)?;
    if (new.st_uid, new.st_gid) != (stat.st_uid, stat.st_gid) {
        fchown(to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    }
    fchmod(to, Mode::from_raw_mode(stat.st_mode as RawMode))?;
    extended_attributes(from, to)?;
    Ok(futimens(to, &times(stat))?)
}

fn attributes_at(to: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let new = statat(to, name, flags)?;
    if (new.st_uid, new.st_gid) != (stat.st_uid, stat.st_gid) {
        chownat(to, name, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)), flags)?;
    }
    if kind(stat) != FileType::Symlink {
        // Made by this process a moment ago in a directory that no other process can enter.
        rustix::fs::chmodat(to, name, Mode::from_raw_mode(stat.st_mode as RawMode), AtFlags::empty())?;
    }
    Ok(utimensat(to, name, &times(stat), flags)?)
}

/// The attributes that may be set here: a user namespace also shows some that only the machine's root may set.
fn extended_attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let mut list = vec![0; XATTR_MAX];
    let length = match flistxattr(from, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        length => length?,
    };
    let mut value = Vec::new();
    for name in list[..length].split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        value.resize(XATTR_MAX, 0);
        let length = match fgetxattr(from, name, &mut value[..]) {
            Err(Errno::NODATA) => continue,
            length => length?,
        };
        match fsetxattr(to, name, &value[..length], XattrFlags::empty()) {
            Ok(()) | Err(Errno::PERM | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn times(stat: &Stat) -> Timestamps {
    let at = |seconds: i64, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.try_into().unwrap_or_default(),
    };
    Timestamps {
        last_access: at(stat.st_atime, stat.st_atime_nsec),
        last_modification: at(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// The change time is more reliable than the modification time: it cannot be set.
fn note(stamp: &mut Stamp, stat: &Stat) {
    let mut hasher = DefaultHasher::new();
    (stat.st_ino, stat.st_size, stat.st_ctime, stat.st_ctime_nsec).hash(&mut hasher);
    stamp.sum = stamp.sum.wrapping_add(hasher.finish());
    let seconds = stat.st_ctime.try_into().unwrap_or_default();
    let changed = Duration::new(seconds, stat.st_ctime_nsec.try_into().unwrap_or_default());
    stamp.newest = stamp.newest.max(changed);
}

fn note_entries(stamp: &mut Stamp, directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
    too_deep(depth)?;
    for name in names(directory)? {
        let stat = match statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            // That it is gone shows in the directory's own time.
            Err(Errno::NOENT) => continue,
            stat => stat?,
        };
        note(stamp, &stat);
        if kind(&stat) == FileType::Directory {
            match openat(directory, &name, DIRECTORY, Mode::empty()) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                below => note_entries(stamp, below?.as_fd(), depth + 1)?,
            }
        }
    }
    Ok(())
}
