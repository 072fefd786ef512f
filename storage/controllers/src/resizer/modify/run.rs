//! Calls the driver's ControllerModifyVolume and writes the results.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_csi::Driver;
use claimcheck_informer::{
    Backoff, Change, ClaimBy, EventType, Kind, KindSet, World, key_of,
    modification::{Condition, Progress, current, expected, with_conditions, without, without_all},
};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::VolumeAttributesClass,
};
use serde_json::json;
use tracing::{info, warn};

use super::plan::{Action, Known, plan};
use crate::{
    Failure,
    claims::{claim_phase, name},
    context::Context,
    resizer::{
        Settings,
        plan::{Pair, words},
        run::{owners, uid},
    },
    rpc::{DriverInfo, RpcFailure, credentials},
    shell::{About, ActionOutcome, Controller, Plan},
};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The modifier of one driver.
pub(crate) struct Modifier {
    driver: Driver,
    info: DriverInfo,
    settings: Settings,
    /// By the claim's uid.
    known: Mutex<HashMap<String, Known>>,
}

impl Controller for Modifier {
    type Key = ObjectKey;
    type Action = Action;

    const NAME: &'static str = "modifier";
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(300) };
    const WORKERS: usize = 10;

    fn about(key: &ObjectKey) -> About<'_> {
        About::Claim(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Claim, Kind::Volume, Kind::AttributesClass])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<ObjectKey> {
        if let Some(claim) = change.object::<PersistentVolumeClaim>() {
            if change.new.is_none() {
                self.known().remove(uid(claim));
            }
            return if is_worth_a_look(change) { vec![change.key.clone()] } else { Vec::new() };
        }
        if change.object::<PersistentVolume>().is_some() {
            return owners(change);
        }
        let waiting = world.claims.by(ClaimBy::AttributesClass, &change.key.name);
        waiting.filter(|_| is_created(change)).map(|claim| key_of(&**claim)).collect()
    }

    fn plan(&self, key: &ObjectKey, world: &World, now: Timestamp) -> Plan<Action> {
        let claim = world.claims.get(key);
        let known = claim.and_then(|claim| self.known().get(uid(claim)).cloned()).unwrap_or_default();
        plan(key, world, &self.info, &known, now).into()
    }

    async fn act(&self, context: &Context, _: &ObjectKey, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::MarkPending(claim, why) => {
                let status = json!({ "modifyVolumeStatus": { "status": Progress::Pending.name() } });
                context.patch_status(&*claim, status).await?;
                context.event(&*claim, EventType::Warning, "VolumeModifyFailed", why.to_string());
            }
            Action::MarkInProgress(claim, class) => {
                let message = format!("Modifying volume to {class:?} is in progress.");
                let modifying = Condition::Modifying.with(None, message, Timestamp::now());
                let status = json!({
                    "modifyVolumeStatus": {
                        "status": Progress::AtWork.name(),
                        "targetVolumeAttributesClassName": class,
                    },
                    "conditions": with_conditions(&claim, vec![modifying]),
                });
                context.patch_status(&*claim, status).await?;
                let message =
                    format!("external resizer is modifying volume {} with vac {class}", name(&*claim));
                context.event(&*claim, EventType::Normal, "VolumeModify", message);
            }
            Action::Modify { pair, class, mut request, secret } => {
                let modified = async {
                    request.secrets = credentials(&context.client, secret.as_ref()).await?;
                    if self.settings.options.extra_modify_metadata {
                        request.mutable_parameters.extend(metadata(&pair));
                    }
                    let answer = self.driver.controller().controller_modify_volume(*request).await;
                    answer.map_err(RpcFailure::from)?;
                    Ok(())
                };
                match modified.await {
                    Ok(()) => {
                        let known = Known { modified: Some(class), ..Known::default() };
                        self.known().insert(uid(&pair.claim).to_owned(), known);
                    }
                    Err(error) => return self.failed(context, &pair, class, error).await,
                }
            }
            Action::SetVolume(volume, class) => {
                context.patch(&*volume, json!({ "spec": { "volumeAttributesClassName": class } })).await?;
            }
            Action::MarkModified(claim, class) => {
                let status = json!({
                    "currentVolumeAttributesClassName": class,
                    "modifyVolumeStatus": null,
                    "conditions": without_all(&claim),
                });
                context.patch_status(&*claim, status).await?;
                self.known().remove(uid(&claim));
                info!(claim = words(&claim), class, "modified");
                let message = format!(
                    "external resizer modified volume {} with vac {class} successfully",
                    name(&*claim)
                );
                context.event(&*claim, EventType::Normal, "VolumeModifySuccessful", message);
            }
            Action::Cancel(claim) => {
                let status = json!({ "conditions": without(&claim, &[Condition::Modifying]) });
                context.patch_status(&*claim, status).await?;
                // Upstream's spelling, as in its `VolumeModifyCancelled` (`pkg/util/events.go`).
                context.event(&*claim, EventType::Normal, "VolumeModifyCanceled", "Cancelled modify.");
            }
        }
        Ok(ActionOutcome::Changed)
    }
}

