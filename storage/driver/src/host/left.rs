//! Loop devices that outlived whoever attached them, for those who know that nobody wants them any more.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use super::{FileId, loops};

/// An attached loop device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftLoop {
    /// Its node.
    pub path: PathBuf,
    /// What the kernel calls the file behind it: the name in a mount namespace that may be gone.
    pub file: PathBuf,
    /// Which file that is.
    pub id: FileId,
}

/// The devices whose file the kernel calls something below `directory`. Those of others are not opened.
///
/// # Errors
/// `/sys` or a device cannot be read; the latter needs root.
pub fn below(directory: &Path) -> io::Result<Vec<LeftLoop>> {
    let mut found = Vec::new();
    for (number, file) in loops::backing_files()? {
        if file.starts_with(directory) {
            let path = loops::path(number);
            let status = loops::status(&loops::open(&path, number)?)?;
            // It may have been detached in between.
            found.extend(status.map(|status| LeftLoop { path, file, id: status.file }));
        }
    }
    Ok(found)
}

impl LeftLoop {
    /// Detaches it, unless it has another file by now.
    ///
    /// # Errors
    /// The device refuses, or cannot be opened.
    pub fn detach(&self) -> io::Result<()> {
        // Whoever else detaches what is left waits here, so that between the look and the deed nobody takes a
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
