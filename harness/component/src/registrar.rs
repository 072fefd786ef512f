//! `claimcheck registrar`: what a node-driver-registrar does beside a driver, for a real kubelet.

use std::path::PathBuf;

use anyhow::Result;
use claimcheck_csi::{Driver, Endpoint, tap::Tap};
use claimcheck_node::registrar;
use clap::Args;

use super::termination;

/// Arguments of the registrar, named as those of node-driver-registrar.
#[derive(Debug, Args)]
pub struct RegistrarArgs {
    /// Path of the CSI driver's socket, as this process sees it
    #[arg(long)]
    csi_address: PathBuf,
    /// Path of the same socket as the kubelet sees it
    #[arg(long)]
    kubelet_registration_path: String,
    /// The kubelet's directory of registration sockets, as this process sees it
    #[arg(long, default_value = "/registration")]
    plugin_registration_path: PathBuf,
}

impl RegistrarArgs {
    pub(super) async fn run(self) -> Result<()> {
        let ended = termination()?.cancelled_owned();
        let driver = Driver::new(Endpoint::Unix(self.csi_address), Tap::none(), "registrar");
        let (registry, endpoint) = (&self.plugin_registration_path, &self.kubelet_registration_path);
        Ok(registrar::run(&driver, registry, endpoint, ended).await?)
    }
}
