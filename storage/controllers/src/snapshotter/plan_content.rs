//! The next step of a content, as far as those of snapshots and of groups agree: all but the calls that create them.
//!
//! ```text
//! Announce ──> Ask ──> Report ──> Settle        deleted: Delete ──> Release
//!               ^────────┘ until it is ready
//! ```
//!
//! Upstream: `syncContent` and `shouldDelete` in `pkg/sidecar-controller/snapshot_controller.go`,
//! `syncGroupSnapshotContent` and `shouldDeleteGroupSnapshotContent` in `groupsnapshot_helper.go` there.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::SecretReference;

use super::{content::Content, finalizers::has, parameters::recorded_secret, responses::Memory};
use crate::claims::{annotation, is_deleting};

/// An action about a content `C`. `Q` is a call that creates or polls the snapshot or group, `F` the driver's response,
/// and `O` an obstacle to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<C, Q, F, O> {
    /// Annotate that the driver will be called to create the snapshot or group, so that the content is not deleted
    /// before the result is known.
    Announce {
        /// The content.
        content: Arc<C>,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Call the driver.
    Ask {
        /// The content.
        content: Arc<C>,
        /// The call.
        question: Q,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Write the driver's response.
    Report {
        /// The content.
        content: Arc<C>,
        /// The response.
        found: F,
    },
    /// Remove the annotation: the call to create has ended.
    Settle(Arc<C>),
    /// Call the driver to delete the snapshot or group.
    Delete {
        /// The content.
        content: Arc<C>,
        /// The driver's id.
        handle: String,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Remove the content's finalizer.
    Release(Arc<C>),
    /// Write why the driver cannot be called.
    Fail {
        /// The content.
        content: Arc<C>,
        /// The reason.
        obstacle: O,
    },
}

/// The next action; and when to poll again without a change.
type Planned<A> = (Option<A>, Option<Duration>);

/// Plans a content. `is_reported`: whether the content has a response in its status; `ask`: how to create or poll the
/// snapshot or group.
pub fn plan<C: Content, Q, F: Clone, O>(
    content: &Arc<C>,
    memory: &Memory<F>,
    now: Timestamp,
    is_reported: impl Fn(&F) -> bool,
    ask: impl FnOnce() -> Result<Option<Action<C, Q, F, O>>, O>,
) -> Planned<Action<C, Q, F, O>> {
    let (exists, in_flight) = (content.handle().is_some(), is_in_flight(&**content));
    if is_deleting(&**content) && (exists || !in_flight) {
        return (deletion(content, memory.deleted), None);
    }
    if let Some(found) = memory.found.as_ref().filter(|found| !is_reported(found)) {
        return (Some(Action::Report { content: content.clone(), found: found.clone() }), None);
    }
    if exists && in_flight {
        return (Some(Action::Settle(content.clone())), None);
    }
    if exists && content.is_ready() {
        return (None, None);
    }
    if let Some(left) = memory.next.map(|next| now.duration_until(next)).filter(|left| left.is_positive()) {
        return (None, Some(left.unsigned_abs()));
    }
    let fail = |obstacle| Some(Action::Fail { content: content.clone(), obstacle });
    (ask().unwrap_or_else(fail), None)
}

/// Whether the driver may be creating the snapshot or group.
pub fn is_in_flight<C: Content>(content: &C) -> bool {
    annotation(content, C::BEING_CREATED).is_some()
}

/// A content that is being deleted, after the end of the call to create.
fn deletion<C: Content, Q, F, O>(content: &Arc<C>, is_deleted: bool) -> Option<Action<C, Q, F, O>> {
    if !has(content.metadata(), C::PROTECTION) {
        return None;
    }
    let uid = content.bound_to().uid.as_deref().unwrap_or_default();
    let unbound = content.is_pre_provisioned() && uid.is_empty();
    // Deleting the content of a snapshot or group that exists deletes nothing.
    if !unbound && annotation(&**content, C::BEING_DELETED).is_none() {
        return None;
    }
    Some(match content.handle() {
        Some(handle) if content.is_deleted_by_driver() && !is_deleted => Action::Delete {
            content: content.clone(),
            handle: handle.to_owned(),
            secret: recorded_secret(&**content),
        },
        Some(_) | None => Action::Release(content.clone()),
    })
}
