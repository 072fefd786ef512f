//! Which of several processes works: the one that holds a Lease and keeps renewing it.
//!
//! Upstream: `tools/leaderelection` of client-go, whose records and timings these are, so that a process of
//! ours and one with client-go's library would respect each other. Unlike it, a candidate watches the lease
//! and so takes a released one at once.

mod plan;
mod run;

use std::time::Duration;

pub use run::{Elector, LeaderError};

/// Who wants to lead what.
#[derive(Clone, Debug)]
pub struct Election {
    /// The namespace of the lease.
    pub namespace: String,
    /// The lease's name: all candidates of one work share it.
    pub name: String,
    /// What tells this process from all other candidates, such as its pod's name.
    pub identity: String,
    /// How long everything takes.
    pub timing: Timing,
}

/// How long a leader may be silent. The defaults are those of Kubernetes' own components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait for a leader that says nothing. Whole seconds: it stands in the lease.
    pub lease: Duration,
    /// How long a leader tries to renew before it gives up; less than `lease`, so that there is never a second.
    pub deadline: Duration,
    /// Between two renewals, and between two attempts that failed.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), deadline: seconds(10), retry: seconds(2) }
    }
}
