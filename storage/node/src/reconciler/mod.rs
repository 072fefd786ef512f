//! The reconciler: moves one volume from the actual to the desired state.
//!
//! [`plan()`] decides the next step of one volume; [`VolumeManager`] keeps the two states, runs the steps, and
//! plans the same volume again when one ends. No code here iterates over all volumes, so a step costs the same
//! on a node with one volume and with a thousand.

mod allocatable;
mod backoff;
mod count;
mod growth;
mod in_use;
mod limits;
mod manager;
mod meter;
mod plan;
mod references;
mod report;
mod run;
mod size;
mod triggers;
mod work;

pub use backoff::{Backoff, Moment};
pub use growth::{Growth, Part, part};
pub use in_use::InUse;
pub use manager::{Notice, Start, VolumeManager};
pub use plan::{Decision, Facts, Operation, Wait, plan};
