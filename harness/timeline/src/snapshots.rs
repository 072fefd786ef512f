//! The state of snapshots, their contents, and the data sources of claims.
//!
//! A snapshot belongs to its source claim: its phases are attributed to that claim, and so are
//! its leaks. A pre-provisioned one belongs to no claim.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_informer::DataSource;
use claimcheck_model::{
    ObjectKey,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};

use super::calls::Handle;
use super::fact::Fact;

/// A VolumeSnapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub key: ObjectKey,
    /// Its source claim; none if it is pre-provisioned.
    pub claim: Option<ObjectKey>,
    pub created: Fact,
    pub ready: Option<Fact>,
    pub deleted: Option<Fact>,
}

/// A VolumeSnapshotContent.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub name: String,
    /// Its source volume.
    pub volume: Handle,
    /// The snapshot handle; empty until it is known.
    pub handle: Handle,
    /// The handle of the group with which the driver creates and deletes it.
    pub group: Option<Handle>,
    /// When the handle became known.
    pub point_in_time: Option<Fact>,
    pub deleted: Option<Fact>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// By uid.
    pub snapshots: BTreeMap<String, Snapshot>,
    /// By the uid of their snapshot.
    contents: BTreeMap<String, Content>,
    /// The uid of the newest snapshot of a name.
    names: BTreeMap<ObjectKey, String>,
    /// Uids by claim.
    of_claims: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// Uids of claims by data source, as formatted by [`DataSource`].
    made_from: BTreeMap<String, BTreeSet<String>>,
}

impl Snapshots {
    /// Records a snapshot; returns its uid.
    pub fn observe_snapshot(&mut self, object: &VolumeSnapshot, fact: Fact, deleted: bool) -> Option<String> {
        let uid = object.metadata.uid.clone()?;
        let key = claimcheck_informer::key_of(object);
        let claim = object.spec.source.persistent_volume_claim_name.as_ref();
        let claim = claim.map(|claim| ObjectKey::new(&key.namespace, claim));
        if !deleted {
            self.names.insert(key.clone(), uid.clone());
        }
        if let Some(claim) = &claim {
            self.of_claims.entry(claim.clone()).or_default().insert(uid.clone());
        }
        let known = self.snapshots.entry(uid.clone()).or_insert(Snapshot {
            key,
            claim,
            created: fact,
            ready: None,
            deleted: None,
        });
        if object.is_ready() {
            known.ready.get_or_insert(fact);
        }
        if deleted {
            known.deleted.get_or_insert(fact);
        }
        Some(uid)
    }

    /// Records a content; returns the uid of its snapshot, if it has a source volume.
    pub fn observe_content(
        &mut self,
        object: &VolumeSnapshotContent,
        fact: Fact,
        deleted: bool,
    ) -> Option<String> {
        let snapshot = object.spec.volume_snapshot_ref.uid.clone()?;
        let volume = object.spec.source.volume_handle.clone()?;
        let known = self.contents.entry(snapshot.clone()).or_default();
        known.name = object.metadata.name.clone().unwrap_or_default();
        known.volume = (object.spec.driver.clone(), volume);
        let group = object.status.as_ref().and_then(|status| status.volume_group_snapshot_handle.clone());
        if let Some(group) = group {
            known.group = Some((object.spec.driver.clone(), group));
        }
        if let Some(handle) = object.handle() {
            known.handle = (object.spec.driver.clone(), handle.to_owned());
            known.point_in_time.get_or_insert(fact);
        }
        if deleted {
            known.deleted.get_or_insert(fact);
        }
        Some(snapshot)
    }

    /// Records the data source of a claim.
    pub fn observe_source(&mut self, claim: &str, source: &DataSource) {
        self.made_from.entry(source.to_string()).or_default().insert(claim.to_owned());
    }

    /// The snapshots of a claim, by uid.
    pub fn of(&self, claim: &ObjectKey) -> impl Iterator<Item = (&String, &Snapshot)> {
        let uids = self.of_claims.get(claim).into_iter().flatten();
        uids.filter_map(|uid| self.snapshots.get_key_value(uid))
    }

    /// The content of a snapshot.
    pub fn content(&self, snapshot: &str) -> Option<&Content> {
        self.contents.get(snapshot)
    }

    /// The newest snapshot of a name.
    pub fn named(&self, key: &ObjectKey) -> Option<&Snapshot> {
        self.snapshots.get(self.names.get(key)?)
    }

    /// Uids of the claims with this data source.
    pub fn made_from(&self, source: &DataSource) -> impl Iterator<Item = &String> {
        self.made_from.get(&source.to_string()).into_iter().flatten()
    }

    /// Removes a claim: its data source, and those of its snapshots that no longer exist. Returns their
    /// uids and their handles.
    pub fn forget(
        &mut self,
        uid: &str,
        claim: &ObjectKey,
        source: Option<&DataSource>,
    ) -> (Vec<String>, Vec<Handle>) {
        let source = source.map(DataSource::to_string).unwrap_or_default();
        if let Some(claims) = self.made_from.get_mut(&source) {
            claims.remove(uid);
            if claims.is_empty() {
                self.made_from.remove(&source);
            }
        }
        let deleted =
            |uid: &String| self.snapshots.get(uid).is_some_and(|snapshot| snapshot.deleted.is_some());
        let uids: Vec<String> =
            self.of_claims.get(claim).into_iter().flatten().filter(|uid| deleted(uid)).cloned().collect();
        let mut handles = Vec::new();
        for uid in &uids {
            handles.extend(self.contents.remove(uid).map(|content| content.handle));
            if let Some(snapshot) = self.snapshots.remove(uid)
                && self.names.get(&snapshot.key) == Some(uid)
            {
                self.names.remove(&snapshot.key);
            }
        }
        if let Some(left) = self.of_claims.get_mut(claim) {
            left.retain(|uid| !uids.contains(uid));
            if left.is_empty() {
                self.of_claims.remove(claim);
            }
        }
        (uids, handles)
    }
}
