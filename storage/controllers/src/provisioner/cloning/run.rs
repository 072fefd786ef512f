//! Wakes the sources of volumes, and removes their finalizers.

use claimcheck_informer::{Change, DataSource, Kind, KindSet, World, data_source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::info;

use super::plan::plan;
use crate::{
    Failure, Provisioning,
    context::Context,
    provisioner::{SourceObject, create::Calls, grant, source_object::object},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// The controller that removes the sources' finalizers.
pub struct Sources {
    driver: String,
    options: Provisioning,
    calls: Calls,
}

impl Sources {
    /// With the driver, these options and the calls of the provisioner.
    pub fn new(driver: String, options: Provisioning, calls: Calls) -> Self {
        Self { driver, options, calls }
    }
}

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
        KindSet::of(&[Kind::Claim, Kind::Snapshot, Kind::ReferenceGrant])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<DataSource> {
        if change.kind == Kind::Snapshot {
            return vec![DataSource::Snapshot(change.key.clone())];
        }
        if change.kind == Kind::ReferenceGrant {
            let claims = grant::naming(&change.key.namespace, world);
            return claims.filter_map(|claim| object(data_source(claim)?)).collect();
        }
        let claims = change.states::<PersistentVolumeClaim>();
        let objects = claims.filter_map(|claim| object(data_source(claim)?));
        objects.chain([DataSource::Claim(change.key.clone())]).collect()
    }

    /// The claim of a call that was in doubt need not exist any more, so that nothing else changes.
    fn signals(&self) -> Option<UnboundedReceiver<DataSource>> {
        Some(self.calls.settled())
    }

    fn plan(&self, source: &DataSource, world: &World, _: Timestamp) -> Plan<SourceObject> {
        let may_be_read = || self.calls.may_read(source);
        Vec::from_iter(plan(source, world, &self.driver, self.options, may_be_read)).into()
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

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;
    use claimcheck_model::ObjectKey;
    use k8s_openapi::api::core::v1::TypedObjectReference;

    use super::*;

    #[test]
    fn grants_and_claims_enqueue_the_sources_in_other_namespaces() {
        let mut clone = testing::claim("clone", "fast", "1Gi");
        clone.spec.get_or_insert_default().data_source_ref = Some(TypedObjectReference {
            kind: "PersistentVolumeClaim".into(),
            name: "data".into(),
            namespace: Some("there".into()),
            api_group: None,
        });
        let sources = Sources::new(String::new(), Provisioning::default(), Calls::default());
        let mut world = World::default();
        let source = DataSource::Claim(ObjectKey::new("there", "data"));
        let change = world.apply(clone).expect("a change");
        let itself = DataSource::Claim(ObjectKey::new(testing::NAMESPACE, "clone"));
        assert_eq!(sources.map_to_keys(&change, &world), [source.clone(), itself]);
        for (namespace, expected) in [("there", vec![source]), ("elsewhere", Vec::new())] {
            let grant = testing::reference_grant("g", namespace, "", "PersistentVolumeClaim");
            let change = world.apply(grant).expect("a change");
            assert_eq!(sources.map_to_keys(&change, &world), expected, "{namespace}");
        }
    }
}
