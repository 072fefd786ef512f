//! The phases of volumes on one node, measured on the node itself: stage, publish, start, unpublish and unstage; and the
//! mounts of pods that do not exist.
//!
//! ```text
//! mount table ── Record ───────────────┐
//! pods of the node ── watch, trimmed ──┼─> NodePhases ── PhaseSample ──> Series ──> GET /metrics
//! Node.status.volumesAttached ─ watch ─┤      │
//! PersistentVolume, CSIDriver ── get ──┘ <─ plan: which of them are unknown
//!
//! mount table, pods of the node ───────────> Leftovers ──> mounts without pods ──> GET /unused.json, and their number
//! ```
//!
//! Start and end of each phase are those of [`claimcheck_model::Phase`], as `harness/timeline/src/measure.rs` measures
//! them from a mount table; `tests/timeline.rs` compares both. That crate depends on this one, so its code cannot be
//! used here. A time that was not observed makes a phase unobserved, never shorter or longer; see [`Moment`].
//!
//! Differences from the harness:
//! - A volume counts as attached when the Node's status lists it, as for the kubelet
//!   (`GenerateVerifyControllerAttachedVolumeFunc`, `pkg/volume/util/operationexecutor/operation_generator.go`), not when
//!   its VolumeAttachment does: the attach/detach controller updates the status after that. A VolumeAttachment can be
//!   selected by its name only (`pkg/registry/storage/volumeattachment` adds no field), so a watch by node is a watch of
//!   all of them: with 5,000 nodes, each of the four to five changes of each VolumeAttachment would be sent 5,000 times.
//!   Its name is known only from claim and volume, which would cost two reads and a watch per volume and pod. A watch
//!   of one Node by name is what every kubelet has, and the API server delivers changes to the watches of that name
//!   only (`allWatchers` in `staging/src/k8s.io/apiserver/pkg/storage/cacher/cacher.go`).
//! - A publish that never mounted is not reported, since the name of its volume is not known.
//! - A phase that was over when it was first observed, as for the mounts that a restarted observer finds, is not
//!   reported: a sample would count it once per restart.

mod component;
mod fact;
mod fold;
mod index;
mod leftover;
mod measure;
mod objects;
pub mod plan;
mod run;
mod series;

pub use component::{Args, StartError};
pub use fact::Moment;
pub use fold::{MEMORY_SECONDS, NodePhases};
pub use leftover::{Leftover, Leftovers};
pub use objects::{
    Handle, PodFacts, VolumeFacts, attached_volumes, pod_facts, requires_attach, volume_facts,
};
pub use run::{ApiError, api_client, follow};
pub use series::Series;

#[cfg(test)]
mod tests;
