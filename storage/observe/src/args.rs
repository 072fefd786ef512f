//! The command line of `claimcheck observe`.

use std::{net::SocketAddr, path::PathBuf};

/// What `claimcheck observe` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The name of the node, as the API server knows it
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: String,
    /// The mount table of the node: that of its first process, which a pod with hostPID sees
    #[arg(long, value_name = "PATH", default_value = "/proc/1/mountinfo")]
    pub mountinfo: PathBuf,
    /// The kubelet's directory, with its symbolic links resolved: only mounts below it are told
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Answer here what time it is on the node (GET /clock), and that all is well (GET /healthz)
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
}
