//! Decides the next step for the lease, and its content.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};

use super::Timing;

/// The next step of a candidate or leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The lease does not exist: create it.
    Create,
    /// It has no holder, or it has expired: acquire it.
    Take,
    /// This process holds it: renew it.
    Renew,
    /// Another process holds it: check again when it changes, and after this time.
    Wait(Duration),
}

/// Decides by the current lease, and the time since it was last observed to change. By the local clock: clocks
/// of other machines are not trusted, as in `isLeaseValid` in client-go's `leaderelection.go`.
pub fn plan(lease: Option<&LeaseSpec>, unchanged: Duration, identity: &str) -> Step {
    let Some(lease) = lease else { return Step::Create };
    match lease.holder_identity.as_deref().unwrap_or_default() {
        "" => Step::Take,
        holder if holder == identity => Step::Renew,
        _ => {
            let seconds = lease.lease_duration_seconds.unwrap_or_default();
            let term = Duration::from_secs(seconds.try_into().unwrap_or_default());
            match term.saturating_sub(unchanged) {
                Duration::ZERO => Step::Take,
                left => Step::Wait(left),
            }
        }
    }
}

/// The pause before the next renewal. After a failure it is short, or a leader with upstream's periods (5 s of 10 s)
/// would give up after the first one. The deadline begins with the last success here, but in client-go's `renew` only
/// with the attempt after it, when it may end together with the lease.
pub fn until_renewal(timing: Timing, failed: bool) -> Duration {
    if failed { timing.retry.min(timing.deadline / 5) } else { timing.retry }
}

/// The lease as held by `identity` from `now` on. If it held the lease before, its acquire time is kept.
pub fn held(before: Option<&LeaseSpec>, identity: &str, now: Timestamp, timing: Timing) -> LeaseSpec {
    let mine = before.filter(|lease| lease.holder_identity.as_deref() == Some(identity));
    let transitions = before.map_or(0, |lease| lease.lease_transitions.unwrap_or_default());
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(timing.lease.as_secs().try_into().unwrap_or(i32::MAX)),
        acquire_time: mine.and_then(|lease| lease.acquire_time.clone()).or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if before.is_none() || mine.is_some() {
            transitions
        } else {
            transitions + 1
        }),
        ..before.cloned().unwrap_or_default()
    }
}

/// The released lease, which any candidate can acquire.
pub fn released(before: &LeaseSpec, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        // Upstream, too: zero is not valid.
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..before.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            lease_transitions: Some(3),
            acquire_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn an_expired_lease_is_taken() {
        let seconds = Duration::from_secs;
        let table = [
            (None, 0, Step::Create),
            (Some(lease("", 1)), 0, Step::Take),
            (Some(LeaseSpec::default()), 0, Step::Take),
            (Some(lease("me", 15)), 0, Step::Renew),
            // Even an expired one: no other process has acquired it.
            (Some(lease("me", 15)), 60, Step::Renew),
            (Some(lease("other", 15)), 0, Step::Wait(seconds(15))),
            (Some(lease("other", 15)), 14, Step::Wait(seconds(1))),
            (Some(lease("other", 15)), 15, Step::Take),
            (Some(lease("other", 15)), 60, Step::Take),
            // The term is what its holder wrote, not what we would write.
            (Some(lease("other", 60)), 20, Step::Wait(seconds(40))),
            (Some(lease("other", -1)), 0, Step::Take),
        ];
        for (lease, unchanged, expected) in table {
            assert_eq!(
                plan(lease.as_ref(), seconds(unchanged), "me"),
                expected,
                "{lease:?} after {unchanged} s"
            );
        }
    }

    #[test]
    fn a_leader_tries_several_times_before_its_deadline() {
        let seconds = Duration::from_secs;
        let sidecars = Timing { retry: seconds(5), ..Timing::default() };
        for (timing, ordinary, after_failure) in [(Timing::default(), 2, 2), (sidecars, 5, 2)] {
            assert_eq!(until_renewal(timing, false), seconds(ordinary));
            assert_eq!(until_renewal(timing, true), seconds(after_failure));
        }
    }

    #[test]
    fn a_term_begins_with_its_holder() {
        let now = Timestamp::from_second(100).unwrap();
        let held = |before: Option<&LeaseSpec>| held(before, "me", now, Timing::default());
        let times = |lease: &LeaseSpec| {
            let seconds = |time: &Option<MicroTime>| time.as_ref().map(|time| time.0.as_second());
            (seconds(&lease.acquire_time), seconds(&lease.renew_time), lease.lease_transitions)
        };
        assert_eq!(times(&held(None)), (Some(100), Some(100), Some(0)));
        assert_eq!(times(&held(Some(&lease("me", 15)))), (Some(0), Some(100), Some(3)));
        let taken = held(Some(&lease("other", 60)));
        assert_eq!(times(&taken), (Some(100), Some(100), Some(4)));
        assert_eq!(taken.lease_duration_seconds, Some(15));

        let free = released(&taken, now);
        assert_eq!(plan(Some(&free), Duration::ZERO, "other"), Step::Take);
        assert_eq!(free.lease_transitions, Some(4), "a release is no transition");
    }
}
