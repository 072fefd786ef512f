//! Wakes sources of clones, and removes their finalizers.

use std::sync::Arc;

use claimcheck_informer::{Change, DataSource, Kind, KindSet, World, data_source};
use claimcheck_model::{CLONE_PROTECTION, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::plan::plan;
use crate::{
    Failure,
    context::Context,
    shell::{About, ActionOutcome, Controller, Plan},
};

/// The controller that removes the sources' finalizers.
pub struct Sources;

impl Controller for Sources {
    type Key = ObjectKey;
    type Action = Arc<PersistentVolumeClaim>;

    const NAME: &'static str = "provisioner-cloning";

    fn about(key: &ObjectKey) -> About<'_> {
        About::Claim(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Claim])
    }

    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        let made_from = change.states::<PersistentVolumeClaim>().filter_map(|claim| data_source(claim));
        let claims = made_from.filter_map(|source| match source {
            DataSource::Claim(key) => Some(key),
            DataSource::Snapshot(_) | DataSource::Elsewhere { .. } | DataSource::Other { .. } => None,
        });
        claims.chain([change.key.clone()]).collect()
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Self::Action> {
        Vec::from_iter(plan(key, world)).into()
    }

    async fn act(
        &self,
        context: &Context,
        _: &ObjectKey,
        claim: Self::Action,
    ) -> Result<ActionOutcome, Failure> {
        // The provisioners of several drivers do so at the same moment.
        context.release(&*claim, CLONE_PROTECTION).await?;
        Ok(ActionOutcome::Changed)
    }
}
