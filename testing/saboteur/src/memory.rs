//! The memory that all processes of a driver share, and that survives them: a file with one entry a line.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{FlockOperation, flock};

use crate::world::{Entry, World};

/// The memory of one process.
#[derive(Debug)]
pub(crate) struct Memory {
    path: PathBuf,
    known: Mutex<Known>,
}

/// What this process has read.
#[derive(Debug)]
struct Known {
    file: File,
    read: u64,
    world: World,
}

impl Memory {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let known = Mutex::new(Known { file, read: 0, world: World::default() });
        Ok(Self { path: path.to_owned(), known })
    }

    /// The folder of the contents of volumes.
    pub fn contents(&self) -> PathBuf {
        self.path.with_extension("contents")
    }

    /// What has happened, now that other processes may have added to it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn look<T>(&self, look: impl FnOnce(&World) -> T) -> io::Result<T> {
        let mut known = self.locked()?;
        let seen = known.catch_up().map(|()| look(&known.world));
        flock(&known.file, FlockOperation::Unlock)?;
        seen
    }

    /// Adds entries.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&self, entries: &[Entry]) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut lines, entry)?;
            lines.push(b'\n');
        }
        let known = self.locked()?;
        let written = (&known.file).write_all(&lines);
        flock(&known.file, FlockOperation::Unlock)?;
        written
    }

    fn locked(&self) -> io::Result<MutexGuard<'_, Known>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        flock(&known.file, FlockOperation::LockExclusive)?;
        Ok(known)
    }
}

impl Known {
    fn catch_up(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut lines = BufReader::new(&self.file);
        let mut line = String::new();
        // A process that was killed while it wrote leaves half a line.
        while lines.read_line(&mut line)? > 0 && line.ends_with('\n') {
            self.read += line.len() as u64;
            if let Ok(entry) = serde_json::from_str(&line) {
                self.world.apply(entry);
            }
            line.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_what_they_know() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        let (one, other) = (Memory::open(&path).unwrap(), Memory::open(&path).unwrap());
        one.add(&[Entry::Started("a".into())]).unwrap();
        assert!(!other.look(|world| world.restarted("a")).unwrap());
        other.add(&[Entry::Started("a".into())]).unwrap();
        assert!(one.look(|world| world.restarted("a")).unwrap());
        assert!(other.look(|world| world.restarted("a")).unwrap());
    }
}
