//! The group `snapshot.storage.k8s.io`, served as if its CRDs were installed.

use claimcheck_model::snapshot::{GROUP, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use serde_json::Value;

use super::cells::{age, name, since};
use super::columns::{AGE_TEXT, Column, NAME_TEXT};
use super::decode::decode;
use super::{BASE, Resource, Storage, status_of};
use crate::admission::snapshot;

/// Common defaults of CRD objects.
const CUSTOM: Resource = Resource { group: GROUP, generation: true, ..BASE };

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
            columns: SNAPSHOT,
            cells: |object| {
                let (spec, status) = (&object["spec"], &object["status"]);
                vec![
                    name(object),
                    status["readyToUse"].clone(),
                    spec["source"]["persistentVolumeClaimName"].clone(),
                    spec["source"]["volumeSnapshotContentName"].clone(),
                    status["restoreSize"].clone(),
                    spec["volumeSnapshotClassName"].clone(),
                    status["boundVolumeSnapshotContentName"].clone(),
                    status["creationTime"].as_str().map_or(Value::Null, |time| since(Some(time))),
                    age(object),
                ]
            },
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
            columns: CONTENT,
            cells: |object| {
                let (spec, status) = (&object["spec"], &object["status"]);
                vec![
                    name(object),
                    status["readyToUse"].clone(),
                    status["restoreSize"].clone(),
                    spec["deletionPolicy"].clone(),
                    spec["driver"].clone(),
                    spec["volumeSnapshotClassName"].clone(),
                    spec["volumeSnapshotRef"]["name"].clone(),
                    spec["volumeSnapshotRef"]["namespace"].clone(),
                    age(object),
                ]
            },
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
            columns: CLASS,
            cells: |object| {
                vec![name(object), object["driver"].clone(), object["deletionPolicy"].clone(), age(object)]
            },
            empty: r#","driver":"","deletionPolicy":"""#,
            ..CUSTOM
        },
    ]
}

/// The status can be written through its own path only.
fn without_status(object: &mut Value) {
    if let Value::Object(fields) = object {
        fields.shift_remove("status");
    }
}

const NAME: Column =
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT };
const AGE: Column = column("Age", "date", AGE_TEXT);

const fn column(name: &'static str, kind: &'static str, description: &'static str) -> Column {
    Column { name, kind, format: "", priority: 0, description }
}

const READY: Column = column("ReadyToUse", "boolean", "Whether volumes can be restored from the snapshot.");
const SNAPSHOT: &[Column] = &[
    NAME,
    READY,
    column("SourcePVC", "string", "The source claim of the snapshot."),
    column("SourceSnapshotContent", "string", "The existing content that the snapshot refers to."),
    column("RestoreSize", "string", "Minimum size of a claim restored from the snapshot."),
    column("SnapshotClass", "string", "The VolumeSnapshotClass that the snapshot requests."),
    column("SnapshotContent", "string", "The content that the snapshot is bound to."),
    column("CreationTime", "date", "The time at which the storage system created the snapshot."),
    AGE,
];
const CONTENT: &[Column] = &[
    NAME,
    READY,
    column("RestoreSize", "integer", "Minimum size of a volume restored from the snapshot, in bytes."),
    column(
        "DeletionPolicy",
        "string",
        "Whether the storage snapshot is deleted together with its VolumeSnapshot.",
    ),
    column("Driver", "string", "The CSI driver that created the snapshot."),
    column("VolumeSnapshotClass", "string", "The class of the snapshot."),
    column("VolumeSnapshot", "string", "The name of the VolumeSnapshot that the content is bound to."),
    column("VolumeSnapshotNamespace", "string", "The namespace of that VolumeSnapshot."),
    AGE,
];
const CLASS: &[Column] = &[
    NAME,
    column("Driver", "string", "The CSI driver that creates the snapshots."),
    column(
        "DeletionPolicy",
        "string",
        "Whether the storage snapshot is deleted together with its VolumeSnapshot.",
    ),
    AGE,
];
