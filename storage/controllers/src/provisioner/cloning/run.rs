//! Wakes the sources of volumes, and removes their finalizers.

use claimcheck_informer::{Change, DataSource, Kind, KindSet, World, data_source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use tracing::info;

use super::plan::plan;
use crate::{
    Failure,
    context::Context,
    provisioner::SourceObject,
    shell::{About, ActionOutcome, Controller, Plan},
};

/// The controller that removes the sources' finalizers.
pub struct Sources;

impl Controller for Sources {
    type Key = DataSource;
    type Action = SourceObject;

    const NAME: &'static str = "provisioner-cloning";

    fn about(source: &DataSource) -> About<'_> {
        match source {
            DataSource::Claim(key) => About::Claim(key),
            DataSource::Snapshot(_) | DataSource::Elsewhere { .. } | DataSource::Other { .. } => {
                About::Other(source)
            }
        }
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Claim, Kind::Snapshot])
    }

    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<DataSource> {
        if change.kind == Kind::Snapshot {
            return vec![DataSource::Snapshot(change.key.clone())];
        }
        let created_from = change.states::<PersistentVolumeClaim>().filter_map(|claim| data_source(claim));
        let objects =
            created_from.filter(|source| matches!(source, DataSource::Claim(_) | DataSource::Snapshot(_)));
        objects.chain([DataSource::Claim(change.key.clone())]).collect()
    }

    fn plan(&self, source: &DataSource, world: &World, _: Timestamp) -> Plan<SourceObject> {
        Vec::from_iter(plan(source, world)).into()
    }

    async fn act(
        &self,
        context: &Context,
        key: &DataSource,
        source: SourceObject,
    ) -> Result<ActionOutcome, Failure> {
        // The provisioners of several drivers do so at the same moment.
        let released = match &source {
            SourceObject::Claim(claim) => context.release(&**claim, source.finalizer()).await,
            SourceObject::Snapshot(snapshot) => {
                let left = source.finalizers().iter().filter(|held| *held != source.finalizer());
                let patch = json!({"metadata": {"finalizers": left.collect::<Vec<_>>()}});
                context.patch(&**snapshot, patch).await
            }
        };
        match released {
            // Another provisioner has added it. Upstream: `removeSnapshotFinalizer`.
            Err(failure) if failure.is_forbidden() => {
                info!(source = %key, "not permitted to remove the finalizer");
                Ok(ActionOutcome::Unchanged)
            }
            released => released.map(|()| ActionOutcome::Changed),
        }
    }
}
