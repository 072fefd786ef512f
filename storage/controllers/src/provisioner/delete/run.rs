//! Calls DeleteVolume and deletes PersistentVolume objects.

use std::{
    collections::HashSet,
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use claimcheck_csi::{Driver, v1::DeleteVolumeRequest};
use claimcheck_informer::{Backoff, Change, EventType, Kind, KindSet, World};
use claimcheck_model::PROVISIONER_FINALIZER;
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::VolumeAttachment};
use serde_json::json;
use tracing::{info, warn};

use super::plan::{Action, plan};
use crate::{
    Failure,
    context::Context,
    provisioner::{Settings, meter},
    rpc::{RpcFailure, credentials},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// The controller that deletes volumes.
pub struct Volumes {
    driver: Driver,
    settings: Settings,
    /// Uids of the volumes that the driver has deleted but not yet their objects.
    deleted: Mutex<HashSet<String>>,
}

impl Controller for Volumes {
    type Key = String;
    type Action = Action;

    const NAME: &'static str = "provisioner-deletion";
    /// Number of concurrent DeleteVolume calls.
    const WORKERS: usize = 100;
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(60) };

    fn about(key: &String) -> About<'_> {
        About::Volume(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Volume, Kind::Attachment])
    }

    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<String> {
        match change.kind {
            Kind::Volume => {
                if change.new.is_none()
                    && let Some(uid) =
                        change.object::<PersistentVolume>().and_then(|missing| missing.metadata.uid.as_ref())
                {
                    self.deleted().remove(uid);
                }
                vec![change.key.name.clone()]
            }
            // Only its end can set a volume free, or its replacement by one of another volume in a gap of the watch.
            Kind::Attachment => {
                let volume = |attachment: &Arc<VolumeAttachment>| {
                    attachment.spec.source.persistent_volume_name.clone()
                };
                let (old, new) = change.both();
                let (old, new) = (old.and_then(volume), new.and_then(volume));
                old.filter(|old| new.as_ref() != Some(old)).into_iter().collect()
            }
            Kind::Claim
            | Kind::Class
            | Kind::Pod
            | Kind::Node
            | Kind::CsiDriver
            | Kind::Capacity
            | Kind::Lease
            | Kind::ReferenceGrant
            | Kind::Populator
            | Kind::CsiNode
            | Kind::Snapshot
            | Kind::SnapshotContent
            | Kind::SnapshotClass
            | Kind::GroupSnapshot
            | Kind::GroupSnapshotContent
            | Kind::GroupSnapshotClass
            | Kind::AttributesClass => Vec::new(),
        }
    }

    fn plan(&self, volume: &String, world: &World, _: Timestamp) -> Plan<Action> {
        let is_deleted = |volume: &PersistentVolume| self.deleted().contains(uid(volume));
        let (driver, local) = (&self.settings.driver, self.settings.local.as_deref());
        let action = plan(volume, world, driver, local, is_deleted);
        action.into_iter().collect::<Vec<_>>().into()
    }

    async fn act(&self, context: &Context, _: &String, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::AddFinalizer(volume) => {
                let mut finalizers = volume.metadata.finalizers.clone().unwrap_or_default();
                finalizers.push(PROVISIONER_FINALIZER.to_owned());
                context.patch(&*volume, json!({"metadata": {"finalizers": finalizers}})).await?;
            }
            Action::RemoveFinalizer(volume) => {
                context.release(&*volume, PROVISIONER_FINALIZER).await?;
            }
            Action::DeleteVolume { volume, handle, secret } => {
                let began = Instant::now();
                // The secret may have been deleted with its namespace (`handleSecretsForDeletion`).
                let secrets = credentials(&context.client, secret.as_ref()).await.unwrap_or_else(|error| {
                    warn!(volume = volume.metadata.name, "deleting it without secrets: {error}");
                    Default::default()
                });
                let request = DeleteVolumeRequest { volume_id: handle, secrets };
                let answer = self.driver.controller().delete_volume(request).await;
                meter::deleted(&context.meter, &volume, began.elapsed(), answer.is_ok());
                if let Err(status) = answer {
                    return Err(failed(context, &volume, RpcFailure::from(status)));
                }
                self.deleted().insert(uid(&volume).to_owned());
            }
            Action::DeleteObject(volume) => {
                context.delete(&*volume).await?;
                info!(volume = volume.metadata.name, "deleted");
            }
            Action::Refuse { volume, refusal } => {
                meter::deleted(&context.meter, &volume, Duration::ZERO, false);
                return Err(failed(context, &volume, refusal));
            }
        }
        Ok(ActionOutcome::Changed)
    }
}

impl Volumes {
    pub fn new(driver: Driver, settings: Settings) -> Self {
        Self { driver, settings, deleted: Mutex::default() }
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn deleted(&self) -> MutexGuard<'_, HashSet<String>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Emits an event about a volume that could not be deleted.
fn failed(
    context: &Context,
    volume: &PersistentVolume,
    error: impl Error + Send + Sync + 'static,
) -> Failure {
    context.event(volume, EventType::Warning, "VolumeFailedDelete", error.to_string());
    error.into()
}

fn uid(volume: &PersistentVolume) -> &str {
    volume.metadata.uid.as_deref().unwrap_or_default()
}
