//! Calls CreateVolume and creates PersistentVolume objects.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use claimcheck_csi::{
    Driver,
    tap::ForClaim,
    v1::{DeleteVolumeRequest, GetCapacityRequest},
};
use claimcheck_informer::{Backoff, Change, ClaimBy, DataSource, EventType, Kind, KindSet, World};
use claimcheck_model::{ObjectKey, SELECTED_NODE, snapshot::VolumeSnapshotContent};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;
use tracing::{info, warn};

use super::{
    Calls,
    ownership::Attempts,
    plan::{Action, Known, Next, SLOW, after_failure, plan_known},
    registration,
    request::{Job, Refusal},
};
use crate::{
    Failure,
    claims::{ref_key, volume_name},
    context::Context,
    provisioner::{Settings, SourceObject, grant, meter},
    resync,
    rpc::{Certainty, RpcFailure, credentials},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// A claim, distinguished from later ones with the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimId {
    key: ObjectKey,
    uid: String,
}

/// How often the deletion of a volume that cannot be used is tried (upstream: `deleteVolumeRetryCount`).
const CLEANUP_TRIES: usize = 5;

/// How often the creation of a PersistentVolume is tried before CreateVolume is called again, which takes about ten seconds
/// with the delays between. Upstream calls CreateVolume only once (sig-storage-lib-external-provisioner, `queueStore` in
/// `controller/volume_store.go`).
const STORE_TRIES: u32 = 12;
const STORE_DELAYS: Backoff = Backoff { base: Duration::from_millis(5), max: Duration::from_secs(10) };

/// The controller that creates volumes.
pub struct Claims {
    driver: Driver,
    settings: Settings,
    calls: Calls,
    attempts: Mutex<Attempts>,
}

impl Controller for Claims {
    type Key = ClaimId;
    type Action = Action;

