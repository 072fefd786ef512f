//! The last changes of one resource, for watches and pages of older versions.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Object;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// It has a new state.
    Modified,
    /// It was deleted.
    Deleted,
}

impl ChangeKind {
    /// The `type` of its watch event.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub struct Change {
    /// The kind of change.
    pub kind: ChangeKind,
    /// The state after the change; for a deletion the last state, at the version of the deletion.
    pub object: Arc<Object>,
    /// The state before the change, unless it was created.
    pub previous: Option<Arc<Object>>,
}

impl Change {
    /// The version of the write.
    pub fn version(&self) -> u64 {
        self.object.version
    }
}

/// The history after this version is incomplete.
#[derive(Debug, PartialEq)]
pub struct TooOld {
    /// The oldest version from which the history is complete.
    pub oldest: u64,
}

/// A ring of changes, oldest first, ordered by version.
pub struct History {
    ring: VecDeque<Arc<Change>>,
    capacity: usize,
    /// All changes after this version are in the ring.
    floor: u64,
}

impl History {
    /// An empty ring for `capacity` changes.
    pub fn new(capacity: usize) -> Self {
        Self { ring: VecDeque::new(), capacity: capacity.max(1), floor: 0 }
    }

    /// Adds a change with a version above all others.
    pub fn push(&mut self, change: Arc<Change>) {
        if self.ring.len() == self.capacity
            && let Some(oldest) = self.ring.pop_front()
        {
            self.floor = oldest.version();
        }
        self.ring.push_back(change);
    }

    /// The changes after `version`.
    pub fn since(&self, version: u64) -> Result<impl ExactSizeIterator<Item = &Arc<Change>> + Clone, TooOld> {
        if version < self.floor {
            return Err(TooOld { oldest: self.floor });
        }
        let start = self.ring.partition_point(|change| change.version() <= version);
        Ok(self.ring.range(start..))
    }
}
