//! Calls CreateVolume and creates PersistentVolume objects.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use claimcheck_csi::{Driver, v1::DeleteVolumeRequest};
use claimcheck_informer::{Backoff, Change, ClaimBy, ClassBy, DataSource, EventType, Kind, KindSet, World};
use claimcheck_model::{CLONE_PROTECTION, ObjectKey, SELECTED_NODE, snapshot::VolumeSnapshotContent};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use tracing::info;

use super::{
    plan::{Action, Known, Next, SLOW, after_failure, plan_known},
    request::Job,
};
use crate::{
    Failure,
    claims::{class_name, ref_key, volume_name},
    context::Context,
    provisioner::{Settings, meter},
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

/// The controller that creates volumes.
pub struct Claims {
    driver: Driver,
    settings: Settings,
    /// The last calls, by the claim's uid.
    known: Mutex<HashMap<String, Known>>,
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
        ])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<ClaimId> {
        match change.kind {
            Kind::Claim => {
                let claim = change.object::<PersistentVolumeClaim>().map(|claim| id(claim));
                made_from(&DataSource::Claim(change.key.clone()), world).chain(claim).collect()
            }
            Kind::Snapshot => made_from(&DataSource::Snapshot(change.key.clone()), world).collect(),
            Kind::SnapshotContent => {
                let content = change.object::<VolumeSnapshotContent>();
                let snapshot = content.map(|content| ref_key(&content.spec.volume_snapshot_ref));
                snapshot.map(|key| made_from(&DataSource::Snapshot(key), world).collect()).unwrap_or_default()
            }
            Kind::Class => of_class(&change.key.name, world).collect(),
            Kind::AttributesClass => {
                let claims = world.claims.by(ClaimBy::AttributesClass, &change.key.name);
                claims.filter(|claim| volume_name(claim).is_none()).map(|claim| id(claim)).collect()
            }
            // A driver that came up on a node may be what claims wait for.
            Kind::CsiNode => {
                let classes = world.classes.by(ClassBy::Provisioner, &self.settings.driver.name);
                let names = classes.filter_map(|class| class.metadata.name.as_deref());
                names.flat_map(|class| of_class(class, world)).collect()
            }
            Kind::Volume
            | Kind::Pod
            | Kind::Node
            | Kind::Attachment
            | Kind::CsiDriver
            | Kind::Capacity
            | Kind::Lease
            | Kind::SnapshotClass => Vec::new(),
        }
    }

    fn plan(&self, id: &ClaimId, world: &World, now: Timestamp) -> Plan<Action> {
        let claim = world.claims.get(&id.key).filter(|claim| claim.metadata.uid.as_deref() == Some(&id.uid));
        let known = self.known().get(&id.uid).cloned();
        let (action, requeue_after) = plan_known(claim, known.as_ref(), world, &self.settings, now);
        if action.is_none() && requeue_after.is_none() {
            self.known().remove(&id.uid);
        }
        Plan { actions: Vec::from_iter(action), requeue_after }
    }

    async fn act(&self, context: &Context, id: &ClaimId, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::Provision(job) => self.provision(context, id, &job).await,
            Action::Hold(source) => {
                let mut finalizers = source.metadata.finalizers.clone().unwrap_or_default();
                finalizers.push(CLONE_PROTECTION.to_owned());
                context.patch(&*source, json!({"metadata": {"finalizers": finalizers}})).await?;
                Ok(ActionOutcome::Changed)
            }
            Action::LeaveToPopulator(claim) => {
                let message = "Assuming an external populator will provision the volume";
                context.event(&*claim, EventType::Normal, "Provisioning", message);
                Ok(ActionOutcome::Unchanged)
            }
            Action::Refuse { claim, refusal } => {
                failed(context, &claim, &refusal.to_string());
                Err(refusal.into())
            }
            Action::Reschedule { claim, refusal } => {
                failed(context, &claim, &refusal.to_string());
                reschedule(context, &claim).await
            }
        }
    }
}

impl Claims {
    pub fn new(driver: Driver, settings: Settings) -> Self {
        Self { driver, settings, known: Mutex::default() }
    }

