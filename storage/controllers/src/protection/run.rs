//! Wakes claims, volumes and attributes classes, and writes their finalizers.

use claimcheck_informer::{Cached, Change, Kind, KindSet, Watchable, World, attributes_classes, pod_claims};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttributesClass,
};
use serde_json::json;

use super::plan::{SetFinalizers, plan_claim, plan_class, plan_volume};
use crate::{
    context::{Context, Failure},
    shell::{About, Controller, Done, Plan},
};

/// The protection of claims.
pub struct Claims;

/// The protection of volumes.
pub struct Volumes;

/// The protection of attributes classes.
pub struct AttributesClasses;

impl Controller for Claims {
    type Key = ObjectKey;
    type Action = SetFinalizers<PersistentVolumeClaim>;

    const NAME: &'static str = "claim protection";

    fn about(key: &ObjectKey) -> About<'_> {
        About::Claim(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Claim, Kind::Pod])
    }

    fn wakes(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        match change.object::<Pod>() {
            Some(pod) => pod_claims(pod).map(|used| used.claim).collect(),
            None => vec![change.key.clone()],
        }
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Self::Action> {
        Vec::from_iter(plan_claim(key, world)).into()
    }

    async fn act(&self, context: &Context, _: &ObjectKey, action: Self::Action) -> Result<Done, Failure> {
        set(context, action).await
    }
}

impl Controller for Volumes {
    type Key = ObjectKey;
    type Action = SetFinalizers<PersistentVolume>;

    const NAME: &'static str = "volume protection";

    fn about(key: &ObjectKey) -> About<'_> {
        About::Volume(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Volume])
    }

    fn wakes(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        vec![change.key.clone()]
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Self::Action> {
        Vec::from_iter(plan_volume(key, world)).into()
    }

    async fn act(&self, context: &Context, _: &ObjectKey, action: Self::Action) -> Result<Done, Failure> {
        set(context, action).await
    }
}

impl Controller for AttributesClasses {
    type Key = ObjectKey;
    type Action = SetFinalizers<VolumeAttributesClass>;

    const NAME: &'static str = "attributes class protection";

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::AttributesClass, Kind::Claim, Kind::Volume])
    }

    /// A class that is no longer in use was in use before, so the old state wakes it.
    fn wakes(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        let had_by_claims =
            change.states::<PersistentVolumeClaim>().flat_map(|claim| attributes_classes(claim));
        let had_by_volumes = change
            .states::<PersistentVolume>()
            .filter_map(|volume| volume.spec.as_ref()?.volume_attributes_class_name.as_deref());
        match change.kind {
            Kind::AttributesClass => vec![change.key.clone()],
            _ => had_by_claims.chain(had_by_volumes).map(ObjectKey::cluster).collect(),
        }
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Self::Action> {
        Vec::from_iter(plan_class(key, world)).into()
    }

    async fn act(&self, context: &Context, _: &ObjectKey, action: Self::Action) -> Result<Done, Failure> {
        set(context, action).await
    }
}

async fn set<K: Watchable + Cached>(context: &Context, action: SetFinalizers<K>) -> Result<Done, Failure> {
    let patch = json!({"metadata": {"finalizers": action.finalizers}});
    context.patch(&*action.object, patch).await?;
    Ok(Done::Wrote)
}
