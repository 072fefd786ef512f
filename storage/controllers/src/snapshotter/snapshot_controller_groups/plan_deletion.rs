//! The next step of a group of snapshots that is being deleted.
//!
//! Upstream: `processGroupSnapshotWithDeletionTimestamp` in
//! `pkg/common-controller/groupsnapshot_controller_helper.go`.

use std::sync::Arc;

use claimcheck_informer::{ClaimBy, DataSource, SnapshotBy, World, key_of};
use claimcheck_model::{
    GROUP_SNAPSHOT_BEING_DELETED, GROUP_SNAPSHOT_BOUND_PROTECTION, ObjectKey, RESTORE_PROTECTION,
    group_snapshot::{VolumeGroupSnapshot, VolumeGroupSnapshotContent, owning_group},
    group_snapshot_content_name,
    snapshot::VolumeSnapshot,
};

use super::plan::Action;
use crate::{
    claims::{annotation, is_deleting, precedes_deletion},
    snapshotter::{finalizers::has, plan_binding::Binding},
};

/// Plans a group that is being deleted: its content and its members first.
pub fn plan_deletion(key: &ObjectKey, group: &Arc<VolumeGroupSnapshot>, world: &World) -> Vec<Action> {
    if !has(&group.metadata, GROUP_SNAPSHOT_BOUND_PROTECTION) {
        return Vec::new();
    }
    let key = key.to_string();
    let named = || world.snapshots.by(SnapshotBy::Group, &key);
    // Not the imported ones that it does not own yet.
    let members = || named().filter(|member| owning_group(member).is_some());
    if let Some(member) = members().find(|member| is_source(member, group, world)) {
        return vec![Action::ReportInUse { group: group.clone(), snapshot: key_of(&**member) }];
    }
    let content = content_of(group, world);
    if let Some(content) = content {
        if annotation(&**content, GROUP_SNAPSHOT_BEING_DELETED).is_none() {
            return vec![Action::Bind(Binding::Announce(content.clone()))];
        }
        if content.is_deleted_with_group() && !is_deleting(&**content) {
            return vec![Action::Bind(Binding::DeleteContent(content.clone()))];
        }
    }
    let present = members().filter(|member| !is_deleting(&***member));
    let deletions: Vec<Action> = present.map(|member| Action::DeleteMember(member.clone())).collect();
    if !deletions.is_empty() {
        return deletions;
    }
    let waits = content.is_some_and(|content| content.is_deleted_with_group());
    let mut finalizers = group.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|held| held != GROUP_SNAPSHOT_BOUND_PROTECTION);
    let release = Binding::SetFinalizers { object: group.clone(), finalizers };
    Vec::from_iter((!waits).then_some(Action::Bind(release)))
}

/// Its content, if the two are bound to each other: a content that is not recorded in its group's status yet is found
/// by its name.
fn content_of<'w>(
    group: &VolumeGroupSnapshot,
    world: &'w World,
) -> Option<&'w Arc<VolumeGroupSnapshotContent>> {
    let created = || group_snapshot_content_name(group.metadata.uid.as_deref().unwrap_or_default());
    let requested = group.spec.source.volume_group_snapshot_content_name.as_deref();
    let content = match group.content().or(requested) {
        Some(content) => world.group_snapshot_contents.named(content),
        None => world.group_snapshot_contents.named(&created()),
    };
    content.filter(|content| content.is_bound_to(group))
}

/// Whether a claim that existed before the group's deletion is still being provisioned from a member, or the driver may
/// still read it, see `snapshot_controller/plan_deletion.rs`.
fn is_source(member: &VolumeSnapshot, group: &VolumeGroupSnapshot, world: &World) -> bool {
    if has(&member.metadata, RESTORE_PROTECTION) {
        return true;
    }
    let source = DataSource::Snapshot(key_of(member)).to_string();
    world.claims.by(ClaimBy::Source, &source).any(|claim| precedes_deletion(claim, group))
}
