//! The one door to the machine: everything the driver does to the host goes through [`Host`].
//!
//! Methods come in two groups. **Effects** change the machine; each is one step that either happened or did
//! not, as far as the driver's recovery is concerned, so a test can stop the driver before every single one
//! of them ([`fault`]). **Observations** only look. Keeping the trait small keeps that enumeration honest:
//! an effect that is not a method here cannot be forgotten by the test, because it cannot exist.

mod copy;
pub mod fault;
mod freeze;
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

pub use real::RealHost;

use crate::{
    filesystem::{Found, FsType},
    mount_options::MountOptions,
};

/// Identity of a file or directory: two paths with the same one are the same object, however they were
/// reached (bind mounts included).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// Device number as `stat` encodes it.
    pub device: u64,
    /// Inode number on that device.
    pub inode: u64,
}

/// What stands mounted at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The directory, or device node, one sees there.
    pub root: FileId,
    /// Whether writing there is refused.
    pub read_only: bool,
    /// If the file system lies on a loop device, or if what is mounted is the node of one.
    pub backing: Option<Backing>,
}

/// A loop device below a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// `N` of `/dev/loopN`.
    pub loop_number: u32,
    /// The file behind the device.
    pub file: FileId,
}

impl Backing {
    /// The node of the loop device.
    pub fn device(&self) -> PathBuf {
        loops::path(self.loop_number)
    }
}

/// What kind of thing a path names, without following a symbolic link.
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
    /// A socket, or other thing that no volume is.
    Other,
}

/// What a loop device is attached for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopUse {
    /// To be mounted: the kernel clears the device once nothing holds it open any more, neither the
    /// [`LoopDevice`] nor a mount. So nothing has to be undone if the mount is never made.
    Mount,
    /// To be used as it is: stays until [`Host::detach_loop`], since a bind mount of its node does not hold
    /// it open.
    Raw {
        /// Whether the kernel refuses writing. (The flags of a bind mount do not keep anybody from writing
        /// to a device.)
        read_only: bool,
    },
}

/// A loop device attached for [`LoopUse::Raw`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLoop {
    /// The device node.
    pub path: PathBuf,
    /// Whether the kernel refuses writing.
    pub read_only: bool,
}

/// Space and inodes of the file system at a path, in bytes and pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Size of the file system in bytes.
    pub total_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that an ordinary user may still write.
    pub available_bytes: u64,
    /// Number of inodes.
    pub total_inodes: u64,
    /// Inodes in use.
    pub used_inodes: u64,
    /// Free inodes.
    pub available_inodes: u64,
}

/// What a file, or a directory and everything in it, looked like at a time: as long as nobody writes it stays
/// the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When something changed last, since 1970. The kernel's clock for it goes in ticks of a few milliseconds.
    pub newest: Duration,
    /// Changes when anything does.
    pub sum: u64,
}

/// An attached loop device. One for [`LoopUse::Mount`] must live until the mount is made.
#[derive(Debug)]
pub struct LoopDevice {
    /// The device node, for example `/dev/loop3`.
    pub path: PathBuf,
    /// What keeps the device attached; `None` on hosts without real devices.
    pub hold: Option<OwnedFd>,
}

/// The machine below the driver. All methods block; callers on a runtime go through `spawn_blocking`.
///
/// Paths are absolute. Errors are the operating system's, untouched: the caller knows for which volume it
/// acted and says so.
pub trait Host: Send + Sync {
    // Effects.

