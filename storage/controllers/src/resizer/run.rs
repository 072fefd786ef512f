//! Calls the driver's ControllerExpandVolume and writes the results.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_csi::{Driver, v1::ControllerExpandVolumeRequest};
use claimcheck_informer::{
    Backoff, Change, EventType, Kind, KindSet, World,
    growth::{self, Condition, Old, Progress, with_condition},
    is_terminal, pod_claims,
    quantity::from_bytes,
};
use claimcheck_model::{Meter, NODE_EXPANSION_NOT_REQUIRED, ObjectKey, PRE_RESIZE_CAPACITY};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, SecretReference};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{
    Settings,
    meter::Measured,
    plan::{Action, Grown, Known, Pair, Refusal, plan, words},
};
use crate::{
    Failure,
    claims::{annotation, claim_phase, claim_ref, name, ref_key},
    context::Context,
    rpc::{Certainty, DriverInfo, RpcFailure, credentials},
    shell::{About, ActionOutcome, Controller, Plan},
};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The resizer of one driver.
pub struct Resizer {
    driver: Driver,
    info: DriverInfo,
    settings: Settings,
    /// By the claim's uid.
    known: Mutex<HashMap<String, Known>>,
    measured: Measured,
}

impl Controller for Resizer {
    type Key = ObjectKey;
    type Action = Action;

    const NAME: &'static str = "resizer";
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(300) };
    const WORKERS: usize = 10;

    fn about(key: &ObjectKey) -> About<'_> {
        About::Claim(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Claim, Kind::Volume, Kind::Pod])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<ObjectKey> {
        if let Some(claim) = change.object::<PersistentVolumeClaim>() {
            if change.new.is_none() {
                self.known().remove(uid(claim));
                self.measured.forget(claim);
            }
            return if is_worth_a_look(change, self.recovers()) {
                vec![change.key.clone()]
            } else {
                Vec::new()
            };
        }
        if change.object::<PersistentVolume>().is_some() {
            return owners(change);
        }
        // A pod less is what a driver waits for that expands unused volumes only.
        let mut claims = no_longer_used(change);
        claims.retain(|claim| world.claims.get(claim).is_some_and(|claim| self.is_refused_in_use(claim)));
        claims
    }

    fn plan(&self, key: &ObjectKey, world: &World, now: Timestamp) -> Plan<Action> {
        let claim = world.claims.get(key);
        let known = claim.and_then(|claim| self.known().get(uid(claim)).cloned()).unwrap_or_default();
        plan(key, world, &self.info, &known, self.recovers(), now).into()
    }

    async fn act(&self, context: &Context, _: &ObjectKey, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::MarkInProgress { claim, bytes, restart } => match self.recovers() {
                true => mark_in_progress(context, &claim, bytes, restart).await?,
                false => {
                    let resizing = Some((Condition::Resizing, ""));
                    let conditions = with_condition(&claim, Old::Dropped, resizing, Timestamp::now());
                    context.patch_status(&*claim, json!({ "conditions": conditions })).await?;
                }
            },
            Action::Expand { pair, request, bytes, secret } => {
                let message = format!("External resizer is resizing volume {}", name(&*pair.volume));
                context.event(&*pair.claim, EventType::Normal, "Resizing", message);
                self.measured.begins(&pair.claim);
                let grown = match request {
                    None => Ok(Grown { bytes, node: true }),
                    Some(request) => self.call(context, *request, bytes, secret.as_ref()).await,
                };
                match grown {
                    Ok(grown) => self.remember(&pair.claim, Known { grown: Some(grown), ..Known::default() }),
                    Err(error) => return self.failed(context, &pair, error).await,
                }
            }
            Action::RefuseInUse(claim) => {
                let message = format!(
                    "Unable to expand {} because CSI driver {} only supports offline expansion and volume is \
                     currently in-use",
                    words(&claim),
                    self.info.name
                );
                context.event(&*claim, EventType::Warning, "VolumeResizeFailed", message);
                return Ok(ActionOutcome::Unchanged);
            }
            Action::RaiseVolume { pair, grown } => {
                let mut patch = json!({ "spec": { "capacity": { "storage": from_bytes(grown.bytes) } } });
                if grown.node && annotation(&*pair.volume, PRE_RESIZE_CAPACITY).is_none() {
                    let before = from_bytes(growth::capacity(&pair.claim));
                    patch["metadata"] = json!({ "annotations": { PRE_RESIZE_CAPACITY: before } });
                }
                context.patch(&*pair.volume, patch).await?;
            }
            Action::MarkNodePending(claim) => {
                let message =
                    "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";
                let pending = Some((Condition::FileSystemResizePending, message));
                let conditions = |old| with_condition(&claim, old, pending, Timestamp::now());
                if self.recovers() {
                    let status = json!({
                        "conditions": conditions(Old::Retained),
                        "allocatedResourceStatuses": { "storage": Progress::NodePending.name() },
                    });
                    mark(context, &claim, json!(null), status).await?;
                } else {
                    let status = json!({ "conditions": conditions(Old::Dropped) });
                    context.patch_status(&*claim, status).await?;
                }
                self.done(&claim);
                let message = "Require file system resize of volume on node";
                context.event(&*claim, EventType::Normal, "FileSystemResizeRequired", message);
            }
            Action::MarkFinished(claim, bytes) => {
                let mut status = json!({
                    "capacity": { "storage": from_bytes(bytes) },
                    "conditions": with_condition(&claim, Old::Dropped, None, Timestamp::now()),
                });
                if self.recovers() {
                    status["allocatedResourceStatuses"] = json!(null);
                    mark(context, &claim, json!("true"), status).await?;
                } else {
                    context.patch_status(&*claim, status).await?;
                }
                self.done(&claim);
                info!(claim = words(&claim), bytes, "grown");
                let message = "Resize volume succeeded";
                context.event(&*claim, EventType::Normal, "VolumeResizeSuccessful", message);
            }
            Action::ForgetOldSize(volume) => {
                let annotations = json!({ PRE_RESIZE_CAPACITY: null });
                context.patch(&*volume, json!({ "metadata": { "annotations": annotations } })).await?;
            }
            Action::Fail(pair, error) => return self.failed(context, &pair, Box::new(error)).await,
        }
        Ok(ActionOutcome::Changed)
    }
}

