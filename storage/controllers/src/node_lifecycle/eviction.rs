//! Pods to evict from a node: which, when, and the status to write first.
//!
//! Upstream: `pkg/controller/tainteviction/taint_eviction.go` and `pkg/controller/podgc/gc_controller.go`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition, Taint, Toleration},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use crate::scheduler::tolerates;

/// The end of a pod's toleration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// It tolerates all taints.
    Forever,
    /// It must be deleted then.
    Until(Timestamp),
}

/// The end of the pod's toleration on a node with these `NoExecute` taints, each with its start time. A pod
/// that came later has its tolerationSeconds from its own start.
pub fn stay(pod: &Pod, taints: &[(&Taint, Timestamp)]) -> Stay {
    let came = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let ends = taints.iter().filter_map(|(taint, since)| {
        let since = came.max(*since);
        match tolerations(pod).find(|toleration| tolerates(toleration, taint)) {
            None => Some(Timestamp::MIN),
            Some(Toleration { toleration_seconds: None, .. }) => None,
            Some(Toleration { toleration_seconds: Some(seconds), .. }) => {
                let seconds = SignedDuration::from_secs((*seconds).max(0));
                Some(since.saturating_add(seconds).unwrap_or(Timestamp::MAX))
            }
        }
    });
    ends.min().map_or(Stay::Forever, Stay::Until)
}

/// Why a pod is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It does not tolerate a taint, or its tolerationSeconds have passed.
    Taint,
    /// Its node's object was deleted.
    NoNode,
    /// Its node is out of service, so nothing of the pod runs.
    OutOfService,
}

/// The DisruptionTarget condition to write before the pod is deleted; `None` if it has it already.
pub fn last_words(pod: &Pod, reason: Reason, now: Timestamp) -> Option<Value> {
    let status = pod.status.as_ref();
    let mut patch = serde_json::Map::new();
    let phase = status.and_then(|status| status.phase.as_deref());
    if reason != Reason::Taint && !matches!(phase, Some("Succeeded" | "Failed")) {
        patch.insert("phase".into(), json!("Failed"));
    }
    let words = match reason {
        Reason::Taint => Some(("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")),
        Reason::NoNode => Some(("DeletionByPodGC", "PodGC: node no longer exists")),
        Reason::OutOfService => None,
    };
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let has_target = conditions.iter().any(|condition| condition.type_ == "DisruptionTarget");
    if let Some((reason, message)) = words.filter(|_| !has_target) {
        let disrupted = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(Time(now)),
            ..PodCondition::default()
        };
        let all: Vec<&PodCondition> = conditions.iter().chain([&disrupted]).collect();
        patch.insert("conditions".into(), json!(all));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn tolerations(pod: &Pod) -> impl Iterator<Item = &Toleration> {
    pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten())
}