    /// Makes one directory with exactly this `mode`, whatever the umask says. Existing already is success.
    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes or truncates a file of `size` bytes that takes no space yet.
    fn make_sparse(&self, path: &Path, size: u64) -> io::Result<()>;
    /// Writes a whole file and flushes it to the disk. Not atomic: write beside, then [`Host::rename`].
    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Renames, replacing what stood at `to`, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. A missing one is success.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory. A missing one is success.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and everything in it without following symbolic links. A missing one is success.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;
    /// Makes an empty file system in the regular file `image`. `NotFound` says that the tool is missing.
    fn make_filesystem(&self, image: &Path, fs: FsType) -> io::Result<()>;
    /// Makes an empty file with this `mode` less the umask. Existing already is success.
    fn make_file(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes a file at least `size` bytes long; what is added takes no space yet.
    fn grow_file(&self, path: &Path, size: u64) -> io::Result<()>;
    /// Makes the unmounted file system in `image` as large as the image. The tool that does it, which may
    /// outlive this process, holds `hold` open: with it a lock. `NotFound` says that the tool is missing.
    fn grow_image(&self, image: &Path, fs: FsType, hold: &File) -> io::Result<()>;
    /// Makes the file system on `device`, mounted at `target`, as large as the device. `NotFound` says that
    /// the tool is missing.
    fn grow_mounted(&self, device: &Path, target: &Path, fs: FsType) -> io::Result<()>;
    /// Attaches `image` to a free loop device.
    fn attach_loop(&self, image: &Path, wanted: LoopUse) -> io::Result<LoopDevice>;
    /// Detaches a loop device, at once or with its last user. One that is not attached is success.
    fn detach_loop(&self, device: &Path) -> io::Result<()>;
    /// Makes a loop device as large as its file.
    fn resize_loop(&self, device: &Path) -> io::Result<()>;
    /// Mounts the file system on `device`.
    fn mount(&self, device: &Path, target: &Path, fs: FsType, options: &MountOptions) -> io::Result<()>;
    /// Makes the directory, or device node, `source` appear at `target` too.
    fn bind(&self, source: &Path, target: &Path) -> io::Result<()>;
    /// Applies the per-mount flags of `options` to the bind mount at `target`.
    fn remount_bind(&self, target: &Path, options: &MountOptions) -> io::Result<()>;
    /// Takes away the topmost mount at `target`.
    fn unmount(&self, target: &Path) -> io::Result<()>;
    /// Takes away a mount of our own at `target`, though somebody has it open: a tool that is being started has, for
    /// a moment, a copy of every file that is open here, and a mount with one is busy. It ends with the last of them.
    fn let_go(&self, target: &Path) -> io::Result<()>;
    /// Copies a regular file with its holes, sharing blocks where the file system can, and flushes the copy.
    /// `TimedOut` if that takes until `until`.
    fn copy_file(&self, from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()>;
    /// Copies a directory and everything in it to `to`, which must not exist: contents as
    /// [`Host::copy_file`] does, and modes, owners, times, links and extended attributes.
    fn copy_tree(&self, from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()>;
    /// Writes out what the kernel holds back of what was written to a file or device.
    fn flush(&self, path: &Path) -> io::Result<()>;
    /// Makes the file system at `path` stand still, complete on its device; who writes to it waits. It stays
    /// so until [`Host::thaw`], even if this process dies.
    fn freeze(&self, path: &Path) -> io::Result<()>;
    /// Lets a frozen file system go on. One that is not frozen is success.
    fn thaw(&self, path: &Path) -> io::Result<()>;

    // Observations.

    /// Identity of what is at `path`; `None` if nothing is.
    fn file_id(&self, path: &Path) -> io::Result<Option<FileId>>;
    /// What is at `path`; `None` if nothing is.
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>>;
    /// Where `path` leads once all symbolic links are followed, as far as it exists.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;
    /// The mount whose root is `path`; `None` if nothing is mounted exactly there.
    fn mounted(&self, path: &Path) -> io::Result<Option<Mounted>>;
    /// The content of a file; `None` if there is none.
    fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Names in a directory, unsorted; a missing directory has none.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>>;
    /// The file system found in `image`; `None` if the image is blank.
    fn probe_filesystem(&self, image: &Path) -> io::Result<Option<Found>>;
    /// The loop devices attached to `image` for raw use.
    fn raw_loops(&self, image: &Path) -> io::Result<Vec<RawLoop>>;
    /// The loop devices attached to `image` below mounts.
    fn mounted_loops(&self, image: &Path) -> io::Result<Vec<PathBuf>>;
    /// What a file or directory looks like now.
    fn stamp(&self, path: &Path) -> io::Result<Stamp>;
    /// Opens a file to read it; `None` if there is none.
    fn open_file(&self, path: &Path) -> io::Result<Option<File>>;
    /// Whether the process may make a mounted file system grow.
    fn grows_mounted(&self, fs: FsType) -> io::Result<bool>;
    /// Space of the file system that `path` lies on.
    fn usage(&self, path: &Path) -> io::Result<Usage>;
    /// Tries whether loop devices could be attached at all, without attaching one.
    fn probe_loop(&self) -> io::Result<()>;
    /// Opens a directory for `flock`; `None` if it does not exist. A lock is no effect: it ends with its
    /// holder.
    fn open_dir(&self, path: &Path) -> io::Result<Option<File>>;
}
