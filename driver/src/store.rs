//! The state directory, which all driver processes of a cluster share.
//!
//! ```text
//! nodes/<node id>             a driver has run with this node id; holds its limits
//! volumes/<volume id>/        exists from the first effect of creating to the last of deleting
//!     volume.json             the record; its appearance is the birth, its removal the death of a volume
//!     data/  or  image        the content
//!     mount-<node id>         where that node has it mounted, if nobody asks it to stage
//!     *.new                   being written; renamed over the real one when complete
//! ```
//!
//! No process keeps any of this in memory. The lock of a volume is an `flock` on its directory: it needs no
//! file of its own, vanishes with its holder, and excludes threads and processes alike. A call that finds a
//! volume locked waits: operations are short, and an answer `Aborted` would only cost the caller a back-off.

use std::{
    collections::BTreeSet,
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
    parameters::Kind,
    topology::Segment,
    volume::{NodeId, Volume, VolumeId},
};

const RECORD: &str = "volume.json";
const RECORD_NEW: &str = "volume.json.new";
const DATA: &str = "data";
const IMAGE: &str = "image";
const IMAGE_NEW: &str = "image.new";

/// What is known about a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// How many volumes may be attached to it; 0 for any number.
    pub max_volumes: u64,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Segment::is_empty")]
    pub topology: Segment,
}

/// The state directory.
#[derive(Clone)]
pub struct Store {
    host: Arc<dyn Host>,
    root: PathBuf,
}

/// The exclusive right to act on a volume, until dropped.
#[derive(Debug)]
pub struct Lock {
    directory: File,
}

impl Lock {
    /// What holds the lock: whoever has a copy of it open keeps the lock after this process died.
    pub fn hold(&self) -> &File {
        &self.directory
    }
}

impl Drop for Lock {
    /// Unlocks rather than only closing: a child between fork and exec (mkfs for another volume) has a copy
    /// of the descriptor and would keep the lock a moment longer.
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
    /// Opens the state directory and makes what is missing of it.
    pub fn open(host: Arc<dyn Host>, root: PathBuf) -> Result<Self> {
        let store = Self { host, root };
        for dir in [store.root.clone(), store.volumes_dir(), store.nodes_dir()] {
            if store.host.file_id(&dir).doing("look at", &dir)?.is_none() {
                store.host.make_dir(&dir, 0o700).doing("make", &dir)?;
            }
        }
        Ok(store)
    }

    /// The state directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of a volume.
    pub fn volume_dir(&self, id: &VolumeId) -> PathBuf {
        self.volumes_dir().join(id.as_str())
    }

    /// The content of a volume: a directory or an image file.
    pub fn content(&self, id: &VolumeId, kind: Kind) -> PathBuf {
        self.volume_dir(id).join(match kind {
            Kind::Directory => DATA,
            Kind::Image => IMAGE,
        })
    }

    /// Where a node mounts a volume once for all its pods if nobody asks it to stage.
    pub fn own_staging(&self, id: &VolumeId, node: &NodeId) -> PathBuf {
        self.volume_dir(id).join(format!("mount-{node}"))
    }

    /// Where an image is prepared before it takes the place of [`Store::content`].
    pub fn image_draft(&self, id: &VolumeId) -> PathBuf {
        self.volume_dir(id).join(IMAGE_NEW)
    }

    /// Locks a volume's directory and waits for others to finish; `None` if there is no such directory.
    pub fn lock(&self, id: &VolumeId) -> Result<Option<Lock>> {
        match self.attempt(id, FlockOperation::LockExclusive)? {
            Attempt::Locked(lock) => Ok(Some(lock)),
            Attempt::Missing => Ok(None),
            Attempt::Busy => unreachable!("a blocking lock is never busy"),
        }
    }

