//! Calls the driver's ControllerPublishVolume and ControllerUnpublishVolume and writes the results.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_csi::Driver;
use claimcheck_informer::{AttachmentBy, Backoff, Change, Kind, KindSet, World};
use claimcheck_model::attacher_finalizer;
use jiff::Timestamp;
use k8s_openapi::{
    api::storage::v1::{VolumeAttachment, VolumeError},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::json;
use tracing::{info, warn};

use super::plan::{Action, Known, NODE_ID, plan_attachment, plan_volume};
use crate::{
    Failure,
    context::Context,
    rpc::{DriverInfo, RpcFailure, credentials},
    shell::{About, Controller, Done, Plan},
};

/// A key of the reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The attachment with this name.
    Attachment(String),
    /// The volume with this name.
    Volume(String),
}

/// The attacher of one driver.
pub struct Attacher {
    driver: Driver,
    info: DriverInfo,
    /// By the attachment's uid.
    known: Mutex<HashMap<String, Known>>,
}

impl Controller for Attacher {
    type Key = Key;
    type Action = Action;

    const NAME: &'static str = "attacher";
    /// Number of concurrent calls; upstream's default is 10.
    const WORKERS: usize = 32;
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(60) };

    fn about(key: &Key) -> About<'_> {
        match key {
            Key::Attachment(_) => About::Other(key),
            Key::Volume(volume) => About::Volume(volume),
        }
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Attachment, Kind::Volume, Kind::CsiNode])
    }

    fn wakes(&self, change: &Change, world: &World) -> Vec<Key> {
        let name = change.key.name.clone();
        let of = |index| world.attachments.by(index, &name).filter_map(|object| object.metadata.name.clone());
        match change.kind {
            Kind::Attachment => self.wakes_of_attachment(change),
            // What an attachment waits for may have come: its volume, or the driver on its node.
            Kind::Volume => {
                of(AttachmentBy::Volume).map(Key::Attachment).chain([Key::Volume(name.clone())]).collect()
            }
            Kind::CsiNode => of(AttachmentBy::Node).map(Key::Attachment).collect(),
            Kind::Claim
            | Kind::Class
            | Kind::Pod
            | Kind::Node
            | Kind::CsiDriver
            | Kind::Capacity
            | Kind::Lease
            | Kind::Snapshot
            | Kind::SnapshotContent
            | Kind::SnapshotClass
            | Kind::AttributesClass => Vec::new(),
        }
    }

    fn plan(&self, key: &Key, world: &World, _: Timestamp) -> Plan<Action> {
        let action = match key {
            Key::Attachment(name) => {
                let uid = world.attachments.named(name).and_then(|object| object.metadata.uid.as_ref());
                let known = uid.and_then(|uid| self.known().get(uid).cloned());
                plan_attachment(name, world, &self.info, known.as_ref())
            }
            Key::Volume(name) => plan_volume(name, world, &self.info),
        };
        action.into_iter().collect::<Vec<_>>().into()
    }

    async fn act(&self, context: &Context, _: &Key, action: Action) -> Result<Done, Failure> {
        match action {
            Action::Hold { attachment, node_id, volume } => {
                // Neither write waits for the other: the call that follows waits for both.
                let (held, volume_held) = tokio::join!(
                    async {
                        let Some(attachment) = attachment else { return Ok(()) };
                        let finalizers = self.with_finalizer(&attachment.metadata);
                        let metadata = json!({"annotations": {NODE_ID: node_id}, "finalizers": finalizers});
                        context.patch(&*attachment, json!({ "metadata": metadata })).await
                    },
                    async {
                        let Some(volume) = volume else { return Ok(()) };
                        let finalizers = self.with_finalizer(&volume.metadata);
                        context.patch(&*volume, json!({"metadata": {"finalizers": finalizers}})).await
                    }
                );
                held.and(volume_held)?;
            }
            Action::Publish { attachment, mut request, secret } => {
                let published = async {
                    request.secrets = credentials(&context.client, secret.as_ref()).await?;
                    let answer = self.driver.controller().controller_publish_volume(*request).await;
                    Ok(answer.map_err(RpcFailure::from)?.into_inner())
                };
                match published.await {
                    Ok(answer) => {
                        let metadata = answer.publish_context;
                        self.know(&attachment, Known::Published(metadata));
                    }
                    Err(error) => return self.failed(context, &attachment, error).await,
                }
            }
            Action::MarkAttached { attachment, metadata } => {
                let metadata = if metadata.is_empty() { None } else { Some(metadata) };
                let status = json!({"attached": true, "attachmentMetadata": metadata, "attachError": null});
                context.patch_status(&*attachment, status).await?;
                self.forget(&attachment);
                info!(
                    volume = attachment.spec.source.persistent_volume_name,
                    node = attachment.spec.node_name,
                    "attached"
                );
            }
            Action::Unpublish { attachment, mut request, secret } => {
                let unpublished = async {
                    request.secrets = credentials(&context.client, secret.as_ref()).await?;
                    let answer = self.driver.controller().controller_unpublish_volume(*request).await;
                    Ok(answer.map_err(RpcFailure::from)?)
                };
                match unpublished.await {
                    Ok(_) => self.know(&attachment, Known::Unpublished),
                    Err(error) => return self.failed(context, &attachment, error).await,
                }
            }
            // The finalizer first: an attachment that is being deleted and lacks it counts as detached,
            // whatever its status says. The reverse order would cause a second Unpublish.
            Action::Release(attachment) => {
                context.release(&*attachment, &attacher_finalizer(&self.info.name)).await?;
                info!(
                    volume = attachment.spec.source.persistent_volume_name,
                    node = attachment.spec.node_name,
                    "detached"
                );
            }
            Action::MarkDetached(attachment) => {
                let status = json!({"attached": false, "attachmentMetadata": null, "detachError": null});
                context.patch_status(&*attachment, status).await?;
            }
            Action::Fail { attachment, error } => {
                return self.failed(context, &attachment, Box::new(error)).await;
            }
            Action::ReleaseVolume(volume) => {
                context.release(&*volume, &attacher_finalizer(&self.info.name)).await?;
            }
        }
        Ok(Done::Wrote)
    }
}

