//! What cases wait for on purpose, and for how long at most. Cases do not sleep for a fixed time: they poll.

use std::fmt;

/// What a case may wait for in addition to the responses of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// What it waits for.
    pub reason: &'static str,
    /// For how long at most.
    pub limit: Limit,
}

/// The maximum duration of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A number of seconds.
    Seconds(u64),
    /// The value of `--ready-timeout`.
    ReadyTimeout,
    /// The value of `--call-timeout`.
    CallTimeout,
}

impl Waits {
    /// A wait of at most `limit`.
    pub(crate) const fn up_to(limit: Limit, reason: &'static str) -> Self {
        Self { reason, limit }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => write!(f, "{seconds} s"),
            Self::ReadyTimeout => f.write_str("--ready-timeout"),
            Self::CallTimeout => f.write_str("--call-timeout"),
        }
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "up to {}: {}", self.limit, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    /// The cases that take long on purpose are named with their limits.
    #[test]
    fn a_wait_has_a_limit_and_a_reason() {
        let cases = catalogue();
        let fixed: Vec<String> = cases
            .iter()
            .filter_map(|case| case.waits().filter(|waits| matches!(waits.limit, Limit::Seconds(_))))
            .map(|waits| waits.to_string())
            .collect();
        assert_eq!(
            fixed,
            [
                "up to 10 s: a deleted volume to disappear",
                "up to 10 s: a deleted volume to disappear",
                "up to 10 s: written data to be counted, which file systems such as ZFS and btrfs do later",
                "up to 5 s: many calls, since latency is compared with that of the first ones"
            ]
        );
        let snapshots = Waits::up_to(Limit::ReadyTimeout, "snapshots to become ready_to_use");
        assert_eq!(snapshots.to_string(), "up to --ready-timeout: snapshots to become ready_to_use");
        assert!(cases.iter().any(|case| case.waits() == Some(snapshots)));
    }
}
