//! Carries out the binder's actions.

use claimcheck_informer::{Change, KindSet, World};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::{
    action::{Absent, Action, Subject, Write},
    meter::Measured,
    plan::{plan_claim, plan_consumer},
    plan_volume::plan_volume,
    triggers::{KINDS, Key, concerned},
};
use crate::{
    context::{Context, Failure},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// The binder.
pub struct Binder {
    measured: Measured,
}

impl Binder {
    pub fn new(context: &Context) -> Self {
        Self { measured: Measured::new(context) }
    }
}

impl Controller for Binder {
    type Key = Key;
    type Action = Action;

    const NAME: &'static str = "binder";

    fn about(key: &Key) -> About<'_> {
        match key {
            Key::Claim(claim) | Key::Consumer(claim) => About::Claim(claim),
            Key::Volume(volume) => About::Volume(volume),
        }
    }

    fn kinds() -> KindSet {
        KindSet::of(KINDS)
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<Key> {
        self.measured.changed(change);
        concerned(change, world)
    }

    fn plan(&self, key: &Key, world: &World, now: Timestamp) -> Plan<Action> {
        match key {
            Key::Claim(key) => plan_claim(key, world).into(),
            Key::Volume(key) => plan_volume(key, world).into(),
            Key::Consumer(key) => {
                let (actions, requeue_after) = plan_consumer(key, world, now);
                Plan { actions, requeue_after }
            }
        }
    }

    async fn act(&self, context: &Context, _: &Key, action: Action) -> Result<ActionOutcome, Failure> {
        match &action {
            Action::Confirm(absent) => {
                confirm(context, absent).await?;
                return Ok(ActionOutcome::Unchanged);
            }
            Action::Event(subject, event_type, reason, message) => match subject {
                Subject::Claim(claim) => context.event(&**claim, *event_type, reason, message.clone()),
                Subject::Volume(volume) => context.event(&**volume, *event_type, reason, message.clone()),
            },
            _ => {}
        }
        match action.write() {
            None => return Ok(ActionOutcome::Unchanged),
            Some(Write::Claim(claim, patch)) => context.patch(&*claim, patch).await?,
            Some(Write::ClaimStatus(claim, status)) => context.patch_status(&*claim, status).await?,
            Some(Write::Volume(volume, patch)) => context.patch(&*volume, patch).await?,
            Some(Write::VolumeStatus(volume, status)) => context.patch_status(&*volume, status).await?,
        }
        self.measured.acted(&action);
        Ok(ActionOutcome::Changed)
    }
}

/// Asks the API server; the decision is outdated if the object exists after all.
async fn confirm(context: &Context, absent: &Absent) -> Result<(), Failure> {
    let exists = match absent {
        Absent::Claim(key, uid) => {
            context.refresh::<PersistentVolumeClaim>(key).await?;
            let world = context.informer.read();
            world.claims.get(key).is_some_and(|claim| claim.metadata.uid == *uid)
        }
        Absent::Volume(key) => {
            context.refresh::<PersistentVolume>(key).await?;
            context.informer.read().volumes.get(key).is_some()
        }
    };
    if exists { Err(Failure::Conflict) } else { Ok(()) }
}
