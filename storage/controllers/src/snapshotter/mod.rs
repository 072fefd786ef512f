//! The snapshotter: snapshots of claims.
//!
//! ```text
//! VolumeSnapshot, claim, class ──bind──> VolumeSnapshotContent ──cut──> CreateSnapshot
//!        ^                                        │                          │
//!        └────────── bind: status <───────────────┴───── cut: status <───────┘
//! ```
//!
//! Two controllers, as upstream: `bind/` is that of a whole cluster (snapshot-controller), `cut/` that of a
//! driver (csi-snapshotter). Unlike upstream there is no periodic resync, except for a snapshot that is not
//! ready yet.
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

/// Configuration of the snapshotter.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The driver.
    pub driver: DriverInfo,
    /// `--extra-create-metadata`: pass the names of the snapshot and its content to the driver.
    pub extra_create_metadata: bool,
}

/// Runs for a driver until the future is dropped. Waits for the driver to respond first; idle for one without
/// snapshot support.
pub async fn run(context: Context, options: Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (driver, info) = connect(&options, "snapshotter").await?;
    if !info.can(Rpc::CreateDeleteSnapshot) {
        info!(driver = info.name, "the driver does not declare CREATE_DELETE_SNAPSHOT");
        std::future::pending::<()>().await;
    }
    let extra_create_metadata = options.provisioning.extra_create_metadata;
    let settings = Settings { driver: info, extra_create_metadata };
    shell::run(cut::Contents::new(driver, settings), context).await;
    Ok(())
}
