//! Which clusters are ours, and whether the runs that made them still live.
//!
//! A cluster is claimed before anything of it exists: a folder below `$XDG_STATE_HOME/claimcheck/kind` holds a
//! record of it and a lock. The kernel lets go of the lock when its holder dies, however that may be, so what
//! a killed run has left half made is known, and nobody takes a living one for dead, as process ids would.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the names of our clusters begin with.
pub const NAME_PREFIX: &str = "claimcheck-";

/// kind appends `-control-plane` and numbers to it, and host names end at 63 characters.
const LONGEST_NAME: usize = 45;

const LOCK: &str = "lock";
const RECORD: &str = "record.json";
const DATA: &str = "data";

/// Why a cluster is not ours to take.
#[derive(Debug, thiserror::Error)]
pub enum OwnedError {
    /// No folder for what we must know of our clusters.
    #[error("there is no place for records of clusters: set XDG_STATE_HOME or HOME")]
    Homeless,
    /// A name that kind does not take.
    #[error(
        "--name {0:?} cannot be used: take lower case letters, digits and dashes, at most {LONGEST_NAME} with \
         the prefix `{NAME_PREFIX}`"
    )]
    Name(String),
    /// A run that lives has it.
    #[error("cluster {name} belongs to a run that lives{}: wait for it, or choose another --name", process(.pid))]
    InUse {
        /// The cluster.
        name: String,
        /// The run's process.
        pid: Option<u32>,
    },
    /// There is one of this name.
    #[error(
        "cluster {name} is there from an earlier run: use it with --reuse, or `claimcheck cluster down {name}`"
    )]
    There {
        /// The cluster.
        name: String,
    },
    /// A file of ours cannot be read or written.
    #[error("the record of a cluster at {} cannot be kept", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The volumes' data, which a node wrote as root, is still there.
    #[error("the data of cluster {name} cannot be removed: `sudo rm -rf {}`", .folder.display())]
    Data {
        /// The cluster.
        name: String,
        /// Its folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn process(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

/// The name of a cluster that is asked for by this name, or of one that has none.
///
/// # Errors
/// kind would not take it.
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

/// What is known of a cluster of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// When it was claimed, before it was created.
    pub claimed: Timestamp,
    /// The process that claimed it last, in its own PID namespace: for people; whether it lives, the lock says.
    pub pid: u32,
    /// The engine whose containers its nodes are.
    pub engine: String,
    /// It shall outlive its run: by `--keep`, or `cluster up`.
    pub keep: bool,
    /// kind's network was there before it, so it is not ours to remove.
    pub network_was_there: bool,
}

/// Who has a cluster of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A run that lives.
    Living,
    /// Nobody; its run left it on purpose.
    Kept,
    /// Nobody; its run was killed.
    Gone,
    /// It bears our mark, but there is no record of it here: another account's, or another machine's that uses
    /// the same engine.
    Elsewhere,
}

impl Standing {
    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Living => "in use by a run",
            Self::Kept => "kept",
            Self::Gone => "left by a run that was killed",
            Self::Elsewhere => "made by another account or machine",
        }
    }
}

/// Where records are kept.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Below `$XDG_STATE_HOME`, or `~/.local/state`.
    ///
    /// # Errors
    /// Neither is known.
    pub fn of_user() -> Result<Self, OwnedError> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        Ok(Self::at(state.ok_or(OwnedError::Homeless)?.join("claimcheck/kind")))
    }

    /// At a folder, which is made when it is needed.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Claims a name for a new cluster, before anything of it exists.
    ///
    /// # Errors
    /// There is a record of a cluster of this name.
    pub fn claim(&self, name: &str, engine: &str, network_was_there: bool) -> Result<Claim, OwnedError> {
        let (lock, known) = self.lock(name)?;
        if known.is_some() {
            return Err(OwnedError::There { name: name.to_owned() });
        }
        let record = Record {
            name: name.to_owned(),
            claimed: Timestamp::now(),
            pid: std::process::id(),
            engine: engine.to_owned(),
            keep: false,
            network_was_there,
        };
        let claim = Claim { folder: self.folder(name), lock, record };
        claim.make_folder(DATA)?;
        claim.write()?;
        Ok(claim)
    }

    /// Takes over a cluster that no living run has, to use or to delete it; without a record too.
    ///
    /// # Errors
    /// A living run has it.
    pub fn take(&self, name: &str, engine: &str) -> Result<Claim, OwnedError> {
        let (lock, known) = self.lock(name)?;
        let unknown = || Record {
            name: name.to_owned(),
            claimed: Timestamp::now(),
            pid: 0,
            engine: engine.to_owned(),
            // Not known, so not ours to remove unless somebody says so.
            keep: true,
            network_was_there: true,
        };
        let record = Record { pid: std::process::id(), ..known.unwrap_or_else(unknown) };
        let claim = Claim { folder: self.folder(name), lock, record };
        claim.write()?;
        Ok(claim)
    }

    /// Locks the folder of a cluster, and makes it where it is missing.
    fn lock(&self, name: &str) -> Result<(File, Option<Record>), OwnedError> {
        let folder = self.folder(name);
        let path = folder.join(LOCK);
        loop {
            make_private(&folder)?;
            let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let lock = match open {
                Ok(lock) => lock,
                // Its last holder has just removed the folder.
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
            // The same may have happened between opening and locking; then this lock is on no file.
            if is_at(&lock, &path) {
                return Ok((lock, read(&folder)));
            }
        }
    }

    /// All records, and who has them; those that cannot be read are left out.
    pub fn records(&self) -> Vec<(Record, Standing)> {
        let folders = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let mut records: Vec<_> = folders
            .filter_map(|folder| {
                let record = read(&folder.path())?;
                let standing = match held(&folder.path().join(LOCK)) {
                    true => Standing::Living,
                    false if record.keep => Standing::Kept,
                    false => Standing::Gone,
                };
                Some((record, standing))
            })
            .collect();
        records.sort_by_key(|(record, _)| record.claimed);
        records
    }
}

