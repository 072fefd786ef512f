//! Wakes pods, remembers the nodes chosen for them, and writes.

use std::sync::{Mutex, PoisonError};

use claimcheck_informer::{
    Change, ClaimBy, EventType, Kind, KindSet, PodBy, UNSCHEDULED, World, is_terminal, key_of,
};
use claimcheck_model::{ObjectKey, SELECTED_NODE};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Binding, Node, ObjectReference, PersistentVolume, Pod},
        storage::v1::CSINode,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::PostParams};
use serde_json::json;

use super::{
    action::{Action, is_reported, unschedulable},
    nodes::is_ready,
    plan::{is_ours, plan},
    reservations::Reservations,
};
use crate::{
    binder::point_volume,
    claims::{claim_ref, ref_key},
    context::{Context, Failure, Verb},
    shell::{Controller, Done, Plan},
};

/// The scheduler. Pods are decided on one at a time, each seeing what was chosen for those before it, and
/// written for concurrently.
#[derive(Default)]
pub struct Scheduler {
    reserved: Mutex<Reservations>,
}

impl Controller for Scheduler {
    type Key = ObjectKey;
    type Action = Action;

    const NAME: &'static str = "scheduler";

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Pod, Kind::Claim, Kind::Volume, Kind::Class, Kind::Node, Kind::CsiNode])
    }

    fn wakes(&self, change: &Change, world: &World) -> Vec<ObjectKey> {
        match change.kind {
            Kind::Pod => wakes_of_pod(change, world),
            Kind::Claim => waiting_for(&change.key, world).collect(),
            Kind::Volume => wakes_of_volume(change, world),
            Kind::Class => waiting_in(&change.key.name, world).collect(),
            Kind::Node if node_matters(change) => without_node(world).collect(),
            Kind::CsiNode if drivers_matter(change) => without_node(world).collect(),
            Kind::Node | Kind::CsiNode | Kind::Attachment | Kind::CsiDriver => Vec::new(),
        }
    }

    fn plan(&self, key: &ObjectKey, world: &World, now: Timestamp) -> Plan<Action> {
        // Only this function changes the reservations, and it cannot leave them half changed.
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let decision = plan(key, world, &reserved, now);
        reserved.set(key, decision.node.as_deref());
        Plan { actions: decision.actions, again: decision.again }
    }

    async fn act(&self, context: &Context, _: &ObjectKey, action: Action) -> Result<Done, Failure> {
        match action {
            Action::SelectNode(claim, node) => {
                context.patch(&*claim, json!({"metadata": {"annotations": {SELECTED_NODE: node}}})).await?;
            }
            Action::PointVolume(volume, claim) => {
                context.patch(&*volume, point_volume(&volume, &claim)).await?
            }
            Action::Bind(pod, node) => bind(context, &pod, &node).await?,
            Action::Report(pod, message) => {
                context.patch_status(&*pod, unschedulable(&pod, &message, Timestamp::now())).await?;
                context.event(&*pod, EventType::Warning, "FailedScheduling", message);
            }
        }
        Ok(Done::Wrote)
    }
}

/// The pod; where one makes room on a node, also those that were told that none has room.
fn wakes_of_pod(change: &Change, world: &World) -> Vec<ObjectKey> {
    let mut keys = vec![change.key.clone()];
    let (old, new) = change.both::<Pod>();
    let held_room = old.is_some_and(|old| !is_ours(old) && !is_terminal(old));
    if held_room && new.is_none_or(|new| is_terminal(new)) {
        let told = |key: &ObjectKey| world.pods.get(key).is_some_and(|pod| is_reported(pod));
        keys.extend(without_node(world).filter(told));
    }
    keys
}

/// The pods of the claim it points (or pointed) to; if it is free, those whose claims could take it.
fn wakes_of_volume(change: &Change, world: &World) -> Vec<ObjectKey> {
    let claims = change.states::<PersistentVolume>().filter_map(|volume| claim_ref(volume)).map(ref_key);
    let pods = claims.flat_map(|claim| waiting_for(&claim, world).collect::<Vec<_>>());
    let (_, new) = change.both::<PersistentVolume>();
    let free = new.filter(|volume| claim_ref(volume).is_none());
    let class = free.and_then(|volume| volume.spec.as_ref()?.storage_class_name.clone());
    let takers = class.into_iter().flat_map(|class| waiting_in(&class, world).collect::<Vec<_>>());
    pods.chain(takers).collect()
}

/// The pods without node that use a claim.
fn waiting_for<'a>(claim: &ObjectKey, world: &'a World) -> impl Iterator<Item = ObjectKey> + use<'a> {
    world.pods.by(PodBy::Claim, &claim.to_string()).filter(|pod| is_ours(pod)).map(|pod| key_of(&**pod))
}

/// The pods without node that use an unbound claim of a class.
fn waiting_in<'a>(class: &str, world: &'a World) -> impl Iterator<Item = ObjectKey> + use<'a> {
    world.claims.by(ClaimBy::Unbound, class).flat_map(|claim| waiting_for(&key_of(&**claim), world))
}

fn without_node(world: &World) -> impl Iterator<Item = ObjectKey> {
    world.pods.by(PodBy::Node, UNSCHEDULED).filter(|pod| is_ours(pod)).map(|pod| key_of(&**pod))
}

/// Whether a change of a node can make it fit. Its status changes all the time.
fn node_matters(change: &Change) -> bool {
    let relevant = |node: &Node| {
        let spec = node.spec.as_ref();
        (
            node.metadata.labels.clone(),
            spec.and_then(|spec| spec.unschedulable),
            spec.and_then(|spec| spec.taints.clone()),
            is_ready(node),
            node.status.as_ref().and_then(|status| status.allocatable.clone()),
        )
    };
    let (old, new) = change.both::<Node>();
    old.map(|node| relevant(node)) != new.map(|node| relevant(node))
}

fn drivers_matter(change: &Change) -> bool {
    let (old, new) = change.both::<CSINode>();
    old.map(|node| &node.spec.drivers) != new.map(|node| &node.spec.drivers)
}

/// Binds the pod. The answer does not show the pod, so the cache assumes what it looks like now.
async fn bind(context: &Context, pod: &Pod, node: &str) -> Result<(), Failure> {
    let key = key_of(pod);
    let binding = Binding {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".into()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    let pods = Api::<Pod>::namespaced(context.client.clone(), &key.namespace);
    let params = PostParams::default();
    // The answer is a Status.
    let answer = pods.create_subresource::<_, serde_json::Value>("binding", &key.name, &params, &binding);
    if let Err(error) = answer.await {
        return context.failed::<Pod>(Verb::Bind, &key, error).await;
    }
    let mut bound = pod.clone();
    bound.spec.get_or_insert_default().node_name = Some(node.to_owned());
    context.informer.assume(bound);
    let message = format!("Successfully assigned {key} to {node}");
    context.event(pod, EventType::Normal, "Scheduled", message);
    Ok(())
}
