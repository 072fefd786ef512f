//! Whether a claim must be provisioned now, and what follows from a failure.
//!
//! Upstream: `shouldProvision`, `provisionClaimOperation` and `provisionVolumeErrorHandling` in
//! sig-storage-lib-external-provisioner `controller/controller.go`.

use std::{sync::Arc, time::Duration};

use claimcheck_informer::{DataSource, World};
use claimcheck_model::{SELECTED_NODE, STORAGE_PROVISIONER, STORAGE_PROVISIONER_BETA};
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};

use super::{
    request::{Job, Refusal},
    source::{self, SNAPSHOT_KIND},
    topology::{self, TopologyError},
};
use crate::{
    claims::{self, class_name, name, selected_node, waits_for_first_consumer},
    provisioner::{LocalNode, Settings, SourceObject},
    rpc::Certainty,
};

/// How long an infeasible request is not retried, unless its claim or class changes. Upstream:
/// `--retry-interval-max`.
pub const SLOW: Duration = Duration::from_secs(300);

/// The last call for a claim, while it determines the next one.
#[derive(Clone, Debug)]
pub enum Known {
    /// It may still be in progress, or its volume has no object yet. Upstream: `claimsInProgress`, and the
    /// `pvcNodeStore` in external-provisioner `pkg/controller/cache.go`.
    InDoubt(Box<Job>),
    /// The driver rejected it as invalid. Upstream: `slowSet`.
    Infeasible {
        /// The call.
        job: Box<Job>,
        /// The time until which it is not repeated.
        until: Timestamp,
    },
}

/// The action for a claim.
#[derive(Clone, Debug)]
pub enum Action {
    /// Create its volume.
    Provision(Box<Job>),
    /// Add the finalizer to the source of the volume.
    Hold {
        /// The source.
        source: SourceObject,
        /// The call that follows.
        job: Box<Job>,
    },
    /// With `--node-deployment`: select this node, if it has the capacity and no other provisioner is faster. To be
    /// delayed, see `ownership.rs`.
    Own {
        /// The claim.
        claim: Arc<PersistentVolumeClaim>,
        /// The node.
        node: String,
        /// The call that would follow; `None` if an error would, for which the claim needs an owner, too.
        job: Option<Box<Job>>,
    },
    /// Emit an event that an external populator creates its volume.
    LeaveToPopulator(Arc<PersistentVolumeClaim>),
    /// Emit an event that it cannot be provisioned, and retry later.
    Refuse {
        /// The claim.
        claim: Arc<PersistentVolumeClaim>,
        /// The reason.
        refusal: Refusal,
    },
    /// Emit an event why the selected node is unsuitable, and let the scheduler choose another.
    Reschedule {
        /// The claim.
        claim: Arc<PersistentVolumeClaim>,
        /// The reason.
        refusal: Refusal,
    },
}

/// Plans a claim after the last call for it, or the time of the next plan. A call in doubt is repeated
/// unchanged until its result is known, even if the claim, its class, source or node no longer exists: then its
/// volume gets an object, and is released and deleted like any other if the claim is deleted.
pub fn plan_known(
    claim: Option<&Arc<PersistentVolumeClaim>>,
    known: Option<&Known>,
    world: &World,
    settings: &Settings,
    now: Timestamp,
) -> (Option<Action>, Option<Duration>) {
    match (claim, known) {
        (claim, Some(Known::InDoubt(job))) => (repeat(claim, job, world, settings), None),
        (Some(claim), Some(Known::Infeasible { job, until })) => {
            match delay(claim, job, *until, world, now) {
                Some(delay) => (None, Some(delay)),
                None => (plan(claim, world, settings), None),
            }
        }
        (Some(claim), None) => (plan(claim, world, settings), None),
        (None, Some(Known::Infeasible { .. }) | None) => (None, None),
    }
}

/// The call again, unless the claim has a volume by now. The request is that of the first call.
fn repeat(
    claim: Option<&Arc<PersistentVolumeClaim>>,
    job: &Job,
    world: &World,
    settings: &Settings,
) -> Option<Action> {
    let mut job = job.clone();
    if let Some(claim) = claim {
        job.claim = claim.clone();
    }
    (!is_provisioned(&job.claim, world, settings)).then(|| Action::Provision(Box::new(job)))
}

/// How long the claim has still to wait after an infeasible call. Upstream:
/// `delayProvisioningIfRecentlyInfeasible`, which retries early only for another StorageClass.
fn delay(
    claim: &PersistentVolumeClaim,
    job: &Job,
    until: Timestamp,
    world: &World,
    now: Timestamp,
) -> Option<Duration> {
    let class = world.classes.named(class_name(claim))?;
    let same = class.metadata.uid == job.class_uid
        && claim.spec == job.claim.spec
        && selected_node(claim) == selected_node(&job.claim);
    let left = Duration::try_from(until.duration_since(now)).ok()?;
    (same && !left.is_zero()).then_some(left)
}

