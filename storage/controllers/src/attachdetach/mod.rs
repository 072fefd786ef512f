//! The attach/detach controller: sees to it that a volume is attached to the nodes whose pods use it, and
//! to no other.
//!
//! ```text
//!  pods, claims ──desired──┐                              ┌──> VolumeAttachment created, deleted
//!  VolumeAttachments ──────┼──> plan (per volume) ────────┼──> events on pods
//!  node.status ────────────┘         ^                    └──> Lists ──(per node, batched)──> node.status
//!                                    └── Memory: since when a detach waits, who was told what
//! ```
//!
//! The protocol with the node (upstream `pkg/controller/volume/attachdetach/reconciler/reconciler.go`) rests
//! on two fields of the Node, each written by one side and read by the other afterwards. The node writes
//! `volumesInUse`, then mounts only if `volumesAttached` has the volume; the controller takes the volume
//! out of `volumesAttached`, then detaches only if `volumesInUse` does not have it. Whoever comes second
//! sees the other. The answer to the controller's write shows both fields, so no further read is needed.
//!
//! Start with `plan.rs`; `run.rs` carries its plans out, `lists.rs` writes the nodes' lists.

mod desired;
mod lists;
mod meter;
pub(crate) mod plan;
mod run;
mod volume;
mod wake;

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod properties;

pub(crate) use plan::is_out_of_service;

use crate::{Options, context::Context, shell};

/// Works until the future is dropped.
pub(crate) async fn run(
    context: Context,
    _: Options,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    shell::run(run::AttachDetach::new(&context), context).await;
    Ok(())
}
