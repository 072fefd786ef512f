//! Runs cases: most of them many at a time; each with its own fixture, cleaned up whatever happened.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use claimcheck_model::{CaseResult, Event};
use tokio::{
    sync::{Semaphore, mpsc::UnboundedSender},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    case::When,
    expect::Skip,
    fixture::{Finding, Fixture},
    plan::Planned,
    suite::Suite,
};

/// As many times the deadline of a call may a case take, beside the wait for snapshots.
const CALLS: u32 = 10;

/// Runs cases on one driver.
#[derive(Debug)]
pub struct Runner {
    suite: Arc<Suite>,
    parallel: usize,
    started: AtomicUsize,
    events: UnboundedSender<Event>,
    interrupted: CancellationToken,
}

/// Where a case has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Its result is told.
    Told,
    /// Nothing is told: what it has found may be another's doing.
    Again,
}

impl Runner {
    /// A runner of at most `parallel` cases at a time. Once `interrupted`, cases under way clean up and fail,
    /// and no more begin.
    pub fn new(
        suite: Arc<Suite>,
        parallel: usize,
        events: UnboundedSender<Event>,
        interrupted: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self { suite, parallel, started: AtomicUsize::new(0), events, interrupted })
    }

    /// Runs all of them, each at its time.
    pub async fn run_all(self: &Arc<Self>, planned: &[Planned]) {
        for when in [When::First, When::Together, When::Alone, When::Last] {
            let parallel = if when == When::Together { self.parallel.max(1) } else { 1 };
            let places = Arc::new(Semaphore::new(parallel));
            let mut running = JoinSet::new();
            for &planned in planned.iter().filter(|planned| planned.case.row.when == when) {
                let (runner, places) = (Arc::clone(self), Arc::clone(&places));
                running.spawn(async move {
                    let _place = places.acquire_owned().await;
                    let ended = runner.run(planned, parallel > 1).await;
                    (ended == Ended::Again).then_some(planned)
                });
            }
            let mut again = Vec::new();
            // A panic of the case itself is caught below; of ours, it shall end the run.
            while let Some(ended) = running.join_next().await {
                again.extend(ended.expect("running a case does not panic"));
            }
            for planned in again {
                self.run(planned, false).await;
            }
        }
    }

    /// A case that fails while the driver ends by itself may not have been the cause if others ran `together`
    /// with it: it is to be run again, alone.
    async fn run(&self, planned: Planned, together: bool) -> Ended {
        let case = planned.case.id();
        let skip = planned
            .skip()
            .or_else(|| self.interrupted.is_cancelled().then(|| "the run was interrupted".to_owned()));
        if let Some(why) = skip {
            self.tell(Event::CaseFinished { case, result: CaseResult::Skipped { why }, seconds: 0.0 });
            return Ended::Told;
        }
        let began = Instant::now();
        self.tell(Event::CaseStarted { case: case.clone(), namespace: String::new() });
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let fixture = Arc::new(Fixture::new(Arc::clone(&self.suite), planned.case, number));
        let mut outcome = self.bounded(planned, &fixture).await;
        if let Err(error) = &outcome
            && let Some(how) =
                self.suite.ended_since(began).await.unwrap_or_else(|error| Some(error.to_string()))
        {
            if together {
                fixture.clean_up().await;
                return Ended::Again;
            }
            outcome = Err(anyhow!("the driver's process ended by itself in a call ({how}): {error:#}"));
        }
        let mut findings: Vec<Finding> = fixture.clean_up().await;
        findings.extend(fixture.remarks().into_iter().map(Finding::Remark));
        let (failures, remarks): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| matches!(finding, Finding::Failure(_)));
        if together && !failures.is_empty() && matches!(self.suite.ended_since(began).await, Ok(Some(_))) {
            return Ended::Again;
        }
        for remark in remarks {
            self.tell(Event::Remark { case: case.clone(), text: remark.text().to_owned() });
        }
        let result = result(planned, outcome, &failures);
        self.tell(Event::CaseFinished { case, result, seconds: began.elapsed().as_secs_f64() });
        Ended::Told
    }

    /// The case's own function, bounded in time and with its panics caught.
    async fn bounded(&self, planned: Planned, fixture: &Arc<Fixture>) -> Result<()> {
        let config = &self.suite.config;
        let limit = config.call_limit() * CALLS + Duration::from_secs(config.ready_timeout);
        let mut task = tokio::spawn((planned.case.row.run)(Arc::clone(fixture)));
        let ended = tokio::select! {
            ended = &mut task => return ended.unwrap_or_else(|error| Err(anyhow!("the case panicked: {error}"))),
            () = tokio::time::sleep(limit) => anyhow!("the case took longer than {} s", limit.as_secs()),
            () = self.interrupted.cancelled() => anyhow!("the run was interrupted"),
        };
        task.abort();
        // Its calls are cancelled once it is gone, and only then is it known what is left.
        let _ = task.await;
        Err(ended)
    }

    fn tell(&self, event: Event) {
        // An error says that the reporter is gone, which its own end reports.
        let _ = self.events.send(event);
    }
}

/// How a case ended; what was left behind is part of it.
fn result(planned: Planned, outcome: Result<()>, left: &[Finding]) -> CaseResult {
    let mut why = match outcome {
        Ok(()) if left.is_empty() => return CaseResult::Passed,
        Ok(()) => String::new(),
        Err(error) => match error.downcast_ref::<Skip>() {
            Some(skip) if left.is_empty() => return CaseResult::Skipped { why: skip.to_string() },
            Some(_) => String::new(),
            None => format!("{error:#}"),
        },
    };
    for left in left {
        let line = format!("left behind: {}", left.text());
        why = if why.is_empty() { line } else { format!("{why}\n{line}") };
    }
    CaseResult::Failed { why: format!("{why}\nrule: CSI specification, {}", planned.case.row.rule) }
}
