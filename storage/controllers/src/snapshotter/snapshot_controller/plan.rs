//! The next step of a snapshot, and of a claim that is the source of snapshots; see `plan_binding.rs` for what groups
//! share.
//!
//! ```text
//! class ──> finalizer as a source ──> claim held ──> content made (or found, and bound)
//!     ──> finalizer as bound ──> status follows the content's
//! ```
//!
//! A snapshot that was created with its group waits for `snapshot_controller_groups/` to bind it.
//!
//! Upstream: `syncSnapshot` and `syncContent` in `pkg/common-controller/snapshot_controller.go`. Unlike there a
//! snapshot that lost its content is not recreated: it would have other data.

use std::sync::Arc;

use claimcheck_informer::{SnapshotBy, World};
use claimcheck_model::{
    ObjectKey, SNAPSHOT_CLAIM_PROTECTION, SNAPSHOT_SOURCE_PROTECTION, group_snapshot::owning_group,
    snapshot::VolumeSnapshot,
};
use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::OwnerReference};

use super::{plan_deletion::plan_deletion, source};
use crate::{
    claims::is_deleting,
    snapshotter::{
        finalizers::has,
        object::Object as _,
        plan_binding::{Binding, created, fail, find, follow, hold, report},
        trouble::Trouble,
    },
};

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Bind the snapshot to its content, as a group is.
    Bind(Binding<VolumeSnapshot>),
    /// Add the claim's finalizer until the snapshot is taken.
    HoldClaim(Arc<PersistentVolumeClaim>),
    /// Remove the claim's finalizer.
    ReleaseClaim(Arc<PersistentVolumeClaim>),
    /// Emit an event that the snapshot stays until the claims provisioned from it have their volumes.
    ReportInUse(Arc<VolumeSnapshot>),
    /// Make the group the owner of an imported snapshot that is part of it.
    Own {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// The reference to the group.
        owner: OwnerReference,
    },
    /// Emit an event that a member of a group cannot be deleted alone.
    ReportGrouped {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// The group.
        group: ObjectKey,
    },
    /// Request the group of a snapshot that is being deleted, which is not in the cache: while it exists, its members
    /// stay.
    FindGroup {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// The group.
        group: ObjectKey,
    },
}

/// Where the snapshotters of a driver run: `--enable-distributed-snapshotting`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// One for the cluster.
    Central,
    /// One on each node: contents are labelled with the node of their volume.
    Nodes,
}

/// How contents are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentOptions {
    /// Where their snapshotters run.
    pub distribution: Distribution,
    /// With the volume mode of the source: `--prevent-volume-mode-conversion`.
    pub source_volume_mode: bool,
}

/// Plans the snapshot with this key; `is_ungrouped`: the group that it names was found to be deleted.
pub fn plan_snapshot(
    key: &ObjectKey,
    world: &World,
    options: ContentOptions,
    is_ungrouped: bool,
) -> Option<Action> {
    let snapshot = world.snapshots.get(key)?;
    let step = if is_deleting(&**snapshot) {
        return plan_deletion(key, snapshot, world, is_ungrouped);
    } else if let Some(content) = snapshot.content() {
        follow(snapshot, content, world).map(|step| step.map(Action::Bind).or_else(|| own(snapshot, world)))
    } else if let Some(content) = snapshot.requested_content() {
        existing_class(snapshot, world).and_then(|()| find(snapshot, content, world)).map(bind)
    } else if owning_group(snapshot).is_some() {
        return None;
    } else {
        create(snapshot, world, options)
    };
    step.unwrap_or_else(|trouble| bind(fail(snapshot, trouble)))
}

fn bind(step: Option<Binding<VolumeSnapshot>>) -> Option<Action> {
    step.map(Action::Bind)
}

/// Plans the claim with this key: it is protected as long as a snapshot of it is being created. One that cannot be, for
/// example without a class, has no finalizer. Upstream protects the claim as long as any is not ready
/// (external-snapshotter#1305).
pub fn plan_claim(key: &ObjectKey, world: &World) -> Option<Action> {
    let claim = world.claims.get(key)?;
    let begun = |one: &VolumeSnapshot| has(&one.metadata, SNAPSHOT_SOURCE_PROTECTION) && !one.is_ready();
    let expected = || world.snapshots.by(SnapshotBy::Claim, &key.to_string()).any(|one| begun(one));
    let held = has(&claim.metadata, SNAPSHOT_CLAIM_PROTECTION);
    (held && !expected()).then(|| Action::ReleaseClaim(claim.clone()))
}

/// An error if the class that the snapshot names does not exist. Upstream: `checkAndUpdateSnapshotClass` in
/// `snapshot_controller_base.go`, also of snapshots that are bound, which follow their content here all the same.
fn existing_class(snapshot: &VolumeSnapshot, world: &World) -> Result<(), Trouble> {
    match &snapshot.spec.volume_snapshot_class_name {
        Some(class) if world.snapshot_classes.named(class).is_none() => Err(Trouble::NoClass(class.clone())),
        Some(_) | None => Ok(()),
    }
}

/// A snapshot that must be created.
fn create(
    snapshot: &Arc<VolumeSnapshot>,
    world: &World,
    options: ContentOptions,
) -> Result<Option<Action>, Trouble> {
    let Some(class_name) = &snapshot.spec.volume_snapshot_class_name else {
        let class = source::default_class(snapshot, world).map_err(Trouble::DefaultClass)?;
        return Ok(Some(Action::Bind(Binding::SetClass { object: snapshot.clone(), class })));
    };
    if let Some(content) = created(&**snapshot, world)? {
        return report(snapshot, content, world).map(bind);
    }
    let class = world.snapshot_classes.named(class_name);
    let class = class.ok_or_else(|| Trouble::NoClass(class_name.clone()))?;
    // The finalizer of bound snapshots follows when the content exists.
    if let Some(hold) = hold(snapshot, false) {
        return Ok(Some(Action::Bind(hold)));
    }
    let of_source = |cause| Trouble::Source(Box::new(cause));
    let (claim, held) = source::held_claim(snapshot, world, SNAPSHOT_CLAIM_PROTECTION).map_err(of_source)?;
    if !held {
        return Ok(Some(Action::HoldClaim(claim.clone())));
    }
    let content = Box::new(source::content(snapshot, claim, class, world, options).map_err(of_source)?);
    Ok(Some(Action::Bind(Binding::CreateContent { object: snapshot.clone(), content })))
}

/// Makes its group the owner of an imported snapshot. Upstream: `addVolumeGroupSnapshotOwnership`.
fn own(snapshot: &Arc<VolumeSnapshot>, world: &World) -> Option<Action> {
    if !snapshot.is_ready() || owning_group(snapshot).is_some() {
        return None;
    }
    let group = snapshot.status.as_ref()?.volume_group_snapshot_name.as_ref()?;
    let key = ObjectKey::new(snapshot.metadata.namespace.as_deref().unwrap_or_default(), group);
    let owner = world.group_snapshots.get(&key)?.owner_reference();
    Some(Action::Own { snapshot: snapshot.clone(), owner })
}
