//! Lets go of claims that others were made from. `plan.rs` decides when, `run.rs` does it.
//!
//! Upstream: `pkg/controller/clone_controller.go` of external-provisioner.

pub(crate) mod plan;
mod run;

pub use run::Sources;
