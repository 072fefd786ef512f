//! Waiting until the evidence of all calls up to now has arrived. Counts of calls, and the absence of a call, are judged
//! only then: the effect of a call is often observed before its record.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::sync::Mutex;

use super::{LocalCalls, TapLogs};

/// How long the sources may take to confirm. Far more than any confirmation takes, except on an overloaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sources of calls that did not confirm in time that all calls up to a moment are recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no evidence: {} did not confirm within {} s that all CSI calls up to now are recorded; the calls are not judged, \
     since some may be missing",
    sources.join(", "), waited.as_secs()
)]
pub struct NoEvidence {
    /// The sources.
    pub sources: Vec<String>,
    /// The time waited.
    pub waited: Duration,
}

/// Everything that records calls.
#[derive(Debug, Default)]
pub struct UpToNow {
    /// The processes of this machine.
    pub local: Option<LocalCalls>,
    /// The taps on real nodes.
    pub logs: Option<TapLogs>,
    /// The number of requests so far.
    requests: AtomicU64,
    last: Mutex<Last>,
}

/// The last time that all sources have confirmed.
#[derive(Debug)]
struct Last {
    /// The number of requests before.
    requests: u64,
    result: Result<(), NoEvidence>,
}

impl Default for Last {
    fn default() -> Self {
        Self { requests: 0, result: Ok(()) }
    }
}

impl UpToNow {
    /// These sources.
    pub fn new(local: Option<LocalCalls>, logs: Option<TapLogs>) -> Self {
        Self { local, logs, ..Self::default() }
    }

    /// Returns once the evidence contains all calls that had ended before this call. Concurrent requests share one
    /// confirmation.
    ///
    /// # Errors
    /// [`NoEvidence`] names the sources that did not confirm.
    pub async fn reach(&self) -> Result<(), NoEvidence> {
        let this = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        // The sources were asked after this request.
        if last.requests >= this {
            return last.result.clone();
        }
        let requests = self.requests.load(Ordering::SeqCst);
        let result = self.confirm(TIMEOUT).await;
        *last = Last { requests, result: result.clone() };
        result
    }

    async fn confirm(&self, timeout: Duration) -> Result<(), NoEvidence> {
        let local = async {
            match &self.local {
                Some(local) => local.reach(timeout).await,
                None => Ok(()),
            }
        };
        let logs = async {
            match &self.logs {
                Some(logs) => logs.reach(timeout).await,
                None => Ok(()),
            }
        };
        let (local, logs) = tokio::join!(local, logs);
        local.and(logs)
    }
}
