//! Wakes claims and volumes, and carries out the binder's actions.

use claimcheck_informer::{Change, ClaimBy, Kind, KindSet, VolumeBy, World, key_of};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::{
    action::{Absent, Action, Subject, Write},
    meter::Measured,
    plan::plan_claim,
    plan_volume::plan_volume,
};
use crate::{
    claims::{claim_ref, matches, ref_key, volume_class, volume_name},
    context::{Context, Failure},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// A key of the reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A claim.
    Claim(ObjectKey),
    /// A volume.
    Volume(ObjectKey),
}

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
            Key::Claim(claim) => About::Claim(claim),
            Key::Volume(volume) => About::Volume(volume),
        }
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Claim, Kind::Volume, Kind::Class])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<Key> {
        self.measured.changed(change);
        match change.kind {
            Kind::Claim => keys_for_claim(change, world),
            Kind::Volume => keys_for_volume(change, world),
            Kind::Class => keys_for_class(change, world),
            Kind::Pod
            | Kind::Node
            | Kind::Attachment
            | Kind::CsiDriver
            | Kind::CsiNode
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

    fn plan(&self, key: &Key, world: &World, _: Timestamp) -> Plan<Action> {
        match key {
            Key::Claim(key) => plan_claim(key, world),
            Key::Volume(key) => plan_volume(key, world),
        }
        .into()
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

/// The claim, the volumes that point to it, and the one it points (or pointed) to.
fn keys_for_claim(change: &Change, world: &World) -> Vec<Key> {
    let pointing = world.volumes.by(VolumeBy::Claim, &change.key.to_string());
    let pointing = pointing.map(|volume| Key::Volume(key_of(&**volume)));
    let named = change.states::<PersistentVolumeClaim>().filter_map(|claim| volume_name(claim));
    let named = named.map(|name| Key::Volume(ObjectKey::cluster(name)));
    [Key::Claim(change.key.clone())].into_iter().chain(pointing).chain(named).collect()
}

/// The volume, the claims it points (or pointed) to, those that point to it, and those that could use it.
fn keys_for_volume(change: &Change, world: &World) -> Vec<Key> {
    let referenced = change.states::<PersistentVolume>().filter_map(|volume| claim_ref(volume)).map(ref_key);
    let bound = world.claims.by(ClaimBy::Volume, &change.key.name).map(|claim| key_of(&**claim));
    let (_, new) = change.both::<PersistentVolume>();
    let free = new.filter(|volume| claim_ref(volume).is_none());
    let takers = free.into_iter().flat_map(|volume| {
        let waiting = world.claims.by(ClaimBy::Unbound, volume_class(volume));
        waiting.filter(|claim| matches(volume, claim).is_ok()).map(|claim| key_of(&**claim))
    });
    let claims = referenced.chain(bound).chain(takers).map(Key::Claim);
    [Key::Volume(change.key.clone())].into_iter().chain(claims).collect()
}

/// The claims that wait for a volume of the class; those without class wait for a default one.
fn keys_for_class(change: &Change, world: &World) -> Vec<Key> {
    let classes = [change.key.name.as_str(), ""];
    let waiting = classes.into_iter().flat_map(|class| world.claims.by(ClaimBy::Unbound, class));
    waiting.map(|claim| Key::Claim(key_of(&**claim))).collect()
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
