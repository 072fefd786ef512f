//! Carries out the plans of attach/detach.
//!
//! Keys are volumes, and a key is never processed twice at a time: so a single-node volume is never attached to
//! two nodes. A plan's action is awaited before the volume is planned again, so the state that a detach is
//! decided on includes the response to the write that removed the volume from the node's list.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_informer::{Change, EventType, KindSet, World};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tracing::info;

use super::{
    lists::{Edit, Lists},
    meter::Measured,
    plan::{Action, Memory, plan},
    plan_in_tree::plan_in_tree,
    triggers::{KINDS, Key, concerned},
    volume::csi_parts,
};
use crate::{
    Failure,
    context::Context,
    shell::{About, ActionOutcome, Controller, Plan},
};

/// The attach/detach controller.
pub struct AttachDetach {
    lists: Lists,
    /// State by volume; only for those that have any.
    memories: Mutex<HashMap<Key, Memory>>,
    measured: Measured,
}

impl Controller for AttachDetach {
    type Key = Key;
    type Action = Action;

    const NAME: &'static str = "attach-detach";
    /// Many, since most of them wait for a write of a node's list, which covers all of them.
    const WORKERS: usize = 64;

    fn about(key: &Key) -> About<'_> {
        let (Key::Csi(volume) | Key::InTree(volume)) = key;
        About::Volume(volume)
    }

    fn kinds() -> KindSet {
        KindSet::of(KINDS)
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<Key> {
        self.measured.changed(change);
        concerned(change, world).into_iter().collect()
    }

    fn plan(&self, key: &Key, world: &World, now: Timestamp) -> Plan<Action> {
        // Only one plan at a time uses the key's, and none holds up the others.
        let memory = self.memories().remove(key).unwrap_or_default();
        let planned = match key {
            Key::Csi(volume) => plan(volume, world, &memory, now),
            Key::InTree(unique) => plan_in_tree(unique, world, &memory, now),
        };
        if planned.memory != Memory::default() {
            self.memories().insert(key.clone(), planned.memory);
        }
        let wait = planned.requeue_at.map(|at| at.duration_since(now).try_into().unwrap_or(Duration::ZERO));
        Plan { actions: planned.actions, requeue_after: wait }
    }

    async fn act(&self, context: &Context, key: &Key, action: Action) -> Result<ActionOutcome, Failure> {
        let (Key::Csi(volume) | Key::InTree(volume)) = key;
        match action {
            Action::Warn { pod, message } => {
                context.events.record(&pod, EventType::Warning, "FailedAttachVolume", message);
                return Ok(ActionOutcome::Unchanged);
            }
            Action::Attach { attachment, pods } => {
                self.measured.attaches(&attachment);
                let created = context.create(&*attachment).await;
                if let Err(Failure::Transient(error)) = &created {
                    let name = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
                    let message = format!("AttachVolume.Attach failed for volume {name:?} : {error}");
                    emit_events(context, &pods, EventType::Warning, "FailedAttachVolume", &message);
                    self.measured.not_attached(&attachment);
                }
                created?;
            }
            Action::List { node, volume, unique, waiting, doubtful } => {
                let listed = waiting.is_some();
                let name = csi_parts(&unique)
                    .map(|(driver, handle)| claimcheck_model::attachment_name(handle, driver, &node));
                let written = self.lists.edit(context, &node, Edit { unique, listed, doubtful }).await;
                self.memories().entry(key.clone()).or_default().note_write(&node, written.is_ok());
                written?;
                if let Some(name) = name.filter(|_| waiting.is_some())
                    && let Some(attachment) = context.informer.read().attachments.named(&name)
                {
                    self.measured.attached(attachment);
                }
                // The trailing blank is upstream's, and people's scripts match on it.
                let message = format!("AttachVolume.Attach succeeded for volume {volume:?} ");
                emit_events(
                    context,
                    &waiting.unwrap_or_default(),
                    EventType::Normal,
                    "SuccessfulAttachVolume",
                    &message,
                );
            }
            Action::Detach { attachment } => {
                info!(volume, node = attachment.spec.node_name, "detaches");
                self.measured.detaches(&attachment, &context.informer.read());
                context.delete(&*attachment).await?;
            }
        }
        Ok(ActionOutcome::Changed)
    }
}

impl AttachDetach {
    pub fn new(context: &Context) -> Self {
        Self { lists: Lists::default(), memories: Mutex::default(), measured: Measured::new(context) }
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn memories(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn emit_events(context: &Context, pods: &[Arc<Pod>], kind: EventType, reason: &str, message: &str) {
    for pod in pods {
        context.event(&**pod, kind, reason, message);
    }
}
