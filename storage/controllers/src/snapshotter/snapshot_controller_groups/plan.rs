//! The next step of a group of snapshots, and of a content of a group.
//!
//! ```text
//! class ──> claims selected ──> finalizer ──> content created (or found, and bound)
//!     ──> a snapshot and its content for each member ──> status follows the content's
//! ```
//!
//! Upstream: `syncGroupSnapshot` and `syncGroupSnapshotContent` in
//! `pkg/common-controller/groupsnapshot_controller_helper.go`. Unlike there a group has its finalizer before its content
//! exists, so that it cannot be deleted without it, and a group that lost its content is not created again: it would
//! have other data.

use std::{sync::Arc, time::Duration};

use claimcheck_informer::{World, key_of};
use claimcheck_model::{
    GROUP_SNAPSHOT_BOUND_PROTECTION, ObjectKey,
    group_snapshot::{VolumeGroupSnapshot, VolumeGroupSnapshotContent, VolumeGroupSnapshotStatus},
    group_snapshot_content_name,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentStatus},
};
use jiff::Timestamp;

use super::{members, plan_deletion::plan_deletion, source, trouble::Trouble};
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
    /// Set the group's class to the default one.
    SetClass {
        /// The group.
        group: Arc<VolumeGroupSnapshot>,
        /// The class.
        class: String,
    },
    /// Add the group's finalizer.
    HoldGroup(Arc<VolumeGroupSnapshot>),
    /// Remove the group's finalizer.
    ReleaseGroup(Arc<VolumeGroupSnapshot>),
    /// Create the content.
    CreateContent {
        /// The group.
        group: Arc<VolumeGroupSnapshot>,
        /// The content.
        content: Box<VolumeGroupSnapshotContent>,
    },
    /// Bind a pre-provisioned content.
    BindContent {
        /// The content.
        content: Arc<VolumeGroupSnapshotContent>,
        /// The group.
        group: Arc<VolumeGroupSnapshot>,
    },
    /// Add the content's finalizer until the driver has deleted the group.
    HoldContent(Arc<VolumeGroupSnapshotContent>),
    /// Create the snapshot of a member.
    CreateMember(Box<VolumeSnapshot>),
    /// Create the content of a member, bound to its snapshot.
    CreateMemberContent(Box<VolumeSnapshotContent>),
    /// Write what the driver returned for a member with its group.
    ReportMember {
        /// The content of the member.
        content: Arc<VolumeSnapshotContent>,
        /// The status.
        status: Box<VolumeSnapshotContentStatus>,
    },
    /// Bind the snapshot of a member to its content.
    BindMember {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// The content's name.
        content: String,
    },
    /// Write the group's status.
    Report {
        /// The group.
        group: Arc<VolumeGroupSnapshot>,
        /// The status.
        status: Box<VolumeGroupSnapshotStatus>,
    },
    /// Write an error to the group's status.
    Fail {
        /// The group.
        group: Arc<VolumeGroupSnapshot>,
        /// The error.
        trouble: Trouble,
    },
    /// Emit an event that the group stays until the claims provisioned from a member have their volumes.
    ReportInUse {
        /// The group.
        group: Arc<VolumeGroupSnapshot>,
        /// The member.
        snapshot: ObjectKey,
    },
    /// Annotate the content that its group is being deleted, for the driver's snapshotter.
    Announce(Arc<VolumeGroupSnapshotContent>),
    /// Delete the content, which is removed when the driver has deleted the group.
    DeleteContent(Arc<VolumeGroupSnapshotContent>),
    /// Delete the snapshot of a member, which is removed after the group.
    DeleteMember(Arc<VolumeSnapshot>),
}

/// Plans the group with this key: one step, or one of each member.
pub fn plan_group(key: &ObjectKey, world: &World) -> Vec<Action> {
    let Some(group) = world.group_snapshots.get(key) else { return Vec::new() };
    let step = if is_deleting(&**group) {
        return plan_deletion(key, group, world);
    } else if let Some(content) = group.content().filter(|_| group.is_ready()) {
        follow(group, world.group_snapshot_contents.named(content))
    } else if let Some(content) = &group.spec.source.volume_group_snapshot_content_name {
        find(group, content, world)
    } else {
        create(group, world)
    };
    step.unwrap_or_else(|trouble| Vec::from_iter(fail(group, trouble)))
}

/// The age of the youngest claim at which a group that failed before has its content created: claims are created one after
/// another, and their user does not want a group of the first ones alone. Upstream has no such rule, but tries again only
/// after `--retry-interval-start` and longer. Creation times are whole seconds, so this is one second or two.
const CLAIMS_SETTLE: Duration = Duration::from_secs(2);

/// The time until the content of a group that failed before is created; none if that need not wait.
pub fn time_to_settle(group: &VolumeGroupSnapshot, world: &World, now: Timestamp) -> Option<Duration> {
    group.status.as_ref()?.error.as_ref()?;
    let claims = source::claims(group, world);
    let youngest = claims.iter().filter_map(|claim| claim.metadata.creation_timestamp.as_ref()).max()?;
    let age = Duration::try_from(now.duration_since(youngest.0)).unwrap_or_default();
    CLAIMS_SETTLE.checked_sub(age).filter(|left| !left.is_zero())
}

