//! Leader election: of several processes, the one that holds and renews a Lease is active.
//!
//! Upstream: `tools/leaderelection` of client-go, with the same records and timings, so that a built-in process
//! and one with client-go's library respect each other. Unlike it, a candidate watches the lease and so
//! acquires a released one at once.

mod plan;
mod run;

use std::time::Duration;

pub use run::{Elector, LeaderError};

/// Configuration of a candidate.
#[derive(Clone, Debug)]
pub struct Election {
    /// The namespace of the lease.
    pub namespace: String,
    /// The lease's name: all candidates of one work share it.
    pub name: String,
    /// The identity of this candidate, such as its pod's name.
    pub identity: String,
    /// Durations.
    pub timing: Timing,
}

/// Timings. The defaults are those of Kubernetes' own components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// LeaseDuration: how long others wait for a leader that does not renew. Whole seconds: it is part of the
    /// lease.
    pub lease: Duration,
    /// RenewDeadline: how long a leader tries to renew before it gives up; less than `lease`, so that there is
    /// never a second.
    pub deadline: Duration,
    /// RetryPeriod: between two renewals, and between two failed attempts.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), deadline: seconds(10), retry: seconds(2) }
    }
}