    const NAME: &'static str = "provisioner";
    /// Number of concurrent CreateVolume calls; upstream's default is 100.
    const WORKERS: usize = 100;
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(60) };

    fn about(key: &ClaimId) -> About<'_> {
        About::Claim(&key.key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[
            Kind::Claim,
            Kind::Class,
            Kind::AttributesClass,
            Kind::CsiNode,
            Kind::Snapshot,
            Kind::SnapshotContent,
            Kind::ReferenceGrant,
        ])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<ClaimId> {
        match change.kind {
            Kind::Claim => {
                let claim = change.object::<PersistentVolumeClaim>().map(|claim| id(claim));
                self.made_from(&DataSource::Claim(change.key.clone()), world).chain(claim).collect()
            }
            Kind::Snapshot => self.made_from(&DataSource::Snapshot(change.key.clone()), world).collect(),
            Kind::SnapshotContent => {
                let content = change.object::<VolumeSnapshotContent>();
                let snapshot = content.map(|content| ref_key(&content.spec.volume_snapshot_ref));
                let claims = snapshot.map(|key| self.made_from(&DataSource::Snapshot(key), world));
                claims.into_iter().flatten().collect()
            }
            Kind::ReferenceGrant => {
                grant::naming(&change.key.namespace, world).map(|claim| id(claim)).collect()
            }
            Kind::Class => claims_of_class(&change.key.name, world).collect(),
            Kind::AttributesClass => {
                let claims = world.claims.by(ClaimBy::AttributesClass, &change.key.name);
                claims.filter(|claim| volume_name(claim).is_none()).map(|claim| id(claim)).collect()
            }
            Kind::CsiNode => registration::concerned(change, &self.settings.driver.name, world)
                .map(|claim| id(claim))
                .collect(),
            Kind::Volume
            | Kind::Pod
            | Kind::Node
            | Kind::Attachment
            | Kind::CsiDriver
            | Kind::Capacity
            | Kind::Lease
            | Kind::SnapshotClass
            | Kind::GroupSnapshot
            | Kind::GroupSnapshotContent
            | Kind::GroupSnapshotClass
            | Kind::Populator => Vec::new(),
        }
    }

    /// A call in doubt is repeated although no change is about its claim, or the claim does not exist any more.
    fn initial_keys(&self) -> Vec<ClaimId> {
        self.calls.in_doubt().iter().map(|claim| id(claim)).collect()
    }

    fn plan(&self, id: &ClaimId, world: &World, now: Timestamp) -> Plan<Action> {
        let claim = world.claims.get(&id.key).filter(|claim| claim.metadata.uid.as_deref() == Some(&id.uid));
        let known = self.calls.of(&id.uid);
        let planned = plan_known(claim, known.as_ref(), world, &self.settings, now);
        let mut attempts = self.attempts();
        let (action, requeue_after) = match (planned, &self.settings.local) {
            ((Some(own @ Action::Own { .. }), _), Some(local)) => {
                let (due, delay) = attempts.due(&id.uid, &local.deployment, resync::random(), now);
                (due.then_some(own), Some(delay))
            }
            (other, _) => {
                attempts.forget(&id.uid);
                other
            }
        };
        if action.is_none() && requeue_after.is_none() {
            self.calls.set(&id.uid, None);
        }
        Plan { actions: Vec::from_iter(action), requeue_after }
    }

    async fn act(&self, context: &Context, id: &ClaimId, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::Provision(job) => self.provision(context, id, &job).await,
            Action::Hold { source, job } => match hold(context, &source).await {
                Err(failure) if matches!(source, SourceObject::Snapshot(_)) && failure.is_forbidden() => {
                    // Roles for older provisioners permit reading snapshots only. Upstream: `setSnapshotFinalizer`.
                    info!(claim = %id.key, "not permitted to protect the snapshot by a finalizer");
                    self.provision(context, id, &job).await
                }
                held => held.map(|()| ActionOutcome::Changed),
            },
            Action::Own { claim, node, job } => {
                if let Some(job) = &job
                    && !self.has_capacity(id, job).await
                {
                    info!(claim = %id.key, node, "not enough capacity to provision on this node");
                    return Ok(ActionOutcome::Unchanged);
                }
                let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
                context.patch(&*claim, patch).await?;
                Ok(ActionOutcome::Changed)
            }
            Action::LeaveToPopulator(claim) => {
                report_start(context, &claim);
                let message = "Assuming an external populator will provision the volume";
                context.event(&*claim, EventType::Normal, "Provisioning", message);
                Ok(ActionOutcome::Unchanged)
            }
            Action::Refuse { claim, refusal } => {
                if matches!(refusal, Refusal::NoClass(_)) {
                    // Upstream fails in `shouldProvision`, before it emits any event; the binder has emitted one.
                    meter::not_provisioned(&context.meter, &claim);
                } else {
                    report_start(context, &claim);
                    failed(context, &claim, &refusal.to_string());
                }
                Err(refusal.into())
            }
            Action::Reschedule { claim, refusal } => {
                report_start(context, &claim);
                failed(context, &claim, &refusal.to_string());
                reschedule(context, &claim).await
            }
        }
    }
}

impl Claims {
    /// After these calls. Another driver process may succeed where the last one found a request infeasible.
    pub fn new(driver: Driver, settings: Settings, calls: Calls) -> Self {
        let this = Self { driver, settings, calls, attempts: Mutex::default() };
        this.calls.retain_in_doubt();
        this
    }

