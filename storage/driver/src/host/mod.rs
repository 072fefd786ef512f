//! The interface to the machine: everything the driver does to the host goes through [`Host`].
//!
//! Methods come in two groups. **Effects** change the machine; each is one step that either happened or did
//! not, as far as the driver's recovery is concerned, so a test can stop the driver before every single one of
//! them ([`fault`]). **Observations** are read-only. Keeping the trait small keeps that enumeration complete:
//! an effect that is not a method here cannot be missed by the test, because it cannot exist.

mod copy;
pub mod fault;
mod freeze;
mod holder;
pub mod left;
mod loops;
mod real;

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub use holder::{LOOP_HOLDER_ENV, LoopHolder};
pub use real::RealHost;

use crate::{
    filesystem::{Found, FsType},
    mount_options::MountOptions,
};

/// Identity of a file or directory: two paths with the same identity are the same object, however they are
/// reached (bind mounts included).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// Device number as `stat` encodes it.
    pub device: u64,
    /// Inode number on that device.
    pub inode: u64,
}

/// The mount at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The identity of the mount's root: a directory or device node.
    pub root: FileId,
    /// Whether it is read-only.
    pub read_only: bool,
    /// The loop device of the mounted file system or of the mounted device node, if any.
    pub backing: Option<Backing>,
}

/// A loop device below a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// `N` of `/dev/loopN`.
    pub loop_number: u32,
    /// The device's backing file.
    pub file: FileId,
}

impl Backing {
    /// The loop device's node.
    pub fn device(&self) -> PathBuf {
        loops::path(self.loop_number)
    }
}

/// The file type at a path; symbolic links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A regular file of this many bytes.
    File {
        /// Its length.
        bytes: u64,
    },
    /// A block device.
    BlockDevice {
        /// Device number as `stat` encodes it.
        number: u64,
    },
    /// A symbolic link.
    Symlink,
    /// A socket, or another type that no volume has.
    Other,
}

/// The purpose for which a loop device is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopUse {
    /// For mounting: the kernel clears the device once it is no longer open, neither by the [`LoopDevice`] nor
    /// by a mount. So nothing has to be undone if the mount fails.
    Mount,
    /// For raw use: stays until [`Host::detach_loop`], since a bind mount of its node does not hold it open; or, if a
    /// [`LoopHolder`] holds it, until that ends.
    Raw {
        /// Whether the device is read-only. (The flags of a bind mount do not prevent writes to a device.)
        read_only: bool,
    },
}

/// A loop device attached for [`LoopUse::Raw`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLoop {
    /// The device node.
    pub path: PathBuf,
    /// Whether the device is read-only.
    pub read_only: bool,
}

/// Space and inodes of the file system at a path, in bytes and number of inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Size of the file system in bytes.
    pub total_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that an unprivileged user may still write.
    pub available_bytes: u64,
    /// Number of inodes.
    pub total_inodes: u64,
    /// Inodes in use.
    pub used_inodes: u64,
    /// Free inodes.
    pub available_inodes: u64,
}

/// The state of a file, or of a directory and everything in it, at a time: it stays the same unless it is
/// written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Time of the last change, since 1970. The kernel's clock for it has a granularity of a few milliseconds.
    pub newest: Duration,
    /// Differs after any change.
    pub sum: u64,
}

/// An attached loop device. One for [`LoopUse::Mount`] must exist until the mount is made.
#[derive(Debug)]
pub struct LoopDevice {
    /// The device node, for example `/dev/loop3`.
    pub path: PathBuf,
    /// Keeps the device attached; `None` on hosts without real devices.
    pub hold: Option<OwnedFd>,
}

/// The machine below the driver. All methods block; callers on a runtime use `spawn_blocking`.
///
/// Paths are absolute. Errors are the operating system's, unchanged: the caller adds the volume's id.
pub trait Host: Send + Sync {
    // Effects.

