//! The canary: life cycles of separate volumes, one per storage class and interval, so that a cluster without new volumes
//! has samples, too.
//!
//! ```text
//! World, Members (objects with the canary's label) ──plan──> actions ──run──> API server
//! ```
//!
//! A run is a claim, a pod that writes data and reads it back, a snapshot where the driver has a class of snapshots,
//! and the removal of all. Its objects have its name, and its class, topology segment and deadline as annotations: so a
//! new leader continues it, or deletes what is older than its deadline.

mod members;
mod objects;
mod plan;
mod run;
#[cfg(test)]
mod tests;
mod topology;

use claimcheck_informer::quantity;
use jiff::SignedDuration;

use crate::class_duration::ClassDuration;

pub(crate) use members::Members;
pub(crate) use run::{clean_up, run};
pub use topology::CanaryTopology;

/// The label of the canary's objects; its value is the name of their run. The names of its annotations start alike.
pub(crate) const LABEL: &str = "claimcheck.dev/canary";
/// The label of nodes with their zone. Upstream: `LabelTopologyZone` in `k8s.io/api/core/v1/well_known_labels.go`.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// Configuration of the canary.
#[derive(Clone, Debug)]
pub struct CanaryOptions {
    /// The storage classes, each with the time between the starts of two runs.
    pub classes: Vec<ClassDuration>,
    /// The segments in which runs take place in turn; none for any node.
    pub topology: Option<CanaryTopology>,
    /// The most runs at the same time.
    pub limit: usize,
    /// The requested size of a claim, as a quantity: `1Gi`.
    pub size: String,
    /// The namespace of its objects.
    pub namespace: String,
    /// The image of its pods, with `sh` and the tools of busybox.
    pub image: String,
    /// The time after which a run has failed, and its objects are deleted.
    pub deadline: SignedDuration,
}

/// Whether a text is a size that claims can request: a quantity above 0.
pub fn is_size(text: &str) -> bool {
    quantity::parse(text).is_some_and(|bytes| bytes > 0)
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunResult {
    /// Everything was created, used and removed before the deadline.
    Ok,
    /// Something was not.
    Failed,
    /// It did not start, since the objects of earlier runs cannot be deleted.
    Blocked,
}

impl RunResult {
    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
        }
    }
}