    /// Claims that are still to be provisioned from a source.
    fn made_from<'w>(
        &self,
        source: &DataSource,
        world: &'w World,
    ) -> impl Iterator<Item = ClaimId> + use<'w> {
        let here = world.claims.by(ClaimBy::Source, &source.to_string());
        let elsewhere = self.settings.options.cross_namespace_sources;
        let elsewhere = elsewhere.then(|| grant::referring(source, world)).into_iter().flatten();
        here.chain(elsewhere).map(|claim| id(claim))
    }

    async fn provision(&self, context: &Context, id: &ClaimId, job: &Job) -> Result<ActionOutcome, Failure> {
        let began = Instant::now();
        report_start(context, &job.claim);
        let secrets = credentials(&context.client, job.secret.as_ref())
            .await
            .inspect_err(|error| failed(context, &job.claim, &error.to_string()))?;
        let mut request = job.request.clone();
        request.secrets = secrets.clone();
        // From here on a volume may exist, and is not to be lost sight of until it has its object: not even if the
        // controller ends during the call.
        self.calls.set(&id.uid, Some(Known::InDoubt(Box::new(job.clone()))));
        let mut request = tonic::Request::new(request);
        request
            .extensions_mut()
            .insert(ForClaim { namespace: id.key.namespace.clone(), name: id.key.name.clone() });
        let answer = match self.driver.controller().create_volume(request).await {
            Ok(answer) => answer.into_inner().volume.unwrap_or_default(),
            Err(status) => return self.not_created(context, id, job, status.into()).await,
        };
        let handle = answer.volume_id.clone();
        let volume = match job.finish(answer) {
            Ok(volume) => volume,
            Err(unusable) => {
                let request = DeleteVolumeRequest { volume_id: handle.clone(), secrets };
                let message = match self.clean_up(request).await {
                    Ok(()) => unusable.to_string(),
                    Err(failure) => {
                        warn!(claim = %id.key, handle, "the volume is orphaned");
                        let cleanup = unusable.cleanup();
                        let name = &job.request.name;
                        format!(
                            "{unusable}. {cleanup} of volume {name} failed, volume is orphaned: {failure}"
                        )
                    }
                };
                failed(context, &job.claim, &message);
                return Err(Failure::Transient(message.into()));
            }
        };
        if let Err(Failure::Transient(error)) = store(context, id, &volume).await {
            failed(context, &job.claim, &error.to_string());
            return Err(Failure::Transient(error));
        }
        self.calls.set(&id.uid, None);
        meter::provisioned(&context.meter, &job.claim, began.elapsed());
        info!(claim = %id.key, handle, "provisioned");
        let message = format!("Successfully provisioned volume {}", job.request.name);
        context.event(&*job.claim, EventType::Normal, "ProvisioningSucceeded", message);
        Ok(ActionOutcome::Changed)
    }

    async fn not_created(
        &self,
        context: &Context,
        id: &ClaimId,
        job: &Job,
        failure: RpcFailure,
    ) -> Result<ActionOutcome, Failure> {
        let message = match failure.certainty {
            Certainty::Infeasible => format!(
                "Volume provisioning failed with infeasible error. Retries will be delayed. {failure}"
            ),
            Certainty::Final | Certainty::Exhausted | Certainty::Unknown => failure.to_string(),
        };
        failed(context, &job.claim, &message);
        match after_failure(failure.certainty, job.may_reschedule) {
            Next::RepeatTillCertain => {
                self.calls.set(&id.uid, Some(Known::InDoubt(Box::new(job.clone()))));
                Err(failure.into())
            }
            Next::RetrySlowly => {
                let until = Timestamp::now() + self.settings.slow_retry.unwrap_or(SLOW);
                self.calls.set(&id.uid, Some(Known::Infeasible { job: Box::new(job.clone()), until }));
                Err(failure.into())
            }
            Next::Retry => {
                self.calls.set(&id.uid, None);
                Err(failure.into())
            }
            Next::Reschedule => {
                self.calls.set(&id.uid, None);
                reschedule(context, &job.claim).await
            }
        }
    }

    /// Whether the driver has the capacity for a volume, or does not know: then the call itself fails, with an event.
    /// Upstream: `checkCapacity`.
    async fn has_capacity(&self, id: &ClaimId, job: &Job) -> bool {
        let request = &job.request;
        let required = request.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
        if required == 0 {
            return true;
        }
        let requisite = request.accessibility_requirements.iter().flat_map(|topology| &topology.requisite);
        let mut topologies: Vec<_> = requisite.cloned().map(Some).collect();
        if topologies.is_empty() {
            topologies.push(None);
        }
        let mut controller = self.driver.controller();
        for accessible_topology in topologies {
            let request = GetCapacityRequest {
                volume_capabilities: request.volume_capabilities.clone(),
                parameters: request.parameters.clone(),
                accessible_topology,
            };
            match controller.get_capacity(request).await {
                Ok(response) if response.get_ref().available_capacity < required => {}
                Ok(_) => return true,
                Err(status) => {
                    let error = RpcFailure::from(status);
                    info!(claim = %id.key, %error, "selects this node although its capacity is unknown");
                    return true;
                }
            }
        }
        false
    }

    /// Deletes a volume that cannot be used. Upstream: `cleanupVolume`.
    async fn clean_up(&self, request: DeleteVolumeRequest) -> Result<(), RpcFailure> {
        let mut controller = self.driver.controller();
        let mut tries = 1;
        while let Err(status) = controller.delete_volume(request.clone()).await {
            if tries == CLEANUP_TRIES {
                return Err(status.into());
            }
            tries += 1;
        }
        Ok(())
    }

    // Its methods cannot leave it half changed.
    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(claim: &PersistentVolumeClaim) -> ClaimId {
    ClaimId { key: claimcheck_informer::key_of(claim), uid: claim.metadata.uid.clone().unwrap_or_default() }
}

