//! Records of the clusters that claimcheck created, and whether the runs that created them are still active.
//!
//! A cluster is claimed before anything of it exists: a folder below `$XDG_STATE_HOME/claimcheck/kind` contains a
//! record of it and a lock. The kernel releases the lock when its holder exits for any reason, so what
//! a killed run left incomplete is known, and an active run is never mistaken for a dead one, as with process ids.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The prefix of the names of claimcheck's clusters.
pub const NAME_PREFIX: &str = "claimcheck-";

/// kind appends `-control-plane` and numbers to it, and host names end at 63 characters.
const LONGEST_NAME: usize = 45;

const LOCK: &str = "lock";
const RECORD: &str = "record.json";
const DATA: &str = "data";

/// A cluster cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum OwnedError {
    /// No folder for records of clusters.
    #[error("no directory for cluster records: set XDG_STATE_HOME or HOME")]
    NoStateDir,
    /// A name that kind does not accept.
    #[error(
        "--name {0:?} is invalid: use lower case letters, digits and dashes, at most {LONGEST_NAME} with \
         the prefix `{NAME_PREFIX}`"
    )]
    Name(String),
    /// It is in use by an active run.
    #[error("cluster {name} is in use by an active run{}: wait for it, or choose another --name", process(.pid))]
    InUse {
        /// The cluster.
        name: String,
        /// The run's process.
        pid: Option<u32>,
    },
    /// A cluster of this name exists.
    #[error(
        "cluster {name} exists from an earlier run: use it with --reuse, or `claimcheck cluster down {name}`"
    )]
    Exists {
        /// The cluster.
        name: String,
    },
    /// A record cannot be read or written.
    #[error("the cluster record {} cannot be read or written", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The volumes' data, which a node wrote as root, cannot be removed.
    #[error("the data of cluster {name} cannot be removed: `sudo rm -rf {}`", .folder.display())]
    Data {
        /// The cluster.
        name: String,
        /// Its folder.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

fn process(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

/// The full name of a cluster for the requested name, or a generated name.
///
/// # Errors
/// kind would not accept it.
pub fn cluster_name(asked: Option<&str>) -> Result<String, OwnedError> {
    let name = match asked {
        None => format!("{NAME_PREFIX}{}", &uuid::Uuid::new_v4().simple().to_string()[..6]),
        Some(name) if name.starts_with(NAME_PREFIX) => name.to_owned(),
        Some(name) => format!("{NAME_PREFIX}{name}"),
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fits = name.len() <= LONGEST_NAME && name.chars().all(plain) && !name.ends_with('-');
    if fits { Ok(name) } else { Err(OwnedError::Name(asked.unwrap_or(&name).to_owned())) }
}

/// The record of a cluster created by claimcheck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// When it was claimed, before it was created.
    pub claimed: Timestamp,
    /// The process that claimed it last, in its own PID namespace: informational; the lock determines whether it is
    /// active.
    pub pid: u32,
    /// The engine that runs its node containers.
    pub engine: String,
    /// Whether it outlives its run: by `--keep`, or `cluster up`.
    pub keep: bool,
    /// Whether kind's network existed before, so that it must not be removed.
    pub network_existed: bool,
}

/// The state of a cluster created by claimcheck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In use by an active run.
    InUse,
    /// Not in use; kept on purpose.
    Kept,
    /// Not in use; its run was killed.
    Abandoned,
    /// It was created by claimcheck, but has no record here: it belongs to another account, or to another machine that
    /// uses the same engine.
    Elsewhere,
}

impl Standing {
    /// The words for reports.
    pub fn describe(self) -> &'static str {
        match self {
            Self::InUse => "in use by a run",
            Self::Kept => "kept",
            Self::Abandoned => "left by a run that was killed",
            Self::Elsewhere => "created by another account or machine",
        }
    }
}

