//! The members of a group: a VolumeSnapshot and its content for each snapshot that the driver created with the group.
//!
//! Upstream: `createIndividualSnapshotForGroupSnapshot` in
//! `pkg/common-controller/groupsnapshot_controller_helper.go`. Unlike there the snapshot is created before its content,
//! which is bound to it from the beginning: one write less.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::{VolumeBy, World, reference};
use claimcheck_model::{
    GROUP_SNAPSHOT_SECRET_NAME, GROUP_SNAPSHOT_SECRET_NAMESPACE, ObjectKey, SNAPSHOT_CONTENT_PROTECTION,
    SNAPSHOT_GROUP, SNAPSHOT_IN_GROUP_PROTECTION, SNAPSHOT_SECRET_NAME, SNAPSHOT_SECRET_NAMESPACE,
    group_snapshot::{VolumeGroupSnapshot, VolumeGroupSnapshotContent, VolumeSnapshotInfo},
    snapshot::{
        VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentSource, VolumeSnapshotContentSpec,
        VolumeSnapshotContentStatus, VolumeSnapshotSource, VolumeSnapshotSpec,
    },
};
use k8s_openapi::{api::core::v1::PersistentVolume, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::plan::Action;
use crate::claims::{annotation, claim_ref};

/// The next step of each member of a group that the driver has created; none once all are bound. All at once, since the
/// number of plans in a row is limited.
pub fn next(group: &VolumeGroupSnapshot, of: &VolumeGroupSnapshotContent, world: &World) -> Vec<Action> {
    let Some(handle) = of.handle() else { return Vec::new() };
    of.members().iter().filter_map(|member| step(group, of, handle, member, world)).collect()
}

fn step(
    group: &VolumeGroupSnapshot,
    of: &VolumeGroupSnapshotContent,
    handle: &str,
    member: &VolumeSnapshotInfo,
    world: &World,
) -> Option<Action> {
    let uid = group.metadata.uid.as_deref().unwrap_or_default();
    let named = |prefix| member_name(prefix, uid, &member.volume_handle);
    let key = ObjectKey::new(group.metadata.namespace.as_deref().unwrap_or_default(), named("snapshot"));
    let Some(snapshot) = world.snapshots.get(&key) else {
        let volume = volume(of, member, world);
        return Some(Action::CreateMember(Box::new(new_snapshot(group, &key, volume))));
    };
    let content = named("snapcontent");
    let Some(found) = world.snapshot_contents.named(&content) else {
        let volume = volume(of, member, world);
        let content = new_content(content, of, handle, member, snapshot, volume);
        return Some(Action::CreateMemberContent(Box::new(content)));
    };
    if found.handle().is_none() {
        let status = VolumeSnapshotContentStatus {
            creation_time: member.creation_time,
            error: None,
            ready_to_use: member.ready_to_use,
            restore_size: member.restore_size,
            snapshot_handle: Some(member.snapshot_handle.clone()),
            volume_group_snapshot_handle: Some(handle.to_owned()),
        };
        return Some(Action::ReportMember { content: found.clone(), status: Box::new(status) });
    }
    let unbound = snapshot.content().is_none();
    unbound.then(|| Action::BindMember { snapshot: snapshot.clone(), content })
}

/// The name of an object of a member. Upstream: `getSnapshotNameForVolumeGroupSnapshotContent`.
fn member_name(prefix: &str, group_uid: &str, volume_handle: &str) -> String {
    format!("{prefix}-{}", claimcheck_model::sha256(format!("{group_uid}{volume_handle}")))
}

/// The volume of a member. Upstream uses none if several PersistentVolumes have its handle
/// (`findPersistentVolumeByCSIDriverHandle`).
fn volume<'w>(
    of: &VolumeGroupSnapshotContent,
    member: &VolumeSnapshotInfo,
    world: &'w World,
) -> Option<&'w Arc<PersistentVolume>> {
    let handle = format!("{}^{}", of.spec.driver, member.volume_handle);
    let mut volumes = world.volumes.by(VolumeBy::Handle, &handle);
    let first = volumes.next();
    first.filter(|_| volumes.next().is_none())
}

fn new_snapshot(
    group: &VolumeGroupSnapshot,
    key: &ObjectKey,
    volume: Option<&Arc<PersistentVolume>>,
) -> VolumeSnapshot {
    let claim = volume.and_then(|volume| claim_ref(volume)?.name.clone());
    VolumeSnapshot {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            owner_references: Some(vec![group.owner_reference()]),
            finalizers: Some(vec![SNAPSHOT_IN_GROUP_PROTECTION.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: VolumeSnapshotSpec {
            source: VolumeSnapshotSource {
                // Empty if it is unknown, as upstream: one of the two must be set.
                persistent_volume_claim_name: Some(claim.unwrap_or_default()),
                volume_snapshot_content_name: None,
            },
            volume_snapshot_class_name: None,
        },
        status: None,
    }
}

fn new_content(
    name: String,
    of: &VolumeGroupSnapshotContent,
    handle: &str,
    member: &VolumeSnapshotInfo,
    snapshot: &VolumeSnapshot,
    volume: Option<&Arc<PersistentVolume>>,
) -> VolumeSnapshotContent {
    let mut annotations = BTreeMap::from([(SNAPSHOT_GROUP.to_owned(), handle.to_owned())]);
    let secrets = [
        (GROUP_SNAPSHOT_SECRET_NAME, SNAPSHOT_SECRET_NAME),
        (GROUP_SNAPSHOT_SECRET_NAMESPACE, SNAPSHOT_SECRET_NAMESPACE),
    ];
    for (of_group, of_member) in secrets {
        if let Some(value) = annotation(of, of_group) {
            annotations.insert(of_member.to_owned(), value.to_owned());
        }
    }
    VolumeSnapshotContent {
        metadata: ObjectMeta {
            name: Some(name),
            annotations: Some(annotations),
            finalizers: Some(vec![SNAPSHOT_CONTENT_PROTECTION.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: VolumeSnapshotContentSpec {
            deletion_policy: of.spec.deletion_policy.clone(),
            driver: of.spec.driver.clone(),
            source: VolumeSnapshotContentSource {
                volume_handle: Some(member.volume_handle.clone()),
                snapshot_handle: None,
            },
            source_volume_mode: volume.and_then(|volume| volume.spec.as_ref()?.volume_mode.clone()),
            volume_snapshot_class_name: None,
            volume_snapshot_ref: reference(snapshot),
        },
        status: None,
    }
}
