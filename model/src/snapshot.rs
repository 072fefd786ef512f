//! The objects of `snapshot.storage.k8s.io/v1`, which are missing from k8s-openapi since they are CRDs.
//!
//! Upstream: `client/apis/volumesnapshot/v1/types.go` of kubernetes-csi/external-snapshotter.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};
use serde::{Deserialize, Serialize};

use crate::custom_kinds::kinds;

/// The group of all of them.
pub const GROUP: &str = "snapshot.storage.k8s.io";

kinds! {
    GROUP, "snapshot.storage.k8s.io/v1";
    /// A user's request for a snapshot of a claim, or for an existing snapshot.
    VolumeSnapshot in "volumesnapshots", NamespaceResourceScope {
        /// The desired snapshot.
        spec as "spec": VolumeSnapshotSpec,
        ..
        /// The observed state.
        status as "status": VolumeSnapshotStatus,
    }
    /// A snapshot in the storage system.
    VolumeSnapshotContent in "volumesnapshotcontents", ClusterResourceScope {
        /// The desired state.
        spec as "spec": VolumeSnapshotContentSpec,
        ..
        /// The state that the driver reports.
        status as "status": VolumeSnapshotContentStatus,
    }
    /// The parameters with which snapshots are created.
    VolumeSnapshotClass in "volumesnapshotclasses", ClusterResourceScope {
        /// The driver that creates them.
        driver as "driver": String,
        /// `Delete` or `Retain`: what happens to the snapshot in the storage system when its object is deleted.
        deletion_policy as "deletionPolicy": String,
        ..
        /// Parameters passed to the driver.
        parameters as "parameters": BTreeMap<String, String>,
    }
}

/// The desired snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSpec {
    /// The source.
    pub source: VolumeSnapshotSource,
    /// The class; unset for the driver's default class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

/// The source of a snapshot: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSource {
    /// A claim in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    /// An existing content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

/// The status of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    /// The bound content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// The point in time of its data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
    /// Whether claims can be restored from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The minimum size of a claim restored from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
    /// The group it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_name: Option<String>,
}

/// An error of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeSnapshotError {
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// The specification of a snapshot content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSpec {
    /// `Delete` or `Retain`.
    pub deletion_policy: String,
    /// The driver's name.
    pub driver: String,
    /// Its source.
    pub source: VolumeSnapshotContentSource,
    /// The volume mode of the source volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
    /// Its class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    /// The snapshot it is bound to or, without uid, intended for.
    pub volume_snapshot_ref: ObjectReference,
}

/// The source of a content: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSource {
    /// The handle of an existing snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// The handle of the volume to take a snapshot of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
}

/// The status of a snapshot content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentStatus {
    /// The point in time of its data, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
    /// Whether volumes can be created from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The minimum size of a volume created from it, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    /// The snapshot handle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// The handle of its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_handle: Option<String>,
}

impl VolumeSnapshot {
    /// Whether claims can be restored from it.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
    }

    /// The content it is bound to.
    pub fn content(&self) -> Option<&str> {
        self.status.as_ref()?.bound_volume_snapshot_content_name.as_deref()
    }
}

impl VolumeSnapshotContent {
    /// Whether volumes can be created from it.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
    }

    /// The snapshot handle, once the driver has taken or found the snapshot.
    pub fn handle(&self) -> Option<&str> {
        self.status.as_ref()?.snapshot_handle.as_deref()
    }

    /// Whether the snapshot is deleted from the storage system with its object.
    pub fn is_deleted_with_snapshot(&self) -> bool {
        self.spec.deletion_policy == "Delete"
    }

    /// Whether it is bound to this very snapshot.
    pub fn is_bound_to(&self, snapshot: &VolumeSnapshot) -> bool {
        let (bound, meta) = (&self.spec.volume_snapshot_ref, &snapshot.metadata);
        bound.uid == meta.uid && bound.name == meta.name && bound.namespace == meta.namespace
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_written_with_their_kind_and_without_what_is_unset() {
        let whole = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1",
            "kind": "VolumeSnapshot",
            "metadata": { "name": "s" },
            "spec": { "source": { "persistentVolumeClaimName": "data" } },
        });
        let snapshot: VolumeSnapshot = serde_json::from_value(whole.clone()).unwrap();
        assert_eq!(serde_json::to_value(&snapshot).unwrap(), whole);
        let class = json!({ "metadata": {}, "driver": "d", "deletionPolicy": "Retain" });
        let class: VolumeSnapshotClass = serde_json::from_value(class).unwrap();
        assert_eq!(serde_json::to_value(&class).unwrap()["kind"], "VolumeSnapshotClass");
    }

    #[test]
    fn binding_takes_the_uid() {
        let mut snapshot = VolumeSnapshot::default();
        snapshot.metadata.name = Some("s".into());
        snapshot.metadata.uid = Some("1".into());
        let mut content = VolumeSnapshotContent::default();
        content.spec.volume_snapshot_ref.name = Some("s".into());
        assert!(!content.is_bound_to(&snapshot));
        content.spec.volume_snapshot_ref.uid = Some("1".into());
        assert!(content.is_bound_to(&snapshot));
    }
}
