//! Calls the driver's CreateSnapshot, GetSnapshot, ListSnapshots and DeleteSnapshot, and writes the results.

use std::time::Duration;

use claimcheck_csi::{
    Driver,
    v1::{DeleteSnapshotRequest, Snapshot},
};
use claimcheck_informer::{Backoff, Change, ContentBy, Kind, KindSet, World};
use claimcheck_model::snapshot::VolumeSnapshotContent;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::SecretReference;
use serde_json::json;
use tracing::info;

use super::plan::{Action, Found, Question, plan};
use crate::{
    Failure,
    context::Context,
    rpc::{RpcFailure, credentials},
    shell::{ActionOutcome, Controller, Plan},
    snapshotter::{
        Settings,
        calls::{AnyError, announce, deletion_failed, keys_for_content, release, settle, settle_failed, uid},
        creation_time::{OutOfRange, created},
        responses::Responses,
        status_error::write_error,
    },
};

/// The snapshotter of one driver.
pub struct Contents {
    driver: Driver,
    settings: Settings,
    responses: Responses<Found>,
}

/// A driver's response without a snapshot.
#[derive(Debug, thiserror::Error)]
enum BadAnswer {
    #[error("the driver's answer has no snapshot, or one without id")]
    Nothing,
    #[error("can not find snapshot for snapshotID {0}")]
    NotListed(String),
    #[error("{cause}")]
    Time { handle: String, cause: OutOfRange },
}

impl Controller for Contents {
    type Key = String;
    type Action = Action;

