//! The one door to the machine: everything the driver does to the host goes through [`Host`].
//!
//! Methods come in two groups. **Effects** change the machine; each is one step that either happened or did
//! not, as far as the driver's recovery is concerned, so a test can stop the driver before every single one
//! of them ([`fault`]). **Observations** only look. Keeping the trait small keeps that enumeration honest:
//! an effect that is not a method here cannot be forgotten by the test, because it cannot exist.

pub mod fault;
mod real;

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

pub use real::RealHost;

use crate::{filesystem::FsType, mount_options::MountOptions};

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
    /// The directory one sees there.
    pub root: FileId,
    /// Whether writing there is refused.
    pub read_only: bool,
    /// If the file system lies on a loop device: the file behind that device.
    pub backing: Option<FileId>,
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

/// An attached loop device. The kernel clears it once nothing holds it open any more: neither this value nor
/// a mount. So it must live until the mount is made, and nothing has to be undone if it never is.
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
    /// Attaches `image` to a free loop device that clears itself after use.
    fn attach_loop(&self, image: &Path) -> io::Result<LoopDevice>;
    /// Mounts the file system on `device`.
    fn mount(&self, device: &Path, target: &Path, fs: FsType, options: &MountOptions) -> io::Result<()>;
    /// Makes the directory `source` appear at `target` too.
    fn bind(&self, source: &Path, target: &Path) -> io::Result<()>;
    /// Applies the per-mount flags of `options` to the bind mount at `target`.
    fn remount_bind(&self, target: &Path, options: &MountOptions) -> io::Result<()>;
    /// Takes away the topmost mount at `target`.
    fn unmount(&self, target: &Path) -> io::Result<()>;

    // Observations.

    /// Identity of what is at `path`; `None` if nothing is.
    fn file_id(&self, path: &Path) -> io::Result<Option<FileId>>;
    /// The mount whose root is `path`; `None` if nothing is mounted exactly there.
    fn mounted(&self, path: &Path) -> io::Result<Option<Mounted>>;
    /// The content of a file; `None` if there is none.
    fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Names in a directory, unsorted; a missing directory has none.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>>;
    /// The file system found in `image`; `None` if the image is blank.
    fn probe_filesystem(&self, image: &Path) -> io::Result<Option<FsType>>;
    /// Space of the file system that `path` lies on.
    fn usage(&self, path: &Path) -> io::Result<Usage>;
    /// Tries whether loop devices could be attached at all, without attaching one.
    fn probe_loop(&self) -> io::Result<()>;
    /// Opens a directory for `flock`; `None` if it does not exist. A lock is no effect: it ends with its
    /// holder.
    fn open_dir(&self, path: &Path) -> io::Result<Option<File>>;
}
