//! Freezing file systems: no safe wrapper exists for these requests, hence the `unsafe` code.

use std::{fs::File, io, os::fd::AsRawFd, path::Path};

use nix::libc;

/// `_IOWR('X', 119, int)` and `_IOWR('X', 120, int)` of linux/fs.h.
const FIFREEZE: libc::Ioctl = 0xC004_5877u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xC004_5878u32 as libc::Ioctl;

/// Flushes the file system at `path` and blocks its writers until [`thaw`].
pub(super) fn freeze(path: &Path) -> io::Result<()> {
    request(path, FIFREEZE)
}

/// Unblocks writers. Succeeds for a file system that is not frozen.
pub(super) fn thaw(path: &Path) -> io::Result<()> {
    match request(path, FITHAW) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        answer => answer,
    }
}

#[expect(unsafe_code, reason = "no safe wrapper offers FIFREEZE and FITHAW")]
fn request(path: &Path, request: libc::Ioctl) -> io::Result<()> {
    let directory = File::open(path)?;
    // SAFETY: both requests ignore their argument, and `directory` is open for the whole call.
    match unsafe { libc::ioctl(directory.as_raw_fd(), request, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
