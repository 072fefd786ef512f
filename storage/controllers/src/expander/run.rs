//! Wakes on changed requests of claims, and emits the events.

use claimcheck_informer::{Change, EventType, Kind, KindSet, World, growth};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::plan::{Action, plan};
use crate::{
    context::{Context, Failure},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// Reports which component expands a claim's volume.
pub struct Expander;

impl Controller for Expander {
    type Key = ObjectKey;
    type Action = Action;

    const NAME: &'static str = "expander";

    fn about(key: &ObjectKey) -> About<'_> {
        About::Claim(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Claim])
    }

    /// Only a changed request matters.
    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        match change.both::<PersistentVolumeClaim>() {
            (Some(old), Some(new)) if growth::requested(old) >= growth::requested(new) => Vec::new(),
            (_, Some(_)) => vec![change.key.clone()],
            (_, None) => Vec::new(),
        }
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Action> {
        plan(key, world).into_iter().collect::<Vec<_>>().into()
    }

    async fn act(&self, context: &Context, _: &ObjectKey, action: Action) -> Result<ActionOutcome, Failure> {
        let (claim, event_type, message) = match &action {
            Action::Hand(claim) => {
                (claim, EventType::Normal, "waiting for an external controller to expand this PVC")
            }
            Action::Ignore(claim) => (
                claim,
                EventType::Warning,
                "Ignoring the PVC: didn't find a plugin capable of expanding the volume; waiting for an \
                 external controller to process this PVC.",
            ),
        };
        context.event(&**claim, event_type, "ExternalExpanding", message);
        Ok(ActionOutcome::Unchanged)
    }
}