impl Attacher {
    pub fn new(driver: Driver, info: DriverInfo) -> Self {
        Self { driver, info, known: Mutex::default() }
    }

    /// An error written by this controller is no reason to retry before the backoff is over.
    fn wakes_of_attachment(&self, change: &Change) -> Vec<Key> {
        let attachment = Key::Attachment(change.key.name.clone());
        match change.both::<VolumeAttachment>() {
            (Some(old), Some(new)) if but_for_errors(old) == but_for_errors(new) => Vec::new(),
            (_, Some(_)) => vec![attachment],
            (Some(gone), None) => {
                self.forget(gone);
                gone.spec.source.persistent_volume_name.clone().map(Key::Volume).into_iter().collect()
            }
            (None, None) => Vec::new(),
        }
    }

    /// Writes an error to the attachment's status, unless it has it already.
    async fn failed(
        &self,
        context: &Context,
        attachment: &VolumeAttachment,
        error: Box<dyn std::error::Error + Send + Sync>,
    ) -> Result<Done, Failure> {
        let field =
            if attachment.metadata.deletion_timestamp.is_some() { "detachError" } else { "attachError" };
        let status = attachment.status.as_ref();
        let old = match field {
            "detachError" => status.and_then(|status| status.detach_error.as_ref()),
            _ => status.and_then(|status| status.attach_error.as_ref()),
        };
        let message = error.to_string();
        if old.and_then(|old| old.message.as_ref()) != Some(&message) {
            let error_code = error.downcast_ref::<RpcFailure>().map(|failure| failure.number);
            let written =
                VolumeError { error_code, message: Some(message), time: Some(Time(Timestamp::now())) };
            if let Err(Failure::Later(cause)) =
                context.patch_status(attachment, json!({ field: written })).await
            {
                warn!(
                    attachment = attachment.metadata.name,
                    cause, "the error cannot be written to its status"
                );
            }
        }
        Err(Failure::Later(error))
    }

    fn with_finalizer(&self, meta: &ObjectMeta) -> Vec<String> {
        let ours = attacher_finalizer(&self.info.name);
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        if !finalizers.contains(&ours) {
            finalizers.push(ours);
        }
        finalizers
    }

    fn know(&self, attachment: &VolumeAttachment, known: Known) {
        self.known().insert(attachment.metadata.uid.clone().unwrap_or_default(), known);
    }

    fn forget(&self, attachment: &VolumeAttachment) {
        self.known().remove(attachment.metadata.uid.as_deref().unwrap_or_default());
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The attachment without the fields that its errors change.
fn but_for_errors(attachment: &VolumeAttachment) -> VolumeAttachment {
    let mut attachment = attachment.clone();
    attachment.metadata.resource_version = None;
    if let Some(status) = &mut attachment.status {
        status.attach_error = None;
        status.detach_error = None;
    }
    attachment
}
