//! `claimcheck registrar`: registers a driver with a real kubelet, like node-driver-registrar.

use std::path::PathBuf;

use anyhow::Result;
use claimcheck_csi::{Driver, Endpoint, tap::Tap};
use claimcheck_node::registrar;
use clap::Args;

use super::{go, termination};

/// Arguments of the registrar, with the names of node-driver-registrar's.
#[derive(Debug, Args)]
pub struct RegistrarArgs {
    /// Path of the CSI driver's socket in this process's mount namespace
    #[arg(long, value_name = "ADDRESS", value_parser = go::socket)]
    csi_address: PathBuf,
    /// Path of the same socket on the host, for the kubelet
    #[arg(long)]
    kubelet_registration_path: String,
    /// The kubelet's directory of plugin registration sockets in this process's mount namespace
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
