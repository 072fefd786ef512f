//! Wakes pods, creates their claims, and emits events about failures.

use claimcheck_informer::{Change, EventType, Kind, KindSet, PodBy, World, key_of};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::plan::{Action, Step, plan};
use crate::{
    context::{Context, Failure},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// The claims of generic ephemeral volumes.
pub struct Ephemeral;

impl Controller for Ephemeral {
    type Key = ObjectKey;
    type Action = Action;

    const NAME: &'static str = "ephemeral volumes";

    fn about(key: &ObjectKey) -> About<'_> {
        About::Pod(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Pod, Kind::Claim])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<ObjectKey> {
        match change.object::<PersistentVolumeClaim>() {
            Some(_) => {
                world.pods.by(PodBy::Claim, &change.key.to_string()).map(|pod| key_of(&**pod)).collect()
            }
            None => vec![change.key.clone()],
        }
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Action> {
        plan(key, world).into()
    }

    async fn act(&self, context: &Context, _: &ObjectKey, action: Action) -> Result<ActionOutcome, Failure> {
        let Action { pod, volume, step } = action;
        let warn = |message: &str| {
            let message = format!("ephemeral volume {volume}: {message}");
            context.event(&*pod, EventType::Warning, "FailedBinding", message);
        };
        match step {
            Step::Refuse(message) => {
                warn(&message);
                Ok(ActionOutcome::Unchanged)
            }
            Step::Create(claim) => {
                let created = context.create(&*claim).await;
                if let Err(Failure::Transient(error)) = &created {
                    warn(&format!("create PVC {}: {error}", key_of(&*claim)));
                }
                created.map(|()| ActionOutcome::Changed)
            }
        }
    }
}
