//! Wakes pods, remembers the nodes chosen for them, and writes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use claimcheck_informer::{Change, ClaimBy, EventType, Kind, KindSet, PodBy, World, is_terminal, key_of};
use claimcheck_model::{ObjectKey, SELECTED_NODE};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Binding, Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::CSINode,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::PostParams};
use serde_json::json;

use super::{
    action::{Action, NoNode, preempted, unscheduled},
    nodes::is_ready,
    plan::{is_of_scheduler, plan},
    reservations::Reservations,
    score::CapacityScoring,
    unschedulable::{ClusterEvent, UnschedulablePods},
};
use crate::{
    binder::point_volume,
    claims::{claim_ref, ref_key, selected_node, volume_name, volume_phase},
    context::{Context, Failure, Verb},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// The scheduler. Pods are decided on one at a time, each seeing the choices for those before it, and written
/// concurrently.
#[derive(Default)]
pub struct Scheduler {
    scoring: CapacityScoring,
    state: Mutex<State>,
}

/// State in addition to the cluster's objects. Lost with the process: then every pod is tried again.
#[derive(Default)]
struct State {
    reserved: Reservations,
    unschedulable: UnschedulablePods,
}

impl Controller for Scheduler {
    type Key = ObjectKey;
    type Action = Action;

    const NAME: &'static str = "scheduler";

    fn about(key: &ObjectKey) -> About<'_> {
        About::Pod(key)
    }

    fn kinds() -> KindSet {
        KindSet::of(&[
            Kind::Pod,
            Kind::Claim,
            Kind::Volume,
            Kind::Class,
            Kind::Node,
            Kind::Attachment,
            Kind::CsiNode,
            Kind::CsiDriver,
            Kind::Capacity,
        ])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<ObjectKey> {
        let mut state = self.state();
        let mut keys: Vec<ObjectKey> = match change.kind {
            Kind::Pod => vec![change.key.clone()],
            Kind::Claim => waiting_for(&change.key, world).collect(),
            Kind::Volume => waiting_for_volume(change, world),
            Kind::Class => waiting_in(&change.key.name, world).collect(),
            Kind::Node
            | Kind::Attachment
            | Kind::CsiNode
            | Kind::CsiDriver
            | Kind::Capacity
            | Kind::Lease
            | Kind::ReferenceGrant
            | Kind::Populator
            | Kind::Snapshot
            | Kind::SnapshotContent
            | Kind::SnapshotClass
            | Kind::GroupSnapshot
            | Kind::GroupSnapshotContent
            | Kind::GroupSnapshotClass
            | Kind::AttributesClass => Vec::new(),
        };
        let mut cluster_event = cluster_event(change);
        let now = change.both::<Pod>().1;
        if change.kind == Kind::Pod && !now.is_some_and(|pod| is_of_scheduler(pod)) {
            keys.extend(state.unschedulable.leave(&change.key));
            // It has the node now, or it gave its place there up.
            let bound = now.and_then(|pod| pod.spec.as_ref()?.node_name.as_deref()).is_some();
            if state.reserved.node(&change.key).is_some() && !bound {
                cluster_event = Some(ClusterEvent::PodDeleted);
            }
            state.reserved.forget(&change.key);
        }
        if let Some(node) = given_up(change) {
            for pod in &keys {
                state.reserved.set_back(pod, &node, Timestamp::now());
            }
            cluster_event = Some(ClusterEvent::PodDeleted);
        }
        let successors: Vec<_> = keys.iter().filter_map(|key| state.unschedulable.next_after(key)).collect();
        keys.extend(successors);
        keys.extend(
            cluster_event.into_iter().flat_map(|cluster_event| state.unschedulable.helped_by(cluster_event)),
        );
        keys
    }

    fn plan(&self, key: &ObjectKey, world: &World, now: Timestamp) -> Plan<Action> {
        let mut state = self.state();
        let decision = plan(key, world, &state.reserved, self.scoring, now);
        match &decision.node {
            Some(node) => state.reserved.set(key, node, now),
            None => state.reserved.release(key),
        }
        match decision.filter_failure {
            Some(NoNode { equivalence_class, cluster_events }) => {
                state.unschedulable.add(key, equivalence_class, cluster_events)
            }
            None if decision.node.is_some() => state.unschedulable.place(key),
            None => {}
        }
        Plan { actions: decision.actions, requeue_after: decision.requeue_after }
    }

    async fn act(&self, context: &Context, _: &ObjectKey, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::SelectNode(claim, node) => {
                context.patch(&*claim, json!({"metadata": {"annotations": {SELECTED_NODE: node}}})).await?;
            }
            Action::PointVolume(volume, claim) => {
                context.patch(&*volume, point_volume(&volume, &claim)).await?
            }
            Action::Bind(pod, node) => bind(context, &pod, &node).await?,
            Action::Report(pod, reason, message) => {
                // Before the write, as upstream: if its response is lost, the condition is there, and no event follows.
                context.event(&*pod, EventType::Warning, "FailedScheduling", message.clone());
                context.patch_status(&*pod, unscheduled(&pod, reason, &message, Timestamp::now())).await?;
            }
            Action::Preempt { victim, preemptor } => {
                context.patch_status(&*victim, preempted(&victim, Timestamp::now())).await?;
                context.delete(&*victim).await?;
                let uid = preemptor.metadata.uid.as_deref().unwrap_or_default();
                let node = victim.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
                let node = node.unwrap_or_default();
                let message = format!("Preempted by pod {uid} on node {node}");
                context.event(&*victim, EventType::Normal, "Preempted", message);
            }
        }
        Ok(ActionOutcome::Changed)
    }
}

