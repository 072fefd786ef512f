//! Calls the driver's CreateVolumeGroupSnapshot, GetVolumeGroupSnapshot and DeleteVolumeGroupSnapshot, and writes the
//! results.

use std::time::Duration;

use claimcheck_csi::{
    Driver,
    v1::{DeleteVolumeGroupSnapshotRequest, Snapshot, VolumeGroupSnapshot},
};
use claimcheck_informer::{Backoff, Change, GroupContentBy, Kind, KindSet, World};
use claimcheck_model::group_snapshot::{VolumeGroupSnapshotContent, VolumeSnapshotInfo};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::SecretReference, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::json;
use tracing::info;

use super::{
    errors::{BadAnswer, call_message, event_of},
    plan::{Action, Found, Question, plan},
};
use crate::{
    Failure,
    context::Context,
    rpc::{RpcFailure, credentials},
    shell::{ActionOutcome, Controller, Plan},
    snapshotter::{
        Settings,
        calls::{AnyError, announce, deletion_failed, keys_for_content, release, settle, settle_failed, uid},
        creation_time::{created, nanoseconds},
        responses::Responses,
        status_error::write_error,
    },
};

/// The snapshotter of one driver, for groups.
pub struct Contents {
    driver: Driver,
    settings: Settings,
    responses: Responses<Found>,
}

impl Controller for Contents {
    type Key = String;
    type Action = Action;

    const NAME: &'static str = "group-snapshotter";
    /// Number of concurrent calls; upstream's default is 10.
    const WORKERS: usize = 10;
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(60) };

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::GroupSnapshotContent, Kind::GroupSnapshotClass])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<String> {
        match change.kind {
            Kind::GroupSnapshotContent => {
                keys_for_content::<VolumeGroupSnapshotContent, _>(change, &self.responses)
            }
            Kind::GroupSnapshotClass => {
                let contents = world.group_snapshot_contents.by(GroupContentBy::Class, &change.key.name);
                contents.filter_map(|content| content.metadata.name.clone()).collect()
            }
            Kind::Claim
            | Kind::Volume
            | Kind::Class
            | Kind::Pod
            | Kind::Node
            | Kind::Attachment
            | Kind::CsiDriver
            | Kind::CsiNode
            | Kind::Capacity
            | Kind::Lease
            | Kind::ReferenceGrant
            | Kind::Populator
            | Kind::AttributesClass
            | Kind::Snapshot
            | Kind::SnapshotContent
            | Kind::SnapshotClass
            | Kind::GroupSnapshot => Vec::new(),
        }
    }

    fn plan(&self, name: &String, world: &World, now: Timestamp) -> Plan<Action> {
        let content = world.group_snapshot_contents.named(name);
        let memory = content.map(|content| self.responses.of(uid(&**content))).unwrap_or_default();
        let (action, requeue_after) = plan(name, world, &self.settings, &memory, now);
        Plan { actions: action.into_iter().collect(), requeue_after }
    }

    async fn act(&self, context: &Context, _: &String, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::Announce { content, secret } => {
                // With the annotation the content could not be deleted as long as the secret does not exist.
                if let Err(error) = credentials(&context.client, secret.as_ref()).await {
                    return self.not_asked(context, &content, true, error.into()).await;
                }
                announce(context, &*content).await?;
            }
            Action::Ask { content, question, secret } => {
                let creates = matches!(question, Question::Create(_));
                match self.ask(context, question, secret).await {
                    Ok(found) => {
                        let ready = found.ready;
                        self.responses.learned(uid(&*content), found, ready);
                    }
                    Err(error) => return self.not_asked(context, &content, creates, error).await,
                }
            }
            Action::Report { content, found } => report(context, &content, found).await?,
            Action::Settle(content) => settle(context, &*content).await?,
            Action::Delete { content, handle, secret } => {
                let deleted = async {
                    let secrets = credentials(&context.client, secret.as_ref()).await?;
                    let request = DeleteVolumeGroupSnapshotRequest {
                        group_snapshot_id: handle,
                        snapshot_ids: content.snapshot_handles(),
                        secrets,
                    };
                    let mut driver = self.driver.group_controller();
                    driver.delete_volume_group_snapshot(request).await.map_err(RpcFailure::from)?;
                    Ok::<(), AnyError>(())
                };
                if let Err(error) = deleted.await {
                    let (what, reason) = ("group snapshot", "GroupSnapshotDeleteError");
                    return Err(deletion_failed(context, &*content, what, reason, error));
                }
                self.responses.deleted(uid(&*content));
            }
            Action::Release(content) => release(context, &*content).await?,
            Action::Fail { content, obstacle } => {
                let creates = content.spec.source.group_snapshot_handles.is_none();
                let (reason, message) = event_of(&content, creates, &obstacle.to_string());
                failed(context, &content, reason, &message, None).await;
                return Err(obstacle.into());
            }
        }
        Ok(ActionOutcome::Changed)
    }
}

impl Contents {
    pub fn new(driver: Driver, settings: Settings) -> Self {
        Self { driver, settings, responses: Responses::default() }
    }

