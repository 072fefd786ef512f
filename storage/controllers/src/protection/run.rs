//! Enqueues claims, volumes and attributes classes, and writes their finalizers and the condition `Unused`.

use claimcheck_informer::{Cached, Change, Kind, KindSet, Watchable, World, attributes_classes, pod_claims};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttributesClass,
};
use serde_json::json;

use super::{
    live::LivePods,
    plan::{ClaimAction, SetConditions, SetFinalizers, plan_claim, plan_class, plan_volume, uses},
    plan_unused::{plan_unused, refers},
};
use crate::{
    context::{Context, Failure},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// The protection of claims.
#[derive(Default)]
pub struct Claims {
    live: LivePods,
    /// Whether the condition `Unused` is written.
    unused_since_time: bool,
}

impl Claims {
    /// The protection of claims, with the value of the feature gate PersistentVolumeClaimUnusedSinceTime.
    pub fn new(unused_since_time: bool) -> Self {
        Self { live: LivePods::default(), unused_since_time }
    }

    /// Returns if a live list has no pod of the claim's namespace that uses it. Otherwise the cache has those pods
    /// after this, for another plan.
    async fn confirm_unused(
        &self,
        context: &Context,
        key: &ObjectKey,
        uses: impl Fn(&Pod) -> bool,
    ) -> Result<(), Failure> {
        let pods = self.live.of(&context.client, &key.namespace).await?;
        let users: Vec<&Pod> = pods.iter().filter(|pod| uses(pod)).collect();
        if users.is_empty() {
            return Ok(());
        }
        users.into_iter().for_each(|pod| context.informer.apply(pod.clone()));
        Err(Failure::Conflict)
    }
}

/// The protection of volumes.
pub struct Volumes;

/// The protection of attributes classes.
pub struct AttributesClasses;

impl Controller for Claims {
    type Key = ObjectKey;
    type Action = ClaimAction;

    const NAME: &'static str = "claim protection";
    /// Many, since most of them wait for a list, which covers all of them.
    const WORKERS: usize = 64;

    fn about(key: &ObjectKey) -> About<'_> {
        About::Claim(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Claim, Kind::Pod])
    }

    /// After a gap in the watch, one change of a pod may be the deletion of a pod and the creation of another of the
    /// same name, so the old state wakes its claims, too. Upstream: `podAddedDeletedUpdated` in
    /// pvc_protection_controller.go.
    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        match change.kind {
            Kind::Claim => vec![change.key.clone()],
            _ => change.states::<Pod>().flat_map(|pod| pod_claims(pod)).map(|used| used.claim).collect(),
        }
    }

    /// The condition comes first, as in `processPVC` of pvc_protection_controller.go.
    fn plan(&self, key: &ObjectKey, world: &World, now: Timestamp) -> Plan<Self::Action> {
        let condition = self.unused_since_time.then(|| plan_unused(key, world, now)).flatten();
        Vec::from_iter(condition.or_else(|| plan_claim(key, world))).into()
    }

    async fn act(
        &self,
        context: &Context,
        key: &ObjectKey,
        action: ClaimAction,
    ) -> Result<ActionOutcome, Failure> {
        match action {
            ClaimAction::Protect(finalizers) => set(context, finalizers).await,
            ClaimAction::Release(finalizers) => {
                self.confirm_unused(context, key, |pod| uses(pod, &finalizers.object)).await?;
                set(context, finalizers).await
            }
            ClaimAction::MarkUsed(conditions) => set_conditions(context, conditions).await,
            ClaimAction::MarkUnused(conditions) => {
                self.confirm_unused(context, key, |pod| refers(pod, &conditions.claim)).await?;
                set_conditions(context, conditions).await
            }
        }
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

    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        vec![change.key.clone()]
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Self::Action> {
        Vec::from_iter(plan_volume(key, world)).into()
    }

    async fn act(
        &self,
        context: &Context,
        _: &ObjectKey,
        action: Self::Action,
    ) -> Result<ActionOutcome, Failure> {
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
    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
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

    async fn act(
        &self,
        context: &Context,
        _: &ObjectKey,
        action: Self::Action,
    ) -> Result<ActionOutcome, Failure> {
        set(context, action).await
    }
}

async fn set<K: Watchable + Cached>(
    context: &Context,
    action: SetFinalizers<K>,
) -> Result<ActionOutcome, Failure> {
    let patch = json!({"metadata": {"finalizers": action.finalizers}});
    context.patch(&*action.object, patch).await?;
    Ok(ActionOutcome::Changed)
}

async fn set_conditions(context: &Context, action: SetConditions) -> Result<ActionOutcome, Failure> {
    context.patch_status(&*action.claim, json!({"conditions": action.conditions})).await?;
    Ok(ActionOutcome::Changed)
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, world};

    use super::*;

    #[test]
    fn a_pod_that_took_the_name_of_another_enqueues_the_claims_of_both() {
        let mut world = world([testing::pod("p", "n1", &["old", "kept"]).into()]);
        let mut next = testing::pod("p", "n1", &["new", "kept"]);
        next.metadata.uid = Some("another".into());
        let change = world.apply(next).expect("a change");
        let mut enqueued: Vec<String> =
            Claims::default().map_to_keys(&change, &world).into_iter().map(|claim| claim.name).collect();
        enqueued.sort();
        enqueued.dedup();
        assert_eq!(enqueued, ["kept", "new", "old"]);
    }
}
