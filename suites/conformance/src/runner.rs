//! Runs cases: most of them in parallel, each with its own fixture, which is always cleaned up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::anyhow;
use claimcheck_csi::tap::NoResponse;
use claimcheck_model::{CaseId, CaseResult, Event};
use tokio::{
    sync::{Semaphore, mpsc::UnboundedSender},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    case::Schedule,
    driver_under_test::DriverUnderTest,
    expect::skip,
    fixture::{Finding, Fixture, Step},
    health::{DriverHealth, End, Unanswered},
    plan::Planned,
    rows::CREATE,
    spec,
    verdict::{Breaks, verdict},
};

/// The time limit of a case, as a multiple of the deadline of a call, in addition to the wait for snapshots.
const CALLS: u32 = 10;

/// Runs cases against one driver.
#[derive(Debug)]
pub struct Runner {
    driver: Arc<DriverUnderTest>,
    parallel: usize,
    /// A violated SHOULD fails its case.
    strict: bool,
    started: AtomicUsize,
    events: UnboundedSender<Event>,
    interrupted: CancellationToken,
}

/// The result of a case; emitted once it is final.
struct Ended {
    case: CaseId,
    result: CaseResult,
    seconds: f64,
    warnings: Vec<String>,
    /// The driver exited or hung, and this case is the cause.
    end: Option<End>,
}

/// A case that ran in parallel with others while the driver failed: it is run again serially.
struct Rerun {
    number: usize,
    planned: Planned,
    /// How the driver failed, and the calls of the case without a response.
    end: Option<End>,
    calls: Unanswered,
}

impl Runner {
    /// A runner of at most `parallel` cases at a time, fewer where a node accepts few volumes. If `strict`, a violated
    /// SHOULD fails its case. Once `interrupted`, running cases clean up and fail, and no more start.
    pub fn new(
        driver: Arc<DriverUnderTest>,
        parallel: usize,
        strict: bool,
        events: UnboundedSender<Event>,
        interrupted: CancellationToken,
    ) -> Arc<Self> {
        let parallel = driver.parallel(parallel);
        Arc::new(Self { driver, parallel, strict, started: AtomicUsize::new(0), events, interrupted })
    }

    /// Runs all cases, each in its phase.
    pub async fn run_all(self: &Arc<Self>, planned: &[Planned]) {
        for schedule in [Schedule::First, Schedule::Parallel, Schedule::Serial, Schedule::Last] {
            let due: Vec<Planned> =
                planned.iter().filter(|it| it.case.row.schedule == schedule).copied().collect();
            if schedule == Schedule::Parallel && self.parallel > 1 {
                self.run_parallel(due).await;
                continue;
            }
            for planned in due {
                let ended = self.run_serial(planned).await;
                self.emit(ended);
            }
        }
        self.driver.leave();
    }

    async fn run_parallel(self: &Arc<Self>, due: Vec<Planned>) {
        let places = Arc::new(Semaphore::new(self.parallel));
        let mut running = JoinSet::new();
        for (number, planned) in due.into_iter().enumerate() {
            let (runner, places) = (Arc::clone(self), Arc::clone(&places));
            running.spawn(async move {
                let _place = places.acquire_owned().await;
                runner.run(number, planned, true).await.map(|ended| runner.emit(ended))
            });
        }
        let mut again = Vec::new();
        while let Some(ended) = running.join_next().await {
            // A panic of a case is caught; a panic of the runner ends the run.
            again.extend(ended.expect("running a case does not panic").err());
        }
        again.sort_unstable_by_key(|again| again.number);
        let mut all = Vec::new();
        for again in &again {
            all.push(self.run_serial(again.planned).await);
        }
        // One case must report that the driver failed, even if only several concurrent cases cause it.
        if all.iter().all(|ended| ended.end.is_none())
            && let Some((first, ended)) = again.iter().zip(&mut all).find(|(again, _)| again.end.is_some())
        {
            let calls = again.iter().flat_map(|again| again.calls.clone()).collect();
            let end = first.end.as_ref().map(|end| end.describe(&calls)).unwrap_or_default();
            let why =
                format!("{end} while other cases ran in parallel; the case alone does not reproduce it");
            let outcome = Err(anyhow!(why)).breaks(spec::SERVICE);
            (ended.result, _) = verdict(first.planned.case.row.rule, outcome, &[], self.strict);
        }
        all.into_iter().for_each(|ended| self.emit(ended));
    }

    /// Runs a case serially. A case that makes the driver fail must do so twice: a driver may also exit because of an
    /// earlier case, after it returned.
    async fn run_serial(&self, planned: Planned) -> Ended {
        let first = self.attempt_serial(planned).await;
        let Some(end) = first.end.clone().filter(|_| {
            matches!(first.result, CaseResult::Failed { .. }) && self.driver.failures.gone().is_none()
        }) else {
            return first;
        };
        let mut second = self.attempt_serial(planned).await;
        if second.end.is_some() {
            return second;
        }
        let mut known = self.driver.known();
        if known.unanswered.values().all(|case| *case == first.case) {
            // No other case reports that the driver failed.
            return first;
        }
        known.unanswered.retain(|_, case| *case != first.case);
        drop(known);
        let end = end.describe(&Unanswered::new());
        second.warnings.push(format!("{end}, but not when the case was run again"));
        second
    }

    async fn attempt_serial(&self, planned: Planned) -> Ended {
        match self.run(0, planned, false).await {
            Ok(ended) => ended,
            Err(_) => unreachable!("a case that runs alone is not run again"),
        }
    }

