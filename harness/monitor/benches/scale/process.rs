//! What this process uses, from procfs and its CPU clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::Result;

/// The resident memory of this process in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Now (`VmRSS`).
    pub resident: u64,
    /// Of that, without the pages of files, such as those of the program itself (`RssAnon`).
    pub anonymous: u64,
    /// At most so far (`VmHWM`).
    pub peak: u64,
}

impl Memory {
    /// Reads it.
    pub fn now() -> Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            kilobytes.map(|number| number * 1024).ok_or_else(|| format!("/proc/self/status has no {name}"))
        };
        let (resident, anonymous, peak) = (field("VmRSS:")?, field("RssAnon:")?, field("VmHWM:")?);
        Ok(Self { resident, anonymous, peak })
    }
}

/// The CPU time of all threads of this process so far.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // It starts at 0.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}