    const NAME: &'static str = "snapshotter";
    /// Number of concurrent calls; upstream's default is 10.
    const WORKERS: usize = 10;
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(60) };

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::SnapshotContent, Kind::SnapshotClass])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<String> {
        match change.kind {
            Kind::SnapshotContent => keys_for_content::<VolumeSnapshotContent, _>(change, &self.responses),
            Kind::SnapshotClass => {
                let contents = world.snapshot_contents.by(ContentBy::Class, &change.key.name);
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
            | Kind::GroupSnapshot
            | Kind::GroupSnapshotContent
            | Kind::GroupSnapshotClass
            | Kind::Snapshot => Vec::new(),
        }
    }

    fn plan(&self, name: &String, world: &World, now: Timestamp) -> Plan<Action> {
        let content = world.snapshot_contents.named(name);
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
            Action::Report { content, found } => {
                let known = content.status.clone().unwrap_or_default();
                let mut status = json!({
                    "snapshotHandle": found.handle,
                    "readyToUse": found.ready,
                    "error": null,
                });
                // As upstream, the first values stay: a driver that cannot be asked for a member of a group returns
                // none (`updateSnapshotContentStatus`).
                if known.creation_time.is_none() {
                    status["creationTime"] = json!(found.created);
                }
                if known.restore_size.is_none() && found.size > 0 {
                    status["restoreSize"] = json!(found.size);
                }
                if let Some(group) = &found.group {
                    status["volumeGroupSnapshotHandle"] = json!(group);
                }
                context.patch_status(&*content, status).await?;
                info!(
                    content = content.metadata.name,
                    handle = found.handle,
                    ready = found.ready,
                    "snapshot"
                );
            }
            Action::Settle(content) => settle(context, &*content).await?,
            Action::Delete { content, handle, secret } => {
                let deleted = async {
                    let secrets = credentials(&context.client, secret.as_ref()).await?;
                    let request = DeleteSnapshotRequest { snapshot_id: handle, secrets };
                    self.driver.controller().delete_snapshot(request).await.map_err(RpcFailure::from)?;
                    Ok::<(), AnyError>(())
                };
                if let Err(error) = deleted.await {
                    return Err(deletion_failed(
                        context,
                        &*content,
                        "snapshot",
                        "SnapshotDeleteError",
                        error,
                    ));
                }
                self.responses.deleted(uid(&*content));
            }
            Action::Release(content) => release(context, &*content).await?,
            Action::Fail { content, obstacle } => {
                let message = format!("Failed to create snapshot: {obstacle}");
                failed(context, &content, "SnapshotCreationFailed", &message, None).await;
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
        let mut controller = self.driver.controller();
        let snapshot = match question {
            Question::Create(mut request) => {
                request.secrets = secrets;
                let response = controller.create_snapshot(*request).await.map_err(RpcFailure::from)?;
                // Upstream reads the group of existing snapshots only.
                let group_snapshot_id = String::new();
                response.into_inner().snapshot.map(|snapshot| Snapshot { group_snapshot_id, ..snapshot })
            }
            // As upstream, the id stays the one of the request: that of another snapshot would be deleted later.
            Question::Get(mut request) => {
                request.secrets = secrets;
                let snapshot_id = request.snapshot_id.clone();
                let response = controller.get_snapshot(request).await.map_err(RpcFailure::from)?;
                response.into_inner().snapshot.map(|snapshot| Snapshot { snapshot_id, ..snapshot })
            }
            Question::List(mut request) => {
                request.secrets = secrets;
                let snapshot_id = request.snapshot_id.clone();
                let list = controller.list_snapshots(request).await.map_err(RpcFailure::from)?.into_inner();
                let entry = list.entries.into_iter().next();
                let entry = entry.ok_or_else(|| BadAnswer::NotListed(snapshot_id.clone()))?;
                entry.snapshot.map(|snapshot| Snapshot { snapshot_id, ..snapshot })
            }
            Question::Trust(handle) => {
                Some(Snapshot { snapshot_id: handle, ready_to_use: true, ..Snapshot::default() })
            }
        };
        let snapshot = snapshot.filter(|snapshot| !snapshot.snapshot_id.is_empty());
        Ok(found(snapshot.ok_or(BadAnswer::Nothing)?)?)
    }

    /// Writes the error of a call. The annotation of a CreateSnapshot that may still be in progress stays, and
    /// the content with it.
    async fn not_asked(
        &self,
        context: &Context,
        content: &VolumeSnapshotContent,
        creates: bool,
        error: AnyError,
    ) -> Result<ActionOutcome, Failure> {
        let name = content.metadata.name.as_deref().unwrap_or_default();
        let what = if creates {
            let volume = content.spec.source.volume_handle.as_deref().unwrap_or_default();
            format!("failed to take snapshot of the volume {volume}: \"{error}\"")
        } else {
            format!("failed to list snapshot for content {name}: \"{error}\"")
        };
        // Upstream: `syncContent`, for which a content without a status is a new one.
        let (reason, message) = if creates && content.status.is_none() {
            ("SnapshotCreationFailed", format!("Failed to create snapshot: {what}"))
        } else {
            let message = format!("Failed to check and update snapshot content: {what}");
            ("SnapshotContentCheckandUpdateFailed", message)
        };
        // A snapshot that exists can be deleted, although it is not usable.
        let handle = match error.downcast_ref() {
            Some(BadAnswer::Time { handle, .. }) => Some(handle.as_str()),
            Some(BadAnswer::Nothing | BadAnswer::NotListed(_)) | None => None,
        };
        failed(context, content, reason, &message, handle).await;
        if creates {
            settle_failed(context, content, &*error).await;
        }
        Err(Failure::Transient(error))
    }
}

fn found(snapshot: Snapshot) -> Result<Found, BadAnswer> {
    let (handle, ready, size) = (snapshot.snapshot_id, snapshot.ready_to_use, snapshot.size_bytes);
    let group = Some(snapshot.group_snapshot_id).filter(|group| !group.is_empty());
    match created(snapshot.creation_time) {
        Ok(created) => Ok(Found { handle, ready, created, size, group }),
        Err(cause) => Err(BadAnswer::Time { handle, cause }),
    }
}

/// Writes an error to the content's status, unless it has it already, and the handle of a snapshot that exists.
async fn failed(
    context: &Context,
    content: &VolumeSnapshotContent,
    reason: &str,
    message: &str,
    handle: Option<&str>,
) {
    let existing = handle.map_or_else(|| json!({}), |handle| json!({ "snapshotHandle": handle }));
    write_error(context, content, reason, message, existing).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_of_range_is_an_error_that_names_it() {
        let of = |seconds: i64, nanos: i32| {
            let mut snapshot = Snapshot { snapshot_id: "s".into(), ..Snapshot::default() };
            let time = snapshot.creation_time.get_or_insert_default();
            (time.seconds, time.nanos) = (seconds, nanos);
            found(snapshot).map(|found| found.created)
        };
        assert_eq!(of(1_700_000_000, 999_999_999).unwrap(), 1_700_000_000_999_999_999);
        // The last second of 64 bits, milliseconds in place of seconds, and nanoseconds that are none.
        let last = i64::MAX / 1_000_000_000;
        assert_eq!(of(last, 854_775_807).unwrap(), i64::MAX);
        let out_of_range = [
            (last, 854_775_808),
            (1_700_000_000_000, 0),
            (i64::MAX, 0),
            (1, 1_000_000_000),
            (1, -1),
            (1, i32::MIN),
        ];
        for (seconds, nanos) in out_of_range {
            let error = of(seconds, nanos).unwrap_err().to_string();
            assert!(error.contains(&format!("out of range: {seconds} s and {nanos} ns")), "{error}");
        }
        assert!(found(Snapshot::default()).unwrap().created > 1_700_000_000_000_000_000, "now");
    }
}
