//! Runs cases: most of them many at a time; each with its own fixture, cleaned up whatever happened.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::anyhow;
use claimcheck_csi::tap::NoAnswer;
use claimcheck_model::{CaseId, CaseResult, Event};
use tokio::{
    sync::{Semaphore, mpsc::UnboundedSender},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    case::When,
    expect::{Skip, skip},
    fixture::{Finding, Fixture, Step},
    life::{End, Life, Unanswered},
    plan::Planned,
    rows::CREATE,
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

/// How a case has ended; told once it is settled that it stays so.
struct Ended {
    case: CaseId,
    result: CaseResult,
    seconds: f64,
    remarks: Vec<String>,
    /// The driver ended, and this case is the reason.
    end: Option<End>,
}

/// A case that ran together with others while something befell the driver: it is run again, alone.
struct Again {
    number: usize,
    planned: Planned,
    /// The driver ended, and which calls of the case it did not answer.
    end: Option<End>,
    calls: Unanswered,
}

impl Runner {
    /// A runner of at most `parallel` cases at a time, fewer where a node takes few volumes. Once `interrupted`, cases under way clean up and fail,
    /// and no more begin.
    pub fn new(
        suite: Arc<Suite>,
        parallel: usize,
        events: UnboundedSender<Event>,
        interrupted: CancellationToken,
    ) -> Arc<Self> {
        let parallel = suite.parallel(parallel);
        Arc::new(Self { suite, parallel, started: AtomicUsize::new(0), events, interrupted })
    }

    /// Runs all of them, each at its time.
    pub async fn run_all(self: &Arc<Self>, planned: &[Planned]) {
        for when in [When::First, When::Together, When::Alone, When::Last] {
            let due: Vec<Planned> = planned.iter().filter(|it| it.case.row.when == when).copied().collect();
            if when == When::Together && self.parallel > 1 {
                self.run_together(due).await;
                continue;
            }
            for planned in due {
                let ended = self.run_alone(planned).await;
                self.tell(ended);
            }
        }
        self.suite.leave();
    }

    async fn run_together(self: &Arc<Self>, due: Vec<Planned>) {
        let places = Arc::new(Semaphore::new(self.parallel));
        let mut running = JoinSet::new();
        for (number, planned) in due.into_iter().enumerate() {
            let (runner, places) = (Arc::clone(self), Arc::clone(&places));
            running.spawn(async move {
                let _place = places.acquire_owned().await;
                runner.run(number, planned, true).await.map(|ended| runner.tell(ended))
            });
        }
        let mut again = Vec::new();
        while let Some(ended) = running.join_next().await {
            // A panic of the case itself is caught; of ours, it shall end the run.
            again.extend(ended.expect("running a case does not panic").err());
        }
        again.sort_unstable_by_key(|again| again.number);
        let mut all = Vec::new();
        for again in &again {
            all.push(self.run_alone(again.planned).await);
        }
        // Somebody must say that the driver ended, also where it needs several cases at once to do so.
        if all.iter().all(|ended| ended.end.is_none())
            && let Some((first, ended)) = again.iter().zip(&mut all).find(|(again, _)| again.end.is_some())
        {
            let calls = again.iter().flat_map(|again| again.calls.clone()).collect();
            let end = first.end.as_ref().map(|end| end.told(&calls)).unwrap_or_default();
            let why = format!("with other cases at the same time {end}; alone this one does not end it");
            ended.result = CaseResult::Failed { why: with_rule(why, first.planned) };
        }
        all.into_iter().for_each(|ended| self.tell(ended));
    }

    /// Runs a case with no other at the same time. One that ends the driver must do so twice: a driver may also die
    /// of what an earlier case has asked, after it has answered.
    async fn run_alone(&self, planned: Planned) -> Ended {
        let first = self.attempt_alone(planned).await;
        let Some(end) = first.end.clone().filter(|_| {
            matches!(first.result, CaseResult::Failed { .. }) && self.suite.ends.gone().is_none()
        }) else {
            return first;
        };
        let mut second = self.attempt_alone(planned).await;
        if second.end.is_some() {
            return second;
        }
        let mut known = self.suite.known();
        if known.unanswered.values().all(|case| *case == first.case) {
            // Nobody else has told an end of the driver, and it has ended.
            return first;
        }
        known.unanswered.retain(|_, case| *case != first.case);
        drop(known);
        let end = end.told(&Unanswered::new());
        second.remarks.push(format!("{end}, and did not when the case was run again"));
        second
    }

    async fn attempt_alone(&self, planned: Planned) -> Ended {
        match self.run(0, planned, false).await {
            Ok(ended) => ended,
            Err(_) => unreachable!("a case that runs alone is not run again"),
        }
    }

    /// Why a case is not begun, if it is not.
    fn skip(&self, planned: Planned) -> Option<String> {
        let broken = || {
            let access = planned.case.access.or(self.suite.offers.accesses.first().copied())?;
            let known = self.suite.known();
            let case =
                known.broken.get(&(Step::Create, access)).filter(|case| **case != planned.case.id())?;
            planned.case.needs().find(|need| *need == CREATE)?;
            Some(format!("{} does not work with this driver: see {case}", Step::Create))
        };
        let interrupted = || self.interrupted.is_cancelled().then(|| "the run was interrupted".to_owned());
        planned.skip().or_else(interrupted).or_else(|| self.suite.ends.gone()).or_else(broken)
    }

    async fn run(&self, number: usize, planned: Planned, together: bool) -> Result<Ended, Again> {
        let case = planned.case.id();
        if let Some(why) = self.skip(planned) {
            let result = CaseResult::Skipped { why };
            return Ok(Ended { case, result, seconds: 0.0, remarks: Vec::new(), end: None });
        }
        let began = Instant::now();
        self.send(Event::CaseStarted { case: case.clone(), namespace: String::new() });
        let unique = self.started.fetch_add(1, Ordering::Relaxed);
        let fixture = Arc::new(Fixture::new(Arc::clone(&self.suite), planned.case, unique));
        let mut outcome = self.bounded(planned, &fixture).await;
        let mut calls = fixture.unanswered();
        let mut life = self.suite.life_since(began, &calls).await;
        let late = outcome.is_err() && calls.iter().any(|(_, why)| *why == NoAnswer::Late);
        let mut findings = fixture.clean_up().await;
        if life == Life::Well && !findings.is_empty() {
            // Cleaning up calls the driver, too.
            calls = fixture.unanswered();
            life = self.suite.life_since(began, &calls).await;
        }
        if together && !self.interrupted.is_cancelled() {
            match life {
                Life::Well if late => return Err(Again { number, planned, end: None, calls }),
                Life::Ended(end) => return Err(Again { number, planned, end: Some(end), calls }),
                _ => {}
            }
        }
        let mut own = None;
        match life {
            Life::Well if late => outcome = self.blame(&case, &calls, "is not answered in time", outcome),
            Life::Well => {}
            Life::Ended(end) => {
                outcome = self.blame(&case, &calls, "ends the driver", Err(anyhow!(end.told(&calls))));
                // What a driver leaves that dies in mid-call is part of the same defect.
                findings = findings.into_iter().map(|it| Finding::Remark(it.into_text())).collect();
                own = Some(end);
            }
            Life::Gone(end, why) => {
                (outcome, own) = (Err(anyhow!(why)), Some(end));
                findings.clear();
            }
            Life::NotThere(why) => {
                outcome = Err(skip(why));
                findings.clear();
            }
        }
        let (failures, remarks): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| matches!(finding, Finding::Failure(_)));
        let remarks = remarks.into_iter().map(Finding::into_text).chain(fixture.remarks()).collect();
        let result = result(planned, outcome, &failures);
        Ok(Ended { case, result, seconds: began.elapsed().as_secs_f64(), remarks, end: own })
    }

    /// The outcome of a case whose calls were not answered, which is told once for each call.
    fn blame(
        &self,
        case: &CaseId,
        calls: &Unanswered,
        what: &str,
        outcome: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut known = self.suite.known();
        let told = calls.iter().find_map(|(call, _)| Some((*call, known.unanswered.get(call)?.clone())));
        if let Some((call, by)) = told.filter(|(_, by)| by != case) {
            return Err(skip(format!("{call} {what}: see {by}")));
        }
        known.unanswered.extend(calls.iter().map(|(call, _)| (*call, case.clone())));
        outcome
    }

    /// The case's own function, bounded in time and with its panics caught.
    async fn bounded(&self, planned: Planned, fixture: &Arc<Fixture>) -> anyhow::Result<()> {
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

    fn tell(&self, Ended { case, result, seconds, remarks, .. }: Ended) {
        for text in remarks {
            self.send(Event::Remark { case: case.clone(), text });
        }
        self.send(Event::CaseFinished { case, result, seconds });
    }

    fn send(&self, event: Event) {
        // An error says that the reporter is gone, which its own end reports.
        let _ = self.events.send(event);
    }
}

/// How a case ended; what was left behind is part of it.
fn result(planned: Planned, outcome: anyhow::Result<()>, left: &[Finding]) -> CaseResult {
    let mut why = match outcome {
        Ok(()) if left.is_empty() => return CaseResult::Passed,
        Ok(()) => String::new(),
        Err(error) => match error.downcast_ref::<Skip>() {
            Some(skip) if left.is_empty() => return CaseResult::Skipped { why: skip.to_string() },
            Some(_) => String::new(),
            None => format!("{error:#}"),
        },
    };
    for Finding::Failure(left) | Finding::Remark(left) in left {
        let line = format!("left behind: {left}");
        why = if why.is_empty() { line } else { format!("{why}\n{line}") };
    }
    CaseResult::Failed { why: with_rule(why, planned) }
}

fn with_rule(why: String, planned: Planned) -> String {
    format!("{why}\nrule: CSI specification, {}", planned.case.row.rule)
}
