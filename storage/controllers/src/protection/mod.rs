//! Protection: keeps a claim that is being deleted while pods use it, a volume while it is bound, and a
//! VolumeAttributesClass while a claim or a volume uses it.
//!
//! The API server's admission adds the finalizers at creation; the plans here add missing ones, and remove them
//! once the object is unused; classes get the finalizer from the plan alone. Upstream:
//! `pkg/controller/volume/pvcprotection` and `pvprotection`, `pkg/controller/storage/vacprotection`.
//!
//! The finalizer of a claim is removed only after a live list of its namespace's pods (`live.rs`), as upstream does:
//! the watches of pods and claims are not ordered, so a pod that was started before the claim was deleted may be
//! missing in the cache.
//!
//! Behind upstream's feature gate PersistentVolumeClaimUnusedSinceTime, which is off by default, the condition `Unused`
//! of claims shows since when no pod refers to them (`plan_unused.rs`); its value `True` takes a live list, too.

mod live;
pub(crate) mod plan;
mod plan_unused;
mod run;

pub use run::{AttributesClasses, Claims, Volumes};
