//! The next step of a content of a group.
//!
//! Upstream: `syncGroupSnapshotContent`, `shouldDeleteGroupSnapshotContent`, `createGroupSnapshotWrapper` and
//! `checkandUpdateGroupSnapshotContentStatusOperation` in `pkg/sidecar-controller/groupsnapshot_helper.go`.

use std::{sync::Arc, time::Duration};

use claimcheck_csi::v1::{CreateVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotRequest};
use claimcheck_informer::World;
use claimcheck_model::{
    GROUP_SNAPSHOT_BEING_CREATED, GROUP_SNAPSHOT_BEING_DELETED, GROUP_SNAPSHOT_CONTENT_PROTECTION,
    GROUP_SNAPSHOT_SECRET_NAME, GROUP_SNAPSHOT_SECRET_NAMESPACE,
    group_snapshot::{VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, VolumeSnapshotInfo},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::SecretReference;

use crate::{
    claims::{annotation, is_deleting, name},
    rpc::{RESERVED, SecretNameError},
    snapshotter::{
        Settings,
        parameters::{Purpose, UnknownParameter, for_driver, group_secret, recorded_secret},
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

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Annotate that CreateVolumeGroupSnapshot will be called, so that the content is not deleted before its result is
    /// known.
    Announce {
        /// The content.
        content: Arc<VolumeGroupSnapshotContent>,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Call the driver.
    Ask {
        /// The content.
        content: Arc<VolumeGroupSnapshotContent>,
        /// The call.
        question: Question,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Write the driver's response.
    Report {
        /// The content.
        content: Arc<VolumeGroupSnapshotContent>,
        /// The response.
        found: Found,
    },
    /// Remove the annotation: CreateVolumeGroupSnapshot has ended.
    Settle(Arc<VolumeGroupSnapshotContent>),
    /// Call DeleteVolumeGroupSnapshot.
    Delete {
        /// The content.
        content: Arc<VolumeGroupSnapshotContent>,
        /// The driver's id.
        handle: String,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Remove the content's finalizer.
    Release(Arc<VolumeGroupSnapshotContent>),
    /// Write why the driver cannot be called.
    Fail {
        /// The content.
        content: Arc<VolumeGroupSnapshotContent>,
        /// The reason.
        obstacle: Obstacle,
    },
}

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
    if content.spec.driver != settings.driver.name {
        return (None, None);
    }
    let in_flight = annotation(&**content, GROUP_SNAPSHOT_BEING_CREATED).is_some();
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
    let step = ask(content, world, settings, in_flight);
    let fail = |obstacle| Action::Fail { content: content.clone(), obstacle };
    (Some(step.unwrap_or_else(fail)), None)
}

/// A content that is being deleted, after the end of CreateVolumeGroupSnapshot.
fn deletion(content: &Arc<VolumeGroupSnapshotContent>, memory: &Memory) -> Option<Action> {
    let mut finalizers = content.metadata.finalizers.iter().flatten();
    if !finalizers.any(|held| held == GROUP_SNAPSHOT_CONTENT_PROTECTION) {
        return None;
    }
    let uid = content.spec.volume_group_snapshot_ref.uid.as_deref().unwrap_or_default();
    let unbound = content.spec.source.group_snapshot_handles.is_some() && uid.is_empty();
    // Deleting the content of a group that exists deletes nothing.
    if !unbound && annotation(&**content, GROUP_SNAPSHOT_BEING_DELETED).is_none() {
        return None;
    }
    Some(match content.handle() {
        Some(handle) if content.is_deleted_with_group() && !memory.deleted => {
            let (content, handle) = (content.clone(), handle.to_owned());
            Action::Delete { secret: annotated_secret(&content), content, handle }
        }
        Some(_) | None => Action::Release(content.clone()),
    })
}

/// How to create or poll the group. One that was created for the content is created again until it is ready, with the
/// same secret: only for others the class needs one for GetVolumeGroupSnapshot.
fn ask(
    content: &Arc<VolumeGroupSnapshotContent>,
    world: &World,
    settings: &Settings,
    in_flight: bool,
) -> Result<Action, Obstacle> {
    let ask = |question, secret| Action::Ask { content: content.clone(), question, secret };
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
    let parameters = for_driver(class.and_then(|class| class.parameters.as_ref()));
    let mut parameters = parameters.map_err(Obstacle::Parameter)?;
    let of = &content.spec.volume_group_snapshot_ref;
    if settings.extra_create_metadata {
        for (key, value) in [
            ("volumegroupsnapshot/name", of.name.as_deref()),
            ("volumegroupsnapshot/namespace", of.namespace.as_deref()),
            ("volumegroupsnapshotcontent/name", content.metadata.name.as_deref()),
        ] {
            parameters.insert(format!("{RESERVED}{key}"), value.unwrap_or_default().to_owned());
        }
    }
    if !in_flight && content.handle().is_none() {
        return Ok(Action::Announce { secret: annotated_secret(content), content: content.clone() });
    }
    let request = CreateVolumeGroupSnapshotRequest {
        name: settings.names.name(of.uid.as_deref().unwrap_or_default()),
        source_volume_ids: content.spec.source.volume_handles.clone().unwrap_or_default(),
        parameters,
        ..CreateVolumeGroupSnapshotRequest::default()
    };
    Ok(ask(Question::Create(Box::new(request)), annotated_secret(content)))
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

/// The secret that was recorded when the content was created.
fn annotated_secret(content: &VolumeGroupSnapshotContent) -> Option<SecretReference> {
    recorded_secret(content, GROUP_SNAPSHOT_SECRET_NAME, GROUP_SNAPSHOT_SECRET_NAMESPACE)
}

/// Whether the content has this response in its status.
fn reports(content: &VolumeGroupSnapshotContent, found: &Found) -> bool {
    content.handle() == Some(found.handle.as_str())
        && content.is_ready() == found.ready
        && (found.members.is_empty() || !content.members().is_empty())
}
