//! When a provisioner with `--node-deployment` attempts to own a claim of a class with binding mode Immediate.
//!
//! All provisioners of the driver attempt it, and the first one to write its node as the selected one succeeds: so each
//! waits for a random time first, and longer after each attempt. Upstream: `becomeOwner` in external-provisioner
//! `pkg/controller/controller.go`, and `pkg/controller/ratelimiter.go`.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;

use crate::NodeDeployment;

/// The attempts to own claims, by the claim's uid.
#[derive(Debug, Default)]
pub struct Attempts(HashMap<String, Attempt>);

#[derive(Debug)]
struct Attempt {
    /// Number of delays so far.
    delays: u32,
    next: Timestamp,
}

impl Attempts {
    /// Whether to attempt it now, and the time until the next attempt. `random`: from 0 to 1.
    ///
    /// The claim may stay without an owner if no node has the capacity: then this repeats it, while upstream waits for
    /// the next resync.
    pub fn due(
        &mut self,
        claim: &str,
        limits: &NodeDeployment,
        random: f64,
        now: Timestamp,
    ) -> (bool, Duration) {
        let first = || Attempt { delays: 1, next: now + delay(limits, 0, random) };
        let attempt = self.0.entry(claim.to_owned()).or_insert_with(first);
        let left = Duration::try_from(attempt.next.duration_since(now)).unwrap_or_default();
        if !left.is_zero() {
            return (false, left);
        }
        let delay = delay(limits, attempt.delays, random);
        *attempt = Attempt { delays: attempt.delays.saturating_add(1), next: now + delay };
        (true, delay)
    }

    /// Begins with the shortest delay again: the claim has an owner, or does not exist.
    pub fn forget(&mut self, claim: &str) {
        self.0.remove(claim);
    }
}

/// The delay after this number of delays: exponential, less a random part of the first one.
fn delay(limits: &NodeDeployment, delays: u32, random: f64) -> Duration {
    let exponential = limits.base_delay.saturating_mul(1_u32 << delays.min(31)).min(limits.max_delay);
    exponential.saturating_sub(limits.base_delay.mul_f64(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn attempts_are_delayed_at_random_and_ever_longer() {
        let limits = NodeDeployment::default();
        let start: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let mut attempts = Attempts::default();
        for (at, random, expected) in [
            (0, 0.25, (false, seconds(15))),
            (5, 0.9, (false, seconds(10))),
            (15, 0.5, (true, seconds(30))),
            (16, 0.0, (false, seconds(29))),
            (45, 0.0, (true, seconds(60))),
            (200, 1.0, (true, seconds(40))),
        ] {
            let due = attempts.due("uid", &limits, random, start + seconds(at));
            assert_eq!(due, expected, "after {at} s");
        }
        attempts.forget("uid");
        assert_eq!(attempts.due("uid", &limits, 0.0, start), (false, seconds(20)), "from the beginning");
        assert_eq!(attempts.due("other", &limits, 1.0, start), (true, seconds(20)), "at once");
    }
}
