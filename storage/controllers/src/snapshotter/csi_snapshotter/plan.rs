//! The next step of a content.
//!
//! Upstream: `syncContent`, `shouldDelete`, `checkandUpdateContentStatusOperation` and `createSnapshotWrapper` in
//! `pkg/sidecar-controller/snapshot_controller.go`. Unlike there a pre-provisioned snapshot is queried with
//! GetSnapshot where the driver has it, instead of ListSnapshots.

use std::{sync::Arc, time::Duration};

use claimcheck_csi::v1::{
    CreateSnapshotRequest, GetSnapshotRequest, ListSnapshotsRequest,
    controller_service_capability::rpc::Type as Rpc,
};
use claimcheck_informer::World;
use claimcheck_model::{
    SNAPSHOT_BEING_CREATED, SNAPSHOT_BEING_DELETED, SNAPSHOT_CONTENT_PROTECTION, SNAPSHOT_GROUP,
    SNAPSHOT_MANAGED_BY, SNAPSHOT_SECRET_NAME, SNAPSHOT_SECRET_NAMESPACE,
    snapshot::{VolumeSnapshotClass, VolumeSnapshotContent},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::SecretReference;

use crate::{
    claims::{annotation, is_deleting, name},
    rpc::{RESERVED, SecretNameError},
    snapshotter::{
        Settings,
        parameters::{Purpose, UnknownParameter, for_driver, recorded_secret, secret},
        responses,
    },
};

/// The driver's response about a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The driver's id.
    pub handle: String,
    /// ready_to_use.
    pub ready: bool,
    /// The point in time of its data, in nanoseconds since 1970.
    pub created: i64,
    /// The minimum size of a volume created from it, in bytes; 0 if unknown.
    pub size: i64,
    /// The handle of the group that it is part of.
    pub group: Option<String>,
}

/// State of a content that is not written yet.
pub type Memory = responses::Memory<Found>;

