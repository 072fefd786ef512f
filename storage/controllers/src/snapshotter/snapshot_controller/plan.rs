//! The next step of a snapshot, of a content, and of a claim that is the source of snapshots.
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

use claimcheck_informer::{GroupContentBy, SnapshotBy, World, key_of, quantity};
use claimcheck_model::{
    ObjectKey, SNAPSHOT_BOUND_PROTECTION, SNAPSHOT_CLAIM_PROTECTION, SNAPSHOT_SOURCE_PROTECTION,
    group_snapshot::owning_group,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotStatus},
    snapshot_content_name,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};

use super::{plan_deletion::plan_deletion, source, trouble::Trouble};
use crate::{
    claims::{is_deleting, name, ref_uid},
    snapshotter::{
        content::{is_meant_for, is_unprotected},
        finalizers::has,
    },
};

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Set the snapshot's class to the default one.
    SetClass {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// The class.
        class: String,
    },
    /// Add or remove the snapshot's finalizers.
    SetFinalizers {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// All desired finalizers.
        finalizers: Vec<String>,
    },
    /// Add the claim's finalizer until the snapshot is taken.
    HoldClaim(Arc<PersistentVolumeClaim>),
    /// Remove the claim's finalizer.
    ReleaseClaim(Arc<PersistentVolumeClaim>),
    /// Create the content.
    CreateContent {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// The content.
        content: Box<VolumeSnapshotContent>,
    },
    /// Bind a pre-provisioned content.
    BindContent {
        /// The content.
        content: Arc<VolumeSnapshotContent>,
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
    },
    /// Add the content's finalizer until the driver has deleted the snapshot.
    HoldContent(Arc<VolumeSnapshotContent>),
    /// Write the snapshot's status.
    Report {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// The status.
        status: Box<VolumeSnapshotStatus>,
    },
    /// Write an error to the snapshot's status.
    Fail {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// The error.
        trouble: Trouble,
    },
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
    /// Annotate the content that its snapshot is being deleted, for the driver's snapshotter.
    Announce(Arc<VolumeSnapshotContent>),
    /// Delete the content, which is removed when the driver has deleted the snapshot.
    DeleteContent(Arc<VolumeSnapshotContent>),
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
        follow(snapshot, world.snapshot_contents.named(content), world)
    } else if let Some(content) = &snapshot.spec.source.volume_snapshot_content_name {
        existing_class(snapshot, world).and_then(|()| find(snapshot, content, world))
    } else if owning_group(snapshot).is_some() {
        return None;
    } else {
        make(snapshot, world, options)
    };
    step.unwrap_or_else(|trouble| fail(snapshot, trouble))
}

