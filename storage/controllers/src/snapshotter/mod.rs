//! The snapshotter: snapshots of claims, and of groups of claims.
//!
//! ```text
//! VolumeSnapshot, claim, class ──snapshot_controller──> VolumeSnapshotContent ──csi_snapshotter──> CreateSnapshot
//!        ^                                                      │                                       │
//!        └──────────── snapshot_controller: status <────────────┴──────── csi_snapshotter: status <─────┘
//! ```
//!
//! Two controllers, as upstream: `snapshot_controller/` is that of a whole cluster, `csi_snapshotter/` that of a
//! driver, for groups, too: what differs between their contents is in `content_of_snapshot.rs` and `content_of_group.rs`.
//! A snapshot that is not ready yet is polled. `snapshot_controller_groups/` is the controller of a cluster for groups:
//! the driver creates and deletes all snapshots of a group in one call, and it creates a VolumeSnapshot and its content
//! for each. What binds a snapshot or a group to its content is the same: `plan_binding.rs` decides it for both, over the
//! facts in `object.rs`, `bind.rs` writes it, and `trouble.rs` has the errors.
//!
//! Upstream: kubernetes-csi/external-snapshotter, `pkg/common-controller` and `pkg/sidecar-controller`.

mod bind;
mod claim;
mod content;
mod content_of_group;
mod content_of_snapshot;
mod creation_time;
pub(crate) mod csi_snapshotter;
mod finalizers;
mod meter;
mod object;
mod parameters;
mod plan_binding;
mod requests;
mod responses;
pub(crate) mod snapshot_controller;
pub(crate) mod snapshot_controller_groups;
mod status_error;
mod trouble;

use std::error::Error;

use claimcheck_csi::{
    Driver,
    v1::{
        GroupControllerGetCapabilitiesRequest,
        controller_service_capability::rpc::Type as Rpc,
        group_controller_service_capability::{self, rpc::Type as GroupRpc},
        plugin_capability::service::Type as Service,
    },
};
use claimcheck_model::{group_snapshot::VolumeGroupSnapshotContent, snapshot::VolumeSnapshotContent};
use csi_snapshotter::Contents;
use tonic::Code;
use tracing::info;

use crate::{
    Naming, Options,
    context::Context,
    rpc::{Details, DriverInfo, connect, requested},
    shell,
};

/// Configuration of the snapshotter.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The driver.
    pub driver: DriverInfo,
    /// `--extra-create-metadata`: pass the names of the snapshot and its content to the driver.
    pub extra_create_metadata: bool,
    /// The names of snapshots, or of groups of snapshots, in the driver.
    pub names: Naming,
    /// The node, with `--node-deployment`: only contents with its label are handled, also of groups.
    pub node: Option<String>,
}

/// Runs for a driver until the future is dropped. Waits for the driver to respond first, and begins again if a
/// restarted one has other capabilities; idle for one without support of snapshots and groups.
pub async fn run(context: Context, options: Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        let (driver, info) = connect(&options, "snapshotter").await?;
        let context = context.clone().signing_as(&format!("csi-snapshotter {}", info.name));
        let settings = |names: &Naming| Settings {
            driver: info.clone(),
            extra_create_metadata: options.provisioning.extra_create_metadata,
            names: names.clone(),
            node: options.node_deployment.as_ref().map(|deployment| deployment.node.clone()),
        };
        let snapshots = async {
            if !info.can(Rpc::CreateDeleteSnapshot) {
                info!(driver = info.name, "the driver does not declare CREATE_DELETE_SNAPSHOT");
                std::future::pending::<()>().await;
            }
            let settings = settings(&options.snapshot_names);
            let contents = Contents::<VolumeSnapshotContent>::new(driver.clone(), settings);
            shell::run(contents, context.clone()).await;
        };
        let grouping = Details::new(|| creates_groups(&driver, &info));
        // Apart from the rest: a driver that does not respond to this request can still be used for snapshots.
        let groups = async {
            if !*grouping.get().await {
                info!(
                    driver = info.name,
                    "the driver does not declare CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"
                );
                std::future::pending::<()>().await;
            }
            let settings = settings(&options.group_snapshot_names);
            let contents = Contents::<VolumeGroupSnapshotContent>::new(driver.clone(), settings);
            shell::run(contents, context.clone()).await;
        };
        tokio::select! {
            () = snapshots => {}
            () = groups => {}
            () = info.outdated(&driver, || grouping.differ()) => {}
        }
    }
}

/// Whether the driver creates groups of snapshots.
async fn creates_groups(driver: &Driver, info: &DriverInfo) -> bool {
    if !info.serves(Service::GroupControllerService) {
        return false;
    }
    requested("the capabilities of its GroupController service", async || {
        let request = GroupControllerGetCapabilitiesRequest {};
        match driver.group_controller().group_controller_get_capabilities(request).await {
            Ok(response) => {
                let declared = response.into_inner().capabilities.into_iter();
                Ok(declared.filter_map(|one| one.r#type).any(|one| match one {
                    group_controller_service_capability::Type::Rpc(rpc) => {
                        rpc.r#type() == GroupRpc::CreateDeleteGetVolumeGroupSnapshot
                    }
                }))
            }
            Err(status) if status.code() == Code::Unimplemented => Ok(false),
            Err(status) => Err(status),
        }
    })
    .await
}
