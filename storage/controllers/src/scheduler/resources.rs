//! CPU, memory and numbers of pods.
//!
//! Upstream: `pkg/scheduler/framework/plugins/noderesources/fit.go`, and `PodRequests` in
//! `component-helpers/resource/helpers.go`.

use std::{collections::BTreeMap, ops::Add};

use claimcheck_informer::{PodBy, World, is_terminal, key_of, quantity};
use k8s_openapi::{
    api::core::v1::{Container, Node, Pod},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    nodes::{FilterFailure, load},
    plan::is_of_scheduler,
    reservations::Reservations,
};
use crate::claims::name;

/// An amount of a node's resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// CPU in millicores.
    cpu: i64,
    /// Memory in bytes.
    memory: i64,
}

impl Amount {
    fn of(resources: Option<&BTreeMap<String, Quantity>>) -> Self {
        let named = |name: &str| resources.and_then(|resources| resources.get(name));
        Self {
            cpu: named("cpu").and_then(quantity::millis).unwrap_or(0),
            memory: named("memory").and_then(quantity::bytes).unwrap_or(0),
        }
    }

    fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cpu: self.cpu.saturating_add(other.cpu), memory: self.memory.saturating_add(other.memory) }
    }
}

/// Whether the node has enough resources for the pod, in addition to its present and future pods.
///
/// Linear in the number of the node's pods. Pods without requests do not pay the cost.
pub fn fits(pod: &Pod, node: &Node, world: &World, reserved: &Reservations) -> Result<(), FilterFailure> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    // A node without allocatable resources is assumed to have enough.
    let Some(allocatable) = allocatable else { return Ok(()) };
    let key = key_of(pod);
    // Those that were bound since they were given the node count as running.
    let coming = || {
        let others = reserved.pods(name(node)).filter(|other| **other != key);
        others.filter_map(|key| world.pods.get(key)).filter(|pod| is_of_scheduler(pod))
    };
    if let Some(places) = allocatable.get("pods").and_then(quantity::bytes) {
        let reached = |pods: usize| i64::try_from(pods).is_ok_and(|pods| pods >= places);
        // What costs nothing to know is never too low; only if it is too high it pays to look closely.
        if reached(load(node, world, reserved))
            && reached(world.pods.count(PodBy::Node, name(node)) + coming().count())
        {
            return Err(FilterFailure::Full);
        }
    }
    let expected = requests(pod);
    if expected == Amount::default() {
        return Ok(());
    }
    let running = world.pods.by(PodBy::Node, name(node)).filter(|pod| !is_terminal(pod));
    let used = running.chain(coming()).map(|pod| requests(pod)).fold(expected, Amount::add);
    let has = Amount::of(Some(allocatable));
    if expected.cpu > 0 && allocatable.contains_key("cpu") && used.cpu > has.cpu {
        Err(FilterFailure::Cpu)
    } else if expected.memory > 0 && allocatable.contains_key("memory") && used.memory > has.memory {
        Err(FilterFailure::Memory)
    } else {
        Ok(())
    }
}

/// A pod's requests: the sum of its containers, or an init container if that needs more. Init containers that
/// keep running (sidecars) are added to everything that starts after them.
pub fn requests(pod: &Pod) -> Amount {
    let Some(spec) = &pod.spec else { return Amount::default() };
    let of = |container: &Container| {
        Amount::of(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    };
    let (mut sidecars, mut most) = (Amount::default(), Amount::default());
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars + of(container);
            most = most.max(sidecars);
        } else {
            most = most.max(sidecars + of(container));
        }
    }
    let together = spec.containers.iter().map(of).fold(sidecars, Amount::add);
    together.max(most) + Amount::of(spec.overhead.as_ref())
}
