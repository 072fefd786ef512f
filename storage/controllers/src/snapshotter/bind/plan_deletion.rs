//! The next step of a snapshot that is being deleted.
//!
//! Upstream: `processSnapshotWithDeletionTimestamp` in `pkg/common-controller/snapshot_controller.go`. Unlike
//! there both finalizers are removed at once, after the content, so there is one write less to conflict with.

use std::sync::Arc;

use claimcheck_informer::{ClaimBy, DataSource, World};
use claimcheck_model::{
    ObjectKey, SNAPSHOT_BEING_DELETED, SNAPSHOT_BOUND_PROTECTION, SNAPSHOT_SOURCE_PROTECTION,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
    snapshot_content_name,
};

use super::plan::{Action, has};
use crate::claims::{annotation, is_deleting, precedes_deletion};

/// Plans a snapshot that is being deleted.
pub fn plan_deletion(key: &ObjectKey, snapshot: &Arc<VolumeSnapshot>, world: &World) -> Option<Action> {
    const OURS: [&str; 2] = [SNAPSHOT_SOURCE_PROTECTION, SNAPSHOT_BOUND_PROTECTION];
    if !OURS.iter().any(|ours| has(&snapshot.metadata, ours)) {
        return None;
    }
    if let Some(content) = content_of(snapshot, world) {
        if is_source(key, snapshot, world) {
            return Some(Action::TellInUse(snapshot.clone()));
        }
        if annotation(&**content, SNAPSHOT_BEING_DELETED).is_none() {
            return Some(Action::Announce(content.clone()));
        }
        if content.is_deleted_with_snapshot() {
            return (!is_deleting(&**content)).then(|| Action::DeleteContent(content.clone()));
        }
    }
    let mut finalizers = snapshot.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|held| !OURS.contains(&held.as_str()));
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
