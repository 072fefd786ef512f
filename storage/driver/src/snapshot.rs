//! Snapshots and groups of them as they are written down.
//!
//! A snapshot is a full copy: it needs neither its volume nor other snapshots. One that belongs to a group
//! counts only while the group's record is there, so that all snapshots of a group appear and go at once.

use std::{collections::BTreeSet, time::SystemTime};

use serde::{Deserialize, Serialize};

use crate::{
    filesystem::FsType,
    id::{GroupId, SnapshotId, VolumeId},
    parameters::Kind,
    store::Record,
};

/// The record of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Identity, also the name of the snapshot's directory.
    pub id: SnapshotId,
    /// The volume that it shows, which may be gone by now.
    pub source: VolumeId,
    /// What it is made of, as its volume was.
    pub kind: Kind,
    /// The size of its volume in bytes.
    pub size_bytes: u64,
    /// The file system that was asked for when its volume was created.
    pub fs_type: Option<FsType>,
    /// The point in time that it shows.
    pub created: SystemTime,
    /// The group that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
}

impl Record for Snapshot {
    type Id = SnapshotId;
    const FILE: &'static str = "snapshot.json";

    fn id(&self) -> &SnapshotId {
        &self.id
    }
}

/// The record of a group snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Identity, also the name of the group's directory.
    pub id: GroupId,
    /// The volumes that it shows.
    pub sources: BTreeSet<VolumeId>,
    /// The point in time that all its snapshots show.
    pub created: SystemTime,
}

impl Record for Group {
    type Id = GroupId;
    const FILE: &'static str = "group.json";

    fn id(&self) -> &GroupId {
        &self.id
    }
}

impl GroupId {
    /// The id of the group's snapshot of a volume. No name of a snapshot has a zero byte, so it is not that of
    /// any other.
    pub fn snapshot_of(&self, volume: &VolumeId) -> SnapshotId {
        SnapshotId::from_name(&format!("{self}\0{volume}"))
    }
}

impl Group {
    /// The ids of its snapshots, in the order of their volumes.
    pub fn snapshots(&self) -> impl Iterator<Item = SnapshotId> {
        self.sources.iter().map(|volume| self.id.snapshot_of(volume))
    }
}