    async fn provision(&self, context: &Context, id: &ClaimId, job: &Job) -> Result<ActionOutcome, Failure> {
        let began = Instant::now();
        let message =
            format!("External provisioner is provisioning volume for claim {:?}", id.key.to_string());
        context.event(&*job.claim, EventType::Normal, "Provisioning", message);
        let secrets = credentials(&context.client, job.secret.as_ref())
            .await
            .inspect_err(|error| failed(context, &job.claim, &error.to_string()))?;
        let mut request = job.request.clone();
        request.secrets = secrets.clone();
        let answer = match self.driver.controller().create_volume(request).await {
            Ok(answer) => answer.into_inner().volume.unwrap_or_default(),
            Err(status) => return self.not_created(context, id, job, status.into()).await,
        };
        // From here on a volume exists, and is not to be lost sight of until it has its object.
        self.known().insert(id.uid.clone(), Known::InDoubt(Box::new(job.clone())));
        let handle = answer.volume_id.clone();
        let volume = match job.finish(answer) {
            Ok(volume) => volume,
            Err(unusable) => {
                let request = DeleteVolumeRequest { volume_id: handle.clone(), secrets };
                let message = match self.clean_up(request).await {
                    Ok(()) => unusable.to_string(),
                    Err(failure) => format!(
                        "{unusable}. Cleanup of volume {} failed, volume is orphaned: {failure}. Its volume handle is \
                         {handle:?}",
                        job.request.name
                    ),
                };
                failed(context, &job.claim, &message);
                return Err(Failure::Transient(message.into()));
            }
        };
        match context.create(&volume).await {
            // Stale: it exists already, from an attempt with a lost response.
            Ok(()) | Err(Failure::Conflict) => {}
            Err(Failure::Transient(error)) => {
                failed(context, &job.claim, &error.to_string());
                return Err(Failure::Transient(error));
            }
        }
        self.known().remove(&id.uid);
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
            Certainty::Final | Certainty::Exhausted | Certainty::Unknown => {
                format!(
                    "failed to provision volume with StorageClass {:?}: {failure}",
                    class_name(&job.claim)
                )
            }
        };
        failed(context, &job.claim, &message);
        match after_failure(failure.certainty, job.may_reschedule) {
            Next::RepeatTillCertain => {
                self.known().insert(id.uid.clone(), Known::InDoubt(Box::new(job.clone())));
                Err(failure.into())
            }
            Next::RetrySlowly => {
                let until = Timestamp::now() + self.settings.slow_retry.unwrap_or(SLOW);
                self.known().insert(id.uid.clone(), Known::Infeasible { job: Box::new(job.clone()), until });
                Err(failure.into())
            }
            Next::Retry => {
                self.known().remove(&id.uid);
                Err(failure.into())
            }
            Next::Reschedule => {
                self.known().remove(&id.uid);
                reschedule(context, &job.claim).await
            }
        }
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

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(claim: &PersistentVolumeClaim) -> ClaimId {
    ClaimId { key: claimcheck_informer::key_of(claim), uid: claim.metadata.uid.clone().unwrap_or_default() }
}

/// Claims that are still to be provisioned from a source.
fn made_from<'w>(source: &DataSource, world: &'w World) -> impl Iterator<Item = ClaimId> + use<'w> {
    world.claims.by(ClaimBy::Source, &source.to_string()).map(|claim| id(claim))
}

fn of_class<'w>(class: &str, world: &'w World) -> impl Iterator<Item = ClaimId> + 'w {
    world.claims.by(ClaimBy::Unbound, class).map(|claim| id(claim)).collect::<Vec<_>>().into_iter()
}

fn failed(context: &Context, claim: &PersistentVolumeClaim, message: &str) {
    meter::not_provisioned(&context.meter, claim);
    context.event(claim, EventType::Warning, "ProvisioningFailed", message);
}

/// Clears the claim's selected node, so that the scheduler chooses again.
async fn reschedule(context: &Context, claim: &PersistentVolumeClaim) -> Result<ActionOutcome, Failure> {
    let patch = json!({"metadata": {"annotations": {SELECTED_NODE: null}}});
    context.patch(claim, patch).await?;
    Ok(ActionOutcome::Changed)
}
