//! The state directory, which all driver processes of a cluster share.
//!
//! ```text
//! nodes/<node id>             a driver has run with this node id; holds its limits
//! volumes/<volume id>/        exists from the first effect of creating to the last of deleting
//!     volume.json             the record; the volume exists from its creation to its removal
//!     data/  or  image        the content
//!     mount-<node id>         the mount of that node, if the driver does not declare staging
//!     freeze-<node id>-loopN  the mark at which that node froze the file system for a copy
//!     *.new                   being written; renamed over the real one when complete
//! snapshots/<snapshot id>/    the same, with snapshot.json and the content
//! groups/<group id>/          only group.json: its creation and removal are those of all snapshots of the group
//! ```
//!
//! No process keeps any of this in memory. The lock of a volume is an `flock` on its directory: it needs no
//! file of its own, disappears with its holder, and excludes threads and processes alike. A call that finds a
//! volume locked waits: operations are short, and a response of `Aborted` would only cost the caller a
//! back-off.

use std::{
    collections::BTreeSet,
    fmt,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{FlockOperation, flock, fstat},
    io::Errno,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::{Doing, Error, Result},
    host::{FileId, Host},
    id::{GroupId, SnapshotId, VolumeId},
    parameters::Kind,
    snapshot::{Group, Snapshot},
    start::Start,
    topology::Segment,
    volume::{NodeId, Volume},
};

/// Suffix of the names of files that are being written.
const NEW: &str = ".new";
const DATA: &str = "data";
const IMAGE: &str = "image";
const IMAGE_NEW: &str = "image.new";

/// The id of an object with a directory of its own in the state directory, which exists as long as its record
/// in there.
pub trait Id: Ord + fmt::Display {
    /// The record's type.
    type Record: Record<Id = Self>;
    /// The directory of its kind.
    const FOLDER: &'static str;
    /// The id, if `text` is one of this kind.
    fn parse(text: &str) -> Option<Self>
    where
        Self: Sized;
    /// The name of the directory.
    fn as_str(&self) -> &str;
}

/// The record of an object.
pub trait Record: Serialize + DeserializeOwned {
    /// The type of its id.
    type Id: Id<Record = Self>;
    /// The file name of the record.
    const FILE: &'static str;
    /// The id of its object.
    fn id(&self) -> &Self::Id;
}

macro_rules! stored {
    ($id:ty, $record:ty, $folder:literal) => {
        impl Id for $id {
            type Record = $record;
            const FOLDER: &'static str = $folder;

            fn parse(text: &str) -> Option<Self> {
                <$id>::parse(text)
            }

            fn as_str(&self) -> &str {
                <$id>::as_str(self)
            }
        }
    };
}

stored!(VolumeId, Volume, "volumes");
stored!(SnapshotId, Snapshot, "snapshots");
stored!(GroupId, Group, "groups");

/// The record of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Maximum number of volumes attached to it; 0 for no limit.
    pub max_volumes: u64,
    /// Its topology segment.
    #[serde(default, skip_serializing_if = "Segment::is_empty")]
    pub topology: Segment,
}

/// The state directory.
#[derive(Clone)]
pub struct Store {
    host: Arc<dyn Host>,
    root: PathBuf,
    /// Of the call that uses this clone; without a call it is never cancelled.
    start: Start,
}

/// The exclusive lock of a volume, held until dropped.
#[derive(Debug)]
pub struct Lock {
    directory: File,
}

impl Lock {
    /// The locked descriptor: a process that inherits a copy of it keeps the lock after this process died.
    pub fn hold(&self) -> &File {
        &self.directory
    }
}

impl Drop for Lock {
    /// Unlocks in addition to closing: a child between fork and exec (mkfs for another volume) has a copy of
    /// the descriptor and would keep the lock for a moment longer.
    fn drop(&mut self) {
        if let Err(error) = flock(&self.directory, FlockOperation::Unlock) {
            tracing::warn!(%error, "cannot unlock a volume before closing its directory");
        }
    }
}

enum Attempt {
    Locked(Lock),
    Busy,
    Missing,
}

