//! The state of each object: facts, all of which are optional.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_informer::DataSource;
use claimcheck_model::{ObjectKey, VolumeMode};

use super::fact::Fact;

/// A claim.
#[derive(Debug, Default)]
pub(super) struct Claim {
    pub key: ObjectKey,
    pub class: String,
    pub mode: VolumeMode,
    /// Whether only one node may have the volume at a time.
    pub single_node: bool,
    /// Its data source.
    pub source: Option<DataSource>,
    /// Its external provisioner.
    pub provisioner: Option<String>,
    pub created: Option<Fact>,
    pub selected: Option<Fact>,
    /// The volume that it refers to, or that refers to it.
    pub volume: String,
    pub bound: Option<Fact>,
    pub deleted: Option<Fact>,
    pub requested: i64,
    /// Sizes that were requested after its creation.
    pub expansions: Vec<Expansion>,
    /// The successive capacities in its status.
    pub capacity: Growth,
    /// Pods that refer to it.
    pub pods: BTreeSet<String>,
}

/// An expansion request.
#[derive(Debug)]
pub(super) struct Expansion {
    pub bytes: i64,
    pub raised: Fact,
    /// FileSystemResizePending: the node must expand the file system.
    pub pending: Option<Fact>,
}

/// A monotonically increasing size, and the times of its changes.
#[derive(Debug, Default)]
pub(super) struct Growth(Vec<(i64, Fact)>);

impl Growth {
    pub fn observe(&mut self, bytes: i64, fact: Fact) {
        if self.0.last().is_none_or(|(last, _)| bytes > *last) {
            self.0.push((bytes, fact));
        }
    }

    /// When it first was `bytes` or more.
    pub fn reached(&self, bytes: i64) -> Option<Fact> {
        self.0.iter().find(|(size, _)| *size >= bytes).map(|(_, fact)| *fact)
    }
}

/// A PersistentVolume.
#[derive(Debug, Default)]
pub(super) struct Volume {
    pub uid: String,
    pub driver: String,
    pub handle: String,
    /// The uid of its claim.
    pub claim: String,
    /// Whether it was dynamically provisioned, so that the provisioner also deletes it.
    pub provisioned: bool,
    /// Whether the reclaim policy is Delete.
    pub reclaimed: bool,
    pub created: Option<Fact>,
    pub deleted: Option<Fact>,
    pub capacity: Growth,
}

/// A VolumeAttachment.
#[derive(Debug, Default)]
pub(super) struct Attachment {
    pub name: String,
    pub volume: String,
    pub node: String,
    pub created: Option<Fact>,
    pub attached: Option<Fact>,
    pub deleting: Option<Fact>,
    pub deleted: Option<Fact>,
}

/// A pod with claims.
#[derive(Debug, Default)]
pub(super) struct PodState {
    pub key: ObjectKey,
    /// Its claims by key; the uid once the object is known.
    pub claims: BTreeMap<ObjectKey, Option<String>>,
    pub node: String,
    pub created: Option<Fact>,
    /// Whether it was created with a nodeName, without the scheduler.
    pub born_on_node: bool,
    pub scheduled: Option<Fact>,
    pub ready: Option<Fact>,
    pub deleting: Option<Fact>,
    pub terminated: Option<Fact>,
    pub deleted: Option<Fact>,
}