async fn mark_in_progress(
    context: &Context,
    claim: &PersistentVolumeClaim,
    bytes: i64,
    restart: bool,
) -> Result<(), Failure> {
    let old = if restart { Old::Dropped } else { Old::Retained };
    let mut status = json!({
        "allocatedResources": { "storage": from_bytes(bytes) },
        "conditions": with_condition(claim, old, Some((Condition::Resizing, "")), Timestamp::now()),
    });
    if restart {
        status["allocatedResourceStatuses"] = json!({ "storage": Progress::ControllerAtWork.name() });
    }
    mark(context, claim, json!(null), status).await
}

/// Writes the state of a claim's expansion; `node_not_required` shows kubelets that no expansion on the node is
/// needed.
async fn mark(
    context: &Context,
    claim: &PersistentVolumeClaim,
    node_not_required: Value,
    status: Value,
) -> Result<(), Failure> {
    let annotations = json!({ NODE_EXPANSION_NOT_REQUIRED: node_not_required });
    let patch = json!({ "metadata": { "annotations": annotations }, "status": status });
    context.patch_with_status(claim, patch).await
}

impl Resizer {
    pub fn new(driver: Driver, info: DriverInfo, meter: Meter, settings: Settings) -> Self {
        let measured = Measured::new(meter, &info.name);
        Self { driver, info, settings, known: Mutex::default(), measured }
    }

    /// The feature gate RecoverVolumeExpansionFailure.
    fn recovers(&self) -> bool {
        self.settings.options.recover_expansion_failure
    }

    /// Calls the driver to expand a volume to at least this size.
    async fn call(
        &self,
        context: &Context,
        mut request: ControllerExpandVolumeRequest,
        bytes: i64,
        secret: Option<&SecretReference>,
    ) -> Result<Grown, AnyError> {
        request.secrets = credentials(&context.client, secret).await?;
        let answer = self.driver.controller().controller_expand_volume(request).await;
        let answer = answer.map_err(RpcFailure::from)?.into_inner();
        let bytes = if answer.capacity_bytes == 0 { bytes } else { answer.capacity_bytes };
        Ok(Grown { bytes, node: answer.node_expansion_required })
    }

    /// Whether the driver has refused to expand the claim's volume because it is in use.
    fn is_refused_in_use(&self, claim: &PersistentVolumeClaim) -> bool {
        self.known().get(uid(claim)).is_some_and(|known| known.failed == Some(Refusal::InUse))
    }

    /// The controller's part of a claim's expansion is complete.
    fn done(&self, claim: &PersistentVolumeClaim) {
        self.known().remove(uid(claim));
        self.measured.ended(claim, true);
    }

    pub(super) fn remember(&self, claim: &PersistentVolumeClaim, known: Known) {
        self.known().insert(uid(claim).to_owned(), known);
    }

