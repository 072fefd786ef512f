//! The scheduler's actions, and their patches.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::unschedulable::{ClusterEvent, EquivalenceClass};

const SCHEDULED: &str = "PodScheduled";

/// The reason of the condition of a pod without a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No node fits.
    Unschedulable,
    /// A node was chosen, and the pod cannot be bound to it.
    SchedulerError,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::SchedulerError => "SchedulerError",
        }
    }
}

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
    Report(Arc<Pod>, Reason, String),
    /// Delete this pod of lower priority, for the other one.
    Preempt {
        /// The pod to delete.
        victim: Arc<Pod>,
        /// The pod that needs its claim.
        preemptor: Arc<Pod>,
    },
}

/// The decision for a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Actions.
    pub actions: Vec<Action>,
    /// The chosen node, if any: its resources count as used from now on.
    pub node: Option<String>,
    /// Why no node was chosen, if that depends on the nodes.
    pub filter_failure: Option<NoNode>,
    /// When to decide again without a change.
    pub requeue_after: Option<std::time::Duration>,
}

/// No node fits a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoNode {
    /// The pod's equivalence class.
    pub equivalence_class: EquivalenceClass,
    /// Changes that may make a node fit.
    pub cluster_events: BTreeSet<ClusterEvent>,
}

/// Whether the pod's condition is up to date already.
pub fn has_condition(pod: &Pod, reason: Reason, message: &str) -> bool {
    conditions(pod).find(|condition| condition.type_ == SCHEDULED).is_some_and(|condition| {
        condition.status == "False"
            && condition.reason.as_deref() == Some(reason.name())
            && condition.message.as_deref() == Some(message)
    })
}

/// The status with the reason that the pod has no node.
pub fn unscheduled(pod: &Pod, reason: Reason, message: &str, now: Timestamp) -> Value {
    let condition = PodCondition {
        type_: SCHEDULED.into(),
        status: "False".into(),
        reason: Some(reason.name().into()),
        message: Some(message.into()),
        ..PodCondition::default()
    };
    with_condition(pod, condition, now)
}

/// The status of a pod that is deleted for one of higher priority.
pub fn preempted(victim: &Pod, now: Timestamp) -> Value {
    let condition = PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some("PreemptionByScheduler".into()),
        message: Some("default-scheduler: preempting to accommodate a higher priority pod".into()),
        ..PodCondition::default()
    };
    with_condition(victim, condition, now)
}

/// The status with the condition, which keeps its time if it had the same status. A merge patch replaces lists, so it
/// contains the pod's other conditions too.
fn with_condition(pod: &Pod, mut condition: PodCondition, now: Timestamp) -> Value {
    let since = conditions(pod).find(|old| old.type_ == condition.type_ && old.status == condition.status);
    let since = since.and_then(|old| old.last_transition_time.clone());
    condition.last_transition_time = since.or(Some(Time(now)));
    let others = conditions(pod).filter(|other| other.type_ != condition.type_).cloned();
    json!({"conditions": others.chain([condition.clone()]).collect::<Vec<_>>()})
}

fn conditions(pod: &Pod) -> impl Iterator<Item = &PodCondition> {
    pod.status.iter().flat_map(|status| status.conditions.iter().flatten())
}
