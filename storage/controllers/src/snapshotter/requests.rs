//! The requests to a driver about snapshots and groups, its responses, and what prevents a request.

use claimcheck_csi::v1::{
    CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, DeleteSnapshotRequest,
    DeleteVolumeGroupSnapshotRequest, GetSnapshotRequest, GetVolumeGroupSnapshotRequest,
    ListSnapshotsRequest,
};
use claimcheck_model::group_snapshot::VolumeSnapshotInfo;

use super::parameters::UnknownParameter;
use crate::rpc::SecretNameError;

/// How to create or poll a snapshot or group.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// By CreateSnapshot: the same call returns the same snapshot.
    Create(Box<CreateSnapshotRequest>),
    /// A pre-provisioned one by GetSnapshot.
    Get(GetSnapshotRequest),
    /// A pre-provisioned one by ListSnapshots with its id.
    List(ListSnapshotsRequest),
    /// Not at all: the driver has no such call, and so it is assumed to exist.
    Trust(String),
    /// By CreateVolumeGroupSnapshot: the same call returns the same group.
    CreateGroup(Box<CreateVolumeGroupSnapshotRequest>),
    /// A pre-provisioned group by GetVolumeGroupSnapshot.
    GetGroup(GetVolumeGroupSnapshotRequest),
}

/// How a snapshot or group comes into existence.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// The driver creates it for the content.
    Created,
    /// It exists, and this call polls it.
    Existing(Question),
    /// The driver creates it with its group; this call polls it once it has a handle.
    WithGroup(Option<Question>),
}

/// The call that deletes a snapshot or group.
pub enum Deletion {
    /// A snapshot.
    Snapshot(DeleteSnapshotRequest),
    /// A group, with its snapshots.
    Group(DeleteVolumeGroupSnapshotRequest),
}

/// The driver's response about a snapshot or group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The driver's id.
    pub handle: String,
    /// ready_to_use.
    pub ready: bool,
    /// The point in time of its data, in nanoseconds since 1970; none if it is unusable.
    pub created: Option<i64>,
    /// The minimum size of a volume created from a snapshot, in bytes; 0 if unknown.
    pub size: i64,
    /// The handle of the group that a snapshot is part of.
    pub group: Option<String>,
    /// The snapshots of a group, if it was created by this call or an earlier one with the same name.
    pub members: Vec<VolumeSnapshotInfo>,
}

/// Why no request can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The class was deleted.
    #[error("{resource} \"{class}\" not found")]
    NoClass {
        /// The resource of classes.
        resource: &'static str,
        /// The class.
        class: String,
    },
    /// See the error.
    #[error(transparent)]
    Parameter(#[from] UnknownParameter),
    /// See the error.
    #[error(transparent)]
    Secret(#[from] SecretNameError),
}
