//! Leaked loop devices, for callers that know that they are no longer in use.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use super::{FileId, loops};

/// An attached loop device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedLoop {
    /// Its device node.
    pub path: PathBuf,
    /// The kernel's name of the backing file: a path in a mount namespace that may no longer exist.
    pub file: PathBuf,
    /// The identity of the backing file.
    pub id: FileId,
}

/// The devices with a backing file below `directory`, by the kernel's name. Other devices are not opened.
///
/// # Errors
/// `/sys` or a device cannot be read; the latter needs root.
pub fn below(directory: &Path) -> io::Result<Vec<AttachedLoop>> {
    let mut found = Vec::new();
    for (number, file) in loops::backing_files()? {
        if file.starts_with(directory) {
            let path = loops::path(number);
            let status = loops::status_of(number)?;
            // It may have been detached in between.
            found.extend(status.map(|status| AttachedLoop { path, file, id: status.file }));
        }
    }
    Ok(found)
}

impl AttachedLoop {
    /// Detaches it, unless it has another backing file by now.
    ///
    /// # Errors
    /// The device is busy, or cannot be opened.
    pub fn detach(&self) -> io::Result<()> {
        // Other processes that detach leaked devices wait here, so that between check and detach none takes a
        // device that has just become free.
        let control = loops::open_control()?;
        flock(&control, FlockOperation::LockExclusive)?;
        let device = File::open(&self.path)?;
        match loops::status(&device)? {
            Some(status) if status.file == self.id => loops::clear(&device),
            _ => Ok(()),
        }
    }
}
