//! Records of snapshots and of groups of snapshots.
//!
//! A snapshot is a full copy: it depends neither on its volume nor on other snapshots. One that belongs to a
//! group exists only while the group's record does, so that all snapshots of a group appear and disappear at
//! once.

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
    /// The source volume, which may have been deleted.
    pub source: VolumeId,
    /// The kind of its volume.
    pub kind: Kind,
    /// The size of its volume in bytes.
    pub size_bytes: u64,
    /// The requested file system of its volume.
    pub fs_type: Option<FsType>,
    /// The point in time of the snapshot.
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
    /// The source volumes.
    pub sources: BTreeSet<VolumeId>,
    /// The point in time of all its snapshots.
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
    /// The id of the group's snapshot of a volume. It contains a zero byte, which no snapshot name does, so it
    /// is unique.
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
