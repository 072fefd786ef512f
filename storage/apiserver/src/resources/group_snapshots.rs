//! The group `groupsnapshot.storage.k8s.io`, served as if its CRDs were installed.

use claimcheck_model::group_snapshot::{
    GROUP, VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent,
};

use super::decode::decode;
use super::snapshots::without_status;
use super::{BASE, Generation, Resource, Storage, columns, status_of};
use crate::admission::group_snapshot;

/// Common defaults of CRD objects.
const CUSTOM: Resource =
    Resource { group: GROUP, generation: Generation::Versions, unconditional: false, ..BASE };

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::GroupSnapshots,
            kind: "VolumeGroupSnapshot",
            plural: "volumegroupsnapshots",
            singular: "volumegroupsnapshot",
            short_names: &["vgs"],
            namespaced: true,
            subresources: const { &[status_of("VolumeGroupSnapshot")] },
            decode: decode::<VolumeGroupSnapshot>,
            begin: without_status,
            validate: group_snapshot::validate,
            validate_update: group_snapshot::validate_update,
            columns: columns::GROUP_SNAPSHOT,
            empty: r#","spec":{"source":{}}"#,
            ..CUSTOM
        },
        Resource {
            storage: Storage::GroupSnapshotContents,
            kind: "VolumeGroupSnapshotContent",
            plural: "volumegroupsnapshotcontents",
            singular: "volumegroupsnapshotcontent",
            short_names: &["vgsc", "vgscs"],
            subresources: const { &[status_of("VolumeGroupSnapshotContent")] },
            decode: decode::<VolumeGroupSnapshotContent>,
            begin: without_status,
            validate: group_snapshot::validate_content,
            validate_update: group_snapshot::validate_content_update,
            columns: columns::GROUP_SNAPSHOT_CONTENT,
            empty: r#","spec":{"deletionPolicy":"","driver":"","source":{},"volumeGroupSnapshotRef":{}}"#,
            ..CUSTOM
        },
        Resource {
            storage: Storage::GroupSnapshotClasses,
            kind: "VolumeGroupSnapshotClass",
            plural: "volumegroupsnapshotclasses",
            singular: "volumegroupsnapshotclass",
            short_names: &["vgsclass", "vgsclasses"],
            decode: decode::<VolumeGroupSnapshotClass>,
            validate: group_snapshot::validate_class,
            validate_update: group_snapshot::validate_class_update,
            columns: columns::GROUP_SNAPSHOT_CLASS,
            empty: r#","driver":"","deletionPolicy":"""#,
            ..CUSTOM
        },
    ]
}
