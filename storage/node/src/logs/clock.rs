//! Records the times at which logs grow, for readers that request timestamps.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::fs::inotify::WatchFlags;

use super::times::Mark;
use crate::inotify::Inotify;

/// Watches the logs of a node.
#[derive(Clone, Debug)]
pub struct LogClock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inotify: Inotify,
    /// Held while marks are written, so that none is written after a log was removed.
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    logs: HashMap<i32, PathBuf>,
    watches: BTreeMap<PathBuf, i32>,
}

impl LogClock {
    /// A clock without watches.
    ///
    /// # Errors
    /// If the user has no inotify instance left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Shared { inotify: Inotify::new()?, watched: Mutex::default() })))
    }

    /// Watches a log from now on; its existing content is marked. Without a watch, its lines are dated by the
    /// log's last modification, which is no reason not to run a container.
    pub fn watch(&self, log: &Path) {
        let mut watched = self.lock();
        match self.0.inotify.add(log, WatchFlags::MODIFY) {
            Ok(watch) => {
                watched.logs.insert(watch, log.to_owned());
                watched.watches.insert(log.to_owned(), watch);
                mark(log);
            }
            Err(error) => tracing::warn!(log = %log.display(), %error, "line times are not recorded"),
        }
    }

    /// Ends the watch of a log, or of all logs in a directory; no marks are written afterwards.
    pub fn forget(&self, path: &Path) {
        let mut watched = self.lock();
        let below = watched.watches.range(path.to_owned()..).take_while(|(log, _)| log.starts_with(path));
        let below: Vec<(PathBuf, i32)> = below.map(|(log, watch)| (log.clone(), *watch)).collect();
        for (log, watch) in below {
            watched.watches.remove(&log);
            watched.logs.remove(&watch);
            self.0.inotify.remove(watch);
        }
    }

    /// Marks logs as they grow; ends only with an error.
    ///
    /// # Errors
    /// If inotify cannot be read.
    pub async fn run(&self) -> io::Error {
        loop {
            let seen = match self.0.inotify.next().await {
                Ok(seen) => seen,
                Err(error) => return error,
            };
            // A container that writes much causes many events for the same log.
            let grown: BTreeSet<i32> = seen.into_iter().map(|seen| seen.watch).collect();
            let watched = self.lock();
            grown.iter().filter_map(|watch| watched.logs.get(watch)).for_each(|log| mark(log));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mark(log: &Path) {
    let marked = fs::metadata(log).and_then(|found| match found.len() {
        0 => Ok(()),
        _ => Mark::of(&found).append(log),
    });
    if let Err(error) = marked {
        tracing::debug!(log = %log.display(), %error, "a timestamp was not recorded");
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write, time::Duration};

    use super::*;

    /// A file changes without notification, so this polls.
    async fn marks(log: &Path, expected: usize) -> String {
        let read = async {
            loop {
                let text = fs::read_to_string(super::super::times_path(log)).unwrap_or_default();
                if text.lines().count() >= expected {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), read).await.unwrap()
    }

    #[tokio::test]
    async fn growth_is_marked_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let (log, other) = (dir.path().join("a/0.log"), dir.path().join("b/0.log"));
        for path in [&log, &other] {
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::write(&other, "before").unwrap();
        let clock = LogClock::new().unwrap();
        clock.watch(&log);
        clock.watch(&other);
        let running = tokio::spawn({
            let clock = clock.clone();
            async move { clock.run().await }
        });
        assert!(marks(&other, 1).await.starts_with("6 "), "what was there when the watch began");
        let write = |path: &Path| {
            OpenOptions::new().append(true).open(path).unwrap().write_all(b"one\n").unwrap();
        };
        write(&log);
        assert!(marks(&log, 1).await.starts_with("4 "));
        clock.forget(&dir.path().join("a"));
        fs::remove_file(super::super::times_path(&log)).unwrap();
        write(&log);
        write(&other);
        assert!(marks(&other, 2).await.contains("\n10 "));
        assert!(!super::super::times_path(&log).exists(), "it was forgotten");
        running.abort();
    }
}
