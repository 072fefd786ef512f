//! The next step of a content.
//!
//! ```text
//! Announce ──> Ask ──> Report ──> Settle        deleted: Delete ──> Release
//!               ^────────┘ until it is ready
//! ```
//!
//! Upstream: `syncContent` and `shouldDelete` in `pkg/sidecar-controller/snapshot_controller.go`,
//! `syncGroupSnapshotContent` and `shouldDeleteGroupSnapshotContent` in `groupsnapshot_helper.go` there.

use std::{sync::Arc, time::Duration};

use claimcheck_informer::{Cached as _, World};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::SecretReference;

use crate::{
    claims::{annotation, is_deleting, name},
    snapshotter::{
        Settings,
        content::{Class as _, Content, is_managed},
        finalizers::has,
        parameters::{for_creation, recorded_secret, secret},
        requests::{Cause, Found, Origin, Question},
        responses::Memory,
    },
};

/// Why the driver cannot be called, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Obstacle(String);

/// An action about a content.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<C> {
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
        question: Question,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Write the driver's response.
    Report {
        /// The content.
        content: Arc<C>,
        /// The response.
        found: Found,
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
        obstacle: Obstacle,
    },
}

/// The next action; and when to poll again without a change.
type Planned<A> = (Option<A>, Option<Duration>);

/// Plans the content with this name.
pub fn plan<C: Content>(
    content: &str,
    world: &World,
    settings: &Settings,
    memory: &Memory,
    now: Timestamp,
) -> Planned<Action<C>> {
    let Some(content) = C::store(world).named(content) else { return (None, None) };
    if content.driver() != settings.driver.name || !is_managed(&**content, settings) {
        return (None, None);
    }
    let (exists, in_flight) = (content.handle().is_some(), is_in_flight(&**content));
    if is_deleting(&**content) && (exists || !in_flight) {
        return (deletion(content, memory.deleted), None);
    }
    if let Some(found) = memory.found.as_ref().filter(|found| !is_reported(&**content, found)) {
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
    let fail = |cause| {
        let obstacle = Obstacle(content.obstacle(&cause));
        Some(Action::Fail { content: content.clone(), obstacle })
    };
    (ask(content, world, settings).unwrap_or_else(fail), None)
}

/// How to create or poll the snapshot or group. One that was created for the content is created again until it is ready,
/// with the same secret: only for others the class needs one for polling.
fn ask<C: Content>(content: &Arc<C>, world: &World, settings: &Settings) -> Result<Option<Action<C>>, Cause> {
    let ask = |question, secret| Action::Ask { content: content.clone(), question, secret };
    let origin = content.origin(settings);
    if let Origin::WithGroup(question) = origin {
        return Ok(question.map(|question| ask(question, recorded_secret(&**content))));
    }
    let class = content.class().map(|class| {
        let no_class = || Cause::NoClass { resource: C::WORDS.class, class: class.to_owned() };
        C::Class::store(world).named(class).ok_or_else(no_class)
    });
    let parameters = class.transpose()?.and_then(|class| class.parameters());
    let [creates, polls] = C::PURPOSES;
    if let Origin::Existing(question) = origin {
        return Ok(Some(ask(question, secret(polls, parameters, name(&**content), None)?)));
    }
    let of = content.bound_to();
    let parameters = for_creation(creates, parameters, settings.extra_create_metadata, of, name(&**content))?;
    let secret = recorded_secret(&**content);
    if !is_in_flight(&**content) && content.handle().is_none() {
        return Ok(Some(Action::Announce { content: content.clone(), secret }));
    }
    let name = settings.names.name(of.uid.as_deref().unwrap_or_default());
    Ok(Some(ask(content.creation(name, parameters), secret)))
}

/// Whether the driver may be creating the snapshot or group.
fn is_in_flight<C: Content>(content: &C) -> bool {
    annotation(content, C::BEING_CREATED).is_some()
}

/// Whether the content has this response in its status.
fn is_reported<C: Content>(content: &C, found: &Found) -> bool {
    content.handle() == Some(found.handle.as_str())
        && content.is_ready() == found.ready
        && content.has_related(found)
}

/// A content that is being deleted, after the end of the call to create.
fn deletion<C: Content>(content: &Arc<C>, is_deleted: bool) -> Option<Action<C>> {
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
