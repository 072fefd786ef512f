//! The next step of a snapshot that is being deleted.
//!
//! Upstream: `processSnapshotWithDeletionTimestamp` and `checkandRemoveSnapshotFinalizersAndCheckandDeleteContent` in
//! `pkg/common-controller/snapshot_controller.go`. Unlike there all finalizers are removed at once, after the
//! content, so there is one write less to conflict with.

use std::sync::Arc;

use claimcheck_informer::{ClaimBy, ContentBy, DataSource, World};
use claimcheck_model::{
    ObjectKey, RESTORE_PROTECTION, SNAPSHOT_BEING_DELETED, SNAPSHOT_BOUND_PROTECTION,
    SNAPSHOT_IN_GROUP_PROTECTION, SNAPSHOT_SOURCE_PROTECTION,
    group_snapshot::owning_group,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
    snapshot_content_name,
};

use super::plan::Action;
use crate::{
    claims::{annotation, is_deleting, precedes_deletion},
    snapshotter::{finalizers::has, plan_binding::Binding},
};

/// Plans a snapshot that is being deleted; `is_ungrouped`: its group was found to be deleted.
pub fn plan_deletion(
    key: &ObjectKey,
    snapshot: &Arc<VolumeSnapshot>,
    world: &World,
    is_ungrouped: bool,
) -> Option<Action> {
    const FINALIZERS: [&str; 2] = [SNAPSHOT_SOURCE_PROTECTION, SNAPSHOT_BOUND_PROTECTION];
    let protections = FINALIZERS.iter().chain([&SNAPSHOT_IN_GROUP_PROTECTION]);
    if !protections.copied().any(|finalizer| has(&snapshot.metadata, finalizer)) {
        return None;
    }
    let content = content_of(key, snapshot, world);
    if content.is_some() && is_source(key, snapshot, world) {
        return Some(Action::ReportInUse(snapshot.clone()));
    }
    if let Some(group) = group_of(snapshot)
        && !is_ungrouped
    {
        let snapshot = snapshot.clone();
        return Some(match world.group_snapshots.get(&group) {
            // As upstream, also if the group is being deleted: it deletes its members, which are planned again when it
            // no longer exists.
            Some(_) => Action::ReportGrouped { snapshot, group },
            None => Action::FindGroup { snapshot, group },
        });
    }
    if let Some(content) = content {
        if annotation(&**content, SNAPSHOT_BEING_DELETED).is_none() {
            return Some(Action::Bind(Binding::Announce(content.clone())));
        }
        if content.is_deleted_with_snapshot() {
            return (!is_deleting(&**content)).then(|| Action::Bind(Binding::DeleteContent(content.clone())));
        }
    }
    let mut finalizers = snapshot.metadata.finalizers.clone().unwrap_or_default();
    let before = finalizers.len();
    let of_group = |held: &str| is_ungrouped && held == SNAPSHOT_IN_GROUP_PROTECTION;
    finalizers.retain(|held| !FINALIZERS.contains(&held.as_str()) && !of_group(held));
    let object = snapshot.clone();
    (finalizers.len() < before).then_some(Action::Bind(Binding::SetFinalizers { object, finalizers }))
}

/// The group that it is part of.
fn group_of(snapshot: &VolumeSnapshot) -> Option<ObjectKey> {
    let status = snapshot.status.as_ref();
    let named = status.and_then(|status| status.volume_group_snapshot_name.as_deref());
    let group = named.or_else(|| owning_group(snapshot))?;
    Some(ObjectKey::new(snapshot.metadata.namespace.as_deref().unwrap_or_default(), group))
}

/// Its content, if the two are bound to each other: a content that is not recorded in its snapshot's status yet
/// is found by its name, and that of a member of a group, which is named after the volume, by its reference.
fn content_of<'w>(
    key: &ObjectKey,
    snapshot: &VolumeSnapshot,
    world: &'w World,
) -> Option<&'w Arc<VolumeSnapshotContent>> {
    let made = || snapshot_content_name(snapshot.metadata.uid.as_deref().unwrap_or_default());
    let content = match snapshot.content() {
        Some(content) => world.snapshot_contents.named(content),
        None if owning_group(snapshot).is_some() => {
            let mut contents = world.snapshot_contents.by(ContentBy::Snapshot, &key.to_string());
            contents.find(|content| content.is_bound_to(snapshot))
        }
        None => world.snapshot_contents.named(&made()),
    };
    content.filter(|content| content.is_bound_to(snapshot))
}

/// Whether a claim that existed before the snapshot's deletion is still being provisioned from it, or a provisioner
/// reports by its finalizer that the driver may still read it: a call of unknown outcome is repeated also if the claim is
/// deleted. Upstream looks at the claims alone (`isSnapshotBeingUsed`, external-provisioner#1449).
fn is_source(key: &ObjectKey, snapshot: &VolumeSnapshot, world: &World) -> bool {
    if has(&snapshot.metadata, RESTORE_PROTECTION) {
        return true;
    }
    let source = DataSource::Snapshot(key.clone()).to_string();
    world.claims.by(ClaimBy::Source, &source).any(|claim| precedes_deletion(claim, snapshot))
}
