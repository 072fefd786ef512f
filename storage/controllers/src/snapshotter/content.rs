//! What the contents of snapshots and of groups have in common for both controllers; what differs is in
//! `content_of_snapshot.rs` and `content_of_group.rs`.

use std::{collections::BTreeMap, error::Error};

use claimcheck_informer::Watchable;
use claimcheck_model::{SNAPSHOT_MANAGED_BY, snapshot::VolumeSnapshotError};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::Value;

use super::{
    Settings,
    finalizers::has,
    parameters::Purpose,
    requests::{Cause, Deletion, Found, Origin, Question},
};
use crate::claims::{is_deleting, ref_uid};

/// The words for snapshots, or for groups, in the texts of upstream.
#[derive(Debug, PartialEq, Eq)]
pub struct Words {
    /// In sentences.
    pub what: &'static str,
    /// In the reasons of events, and in the names of kinds.
    pub camel: &'static str,
    /// At the beginning of errors, where upstream's texts differ in the first letter.
    pub failed: &'static str,
    /// The resource of classes.
    pub class: &'static str,
    /// The name of the controller of a driver in the log.
    pub snapshotter: &'static str,
}

/// Those for snapshots.
pub const SNAPSHOT: Words = Words {
    what: "snapshot",
    camel: "Snapshot",
    failed: "Failed",
    class: "volumesnapshotclass.snapshot.storage.k8s.io",
    snapshotter: "snapshotter",
};
/// Those for groups.
pub const GROUP: Words = Words {
    what: "group snapshot",
    camel: "GroupSnapshot",
    failed: "failed",
    class: "volumegroupsnapshotclass.groupsnapshot.storage.k8s.io",
    snapshotter: "group-snapshotter",
};

/// A class of snapshots or of groups.
pub trait Class: Watchable {
    /// The annotation of a default class.
    const DEFAULT: &'static str;

    /// The name of the driver.
    fn driver(&self) -> &str;

    /// Its parameters.
    fn parameters(&self) -> Option<&BTreeMap<String, String>>;
}

/// A content of a snapshot or of a group.
pub trait Content: Watchable + PartialEq {
    /// The kind of its class.
    type Class: Class;

    /// The words for it.
    const WORDS: &'static Words;
    /// The index by class.
    const BY_CLASS: Self::By;
    /// The calls that create and that poll, with their secrets.
    const PURPOSES: [Purpose; 2];
    /// The field of its status with the driver's id.
    const HANDLE: &'static str;
    /// The annotation while the driver may be creating the snapshot or group.
    const BEING_CREATED: &'static str;
    /// The annotation once the snapshot or group is being deleted.
    const BEING_DELETED: &'static str;
    /// The finalizer until the driver has deleted the snapshot or group.
    const PROTECTION: &'static str;
    /// The annotations with the name and the namespace of the secret.
    const SECRET: [&'static str; 2];

    /// The name of the driver.
    fn driver(&self) -> &str;

    /// The name of its class.
    fn class(&self) -> Option<&str>;

    /// The driver's id of the snapshot or group.
    fn handle(&self) -> Option<&str>;

    /// Whether the snapshot or group is ready to use.
    fn is_ready(&self) -> bool;

    /// Whether it names an existing snapshot or group.
    fn is_pre_provisioned(&self) -> bool;

    /// The snapshot or group that it is bound to or, without uid, intended for.
    fn bound_to(&self) -> &ObjectReference;

    /// Whether it is deleted with the snapshot or group that it is bound to.
    fn is_deleted_with_object(&self) -> bool;

    /// Whether the driver is called to delete the snapshot or group when the content is deleted.
    fn is_deleted_by_driver(&self) -> bool;

    /// Whether it has a status, without which it is a new one for upstream.
    fn has_status(&self) -> bool;

    /// The error in its status.
    fn error(&self) -> Option<&VolumeSnapshotError>;

    /// Removes from its status what a failure writes there.
    fn clear_failure(&mut self);

    /// How the snapshot or group comes into existence.
    fn origin(&self, settings: &Settings) -> Origin;

    /// The call that creates the snapshot or group with this name.
    fn creation(&self, name: String, parameters: BTreeMap<String, String>) -> Question;

    /// The call that deletes it.
    fn deletion(&self, handle: String, secrets: BTreeMap<String, String>) -> Deletion;

    /// Whether its status has the same group, or members, as this response.
    fn has_related(&self, found: &Found) -> bool;

    /// What a response adds to its status, in addition to the handle and whether it is ready.
    fn additions(&self, found: &Found) -> Value;

    /// Why the driver cannot be called, in upstream's words.
    fn obstacle(&self, cause: &Cause) -> String;

    /// Whether an obstacle to a call counts as a failure to create.
    fn is_obstacle_to_creation(&self) -> bool;

    /// The error of a call, or of the secret for it, in upstream's words.
    fn call_error(&self, creates: bool, error: &(dyn Error + Send + Sync + 'static)) -> String;
}

/// Whether a content is bound to the snapshot or group with this metadata.
pub fn is_bound_to<C: Content>(content: &C, meta: &ObjectMeta) -> bool {
    let bound = content.bound_to();
    bound.uid == meta.uid && bound.name == meta.name && bound.namespace == meta.namespace
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
