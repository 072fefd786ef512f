//! Binds snapshots to their contents. `plan.rs` decides the next step of a snapshot, `plan_deletion.rs` that of
//! one on its way out; `source.rs` finds what it is made of, `trouble.rs` says what is wrong; `run.rs` writes.

mod meter;
pub(crate) mod plan;
mod plan_deletion;
#[cfg(test)]
mod plan_tests;
mod run;
mod source;
mod trouble;

pub use run::Snapshots;
