//! The snapshot controller for groups: binds groups of snapshots to their contents, and creates their members.
//! `triggers.rs` finds what a change concerns; `plan.rs` decides the next step of a group, `plan_deletion.rs` that of one
//! being deleted; `source.rs` finds its claims, `members.rs` has its snapshots; `run.rs` writes.

mod members;
pub(crate) mod plan;
mod plan_deletion;
#[cfg(test)]
mod plan_tests;
mod run;
mod source;
pub(crate) mod triggers;

pub use run::Groups;
