//! The next step of a content of a group.
//!
//! Upstream: `createGroupSnapshotWrapper` and `checkandUpdateGroupSnapshotContentStatusOperation` in
//! `pkg/sidecar-controller/groupsnapshot_helper.go`; see `plan_content.rs` for the rest.

use std::{sync::Arc, time::Duration};

use claimcheck_csi::v1::{CreateVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotRequest};
use claimcheck_informer::World;
use claimcheck_model::group_snapshot::{
    VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, VolumeSnapshotInfo,
};
use jiff::Timestamp;

use crate::{
    claims::name,
    rpc::SecretNameError,
    snapshotter::{
        Settings,
        content::is_managed,
        parameters::{Purpose, UnknownParameter, for_creation, group_secret, recorded_secret},
        plan_content::{self, is_in_flight},
        responses,
    },
};

/// The driver's response about a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The driver's id.
    pub handle: String,
    /// ready_to_use.
    pub ready: bool,
    /// The point in time of its data, in nanoseconds since 1970.
    pub created: i64,
    /// Its snapshots, if it was created by this call or an earlier one with the same name.
    pub members: Vec<VolumeSnapshotInfo>,
}

/// State of a content that is not written yet.
pub type Memory = responses::Memory<Found>;

/// How to create or poll a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// By CreateVolumeGroupSnapshot: the same call returns the same group.
    Create(Box<CreateVolumeGroupSnapshotRequest>),
    /// A pre-provisioned one by GetVolumeGroupSnapshot.
    Get(GetVolumeGroupSnapshotRequest),
}

/// An action about a content.
pub type Action = plan_content::Action<VolumeGroupSnapshotContent, Question, Found, Obstacle>;

/// Why the driver cannot be called for a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Its class was deleted.
    #[error(
        "failed to get input parameters to create group snapshot for group snapshot content {content}: {:?}",
        not_found(.class)
    )]
    NoClass {
        /// The content.
        content: String,
        /// The class.
        class: String,
    },
    /// The class of an existing group was deleted.
    #[error("failed to get group snapshot class {class} for group snapshot content {content}: {}", not_found(.class))]
    NoClassOfExisting {
        /// The content.
        content: String,
        /// The class.
        class: String,
    },
    /// Its class has an unknown parameter.
    #[error("failed to remove CSI Parameters of prefixed keys: {0}")]
    Parameter(UnknownParameter),
    /// Its class names a secret that cannot be resolved.
    #[error("failed to get secret reference for group snapshot content {content}: {cause}")]
    Secret {
        /// The content.
        content: String,
        /// The error.
        cause: SecretNameError,
    },
}

fn not_found(class: &str) -> String {
    format!("volumegroupsnapshotclass.groupsnapshot.storage.k8s.io \"{class}\" not found")
}

/// Plans the content with this name; and when to poll again without a change.
pub fn plan(
    content: &str,
    world: &World,
    settings: &Settings,
    memory: &Memory,
    now: Timestamp,
) -> (Option<Action>, Option<Duration>) {
    let Some(content) = world.group_snapshot_contents.named(content) else { return (None, None) };
    if content.spec.driver != settings.driver.name || !is_managed(&**content, settings) {
        return (None, None);
    }
    let is_reported = |found: &Found| reports(content, found);
    plan_content::plan(content, memory, now, is_reported, || ask(content, world, settings))
}

/// How to create or poll the group. One that was created for the content is created again until it is ready, with the
/// same secret: only for others the class needs one for GetVolumeGroupSnapshot.
fn ask(
    content: &Arc<VolumeGroupSnapshotContent>,
    world: &World,
    settings: &Settings,
) -> Result<Option<Action>, Obstacle> {
    let ask = |question, secret| Some(Action::Ask { content: content.clone(), question, secret });
    let class = class_of(content, world)?;
    if let Some(existing) = &content.spec.source.group_snapshot_handles {
        let failed = |cause| Obstacle::Secret { content: name(&**content).to_owned(), cause };
        let secret = match class {
            Some(class) => group_secret(Purpose::GroupGet, class, name(&**content), None).map_err(failed)?,
            None => None,
        };
        let request = GetVolumeGroupSnapshotRequest {
            group_snapshot_id: existing.volume_group_snapshot_handle.clone(),
            snapshot_ids: existing.volume_snapshot_handles.clone(),
            ..GetVolumeGroupSnapshotRequest::default()
        };
        return Ok(ask(Question::Get(request), secret));
    }
    let parameters = class.and_then(|class| class.parameters.as_ref());
    let of = &content.spec.volume_group_snapshot_ref;
    let has_metadata = settings.extra_create_metadata;
    let parameters = for_creation(Purpose::Group, parameters, has_metadata, of, name(&**content));
    let parameters = parameters.map_err(Obstacle::Parameter)?;
    let secret = recorded_secret(&**content);
    if !is_in_flight(&**content) && content.handle().is_none() {
        return Ok(Some(Action::Announce { content: content.clone(), secret }));
    }
    let request = CreateVolumeGroupSnapshotRequest {
        name: settings.names.name(of.uid.as_deref().unwrap_or_default()),
        source_volume_ids: content.spec.source.volume_handles.clone().unwrap_or_default(),
        parameters,
        ..CreateVolumeGroupSnapshotRequest::default()
    };
    Ok(ask(Question::Create(Box::new(request)), secret))
}

/// The class, if the content has one.
fn class_of<'w>(
    content: &VolumeGroupSnapshotContent,
    world: &'w World,
) -> Result<Option<&'w VolumeGroupSnapshotClass>, Obstacle> {
    let Some(named) = &content.spec.volume_group_snapshot_class_name else { return Ok(None) };
    match world.group_snapshot_classes.named(named) {
        Some(class) => Ok(Some(class)),
        None => {
            let (content, class, source) = (name(content).to_owned(), named.clone(), &content.spec.source);
            Err(match source.group_snapshot_handles {
                Some(_) => Obstacle::NoClassOfExisting { content, class },
                None => Obstacle::NoClass { content, class },
            })
        }
    }
}

/// Whether the content has this response in its status.
fn reports(content: &VolumeGroupSnapshotContent, found: &Found) -> bool {
    content.handle() == Some(found.handle.as_str())
        && content.is_ready() == found.ready
        && (found.members.is_empty() || !content.members().is_empty())
}
