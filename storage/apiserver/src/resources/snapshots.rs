//! The group `snapshot.storage.k8s.io`, served as if its CRDs were installed.

use claimcheck_model::snapshot::{GROUP, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use serde_json::Value;

use super::decode::decode;
use super::{BASE, Generation, Resource, Storage, columns, status_of};
use crate::admission::snapshot;

/// Common defaults of CRD objects.
const CUSTOM: Resource =
    Resource { group: GROUP, generation: Generation::Versions, unconditional: false, ..BASE };

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::Snapshots,
            kind: "VolumeSnapshot",
            plural: "volumesnapshots",
            singular: "volumesnapshot",
            short_names: &["vs"],
            namespaced: true,
            subresources: const { &[status_of("VolumeSnapshot")] },
            decode: decode::<VolumeSnapshot>,
            quantities: &["status/restoreSize"],
            begin: without_status,
            validate: snapshot::validate,
            validate_update: snapshot::validate_update,
            columns: columns::SNAPSHOT,
            empty: r#","spec":{"source":{}}"#,
            ..CUSTOM
        },
        Resource {
            storage: Storage::SnapshotContents,
            kind: "VolumeSnapshotContent",
            plural: "volumesnapshotcontents",
            singular: "volumesnapshotcontent",
            short_names: &["vsc", "vscs"],
            subresources: const { &[status_of("VolumeSnapshotContent")] },
            decode: decode::<VolumeSnapshotContent>,
            begin: without_status,
            validate: snapshot::validate_content,
            validate_update: snapshot::validate_content_update,
            columns: columns::SNAPSHOT_CONTENT,
            empty: r#","spec":{"deletionPolicy":"","driver":"","source":{},"volumeSnapshotRef":{}}"#,
            ..CUSTOM
        },
        Resource {
            storage: Storage::SnapshotClasses,
            kind: "VolumeSnapshotClass",
            plural: "volumesnapshotclasses",
            singular: "volumesnapshotclass",
            short_names: &["vsclass", "vsclasses"],
            decode: decode::<VolumeSnapshotClass>,
            validate: snapshot::validate_class,
            columns: columns::SNAPSHOT_CLASS,
            empty: r#","driver":"","deletionPolicy":"""#,
            ..CUSTOM
        },
    ]
}

/// The status can be written through its own path only.
pub(super) fn without_status(object: &mut Value) {
    if let Value::Object(fields) = object {
        fields.shift_remove("status");
    }
}