/// Plans the content with this name.
pub fn plan_content(content: &str, world: &World) -> Option<Action> {
    let content = world.group_snapshot_contents.named(content)?;
    is_unprotected(&**content).then(|| Action::HoldContent(content.clone()))
}

type Step = Result<Vec<Action>, Trouble>;

/// A group that is bound and ready.
fn follow(group: &Arc<VolumeGroupSnapshot>, content: Option<&Arc<VolumeGroupSnapshotContent>>) -> Step {
    let content = content.ok_or(Trouble::ContentMissing)?;
    if !content.is_bound_to(group) {
        return Err(Trouble::Unbound);
    }
    Ok(Vec::from_iter(hold(group).or_else(|| report(group, content))))
}

/// A group with a pre-provisioned content.
fn find(group: &Arc<VolumeGroupSnapshot>, content: &str, world: &World) -> Step {
    let content = world.group_snapshot_contents.named(content).ok_or(Trouble::ContentMissing)?;
    if content.spec.source.group_snapshot_handles.is_none() {
        return Err(Trouble::NotPreProvisioned(name(&**content).to_owned()));
    }
    if !is_meant_for(&**content, &group.metadata) {
        return Err(Trouble::Misbound(name(&**content).to_owned()));
    }
    if let Some(hold) = hold(group) {
        return Ok(vec![hold]);
    }
    let classless = content.spec.volume_group_snapshot_class_name.is_none();
    let unbound = ref_uid(&content.spec.volume_group_snapshot_ref).is_none();
    if unbound || (classless && group.spec.volume_group_snapshot_class_name.is_some()) {
        let (content, group) = (content.clone(), group.clone());
        return Ok(vec![Action::BindContent { content, group }]);
    }
    Ok(Vec::from_iter(report(group, content)))
}

/// A group that must be created.
fn create(group: &Arc<VolumeGroupSnapshot>, world: &World) -> Step {
    let Some(class_name) = &group.spec.volume_group_snapshot_class_name else {
        let class = source::default_class(group, world).map_err(Trouble::DefaultClass)?;
        return Ok(vec![Action::SetClass { group: group.clone(), class }]);
    };
    let content = group_snapshot_content_name(group.metadata.uid.as_deref().unwrap_or_default());
    if let Some(content) = world.group_snapshot_contents.named(&content) {
        if content.spec.source.group_snapshot_handles.is_some() {
            return Err(Trouble::NotDynamic(name(&**content).to_owned()));
        }
        if !content.is_bound_to(group) {
            return Err(Trouble::Misbound(name(&**content).to_owned()));
        }
        if let Some(hold) = hold(group) {
            return Ok(vec![hold]);
        }
        let of_members = members::next(group, content, world);
        if !of_members.is_empty() {
            return Ok(of_members);
        }
        return Ok(Vec::from_iter(report(group, content)));
    }
    // Another one would have other data.
    if group.content().is_some() {
        return Err(Trouble::ContentMissing);
    }
    let class = world.group_snapshot_classes.named(class_name);
    let class = class.ok_or_else(|| Trouble::NoClass(class_name.clone()))?;
    let of_source = |cause| Trouble::Source { group: key_of(&**group), cause: Box::new(cause) };
    let content = Box::new(source::content(group, class, world).map_err(of_source)?);
    if let Some(hold) = hold(group) {
        return Ok(vec![hold]);
    }
    Ok(vec![Action::CreateContent { group: group.clone(), content }])
}

/// Adds the group's finalizer.
fn hold(group: &Arc<VolumeGroupSnapshot>) -> Option<Action> {
    let held = has(&group.metadata, GROUP_SNAPSHOT_BOUND_PROTECTION);
    (!held).then(|| Action::HoldGroup(group.clone()))
}

/// The content's status, unless the group has it already.
fn report(group: &Arc<VolumeGroupSnapshot>, content: &VolumeGroupSnapshotContent) -> Option<Action> {
    let old = group.status.clone().unwrap_or_default();
    let known = content.status.clone().unwrap_or_default();
    let bound = old.bound_volume_group_snapshot_content_name.or_else(|| content.metadata.name.clone());
    let status = VolumeGroupSnapshotStatus {
        bound_volume_group_snapshot_content_name: bound,
        creation_time: old.creation_time.or(known.creation_time),
        error: known.error,
        ready_to_use: Some(known.ready_to_use.unwrap_or(false)),
    };
    let is_new = group.status.as_ref() != Some(&status);
    is_new.then(|| Action::Report { group: group.clone(), status: Box::new(status) })
}

/// Writes the error, unless the group has it already.
fn fail(group: &Arc<VolumeGroupSnapshot>, trouble: Trouble) -> Option<Action> {
    let current_error = group.status.as_ref().and_then(|status| status.error.as_ref()?.message.as_deref());
    let is_new = current_error != Some(trouble.to_string().as_str());
    is_new.then(|| Action::Fail { group: group.clone(), trouble })
}
