//! What stock components measured themselves during a run: a cross-check of what we measured.

use serde::{Deserialize, Serialize};

/// The metrics of one kind of component, all its instances together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StockMetrics {
    /// Whose.
    pub component: StockComponent,
    /// What it measured, or why that is not known.
    #[serde(flatten)]
    pub state: StockState,
}

/// A component of stock Kubernetes that measures storage operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// What a component measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StockState {
    /// It answered at the beginning and at the end of the run.
    Measured {
        /// How many instances answered.
        answered: usize,
        /// How many there are.
        of: usize,
        /// What was done to volumes of the run's driver.
        operations: Vec<StockOperation>,
        /// How many more volumes the volume managers have than at the beginning; none for a component that has
        /// no volume manager.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volumes_left: Option<i64>,
    },
    /// It did not.
    Absent {
        /// Why not, in a line.
        why: String,
    },
}

/// One kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StockOperation {
    /// Its name, as the component spells it: `volume_attach`, `NodeStageVolume`.
    pub name: String,
    /// How often it was tried.
    pub count: u64,
    /// How many of those failed.
    pub errors: u64,
    /// The mean, seconds; of all tries.
    pub mean: f64,
    /// What 95 of 100 do not exceed, seconds, as far as the component's buckets tell; none if it is more than
    /// the greatest of them.
    pub p95_within: Option<f64>,
}
