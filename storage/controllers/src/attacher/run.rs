//! Calls the driver's ControllerPublishVolume and ControllerUnpublishVolume and writes the results; calls its
//! ListVolumes to compare.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_csi::{
    Driver, SIDECAR_DEADLINE,
    v1::{
        ControllerPublishVolumeRequest, ListVolumesRequest, controller_service_capability::rpc::Type as Rpc,
        volume_capability::AccessType,
    },
};
use claimcheck_informer::{AttachmentBy, Backoff, Change, Kind, KindSet, World};
use claimcheck_model::attacher_finalizer;
use jiff::Timestamp;
use k8s_openapi::{
    api::storage::v1::{CSINode, VolumeAttachment, VolumeError},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::json;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{
    listing::{Listing, Published},
    plan::{Action, Known, NODE_ID, Unheld, is_contradicted, plan_attachment, plan_volume, registered_id},
};
use crate::{
    Failure, Options,
    context::Context,
    rpc::{DriverInfo, RpcFailure, SecretError, credentials},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// A key of the reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The attachment with this name.
    Attachment(String),
    /// The volume with this name.
    Volume(String),
    /// The driver's list of volumes.
    List,
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A secret that cannot be read. The text differs from that of the other sidecars. Upstream: `getCredentialsFromPV` in
/// `pkg/controller/csi_handler.go`.
#[derive(Debug, thiserror::Error)]
#[error("failed to load secret \"{namespace}/{name}\": {cause}")]
struct NotLoaded {
    namespace: String,
    name: String,
    cause: String,
}

/// The attacher of one driver.
pub struct Attacher {
    driver: Driver,
    info: DriverInfo,
    options: Options,
    /// By the attachment's uid.
    known: Mutex<HashMap<String, Known>>,
    listing: Mutex<Listing>,
}

impl Controller for Attacher {
    type Key = Key;
    type Action = Action;

    const NAME: &'static str = "attacher";
    /// Number of concurrent calls; upstream's default is 10.
    const WORKERS: usize = 10;
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(60) };

    fn about(key: &Key) -> About<'_> {
        match key {
            Key::Attachment(_) | Key::List => About::Other(key),
            Key::Volume(volume) => About::Volume(volume),
        }
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Attachment, Kind::Volume, Kind::CsiNode])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<Key> {
        let name = change.key.name.clone();
        let of = |index| world.attachments.by(index, &name).filter_map(|object| object.metadata.name.clone());
        match change.kind {
            Kind::Attachment => self.keys_for_attachment(change),
            // What an attachment waits for may have come: its volume, or the driver on its node. Any other change of
            // these is no reason to repeat a failed call before the backoff is over (upstream: `pvUpdated`).
            Kind::Volume if change.old.is_none() => {
                of(AttachmentBy::Volume).map(Key::Attachment).chain([Key::Volume(name.clone())]).collect()
            }
            Kind::Volume => vec![Key::Volume(name)],
            Kind::CsiNode if self.registers(change) => of(AttachmentBy::Node).map(Key::Attachment).collect(),
            Kind::CsiNode
            | Kind::Claim
            | Kind::Class
            | Kind::Pod
            | Kind::Node
            | Kind::CsiDriver
            | Kind::Capacity
            | Kind::Lease
            | Kind::ReferenceGrant
            | Kind::Populator
            | Kind::Snapshot
            | Kind::SnapshotContent
            | Kind::SnapshotClass
            | Kind::GroupSnapshot
            | Kind::GroupSnapshotContent
            | Kind::GroupSnapshotClass
            | Kind::AttributesClass => Vec::new(),
        }
    }

    fn plan(&self, key: &Key, world: &World, now: Timestamp) -> Plan<Action> {
        match key {
            Key::Attachment(name) => self.plan_attachment(name, world, now),
            Key::Volume(name) => Vec::from_iter(plan_volume(name, world, &self.info)).into(),
            Key::List => self.plan_list(world, now),
        }
    }

    async fn act(&self, context: &Context, _: &Key, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::Hold { attachment, volume } => {
                // Neither write waits for the other: the call that follows waits for both.
                let (held, volume_held) = tokio::join!(
                    async {
                        let Some(unheld) = attachment else { return Ok(()) };
                        let Unheld { attachment, node_id, secret } = *unheld;
                        if let Err(error) = credentials(&context.client, secret.as_ref()).await {
                            return self.failed(context, &attachment, from_secret(error)).await.map(drop);
                        }
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
                self.default_fs_type(&mut request);
                let published = async {
                    let secrets = credentials(&context.client, secret.as_ref()).await;
                    request.secrets = secrets.map_err(from_secret)?;
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
                    let secrets = credentials(&context.client, secret.as_ref()).await;
                    request.secrets = secrets.map_err(from_secret)?;
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
            Action::List => {
                self.listing().begin(Timestamp::now());
                // One deadline for all pages, as upstream.
                let limit = self.options.calls.timeout.unwrap_or(SIDECAR_DEADLINE);
                let listed = async { Ok::<_, AnyError>(timeout(limit, self.published()).await??) };
                match listed.await {
                    Ok(published) => self.listing().answered(published),
                    Err(error) => {
                        warn!(error, "cannot list the driver's volumes to compare attachments with them");
                    }
                }
            }
        }
        Ok(ActionOutcome::Changed)
    }
}

impl Attacher {
    pub fn new(driver: Driver, info: DriverInfo, options: Options) -> Self {
        let listing = Mutex::new(Listing::new(options.attaching.reconcile_sync, Timestamp::now()));
        Self { driver, info, options, known: Mutex::default(), listing }
    }

    /// Plans an attachment and, when nothing is ahead for it, compares it with the driver's list.
    fn plan_attachment(&self, name: &str, world: &World, now: Timestamp) -> Plan<Action> {
        let Some(attachment) = world.attachments.named(name) else { return Vec::new().into() };
        let plan = |known: Option<&Known>| plan_attachment(name, world, &self.info, known);
        let uid = uid(attachment);
        let known = self.known().get(uid).cloned();
        let action = plan(known.as_ref());
        if attachment.spec.attacher != self.info.name || !self.lists() {
            return Vec::from_iter(action).into();
        }
        let mut listing = self.listing();
        if let Some(action) = action {
            listing.unsettle(uid);
            return vec![action].into();
        }
        let contradicts = |published: &Published| is_contradicted(attachment, world, &self.info, published);
        if listing.unsettled(uid, now).is_some_and(contradicts) {
            warn!(attachment = name, "the driver's list of volumes contradicts its status, calling again");
            self.know(attachment, Known::Contradicted);
            return Vec::from_iter(plan(Some(&Known::Contradicted))).into();
        }
        Plan { actions: Vec::new(), requeue_after: Some(listing.next_look(now)) }
    }

    /// Nothing is listed while the driver has no attachments: the first one wakes the list.
    fn plan_list(&self, world: &World, now: Timestamp) -> Plan<Action> {
        if !self.lists() || world.attachments.count(AttachmentBy::Attacher, &self.info.name) == 0 {
            return Vec::new().into();
        }
        match self.listing().left(now) {
            None => vec![Action::List].into(),
            requeue_after => Plan { actions: Vec::new(), requeue_after },
        }
    }

    /// Upstream: `GetVolumeCapabilities` in `pkg/controller/util.go`.
    fn default_fs_type(&self, request: &mut ControllerPublishVolumeRequest) {
        let access_type = request.volume_capability.as_mut().and_then(|of| of.access_type.as_mut());
        if let Some(AccessType::Mount(mount)) = access_type
            && mount.fs_type.is_empty()
        {
            mount.fs_type.clone_from(&self.options.default_fs_type);
        }
    }

    /// Whether the driver's list shows where volumes are published.
    fn lists(&self) -> bool {
        let needed = [Rpc::PublishUnpublishVolume, Rpc::ListVolumes, Rpc::ListVolumesPublishedNodes];
        needed.into_iter().all(|rpc| self.info.can(rpc))
    }

    /// All pages of the driver's list. Upstream: `ListVolumes` in `pkg/attacher/lister.go`.
    async fn published(&self) -> Result<Published, RpcFailure> {
        let max_entries = self.options.attaching.max_entries;
        let mut request = ListVolumesRequest { max_entries, ..ListVolumesRequest::default() };
        let mut published = Published::new();
        loop {
            let page = self.driver.controller().list_volumes(request.clone()).await?.into_inner();
            for entry in page.entries {
                if let (Some(volume), Some(status)) = (entry.volume, entry.status) {
                    published.insert(volume.volume_id, status.published_node_ids);
                }
            }
            if page.next_token.is_empty() {
                return Ok(published);
            }
            request.starting_token = page.next_token;
        }
    }

    /// Whether the driver's id of the node changes.
    fn registers(&self, change: &Change) -> bool {
        let (old, new) = change.both::<CSINode>();
        old.and_then(|node| registered_id(node, &self.info))
            != new.and_then(|node| registered_id(node, &self.info))
    }

    /// An error written by this controller is no reason to retry before the backoff is over.
    fn keys_for_attachment(&self, change: &Change) -> Vec<Key> {
        let attachment = Key::Attachment(change.key.name.clone());
        match change.both::<VolumeAttachment>() {
            (Some(old), Some(new)) if but_for_errors(old) == but_for_errors(new) => Vec::new(),
            (None, Some(_)) => vec![attachment, Key::List],
            (Some(_), Some(_)) => vec![attachment],
            (Some(deleted), None) => {
                self.forget(deleted);
                self.listing().forget(uid(deleted));
                deleted.spec.source.persistent_volume_name.clone().map(Key::Volume).into_iter().collect()
            }
            (None, None) => Vec::new(),
        }
    }

    /// Writes an error to the attachment's status, unless it has it already.
    async fn failed(
        &self,
        context: &Context,
        attachment: &VolumeAttachment,
        error: AnyError,
    ) -> Result<ActionOutcome, Failure> {
        // A list forces one call only, as `consumeForceSync` upstream: whether more follow depends on the next list.
        self.known().retain(|of, known| of != uid(attachment) || *known != Known::Contradicted);
        let field =
            if attachment.metadata.deletion_timestamp.is_some() { "detachError" } else { "attachError" };
        let status = attachment.status.as_ref();
        let old = match field {
            "detachError" => status.and_then(|status| status.detach_error.as_ref()),
            _ => status.and_then(|status| status.attach_error.as_ref()),
        };
        let message = error.to_string();
        if old.and_then(|old| old.message.as_ref()) != Some(&message) {
            // Upstream: `saveAttachError` has a code, `saveDetachError` has none.
            let failure = error.downcast_ref::<RpcFailure>().filter(|_| field == "attachError");
            let error_code = failure.map(|failure| failure.number);
            let written =
                VolumeError { error_code, message: Some(message), time: Some(Time(Timestamp::now())) };
            if let Err(Failure::Transient(cause)) =
                context.patch_status(attachment, json!({ field: written })).await
            {
                warn!(
                    attachment = attachment.metadata.name,
                    cause, "the error cannot be written to its status"
                );
            }
        }
        Err(Failure::Transient(error))
    }

    fn with_finalizer(&self, meta: &ObjectMeta) -> Vec<String> {
        let own_finalizer = attacher_finalizer(&self.info.name);
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        if !finalizers.contains(&own_finalizer) {
            finalizers.push(own_finalizer);
        }
        finalizers
    }

    fn know(&self, attachment: &VolumeAttachment, known: Known) {
        self.known().insert(uid(attachment).to_owned(), known);
    }

    fn forget(&self, attachment: &VolumeAttachment) {
        self.known().remove(uid(attachment));
    }

    // Nothing panics while one of these is locked, so a poisoned one is whole.
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listing(&self) -> MutexGuard<'_, Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn from_secret(error: SecretError) -> AnyError {
    match error {
        SecretError::Get { namespace, name, cause } => NotLoaded { namespace, name, cause }.into(),
        SecretError::NotText { .. } => error.into(),
    }
}

fn uid(attachment: &VolumeAttachment) -> &str {
    attachment.metadata.uid.as_deref().unwrap_or_default()
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
