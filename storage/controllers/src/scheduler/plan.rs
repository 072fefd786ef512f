//! Decides the node of a pod.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use claimcheck_informer::{World, is_terminal, key_of};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};

use super::{
    action::{Action, Decision, NoNode, Reason, has_condition},
    nodes::{Choice, FilterFailure, fits, load, preference},
    preemption,
    reservations::Reservations,
    score::CapacityScoring,
    unschedulable::equivalence_class,
    volumes::{PodVolumes, Wait, pod_volumes},
};
use crate::claims::{is_deleting, name};

/// The scheduler of pods without a schedulerName.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Minimum age of a pod before its condition names unbound claims: claims are usually bound within moments, and
/// the caches of pods and claims are not consistent with each other. Creation times have whole seconds, so in
/// effect this is one to two.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// When an unschedulable pod is retried without a change: a safety net below the wakes, as upstream
/// (`DefaultPodMaxInUnschedulablePodsDuration` in `pkg/scheduler/backend/queue`).
const RETRY_UNSCHEDULABLE: Duration = Duration::from_secs(300);

/// How long the claims of a pod may take to be bound for the chosen node (`bindTimeoutSeconds` of upstream's
/// `VolumeBindingArgs`).
pub const BIND_TIMEOUT: Duration = Duration::from_secs(600);

/// When a node is chosen again after that time (upstream's `podInitialBackoffSeconds`).
const CHOOSE_AGAIN: Duration = Duration::from_secs(1);

/// The decision for a pod.
pub fn plan(
    key: &ObjectKey,
    world: &World,
    reserved: &Reservations,
    scoring: CapacityScoring,
    now: Timestamp,
) -> Decision {
    let Some(pod) = world.pods.get(key).filter(|pod| is_of_scheduler(pod)) else {
        return Decision::default();
    };
    if let Some(pause) = reserved.pause(key, now) {
        return Decision { requeue_after: Some(pause), ..Decision::default() };
    }
    let volumes = match pod_volumes(pod, world) {
        Ok(volumes) => volumes,
        Err(wait) => return report_wait(pod, &wait, world, now),
    };
    let left = BIND_TIMEOUT.saturating_sub(reserved.held(key, now));
    if volumes.unbound.is_empty() {
        place(pod, &volumes, world, reserved, scoring)
    } else if left.is_zero() {
        give_up_node(pod)
    } else {
        let decision = place(pod, &volumes, world, reserved, scoring);
        Decision { requeue_after: decision.requeue_after.or(Some(left)), ..decision }
    }
}

/// The claims were not bound in time for the chosen node, which another pod may use now. Upstream: `BindPodVolumes`
/// in `pkg/scheduler/framework/plugins/volumebinding/binder.go`.
fn give_up_node(pod: &Arc<Pod>) -> Decision {
    let message = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    let actions = report(pod, Reason::SchedulerError, message.to_owned());
    Decision { actions, requeue_after: Some(CHOOSE_AGAIN), ..Decision::default() }
}

/// Whether the pod needs a node from this scheduler.
pub fn is_of_scheduler(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.node_name.as_deref().unwrap_or_default().is_empty()
        && spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER
        && spec.scheduling_gates.as_deref().unwrap_or_default().is_empty()
        && !is_deleting(pod)
        && !is_terminal(pod)
}

