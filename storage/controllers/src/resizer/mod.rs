//! The resizer: expands the volumes of one driver, and, in `modify/`, changes their attributes.
//!
//! ```text
//! claim asks for more ──> status ControllerResizeInProgress ──> ControllerExpandVolume ──> volume's capacity
//!     the node has to act:  status NodeResizePending, and the node does the rest
//!     it has not:           claim's capacity, status cleared
//! refused for good: status ControllerResizeInfeasible, until the claim asks for another size
//! ```
//!
//! A driver that expands on the node only is not called here: the node does everything.
//!
//! With the feature gate RecoverVolumeExpansionFailure=false, which manifests of vendors still set, the claim's status has
//! the conditions Resizing and FileSystemResizePending alone: no size and no state of the expansion, and no error. Every
//! failed call is repeated with backoff, with the size that the claim requests by then.
//!
//! Upstream: kubernetes-csi/external-resizer, `pkg/controller/expand_and_recover.go`, and without recovery `resizePVC` in
//! `pkg/controller/controller.go`.

mod decision;
mod meter;
pub(crate) mod modify;
pub(crate) mod plan;
mod run;

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod trigger_tests;

use std::{error::Error, time::Duration};

use claimcheck_csi::{
    Driver,
    v1::{
        NodeGetCapabilitiesRequest, controller_service_capability::rpc::Type as Rpc, node_service_capability,
    },
};
use tonic::Code;
use tracing::warn;

use crate::{
    Options, Resizing,
    context::Context,
    rpc::{Details, DriverInfo, connect, requested},
    shell,
};

/// What the controllers of the resizer have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The delay after an infeasible call. Upstream: `--retry-interval-max`.
    pub slow_retry: Duration,
    /// The delay after the first infeasible modification to a class; see [`modify::plan::first_retry`].
    pub first_modify_retry: Duration,
    pub options: Resizing,
}

/// Runs until the future is dropped. Waits for the driver to respond first, and begins again if a restarted one
/// has other capabilities.
pub async fn run(context: Context, options: Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let backoff = options.calls.backoff;
    let settings = Settings {
        slow_retry: backoff.map_or(plan::SLOW, |backoff| backoff.max),
        first_modify_retry: backoff.map_or(plan::SLOW, modify::plan::first_retry),
        options: options.resizing,
    };
    loop {
        let (driver, info) = connect(&options, "resizer").await?;
        let context = context.clone().signing_as(&format!("external-resizer {}", info.name));
        let expansion = Details::new(|| expands(&driver, &info));
        let resizes = async {
            if *expansion.get().await {
                let resizer =
                    run::Resizer::new(driver.clone(), info.clone(), context.meter.clone(), settings);
                shell::run(resizer, context.clone()).await;
            } else {
                warn!(
                    driver = info.name,
                    "the driver declares EXPAND_VOLUME neither for controller nor node: claims keep their size"
                );
            }
        };
        let modifies = async {
            if info.can(Rpc::ModifyVolume) {
                shell::run(modify::Modifier::new(driver.clone(), info.clone(), settings), context.clone())
                    .await;
            }
        };
        let work = async {
            tokio::join!(resizes, modifies);
            // Without anything to do it stays all the same, as a sidecar has to.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = work => {}
            () = info.outdated(&driver, || expansion.differ()) => {}
        }
    }
}

/// Whether the controller service expands volumes, or the node service at the controller's socket, and so that of every
/// node.
async fn expands(driver: &Driver, info: &DriverInfo) -> bool {
    if info.can(Rpc::ExpandVolume) {
        return true;
    }
    requested("the capabilities of its Node service", async || {
        match driver.node().node_get_capabilities(NodeGetCapabilitiesRequest {}).await {
            Ok(response) => {
                let expand = node_service_capability::rpc::Type::ExpandVolume as i32;
                let capabilities = response.into_inner().capabilities.into_iter();
                Ok(capabilities
                    .filter_map(|capability| capability.r#type)
                    .any(|node_service_capability::Type::Rpc(rpc)| rpc.r#type == expand))
            }
            Err(status) if status.code() == Code::Unimplemented => Ok(false),
            Err(status) => Err(status),
        }
    })
    .await
}
