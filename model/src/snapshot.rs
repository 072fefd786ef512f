//! The objects of `snapshot.storage.k8s.io/v1`, which k8s-openapi does not have, since CRDs bring them.
//!
//! Upstream: `client/apis/volumesnapshot/v1/types.go` of kubernetes-csi/external-snapshotter.

use std::collections::BTreeMap;

use k8s_openapi::{
    ClusterResourceScope, Metadata, NamespaceResourceScope, Resource,
    api::core::v1::ObjectReference,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, Time},
    },
};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};

/// The group of all of them.
pub const GROUP: &str = "snapshot.storage.k8s.io";

/// From one list: each kind's struct, and what makes it an object of the API. Objects are written with their
/// kind, as k8s-openapi writes its own, and are read without looking at it.
macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $kind:ident in $plural:literal, $scope:ident {
            $($(#[$must_doc:meta])* $must:ident as $must_json:literal: $must_type:ty,)*
            ..
            $($(#[$may_doc:meta])* $may:ident as $may_json:literal: $may_type:ty,)*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
            pub struct $kind {
                /// Name, namespace and the like.
                pub metadata: ObjectMeta,
                $($(#[$must_doc])* #[serde(rename = $must_json)] pub $must: $must_type,)*
                $($(#[$may_doc])* #[serde(rename = $may_json, default)] pub $may: Option<$may_type>,)*
            }

            impl Resource for $kind {
                const API_VERSION: &'static str = "snapshot.storage.k8s.io/v1";
                const GROUP: &'static str = GROUP;
                const KIND: &'static str = stringify!($kind);
                const VERSION: &'static str = "v1";
                const URL_PATH_SEGMENT: &'static str = $plural;
                type Scope = $scope;
            }

            impl Metadata for $kind {
                type Ty = ObjectMeta;
                fn metadata(&self) -> &ObjectMeta {
                    &self.metadata
                }
                fn metadata_mut(&mut self) -> &mut ObjectMeta {
                    &mut self.metadata
                }
            }

            impl Serialize for $kind {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let mut object = serializer.serialize_struct(Self::KIND, 5)?;
                    object.serialize_field("apiVersion", Self::API_VERSION)?;
                    object.serialize_field("kind", Self::KIND)?;
                    object.serialize_field("metadata", &self.metadata)?;
                    $(object.serialize_field($must_json, &self.$must)?;)*
                    $(if let Some(value) = &self.$may {
                        object.serialize_field($may_json, value)?;
                    })*
                    object.end()
                }
            }
        )*
    };
}

kinds! {
    /// A user's wish for a snapshot of a claim, or the use of one that is there.
    VolumeSnapshot in "volumesnapshots", NamespaceResourceScope {
        /// What is wished for.
        spec as "spec": VolumeSnapshotSpec,
        ..
        /// What came of it.
        status as "status": VolumeSnapshotStatus,
    }
    /// A snapshot as it is in the storage system.
    VolumeSnapshotContent in "volumesnapshotcontents", ClusterResourceScope {
        /// Which snapshot it is.
        spec as "spec": VolumeSnapshotContentSpec,
        ..
        /// What the driver says of it.
        status as "status": VolumeSnapshotContentStatus,
    }
    /// How snapshots are made.
    VolumeSnapshotClass in "volumesnapshotclasses", ClusterResourceScope {
        /// The driver that makes them.
        driver as "driver": String,
        /// `Delete` or `Retain`: what becomes of a snapshot in the storage system when its object goes.
        deletion_policy as "deletionPolicy": String,
        ..
        /// What the driver is told.
        parameters as "parameters": BTreeMap<String, String>,
    }
}

/// What is wished for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSpec {
    /// Of what.
    pub source: VolumeSnapshotSource,
    /// The class; unset for the default one of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

/// Of what a snapshot is made: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSource {
    /// A claim of the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    /// A content that is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

/// What came of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    /// The content it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// The moment of which it holds the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
    /// Claims can be made from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// What a claim from it must ask for at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
    /// The group it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_name: Option<String>,
}

/// What went wrong with a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeSnapshotError {
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// Which snapshot a content is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSpec {
    /// `Delete` or `Retain`.
    pub deletion_policy: String,
    /// Whose snapshot it is.
    pub driver: String,
    /// What it is made of, or what it is.
    pub source: VolumeSnapshotContentSource,
    /// Whether the volume was a file system or a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
    /// The class it was made by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    /// The snapshot it is bound to or, without uid, meant for.
    pub volume_snapshot_ref: ObjectReference,
}

/// What a content is: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSource {
    /// A snapshot that is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// The volume of which one is to be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
}

/// What the driver says of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentStatus {
    /// The moment of which it holds the data, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
    /// Volumes can be made from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// What a volume from it needs at least, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    /// What the driver calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// What the driver calls the group it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_handle: Option<String>,
}

impl VolumeSnapshot {
    /// Whether claims can be made from it.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
    }

    /// The content it is bound to.
    pub fn content(&self) -> Option<&str> {
        self.status.as_ref()?.bound_volume_snapshot_content_name.as_deref()
    }
}

impl VolumeSnapshotContent {
    /// Whether volumes can be made from it.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
    }

    /// What the driver calls the snapshot, once it has cut or found it.
    pub fn handle(&self) -> Option<&str> {
        self.status.as_ref()?.snapshot_handle.as_deref()
    }

    /// Whether the snapshot goes from the storage system with its object.
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
