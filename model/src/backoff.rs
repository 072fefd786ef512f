//! Exponential delays between attempts.

use std::time::Duration;

/// Exponential delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub base: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for Backoff {
    /// 5 ms, as client-go, up to 30 s.
    fn default() -> Self {
        Self { base: Duration::from_millis(5), max: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The delay after this many consecutive failures; doubles with each.
    pub fn delay(self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.base.saturating_mul(factor).min(self.max)
    }
}
