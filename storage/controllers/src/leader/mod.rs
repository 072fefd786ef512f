//! Leader election: of several processes, the one that holds and renews a Lease is active.
//!
//! Upstream: `tools/leaderelection` of client-go, with the same records and timings, so that a built-in process
//! and one with client-go's library respect each other. Unlike it, a candidate watches the lease and so
//! acquires a released one at once.

mod name;
mod plan;
mod run;

use std::{collections::BTreeMap, time::Duration};

pub use name::lease_name;
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
    /// Set on the lease with each write of this candidate; other labels are kept.
    pub labels: BTreeMap<String, String>,
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
    /// RetryPeriod: between two renewals, and at most between two failed attempts.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), deadline: seconds(10), retry: seconds(2) }
    }
}

/// Timings that could make two processes active at the same time, or lose the lease without need.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// A lease holds whole seconds.
    #[error("--leader-election-lease-duration {0:?} is not a number of whole seconds, as a Lease requires")]
    Fraction(Duration),
    /// The lease could end before its holder does.
    #[error(
        "--leader-election-lease-duration {lease:?} must be longer than --leader-election-renew-deadline {deadline:?}"
    )]
    Lease {
        /// Its duration.
        lease: Duration,
        /// The deadline of the renewal.
        deadline: Duration,
    },
    /// Too few renewals would be tried.
    #[error(
        "--leader-election-renew-deadline {deadline:?} must be longer than 1.2 times --leader-election-retry-period {retry:?}"
    )]
    Deadline {
        /// The deadline of the renewal.
        deadline: Duration,
        /// The time between two attempts.
        retry: Duration,
    },
}

impl Timing {
    /// These timings, if they are consistent. Upstream: `NewLeaderElector` in client-go's `leaderelection.go`.
    ///
    /// # Errors
    /// If they are not.
    pub fn checked(self) -> Result<Self, TimingError> {
        let Self { lease, deadline, retry } = self;
        if lease.subsec_nanos() != 0 {
            return Err(TimingError::Fraction(lease));
        }
        if lease <= deadline {
            return Err(TimingError::Lease { lease, deadline });
        }
        if deadline <= retry.mul_f64(1.2) {
            return Err(TimingError::Deadline { deadline, retry });
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_are_checked_as_client_go_checks_them() {
        let millis = Duration::from_millis;
        let checked = |lease, deadline, retry| {
            Timing { lease: millis(lease), deadline: millis(deadline), retry: millis(retry) }
                .checked()
                .map_err(|error| error.to_string())
        };
        assert!(Timing::default().checked().is_ok());
        assert!(checked(15_000, 10_000, 5000).is_ok(), "the defaults of kubernetes-csi");
        for (timing, remedy) in [
            (checked(1500, 1000, 100), "1.5s is not a number of whole seconds"),
            (checked(10_000, 10_000, 2000), "must be longer than --leader-election-renew-deadline 10s"),
            (checked(15_000, 6000, 5000), "must be longer than 1.2 times --leader-election-retry-period 5s"),
        ] {
            let error = timing.expect_err(remedy);
            assert!(error.contains(remedy), "{error}");
        }
    }
}
