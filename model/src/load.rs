//! What a load tells its reporters: what it is, how far its volumes are, and what all of it costs.

use serde::{Deserialize, Serialize};

/// Something that happened in a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "load", rename_all = "snake_case")]
pub enum LoadEvent {
    /// It begins; everything in the load's summary is counted from here.
    Began(LoadPlan),
    /// Some volumes have got further.
    Volumes {
        /// How far.
        reached: VolumeStep,
        /// How many.
        volumes: u64,
        /// Since their claims were created.
        seconds: f64,
    },
    /// Some volumes did not get where they should. They are removed all the same.
    Failed {
        /// The claims, by namespace and name.
        claims: Vec<String>,
        /// What went wrong.
        why: String,
    },
    /// What everything uses, looked at now and then: first as the load begins, last as it has ended.
    Usage {
        /// Since it began.
        seconds: f64,
        /// What.
        usage: Usage,
    },
    /// All volumes are gone, or given up.
    Ended {
        /// Since it began.
        seconds: f64,
        /// Until the last volume was up; none where none got there.
        up_seconds: Option<f64>,
    },
}

/// What a load is asked to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// How many volumes at least.
    pub volumes: u64,
    /// How many of them at a time.
    pub concurrency: u64,
    /// Pods that use each volume; none where 0.
    pub pods_per_volume: u64,
    /// Volumes that each pod uses.
    pub volumes_per_pod: u64,
    /// All volumes are up before the first goes.
    pub hold: bool,
    /// How long it goes on making and removing volumes; none where their number is its end.
    pub churn_s: Option<f64>,
}

/// How far a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeStep {
    /// Its claim is created.
    Created,
    /// Its pods are ready; without pods, its claim is bound.
    Up,
    /// Its pods are being deleted, then its claim.
    Going,
    /// Claim, volume and pods are gone.
    Gone,
}

/// What the whole tree of processes uses: ours, the components', the pods'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time so far, of processes that have ended too; seconds.
    pub cpu_s: f64,
    /// Resident memory: pages that processes share count for each of them.
    pub rss_bytes: u64,
    /// Proportional set size: shared pages are divided among those who share them.
    pub pss_bytes: u64,
    /// Processes.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Loop devices of this run.
    pub loop_devices: u64,
    /// Requests that the API server has answered so far; none where it does not say.
    pub api_requests: Option<u64>,
}
