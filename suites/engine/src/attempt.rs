//! One attempt to run a case: its time limit, its panics, the interrupt of the run, and skips at run time.

use std::{any::Any, time::Duration};

use anyhow::Result;
use claimcheck_model::INTERRUPTED;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::plan::Planned;

/// Returned by a case that detects at run time that the environment lacks what it tests. It counts as skipped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(
    /// The reason.
    pub String,
);

/// Ends a case as skipped.
pub fn skip(why: impl Into<String>) -> anyhow::Error {
    Skip(why.into()).into()
}

/// Why a case did not end by itself. An interrupted case is no failure: it ends as skipped.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// It panicked.
    #[error("the case panicked: {0}")]
    Panicked(String),
    /// It exceeded its time limit.
    #[error("the case took longer than {} s", .0.as_secs())]
    TimedOut(Duration),
}

impl<C> Planned<C> {
    /// The reason not to start the case: the plan skips it, or the run was interrupted.
    pub fn skip_now(&self, interrupted: &CancellationToken) -> Option<String> {
        let skip = self.skip.clone();
        skip.or_else(|| interrupted.is_cancelled().then(|| INTERRUPTED.to_owned()))
    }
}

/// Runs the function of a case as a separate task, until it ends, panics, exceeds `limit` or the run is interrupted:
/// then it ends with [`Skip`].
///
/// # Errors
/// It panicked or exceeded `limit`. It has been cancelled then.
pub async fn bounded(
    case: impl Future<Output = Result<()>> + Send + 'static,
    limit: Duration,
    interrupted: &CancellationToken,
) -> Result<Result<()>, Stopped> {
    let mut task = tokio::spawn(case.in_current_span());
    let ended = tokio::select! {
        ended = &mut task => {
            return ended.map_err(|error| match error.try_into_panic() {
                Ok(panic) => Stopped::Panicked(message(&*panic).to_owned()),
                Err(error) => Stopped::Panicked(error.to_string()),
            });
        }
        () = tokio::time::sleep(limit) => Err(Stopped::TimedOut(limit)),
        () = interrupted.cancelled() => Ok(Err(skip(INTERRUPTED))),
    };
    task.abort();
    // Its calls are cancelled once the task has ended; only then are the leftovers known.
    let _ = task.await;
    ended
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use super::*;
    use crate::schedule::Schedule;

    const LIMIT: Duration = Duration::from_secs(60);

    async fn ends(case: impl Future<Output = Result<()>> + Send + 'static) -> String {
        match bounded(case, LIMIT, &CancellationToken::new()).await {
            Ok(Ok(())) => "passed".to_owned(),
            Ok(Err(error)) => format!("{error:#}"),
            Err(stopped) => format!("stopped: {stopped}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_case_ends_by_itself_or_is_stopped() {
        assert_eq!(ends(async { Ok(()) }).await, "passed");
        assert_eq!(ends(async { Err(skip("no loop devices")) }).await, "no loop devices");
        assert_eq!(ends(async { panic!("a bug") }).await, "stopped: the case panicked: a bug");
        assert_eq!(ends(async { panic!("{}", 1) }).await, "stopped: the case panicked: 1");
        assert_eq!(ends(pending()).await, "stopped: the case took longer than 60 s");
    }

    #[tokio::test]
    async fn an_interrupted_case_has_ended_and_no_other_starts() {
        struct Guard(Arc<AtomicBool>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (interrupted, dropped) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let planned = Planned { case: (), schedule: Schedule::Parallel, skip: None, fail: None };
        assert_eq!(planned.skip_now(&interrupted), None);
        let guard = Guard(dropped.clone());
        interrupted.cancel();
        let case = async move {
            let _guard = guard;
            pending().await
        };
        let ended = bounded(case, LIMIT, &interrupted).await.unwrap();
        assert!(ended.unwrap_err().is::<Skip>());
        assert!(dropped.load(Ordering::Relaxed));
        assert_eq!(planned.skip_now(&interrupted).as_deref(), Some("the run was interrupted"));
        let planned = Planned { skip: Some("no loop devices".to_owned()), ..planned };
        assert_eq!(planned.skip_now(&interrupted).as_deref(), Some("no loop devices"));
    }
}
