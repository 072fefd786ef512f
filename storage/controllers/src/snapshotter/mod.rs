//! The snapshotter: snapshots of claims.
//!
//! ```text
//! VolumeSnapshot, claim, class ──bind──> VolumeSnapshotContent ──cut──> CreateSnapshot
//!        ^                                        │                          │
//!        └────────── bind: status <───────────────┴───── cut: status <───────┘
//! ```
//!
//! Two controllers, as upstream: `bind/` is the one of a whole cluster (snapshot-controller), `cut/` that of a
//! driver (csi-snapshotter). Unlike upstream nothing is looked at from time to time, but for a snapshot that
//! the driver is still making ready.
//!
//! Upstream: kubernetes-csi/external-snapshotter, `pkg/common-controller` and `pkg/sidecar-controller`.

pub(crate) mod bind;
pub(crate) mod cut;
mod parameters;

use std::error::Error;

use claimcheck_csi::v1::controller_service_capability::rpc::Type as Rpc;
use tracing::info;

use crate::{
    Options,
    context::Context,
    rpc::{DriverInfo, connect},
    shell,
};

/// How to make snapshots.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The driver that is spoken to.
    pub driver: DriverInfo,
    /// `--extra-create-metadata`: tell the driver of which object a snapshot is.
    pub extra_create_metadata: bool,
}

/// Works for a driver until the future is dropped. Waits for the driver to answer first; has nothing to do for
/// one that makes no snapshots.
pub async fn run(context: Context, options: Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (driver, info) = connect(&options, "snapshotter").await?;
    if !info.can(Rpc::CreateDeleteSnapshot) {
        info!(driver = info.name, "the driver makes no snapshots");
        std::future::pending::<()>().await;
    }
    let extra_create_metadata = options.provisioning.extra_create_metadata;
    let settings = Settings { driver: info, extra_create_metadata };
    shell::run(cut::Contents::new(driver, settings), context).await;
    Ok(())
}
