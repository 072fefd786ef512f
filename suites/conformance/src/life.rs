//! The driver's life under trial: whether it is still there after a case, and what is done if it is not.
//!
//! ```text
//! a process of ours has ended ───────────────────────┐            ┌─> it is there again: one case tells its end
//! calls are lost, if nobody listens any more ────────┼─> started ─┤
//! a call is late, and Probe is not answered either ──┘   anew     └─> it is gone: no more cases begin
//! ```

use std::{
    collections::BTreeSet,
    sync::PoisonError,
    time::{Duration, Instant},
};

use claimcheck_csi::{Driver, Endpoint, NotReady, NotReadyCause, tap::NoAnswer};
use tokio::sync::Mutex;

use crate::{
    process::Restart,
    suite::{ConnectError, Known, Suite},
};

/// How long it takes at the most to see that nobody listens.
const LOOK: Duration = Duration::from_millis(200);
/// A driver that does not answer Probe for so long hangs.
const HANGS: Duration = Duration::from_secs(5);
/// How long a driver that nobody here starts may take to come back by itself.
const COMES_BACK: Duration = Duration::from_secs(10);

/// Calls that the driver has not answered.
pub(crate) type Unanswered = BTreeSet<(&'static str, NoAnswer)>;

/// How a driver has ended that was not told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its process, which we have started, with this status.
    Exited(String),
    /// Nobody listens at its endpoint.
    Refuses(Endpoint),
    /// Calls were lost, and yet it is there: whoever minds it was faster than we are.
    Returned,
    /// It is there, and answers nothing.
    Hangs,
}

impl End {
    /// In a sentence, with the calls that were under way.
    pub(crate) fn told(&self, calls: &Unanswered) -> String {
        let calls: BTreeSet<&str> = calls.iter().map(|(call, _)| *call).collect();
        let during = match calls.into_iter().collect::<Vec<_>>().join(" or ") {
            none if none.is_empty() => "while no call was under way".to_owned(),
            calls => format!("in a call of {calls}"),
        };
        match self {
            Self::Exited(status) => format!("the driver's process ended by itself {during} ({status})"),
            Self::Refuses(at) => format!("the driver went away {during} (nobody listens at {at} any more)"),
            Self::Returned => {
                format!("the driver went away {during} (the connection broke, and it listens again by now)")
            }
            Self::Hangs => {
                format!("the driver hangs {during} (it does not answer Probe within {} s)", HANGS.as_secs())
            }
        }
    }
}

/// What became of the driver during a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It is there.
    Well,
    /// It has ended, and is there again.
    Ended(End),
    /// It has ended and does not come back; this case is the first to see it.
    Gone(End, String),
    /// It has been gone for a while.
    NotThere(String),
}

/// What is known of the driver's ends.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// Lets one case at a time look, and start the driver anew.
    looking: Mutex<()>,
    seen: std::sync::Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    ends: Vec<(Instant, End)>,
    gone: Option<String>,
}

impl Ends {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the driver has ended since then, if it has.
    fn since(&self, then: Instant) -> Option<End> {
        self.seen().ends.iter().find(|(when, _)| *when > then).map(|(_, end)| end.clone())
    }

    /// Why no more cases can run, if none can.
    pub(crate) fn gone(&self) -> Option<String> {
        self.seen().gone.clone()
    }
}

impl Suite {
    /// What became of the driver since then, given the calls that it has not answered. If it has ended, it is
    /// started anew, by us or by whoever does.
    pub(crate) async fn life_since(&self, then: Instant, calls: &Unanswered) -> Life {
        let _looking = self.ends.looking.lock().await;
        if let Some(why) = self.ends.gone() {
            return Life::NotThere(why);
        }
        if let Some(end) = self.end(calls, then).await {
            let again = self.start_anew(&end).await;
            self.forget_late();
            let mut seen = self.ends.seen();
            seen.ends.push((Instant::now(), end.clone()));
            if let Err(error) = again {
                let why = format!("{} and does not come back: {error}", end.told(calls));
                seen.gone = Some(why.clone());
                return Life::Gone(end, why);
            }
        }
        self.ends.since(then).map_or(Life::Well, Life::Ended)
    }

    /// How the driver has ended, if it has and that is not known yet.
    async fn end(&self, calls: &Unanswered, then: Instant) -> Option<End> {
        let any = |why| calls.iter().any(|(_, no_answer)| *no_answer == why);
        if let Some(Restart::Processes(processes)) = &self.restart {
            for process in processes.lock().await.iter_mut() {
                if let Some(status) = process.ended(any(NoAnswer::Broken)).await {
                    return Some(End::Exited(status.to_string()));
                }
            }
        }
        // A process of ours may also be a mere wrapper, which outlives the driver.
        if any(NoAnswer::Broken) {
            for driver in self.drivers() {
                if let Err(NotReady { last: NotReadyCause::Connect(_), .. }) = driver.wait_ready(LOOK).await {
                    return Some(End::Refuses(driver.endpoint().clone()));
                }
            }
        }
        if any(NoAnswer::Late) {
            for driver in self.drivers() {
                if driver.wait_ready(HANGS).await.is_err() {
                    return Some(End::Hangs);
                }
            }
        }
        // Unless the calls were lost with an end that another case has seen.
        (any(NoAnswer::Broken) && self.ends.since(then).is_none()).then_some(End::Returned)
    }

    async fn start_anew(&self, end: &End) -> Result<(), ConnectError> {
        match (&self.restart, end) {
            (None, _) | (_, End::Returned) => self.ready(COMES_BACK).await,
            (Some(_), _) => self.restart().await,
        }
    }

    /// What was late while the driver hung need not be so again, but for what is known to hang.
    fn forget_late(&self) {
        let Known { late, unanswered, .. } = &mut *self.known();
        late.retain(|call| unanswered.contains_key(call));
    }

    /// Kills the driver, starts it, and waits until it is ready again.
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

    /// The process of the node's driver, if we have started it.
    pub(crate) async fn process(&self) -> Option<u32> {
        match self.restart.as_ref()? {
            Restart::Processes(processes) => processes.lock().await.first()?.id(),
            Restart::Command(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_with_the_calls_that_were_under_way() {
        let calls = Unanswered::from([
            ("CreateSnapshot", NoAnswer::Broken),
            ("CreateSnapshot", NoAnswer::Late),
            ("CreateVolume", NoAnswer::Broken),
        ]);
        assert_eq!(
            End::Exited("exit status: 1".to_owned()).told(&calls),
            "the driver's process ended by itself in a call of CreateSnapshot or CreateVolume (exit status: 1)"
        );
        let refuses = End::Refuses(Endpoint::Tcp("x:1".to_owned())).told(&Unanswered::new());
        assert!(refuses.contains("while no call was under way (nobody listens at tcp://x:1"), "{refuses}");
        assert!(End::Hangs.told(&calls).contains("hangs in a call of"));
    }
}
