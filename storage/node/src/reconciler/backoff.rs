//! Exponential backoff of a failed operation: 500 ms, doubling up to 2 min 2 s.
//! Upstream: `pkg/util/goroutinemap/exponentialbackoff/exponential_backoff.go`.

use std::time::Duration;

/// A time on the monotonic clock, counted from its zero.
pub type Moment = Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(122);

/// Backoff of a failed operation; the default has not failed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    delay: Duration,
    until: Moment,
}

impl Backoff {
    /// The backoff after one more failure at `now`.
    pub fn after(self, now: Moment) -> Self {
        let delay = if self.delay.is_zero() { FIRST } else { (self.delay * 2).min(LONGEST) };
        Self { delay, until: now + delay }
    }

    /// When the operation may be retried.
    pub fn until(self) -> Moment {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_from_half_a_second_to_two_minutes() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> = (0..10)
            .map(|_| {
                backoff = backoff.after(Duration::ZERO);
                backoff.until().as_millis()
            })
            .collect();
        assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122_000, 122_000]);
    }
}
