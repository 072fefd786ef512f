//! Publishes how much room the driver has, so that the scheduler sends pods where their volumes fit.
//!
//! One CSIStorageCapacity for each class of the driver and each segment that its nodes are in. `plan.rs` decides
//! which there are to be and when the driver is asked; `run.rs` asks it.
//! Upstream: external-provisioner `pkg/capacity/capacity.go` and `pkg/capacity/topology/nodes.go`.

mod plan;
mod run;

#[cfg(test)]
mod plan_tests;

pub use run::Capacities;
