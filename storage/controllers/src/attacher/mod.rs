//! The attacher: carries out the VolumeAttachments of one driver.
//!
//! ```text
//! new:       finalizers on attachment and volume ──> ControllerPublishVolume ──> status.attached
//! deleting:  ControllerUnpublishVolume ──> finalizer off the attachment
//! volume is deleted, no attachment left: finalizer off the volume
//! every minute:  ListVolumes ──> where the driver's list contradicts an attachment, the call again
//! ```
//!
//! A driver without the capability PUBLISH_UNPUBLISH_VOLUME needs no calls: its attachments are marked as
//! attached as soon as they are seen, without a finalizer.
//!
//! Upstream: kubernetes-csi/external-attacher, `pkg/controller/csi_handler.go` and `trivial_handler.go`.

mod listing;
pub(crate) mod plan;
mod run;

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod run_tests;

use std::error::Error;

use crate::{Options, context::Context, rpc::connect, shell};

/// Runs until the future is dropped. Waits for the driver to respond first, and begins again if a restarted one
/// has other capabilities.
pub async fn run(context: Context, options: Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        let (driver, info) = connect(&options, "attacher").await?;
        let attacher = run::Attacher::new(driver.clone(), info.clone(), options.clone());
        tokio::select! {
            () = shell::run(attacher, context.clone()) => {}
            () = info.outdated(&driver, async || false) => {}
        }
    }
}