    /// Creates one directory with exactly this `mode`, regardless of the umask. Succeeds if it exists.
    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Creates or truncates a file to `size` bytes, without allocating blocks.
    fn make_sparse(&self, path: &Path, size: u64) -> io::Result<()>;
    /// Writes a whole file and flushes it to the disk. Not atomic: write a temporary file, then
    /// [`Host::rename`].
    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Renames, replacing `to` atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Succeeds if it does not exist.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory. Succeeds if it does not exist.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and everything in it without following symbolic links. Succeeds if it does not
    /// exist.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;
    /// Creates an empty file system in the regular file `image`. `NotFound` if the tool is not installed.
    fn make_filesystem(&self, image: &Path, fs: FsType) -> io::Result<()>;
    /// Creates an empty file with this `mode` less the umask. Succeeds if it exists.
    fn make_file(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Extends a file to at least `size` bytes, without allocating blocks.
    fn grow_file(&self, path: &Path, size: u64) -> io::Result<()>;
    /// Expands the unmounted file system in `image` to the size of the image. The tool for this, which may
    /// outlive this process, holds `hold` open and with it a lock. `NotFound` if the tool is not installed.
    fn grow_image(&self, image: &Path, fs: FsType, hold: &File) -> io::Result<()>;
    /// Expands the file system on `device`, mounted at `target`, to the size of the device. `NotFound` if the
    /// tool is not installed.
    fn grow_mounted(&self, device: &Path, target: &Path, fs: FsType) -> io::Result<()>;
    /// Attaches `image` to a free loop device.
    fn attach_loop(&self, image: &Path, expected: LoopUse) -> io::Result<LoopDevice>;
    /// Detaches a loop device, at once or with its last user. Succeeds if it is not attached.
    fn detach_loop(&self, device: &Path) -> io::Result<()>;
    /// Sets a loop device's size to that of its file.
    fn resize_loop(&self, device: &Path) -> io::Result<()>;
    /// Mounts the file system on `device`.
    fn mount(&self, device: &Path, target: &Path, fs: FsType, options: &MountOptions) -> io::Result<()>;
    /// Bind mounts the directory, or device node, `source` at `target`.
    fn bind(&self, source: &Path, target: &Path) -> io::Result<()>;
    /// Applies the per-mount flags of `options` to the bind mount at `target`.
    fn remount_bind(&self, target: &Path, options: &MountOptions) -> io::Result<()>;
    /// Unmounts the topmost mount at `target`.
    fn unmount(&self, target: &Path) -> io::Result<()>;
    /// Detaches a mount of the driver's own at `target` (MNT_DETACH), though it may be open: a tool that is
    /// being started has, for a moment, a copy of every descriptor that is open here, which keeps a mount busy.
    /// The mount ends with the last of them.
    fn unmount_lazy(&self, target: &Path) -> io::Result<()>;
    /// Copies a regular file with its holes, sharing blocks where the file system supports it, and flushes the
    /// copy. `TimedOut` if it does not finish before `until`.
    fn copy_file(&self, from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()>;
    /// Copies a directory and everything in it to `to`, which must not exist: contents as [`Host::copy_file`],
    /// and modes, owners, times, links and extended attributes.
    fn copy_tree(&self, from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()>;
    /// Flushes the kernel's pending writes to a file or device.
    fn flush(&self, path: &Path) -> io::Result<()>;
    /// Freezes the file system at `path`, consistent on its device; writers are blocked. It stays frozen until
    /// [`Host::thaw`], even if this process dies.
    fn freeze(&self, path: &Path) -> io::Result<()>;
    /// Thaws a frozen file system. Succeeds if it is not frozen.
    fn thaw(&self, path: &Path) -> io::Result<()>;

    // Observations.

    /// Identity of the file at `path`; `None` if it does not exist.
    fn file_id(&self, path: &Path) -> io::Result<Option<FileId>>;
    /// Type of the file at `path`; `None` if it does not exist.
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>>;
    /// `path` with all symbolic links resolved, as far as it exists.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;
    /// The mount with its root at `path`; `None` if nothing is mounted exactly there.
    fn mounted(&self, path: &Path) -> io::Result<Option<Mounted>>;
    /// What is mounted at `path` and has been deleted since: the kernel's names of the file below a loop device, and of
    /// the mount's root, each from the root of the mount in which it was opened.
    fn deleted_at(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// The content of a file; `None` if it does not exist.
    fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Names in a directory, unsorted; empty if it does not exist.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>>;
    /// The file system found in `image`; `None` if the image is blank.
    fn probe_filesystem(&self, image: &Path) -> io::Result<Option<Found>>;
    /// The loop devices attached to `image` for raw use, also if the image was deleted.
    fn raw_loops(&self, image: &Path) -> io::Result<Vec<RawLoop>>;
    /// The loop devices attached to `image` below mounts, also if the image was deleted.
    fn mounted_loops(&self, image: &Path) -> io::Result<Vec<PathBuf>>;
    /// The current state of a file or directory.
    fn stamp(&self, path: &Path) -> io::Result<Stamp>;
    /// Opens a file for reading; `None` if it does not exist.
    fn open_file(&self, path: &Path) -> io::Result<Option<File>>;
    /// Whether the process may expand a mounted file system.
    fn grows_mounted(&self, fs: FsType) -> io::Result<bool>;
    /// Space of the file system that `path` lies on.
    fn usage(&self, path: &Path) -> io::Result<Usage>;
    /// Checks whether loop devices can be attached at all, without attaching one.
    fn probe_loop(&self) -> io::Result<()>;
    /// Opens a directory for `flock`; `None` if it does not exist. A lock is not an effect: it ends with its
    /// holder.
    fn open_dir(&self, path: &Path) -> io::Result<Option<File>>;
}
