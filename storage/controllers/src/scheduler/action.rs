//! The scheduler's steps, and what they write.

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

/// A step of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Tells the provisioner, by an annotation on the claim, where the volume must be reachable.
    SelectNode(Arc<PersistentVolumeClaim>, String),
    /// Chooses a free volume for a claim that binds late; the binder does the rest.
    PointVolume(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>),
    /// Gives the pod its node.
    Bind(Arc<Pod>, String),
    /// Says on the pod, and in an event, why it has no node.
    Report(Arc<Pod>, String),
}

/// What is decided for a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What to do now.
    pub actions: Vec<Action>,
    /// The node the pod shall get, if one was chosen: to be counted as taken from now on.
    pub node: Option<String>,
    /// Why no node was chosen, if that is up to the nodes.
    pub unfit: Option<NoNode>,
    /// When to decide again though nothing changed.
    pub again: Option<std::time::Duration>,
}

/// That no node fits a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoNode {
    /// Pods of equal demand fare the same.
    pub demand: Demand,
    /// What would change it.
    pub cures: BTreeSet<Cure>,
}

/// Whether the pod's condition says this already.
pub fn says(pod: &Pod, message: &str) -> bool {
    scheduled(pod).is_some_and(|condition| {
        condition.status == "False"
            && condition.reason.as_deref() == Some(UNSCHEDULABLE)
            && condition.message.as_deref() == Some(message)
    })
}

/// The status that says why the pod has no node. A merge patch replaces lists, so it holds the pod's other
/// conditions too.
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