/// Whether somebody holds the lock. Asking takes it for a moment, shared, so that askers don't see each other.
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

/// Lets go of a lock. Closing alone is not enough: a child of ours that another thread has forked and that has
/// not yet become its program has a copy of the descriptor.
fn unlock(lock: &File) {
    // It fails for no file that could be locked.
    let _ = lock.unlock();
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn read(folder: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(folder.join(RECORD)).ok()?).ok()
}

/// Nobody else's business: there is a kubeconfig with all rights in it.
fn make_private(folder: &Path) -> Result<(), OwnedError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| OwnedError::Io { path: folder.to_owned(), source })
}

/// A cluster that is ours as long as this lives.
#[derive(Debug)]
pub struct Claim {
    folder: PathBuf,
    lock: File,
    record: Record,
}

impl Claim {
    /// What is recorded.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// The folder of the host that all its nodes see at [`DATA_DIR`](super::DATA_DIR).
    pub fn data(&self) -> PathBuf {
        self.folder.join(DATA)
    }

    /// Where its config file lies.
    pub fn config(&self) -> PathBuf {
        self.folder.join("config.yaml")
    }

    /// Where its kubeconfig lies.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Where files may lie that nobody needs after it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn make_folder(&self, name: &str) -> Result<(), OwnedError> {
        make_private(&self.folder.join(name))
    }

    fn write(&self) -> Result<(), OwnedError> {
        let path = self.folder.join(RECORD);
        let text = serde_json::to_vec_pretty(&self.record).expect("a record is JSON");
        // By renaming: a record is there as a whole or not at all.
        let draft = self.folder.join(format!("{RECORD}.new"));
        let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path));
        written.map_err(|source| OwnedError::Io { path, source })
    }

    /// From now on the cluster may outlive its run, however that ends.
    ///
    /// # Errors
    /// That cannot be written down.
    pub fn keep(&mut self) -> Result<(), OwnedError> {
        self.record.keep = true;
        self.write()
    }

    /// The cluster is no more: nothing need be known of it.
    ///
    /// # Errors
    /// The volumes' data cannot be removed.
    pub(super) fn release(self) -> Result<(), OwnedError> {
        // The record goes last, so that a half removed folder is still known.
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

impl Drop for Claim {
    fn drop(&mut self) {
        unlock(&self.lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let name = |asked| cluster_name(asked).map_err(|error| error.to_string());
        assert_eq!(name(Some("ci")).unwrap(), "claimcheck-ci");
        assert_eq!(name(Some("claimcheck-ci")).unwrap(), "claimcheck-ci");
        assert_eq!(name(None).unwrap().len(), NAME_PREFIX.len() + 6);
        for asked in ["CI", "a_b", "a-", "", &"x".repeat(40)] {
            assert!(name(Some(asked)).is_err(), "{asked}");
        }
    }

    #[test]
    fn a_claim_is_held_as_long_as_it_lives() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::at(root.path().join("kind"));
        let standings = || store.records().iter().map(|(_, standing)| *standing).collect::<Vec<_>>();
        let claim = store.claim("claimcheck-a", "docker", false).unwrap();
        assert_eq!(standings(), [Standing::Living]);
        assert!(matches!(store.take("claimcheck-a", "docker"), Err(OwnedError::InUse { pid: Some(_), .. })));
        // As if its run were killed.
        drop(claim);
        assert_eq!(standings(), [Standing::Gone]);
        assert!(matches!(store.claim("claimcheck-a", "docker", false), Err(OwnedError::There { .. })));
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
    fn what_is_not_recorded_can_be_taken_to_delete_it() {
        let root = tempfile::tempdir().unwrap();
        let claim = Store::at(root.path()).take("claimcheck-b", "podman").unwrap();
        assert!(claim.record().network_was_there, "a network that is not known to be ours is never removed");
    }
}
