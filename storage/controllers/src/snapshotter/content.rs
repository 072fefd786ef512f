//! What the contents of snapshots and of groups have in common for the snapshotter of a driver.

use claimcheck_informer::Watchable;
use claimcheck_model::{
    GROUP_SNAPSHOT_BEING_CREATED, GROUP_SNAPSHOT_BEING_DELETED, GROUP_SNAPSHOT_CONTENT_PROTECTION,
    GROUP_SNAPSHOT_SECRET_NAME, GROUP_SNAPSHOT_SECRET_NAMESPACE, SNAPSHOT_BEING_CREATED,
    SNAPSHOT_BEING_DELETED, SNAPSHOT_CONTENT_PROTECTION, SNAPSHOT_GROUP, SNAPSHOT_MANAGED_BY,
    SNAPSHOT_SECRET_NAME, SNAPSHOT_SECRET_NAMESPACE,
    group_snapshot::{VolumeGroupSnapshotContent, VolumeGroupSnapshotContentStatus},
    snapshot::{VolumeSnapshotContent, VolumeSnapshotContentStatus, VolumeSnapshotError},
};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::{Settings, finalizers::has};
use crate::claims::{annotation, is_deleting, ref_uid};

/// A content of a snapshot or of a group.
pub trait Content: Watchable + PartialEq {
    /// The annotation while the driver may be creating the snapshot or group.
    const BEING_CREATED: &'static str;
    /// The annotation once the snapshot or group is being deleted.
    const BEING_DELETED: &'static str;
    /// The finalizer until the driver has deleted the snapshot or group.
    const PROTECTION: &'static str;
    /// The annotations with the name and the namespace of the secret.
    const SECRET: [&'static str; 2];

    /// The driver's id of the snapshot or group.
    fn handle(&self) -> Option<&str>;

    /// Whether the snapshot or group is ready to use.
    fn is_ready(&self) -> bool;

    /// Whether it names an existing snapshot or group.
    fn is_pre_provisioned(&self) -> bool;

    /// The snapshot or group that it is bound to or, without uid, intended for.
    fn bound_to(&self) -> &ObjectReference;

    /// Whether the driver is called to delete the snapshot or group when the content is deleted.
    fn is_deleted_by_driver(&self) -> bool;

    /// The error in its status.
    fn error(&self) -> Option<&VolumeSnapshotError>;

    /// Removes from its status what a failure writes there.
    fn clear_failure(&mut self);
}

impl Content for VolumeSnapshotContent {
    const BEING_CREATED: &'static str = SNAPSHOT_BEING_CREATED;
    const BEING_DELETED: &'static str = SNAPSHOT_BEING_DELETED;
    const PROTECTION: &'static str = SNAPSHOT_CONTENT_PROTECTION;
    const SECRET: [&'static str; 2] = [SNAPSHOT_SECRET_NAME, SNAPSHOT_SECRET_NAMESPACE];

    fn handle(&self) -> Option<&str> {
        self.handle()
    }

    fn is_ready(&self) -> bool {
        self.is_ready()
    }

    fn is_pre_provisioned(&self) -> bool {
        self.spec.source.snapshot_handle.is_some()
    }

    fn bound_to(&self) -> &ObjectReference {
        &self.spec.volume_snapshot_ref
    }

    /// The driver deletes what is part of a group with the group.
    fn is_deleted_by_driver(&self) -> bool {
        self.is_deleted_with_snapshot() && !is_of_group(self)
    }

    fn error(&self) -> Option<&VolumeSnapshotError> {
        self.status.as_ref()?.error.as_ref()
    }

    fn clear_failure(&mut self) {
        if let Some(status) = &mut self.status {
            status.error = None;
            status.ready_to_use = status.ready_to_use.filter(|ready| *ready);
        }
        self.status = self.status.take().filter(|status| *status != VolumeSnapshotContentStatus::default());
    }
}

impl Content for VolumeGroupSnapshotContent {
    const BEING_CREATED: &'static str = GROUP_SNAPSHOT_BEING_CREATED;
    const BEING_DELETED: &'static str = GROUP_SNAPSHOT_BEING_DELETED;
    const PROTECTION: &'static str = GROUP_SNAPSHOT_CONTENT_PROTECTION;
    const SECRET: [&'static str; 2] = [GROUP_SNAPSHOT_SECRET_NAME, GROUP_SNAPSHOT_SECRET_NAMESPACE];

    fn handle(&self) -> Option<&str> {
        self.handle()
    }

    fn is_ready(&self) -> bool {
        self.is_ready()
    }

    fn is_pre_provisioned(&self) -> bool {
        self.spec.source.group_snapshot_handles.is_some()
    }

    fn bound_to(&self) -> &ObjectReference {
        &self.spec.volume_group_snapshot_ref
    }

    fn is_deleted_by_driver(&self) -> bool {
        self.is_deleted_with_group()
    }

    fn error(&self) -> Option<&VolumeSnapshotError> {
        self.status.as_ref()?.error.as_ref()
    }

    fn clear_failure(&mut self) {
        if let Some(status) = &mut self.status {
            status.error = None;
            status.ready_to_use = status.ready_to_use.filter(|ready| *ready);
        }
        self.status =
            self.status.take().filter(|status| *status != VolumeGroupSnapshotContentStatus::default());
    }
}

/// Whether a content is bound to, or intended for, the snapshot or group with this metadata.
pub fn is_meant_for<C: Content>(content: &C, meta: &ObjectMeta) -> bool {
    let meant = content.bound_to();
    meant.name == meta.name
        && meant.namespace == meta.namespace
        && ref_uid(meant).is_none_or(|uid| meta.uid.as_deref() == Some(uid))
}

/// Whether a content is bound, and has no finalizer yet. Upstream: `syncContent` and `syncGroupSnapshotContent` in
/// `pkg/common-controller`.
pub fn is_unprotected<C: Content>(content: &C) -> bool {
    let bound = ref_uid(content.bound_to()).is_some();
    bound && !has(content.metadata(), C::PROTECTION) && !is_deleting(content)
}

/// Whether this snapshotter handles the content. With `--node-deployment` one without the label is handled by none, such
/// as a pre-provisioned one that its author did not label, and the content of every group, which the snapshot controller
/// does not label. Upstream: the informers of contents in `cmd/csi-snapshotter/main.go`.
pub fn is_managed<C: Content>(content: &C, settings: &Settings) -> bool {
    let label = content.metadata().labels.as_ref().and_then(|labels| labels.get(SNAPSHOT_MANAGED_BY));
    settings.node.is_none() || settings.node.as_ref() == label
}

/// Whether the snapshot is part of a group, with which the driver creates and deletes it.
pub fn is_of_group(content: &VolumeSnapshotContent) -> bool {
    let status = content.status.as_ref();
    annotation(content, SNAPSHOT_GROUP).is_some()
        || status.is_some_and(|status| status.volume_group_snapshot_handle.is_some())
}
