//! Runs cases: in parallel, or serially if they disturb others, each with its own fixture, cleanup and leak check.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::testdriver::TestDriver;
use anyhow::{Context, Result, anyhow, bail};
use claimcheck_cluster::{OwnNode, WaitError};
use claimcheck_engine::{Case as _, LastUse, Phase, Resting, Schedule, Skip, bounded, phases};
use claimcheck_harness::Session;
use claimcheck_model::{CaseId, CaseResult, Event};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info, info_span, warn};

use crate::{
    case::{Case, Planned},
    fixture::{self, Fixture},
    need::Need,
    steps::{self, FailedStep, Steps},
    workload::Workload,
};

/// How long cases clean up once the run is interrupted: who interrupts a run, or a CI server, kills it soon after.
const CLEAN_UP: Duration = Duration::from_secs(15);

/// Runs cases on one cluster.
pub struct Runner {
    session: Arc<Session>,
    /// Ordinary cases hold it for reading, a disruptive one for writing, since it would affect the others.
    alone: RwLock<()>,
    parallel: usize,
    /// The cases that only wait.
    resting: Resting,
    started: AtomicUsize,
    /// Prefix of all namespaces of this run, so that they differ from those of another run on the same cluster.
    prefix: String,
    workload: Workload,
    config: Option<Arc<TestDriver>>,
    /// What the cases have found at steps that others depend on.
    steps: Arc<Steps>,
    /// Of the additional drivers.
    last_use: LastUse,
    interrupted: CancellationToken,
}

impl Runner {
    /// A runner that runs at most `parallel` cases at a time. Once `interrupted`, running cases clean up and
    /// fail, and no more are started.
    pub fn new(
        session: Arc<Session>,
        parallel: usize,
        prefix: String,
        workload: Workload,
        config: Option<Arc<TestDriver>>,
        interrupted: CancellationToken,
    ) -> Self {
        let (alone, started, steps) = (RwLock::default(), AtomicUsize::new(0), Arc::new(Steps::new(true)));
        let last_use = LastUse::default();
        let resting = Resting::default();
        Self {
            session,
            alone,
            parallel,
            resting,
            started,
            prefix,
            workload,
            config,
            steps,
            last_use,
            interrupted,
        }
    }

    /// The same runner, which ends an additional driver after the last of these cases that uses it.
    #[must_use]
    pub fn ending_drivers_after(self, planned: &[Planned]) -> Self {
        Self { last_use: LastUse::of(planned), ..self }
    }

    /// The same runner, which waits for the result of each case, however often its driver returns an error: errors that
    /// are injected for some of the calls end at any time.
    #[must_use]
    pub fn with_passing_errors(mut self) -> Self {
        self.steps = Arc::new(Steps::new(false));
        self
    }

    /// A namespace of this run. Only these are observed.
    pub fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Runs all cases: ordinary ones first, then those that run alone.
    pub async fn run_all(&self, planned: &[Planned]) {
        let exclusives = self.session.cluster().drivers_at_a_time();
        for phase in phases(planned, self.parallel) {
            let resting = self.resting.clone();
            Phase { exclusives, resting, ..phase }.run(|planned| self.run(planned)).await;
        }
    }

    /// Runs or skips one case, and emits its events to the reporters.
    pub async fn run(&self, planned: &Planned) -> CaseResult {
        let result = self.run_case(planned).await;
        if let Some(driver) = planned.case.exclusive()
            && self.last_use.ended(driver, matches!(result, CaseResult::Failed { .. }))
        {
            self.session.cluster().end_driver(driver).await;
        }
        result
    }

    async fn run_case(&self, planned: &Planned) -> CaseResult {
        let case = planned.id();
        if let Some(reason) = planned.skip_now(&self.interrupted) {
            return self.finished(case, CaseResult::Skipped { reason }, Duration::ZERO);
        }
        if let Some(reason) = &planned.fail {
            return self.finished(case, CaseResult::failed(reason.clone()), Duration::ZERO);
        }
        let (_together, _alone);
        if planned.schedule == Schedule::Serial {
            _alone = self.alone.write().await;
        } else {
            _together = self.alone.read().await;
        }
        let node = match self.own_node(planned).await {
            Ok(node) => node,
            Err(error) => {
                return self.finished(case, CaseResult::failed(format!("{error:#}")), Duration::ZERO);
            }
        };
        let began = Instant::now();
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let namespace = self.namespace(&format!("{}-{number}", case.suite.replace('_', "-")));
        self.session.emit(Event::CaseStarted { case: case.clone(), namespace: namespace.clone() });
        let span = info_span!("case", %case, namespace);
        span.in_scope(|| info!("begins"));
        let result = match self.attempt(&planned.case, &case, namespace, node).instrument(span.clone()).await
        {
            Ok(()) => CaseResult::Passed,
            Err(error) => match (error.downcast_ref::<Skip>(), error.downcast_ref::<Failure>()) {
                (Some(skip), _) => CaseResult::Skipped { reason: skip.to_string() },
                (None, Some(Failure { reason, cause })) => {
                    CaseResult::Failed { reason: reason.clone(), cause: cause.clone() }
                }
                (None, None) => CaseResult::failed(format!("{error:#}")),
            },
        };
        span.in_scope(|| match &result {
            CaseResult::Failed { reason, .. } => warn!(reason, "failed"),
            CaseResult::Passed | CaseResult::Skipped { .. } => info!(?result, "ended"),
        });
        self.finished(case, result, began.elapsed())
    }

