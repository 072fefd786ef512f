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
    /// Measure stage, publish, start, unpublish and unstage of the node's volumes and serve them (GET /metrics) on this
    /// address. Watches the node's pods and the Node, and reads PersistentVolumes and CSIDrivers
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// The namespace of the monitor's canary: phases of claims there have source="canary"
    #[arg(long, value_name = "NAME", default_value = "claimcheck-canary", requires = "metrics")]
    pub canary_namespace: String,
    /// Path of the kubeconfig for --metrics [default: KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub kubeconfig: Option<PathBuf>,
}
