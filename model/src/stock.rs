//! Metrics that upstream components recorded during a run: a cross-check of claimcheck's measurements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The metrics of one kind of component, summed over its instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StockMetrics {
    /// The component.
    pub component: StockComponent,
    /// Its metrics, or why they are not known.
    #[serde(flatten)]
    pub state: StockState,
}

/// A component of upstream Kubernetes that records storage operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StockComponent {
    /// One on each node: mounts.
    Kubelet,
    /// Attaches.
    KubeControllerManager,
}

impl StockComponent {
    /// The component's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::KubeControllerManager => "kube-controller-manager",
        }
    }
}

/// The metrics of a component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StockState {
    /// It was scraped at the start and at the end of the run.
    Measured {
        /// The number of instances that were scraped.
        answered: usize,
        /// The number of instances.
        of: usize,
        /// The operations on volumes of the tested driver.
        operations: Vec<StockOperation>,
        /// The change in the number of volumes in the volume managers; none for a component without
        /// a volume manager.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volumes_left: Option<i64>,
    },
    /// It was not scraped.
    Absent {
        /// The reason, in one line.
        #[serde(alias = "why")]
        reason: String,
    },
}

/// One kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StockOperation {
    /// Its name, as the component spells it: `volume_attach`, `NodeStageVolume`.
    pub name: String,
    /// The number of attempts.
    pub count: u64,
    /// The number of failed attempts.
    pub errors: u64,
    /// The mean of all attempts, seconds.
    pub mean: f64,
    /// The 95th percentile, seconds, as an upper bound from the component's buckets; none if it is above
    /// the greatest of them.
    pub p95_within: Option<f64>,
}