/// Plans a claim without regard to earlier calls.
pub fn plan(claim: &Arc<PersistentVolumeClaim>, world: &World, settings: &Settings) -> Option<Action> {
    if is_provisioned(claim, world, settings) || !is_for(claim, &settings.driver.name) {
        return None;
    }
    let local = settings.local.as_deref();
    // Upstream: `checkNode` in external-provisioner `pkg/controller/controller.go`.
    if local.is_some_and(|local| selected_node(claim).is_some_and(|node| node != local.name())) {
        return None;
    }
    let class_name = class_name(claim);
    let Some(class) = world.classes.named(class_name) else {
        let refusal = Refusal::NoClass(class_name.to_owned());
        return Some(Action::Refuse { claim: claim.clone(), refusal });
    };
    if class.provisioner != settings.driver.name {
        return None;
    }
    if selected_node(claim).is_none() {
        match local {
            Some(local) => return own(claim, class, local, world, settings),
            None if waits_for_first_consumer(class) => return None,
            None => {}
        }
    }
    // A volume with a populator is created by the populator. A snapshot of an unknown group is refused below.
    let source = source::resolve(claim, world, settings.options);
    if matches!(source, Ok(Some(DataSource::Other { kind, .. })) if kind != SNAPSHOT_KIND) {
        return Some(Action::LeaveToPopulator(claim.clone()));
    }
    Some(match Job::new(claim, class, world, settings) {
        Ok(job) => match job.unheld.clone() {
            Some(source) => Action::Hold { source, job: Box::new(job) },
            None => Action::Provision(Box::new(job)),
        },
        // Upstream reschedules without a CSINode only, which the garbage collector deletes with its node.
        Err(
            refusal @ Refusal::Topology(TopologyError::NoCsiNode { .. } | TopologyError::NodeDeleted { .. }),
        ) => Action::Reschedule { claim: claim.clone(), refusal },
        Err(refusal) => Action::Refuse { claim: claim.clone(), refusal },
    })
}

/// Selects this node for a claim without one, if its class binds immediately and allows the node.
fn own(
    claim: &Arc<PersistentVolumeClaim>,
    class: &StorageClass,
    local: &LocalNode,
    world: &World,
    settings: &Settings,
) -> Option<Action> {
    let is_immediate = class.volume_binding_mode.as_deref() == Some("Immediate");
    if !is_immediate || !local.deployment.immediate_binding {
        return None;
    }
    let allowed = class.allowed_topologies.as_deref().unwrap_or_default();
    if !allowed.is_empty() && settings.driver.has_topology() {
        let (driver, selected) = (settings.driver.name.as_str(), Some(local.name()));
        let topology = local.topology();
        topology::requirement(topology, driver, name(&**claim), allowed, selected, settings.options).ok()?;
    }
    let mut owned = (**claim).clone();
    let annotations = owned.metadata.annotations.get_or_insert_default();
    annotations.insert(SELECTED_NODE.to_owned(), local.name().to_owned());
    let job = Job::new(&Arc::new(owned), class, world, settings).ok().map(Box::new);
    Some(Action::Own { claim: claim.clone(), node: local.name().to_owned(), job })
}

/// The consequence of a failed CreateVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A volume may exist or appear: repeat the same call, even if the claim is deleted.
    RepeatTillCertain,
    /// No volume exists: retry, if the claim still needs one then.
    Retry,
    /// No volume exists, and the same call will not succeed: retry after [`SLOW`].
    RetrySlowly,
    /// No volume exists: let the scheduler choose another node.
    Reschedule,
}

/// Upstream: `checkError` in external-provisioner `pkg/controller/controller.go`, and `isInfeasibleError` in
/// sig-storage-lib-external-provisioner.
pub fn after_failure(certainty: Certainty, may_reschedule: bool) -> Next {
    match certainty {
        Certainty::Unknown => Next::RepeatTillCertain,
        Certainty::Exhausted if may_reschedule => Next::Reschedule,
        Certainty::Exhausted | Certainty::Final => Next::Retry,
        Certainty::Infeasible => Next::RetrySlowly,
    }
}

/// Whether the claim has a volume, or the object of its volume exists.
fn is_provisioned(claim: &PersistentVolumeClaim, world: &World, settings: &Settings) -> bool {
    let name = settings.volume_names.name(claim.metadata.uid.as_deref().unwrap_or_default());
    claims::volume_name(claim).is_some() || world.volumes.named(&name).is_some()
}

fn is_for(claim: &PersistentVolumeClaim, driver: &str) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    let named = |key| annotations.and_then(|all| all.get(key));
    named(STORAGE_PROVISIONER).or_else(|| named(STORAGE_PROVISIONER_BETA)).is_some_and(|name| name == driver)
}
