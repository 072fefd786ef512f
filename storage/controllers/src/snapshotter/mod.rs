//! The snapshotter: snapshots of claims.
//!
//! ```text
//! VolumeSnapshot, claim, class ──bind──> VolumeSnapshotContent ──cut──> CreateSnapshot
//!        ^                                        │                          │
//!        └────────── bind: status <───────────────┴───── cut: status <───────┘
//! ```
//!
//! Two controllers, as upstream: `bind/` is that of a whole cluster (snapshot-controller), `cut/` that of a
//! driver (csi-snapshotter). A snapshot that is not ready yet is polled. Groups of snapshots are neither created nor
//! deleted, but their members are left to them.
//!
//! Upstream: kubernetes-csi/external-snapshotter, `pkg/common-controller` and `pkg/sidecar-controller`.

pub(crate) mod bind;
pub(crate) mod cut;
mod parameters;

use std::error::Error;

use claimcheck_csi::v1::controller_service_capability::rpc::Type as Rpc;
use tracing::info;

use crate::{
    Naming, Options,
    context::Context,
    rpc::{DriverInfo, connect},
    shell,
};

/// Configuration of the snapshotter.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The driver.
    pub driver: DriverInfo,
    /// `--extra-create-metadata`: pass the names of the snapshot and its content to the driver.
    pub extra_create_metadata: bool,
    /// The names of snapshots in the driver.
    pub names: Naming,
}

/// Runs for a driver until the future is dropped. Waits for the driver to respond first, and begins again if a
/// restarted one has other capabilities; idle for one without snapshot support.
pub async fn run(context: Context, options: Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        let (driver, info) = connect(&options, "snapshotter").await?;
        let snapshots = async {
            if !info.can(Rpc::CreateDeleteSnapshot) {
                info!(driver = info.name, "the driver does not declare CREATE_DELETE_SNAPSHOT");
                std::future::pending::<()>().await;
            }
            let settings = Settings {
                driver: info.clone(),
                extra_create_metadata: options.provisioning.extra_create_metadata,
                names: options.snapshot_names.clone(),
            };
            shell::run(cut::Contents::new(driver.clone(), settings), context.clone()).await;
        };
        tokio::select! {
            () = snapshots => {}
            () = info.outdated(&driver) => {}
        }
    }
}
