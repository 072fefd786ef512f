//! Whether a claim must be provisioned now, and what follows from a failure.
//!
//! Upstream: `shouldProvision`, `provisionClaimOperation` and `provisionVolumeErrorHandling` in
//! sig-storage-lib-external-provisioner `controller/controller.go`.

use std::sync::Arc;

use claimcheck_informer::{DataSource, World, data_source};
use claimcheck_model::{SELECTED_NODE, STORAGE_PROVISIONER, STORAGE_PROVISIONER_BETA};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{
    request::{Job, Refusal, volume_name},
    topology::TopologyError,
};
use crate::{provisioner::Settings, rpc::Certainty};

/// The action for a claim.
#[derive(Clone, Debug)]
pub enum Action {
    /// Create its volume.
    Provision(Box<Job>),
    /// Add the finalizer to the claim that is the source of the clone.
    Hold(Arc<PersistentVolumeClaim>),
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

/// Plans a claim. It need not exist any more: if its CreateVolume may still be in progress, it is provisioned
/// to the end, so that its volume gets an object and is then released and deleted like any other.
pub fn plan(claim: &Arc<PersistentVolumeClaim>, world: &World, settings: &Settings) -> Option<Action> {
    let spec = claim.spec.as_ref()?;
    if spec.volume_name.as_ref().is_some_and(|name| !name.is_empty()) {
        return None;
    }
    if !is_for(claim, &settings.driver.name) || world.volumes.named(&volume_name(claim)).is_some() {
        return None;
    }
    let class_name = spec.storage_class_name.clone().unwrap_or_default();
    let Some(class) = world.classes.named(&class_name) else {
        return Some(Action::Refuse { claim: claim.clone(), refusal: Refusal::NoClass(class_name) });
    };
    if class.provisioner != settings.driver.name {
        return None;
    }
    if class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer") && selected_node(claim).is_none()
    {
        return None;
    }
    // A volume with a populator is created by the populator.
    if matches!(data_source(claim), Some(DataSource::Other { .. })) {
        return Some(Action::LeaveToPopulator(claim.clone()));
    }
    Some(match Job::new(claim, class, world, settings) {
        Ok(Job { unheld: Some(source), .. }) => Action::Hold(source),
        Ok(job) => Action::Provision(Box::new(job)),
        Err(refusal @ Refusal::Topology(TopologyError::NodeGone { .. })) => {
            Action::Reschedule { claim: claim.clone(), refusal }
        }
        Err(refusal) => Action::Refuse { claim: claim.clone(), refusal },
    })
}

/// The consequence of a failed CreateVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A volume may exist or appear: repeat the same call, even if the claim is deleted.
    RepeatTillCertain,
    /// No volume exists: retry, if the claim still needs one then.
    Retry,
    /// No volume exists: let the scheduler choose another node.
    Reschedule,
}

/// Upstream: `checkError` in external-provisioner `pkg/controller/controller.go`.
pub fn after_failure(certainty: Certainty, may_reschedule: bool) -> Next {
    match certainty {
        Certainty::Unknown => Next::RepeatTillCertain,
        Certainty::Exhausted if may_reschedule => Next::Reschedule,
        Certainty::Exhausted | Certainty::Final | Certainty::Infeasible => Next::Retry,
    }
}

fn is_for(claim: &PersistentVolumeClaim, driver: &str) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    let named = |key| annotations.and_then(|all| all.get(key));
    named(STORAGE_PROVISIONER).or_else(|| named(STORAGE_PROVISIONER_BETA)).is_some_and(|name| name == driver)
}

fn selected_node(claim: &PersistentVolumeClaim) -> Option<&String> {
    claim.metadata.annotations.as_ref()?.get(SELECTED_NODE).filter(|node| !node.is_empty())
}
