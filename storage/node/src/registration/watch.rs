//! Watches a directory for created and removed sockets, with inotify: nothing is polled.

use std::{
    collections::VecDeque,
    io,
    os::unix::{ffi::OsStrExt, fs::FileTypeExt},
    path::{Path, PathBuf},
};

use rustix::fs::inotify::{ReadFlags, WatchFlags};

use crate::inotify::Inotify;

/// A change in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// A socket was created; it may have replaced one with the same path.
    Added(PathBuf),
    /// A socket, or another file, was removed.
    Removed(PathBuf),
}

/// The watch on one directory.
#[derive(Debug)]
pub struct SocketWatch {
    directory: PathBuf,
    inotify: Inotify,
    pending: VecDeque<SocketEvent>,
}

impl SocketWatch {
    /// Starts watching; existing sockets are reported as added.
    ///
    /// # Errors
    /// If the directory does not exist, or the host is out of inotify watches.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let inotify = Inotify::new()?;
        let deleted = WatchFlags::DELETE | WatchFlags::MOVED_FROM;
        let come = WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify.add(directory, deleted | come | WatchFlags::ONLYDIR)?;
        let mut watch = Self { directory: directory.to_owned(), inotify, pending: VecDeque::new() };
        // After the watch has begun: a socket created in between is reported twice, but never missed.
        for entry in std::fs::read_dir(directory)? {
            watch.came(entry?.path());
        }
        Ok(watch)
    }

    /// The next event.
    ///
    /// # Errors
    /// If the inotify descriptor cannot be read.
    pub async fn next(&mut self) -> io::Result<SocketEvent> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(event);
            }
            for seen in self.inotify.next().await? {
                let Some(name) = seen.name else { continue };
                let path = self.directory.join(name);
                if seen.events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                    self.pending.push_back(SocketEvent::Removed(path));
                } else {
                    self.came(path);
                }
            }
        }
    }

    /// Plugins may create a socket under a name with a leading dot and rename it once it listens.
    fn came(&mut self, path: PathBuf) {
        let hidden = path.file_name().is_none_or(|name| name.as_bytes().starts_with(b"."));
        if !hidden && std::fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket()) {
            self.pending.push_back(SocketEvent::Added(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn sockets_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old.sock"), dir.path().join("new.sock"));
        let _old = UnixListener::bind(&old).unwrap();
        let mut watch = SocketWatch::new(dir.path()).unwrap();
        assert_eq!(watch.next().await.unwrap(), SocketEvent::Added(old.clone()));
        std::fs::write(dir.path().join("not-a-socket"), "").unwrap();
        let _new = UnixListener::bind(dir.path().join(".new")).unwrap();
        std::fs::rename(dir.path().join(".new"), &new).unwrap();
        std::fs::remove_file(&old).unwrap();
        assert_eq!(watch.next().await.unwrap(), SocketEvent::Removed(dir.path().join(".new")));
        assert_eq!(watch.next().await.unwrap(), SocketEvent::Added(new));
        assert_eq!(watch.next().await.unwrap(), SocketEvent::Removed(old));
    }
}