    /// Keeps everybody else from giving out room until dropped: without it two volumes could be promised the
    /// same bytes.
    pub fn lock_room(&self) -> Result<Lock> {
        let dir = self.volumes_dir();
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let directory =
            self.host.open_dir(&dir).and_then(|open| open.ok_or_else(missing)).doing("open", &dir)?;
        loop {
            match flock(&directory, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Lock { directory }),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error)).doing("lock", &dir),
            }
        }
    }

    /// Locks a volume's directory unless somebody else has it.
    pub fn try_lock(&self, id: &VolumeId) -> Result<Option<Lock>> {
        match self.attempt(id, FlockOperation::NonBlockingLockExclusive)? {
            Attempt::Locked(lock) => Ok(Some(lock)),
            Attempt::Busy | Attempt::Missing => Ok(None),
        }
    }

    /// Makes a volume's directory if need be and locks it.
    pub fn lock_or_make(&self, id: &VolumeId) -> Result<Lock> {
        let dir = self.volume_dir(id);
        loop {
            if let Some(lock) = self.lock(id)? {
                return Ok(lock);
            }
            // Whoever deletes the directory between these two lines sends us round again.
            self.host.make_dir(&dir, 0o700).doing("make", &dir)?;
        }
    }

    fn attempt(&self, id: &VolumeId, operation: FlockOperation) -> Result<Attempt> {
        let dir = self.volume_dir(id);
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
            // The directory may have been removed, and even made anew, while we waited: a lock on what is no
            // longer there protects nothing.
            let ours = fstat(&directory).map_err(io::Error::from).doing("look at", &dir)?;
            let ours = FileId { device: ours.st_dev, inode: ours.st_ino };
            if self.host.file_id(&dir).doing("look at", &dir)? == Some(ours) {
                return Ok(Attempt::Locked(Lock { directory }));
            }
        }
    }

    /// Reads a volume's record; `None` if there is none (yet, or any more). Needs no lock: records are
    /// replaced whole.
    pub fn load(&self, id: &VolumeId) -> Result<Option<Volume>> {
        self.read_json(self.volume_dir(id).join(RECORD))
    }

    /// Replaces a volume's record. The caller holds its lock.
    pub fn save(&self, volume: &Volume) -> Result<()> {
        let dir = self.volume_dir(&volume.id);
        self.replace(&dir.join(RECORD_NEW), &dir.join(RECORD), volume)
    }

    /// Takes a volume out of existence. The caller holds its lock.
    ///
    /// First the record, which is the moment of death, then everything else; a crash in between leaves a
    /// directory without record, which the next call or start clears.
    pub fn remove(&self, id: &VolumeId) -> Result<()> {
        let dir = self.volume_dir(id);
        let record = dir.join(RECORD);
        self.host.remove_file(&record).doing("remove", record)?;
        self.host.remove_tree(&dir).doing("remove", dir)
    }

    /// Removes drafts that a crash left beside a volume. The caller holds its lock.
    pub fn remove_drafts(&self, id: &VolumeId) -> Result<()> {
        let dir = self.volume_dir(id);
        let names = self.host.list_dir(&dir).doing("list", &dir)?;
        for draft in
            [RECORD_NEW, IMAGE_NEW].into_iter().filter(|draft| names.iter().any(|name| name == draft))
        {
            let path = dir.join(draft);
            self.host.remove_file(&path).doing("remove", path)?;
        }
        Ok(())
    }

    /// Ids of all volume directories in order, those of half made volumes too.
    pub fn ids(&self) -> Result<BTreeSet<VolumeId>> {
        let dir = self.volumes_dir();
        let names = self.host.list_dir(&dir).doing("list", dir)?;
        Ok(names.iter().filter_map(|name| VolumeId::parse(name)).collect())
    }

    /// Writes down that a node exists.
    pub fn register(&self, id: &NodeId, node: &Node) -> Result<()> {
        if self.node(id)?.as_ref() == Some(node) {
            return Ok(());
        }
        // Node ids never begin with a dot, so drafts collide with no node.
        let draft = self.nodes_dir().join(format!(".{id}.new"));
        self.replace(&draft, &self.nodes_dir().join(id.as_str()), node)
    }

    /// What is known about a node; `None` if no driver ever ran with this node id.
    pub fn node(&self, id: &NodeId) -> Result<Option<Node>> {
        self.read_json(self.nodes_dir().join(id.as_str()))
    }

    /// Ids of all nodes whose driver ever started, in order.
    pub fn nodes(&self) -> Result<BTreeSet<NodeId>> {
        let dir = self.nodes_dir();
        let names = self.host.list_dir(&dir).doing("list", dir)?;
        Ok(names.iter().filter_map(|name| NodeId::parse(name)).collect())
    }

    fn volumes_dir(&self) -> PathBuf {
        self.root.join("volumes")
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
