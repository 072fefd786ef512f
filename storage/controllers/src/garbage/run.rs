//! Checks claims of deleted pods, reads the pods from the API server, and deletes the claims; ends the deletion of pods
//! in the foreground.

use claimcheck_informer::{Change, ClaimBy, Kind, KindSet, World, key_of};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::plan::{Collect, FOREGROUND, Foreground, plan, plan_foreground};
use crate::{
    context::{Context, Failure},
    shell::{ActionOutcome, Controller, Plan},
};

/// Claims owned by pods.
pub struct Garbage;

impl Controller for Garbage {
    type Key = ObjectKey;
    type Action = Collect;

    const NAME: &'static str = "garbage";

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Pod, Kind::Claim])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<ObjectKey> {
        if change.object::<PersistentVolumeClaim>().is_some() {
            return vec![change.key.clone()];
        }
        match change.both::<Pod>() {
            (Some(deleted), None) => {
                let uid = deleted.metadata.uid.as_deref().unwrap_or_default();
                world.claims.by(ClaimBy::Owner, uid).map(|claim| key_of(&**claim)).collect()
            }
            (Some(_) | None, _) => Vec::new(),
        }
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Collect> {
        plan(key, world).into_iter().collect::<Vec<_>>().into()
    }

    async fn act(
        &self,
        context: &Context,
        key: &ObjectKey,
        action: Collect,
    ) -> Result<ActionOutcome, Failure> {
        for pod in &action.owners {
            context.refresh::<Pod>(pod).await?;
        }
        if plan(key, &context.informer.read()).is_some() {
            context.delete(&*action.claim).await?;
            return Ok(ActionOutcome::Changed);
        }
        Ok(ActionOutcome::Unchanged)
    }
}

/// Pods that are deleted in the foreground.
pub struct ForegroundPods;

impl Controller for ForegroundPods {
    type Key = ObjectKey;
    type Action = Foreground;

    const NAME: &'static str = "garbage foreground";

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Pod, Kind::Claim])
    }

    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        if change.kind == Kind::Pod {
            return vec![change.key.clone()];
        }
        // A claim that has gone, or that no longer has its owner.
        let owners = change
            .states::<PersistentVolumeClaim>()
            .flat_map(|claim| claim.metadata.owner_references.iter().flatten())
            .filter(|owner| owner.kind == "Pod");
        owners.map(|owner| ObjectKey::new(&change.key.namespace, &owner.name)).collect()
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Foreground> {
        plan_foreground(key, world).into()
    }

    async fn act(
        &self,
        context: &Context,
        _: &ObjectKey,
        action: Foreground,
    ) -> Result<ActionOutcome, Failure> {
        match action {
            Foreground::Delete(claim) => context.delete(&*claim).await?,
            Foreground::Release(pod) => context.release(&*pod, FOREGROUND).await?,
        }
        Ok(ActionOutcome::Changed)
    }
}
