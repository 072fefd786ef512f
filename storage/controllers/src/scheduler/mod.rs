//! The scheduler, as far as volumes need one: chooses a node for each pod, with its claims in mind.
//!
//! ```text
//! pod without node ──> claims (volumes.rs) ─> nodes (nodes.rs) ──> plan.rs: selected-node, claimRef, bind
//!                       missing, unbound,      which can run it,     ^
//!                       bound, binding late    and why others not    └── Reservations: chosen, not yet seen
//! ```
//!
//! Claims that bind late are told the node first; the pod is bound to it when they are bound. Upstream:
//! `pkg/scheduler/framework/plugins/volumebinding` and the other filters named where they are mirrored.
//! Pods that no node fits are parked (parked.rs) until something changes that could help them.
//! Not here, since no storage behaviour hangs on them: pod affinity and spreading, preemption.

mod action;
mod late;
mod limits;
mod nodes;
mod parked;
pub(crate) mod plan;
pub(crate) mod reservations;
mod resources;
mod run;
mod volumes;

#[cfg(test)]
mod fit_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod wake_tests;

pub(crate) use nodes::tolerates;
pub use run::Scheduler;
