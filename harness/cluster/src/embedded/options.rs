//! The options of an embedded cluster.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use claimcheck_apiserver::Interference;
use k8s_openapi::api::storage::v1::CSIDriver;
use serde_json::json;

use super::control_plane::Api;
use claimcheck_vendor::Plan;

/// The options of an embedded cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of virtual nodes.
    pub nodes: usize,
    /// The driver, its sidecars, and what its manifests add.
    pub vendor: Plan,
    /// The settings of the CSIDriver object that the driver itself does not declare.
    pub policy: DriverPolicy,
    /// `IMAGE=PROGRAM`, with an absolute path: what stands for images in pods.
    pub pod_images: Vec<String>,
    /// How long the driver may take to start, and to be registered.
    pub start_timeout: Duration,
    /// The API server.
    pub api: Api,
    /// An existing directory for the components' logs and the API server's audit log.
    pub logs: PathBuf,
    /// The address of the API server; port 0 selects a free one.
    pub listen: SocketAddr,
    /// The path of the kubeconfig for users (mode 0600).
    pub kubeconfig: PathBuf,
    /// The instrumentation of components.
    pub instrumentation: Instrumentation,
    /// The timeout for a step of a case; that of the kind of cluster if absent.
    pub step_timeout: Option<Duration>,
    /// What seeds defects of components at the embedded API server, if any.
    pub interference: Option<Arc<dyn Interference>>,
}

impl Options {
    /// Whether the driver's CSIDriver object permits CSI inline volumes.
    pub fn permits_inline(&self) -> bool {
        let given = self.vendor.objects.csi_driver.as_ref();
        given.map_or(self.policy.inline, |given| {
            given.spec.volume_lifecycle_modes.iter().flatten().any(|mode| mode == "Ephemeral")
        })
    }
}

/// The instrumentation of components, in addition to recording CSI calls. Each has a small cost, and is opt-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instrumentation {
    /// They serve metrics, proxied by [`Metrics::serve`](claimcheck_telemetry::metrics::Metrics::serve).
    pub metrics: bool,
    /// They report their API writes.
    pub writes: bool,
}

/// The settings of a CSIDriver object that cannot be queried from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverPolicy {
    /// Volumes can be inline in a pod (CSI ephemeral). Then pod information is passed to the driver.
    pub inline: bool,
    /// The kubelet applies the pod's `fsGroup` to the files of a volume.
    pub fs_group: bool,
    /// Free capacity is published and used for scheduling.
    pub capacity: bool,
    /// Volumes are mounted with an SELinux context.
    pub se_linux: bool,
}

impl Default for DriverPolicy {
    fn default() -> Self {
        Self { inline: false, fs_group: true, capacity: false, se_linux: false }
    }
}

impl DriverPolicy {
    /// The object.
    pub(super) fn object(self, name: &str, attach: bool) -> CSIDriver {
        let modes = if self.inline { vec!["Persistent", "Ephemeral"] } else { vec!["Persistent"] };
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "attachRequired": attach,
                "podInfoOnMount": self.inline,
                "fsGroupPolicy": if self.fs_group { "File" } else { "None" },
                "volumeLifecycleModes": modes,
                "storageCapacity": self.capacity,
                "seLinuxMount": self.se_linux,
            },
        }))
        .expect("a CSIDriver")
    }
}