fn claims_of_class<'w>(class: &str, world: &'w World) -> impl Iterator<Item = ClaimId> + 'w {
    world.claims.by(ClaimBy::Unbound, class).map(|claim| id(claim)).collect::<Vec<_>>().into_iter()
}

/// Emits the event that precedes each attempt, and so the errors that are found before the call. Upstream:
/// `provisionClaimOperation`.
fn report_start(context: &Context, claim: &PersistentVolumeClaim) {
    let key = claimcheck_informer::key_of(claim).to_string();
    let message = format!("External provisioner is provisioning volume for claim {key:?}");
    context.event(claim, EventType::Normal, "Provisioning", message);
}

fn failed(context: &Context, claim: &PersistentVolumeClaim, message: &str) {
    meter::not_provisioned(&context.meter, claim);
    context.event(claim, EventType::Warning, "ProvisioningFailed", message);
}

/// Creates the object of a volume, which is tried again after errors.
async fn store(context: &Context, id: &ClaimId, volume: &PersistentVolume) -> Result<(), Failure> {
    let mut tries = 1;
    while let Err(Failure::Transient(error)) = context.create(volume).await {
        if tries == STORE_TRIES {
            return Err(Failure::Transient(error));
        }
        warn!(claim = %id.key, volume = volume.metadata.name, %error, "the volume has no object yet");
        tokio::time::sleep(STORE_DELAYS.delay(tries)).await;
        tries += 1;
    }
    // After a conflict, too: it exists already, from an attempt with a lost response.
    Ok(())
}

/// Adds the finalizer to the source of a volume.
async fn hold(context: &Context, source: &SourceObject) -> Result<(), Failure> {
    let finalizers = [source.finalizers(), &[source.finalizer().to_owned()]].concat();
    let patch = json!({"metadata": {"finalizers": finalizers}});
    match source {
        SourceObject::Claim(claim) => context.patch(&**claim, patch).await,
        SourceObject::Snapshot(snapshot) => context.patch(&**snapshot, patch).await,
    }
}

/// Clears the claim's selected node, so that the scheduler chooses again.
async fn reschedule(context: &Context, claim: &PersistentVolumeClaim) -> Result<ActionOutcome, Failure> {
    let patch = json!({"metadata": {"annotations": {SELECTED_NODE: null}}});
    context.patch(claim, patch).await?;
    Ok(ActionOutcome::Changed)
}
