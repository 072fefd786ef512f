//! Deletes released volumes. `plan.rs` decides the next step, `run.rs` executes it.

pub(crate) mod plan;
mod run;

pub use run::Volumes;
