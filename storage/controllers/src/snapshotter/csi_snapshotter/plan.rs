//! The next step of a content.
//!
//! Upstream: `checkandUpdateContentStatusOperation` and `createSnapshotWrapper` in
//! `pkg/sidecar-controller/snapshot_controller.go`; see `plan_content.rs` for the rest. Unlike there a pre-provisioned
//! snapshot is queried with GetSnapshot where the driver has it, instead of ListSnapshots.

use std::{sync::Arc, time::Duration};

use claimcheck_csi::v1::{
    CreateSnapshotRequest, GetSnapshotRequest, ListSnapshotsRequest,
    controller_service_capability::rpc::Type as Rpc,
};
use claimcheck_informer::World;
use claimcheck_model::snapshot::{VolumeSnapshotClass, VolumeSnapshotContent};
use jiff::Timestamp;

use crate::{
    claims::name,
    rpc::SecretNameError,
    snapshotter::{
        Settings,
        content::{is_managed, is_of_group},
        parameters::{Purpose, UnknownParameter, for_creation, recorded_secret, secret},
        plan_content::{self, is_in_flight},
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

/// An action about a content.
pub type Action = plan_content::Action<VolumeSnapshotContent, Question, Found, Obstacle>;

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
    if content.spec.driver != settings.driver.name || !is_managed(&**content, settings) {
        return (None, None);
    }
    let is_reported = |found: &Found| reports(content, found);
    plan_content::plan(content, memory, now, is_reported, || ask(content, world, settings))
}

/// How to create or poll the snapshot. One that was created for the content is created again until it is ready, with
/// the same secret: only for others the class needs one for lists. The driver creates what is part of a group with the
/// group, unless it is imported.
fn ask(
    content: &Arc<VolumeSnapshotContent>,
    world: &World,
    settings: &Settings,
) -> Result<Option<Action>, Obstacle> {
    let source = &content.spec.source;
    let ask = |question, secret| Some(Action::Ask { content: content.clone(), question, secret });
    if is_of_group(content) {
        match content.handle() {
            Some(handle) => return Ok(ask(by_handle(handle, settings), recorded_secret(&**content))),
            None if source.snapshot_handle.is_none() => return Ok(None),
            None => {}
        }
    }
    let Some(volume) = &source.volume_handle else {
        let secret = match class_of(content, world)? {
            Some(class) => secret(Purpose::List, class, name(&**content), None)?,
            None => None,
        };
        return Ok(ask(by_handle(source.snapshot_handle.as_deref().unwrap_or_default(), settings), secret));
    };
    let class = class_of(content, world)?;
    let parameters = class.and_then(|class| class.parameters.as_ref());
    let of = &content.spec.volume_snapshot_ref;
    let has_metadata = settings.extra_create_metadata;
    let parameters = for_creation(Purpose::Snapshot, parameters, has_metadata, of, name(&**content))?;
    let secret = recorded_secret(&**content);
    if !is_in_flight(&**content) && content.handle().is_none() {
        return Ok(Some(Action::Announce { content: content.clone(), secret }));
    }
    let request = CreateSnapshotRequest {
        source_volume_id: volume.clone(),
        name: settings.names.name(of.uid.as_deref().unwrap_or_default()),
        parameters,
        ..CreateSnapshotRequest::default()
    };
    Ok(ask(Question::Create(Box::new(request)), secret))
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

/// Whether the content has this response in its status.
fn reports(content: &VolumeSnapshotContent, found: &Found) -> bool {
    let group = content.status.as_ref().and_then(|status| status.volume_group_snapshot_handle.as_ref());
    content.handle() == Some(found.handle.as_str())
        && content.is_ready() == found.ready
        && (group.is_some() || found.group.is_none())
}