/// The parameters of `--extra-modify-metadata`. Upstream: `callModifyVolumeOnPlugin` in
/// `pkg/modifycontroller/modify_volume.go`.
fn metadata(pair: &Pair) -> [(String, String); 3] {
    let (claim, volume) = (&pair.claim.metadata, &pair.volume.metadata);
    let names = [("pvc/name", &claim.name), ("pvc/namespace", &claim.namespace), ("pv/name", &volume.name)];
    names.map(|(key, name)| (format!("csi.storage.k8s.io/{key}"), name.clone().unwrap_or_default()))
}

impl Modifier {
    pub(crate) fn new(driver: Driver, info: DriverInfo, settings: Settings) -> Self {
        Self { driver, info, settings, known: Mutex::default() }
    }

    /// Emits an event about a failure, and writes to the claim whether it is infeasible.
    async fn failed(
        &self,
        context: &Context,
        pair: &Pair,
        class: String,
        error: AnyError,
    ) -> Result<ActionOutcome, Failure> {
        let now = Timestamp::now();
        let failure = error.downcast_ref::<RpcFailure>();
        // What never reached the driver changes nothing about it.
        let refused = failure.is_some_and(RpcFailure::is_final);
        let infeasible = failure.is_some_and(|failure| failure.number == INVALID_ARGUMENT);
        let slow = infeasible.then(|| (class.clone(), now + self.slow_retry(&pair.claim, &class)));
        self.known().insert(uid(&pair.claim).to_owned(), Known { modified: None, refused, slow });

        let how = if refused { "failed. Waiting for retry." } else { "is still in progress." };
        let progress = if infeasible { Progress::Infeasible } else { Progress::AtWork };
        let modifying = Condition::Modifying.with(None, format!("Modifying volume to {class:?} {how}"), now);
        // An error that is no status of gRPC has code Unknown and its own text (`FromError` in Go's status package).
        let (code, text) = match failure {
            Some(failure) => (failure.code.as_str(), failure.message.clone()),
            None => ("Unknown", error.to_string()),
        };
        let failed = Condition::Error.with(Some(code), text, now);
        let status = json!({
            "modifyVolumeStatus": { "status": progress.name(), "targetVolumeAttributesClassName": class },
            "conditions": with_conditions(&pair.claim, vec![modifying, failed]),
        });
        if let Err(Failure::Transient(cause)) = context.patch_status(&*pair.claim, status).await {
            warn!(claim = words(&pair.claim), cause, "the error cannot be written to its status");
        }
        let mut message = error.to_string();
        if !refused {
            message = format!("{message}. Still modifying to VAC {class}");
        }
        context.event(&*pair.claim, EventType::Warning, "VolumeModifyFailed", message);
        Err(Failure::Transient(error))
    }

    /// How long an infeasible class is not retried.
    fn slow_retry(&self, claim: &PersistentVolumeClaim, class: &str) -> Duration {
        let known = self.known();
        let before = known.get(uid(claim)).and_then(|known| known.slow.as_ref());
        match before.is_some_and(|(infeasible, _)| infeasible == class) {
            true => self.settings.slow_retry,
            false => self.settings.first_modify_retry,
        }
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// gRPC's number of the status code: the only one that upstream treats as infeasible.
const INVALID_ARGUMENT: i32 = 3;

/// Whether a claim has changed in what its modification depends on; see the resizer's. Upstream: `updatePVC` in
/// `pkg/modifycontroller/controller.go`.
fn is_worth_a_look(change: &Change) -> bool {
    fn relevant_fields(claim: &Arc<PersistentVolumeClaim>) -> (&str, &str, &str, bool, bool) {
        let idle = Progress::of(claim) == Progress::None;
        (uid(claim), expected(claim), current(claim), idle, claim_phase(claim) == "Bound")
    }
    let (old, new) = change.both::<PersistentVolumeClaim>();
    new.is_some() && old.map(relevant_fields) != new.map(relevant_fields)
}

/// Whether a class was created, for which claims may wait. Its parameters never change.
fn is_created(change: &Change) -> bool {
    let (old, new) = change.both::<VolumeAttributesClass>();
    new.is_some_and(|new| old.is_none_or(|old| old.metadata.uid != new.metadata.uid))
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;

    use super::*;

    #[test]
    fn the_extra_metadata_names_claim_and_volume() {
        let pair = Pair {
            claim: Arc::new(testing::claim("data", "fast", "1Gi")),
            volume: Arc::new(testing::volume("pv", "fast", "1Gi")),
        };
        let expected = [
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/pvc/namespace", "default"),
            ("csi.storage.k8s.io/pv/name", "pv"),
        ];
        assert_eq!(metadata(&pair), expected.map(|(key, name)| (key.to_owned(), name.to_owned())));
    }
}
