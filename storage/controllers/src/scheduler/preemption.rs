//! Preemption for claims that one pod at a time may use: a pod of higher priority takes the place of the one that
//! uses the claim.
//!
//! Upstream: `SelectVictimsOnNode` in `pkg/scheduler/framework/plugins/defaultpreemption`, with `RemovePod` of
//! `volumerestrictions`. Simpler in that the resources of the pods to delete do not count as free.

use std::sync::Arc;

use claimcheck_informer::{PodBy, World, is_terminal, key_of, pod_claims};
use k8s_openapi::api::core::v1::{Node, Pod};

use super::{nodes::fits, reservations::Reservations, volumes::PodVolumes};
use crate::claims::{ONCE_POD, is_deleting, wants_mode};

/// The pods that use a claim of this pod which one pod at a time may use, on whatever node
/// (`pkg/scheduler/framework/plugins/volumerestrictions`).
pub fn users<'a>(pod: &Pod, world: &'a World, reserved: &Reservations) -> Vec<&'a Arc<Pod>> {
    let key = key_of(pod);
    let claims = pod_claims(pod).filter_map(|used| world.claims.get(&used.claim));
    let exclusive = claims.filter(|claim| wants_mode(claim, ONCE_POD));
    let pods = exclusive.flat_map(|claim| world.pods.by(PodBy::Claim, &key_of(&**claim).to_string()));
    let users = pods.filter(|other| {
        let has_node = node(other).is_some() || reserved.node(&key_of(&***other)).is_some();
        has_node && key_of(&***other) != key && !is_terminal(other)
    });
    // One that uses several of the claims counts once.
    let mut users: Vec<_> = users.collect();
    users.sort_by_key(|user| key_of(&***user));
    users.dedup_by_key(|user| key_of(&***user));
    users
}

/// The pods to delete, so that the pod can use its claims on their node; none if that does not help, if one of them
/// is not of lower priority, or if they are being deleted already.
pub fn victims<'a>(
    pod: &Pod,
    volumes: &PodVolumes<'_>,
    users: &[&'a Arc<Pod>],
    world: &World,
    reserved: &Reservations,
) -> Vec<&'a Arc<Pod>> {
    let never = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never");
    let Some(name) = users.first().and_then(|user| node(user)) else { return Vec::new() };
    let helps = |node: &Node| fits(pod, volumes, node, world, reserved).is_ok();
    let preemptible =
        |user: &Arc<Pod>| node(user) == Some(name) && priority(user) < priority(pod) && !is_deleting(&**user);
    let all = !never
        && users.iter().all(|user| preemptible(user))
        && world.nodes.named(name).is_some_and(|node| helps(node));
    if all { users.to_vec() } else { Vec::new() }
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}