/// The directory of records.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Below `$XDG_STATE_HOME`, or `~/.local/state`.
    ///
    /// # Errors
    /// Neither is set.
    pub fn for_user() -> Result<Self, OwnedError> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        Ok(Self::at(state.ok_or(OwnedError::NoStateDir)?.join("claimcheck/kind")))
    }

    /// At a folder, which is created on demand.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Claims a name for a new cluster, before anything of it exists.
    ///
    /// # Errors
    /// A record of a cluster of this name exists.
    pub fn claim(&self, name: &str, engine: &str, network_existed: bool) -> Result<ClusterLock, OwnedError> {
        let (lock, known) = self.lock(name)?;
        if known.is_some() {
            return Err(OwnedError::Exists { name: name.to_owned() });
        }
        let record = Record {
            name: name.to_owned(),
            claimed: Timestamp::now(),
            pid: std::process::id(),
            engine: engine.to_owned(),
            keep: false,
            network_existed,
        };
        let claim = ClusterLock { folder: self.folder(name), lock, record };
        claim.make_folder(DATA)?;
        claim.write()?;
        Ok(claim)
    }

    /// Takes over a cluster that no active run uses, to use or to delete it; also one without a record.
    ///
    /// # Errors
    /// An active run uses it.
    pub fn take(&self, name: &str, engine: &str) -> Result<ClusterLock, OwnedError> {
        let (lock, known) = self.lock(name)?;
        let unknown = || Record {
            name: name.to_owned(),
            claimed: Timestamp::now(),
            pid: 0,
            engine: engine.to_owned(),
            // Unknown, so it must not be removed by default.
            keep: true,
            network_existed: true,
        };
        let record = Record { pid: std::process::id(), ..known.unwrap_or_else(unknown) };
        let claim = ClusterLock { folder: self.folder(name), lock, record };
        claim.write()?;
        Ok(claim)
    }

    /// Locks the folder of a cluster, and creates it if it is missing.
    fn lock(&self, name: &str) -> Result<(File, Option<Record>), OwnedError> {
        let folder = self.folder(name);
        let path = folder.join(LOCK);
        loop {
            make_private(&folder)?;
            let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let lock = match open {
                Ok(lock) => lock,
                // Its previous holder has just removed the folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(OwnedError::Io { path, source }),
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let pid = read(&folder).map(|record| record.pid);
                    return Err(OwnedError::InUse { name: name.to_owned(), pid });
                }
                Err(TryLockError::Error(source)) => return Err(OwnedError::Io { path, source }),
            }
            // The same may have happened between opening and locking; then this lock is on a deleted file.
            if is_at(&lock, &path) {
                return Ok((lock, read(&folder)));
            }
        }
    }

    /// All records with their state; those that cannot be read are omitted.
    pub fn records(&self) -> Vec<(Record, Standing)> {
        let folders = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let mut records: Vec<_> = folders
            .filter_map(|folder| {
                let record = read(&folder.path())?;
                let standing = match held(&folder.path().join(LOCK)) {
                    true => Standing::InUse,
                    false if record.keep => Standing::Kept,
                    false => Standing::Abandoned,
                };
                Some((record, standing))
            })
            .collect();
        records.sort_by_key(|(record, _)| record.claimed);
        records
    }
}

/// Whether the lock is held. The check acquires it for a moment, shared, so that checks do not see each other.
fn held(lock: &Path) -> bool {
    let Ok(lock) = File::open(lock) else { return false };
    match lock.try_lock_shared() {
        Ok(()) => {
            unlock(&lock);
            false
        }
        Err(error) => matches!(error, TryLockError::WouldBlock),
    }
}

/// Releases a lock. Closing alone is not enough: a child process that another thread has forked and that has
/// not called exec yet has a copy of the descriptor.
fn unlock(lock: &File) {
    // It cannot fail for a file that could be locked.
    let _ = lock.unlock();
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(opened), Ok(current)) => (opened.dev(), opened.ino()) == (current.dev(), current.ino()),
        _ => false,
    }
}

fn read(folder: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(folder.join(RECORD)).ok()?).ok()
}

/// Accessible to the user only: it contains a kubeconfig with all permissions.
fn make_private(folder: &Path) -> Result<(), OwnedError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| OwnedError::Io { path: folder.to_owned(), source })
}

