//! The snapshotter sidecar: calls the driver to create and delete snapshots, and groups of them. `plan.rs` decides the
//! next step of a content; `driver.rs` has the calls; `run.rs` makes them and writes the results.

mod driver;
pub(crate) mod plan;
#[cfg(test)]
mod plan_tests;
mod run;

pub use run::Contents;
