//! What snapshots and groups have in common for the controller of a cluster, apart from their contents.

use std::fmt::Debug;

use claimcheck_informer::{GroupContentBy, Watchable, World, quantity};
use claimcheck_model::{
    GROUP_SNAPSHOT_BOUND_PROTECTION, SNAPSHOT_BOUND_PROTECTION, SNAPSHOT_SOURCE_PROTECTION,
    group_snapshot::{VolumeGroupSnapshot, VolumeGroupSnapshotContent, VolumeGroupSnapshotStatus},
    group_snapshot_content_name,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotError, VolumeSnapshotStatus},
    snapshot_content_name,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use super::{content::Content, trouble::Trouble};

/// A snapshot or group.
pub trait Object: Watchable + PartialEq {
    /// The kind of its content.
    type Content: Content + Serialize;
    /// Its status.
    type Status: Clone + Debug + PartialEq + Serialize + Send + Sync;

    /// Its finalizers; `with_content`: its content is deleted with it.
    fn protections(with_content: bool) -> &'static [&'static str];

    /// Whether the driver has created what has this status.
    fn is_created(status: &Self::Status) -> bool;

    /// Whether claims can be provisioned from what has this status.
    fn is_ready(status: &Self::Status) -> bool;

    /// The error in this status.
    fn error(status: &Self::Status) -> Option<&VolumeSnapshotError>;

    /// Its current status.
    fn status(&self) -> Option<&Self::Status>;

    /// The name of its class.
    fn class(&self) -> Option<&str>;

    /// The name of the content that it is bound to.
    fn bound_content(&self) -> Option<&str>;

    /// The name of the existing content that it requests.
    fn requested_content(&self) -> Option<&str>;

    /// The name of the content that is created for it.
    fn created_content(&self) -> String;

    /// Its status according to its content. Upstream: `updateSnapshotStatus`, `updateGroupSnapshotStatus`.
    fn status_of(&self, content: &Self::Content, world: &World) -> Result<Self::Status, Trouble>;
}

impl Object for VolumeSnapshot {
    type Content = VolumeSnapshotContent;
    type Status = VolumeSnapshotStatus;

    /// As a source of claims and, if it is deleted with its content, for that.
    fn protections(with_content: bool) -> &'static [&'static str] {
        match with_content {
            true => &[SNAPSHOT_SOURCE_PROTECTION, SNAPSHOT_BOUND_PROTECTION],
            false => &[SNAPSHOT_SOURCE_PROTECTION],
        }
    }

    fn is_created(status: &VolumeSnapshotStatus) -> bool {
        status.creation_time.is_some()
    }

    fn is_ready(status: &VolumeSnapshotStatus) -> bool {
        status.ready_to_use == Some(true)
    }

    fn error(status: &VolumeSnapshotStatus) -> Option<&VolumeSnapshotError> {
        status.error.as_ref()
    }

    fn status(&self) -> Option<&VolumeSnapshotStatus> {
        self.status.as_ref()
    }

    fn class(&self) -> Option<&str> {
        self.spec.volume_snapshot_class_name.as_deref()
    }

    fn bound_content(&self) -> Option<&str> {
        self.content()
    }

    fn requested_content(&self) -> Option<&str> {
        self.spec.source.volume_snapshot_content_name.as_deref()
    }

    fn created_content(&self) -> String {
        snapshot_content_name(self.metadata.uid.as_deref().unwrap_or_default())
    }

    /// A snapshot that is part of a group does not become ready before its group is known.
    fn status_of(
        &self,
        content: &VolumeSnapshotContent,
        world: &World,
    ) -> Result<VolumeSnapshotStatus, Trouble> {
        let old = self.status.clone().unwrap_or_default();
        let known = content.status.clone().unwrap_or_default();
        let handle = known.volume_group_snapshot_handle.as_deref();
        let group = group_name(handle, &content.spec.driver, world);
        if handle.is_some() && group.is_none() && !self.is_ready() {
            return Err(Trouble::NoGroup);
        }
        let created = known.creation_time.and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok());
        Ok(VolumeSnapshotStatus {
            bound_volume_snapshot_content_name: old
                .bound_volume_snapshot_content_name
                .or_else(|| content.metadata.name.clone()),
            creation_time: old.creation_time.or_else(|| created.map(Time)),
            error: known.error,
            ready_to_use: Some(known.ready_to_use.unwrap_or(false)),
            restore_size: old.restore_size.or_else(|| known.restore_size.map(quantity::from_bytes)),
            volume_group_snapshot_name: old.volume_group_snapshot_name.or(group),
        })
    }
}

/// The name of the group with this handle in the storage system. Upstream: `updateSnapshotStatus`.
fn group_name(handle: Option<&str>, driver: &str, world: &World) -> Option<String> {
    let mut contents = world.group_snapshot_contents.by(GroupContentBy::Handle, handle?);
    let content = contents.find(|content| content.spec.driver == driver)?;
    content.spec.volume_group_snapshot_ref.name.clone()
}

impl Object for VolumeGroupSnapshot {
    type Content = VolumeGroupSnapshotContent;
    type Status = VolumeGroupSnapshotStatus;

    fn protections(_: bool) -> &'static [&'static str] {
        &[GROUP_SNAPSHOT_BOUND_PROTECTION]
    }

    fn is_created(status: &VolumeGroupSnapshotStatus) -> bool {
        status.creation_time.is_some()
    }

    fn is_ready(status: &VolumeGroupSnapshotStatus) -> bool {
        status.ready_to_use == Some(true)
    }

    fn error(status: &VolumeGroupSnapshotStatus) -> Option<&VolumeSnapshotError> {
        status.error.as_ref()
    }

    fn status(&self) -> Option<&VolumeGroupSnapshotStatus> {
        self.status.as_ref()
    }

    fn class(&self) -> Option<&str> {
        self.spec.volume_group_snapshot_class_name.as_deref()
    }

    fn bound_content(&self) -> Option<&str> {
        self.content()
    }

    fn requested_content(&self) -> Option<&str> {
        self.spec.source.volume_group_snapshot_content_name.as_deref()
    }

    fn created_content(&self) -> String {
        group_snapshot_content_name(self.metadata.uid.as_deref().unwrap_or_default())
    }

    fn status_of(
        &self,
        content: &VolumeGroupSnapshotContent,
        _: &World,
    ) -> Result<VolumeGroupSnapshotStatus, Trouble> {
        let old = self.status.clone().unwrap_or_default();
        let known = content.status.clone().unwrap_or_default();
        let bound = old.bound_volume_group_snapshot_content_name.or_else(|| content.metadata.name.clone());
        Ok(VolumeGroupSnapshotStatus {
            bound_volume_group_snapshot_content_name: bound,
            creation_time: old.creation_time.or(known.creation_time),
            error: known.error,
            ready_to_use: Some(known.ready_to_use.unwrap_or(false)),
        })
    }
}
