//! Unmakes released volumes. `plan.rs` decides the next step, `run.rs` takes it.

pub(crate) mod plan;
mod run;

pub use run::Volumes;