impl Store {
    /// Opens the state directory and creates missing parts of it.
    pub fn open(host: Arc<dyn Host>, root: PathBuf) -> Result<Self> {
        let store = Self { host, root, start: Start::default() };
        let folders = [
            store.root.clone(),
            store.folder::<VolumeId>(),
            store.folder::<SnapshotId>(),
            store.folder::<GroupId>(),
            store.nodes_dir(),
        ];
        for dir in folders {
            if store.host.file_id(&dir).doing("look at", &dir)?.is_none() {
                store.host.make_dir(&dir, 0o700).doing("make", &dir)?;
            }
        }
        Ok(store)
    }

    /// The same state directory for one call, which starts with its first lock of a volume or snapshot.
    pub(crate) fn for_call(&self, start: Start) -> Self {
        Self { start, ..self.clone() }
    }

    /// The state directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of a volume or snapshot.
    pub fn dir<I: Id>(&self, id: &I) -> PathBuf {
        self.folder::<I>().join(id.as_str())
    }

    /// The content of a volume or snapshot: a directory or an image file.
    pub fn content<I: Id>(&self, id: &I, kind: Kind) -> PathBuf {
        self.dir(id).join(match kind {
            Kind::Directory => DATA,
            Kind::Image => IMAGE,
        })
    }

    /// The directory where a node mounts a volume once for all its pods if the driver does not declare staging.
    pub fn own_staging(&self, id: &VolumeId, node: &NodeId) -> PathBuf {
        self.dir(id).join(format!("mount-{node}"))
    }

    /// The path at which an image is prepared before it replaces [`Store::content`].
    pub fn image_draft(&self, id: &VolumeId) -> PathBuf {
        self.dir(id).join(IMAGE_NEW)
    }

    /// Locks a directory, waiting for other holders; `None` if it does not exist. With its first lock a call
    /// starts, unless it was cancelled during the wait.
    pub fn lock<I: Id>(&self, id: &I) -> Result<Option<Lock>> {
        let Some(lock) = self.wait_for_lock(id)? else { return Ok(None) };
        self.start.begin()?;
        Ok(Some(lock))
    }

    fn wait_for_lock<I: Id>(&self, id: &I) -> Result<Option<Lock>> {
        match self.attempt(id, FlockOperation::LockExclusive)? {
            Attempt::Locked(lock) => Ok(Some(lock)),
            Attempt::Missing => Ok(None),
            Attempt::Busy => unreachable!("a blocking lock is never busy"),
        }
    }

    /// Prevents concurrent allocation of capacity until dropped: without it two volumes could be promised the
    /// same bytes.
    pub fn lock_room(&self) -> Result<Lock> {
        self.lock_folder(&self.folder::<VolumeId>())
    }

