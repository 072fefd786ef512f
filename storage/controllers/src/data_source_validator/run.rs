//! Enqueues claims that change, counts the verdicts and emits the events.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use claimcheck_informer::{Change, EventType, Kind, KindSet, World};
use claimcheck_model::{ObjectKey, metric::DATA_SOURCE_VALIDATIONS};
use jiff::Timestamp;
use tracing::info;

use super::plan::{Report, Verdict, plan};
use crate::{
    context::{Context, Failure},
    shell::{self, About, ActionOutcome, Controller, Plan},
};

/// Validates data sources from the moment at which VolumePopulators are served, until the future is dropped.
pub async fn run(context: Context) {
    context.informer.listed(Kind::Populator).await;
    info!("VolumePopulators are served: validates the data sources of claims");
    shell::run(Validator::default(), context).await;
}

/// Validates the data sources of claims.
#[derive(Default)]
struct Validator {
    /// The versions of claims that were validated last. A resync must not repeat their events.
    validated: Mutex<HashMap<ObjectKey, String>>,
}

impl Controller for Validator {
    type Key = ObjectKey;
    type Action = Report;

    const NAME: &'static str = "data-source-validator";
    /// Upstream: the default of `--worker-threads`.
    const WORKERS: usize = 10;

    fn about(key: &ObjectKey) -> About<'_> {
        About::Claim(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Claim])
    }

    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        vec![change.key.clone()]
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<Report> {
        let mut validated = self.validated();
        if world.claims.get(key).is_none() {
            validated.remove(key);
        }
        Vec::from_iter(plan(key, world, validated.get(key).map(String::as_str))).into()
    }

    async fn act(
        &self,
        context: &Context,
        key: &ObjectKey,
        Report { claim, verdict }: Report,
    ) -> Result<ActionOutcome, Failure> {
        if let Some(version) = &claim.metadata.resource_version {
            self.validated().insert(key.clone(), version.clone());
        }
        context.meter.increment(&DATA_SOURCE_VALIDATIONS, &[verdict.label()]);
        if verdict == Verdict::Invalid {
            let message = "The datasource for this PVC does not match any registered VolumePopulator";
            context.event(&*claim, EventType::Warning, "UnrecognizedDataSourceKind", message);
        }
        Ok(ActionOutcome::Unchanged)
    }
}

impl Validator {
    // Nothing panics while it is locked, so a poisoned one is whole.
    fn validated(&self) -> MutexGuard<'_, HashMap<ObjectKey, String>> {
        self.validated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
