//! The objects of `groupsnapshot.storage.k8s.io/v1`: snapshots of several claims at one point in time.
//!
//! Upstream: `client/apis/volumegroupsnapshot/v1/types.go` of kubernetes-csi/external-snapshotter.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time},
};
use serde::{Deserialize, Serialize};

use crate::{
    custom_kinds::kinds,
    snapshot::{VolumeSnapshot, VolumeSnapshotError},
};

/// The group of all of them.
pub const GROUP: &str = "groupsnapshot.storage.k8s.io";

/// The apiVersion of all of them.
pub const API_VERSION: &str = "groupsnapshot.storage.k8s.io/v1";

kinds! {
    GROUP, "groupsnapshot.storage.k8s.io/v1";
    /// A user's request for snapshots of several claims at one point in time, or for an existing group.
    VolumeGroupSnapshot in "volumegroupsnapshots", NamespaceResourceScope {
        /// The desired group.
        spec as "spec": VolumeGroupSnapshotSpec,
        ..
        /// The observed state.
        status as "status": VolumeGroupSnapshotStatus,
    }
    /// A group of snapshots in the storage system.
    VolumeGroupSnapshotContent in "volumegroupsnapshotcontents", ClusterResourceScope {
        /// The desired state.
        spec as "spec": VolumeGroupSnapshotContentSpec,
        ..
        /// The state that the driver reports.
        status as "status": VolumeGroupSnapshotContentStatus,
    }
    /// The parameters with which groups of snapshots are created.
    VolumeGroupSnapshotClass in "volumegroupsnapshotclasses", ClusterResourceScope {
        /// The driver that creates them.
        driver as "driver": String,
        /// `Delete` or `Retain`: what happens to the group in the storage system when its object is deleted.
        deletion_policy as "deletionPolicy": String,
        ..
        /// Parameters passed to the driver.
        parameters as "parameters": BTreeMap<String, String>,
    }
}

/// The desired group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeGroupSnapshotSpec {
    /// The source.
    pub source: VolumeGroupSnapshotSource,
    /// The class; unset for the driver's default class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_class_name: Option<String>,
}

/// The source of a group: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeGroupSnapshotSource {
    /// Selects claims in the same namespace by their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// An existing content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_content_name: Option<String>,
}

/// The status of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeGroupSnapshotStatus {
    /// The bound content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_group_snapshot_content_name: Option<String>,
    /// The point in time of its data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
    /// Whether claims can be restored from all of its snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
}

/// The specification of a content of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeGroupSnapshotContentSpec {
    /// `Delete` or `Retain`.
    pub deletion_policy: String,
    /// The driver's name.
    pub driver: String,
    /// Its source.
    pub source: VolumeGroupSnapshotContentSource,
    /// Its class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_class_name: Option<String>,
    /// The group it is bound to or, without uid, intended for.
    pub volume_group_snapshot_ref: ObjectReference,
}

/// The source of a content of a group: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeGroupSnapshotContentSource {
    /// The handles of an existing group and its snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_snapshot_handles: Option<GroupSnapshotHandles>,
    /// The handles of the volumes to take snapshots of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handles: Option<Vec<String>>,
}

/// The handles of an existing group and its snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupSnapshotHandles {
    /// The handle of the group.
    pub volume_group_snapshot_handle: String,
    /// The handles of its snapshots.
    pub volume_snapshot_handles: Vec<String>,
}

/// The status of a content of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeGroupSnapshotContentStatus {
    /// The point in time of its data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
    /// Whether volumes can be created from all of its snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The handle of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_handle: Option<String>,
    /// Its snapshots, if they were created with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_info_list: Option<Vec<VolumeSnapshotInfo>>,
}

/// A snapshot of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotInfo {
    /// The point in time of its data, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// Whether volumes can be created from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The minimum size of a volume created from it, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    /// The snapshot handle.
    #[serde(default)]
    pub snapshot_handle: String,
    /// The handle of its volume.
    #[serde(default)]
    pub volume_handle: String,
}

