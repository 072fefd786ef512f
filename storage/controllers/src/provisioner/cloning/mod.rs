//! Removes the finalizers of claims that are sources of clones. `plan.rs` decides when, `run.rs` writes.
//!
//! Upstream: `pkg/controller/clone_controller.go` of external-provisioner.

pub(crate) mod plan;
mod run;

pub use run::Sources;
