//! The scheduler, reduced to storage: chooses a node for each pod, with regard to its claims.
//!
//! ```text
//! pod without node ──> claims (volumes.rs) ─> nodes (nodes.rs) ──> plan.rs: selected-node, claimRef, bind
//!                       missing, unbound,      which can run it,     ^
//!                       bound, binding late    and why others not    └── Reservations: chosen, not yet seen
//! ```
//!
//! For WaitForFirstConsumer claims the node is selected first; the pod is bound to it when they are bound.
//! Upstream: `pkg/scheduler/framework/plugins/volumebinding` and the other filters named where they are
//! mirrored. Unschedulable pods wait (unschedulable.rs) until a change that may make a node fit. A pod preempts
//! another only for a claim that one pod may use (preemption.rs). Not implemented, since no storage behaviour
//! depends on them: pod affinity and spreading, preemption for resources.

mod action;
mod late_binding;
mod limits;
mod nodes;
pub(crate) mod plan;
mod preemption;
pub(crate) mod reservations;
mod resources;
mod run;
mod score;
mod unschedulable;
mod volumes;
mod zones;

#[cfg(test)]
mod fit_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod trigger_tests;

pub(crate) use nodes::tolerates;
pub use run::Scheduler;
pub use score::CapacityScoring;
