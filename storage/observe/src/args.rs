//! The command line of `claimcheck observe`.

use std::{net::SocketAddr, path::PathBuf};

/// Arguments of `claimcheck observe`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The node's name in the API server
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: String,
    /// The mount table of the node's first process (PID 1); a pod with hostPID can read it
    #[arg(long, value_name = "PATH", default_value = "/proc/1/mountinfo")]
    pub mountinfo: PathBuf,
    /// The kubelet's directory, with symbolic links resolved; only mounts below it are reported
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Serve the node's clock (GET /clock) and a health check (GET /healthz) on this address
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
}
