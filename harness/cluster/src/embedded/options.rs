//! What an embedded cluster is to be like.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use k8s_openapi::api::storage::v1::CSIDriver;
use serde_json::json;

use crate::{control_plane::Api, driver_command::DriverCommand};

/// How to bring up an embedded cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many virtual nodes.
    pub nodes: usize,
    /// Which driver.
    pub driver: DriverCommand,
    /// The driver's controller, where that is a process of its own.
    pub controller: Option<DriverCommand>,
    /// The parameters of the driver's classes.
    pub class_parameters: BTreeMap<String, String>,
    /// What its CSIDriver object says beside what the driver itself declares.
    pub policy: DriverPolicy,
    /// Which API server.
    pub api: Api,
    /// An existing directory for the components' logs and the API server's audit log.
    pub logs: PathBuf,
    /// Where the API server listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where people find the kubeconfig (mode 0600).
    pub kubeconfig: PathBuf,
    /// What components tell of themselves.
    pub telling: Telling,
}

/// What components tell beside their calls to drivers. Each costs a little, and is for who asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Telling {
    /// They serve metrics, for [`Metrics::serve`](claimcheck_report::metrics::Metrics::serve) to hand on.
    pub metrics: bool,
    /// They tell what they write to the API.
    pub writes: bool,
}

/// What a CSIDriver object says that no call to the driver tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverPolicy {
    /// Volumes can be part of a pod. The driver is then told of the pod, which is how it learns of the volume.
    pub inline: bool,
    /// Files of a volume are given the group of the pod.
    pub fs_group: bool,
    /// Free capacity is published and looked at when pods are scheduled.
    pub capacity: bool,
    /// Volumes are mounted with a SELinux context.
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
