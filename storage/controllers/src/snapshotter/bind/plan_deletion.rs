//! The next step of a snapshot that is being deleted.
//!
//! Upstream: `processSnapshotWithDeletionTimestamp` and `checkandRemoveSnapshotFinalizersAndCheckandDeleteContent` in
//! `pkg/common-controller/snapshot_controller.go`. Unlike there all finalizers are removed at once, after the
//! content, so there is one write less to conflict with.

use std::sync::Arc;

use claimcheck_informer::{ClaimBy, DataSource, World};
use claimcheck_model::{
    ObjectKey, SNAPSHOT_BEING_DELETED, SNAPSHOT_BOUND_PROTECTION, SNAPSHOT_SOURCE_PROTECTION,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
    snapshot_content_name,
};

use super::plan::{Action, has};
use crate::claims::{annotation, is_deleting, precedes_deletion};

/// On a snapshot that was created with its group, until the group is deleted.
const GROUP_PROTECTION: &str = "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection";

/// Plans a snapshot that is being deleted; `is_ungrouped`: its group was found to be deleted.
pub fn plan_deletion(
    key: &ObjectKey,
    snapshot: &Arc<VolumeSnapshot>,
    world: &World,
    is_ungrouped: bool,
) -> Option<Action> {
    const FINALIZERS: [&str; 2] = [SNAPSHOT_SOURCE_PROTECTION, SNAPSHOT_BOUND_PROTECTION];
    if !FINALIZERS.iter().any(|finalizer| has(&snapshot.metadata, finalizer)) {
        return None;
    }
    let content = content_of(snapshot, world);
    if content.is_some() && is_source(key, snapshot, world) {
        return Some(Action::ReportInUse(snapshot.clone()));
    }
    let group = snapshot.status.as_ref().and_then(|status| status.volume_group_snapshot_name.clone());
    if let Some(group) = group
        && !is_ungrouped
    {
        return Some(Action::FindGroup { snapshot: snapshot.clone(), group });
    }
    if let Some(content) = content {
        if annotation(&**content, SNAPSHOT_BEING_DELETED).is_none() {
            return Some(Action::Announce(content.clone()));
        }
        if content.is_deleted_with_snapshot() {
            return (!is_deleting(&**content)).then(|| Action::DeleteContent(content.clone()));
        }
    }
    let mut finalizers = snapshot.metadata.finalizers.clone().unwrap_or_default();
    finalizers
        .retain(|held| !FINALIZERS.contains(&held.as_str()) && (!is_ungrouped || held != GROUP_PROTECTION));
    Some(Action::SetFinalizers { snapshot: snapshot.clone(), finalizers })
}

/// Its content, if the two are bound to each other: a content that is not recorded in its snapshot's status yet
/// is found by its name.
fn content_of<'w>(snapshot: &VolumeSnapshot, world: &'w World) -> Option<&'w Arc<VolumeSnapshotContent>> {
    let made = || snapshot_content_name(snapshot.metadata.uid.as_deref().unwrap_or_default());
    let content = match snapshot.content() {
        Some(content) => world.snapshot_contents.named(content),
        None => world.snapshot_contents.named(&made()),
    };
    content.filter(|content| content.is_bound_to(snapshot))
}

/// Whether a claim that existed before the snapshot's deletion is still being provisioned from it.
fn is_source(key: &ObjectKey, snapshot: &VolumeSnapshot, world: &World) -> bool {
    let source = DataSource::Snapshot(key.clone()).to_string();
    world.claims.by(ClaimBy::Source, &source).any(|claim| precedes_deletion(claim, snapshot))
}
