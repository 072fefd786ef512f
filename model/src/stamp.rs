//! Time stamps: wall and monotonic time, read together.
//!
//! Monotonic time is `CLOCK_MONOTONIC`, which all processes on one machine share, so stamps taken by
//! the node agent, the controllers and the harness can be subtracted from each other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A moment, in nanoseconds of both clocks.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Stamp {
    /// `CLOCK_MONOTONIC`, nanoseconds. First, so that the derived order is the order of events.
    pub mono_ns: u64,
    /// Nanoseconds since the Unix epoch.
    pub wall_ns: u64,
}

impl Stamp {
    /// Reads both clocks. The one impure function of this crate.
    pub fn now() -> Self {
        let mono = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Self { mono_ns: nanos(mono), wall_ns: nanos(wall) }
    }

    /// Seconds from `earlier` to `self` on the monotonic clock; negative where it was later.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        (self.mono_ns as f64 - earlier.mono_ns as f64) / 1e9
    }
}

fn nanos(t: rustix::time::Timespec) -> u64 {
    // Neither clock is before 1970 on a machine that runs Kubernetes.
    (t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64)
}