/// How to create or poll a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// By CreateSnapshot: the same call returns the same snapshot.
    Create(Box<CreateSnapshotRequest>),
    /// A pre-provisioned one by GetSnapshot.
    Get(GetSnapshotRequest),
    /// A pre-provisioned one by ListSnapshots with its id.
    List(ListSnapshotsRequest),
    /// Not at all: the driver has no such call, and so it is assumed to exist.
    Trust(String),
}

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Annotate that CreateSnapshot will be called, so that the content is not deleted before its result is
    /// known.
    Announce {
        /// The content.
        content: Arc<VolumeSnapshotContent>,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Call the driver.
    Ask {
        /// The content.
        content: Arc<VolumeSnapshotContent>,
        /// The call.
        question: Question,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Write the driver's response.
    Report {
        /// The content.
        content: Arc<VolumeSnapshotContent>,
        /// The response.
        found: Found,
    },
    /// Remove the annotation: CreateSnapshot has ended.
    Settle(Arc<VolumeSnapshotContent>),
    /// Call DeleteSnapshot.
    Delete {
        /// The content.
        content: Arc<VolumeSnapshotContent>,
        /// The driver's id.
        handle: String,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Remove the content's finalizer.
    Release(Arc<VolumeSnapshotContent>),
    /// Write why the driver cannot be called.
    Fail {
        /// The content.
        content: Arc<VolumeSnapshotContent>,
        /// The reason.
        obstacle: Obstacle,
    },
}

/// Why the driver cannot be called for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Its class was deleted.
    #[error(
        "failed to get input parameters to create snapshot for content {content}: \
         volumesnapshotclass.snapshot.storage.k8s.io \"{class}\" not found"
    )]
    NoClass {
        /// The content.
        content: String,
        /// The class.
        class: String,
    },
    /// See the error.
    #[error(transparent)]
    Parameter(#[from] UnknownParameter),
    /// See the error.
    #[error(transparent)]
    Secret(#[from] SecretNameError),
}

/// Plans the content with this name; and when to poll again without a change.
pub fn plan(
    content: &str,
    world: &World,
    settings: &Settings,
    memory: &Memory,
    now: Timestamp,
) -> (Option<Action>, Option<Duration>) {
    let Some(content) = world.snapshot_contents.named(content) else { return (None, None) };
    if content.spec.driver != settings.driver.name || !is_managed(content, settings) {
        return (None, None);
    }
    let in_flight = annotation(&**content, SNAPSHOT_BEING_CREATED).is_some();
    if is_deleting(&**content) && !(in_flight && content.handle().is_none()) {
        return (deletion(content, memory), None);
    }
    if let Some(found) = memory.found.as_ref().filter(|found| !reports(content, found)) {
        return (Some(Action::Report { content: content.clone(), found: found.clone() }), None);
    }
    if content.handle().is_some() && in_flight {
        return (Some(Action::Settle(content.clone())), None);
    }
    if content.is_ready() && content.handle().is_some() {
        return (None, None);
    }
    if let Some(left) = memory.next.map(|next| now.duration_until(next)).filter(|left| left.is_positive()) {
        return (None, Some(left.unsigned_abs()));
    }
    // The driver makes it with its group, unless it is imported.
    let imported = content.spec.source.snapshot_handle.is_some();
    if is_of_group(content) && content.handle().is_none() && !imported {
        return (None, None);
    }
    let step = ask(content, world, settings, in_flight);
    let fail = |obstacle| Action::Fail { content: content.clone(), obstacle };
    (Some(step.unwrap_or_else(fail)), None)
}

/// Whether this snapshotter handles the content. With `--node-deployment` one without the label, such as a
/// pre-provisioned one that its author did not label, is handled by none. Upstream: the informer of
/// VolumeSnapshotContents in `cmd/csi-snapshotter/main.go`.
fn is_managed(content: &VolumeSnapshotContent, settings: &Settings) -> bool {
    let label = content.metadata.labels.as_ref().and_then(|labels| labels.get(SNAPSHOT_MANAGED_BY));
    settings.node.is_none() || settings.node.as_ref() == label
}

/// A content that is being deleted, after the end of CreateSnapshot.
fn deletion(content: &Arc<VolumeSnapshotContent>, memory: &Memory) -> Option<Action> {
    let held = content.metadata.finalizers.iter().flatten().any(|held| held == SNAPSHOT_CONTENT_PROTECTION);
    if !held {
        return None;
    }
    let uid = content.spec.volume_snapshot_ref.uid.as_deref().unwrap_or_default();
    let unbound = content.spec.source.snapshot_handle.is_some() && uid.is_empty();
    // Deleting the content of a snapshot that is there deletes nothing.
    if !unbound && annotation(&**content, SNAPSHOT_BEING_DELETED).is_none() {
        return None;
    }
    Some(match content.handle() {
        // The driver deletes what is part of a group with the group.
        Some(handle) if content.is_deleted_with_snapshot() && !is_of_group(content) && !memory.deleted => {
            let (content, handle) = (content.clone(), handle.to_owned());
            Action::Delete { secret: annotated_secret(&content), content, handle }
        }
        Some(_) | None => Action::Release(content.clone()),
    })
}

/// How to create or poll the snapshot. One that was created for the content is created again until it is ready, with
/// the same secret: only for others the class needs one for lists.
fn ask(
    content: &Arc<VolumeSnapshotContent>,
    world: &World,
    settings: &Settings,
    in_flight: bool,
) -> Result<Action, Obstacle> {
    let source = &content.spec.source;
    let ask = |question, secret| Action::Ask { content: content.clone(), question, secret };
    if let Some(handle) = content.handle().filter(|_| is_of_group(content)) {
        return Ok(ask(by_handle(handle, settings), annotated_secret(content)));
    }
    let Some(volume) = &source.volume_handle else {
        let secret = match class_of(content, world)? {
            Some(class) => secret(Purpose::List, class, name(&**content), None)?,
            None => None,
        };
        return Ok(ask(by_handle(source.snapshot_handle.as_deref().unwrap_or_default(), settings), secret));
    };
    let class = class_of(content, world)?;
    let mut parameters = for_driver(class.and_then(|class| class.parameters.as_ref()))?;
    let of = &content.spec.volume_snapshot_ref;
    if settings.extra_create_metadata {
        for (key, value) in [
            ("volumesnapshot/name", of.name.as_deref()),
            ("volumesnapshot/namespace", of.namespace.as_deref()),
            ("volumesnapshotcontent/name", content.metadata.name.as_deref()),
        ] {
            parameters.insert(format!("{RESERVED}{key}"), value.unwrap_or_default().to_owned());
        }
    }
    if !in_flight && content.handle().is_none() {
        return Ok(Action::Announce { secret: annotated_secret(content), content: content.clone() });
    }
    let request = CreateSnapshotRequest {
        source_volume_id: volume.clone(),
        name: settings.names.name(of.uid.as_deref().unwrap_or_default()),
        parameters,
        ..CreateSnapshotRequest::default()
    };
    Ok(ask(Question::Create(Box::new(request)), annotated_secret(content)))
}

/// The call for a snapshot with this id.
fn by_handle(handle: &str, settings: &Settings) -> Question {
    let snapshot_id = handle.to_owned();
    if settings.driver.can(Rpc::GetSnapshot) {
        Question::Get(GetSnapshotRequest { snapshot_id, ..GetSnapshotRequest::default() })
    } else if settings.driver.can(Rpc::ListSnapshots) {
        Question::List(ListSnapshotsRequest { snapshot_id, ..ListSnapshotsRequest::default() })
    } else {
        Question::Trust(snapshot_id)
    }
}

/// Whether the snapshot is part of a group, with which the driver makes and deletes it.
fn is_of_group(content: &VolumeSnapshotContent) -> bool {
    let status = content.status.as_ref();
    annotation(content, SNAPSHOT_GROUP).is_some()
        || status.is_some_and(|status| status.volume_group_snapshot_handle.is_some())
}

/// The class, if the content has one.
fn class_of<'w>(
    content: &VolumeSnapshotContent,
    world: &'w World,
) -> Result<Option<&'w VolumeSnapshotClass>, Obstacle> {
    let Some(named) = &content.spec.volume_snapshot_class_name else { return Ok(None) };
    match world.snapshot_classes.named(named) {
        Some(class) => Ok(Some(class)),
        None => Err(Obstacle::NoClass { content: name(content).to_owned(), class: named.clone() }),
    }
}

/// The secret that was recorded when the content was created.
fn annotated_secret(content: &VolumeSnapshotContent) -> Option<SecretReference> {
    recorded_secret(content, SNAPSHOT_SECRET_NAME, SNAPSHOT_SECRET_NAMESPACE)
}

/// Whether the content has this response in its status.
fn reports(content: &VolumeSnapshotContent, found: &Found) -> bool {
    let group = content.status.as_ref().and_then(|status| status.volume_group_snapshot_handle.as_ref());
    content.handle() == Some(found.handle.as_str())
        && content.is_ready() == found.ready
        && (group.is_some() || found.group.is_none())
}
