//! Publishes the driver's available capacity, so that the scheduler places pods where their volumes fit.
//!
//! One CSIStorageCapacity for each class of the driver and each topology segment of its nodes. `plan.rs`
//! decides which objects must exist and when GetCapacity is called; `run.rs` calls it; `segments.rs` keeps the
//! segments. Upstream: external-provisioner `pkg/capacity/capacity.go`, `pkg/capacity/provision.go` and
//! `pkg/capacity/topology/nodes.go`.

pub(crate) mod plan;
mod run;
pub(crate) mod segments;

#[cfg(test)]
mod plan_tests;

pub use run::Capacities;
