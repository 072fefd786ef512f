//! The snapshot controller: binds snapshots to contents. `plan.rs` decides the next step of a snapshot,
//! `plan_deletion.rs` that of one being deleted; `source.rs` finds its source; `run.rs` writes.

pub(crate) mod plan;
mod plan_deletion;
#[cfg(test)]
mod plan_tests;
mod run;
mod source;

pub use plan::{ContentOptions, Distribution};
pub use run::Snapshots;