    async fn ask(
        &self,
        context: &Context,
        question: Question,
        secret: Option<SecretReference>,
    ) -> Result<Found, AnyError> {
        let secrets = credentials(&context.client, secret.as_ref()).await?;
        let mut driver = self.driver.group_controller();
        let (group, creates) = match question {
            Question::Create(mut request) => {
                request.secrets = secrets;
                let response = driver.create_volume_group_snapshot(*request).await;
                (response.map_err(RpcFailure::from)?.into_inner().group_snapshot, true)
            }
            Question::Get(mut request) => {
                request.secrets = secrets;
                // As upstream, the id stays the one of the request: that of another group would be deleted later.
                let group_snapshot_id = request.group_snapshot_id.clone();
                let response = driver.get_volume_group_snapshot(request).await;
                let group = response.map_err(RpcFailure::from)?.into_inner().group_snapshot;
                (group.map(|group| VolumeGroupSnapshot { group_snapshot_id, ..group }), false)
            }
        };
        let group = group.filter(|group| !group.group_snapshot_id.is_empty()).ok_or(BadAnswer::Nothing)?;
        Ok(found(group, creates)?)
    }

    /// Writes the error of a call. The annotation of a CreateVolumeGroupSnapshot that may still be in progress stays,
    /// and the content with it.
    async fn not_asked(
        &self,
        context: &Context,
        content: &VolumeGroupSnapshotContent,
        creates: bool,
        error: AnyError,
    ) -> Result<ActionOutcome, Failure> {
        let (reason, message) = event_of(content, creates, &call_message(content, creates, &*error));
        // A group that exists can be deleted, although it is not usable.
        let existing = error.downcast_ref::<BadAnswer>().and_then(BadAnswer::existing);
        failed(context, content, reason, &message, existing).await;
        if creates {
            settle_failed(context, content, &*error).await;
        }
        Err(Failure::Transient(error))
    }
}

/// Members are created from the snapshots of a new group only; those of an existing one are imported one by one.
fn found(group: VolumeGroupSnapshot, creates: bool) -> Result<Found, BadAnswer> {
    let handle = group.group_snapshot_id;
    let members = match creates {
        true => group.snapshots.into_iter().map(member).collect::<Option<Vec<_>>>(),
        false => Some(Vec::new()),
    };
    let Some(members) = members else { return Err(BadAnswer::Member { handle }) };
    if creates && members.is_empty() {
        return Err(BadAnswer::NoMembers { handle });
    }
    match created(group.creation_time) {
        Ok(created) => Ok(Found { handle, ready: group.ready_to_use, created, members }),
        Err(cause) => Err(BadAnswer::Time { handle, members, cause }),
    }
}

/// A snapshot of a new group; none without its id or volume.
fn member(snapshot: Snapshot) -> Option<VolumeSnapshotInfo> {
    if snapshot.snapshot_id.is_empty() || snapshot.source_volume_id.is_empty() {
        return None;
    }
    let time = snapshot.creation_time.filter(|time| time.seconds > 0);
    Some(VolumeSnapshotInfo {
        creation_time: time.and_then(|time| nanoseconds(&time)),
        ready_to_use: Some(snapshot.ready_to_use),
        restore_size: Some(snapshot.size_bytes).filter(|size| *size > 0),
        snapshot_handle: snapshot.snapshot_id,
        volume_handle: snapshot.source_volume_id,
    })
}

async fn report(
    context: &Context,
    content: &VolumeGroupSnapshotContent,
    found: Found,
) -> Result<(), Failure> {
    let mut status = json!({
        "volumeGroupSnapshotHandle": found.handle,
        "readyToUse": found.ready,
        "error": null,
    });
    let was_created = content.status.as_ref().is_some_and(|status| status.creation_time.is_some());
    if !was_created && let Ok(created) = Timestamp::from_nanosecond(found.created.into()) {
        status["creationTime"] = json!(Time(created));
    }
    // As upstream, the members of the first response are final: each is polled by itself.
    if content.members().is_empty() && !found.members.is_empty() {
        status["volumeSnapshotInfoList"] = json!(found.members);
    }
    context.patch_status(content, status).await?;
    info!(content = content.metadata.name, handle = found.handle, ready = found.ready, "group snapshot");
    Ok(())
}

/// Writes an error to the content's status, unless it has it already, and a group that exists.
async fn failed(
    context: &Context,
    content: &VolumeGroupSnapshotContent,
    reason: &str,
    message: &str,
    existing: Option<(&str, &[VolumeSnapshotInfo])>,
) {
    let mut status = json!({});
    if let Some((handle, members)) = existing {
        status["volumeGroupSnapshotHandle"] = handle.into();
        if content.members().is_empty() && !members.is_empty() {
            status["volumeSnapshotInfoList"] = json!(members);
        }
    }
    write_error(context, content, reason, message, status).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_without_usable_snapshots_is_an_error() {
        let snapshot = |id: &str, volume: &str| Snapshot {
            snapshot_id: id.into(),
            source_volume_id: volume.into(),
            size_bytes: 7,
            ready_to_use: true,
            ..Snapshot::default()
        };
        let of = |snapshots: Vec<Snapshot>, creates| {
            let group = VolumeGroupSnapshot {
                group_snapshot_id: "g".into(),
                snapshots,
                ready_to_use: true,
                ..VolumeGroupSnapshot::default()
            };
            found(group, creates)
        };
        for snapshots in [Vec::new(), vec![snapshot("", "v")], vec![snapshot("s", "")]] {
            let error = of(snapshots, true).unwrap_err();
            let existing = error.existing().map(|(handle, members)| (handle, members.len()));
            assert_eq!(existing, Some(("g", 0)), "it can be deleted: {error}");
        }
        assert!(of(Vec::new(), false).unwrap().members.is_empty(), "an existing one");
        let members = of(vec![snapshot("s", "v")], true).unwrap().members;
        assert_eq!((members[0].snapshot_handle.as_str(), members[0].restore_size), ("s", Some(7)));
    }
}
