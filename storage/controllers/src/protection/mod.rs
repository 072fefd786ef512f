//! Protection: keeps a claim that is being deleted while pods use it, a volume while it is bound, and a
//! VolumeAttributesClass while a claim or a volume uses it.
//!
//! The API server's admission adds the finalizers at creation; the plans here add missing ones, and remove them
//! once the object is unused; classes get the finalizer from the plan alone. Upstream:
//! `pkg/controller/volume/pvcprotection` and `pvprotection`, `pkg/controller/storage/vacprotection`.
//!
//! Upstream lists the namespace's pods live before it removes a claim's finalizer, so that a pod which its
//! cache has not seen yet still counts. That is a list per deleted claim. Here the cache suffices: a node never
//! starts a pod with a claim that is being deleted, so a pod that is observed too late waits for a deleted claim, as
//! it would have one moment later.

pub(crate) mod plan;
mod run;

pub use run::{AttributesClasses, Claims, Volumes};
