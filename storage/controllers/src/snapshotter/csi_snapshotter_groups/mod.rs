//! The snapshotter sidecar for groups: calls the driver to create and delete groups of snapshots. `plan.rs` decides the
//! next step of a content; `run.rs` calls the driver and writes the results; `errors.rs` has the texts of its errors.

mod errors;
pub(crate) mod plan;
#[cfg(test)]
mod plan_tests;
mod run;

pub use run::Contents;
