//! The life cycle of nodes: what the cluster makes of one that falls silent, is shut down, or is gone.
//!
//! ```text
//! Lease, Ready ──silent for the grace──> conditions Unknown ──> taints ──tolerated no longer──> pods deleted
//! Node object gone ──quarantine──> its pods removed          out-of-service taint ──> pods removed at once
//! ```
//!
//! Storage needs it: a volume is detached from a dead node only once its pods are gone or the node is known
//! to be unhealthy. Upstream these are four controllers: `pkg/controller/nodelifecycle`, `tainteviction`,
//! `podgc`, and the node's own heartbeats (KEP-589). All of them look at a node and its pods, so here they are
//! one, keyed by node. Left out are zones (slower eviction while many nodes are silent), the taints of
//! pressure conditions, and the Ready condition of the pods on a silent node.
//!
//! Start with `plan.rs`; `health.rs` tells living nodes from silent ones, `eviction.rs` which pods have to go.

mod eviction;
mod health;
pub(crate) mod plan;
mod run;

#[cfg(test)]
mod plan_tests;

pub use run::NodeLifecycle;
