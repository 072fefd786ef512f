//! What is known of each object: facts, none of which need ever come.

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
    /// Only one node may have the volume at a time.
    pub single_node: bool,
    /// What it is made from.
    pub source: Option<DataSource>,
    /// The external provisioner that was named for it.
    pub provisioner: Option<String>,
    pub created: Option<Fact>,
    pub selected: Option<Fact>,
    /// The volume it names, or that names it.
    pub volume: String,
    pub bound: Option<Fact>,
    pub gone: Option<Fact>,
    pub requested: i64,
    /// Sizes that were asked for after its creation.
    pub expansions: Vec<Expansion>,
    /// Every size its status showed, as it grew.
    pub capacity: Growth,
    /// Pods that name it.
    pub pods: BTreeSet<String>,
}

/// A request for more.
#[derive(Debug)]
pub(super) struct Expansion {
    pub bytes: i64,
    pub raised: Fact,
    /// FileSystemResizePending: the node has to act.
    pub pending: Option<Fact>,
}

/// A size that only grows, and when it did.
#[derive(Debug, Default)]
pub(super) struct Growth(Vec<(i64, Fact)>);

impl Growth {
    pub fn saw(&mut self, bytes: i64, fact: Fact) {
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
    /// The uid of the claim it is for.
    pub claim: String,
    /// Made for its claim by a provisioner, which will also delete it.
    pub provisioned: bool,
    /// The reclaim policy is Delete.
    pub reclaimed: bool,
    pub created: Option<Fact>,
    pub gone: Option<Fact>,
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
    pub gone: Option<Fact>,
}

/// A pod with claims.
#[derive(Debug, Default)]
pub(super) struct PodState {
    pub key: ObjectKey,
    /// Its claims by key; the uid once it is known which object is meant.
    pub claims: BTreeMap<ObjectKey, Option<String>>,
    pub node: String,
    pub created: Option<Fact>,
    /// No scheduler chose its node: it was created with one.
    pub born_on_node: bool,
    pub scheduled: Option<Fact>,
    pub ready: Option<Fact>,
    pub deleting: Option<Fact>,
    pub terminated: Option<Fact>,
    pub gone: Option<Fact>,
}
