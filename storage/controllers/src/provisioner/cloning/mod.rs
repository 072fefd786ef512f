//! Removes the finalizers of the sources of volumes: of claims that are cloned, and of snapshots that are restored.
//! `plan.rs` decides when, `run.rs` writes.
//!
//! Upstream: `pkg/controller/clone_controller.go` and `snapshot_finalizer_controller.go` of external-provisioner, and
//! `removeSnapshotFinalizer` in its `controller.go`.

pub(crate) mod plan;
mod run;

pub use run::Sources;