    fn finished(&self, case: CaseId, result: CaseResult, took: Duration) -> CaseResult {
        let seconds = took.as_secs_f64();
        self.session.emit(Event::CaseFinished { case, result: result.clone(), seconds });
        result
    }

    /// Resolves some time after the run is interrupted.
    async fn clean_up_is_over(&self) {
        self.interrupted.cancelled().await;
        tokio::time::sleep(CLEAN_UP).await;
    }

    /// A node of its own for a case that disturbs one and runs together with others.
    async fn own_node(&self, planned: &Planned) -> Result<Option<OwnNode>> {
        if planned.schedule == Schedule::Serial || !planned.case.needs.contains(&Need::OwnNode) {
            return Ok(None);
        }
        let _rest = self.resting.rest();
        Ok(Some(self.session.cluster().own_node().await?))
    }

    async fn attempt(
        &self,
        case: &Case,
        id: &CaseId,
        namespace: String,
        own_node: Option<OwnNode>,
    ) -> Result<()> {
        let (session, workload, config) = (self.session.clone(), self.workload.clone(), self.config.clone());
        // Another driver than that of the other cases.
        let steps = case.exclusive().is_none().then(|| self.steps.clone());
        let new = Fixture::new(session, id.clone(), case.pattern, namespace, workload, config, steps);
        let fixture = new.await?;
        let fixture = Arc::new(fixture.among_others(own_node, self.resting.clone()));
        let limit = case.test.limit(fixture.step());
        let ended = bounded(case.test.run(fixture.clone()), limit, &self.interrupted).await;
        let outcome = match ended.map_err(anyhow::Error::from).flatten() {
            Ok(()) => Ok(()),
            Err(skip) if skip.is::<Skip>() => Err(skip),
            // Before the cleanup, since the Events of the objects contain the driver's error messages.
            Err(error) => {
                fixture.retire_own_node();
                let evidence = fixture.evidence().await;
                let warnings: String =
                    fixture::warnings(&evidence).map(|warning| format!("\n{warning}")).collect();
                self.session.emit(Event::FailureDump(evidence));
                let (reason, cause) = (format!("{error:#}{warnings}"), cause_of(&error));
                Err(Failure { reason, cause }.into())
            }
        };
        // Also after a failure, so that the next case finds a clean cluster.
        let cleaned = tokio::select! {
            cleaned = fixture.clean_up() => cleaned.context("cleanup of the case failed"),
            () = self.clean_up_is_over() => {
                Err(anyhow!("the cleanup of the case was ended after {} s", CLEAN_UP.as_secs()))
            }
        };
        if let Err(error) = &cleaned
            && self.interrupted.is_cancelled()
        {
            let left = format!("the run was interrupted: {error:#}; left: {}", fixture.remains());
            return Err(match outcome.err().and_then(|error| error.downcast::<Failure>().ok()) {
                Some(Failure { reason, cause }) => Failure { reason: format!("{reason}\n{left}"), cause },
                None => Failure { reason: left, cause: None },
            }
            .into());
        }
        // An interrupted run does not wait for the cluster to settle.
        let leaks = tokio::select! {
            leaks = fixture.leaks() => leaks?,
            () = self.interrupted.cancelled() => Vec::new(),
        };
        for leak in &leaks {
            self.session.emit(Event::Leak(leak.clone()));
        }
        outcome.and(cleaned)?;
        if let Some(first) = leaks.first() {
            let names: Vec<String> =
                leaks.iter().map(|leak| format!("{} {}", leak.kind.name(), leak.name)).collect();
            bail!(
                "{} leaked objects after {} s of settling time, the first of kind {}: {}",
                leaks.len(),
                self.session.cluster().settling_time().as_secs(),
                first.kind.name(),
                names.join(", ")
            );
        }
        Ok(())
    }
}

/// A case that failed.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
struct Failure {
    reason: String,
    cause: Option<String>,
}

/// What a failure has in common with those of other cases, if that is known.
fn cause_of(error: &anyhow::Error) -> Option<String> {
    if let Some(WaitError::Denied { denial, .. }) = error.downcast_ref() {
        return Some(denial.clone());
    }
    let FailedStep { step, refusal, .. } = error.downcast_ref()?;
    Some(steps::cause(*step, refusal.as_ref()?))
}
