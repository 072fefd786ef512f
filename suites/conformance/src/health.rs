//! Driver health: whether the driver still runs after a case, and how it is restarted if it does not.
//!
//! ```text
//! a process started by claimcheck exited ────────────┐             ┌─> it is ready: one case reports the failure
//! calls are lost, and no process listens ────────────┼─> restarted ┤
//! a call times out, so does Probe, and no call ends ─┘             └─> it is lost: no more cases start
//! ```

use std::{
    collections::BTreeSet,
    sync::PoisonError,
    time::{Duration, Instant},
};

use claimcheck_csi::{Driver, Endpoint, NotReady, NotReadyCause, tap::NoResponse};
use tokio::sync::Mutex;

use crate::{
    driver_under_test::{ConnectError, DriverUnderTest, Known},
    process::Restart,
    traffic::Answers,
};

/// Maximum time to detect that no process listens.
const LOOK: Duration = Duration::from_millis(200);
/// A driver that responds neither to Probe nor to other calls within this time, and the time that a call may take, hangs.
const HANGS: Duration = Duration::from_secs(5);
/// Time for a driver that claimcheck does not restart to become ready again.
const COMES_BACK: Duration = Duration::from_secs(10);

/// Calls without a response from the driver.
pub(crate) type Unanswered = BTreeSet<(&'static str, NoResponse)>;

/// How a driver failed unexpectedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its process, started by claimcheck, exited with this status.
    Exited(String),
    /// No process listens at its endpoint.
    Refuses(Endpoint),
    /// Calls were lost, but it listens: it was already restarted externally.
    Returned,
    /// It runs, but did not respond within this time.
    Hangs(Duration),
}

impl End {
    /// As a sentence, with the calls that were in progress.
    pub(crate) fn describe(&self, calls: &Unanswered) -> String {
        let calls: BTreeSet<&str> = calls.iter().map(|(call, _)| *call).collect();
        let during = match calls.into_iter().collect::<Vec<_>>().join(" or ") {
            none if none.is_empty() => "while no call was in progress".to_owned(),
            calls => format!("during a call of {calls}"),
        };
        match self {
            Self::Exited(status) => format!("the driver process exited unexpectedly {during} ({status})"),
            Self::Refuses(at) => format!("the driver went away {during} (no process listens at {at})"),
            Self::Returned => {
                format!("the driver went away {during} (the connection was lost, and it listens again)")
            }
            Self::Hangs(limit) => {
                format!("the driver hangs {during} (no response to Probe within {} s)", limit.as_secs())
            }
        }
    }
}

/// The state of the driver after a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverHealth {
    /// It runs.
    Healthy,
    /// It failed, and was restarted.
    Restarted(End),
    /// It failed and did not become ready again; this case is the first to detect it.
    Lost(End, String),
    /// An earlier case has found that it is lost.
    Unavailable(String),
}

/// The known failures of the driver.
#[derive(Debug, Default)]
pub(crate) struct DriverFailures {
    /// Lets one case at a time check and restart the driver.
    checking: Mutex<()>,
    seen: std::sync::Mutex<Observed>,
}

#[derive(Debug, Default)]
struct Observed {
    ends: Vec<(Instant, End)>,
    lost: Option<String>,
}

impl DriverFailures {
    fn seen(&self) -> std::sync::MutexGuard<'_, Observed> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the driver failed since then, if it did.
    fn since(&self, then: Instant) -> Option<End> {
        self.seen().ends.iter().find(|(when, _)| *when > then).map(|(_, end)| end.clone())
    }

    /// The reason why no more cases can run, if the driver is lost.
    pub(crate) fn lost(&self) -> Option<String> {
        self.seen().lost.clone()
    }
}

/// Whether a driver answers neither Probe nor any other call. A busy one may answer others before Probe.
async fn hangs(driver: &Driver, limit: Duration, answers: &Answers) -> bool {
    let before = answers.of(driver.component());
    driver.wait_ready(limit).await.is_err() && answers.of(driver.component()) == before
}

impl DriverUnderTest {
    /// The state of the driver since then, given the calls without a response. If it failed, it is restarted, or
    /// expected to be restarted externally.
    pub(crate) async fn health_since(&self, then: Instant, calls: &Unanswered) -> DriverHealth {
        let _checking = self.failures.checking.lock().await;
        if let Some(why) = self.failures.lost() {
            return DriverHealth::Unavailable(why);
        }
        if let Some(end) = self.end(calls, then).await {
            let again = self.start_again(&end).await;
            self.forget_late();
            let mut seen = self.failures.seen();
            seen.ends.push((Instant::now(), end.clone()));
            if let Err(error) = again {
                let why = format!("{} and does not become ready again: {error}", end.describe(calls));
                seen.lost = Some(why.clone());
                return DriverHealth::Lost(end, why);
            }
        }
        self.failures.since(then).map_or(DriverHealth::Healthy, DriverHealth::Restarted)
    }