    /// The reason for which a case is skipped, if it is.
    fn skip(&self, planned: Planned) -> Option<String> {
        let broken = || {
            let access = planned.case.access.or(self.driver.capabilities.accesses.first().copied())?;
            let known = self.driver.known();
            let case =
                known.broken.get(&(Step::Create, access)).filter(|case| **case != planned.case.id())?;
            planned.case.needs().find(|need| *need == CREATE)?;
            Some(format!("{} fails with this driver: see {case}", Step::Create))
        };
        let interrupted = || self.interrupted.is_cancelled().then(|| "the run was interrupted".to_owned());
        planned.skip().or_else(interrupted).or_else(|| self.driver.failures.gone()).or_else(broken)
    }

    async fn run(&self, number: usize, planned: Planned, parallel: bool) -> Result<Ended, Rerun> {
        let case = planned.case.id();
        if let Some(why) = self.skip(planned) {
            let result = CaseResult::Skipped { why };
            return Ok(Ended { case, result, seconds: 0.0, warnings: Vec::new(), end: None });
        }
        let began = Instant::now();
        self.send(Event::CaseStarted { case: case.clone(), namespace: String::new() });
        let unique = self.started.fetch_add(1, Ordering::Relaxed);
        let fixture = Arc::new(Fixture::new(Arc::clone(&self.driver), planned.case, unique));
        let mut outcome = self.bounded(planned, &fixture).await;
        let mut calls = fixture.unanswered();
        let mut health = self.driver.health_since(began, &calls).await;
        let late = outcome.is_err() && calls.iter().any(|(_, why)| *why == NoResponse::Late);
        let mut findings = fixture.clean_up().await;
        if health == DriverHealth::Healthy && !findings.is_empty() {
            // The cleanup also calls the driver.
            calls = fixture.unanswered();
            health = self.driver.health_since(began, &calls).await;
        }
        if parallel && !self.interrupted.is_cancelled() {
            match health {
                DriverHealth::Healthy if late => return Err(Rerun { number, planned, end: None, calls }),
                DriverHealth::Restarted(end) => return Err(Rerun { number, planned, end: Some(end), calls }),
                _ => {}
            }
        }
        let mut own = None;
        match health {
            DriverHealth::Healthy if late => {
                outcome = self.blame(&case, &calls, "times out", outcome.breaks(spec::SERVICE));
            }
            DriverHealth::Healthy => {}
            DriverHealth::Restarted(end) => {
                let failed = Err(anyhow!(end.describe(&calls))).breaks(spec::SERVICE);
                outcome = self.blame(&case, &calls, "makes the driver fail", failed);
                // Leftovers of a driver that exits during a call are part of the same defect.
                findings = findings.iter().map(|it| Finding::Warning(it.text().to_owned())).collect();
                own = Some(end);
            }
            DriverHealth::Lost(end, why) => {
                (outcome, own) = (Err(anyhow!(why)).breaks(spec::SERVICE), Some(end));
                findings.clear();
            }
            DriverHealth::Unavailable(why) => {
                outcome = Err(skip(why));
                findings.clear();
            }
        }
        let (failures, warnings): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| matches!(finding, Finding::Failure(_)));
        let warnings = warnings.iter().map(|it| it.text().to_owned()).chain(fixture.warnings());
        let (result, violation) = verdict(planned.case.row.rule, outcome, &failures, self.strict);
        let warnings = warnings.chain(violation).collect();
        Ok(Ended { case, result, seconds: began.elapsed().as_secs_f64(), warnings, end: own })
    }

    /// The outcome of a case with calls without a response, which is reported once per call.
    fn blame(
        &self,
        case: &CaseId,
        calls: &Unanswered,
        what: &str,
        outcome: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut known = self.driver.known();
        let reported = calls.iter().find_map(|(call, _)| Some((*call, known.unanswered.get(call)?.clone())));
        if let Some((call, by)) = reported.filter(|(_, by)| by != case) {
            return Err(skip(format!("{call} {what}: see {by}")));
        }
        known.unanswered.extend(calls.iter().map(|(call, _)| (*call, case.clone())));
        outcome
    }

    /// The function of the case, with a time limit and with panics caught.
    async fn bounded(&self, planned: Planned, fixture: &Arc<Fixture>) -> anyhow::Result<()> {
        let config = &self.driver.config;
        let limit = config.call_limit() * CALLS + Duration::from_secs(config.ready_timeout);
        let mut task = tokio::spawn((planned.case.row.run)(Arc::clone(fixture)));
        let ended = tokio::select! {
            ended = &mut task => {
                return ended.unwrap_or_else(|error| Err(anyhow!("the case panicked: {error}")).fatal());
            }
            () = tokio::time::sleep(limit) => anyhow!("the case took longer than {} s", limit.as_secs()),
            () = self.interrupted.cancelled() => anyhow!("the run was interrupted"),
        };
        task.abort();
        // Its calls are cancelled once the task has ended; only then are the leftovers known.
        let _ = task.await;
        Err(ended).fatal()
    }

    fn emit(&self, Ended { case, result, seconds, warnings, .. }: Ended) {
        for text in warnings {
            self.send(Event::Warning { case: case.clone(), text });
        }
        self.send(Event::CaseFinished { case, result, seconds });
    }

    fn send(&self, event: Event) {
        // An error means that the reporter has ended, which is reported elsewhere.
        let _ = self.events.send(event);
    }
}
