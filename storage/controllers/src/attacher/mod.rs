//! The attacher: carries out the VolumeAttachments of one driver.
//!
//! ```text
//! new:       finalizers on attachment and volume ──> ControllerPublishVolume ──> status.attached
//! deleting:  ControllerUnpublishVolume ──> finalizer off the attachment
//! volume is deleted, no attachment left: finalizer off the volume
//! ```
//!
//! A driver without the capability PUBLISH_UNPUBLISH_VOLUME needs no calls: its attachments are marked as
//! attached as soon as they are seen, without a finalizer.
//!
//! Upstream: kubernetes-csi/external-attacher, `pkg/controller/csi_handler.go` and `trivial_handler.go`.

pub(crate) mod plan;
mod run;

#[cfg(test)]
mod plan_tests;

use std::error::Error;

use crate::{Options, context::Context, rpc::connect, shell};

/// Runs until the future is dropped. Waits for the driver to respond first.
pub async fn run(context: Context, options: Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (driver, info) = connect(&options, "attacher").await?;
    shell::run(run::Attacher::new(driver, info), context).await;
    Ok(())
}
