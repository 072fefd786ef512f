//! inotify(7) for tasks: kernel events of files and directories.

use std::{
    ffi::{OsStr, OsString},
    io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};
use tokio::io::unix::AsyncFd;

/// A set of watches. Dropping it ends them.
#[derive(Debug)]
pub struct Inotify(AsyncFd<OwnedFd>);

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InotifyEvent {
    /// The watch, identified by the result of [`Inotify::add`]; -1 if the kernel has lost events.
    pub watch: i32,
    /// The kind of event.
    pub events: ReadFlags,
    /// The entry of the directory; `None` for the watched path itself.
    pub name: Option<OsString>,
}

#[expect(unsafe_code, reason = "tokio cannot know that an OwnedFd keeps its number")]
fn watched(inotify: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names one open descriptor, the same until it is dropped, and the AsyncFd owns it.
    unsafe { AsyncFd::register(inotify) }.map_err(io::Error::from)
}

impl Inotify {
    /// An empty set.
    ///
    /// # Errors
    /// If the user has no inotify instance left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(watched(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?)?))
    }

    /// Watches a path; returns the watch's id.
    ///
    /// # Errors
    /// If it does not exist, or the user has no watch left.
    pub fn add(&self, path: &Path, flags: WatchFlags) -> io::Result<i32> {
        Ok(inotify::add_watch(self.0.get_ref(), path, flags)?)
    }

    /// Removes a watch. It is not an error if it has ended with its file already.
    pub fn remove(&self, watch: i32) {
        let _ = inotify::remove_watch(self.0.get_ref(), watch);
    }

    /// Waits for events; returns all pending ones.
    ///
    /// # Errors
    /// If the descriptor cannot be read.
    pub async fn next(&self) -> io::Result<Vec<InotifyEvent>> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut seen = Vec::new();
            let mut reader = inotify::Reader::new(ready.get_inner(), &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => seen.push(InotifyEvent {
                        watch: event.wd(),
                        events: event.events(),
                        name: event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned()),
                    }),
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            ready.clear_ready();
            if !seen.is_empty() {
                return Ok(seen);
            }
        }
    }
}
