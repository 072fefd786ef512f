//! The scheduler's actions, and their patches.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::parked::{Cure, Demand};

const SCHEDULED: &str = "PodScheduled";
const UNSCHEDULABLE: &str = "Unschedulable";

/// An action of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Set the selected-node annotation on a claim, for the provisioner.
    SelectNode(Arc<PersistentVolumeClaim>, String),
    /// Set the claimRef of a free volume for a WaitForFirstConsumer claim; the binder does the rest.
    PointVolume(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>),
    /// Bind the pod to a node.
    Bind(Arc<Pod>, String),
    /// Write a condition and emit an event why the pod has no node.
    Report(Arc<Pod>, String),
}

/// The decision for a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Actions.
    pub actions: Vec<Action>,
    /// The chosen node, if any: its resources count as used from now on.
    pub node: Option<String>,
    /// Why no node was chosen, if that depends on the nodes.
    pub unfit: Option<NoNode>,
    /// When to decide again without a change.
    pub again: Option<std::time::Duration>,
}

/// No node fits a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoNode {
    /// The pod's equivalence class.
    pub demand: Demand,
    /// Changes that may make a node fit.
    pub cures: BTreeSet<Cure>,
}

/// Whether the pod's condition is up to date already.
pub fn says(pod: &Pod, message: &str) -> bool {
    scheduled(pod).is_some_and(|condition| {
        condition.status == "False"
            && condition.reason.as_deref() == Some(UNSCHEDULABLE)
            && condition.message.as_deref() == Some(message)
    })
}

/// The status with the reason that the pod has no node. A merge patch replaces lists, so it contains the pod's
/// other conditions too.
pub fn unschedulable(pod: &Pod, message: &str, now: Timestamp) -> Value {
    let since = scheduled(pod).filter(|condition| condition.status == "False");
    let condition = PodCondition {
        type_: SCHEDULED.into(),
        status: "False".into(),
        reason: Some(UNSCHEDULABLE.into()),
        message: Some(message.into()),
        last_transition_time: since.and_then(|old| old.last_transition_time.clone()).or(Some(Time(now))),
        ..PodCondition::default()
    };
    let others = conditions(pod).filter(|condition| condition.type_ != SCHEDULED).cloned();
    json!({"conditions": others.chain([condition]).collect::<Vec<_>>()})
}

fn scheduled(pod: &Pod) -> Option<&PodCondition> {
    conditions(pod).find(|condition| condition.type_ == SCHEDULED)
}

fn conditions(pod: &Pod) -> impl Iterator<Item = &PodCondition> {
    pod.status.iter().flat_map(|status| status.conditions.iter().flatten())
}