/// Plans the content with this name.
pub fn plan_content(content: &str, world: &World) -> Option<Action> {
    let content = world.snapshot_contents.named(content)?;
    is_unprotected(&**content).then(|| Action::HoldContent(content.clone()))
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

type Step = Result<Option<Action>, Trouble>;

/// A snapshot that is bound.
fn follow(
    snapshot: &Arc<VolumeSnapshot>,
    content: Option<&Arc<VolumeSnapshotContent>>,
    world: &World,
) -> Step {
    let content = content.ok_or(Trouble::ContentMissing)?;
    if !content.is_bound_to(snapshot) {
        return Err(Trouble::Unbound);
    }
    if let Some(hold) = hold(snapshot, content.is_deleted_with_snapshot()) {
        return Ok(Some(hold));
    }
    Ok(report(snapshot, content, world)?.or_else(|| own(snapshot, world)))
}

/// An error if the class that the snapshot names does not exist. Upstream: `checkAndUpdateSnapshotClass` in
/// `snapshot_controller_base.go`, also of snapshots that are bound, which follow their content here all the same.
fn existing_class(snapshot: &VolumeSnapshot, world: &World) -> Result<(), Trouble> {
    match &snapshot.spec.volume_snapshot_class_name {
        Some(class) if world.snapshot_classes.named(class).is_none() => Err(Trouble::NoClass(class.clone())),
        Some(_) | None => Ok(()),
    }
}

/// A snapshot with a pre-provisioned content.
fn find(snapshot: &Arc<VolumeSnapshot>, content: &str, world: &World) -> Step {
    let content = world.snapshot_contents.named(content).ok_or(Trouble::ContentMissing)?;
    if content.spec.source.snapshot_handle.is_none() {
        return Err(Trouble::NotPreProvisioned(name(&**content).to_owned()));
    }
    if !is_meant_for(&**content, &snapshot.metadata) {
        return Err(Trouble::Misbound(name(&**content).to_owned()));
    }
    if let Some(hold) = hold(snapshot, content.is_deleted_with_snapshot()) {
        return Ok(Some(hold));
    }
    let classless = content.spec.volume_snapshot_class_name.is_none();
    let unbound = ref_uid(&content.spec.volume_snapshot_ref).is_none();
    if unbound || (classless && snapshot.spec.volume_snapshot_class_name.is_some()) {
        let (content, snapshot) = (content.clone(), snapshot.clone());
        return Ok(Some(Action::BindContent { content, snapshot }));
    }
    report(snapshot, content, world)
}

/// A snapshot that must be created.
fn make(snapshot: &Arc<VolumeSnapshot>, world: &World, options: ContentOptions) -> Step {
    let Some(class_name) = &snapshot.spec.volume_snapshot_class_name else {
        let class = source::default_class(snapshot, world).map_err(Trouble::DefaultClass)?;
        return Ok(Some(Action::SetClass { snapshot: snapshot.clone(), class }));
    };
    let content = snapshot_content_name(snapshot.metadata.uid.as_deref().unwrap_or_default());
    if let Some(content) = world.snapshot_contents.named(&content) {
        if content.spec.source.volume_handle.is_none() {
            return Err(Trouble::NotDynamic(name(&**content).to_owned()));
        }
        if !content.is_bound_to(snapshot) {
            return Err(Trouble::Misbound(name(&**content).to_owned()));
        }
        if let Some(hold) = hold(snapshot, content.is_deleted_with_snapshot()) {
            return Ok(Some(hold));
        }
        return report(snapshot, content, world);
    }
    let class = world.snapshot_classes.named(class_name);
    let class = class.ok_or_else(|| Trouble::NoClass(class_name.clone()))?;
    // The finalizer of bound snapshots follows when the content exists.
    if let Some(hold) = hold(snapshot, false) {
        return Ok(Some(hold));
    }
    let of_source = |cause| Trouble::Source { snapshot: name(&**snapshot).to_owned(), cause };
    let (claim, held) = source::held_claim(snapshot, world, SNAPSHOT_CLAIM_PROTECTION).map_err(of_source)?;
    if !held {
        return Ok(Some(Action::HoldClaim(claim.clone())));
    }
    let content = Box::new(source::content(snapshot, claim, class, world, options).map_err(of_source)?);
    Ok(Some(Action::CreateContent { snapshot: snapshot.clone(), content }))
}

/// Adds the snapshot's finalizers as a source of claims and, if it is deleted with its content, for that.
fn hold(snapshot: &Arc<VolumeSnapshot>, with_content: bool) -> Option<Action> {
    let mut finalizers = snapshot.metadata.finalizers.clone().unwrap_or_default();
    let before = finalizers.len();
    let expected = [(SNAPSHOT_SOURCE_PROTECTION, true), (SNAPSHOT_BOUND_PROTECTION, with_content)];
    for (finalizer, _) in expected.iter().filter(|(_, expected)| *expected) {
        if !has(&snapshot.metadata, finalizer) {
            finalizers.push((*finalizer).to_owned());
        }
    }
    let snapshot = snapshot.clone();
    (finalizers.len() > before).then_some(Action::SetFinalizers { snapshot, finalizers })
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

/// The name of the group with this handle in the storage system. Upstream: `updateSnapshotStatus`.
fn group_name(handle: Option<&str>, driver: &str, world: &World) -> Option<String> {
    let mut contents = world.group_snapshot_contents.by(GroupContentBy::Handle, handle?);
    let content = contents.find(|content| content.spec.driver == driver)?;
    content.spec.volume_group_snapshot_ref.name.clone()
}

/// The content's status, unless the snapshot has it already. A snapshot that is part of a group does not become ready
/// before its group is known. Upstream: `updateSnapshotStatus`.
fn report(snapshot: &Arc<VolumeSnapshot>, content: &VolumeSnapshotContent, world: &World) -> Step {
    let old = snapshot.status.clone().unwrap_or_default();
    let known = content.status.clone().unwrap_or_default();
    let handle = known.volume_group_snapshot_handle.as_deref();
    let group = group_name(handle, &content.spec.driver, world);
    if handle.is_some() && group.is_none() && !snapshot.is_ready() {
        return Err(Trouble::NoGroup(key_of(&**snapshot)));
    }
    let created = known.creation_time.and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok());
    let status = VolumeSnapshotStatus {
        bound_volume_snapshot_content_name: old
            .bound_volume_snapshot_content_name
            .or_else(|| content.metadata.name.clone()),
        creation_time: old.creation_time.or_else(|| created.map(Time)),
        error: known.error,
        ready_to_use: Some(known.ready_to_use.unwrap_or(false)),
        restore_size: old.restore_size.or_else(|| known.restore_size.map(quantity::from_bytes)),
        volume_group_snapshot_name: old.volume_group_snapshot_name.or(group),
    };
    let is_new = snapshot.status.as_ref() != Some(&status);
    Ok(is_new.then(|| Action::Report { snapshot: snapshot.clone(), status: Box::new(status) }))
}

/// Writes the error, unless the snapshot has it already.
fn fail(snapshot: &Arc<VolumeSnapshot>, trouble: Trouble) -> Option<Action> {
    let current_error = snapshot.status.as_ref().and_then(|status| status.error.as_ref()?.message.as_deref());
    let is_new = current_error != Some(trouble.to_string().as_str());
    is_new.then(|| Action::Fail { snapshot: snapshot.clone(), trouble })
}