    /// Locks a directory that always exists.
    fn lock_folder(&self, dir: &Path) -> Result<Lock> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let directory =
            self.host.open_dir(dir).and_then(|open| open.ok_or_else(missing)).doing("open", dir)?;
        loop {
            match flock(&directory, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Lock { directory }),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error)).doing("lock", dir),
            }
        }
    }

    /// Locks a directory unless it is locked.
    pub fn try_lock<I: Id>(&self, id: &I) -> Result<Option<Lock>> {
        match self.attempt(id, FlockOperation::NonBlockingLockExclusive)? {
            Attempt::Locked(lock) => Ok(Some(lock)),
            Attempt::Busy | Attempt::Missing => Ok(None),
        }
    }

    /// Creates a directory if necessary and locks it, as [`Store::lock`].
    pub fn lock_or_make<I: Id>(&self, id: &I) -> Result<Lock> {
        let dir = self.dir(id);
        let mut made = false;
        loop {
            if let Some(lock) = self.wait_for_lock(id)? {
                let Err(cancelled) = self.start.begin() else { return Ok(lock) };
                if made && self.load(id)?.is_none() {
                    self.remove(id)?;
                }
                return Err(cancelled);
            }
            // Whoever deletes the directory between these two lines sends us round again.
            self.host.make_dir(&dir, 0o700).doing("make", &dir)?;
            made = true;
        }
    }

    fn attempt<I: Id>(&self, id: &I, operation: FlockOperation) -> Result<Attempt> {
        let dir = self.dir(id);
        loop {
            let Some(directory) = self.host.open_dir(&dir).doing("open", &dir)? else {
                return Ok(Attempt::Missing);
            };
            match flock(&directory, operation) {
                Ok(()) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => return Ok(Attempt::Busy),
                Err(error) => return Err(io::Error::from(error)).doing("lock", &dir),
            }
            // The directory may have been removed, and even recreated, during the wait: a lock on what is no
            // longer there protects nothing.
            let opened = fstat(&directory).map_err(io::Error::from).doing("look at", &dir)?;
            let opened = FileId { device: opened.st_dev, inode: opened.st_ino };
            if self.host.file_id(&dir).doing("look at", &dir)? == Some(opened) {
                return Ok(Attempt::Locked(Lock { directory }));
            }
        }
    }

    /// Reads a record; `None` if it does not exist. Requires no lock: records are replaced whole.
    pub fn load<I: Id>(&self, id: &I) -> Result<Option<I::Record>> {
        self.read_json(self.dir(id).join(I::Record::FILE))
    }

    /// Replaces a record. The caller holds its lock.
    pub fn save<R: Record>(&self, record: &R) -> Result<()> {
        let dir = self.dir(record.id());
        self.replace(&dir.join(draft_of(R::FILE)), &dir.join(R::FILE), record)
    }

    /// Deletes a volume or snapshot. The caller holds its lock.
    ///
    /// First the record, which ends its existence, then everything else; a crash in between leaves a directory
    /// without a record, which the next call or start clears.
    pub fn remove<I: Id>(&self, id: &I) -> Result<()> {
        let dir = self.dir(id);
        let record = dir.join(I::Record::FILE);
        self.host.remove_file(&record).doing("remove", record)?;
        self.host.remove_tree(&dir).doing("remove", dir)
    }

    /// Removes drafts that a crash left next to a volume or snapshot. The caller holds its lock.
    pub fn remove_drafts<I: Id>(&self, id: &I) -> Result<()> {
        let dir = self.dir(id);
        let names = self.host.list_dir(&dir).doing("list", &dir)?;
        let drafts = [draft_of(I::Record::FILE), IMAGE_NEW.to_owned()];
        for draft in drafts.iter().filter(|draft| names.contains(draft)) {
            let path = dir.join(draft);
            self.host.remove_file(&path).doing("remove", path)?;
        }
        Ok(())
    }

    /// Ids of all directories of a kind in order, including partially created volumes and snapshots.
    pub fn ids<I: Id>(&self) -> Result<BTreeSet<I>> {
        let dir = self.folder::<I>();
        let names = self.host.list_dir(&dir).doing("list", dir)?;
        Ok(names.iter().filter_map(|name| I::parse(name)).collect())
    }

    /// Records a node. Its controller and its node service may be processes that start at the same time.
    pub fn register(&self, id: &NodeId, node: &Node) -> Result<()> {
        let _alone = self.lock_folder(&self.nodes_dir())?;
        if self.node(id)?.as_ref() == Some(node) {
            return Ok(());
        }
        // Node ids never begin with a dot, so drafts collide with no node.
        let draft = self.nodes_dir().join(format!(".{id}.new"));
        self.replace(&draft, &self.nodes_dir().join(id.as_str()), node)
    }

    /// The record of a node; `None` if no driver ever ran with this node id.
    pub fn node(&self, id: &NodeId) -> Result<Option<Node>> {
        self.read_json(self.nodes_dir().join(id.as_str()))
    }

    /// Ids of all nodes that ever ran a driver, in order.
    pub fn nodes(&self) -> Result<BTreeSet<NodeId>> {
        let dir = self.nodes_dir();
        let names = self.host.list_dir(&dir).doing("list", dir)?;
        Ok(names.iter().filter_map(|name| NodeId::parse(name)).collect())
    }

    fn folder<I: Id>(&self) -> PathBuf {
        self.root.join(I::FOLDER)
    }

    fn nodes_dir(&self) -> PathBuf {
        self.root.join("nodes")
    }

    fn read_json<T: DeserializeOwned>(&self, path: PathBuf) -> Result<Option<T>> {
        match self.host.read_file(&path).doing("read", &path)? {
            Some(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|source| Error::Damaged { path, source })
            }
            None => Ok(None),
        }
    }

    fn replace(&self, draft: &Path, path: &Path, value: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec(value).expect("records have only string keys");
        self.host.write_file(draft, &bytes).doing("write", draft)?;
        self.host.rename(draft, path).doing("replace", path)
    }
}

fn draft_of(file: &str) -> String {
    file.to_owned() + NEW
}