impl VolumeGroupSnapshot {
    /// Whether claims can be restored from its snapshots.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
    }

    /// The content it is bound to.
    pub fn content(&self) -> Option<&str> {
        self.status.as_ref()?.bound_volume_group_snapshot_content_name.as_deref()
    }

    /// The reference to it in its members.
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: "VolumeGroupSnapshot".to_owned(),
            name: self.metadata.name.clone().unwrap_or_default(),
            uid: self.metadata.uid.clone().unwrap_or_default(),
            ..OwnerReference::default()
        }
    }
}

impl VolumeGroupSnapshotContent {
    /// Whether volumes can be created from its snapshots.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
    }

    /// The handle of the group, once the driver has created or found it.
    pub fn handle(&self) -> Option<&str> {
        self.status.as_ref()?.volume_group_snapshot_handle.as_deref()
    }

    /// The snapshots that were created with it.
    pub fn members(&self) -> &[VolumeSnapshotInfo] {
        let list = self.status.as_ref().and_then(|status| status.volume_snapshot_info_list.as_deref());
        list.unwrap_or_default()
    }

    /// The handles of its snapshots: of those that were created with it, or of the existing ones.
    pub fn snapshot_handles(&self) -> Vec<String> {
        match (self.members(), &self.spec.source.group_snapshot_handles) {
            ([], Some(existing)) => existing.volume_snapshot_handles.clone(),
            (members, _) => members.iter().map(|member| member.snapshot_handle.clone()).collect(),
        }
    }

    /// Whether the group is deleted from the storage system with its object.
    pub fn is_deleted_with_group(&self) -> bool {
        self.spec.deletion_policy == "Delete"
    }

    /// Whether it is bound to this very group.
    pub fn is_bound_to(&self, group: &VolumeGroupSnapshot) -> bool {
        let (bound, meta) = (&self.spec.volume_group_snapshot_ref, &group.metadata);
        bound.uid == meta.uid && bound.name == meta.name && bound.namespace == meta.namespace
    }
}

/// The name of the group that owns a snapshot, in the same namespace. Upstream: `IsVolumeGroupSnapshotMember` in
/// `pkg/utils/vgs.go`.
pub fn owning_group(snapshot: &VolumeSnapshot) -> Option<&str> {
    let mut owners = snapshot.metadata.owner_references.iter().flatten();
    let group = owners.find(|owner| owner.kind == "VolumeGroupSnapshot" && owner.api_version == API_VERSION);
    group.map(|owner| owner.name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_owns_its_members() {
        let mut group = VolumeGroupSnapshot::default();
        group.metadata.name = Some("g".into());
        group.metadata.uid = Some("1".into());
        let mut member = VolumeSnapshot::default();
        assert_eq!(owning_group(&member), None);
        let mut other = group.owner_reference();
        other.kind = "ConfigMap".into();
        member.metadata.owner_references = Some(vec![other, group.owner_reference()]);
        assert_eq!(owning_group(&member), Some("g"));
    }

    #[test]
    fn handles_are_those_of_the_status_or_of_an_existing_group() {
        let spec = |source| {
            json!({
                "metadata": {},
                "spec": {
                    "deletionPolicy": "Delete",
                    "driver": "d",
                    "source": source,
                    "volumeGroupSnapshotRef": { "name": "g", "namespace": "n" },
                },
            })
        };
        let handles = json!({ "volumeGroupSnapshotHandle": "h", "volumeSnapshotHandles": ["a", "b"] });
        let existing = spec(json!({ "groupSnapshotHandles": handles }));
        let existing: VolumeGroupSnapshotContent = serde_json::from_value(existing).unwrap();
        assert_eq!(existing.snapshot_handles(), ["a", "b"]);
        let mut created = spec(json!({ "volumeHandles": ["v"] }));
        created["status"] =
            json!({ "volumeSnapshotInfoList": [{ "volumeHandle": "v", "snapshotHandle": "s" }] });
        let created: VolumeGroupSnapshotContent = serde_json::from_value(created).unwrap();
        assert_eq!(created.snapshot_handles(), ["s"]);
        assert!(created.handle().is_none() && !created.is_ready());
    }
}
