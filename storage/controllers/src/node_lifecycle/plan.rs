//! Plans one node and the pods on it.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::{PodBy, World};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use serde_json::Value;

use super::{
    eviction::{Reason, Stay, last_words, stay},
    health::{Health, Heartbeat, due_taints, unknown_conditions},
};
use crate::{attachdetach::is_out_of_service, claims::is_deleting};

/// How long a node's object must have been deleted before its pods are removed: it may be about to be
/// recreated. Upstream: `quarantineTime` in podgc's `gc_controller.go`.
pub const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// State of a node between plans; lost with the process, after which all timers restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The last heartbeat, and when it was first observed.
    last_heartbeat: Option<(Heartbeat, Timestamp)>,
    /// Since when the object is deleted.
    deleted_since: Option<Timestamp>,
    /// Start times of taints without a `timeAdded`, by key.
    tainted_since: BTreeMap<String, Timestamp>,
}

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Continue only if the lease, read from the API server, shows no newer heartbeat either.
    ConfirmSilence(Heartbeat),
    /// Continue only if the node does not exist in the API server either.
    ConfirmDeleted,
    /// Write the conditions of the unresponsive node, and emit an event.
    SetConditions(Arc<Node>, Vec<NodeCondition>),
    /// Writes the node's taints.
    SetTaints(Arc<Node>, Vec<Taint>),
    /// Write part of the pod's status.
    SetPodStatus(Arc<Pod>, Value),
    /// Delete the pod gracefully; its node completes the deletion.
    Evict(Arc<Pod>),
    /// Delete the pod's object by force, since no node can complete the deletion.
    Remove(Arc<Pod>),
}

/// The result of planning a node.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Actions, in this order.
    pub actions: Vec<Action>,
    /// State for the next plan.
    pub memory: Memory,
    /// When to plan again even if nothing changes.
    pub requeue_at: Option<Timestamp>,
}

impl Plan {
    /// Whether `at` has passed; if not, the plan is repeated then.
    fn has_come(&mut self, at: Timestamp, now: Timestamp) -> bool {
        if now < at {
            self.requeue_at = Some(self.requeue_at.map_or(at, |earlier| earlier.min(at)));
        }
        now >= at
    }

    /// The pod must be deleted.
    fn end(&mut self, pod: &Arc<Pod>, reason: Reason, now: Timestamp) {
        let words = last_words(pod, reason, now);
        self.actions.extend(words.map(|status| Action::SetPodStatus(pod.clone(), status)));
        self.actions.push(match reason {
            Reason::Taint => Action::Evict(pod.clone()),
            Reason::NoNode | Reason::OutOfService => Action::Remove(pod.clone()),
        });
    }
}

/// Plans the node with this name; `grace` is the grace period without a heartbeat.
pub fn plan(name: &str, world: &World, memory: &Memory, grace: SignedDuration, now: Timestamp) -> Plan {
    match world.nodes.named(name) {
        Some(node) => plan_node(name, node, world, memory, grace, now),
        None => plan_deleted(name, world, memory, now),
    }
}

/// The object was deleted, so no kubelet can complete the deletion of its pods.
fn plan_deleted(name: &str, world: &World, memory: &Memory, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let mut pods = world.pods.by(PodBy::Node, name).peekable();
    if pods.peek().is_none() {
        return plan;
    }
    let since = memory.deleted_since.unwrap_or(now);
    plan.memory.deleted_since = Some(since);
    if plan.has_come(after(since, QUARANTINE), now) {
        plan.actions.push(Action::ConfirmDeleted);
        pods.for_each(|pod| plan.end(pod, Reason::NoNode, now));
    }
    plan
}

fn plan_node(
    name: &str,
    node: &Arc<Node>,
    world: &World,
    memory: &Memory,
    grace: SignedDuration,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    let (health, sign) = (Health::of(node), Heartbeat::of(node, world));
    let heartbeat = memory.last_heartbeat.clone().filter(|(last, _)| *last == sign).unwrap_or((sign, now));
    plan.memory.last_heartbeat = Some(heartbeat.clone());
    let (sign, since) = heartbeat;
    if health != Health::Unknown && plan.has_come(after(since, health.patience(grace)), now) {
        let conditions = unknown_conditions(node, now);
        plan.actions = vec![Action::ConfirmSilence(sign), Action::SetConditions(node.clone(), conditions)];
    }
    // One write to the node at a time, since each is on the condition that nothing else changed.
    if plan.actions.is_empty() {
        plan.actions.extend(due_taints(node, now).map(|taints| Action::SetTaints(node.clone(), taints)));
    }
    plan_pods(name, node, world, memory, now, &mut plan);
    plan
}

/// The pods of a tainted node. Those of other nodes cost nothing.
fn plan_pods(name: &str, node: &Node, world: &World, memory: &Memory, now: Timestamp, plan: &mut Plan) {
    let taints: Vec<(&Taint, Timestamp)> = evicting(node)
        .map(|taint| {
            let added = taint.time_added.as_ref().map(|time| time.0);
            let since = added.or_else(|| memory.tainted_since.get(&taint.key).copied()).unwrap_or(now);
            plan.memory.tainted_since.insert(taint.key.clone(), since);
            (taint, since)
        })
        .collect();
    let shut_down = is_out_of_service(node) && Health::of(node) != Health::Ready;
    if taints.is_empty() && !shut_down {
        return;
    }
    for pod in world.pods.by(PodBy::Node, name) {
        if is_deleting(&**pod) {
            if shut_down {
                plan.end(pod, Reason::OutOfService, now);
            }
        } else if let Stay::Until(end) = stay(pod, &taints)
            && plan.has_come(end, now)
        {
            plan.end(pod, Reason::Taint, now);
        }
    }
}

/// The taints that evict pods.
pub fn evicting(node: &Node) -> impl Iterator<Item = &Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute")
}

fn after(since: Timestamp, duration: SignedDuration) -> Timestamp {
    since.saturating_add(duration).unwrap_or(Timestamp::MAX)
}