impl Scheduler {
    pub fn new(scoring: CapacityScoring) -> Self {
        Self { scoring, ..Self::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Its methods cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way in which the change can make a node fit a pod that none fitted before.
fn cluster_event(change: &Change) -> Option<ClusterEvent> {
    match change.kind {
        Kind::Pod => makes_room(change).then_some(ClusterEvent::PodDeleted),
        Kind::Volume => becomes_free(change).then_some(ClusterEvent::FreeVolume),
        // What a class allows is a matter of where its volumes can be.
        Kind::Class => Some(ClusterEvent::FreeVolume),
        Kind::Node => node_matters(change).then_some(ClusterEvent::Node),
        Kind::Attachment => change.new.is_none().then_some(ClusterEvent::Detached),
        Kind::CsiNode => drivers_matter(change).then_some(ClusterEvent::Driver),
        Kind::CsiDriver => Some(ClusterEvent::Driver),
        Kind::Capacity => change.new.is_some().then_some(ClusterEvent::Capacity),
        Kind::Claim
        | Kind::Lease
        | Kind::ReferenceGrant
        | Kind::Populator
        | Kind::Snapshot
        | Kind::SnapshotContent
        | Kind::SnapshotClass
        | Kind::GroupSnapshot
        | Kind::GroupSnapshotContent
        | Kind::GroupSnapshotClass
        | Kind::AttributesClass => None,
    }
}

/// The node that was selected for a claim, if the provisioner cleared it.
fn given_up(change: &Change) -> Option<String> {
    let (old, new) = change.both::<PersistentVolumeClaim>();
    let (old, new) = (old?, new?);
    let unmade = selected_node(new).is_none() && volume_name(new).is_none();
    if unmade { selected_node(old).map(str::to_owned) } else { None }
}

/// Whether a pod with a node was deleted or has ended.
fn makes_room(change: &Change) -> bool {
    let (old, new) = change.both::<Pod>();
    let held_room = old.is_some_and(|old| !is_of_scheduler(old) && !is_terminal(old));
    held_room && new.is_none_or(|new| is_terminal(new))
}

fn becomes_free(change: &Change) -> bool {
    let free = |volume: Option<&std::sync::Arc<PersistentVolume>>| {
        volume.is_some_and(|volume| claim_ref(volume).is_none() && volume_phase(volume) == "Available")
    };
    let (old, new) = change.both::<PersistentVolume>();
    free(new) && !free(old)
}

/// The pods of the claim that the volume points (or pointed) to.
fn waiting_for_volume(change: &Change, world: &World) -> Vec<ObjectKey> {
    let claims = change.states::<PersistentVolume>().filter_map(|volume| claim_ref(volume)).map(ref_key);
    claims.flat_map(|claim| waiting_for(&claim, world).collect::<Vec<_>>()).collect()
}

/// The pods without node that use a claim.
fn waiting_for<'a>(claim: &ObjectKey, world: &'a World) -> impl Iterator<Item = ObjectKey> + use<'a> {
    world
        .pods
        .by(PodBy::Claim, &claim.to_string())
        .filter(|pod| is_of_scheduler(pod))
        .map(|pod| key_of(&**pod))
}

/// The pods without node that use an unbound claim of a class.
fn waiting_in<'a>(class: &str, world: &'a World) -> impl Iterator<Item = ObjectKey> + use<'a> {
    world.claims.by(ClaimBy::Unbound, class).flat_map(|claim| waiting_for(&key_of(&**claim), world))
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

/// Binds the pod. The response does not contain the pod, so the cache assumes its new state.
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
