//! Decides where a pod shall run.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use claimcheck_informer::{World, is_terminal, key_of};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};

use super::{
    action::{Action, Decision, says},
    nodes::{Choice, Unfit, fits, load},
    reservations::Reservations,
    volumes::{PodVolumes, Wait, pod_volumes},
};
use crate::claims::{is_deleting, name};

/// The scheduler that a pod asks for if it asks for none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// How old a pod must be before it is told of what it waits for: claims are usually bound within moments,
/// and the caches of pods and claims are not of the same moment. Creation times have whole seconds, so in
/// truth this is one to two.
const PATIENCE: Duration = Duration::from_secs(2);

/// What to do for a pod.
pub fn plan(key: &ObjectKey, world: &World, reserved: &Reservations, now: Timestamp) -> Decision {
    let Some(pod) = world.pods.get(key).filter(|pod| is_ours(pod)) else { return Decision::default() };
    match pod_volumes(pod, world) {
        Ok(volumes) => place(pod, &volumes, world, reserved),
        Err(wait) => report_wait(pod, &wait, world, now),
    }
}

/// Whether the pod needs a node, and from us.
pub fn is_ours(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.node_name.as_deref().unwrap_or_default().is_empty()
        && spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER
        && spec.scheduling_gates.as_deref().unwrap_or_default().is_empty()
        && !is_deleting(pod)
        && !is_terminal(pod)
}

/// Tries the nodes: the one chosen before, then those with the fewest pods.
fn place(pod: &Arc<Pod>, volumes: &PodVolumes<'_>, world: &World, reserved: &Reservations) -> Decision {
    let before = reserved.node(&key_of(&**pod));
    let mut nodes: Vec<&Node> = world.nodes.iter().map(|node| &**node).collect();
    nodes.sort_by_cached_key(|node| {
        (before != Some(name(*node)), load(node, world, reserved), name(*node).to_owned())
    });
    let mut reasons = BTreeMap::<Unfit, usize>::new();
    for node in nodes {
        match fits(pod, volumes, node, world, reserved) {
            Ok(choice) => return settle(pod, volumes, node, choice),
            Err(unfit) => *reasons.entry(unfit).or_default() += 1,
        }
    }
    let reasons = reasons.into_iter().map(|(unfit, count)| format!("{count} {unfit}"));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    Decision { actions: report(pod, &reasons, world), ..Decision::default() }
}

/// The node is chosen: the pod gets it once all its claims are bound.
fn settle(pod: &Arc<Pod>, volumes: &PodVolumes<'_>, node: &Node, choice: Choice) -> Decision {
    let node = name(node).to_owned();
    let actions = if volumes.late.is_empty() {
        vec![Action::Bind(pod.clone(), node.clone())]
    } else {
        let take = choice.take.into_iter().map(|(volume, claim)| Action::PointVolume(volume, claim));
        let make = choice.make.into_iter().map(|claim| Action::SelectNode(claim, node.clone()));
        take.chain(make).collect()
    };
    Decision { actions, node: Some(node), again: None }
}

/// The claims are not there yet, or never will be.
fn report_wait(pod: &Arc<Pod>, wait: &Wait, world: &World, now: Timestamp) -> Decision {
    let passes = match wait {
        Wait::NotFound(_) | Wait::NotMade(_) | Wait::Unbound => true,
        Wait::Deleted(_) | Wait::Lost { .. } => false,
    };
    let created = pod.metadata.creation_timestamp.as_ref();
    let age = created.map_or(PATIENCE, |created| {
        // A clock that runs behind the API server's makes the pod new, not old.
        Duration::try_from(now.duration_since(created.0)).unwrap_or(Duration::ZERO)
    });
    if passes && age < PATIENCE {
        return Decision { again: Some(PATIENCE - age), ..Decision::default() };
    }
    Decision { actions: report(pod, &wait.to_string(), world), ..Decision::default() }
}

/// Tells why the pod has no node, unless it says so already.
fn report(pod: &Arc<Pod>, reasons: &str, world: &World) -> Vec<Action> {
    let message = match world.nodes.len() {
        0 => "no nodes available to schedule pods".to_owned(),
        nodes => format!("0/{nodes} nodes are available: {reasons}."),
    };
    if says(pod, &message) { Vec::new() } else { vec![Action::Report(pod.clone(), message)] }
}
