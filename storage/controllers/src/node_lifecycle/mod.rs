//! Node lifecycle: handling of nodes that are unresponsive, shut down, or deleted.
//!
//! ```text
//! Lease, Ready ──no heartbeat within grace──> conditions Unknown ──> taints ──tolerated no longer──> pods deleted
//! Node object gone ──quarantine──> its pods removed          out-of-service taint ──> pods removed at once
//! ```
//!
//! Storage depends on it: a volume is detached from a dead node only once its pods are deleted or the node is
//! known to be unhealthy. Upstream these are four controllers: `pkg/controller/nodelifecycle`, `tainteviction`,
//! `podgc`, and the node's own heartbeats (KEP-589). All of them look at a node and its pods, so here they are
//! one, keyed by node. Left out are zones (slower eviction while many nodes are silent), the taints of
//! pressure conditions, and the Ready condition of the pods on a silent node.
//!
//! Start with `plan.rs`; `health.rs` detects unresponsive nodes, `eviction.rs` decides which pods are deleted.

mod eviction;
mod health;
pub(crate) mod plan;
mod run;

#[cfg(test)]
mod plan_tests;

pub use run::NodeLifecycle;
