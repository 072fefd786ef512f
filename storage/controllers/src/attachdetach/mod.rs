//! The attach/detach controller: attaches each volume to the nodes with pods that use it, and detaches it from all
//! others.
//!
//! ```text
//!  pods, claims ──desired──┐                              ┌──> VolumeAttachment created, deleted
//!  VolumeAttachments ──────┼──> plan (per volume) ────────┼──> events on pods
//!  node.status ────────────┘         ^                    └──> Lists ──(per node, batched)──> node.status
//!                                    └── Memory: since when a detach waits, which events were emitted
//! ```
//!
//! The protocol with the node (upstream `pkg/controller/volume/attachdetach/reconciler/reconciler.go`) rests
//! on two fields of the Node, each written by one side and read by the other afterwards. The node writes
//! `volumesInUse`, then mounts only if `volumesAttached` has the volume; the controller takes the volume
//! out of `volumesAttached`, then detaches only if `volumesInUse` does not have it. The second writer always
//! sees the first one's write. The response to the controller's write has both fields, so no further read is
//! needed.
//!
//! Start with `plan.rs`; `plan_deleted.rs` plans attachments without a PersistentVolume, `plan_in_tree.rs` volumes without
//! a driver. `run.rs` carries out their plans, `lists.rs` writes the nodes' lists.

mod desired;
mod in_tree;
mod lists;
mod meter;
pub(crate) mod plan;
mod plan_deleted;
pub(crate) mod plan_in_tree;
mod run;
pub(crate) mod triggers;
mod volume;

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod properties;

pub(crate) use plan::is_out_of_service;

use crate::{Options, context::Context, shell};

/// Runs until the future is dropped.
pub(crate) async fn run(
    context: Context,
    _: Options,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    shell::run(run::AttachDetach::new(&context), context).await;
    Ok(())
}