    /// Emits an event about a failure, and, with recovery, writes it to the claim if it is final.
    async fn failed(
        &self,
        context: &Context,
        pair: &Pair,
        error: AnyError,
    ) -> Result<ActionOutcome, Failure> {
        self.measured.ended(&pair.claim, false);
        let refusal = match error.downcast_ref::<RpcFailure>().map_or(Refusal::Uncertain, refusal) {
            Refusal::InUse if !self.settings.options.handle_volume_inuse_error => Refusal::Final,
            refusal => refusal,
        };
        let is_slow = refusal == Refusal::Infeasible && self.recovers();
        let asked = growth::allocated(&pair.claim).filter(|_| is_slow);
        let slow = asked.map(|bytes| (bytes, Timestamp::now() + self.settings.slow_retry));
        self.remember(&pair.claim, Known { grown: None, failed: Some(refusal), slow });
        if refusal.is_final() && self.recovers() {
            let message = format!("failed to expand pvc with {error}");
            let condition = Some((Condition::ControllerResizeError, message.as_str()));
            let conditions = with_condition(&pair.claim, Old::Retained, condition, Timestamp::now());
            let mut status = json!({ "conditions": conditions });
            if refusal == Refusal::Infeasible {
                let infeasible = Progress::ControllerInfeasible.name();
                status["allocatedResourceStatuses"] = json!({ "storage": infeasible });
            }
            if let Err(Failure::Transient(cause)) = context.patch_status(&*pair.claim, status).await {
                warn!(claim = words(&pair.claim), cause, "the error cannot be written to its status");
            }
        }
        let (volume, driver) = (name(&*pair.volume), &self.info.name);
        let message = format!("resize volume {volume:?} by resizer {driver:?} failed: {error}");
        context.event(&*pair.claim, EventType::Warning, "VolumeResizeFailed", message);
        Err(Failure::Transient(error))
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Upstream: `IsFinalError` and `IsInfeasibleError` in external-resizer `pkg/util/util.go`, `inUseError` in
/// its `pkg/controller/controller.go`.
fn refusal(failure: &RpcFailure) -> Refusal {
    match (failure.certainty, failure.number) {
        (Certainty::Unknown | Certainty::Exhausted, _) => Refusal::Uncertain,
        (_, INVALID_ARGUMENT | NOT_FOUND | OUT_OF_RANGE) => Refusal::Infeasible,
        (_, FAILED_PRECONDITION) => Refusal::InUse,
        (Certainty::Final | Certainty::Infeasible, _) => Refusal::Final,
    }
}

/// gRPC's numbers of status codes.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;

pub(super) fn uid(claim: &PersistentVolumeClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

/// Whether a claim has changed in what its expansion depends on. A label, or an error that this controller wrote, is
/// no reason to repeat a failed call before the backoff is over; without recovery, nor is a smaller request. Upstream:
/// `updatePVC` in `pkg/controller/controller.go`.
fn is_worth_a_look(change: &Change, recovers: bool) -> bool {
    fn relevant_fields(claim: &PersistentVolumeClaim) -> (&str, i64, bool) {
        (uid(claim), growth::capacity(claim), claim_phase(claim) == "Bound")
    }
    let (Some(old), Some(new)) = change.both::<PersistentVolumeClaim>() else { return change.new.is_some() };
    let (before, after) = (growth::requested(old), growth::requested(new));
    let requests_another = match recovers {
        true => before != after || Progress::of(old) != Progress::of(new),
        false => before < after,
    };
    requests_another || relevant_fields(old) != relevant_fields(new)
}

/// The claims of a volume with another spec, before and after; calls depend on nothing else of a volume.
pub(super) fn owners(change: &Change) -> Vec<ObjectKey> {
    let (old, new) = change.both::<PersistentVolume>();
    if old.map(|volume| &volume.spec) == new.map(|volume| &volume.spec) {
        return Vec::new();
    }
    change.states::<PersistentVolume>().filter_map(|volume| claim_ref(volume)).map(ref_key).collect()
}

/// The claims of a pod that has ended, was deleted, or was replaced by another one of its name.
pub(super) fn no_longer_used(change: &Change) -> Vec<ObjectKey> {
    let (Some(old), new) = change.both::<Pod>() else { return Vec::new() };
    if new.is_some_and(|new| new.metadata.uid == old.metadata.uid && !is_terminal(new)) {
        return Vec::new();
    }
    pod_claims(old).map(|used| used.claim).collect()
}