/// A claim on a cluster, held until it is dropped.
#[derive(Debug)]
pub struct ClusterLock {
    folder: PathBuf,
    lock: File,
    record: Record,
}

impl ClusterLock {
    /// The record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// The folder of the host that all its nodes mount at [`DATA_DIR`](super::DATA_DIR).
    pub fn data(&self) -> PathBuf {
        self.folder.join(DATA)
    }

    /// The path of its config file.
    pub fn config(&self) -> PathBuf {
        self.folder.join("config.yaml")
    }

    /// The path of its kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// A folder for temporary files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn make_folder(&self, name: &str) -> Result<(), OwnedError> {
        make_private(&self.folder.join(name))
    }

    fn write(&self) -> Result<(), OwnedError> {
        let path = self.folder.join(RECORD);
        let text = serde_json::to_vec_pretty(&self.record).expect("a record is JSON");
        // Atomically, by renaming.
        let draft = self.folder.join(format!("{RECORD}.new"));
        let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path));
        written.map_err(|source| OwnedError::Io { path, source })
    }

    /// From now on the cluster outlives its run, even if that is killed.
    ///
    /// # Errors
    /// That cannot be recorded.
    pub fn keep(&mut self) -> Result<(), OwnedError> {
        self.record.keep = true;
        self.write()
    }

    /// Removes the record of a deleted cluster.
    ///
    /// # Errors
    /// The volumes' data cannot be removed.
    pub(super) fn release(self) -> Result<(), OwnedError> {
        // The record is removed last, so that a partially removed folder is still known.
        let name = self.record.name.clone();
        let data = self.data();
        match fs::remove_dir_all(&data) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(OwnedError::Data { name, folder: data, source }),
        }
        let folder = self.folder.clone();
        fs::remove_dir_all(&folder).map_err(|source| OwnedError::Io { path: folder, source })
    }
}

impl Drop for ClusterLock {
    fn drop(&mut self) {
        unlock(&self.lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_prefixed_and_validated() {
        let name = |asked| cluster_name(asked).map_err(|error| error.to_string());
        assert_eq!(name(Some("ci")).unwrap(), "claimcheck-ci");
        assert_eq!(name(Some("claimcheck-ci")).unwrap(), "claimcheck-ci");
        assert_eq!(name(None).unwrap().len(), NAME_PREFIX.len() + 6);
        for asked in ["CI", "a_b", "a-", "", &"x".repeat(40)] {
            assert!(name(Some(asked)).is_err(), "{asked}");
        }
    }

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::at(root.path().join("kind"));
        let standings = || store.records().iter().map(|(_, standing)| *standing).collect::<Vec<_>>();
        let claim = store.claim("claimcheck-a", "docker", false).unwrap();
        assert_eq!(standings(), [Standing::InUse]);
        assert!(matches!(store.take("claimcheck-a", "docker"), Err(OwnedError::InUse { pid: Some(_), .. })));
        // As if its run were killed.
        drop(claim);
        assert_eq!(standings(), [Standing::Abandoned]);
        assert!(matches!(store.claim("claimcheck-a", "docker", false), Err(OwnedError::Exists { .. })));
        store.take("claimcheck-a", "docker").unwrap().keep().unwrap();
        assert_eq!(standings(), [Standing::Kept]);
        let claim = store.take("claimcheck-a", "docker").unwrap();
        fs::write(claim.data().join("volume"), "bytes").unwrap();
        claim.release().unwrap();
        assert_eq!(standings(), []);
        assert!(!root.path().join("kind/claimcheck-a").exists());
        store.claim("claimcheck-a", "docker", true).unwrap();
    }

    #[test]
    fn an_unrecorded_cluster_can_be_locked_to_delete_it() {
        let root = tempfile::tempdir().unwrap();
        let claim = Store::at(root.path()).take("claimcheck-b", "podman").unwrap();
        assert!(claim.record().network_existed, "a network of unknown origin is never removed");
    }
}