    /// How the driver failed, if it did and the failure is not yet known.
    async fn end(&self, calls: &Unanswered, then: Instant) -> Option<End> {
        let any = |why| calls.iter().any(|(_, no_response)| *no_response == why);
        if let Some(Restart::Processes(processes)) = &self.restart {
            for process in processes.lock().await.iter_mut() {
                if let Some(status) = process.ended(any(NoResponse::ConnectionLost)).await {
                    return Some(End::Exited(status.to_string()));
                }
            }
        }
        // The started process may be a wrapper that outlives the driver.
        if any(NoResponse::ConnectionLost) {
            for driver in self.drivers() {
                if let Err(NotReady { last: NotReadyCause::Connect(_), .. }) = driver.wait_ready(LOOK).await {
                    return Some(End::Refuses(driver.endpoint().clone()));
                }
            }
        }
        if any(NoResponse::Late) {
            let limit = HANGS.max(self.config.call_limit());
            for driver in self.drivers() {
                if hangs(driver, limit, &self.answers).await {
                    return Some(End::Hangs(limit));
                }
            }
        }
        // Unless the calls were lost in a failure that another case has detected.
        (any(NoResponse::ConnectionLost) && self.failures.since(then).is_none()).then_some(End::Returned)
    }

    async fn start_again(&self, end: &End) -> Result<(), ConnectError> {
        match (&self.restart, end) {
            (None, _) | (_, End::Returned) => self.ready(COMES_BACK).await,
            (Some(_), _) => self.restart().await,
        }
    }

    /// Forgets timeouts from while the driver hung, except of calls that are known to hang.
    pub(crate) fn forget_late(&self) {
        let Known { late, unanswered, .. } = &mut *self.known();
        late.retain(|call| unanswered.contains_key(call));
    }

    /// Kills and restarts the driver, and waits until it is ready.
    pub(crate) async fn restart(&self) -> Result<(), ConnectError> {
        let Some(restart) = &self.restart else { return Ok(()) };
        restart.restart().await?;
        self.ready(self.config.call_limit()).await
    }

    async fn ready(&self, limit: Duration) -> Result<(), ConnectError> {
        for driver in self.drivers() {
            driver.wait_ready(limit).await?;
        }
        Ok(())
    }

    fn drivers(&self) -> impl Iterator<Item = &Driver> {
        [Some(&self.node), Some(&self.controller), self.second.as_ref()].into_iter().flatten()
    }

    /// The process id of the node's driver, if claimcheck started it.
    pub(crate) async fn process(&self) -> Option<u32> {
        match self.restart.as_ref()? {
            Restart::Processes(processes) => processes.lock().await.first()?.id(),
            Restart::Command(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::tap::Tap;
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_answers_other_calls_before_probe_is_busy_and_does_not_hang() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("csi.sock");
        // Connections are accepted by the kernel, and Probe is never answered.
        let _listener = UnixListener::bind(&socket).unwrap();
        let driver = Driver::new(Endpoint::Unix(socket), Tap::channel().0, "node");
        let answers = Answers::default();
        assert!(hangs(&driver, HANGS, &answers).await);
        for (component, is_hanging) in [("controller", true), ("node", false)] {
            let answered = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                answers.add(component);
            };
            assert_eq!(tokio::join!(hangs(&driver, HANGS, &answers), answered).0, is_hanging, "{component}");
        }
    }

    #[test]
    fn a_driver_failure_is_reported_with_the_calls_in_progress() {
        let calls = Unanswered::from([
            ("CreateSnapshot", NoResponse::ConnectionLost),
            ("CreateSnapshot", NoResponse::Late),
            ("CreateVolume", NoResponse::ConnectionLost),
        ]);
        assert_eq!(
            End::Exited("exit status: 1".to_owned()).describe(&calls),
            "the driver process exited unexpectedly during a call of CreateSnapshot or CreateVolume (exit status: 1)"
        );
        let refuses = End::Refuses(Endpoint::Tcp("x:1".to_owned())).describe(&Unanswered::new());
        assert!(
            refuses.contains("while no call was in progress (no process listens at tcp://x:1"),
            "{refuses}"
        );
        assert!(End::Hangs(HANGS).describe(&calls).contains("hangs during a call of"));
    }
}
