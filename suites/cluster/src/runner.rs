//! Runs cases: ordinary ones in parallel, disruptive ones serially, each with its own fixture, cleanup and leak check.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::testdriver::TestDriver;
use anyhow::{Context, Result, anyhow, bail};
use claimcheck_harness::Session;
use claimcheck_model::{CaseId, CaseResult, Event};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info, info_span, warn};

use crate::{
    case::{Case, Skip},
    fixture::{self, Fixture, Variant},
    plan::Planned,
    workload::Workload,
};

/// The time limit of a case, as a multiple of the limit of one step.
const STEPS: u32 = 3;

/// Runs cases on one cluster.
pub struct Runner {
    session: Arc<Session>,
    /// Ordinary cases hold it for reading, a disruptive one for writing, since it would affect the others.
    alone: RwLock<()>,
    parallel: usize,
    started: AtomicUsize,
    /// Prefix of all namespaces of this run, so that they differ from those of another run on the same cluster.
    prefix: String,
    workload: Workload,
    config: Option<Arc<TestDriver>>,
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
        let (alone, started) = (RwLock::default(), AtomicUsize::new(0));
        let parallel = parallel.max(1);
        Self { session, alone, parallel, started, prefix, workload, config, interrupted }
    }

    /// Runs all cases: ordinary ones first, then those that run alone. Returns the results in the order of completion.
    pub async fn run_all(&self, planned: &[Planned]) -> Vec<(CaseId, CaseResult)> {
        let (alone, mut waiting): (Vec<_>, Vec<_>) =
            planned.iter().partition(|planned| planned.case.needs.disrupt);
        let mut results = Vec::with_capacity(planned.len());
        let mut running = FuturesUnordered::new();
        let mut taken = Vec::new();
        loop {
            while running.len() < self.parallel
                && let Some(next) = next(&waiting, &taken)
            {
                let planned = waiting.remove(next);
                let variant = planned.case.needs.variant;
                taken.extend(variant);
                running.push(async move { (self.run(planned).await, variant) });
            }
            let Some((result, variant)) = running.next().await else { break };
            taken.retain(|taken| Some(*taken) != variant);
            results.push(result);
        }
        for planned in alone {
            results.push(self.run(planned).await);
        }
        results
    }

    /// Runs or skips one case, and emits its events to the reporters.
    pub async fn run(&self, planned: &Planned) -> (CaseId, CaseResult) {
        let case = planned.case.id();
        let skip = match &planned.skip {
            Some(why) => Some(why.clone()),
            None if self.interrupted.is_cancelled() => Some("the run was interrupted".to_owned()),
            None => None,
        };
        if let Some(why) = skip {
            return self.finished(case, CaseResult::Skipped { why }, Duration::ZERO);
        }
        let (_together, _alone);
        if planned.case.needs.disrupt {
            _alone = self.alone.write().await;
        } else {
            _together = self.alone.read().await;
        }
        let began = Instant::now();
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{}-{}-{number}", self.prefix, case.suite.replace('_', "-"));
        self.session.emit(Event::CaseStarted { case: case.clone(), namespace: namespace.clone() });
        let span = info_span!("case", %case, namespace);
        span.in_scope(|| info!("begins"));
        let result = match self.attempt(&planned.case, &case, namespace).instrument(span.clone()).await {
            Ok(()) => CaseResult::Passed,
            Err(error) if error.is::<Skip>() => CaseResult::Skipped { why: error.to_string() },
            Err(error) => CaseResult::Failed { why: format!("{error:#}") },
        };
        span.in_scope(|| match &result {
            CaseResult::Failed { why } => warn!(why, "failed"),
            CaseResult::Passed | CaseResult::Skipped { .. } => info!(?result, "ended"),
        });
        self.finished(case, result, began.elapsed())
    }

    fn finished(&self, case: CaseId, result: CaseResult, took: Duration) -> (CaseId, CaseResult) {
        let seconds = took.as_secs_f64();
        self.session.emit(Event::CaseFinished { case: case.clone(), result: result.clone(), seconds });
        (case, result)
    }

    async fn attempt(&self, case: &Case, id: &CaseId, namespace: String) -> Result<()> {
        let (session, workload, config) = (self.session.clone(), self.workload.clone(), self.config.clone());
        let fixture = Fixture::new(session, id.clone(), case.pattern, namespace, workload, config).await?;
        let fixture = Arc::new(fixture);
        let outcome = match self.bounded(case, fixture.clone()).await {
            Ok(()) => Ok(()),
            Err(skip) if skip.is::<Skip>() => Err(skip),
            // Before the cleanup, since the Events of the objects contain the driver's error messages.
            Err(error) => {
                let evidence = fixture.evidence().await;
                let warnings: String =
                    fixture::warnings(&evidence).map(|warning| format!("\n{warning}")).collect();
                self.session.emit(Event::Evidence(evidence));
                Err(anyhow!("{error:#}{warnings}"))
            }
        };
        // Also after a failure, so that the next case finds a clean cluster.
        let cleaned = fixture.clean_up().await.context("cleanup of the case failed");
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

    /// Runs the case's function with a time limit and catches its panics.
    async fn bounded(&self, case: &Case, fixture: Arc<Fixture>) -> Result<()> {
        let limit = self.session.cluster().step_timeout() * STEPS;
        let run = AssertUnwindSafe((case.run)(fixture)).catch_unwind();
        tokio::select! {
            result = tokio::time::timeout(limit, run) => match result {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => bail!("the case panicked: {}", words(&*panic)),
                Err(_) => bail!("the case took longer than {} s", limit.as_secs()),
            },
            () = self.interrupted.cancelled() => bail!("the run was interrupted"),
        }
    }
}

/// The first case that does not have to wait for a driver in use: a waiting case would occupy a slot and do nothing.
fn next(waiting: &[&Planned], taken: &[Variant]) -> Option<usize> {
    let waits = |planned: &&Planned| planned.case.needs.variant.is_some_and(|wanted| taken.contains(&wanted));
    waiting.iter().position(|planned| !waits(planned))
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::catalogue;

    #[test]
    fn cases_that_wait_for_a_driver_do_not_occupy_slots() {
        let of = |variant: Option<Variant>| {
            let case = catalogue().into_iter().find(|case| case.needs.variant == variant).unwrap();
            Planned { case, skip: None }
        };
        let (zoned, small, any) = (of(Some(Variant::Zoned)), of(Some(Variant::Small)), of(None));
        let waiting = [&zoned, &small, &any];
        assert_eq!(next(&waiting, &[]), Some(0));
        assert_eq!(next(&waiting, &[Variant::Zoned]), Some(1));
        assert_eq!(next(&waiting, &[Variant::Zoned, Variant::Small]), Some(2));
        assert_eq!(next(&waiting[..2], &[Variant::Small, Variant::Zoned]), None);
    }
}