/// Tries the nodes: the one chosen before, then those with the fewest failures to provision the pod's volumes,
/// then those that the pod prefers, then those with the most storage capacity, then those with the fewest pods.
fn place(
    pod: &Arc<Pod>,
    volumes: &PodVolumes<'_>,
    world: &World,
    reserved: &Reservations,
    scoring: CapacityScoring,
) -> Decision {
    let before = reserved.node(&key_of(&**pod));
    let mut nodes: Vec<&Node> = world.nodes.iter().map(|node| &**node).collect();
    nodes.sort_by_cached_key(|node| {
        let failed = reserved.provisioning_failures(&key_of(&**pod), name(*node));
        let liked = Reverse(preference(pod, node));
        let roomy = Reverse(scoring.node_score(&volumes.unbound, node, world));
        let load = load(node, world, reserved);
        (before != Some(name(*node)), failed, liked, roomy, load, name(*node).to_owned())
    });
    let mut reasons = BTreeMap::<FilterFailure, usize>::new();
    let users = preemption::users(pod, world, reserved);
    for node in nodes {
        if !users.is_empty() {
            *reasons.entry(FilterFailure::OncePod).or_default() += 1;
            continue;
        }
        match fits(pod, volumes, node, world, reserved) {
            Ok(choice) => return settle(pod, volumes, node, choice),
            Err(filter_failure) => *reasons.entry(filter_failure).or_default() += 1,
        }
    }
    let cluster_events: BTreeSet<_> =
        reasons.keys().flat_map(|filter_failure| filter_failure.cluster_events()).copied().collect();
    let mut words: Vec<String> =
        reasons.into_iter().map(|(filter_failure, count)| format!("{count} {filter_failure}")).collect();
    words.sort();
    let victims = preemption::victims(pod, volumes, &users, world, reserved).into_iter();
    let preempt = victims.map(|victim| Action::Preempt { victim: victim.clone(), preemptor: pod.clone() });
    Decision {
        actions: report_unfit(pod, &words.join(", "), world).into_iter().chain(preempt).collect(),
        filter_failure: Some(NoNode {
            equivalence_class: equivalence_class(pod, volumes, world),
            cluster_events,
        }),
        requeue_after: Some(RETRY_UNSCHEDULABLE),
        node: None,
    }
}

/// The node is chosen: the pod is bound once all its claims are bound.
fn settle(pod: &Arc<Pod>, volumes: &PodVolumes<'_>, node: &Node, choice: Choice) -> Decision {
    let node = name(node).to_owned();
    let actions = if volumes.unbound.is_empty() {
        vec![Action::Bind(pod.clone(), node.clone())]
    } else {
        let take = choice.take.into_iter().map(|(volume, claim)| Action::PointVolume(volume, claim));
        let make = choice.make.into_iter().map(|new| Action::SelectNode(new.claim, node.clone()));
        take.chain(make).collect()
    };
    Decision { actions, node: Some(node), ..Decision::default() }
}

/// The claims do not exist yet, or never will.
fn report_wait(pod: &Arc<Pod>, wait: &Wait, world: &World, now: Timestamp) -> Decision {
    let passes = match wait {
        Wait::NotFound(_) | Wait::NotMade(_) | Wait::Unbound => true,
        Wait::Deleted(_) | Wait::NotOwned(..) | Wait::Lost { .. } => false,
    };
    let created = pod.metadata.creation_timestamp.as_ref();
    let age = created.map_or(GRACE_PERIOD, |created| {
        // A clock that runs behind the API server's makes the pod new, not old.
        Duration::try_from(now.duration_since(created.0)).unwrap_or(Duration::ZERO)
    });
    if passes && age < GRACE_PERIOD {
        return Decision { requeue_after: Some(GRACE_PERIOD - age), ..Decision::default() };
    }
    Decision { actions: report_unfit(pod, &wait.to_string(), world), ..Decision::default() }
}

/// Writes why no node fits the pod.
fn report_unfit(pod: &Arc<Pod>, reasons: &str, world: &World) -> Vec<Action> {
    let message = match world.nodes.len() {
        0 => "no nodes available to schedule pods".to_owned(),
        nodes => format!("0/{nodes} nodes are available: {reasons}."),
    };
    report(pod, Reason::Unschedulable, message)
}

/// Writes why the pod has no node, unless its condition is up to date already.
fn report(pod: &Arc<Pod>, reason: Reason, message: String) -> Vec<Action> {
    if has_condition(pod, reason, &message) {
        Vec::new()
    } else {
        vec![Action::Report(pod.clone(), reason, message)]
    }
}
