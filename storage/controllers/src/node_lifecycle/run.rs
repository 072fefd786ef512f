//! Wakes nodes, and carries out the plans.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_informer::{Change, EventType, Kind, KindSet, World};
use claimcheck_model::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use serde_json::json;
use tracing::info;

use super::{
    health::{Heartbeat, LEASE_NAMESPACE},
    plan::{Action, Memory, evicting, plan},
};
use crate::{
    attachdetach::is_out_of_service,
    context::{Context, Failure},
    shell::{ActionOutcome, Controller, Plan},
};

/// The node lifecycle controller.
pub struct NodeLifecycle {
    grace: SignedDuration,
    /// By node.
    memories: Mutex<HashMap<String, Memory>>,
}

impl NodeLifecycle {
    /// With `grace` as the time without a heartbeat after which a node is unreachable.
    pub fn new(grace: Duration) -> Self {
        let grace = SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX);
        Self { grace, memories: Mutex::default() }
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn memories(&self) -> MutexGuard<'_, HashMap<String, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for NodeLifecycle {
    type Key = String;
    type Action = Action;

    const NAME: &'static str = "node life cycle";

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Node, Kind::Lease, Kind::Pod])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<String> {
        match change.kind {
            Kind::Node => vec![change.key.name.clone()],
            Kind::Lease if change.key.namespace == LEASE_NAMESPACE => vec![change.key.name.clone()],
            Kind::Pod => {
                let nodes = change.states::<Pod>().filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
                nodes.filter(|node| drives_pods_away(node, world)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn plan(&self, name: &String, world: &World, now: Timestamp) -> Plan<Action> {
        let mut memories = self.memories();
        let memory = memories.remove(name).unwrap_or_default();
        let planned = plan(name, world, &memory, self.grace, now);
        if planned.memory != Memory::default() {
            memories.insert(name.clone(), planned.memory);
        }
        let requeue_after =
            planned.requeue_at.map(|at| at.duration_since(now).try_into().unwrap_or(Duration::ZERO));
        Plan { actions: planned.actions, requeue_after }
    }

    async fn act(&self, context: &Context, name: &String, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::ConfirmSilence(sign) => {
                context.refresh::<Lease>(&ObjectKey::new(LEASE_NAMESPACE, name)).await?;
                context.refresh::<Node>(&ObjectKey::cluster(name)).await?;
                let world = context.informer.read();
                let silent = world.nodes.named(name).is_some_and(|node| Heartbeat::of(node, &world) == sign);
                return if silent { Ok(ActionOutcome::Unchanged) } else { Err(Failure::Conflict) };
            }
            Action::ConfirmDeleted => {
                context.refresh::<Node>(&ObjectKey::cluster(name)).await?;
                let deleted = context.informer.read().nodes.named(name).is_none();
                return if deleted { Ok(ActionOutcome::Unchanged) } else { Err(Failure::Conflict) };
            }
            Action::SetConditions(node, conditions) => {
                context.patch_status(&*node, json!({ "conditions": conditions })).await?;
                let message = format!("Node {name} status is now: NodeNotReady");
                context.event(&*node, EventType::Normal, "NodeNotReady", message);
            }
            Action::SetTaints(node, taints) => {
                context.patch(&*node, json!({"spec": {"taints": taints}})).await?;
            }
            Action::SetPodStatus(pod, status) => context.patch_status(&*pod, status).await?,
            Action::Evict(pod) => {
                let key = claimcheck_informer::key_of(&*pod);
                let message = format!("Marking for deletion Pod {key}");
                context.event(&*pod, EventType::Normal, "TaintManagerEviction", message);
                context.delete(&*pod).await?;
            }
            Action::Remove(pod) => {
                info!(node = name, pod = pod.metadata.name, "force-deleting a pod of an unavailable node");
                context.delete_now(&*pod).await?;
            }
        }
        Ok(ActionOutcome::Changed)
    }
}

/// Whether a pod on the node is relevant.
fn drives_pods_away(node: &str, world: &World) -> bool {
    let driven = |node: &Node| evicting(node).next().is_some() || is_out_of_service(node);
    !node.is_empty() && world.nodes.named(node).is_none_or(|node| driven(node))
}
