//! The events of a load: its plan, the progress of its volumes, and its resource usage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Stamp;

/// An event of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "load", rename_all = "snake_case")]
pub enum LoadEvent {
    /// It starts; everything in the load's summary is measured from here.
    #[serde(alias = "began")]
    Started(LoadPlan),
    /// Some volumes reached the next step.
    Volumes {
        /// The step.
        reached: VolumeStep,
        /// The number of volumes.
        volumes: u64,
        /// The time since their claims were created.
        seconds: f64,
    },
    /// Some volumes failed. They are removed nevertheless.
    Failed {
        /// The claims, by namespace and name.
        claims: Vec<String>,
        /// The error.
        #[serde(alias = "why")]
        reason: String,
    },
    /// A sample of the resource usage: taken at the start, periodically, and at the end.
    Usage {
        /// The time since the load started.
        seconds: f64,
        /// The usage.
        usage: Usage,
    },
    /// A block starts: another load pauses until all volumes of the block are deleted or have failed.
    Block {
        /// When.
        start: Stamp,
    },
    /// All volumes are deleted or have failed.
    #[serde(alias = "ended")]
    Finished {
        /// The time since the load started, without pauses between blocks.
        seconds: f64,
        /// The time until the last volume was ready, without these pauses; none if no volume became ready.
        up_seconds: Option<f64>,
    },
}

/// The parameters of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadPlan {
    /// The minimum number of volumes.
    pub volumes: u64,
    /// The number of concurrent volumes.
    pub concurrency: u64,
    /// Pods that use each volume; 0 for no pods.
    pub pods_per_volume: u64,
    /// Volumes that each pod uses.
    pub volumes_per_pod: u64,
    /// Whether all volumes must be ready before the first is deleted.
    pub hold: bool,
    /// How long it keeps creating and deleting volumes; none if it ends with their number.
    pub churn_s: Option<f64>,
}

/// The progress of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeStep {
    /// Its claim is created.
    Created,
    /// Its pods are ready; without pods, its claim is bound.
    Up,
    /// Its pods are being deleted, then its claim.
    Going,
    /// Claim, volume and pods no longer exist.
    Gone,
}

/// The resource usage of the whole process tree: claimcheck, components and pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// CPU time so far, including processes that have exited; seconds.
    pub cpu_s: f64,
    /// Resident memory: pages that processes share count for each of them.
    pub rss_bytes: u64,
    /// Proportional set size: shared pages are divided among the processes that share them.
    pub pss_bytes: u64,
    /// Processes.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Loop devices of this run.
    pub loop_devices: u64,
    /// Requests that the API server has served so far; none if they were not counted at this time.
    pub api_requests: Option<u64>,
    /// The part of the storage controllers; none if they do not run as processes of claimcheck.
    #[serde(default)]
    pub controllers: Option<ControllersUsage>,
}

/// The resource usage of the storage controllers: the processes of the built-in ones, the stock programs that replace
/// them, and sidecars, without API server, nodes and drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControllersUsage {
    /// CPU time of the running processes so far, and of their children; seconds.
    pub cpu_s: f64,
    /// Proportional set size.
    pub pss_bytes: u64,
}
