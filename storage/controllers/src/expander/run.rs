//! Wakes on changed requests of claims, and emits the events.

use claimcheck_informer::{Change, EventType, Kind, KindSet, World, growth};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::plan::{Report, plan};
use crate::{
    context::{Context, Failure},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// Reports that an external controller must expand a claim's volume.
pub struct Expander;

impl Controller for Expander {
    type Key = ObjectKey;
    type Action = Report;

    const NAME: &'static str = "expander";

    fn about(key: &ObjectKey) -> About<'_> {
        About::Claim(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Claim])
    }

    /// Only a larger request matters, or capacity: a claim is bound, or its file system has grown.
    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        match change.both::<PersistentVolumeClaim>() {
            (Some(old), Some(new))
                if growth::requested(old) >= growth::requested(new)
                    && growth::capacity(old) >= growth::capacity(new) =>
            {
                Vec::new()
            }
            (_, Some(_)) => vec![change.key.clone()],
            (_, None) => Vec::new(),
        }
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Report> {
        plan(key, world).into_iter().collect::<Vec<_>>().into()
    }

    async fn act(&self, context: &Context, _: &ObjectKey, report: Report) -> Result<ActionOutcome, Failure> {
        match report {
            Report::Waits(claim) => {
                let message = "waiting for an external controller to expand this PVC";
                context.event(&*claim, EventType::Normal, "ExternalExpanding", message);
            }
            Report::Refused(claim, driver) => {
                let message = format!(
                    "the volume is an in-tree one, which claimcheck does not support: use a PersistentVolume with a csi \
                     source of driver {driver}, or the stock controllers"
                );
                context.event(&*claim, EventType::Warning, "VolumeResizeFailed", message);
            }
        }
        Ok(ActionOutcome::Unchanged)
    }
}
