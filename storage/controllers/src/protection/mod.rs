//! Protection: holds a claim that is being deleted while pods use it, a volume while it is bound, and an attributes
//! class while a claim or a volume has it.
//!
//! The API server's admission adds the finalizers at creation; the plans here add one that is missing
//! nevertheless, and remove it once nobody needs the object; classes get theirs from the plan alone. Upstream:
//! `pkg/controller/volume/pvcprotection` and `pvprotection`, `pkg/controller/storage/vacprotection`.
//!
//! Upstream lists the namespace's pods live before it removes a claim's finalizer, so that a pod which its
//! cache has not seen yet still counts. That is a list per deleted claim. Here the cache must do: a node
//! never starts a pod whose claim is being deleted, so a pod that comes to be known too late waits for a
//! claim that is gone, as it would have one moment later.

pub(crate) mod plan;
mod run;

pub use run::{AttributesClasses, Claims, Volumes};
