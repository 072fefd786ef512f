//! Deletes claims owned by deleted pods, and ends the deletion of pods in the foreground, where no garbage collector
//! runs: with a stock API server without its controller manager. Upstream: `pkg/controller/garbagecollector`, which does
//! it for all kinds.

pub(crate) mod plan;
mod run;

pub use run::{ForegroundPods, Garbage};
