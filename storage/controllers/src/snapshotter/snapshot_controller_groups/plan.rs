//! The next step of a group of snapshots; see `plan_binding.rs` for what snapshots share.
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

use claimcheck_informer::World;
use claimcheck_model::{
    ObjectKey,
    group_snapshot::VolumeGroupSnapshot,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentStatus},
};
use jiff::Timestamp;

use super::{members, plan_deletion::plan_deletion, source};
use crate::{
    claims::is_deleting,
    snapshotter::{
        object::Object as _,
        plan_binding::{Binding, created, fail, find, follow, hold, report},
        trouble::Trouble,
    },
};

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Bind the group to its content, as a snapshot is.
    Bind(Binding<VolumeGroupSnapshot>),
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
    /// Emit an event that the group stays until the claims provisioned from a member have their volumes.
    ReportInUse {
        /// The group.
        group: Arc<VolumeGroupSnapshot>,
        /// The member.
        snapshot: ObjectKey,
    },
    /// Delete the snapshot of a member, which is removed after the group.
    DeleteMember(Arc<VolumeSnapshot>),
}

/// Plans the group with this key: one step, or one of each member.
pub fn plan_group(key: &ObjectKey, world: &World) -> Vec<Action> {
    let Some(group) = world.group_snapshots.get(key) else { return Vec::new() };
    let step = if is_deleting(&**group) {
        return plan_deletion(key, group, world);
    } else if let Some(content) = group.content().filter(|_| group.is_ready()) {
        follow(group, content, world).map(bind)
    } else if let Some(content) = group.requested_content() {
        find(group, content, world).map(bind)
    } else {
        create(group, world)
    };
    step.unwrap_or_else(|trouble| bind(fail(group, trouble)))
}

fn bind(step: Option<Binding<VolumeGroupSnapshot>>) -> Vec<Action> {
    step.into_iter().map(Action::Bind).collect()
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

/// A group that must be created.
fn create(group: &Arc<VolumeGroupSnapshot>, world: &World) -> Result<Vec<Action>, Trouble> {
    let Some(class_name) = &group.spec.volume_group_snapshot_class_name else {
        let class = source::default_class(group, world).map_err(Trouble::DefaultClass)?;
        return Ok(vec![Action::Bind(Binding::SetClass { object: group.clone(), class })]);
    };
    if let Some(content) = created(&**group, world)? {
        if let Some(hold) = hold(group, true) {
            return Ok(vec![Action::Bind(hold)]);
        }
        let of_members = members::next(group, content, world);
        if !of_members.is_empty() {
            return Ok(of_members);
        }
        return report(group, content, world).map(bind);
    }
    // Another one would have other data.
    if group.content().is_some() {
        return Err(Trouble::ContentMissing);
    }
    let class = world.group_snapshot_classes.named(class_name);
    let class = class.ok_or_else(|| Trouble::NoClass(class_name.clone()))?;
    let of_source = |cause| Trouble::Source(Box::new(cause));
    let content = Box::new(source::content(group, class, world).map_err(of_source)?);
    let hold = hold(group, true);
    Ok(bind(hold.or_else(|| Some(Binding::CreateContent { object: group.clone(), content }))))
}
