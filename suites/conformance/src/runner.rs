//! Runs cases: most of them in parallel, each with its own fixture, which is always cleaned up.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::anyhow;
use claimcheck_csi::tap::NoResponse;
use claimcheck_engine::{Case as _, Phase, Resting, Schedule, bounded, phases, skip};
use claimcheck_model::{CaseId, CaseResult, Event};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::{
    case::{Case, Planned, Run},
    driver_under_test::{DriverUnderTest, Known},
    effect::Effect,
    expect::{Required, WrongStatus},
    fixture::{Clue, FailedStep, Finding, Fixture, Hint, Step, Trace, case_of, kind_of},
    health::{DriverHealth, End, Unanswered},
    rows::CREATE,
    spec,
    verdict::{Breaks, is_failure, is_violation, verdict, wrong_status},
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
    /// Cases of the phase that are run again: what they establish is not known before.
    again: Mutex<Vec<Case>>,
    /// Cases that failed only because of what they left behind, until all cases have run that may report the cause.
    held: Mutex<Vec<Ended>>,
    /// The fixtures of cases that have prepared something before the others, with the result, until they run.
    prepared: Mutex<BTreeMap<CaseId, Prepared>>,
}

/// The fixture of a case that has prepared something, and the result.
type Prepared = (Arc<Fixture>, anyhow::Result<()>);

/// The result of a case; emitted once it is final.
#[derive(Debug)]
struct Ended {
    case: CaseId,
    result: CaseResult,
    seconds: f64,
    warnings: Vec<String>,
    /// The driver exited or hung, and this case is the cause.
    end: Option<End>,
    /// What the case left behind, if that is its only failure.
    left: Vec<Finding>,
    /// The case found what is only a warning.
    is_violation: bool,
}

/// Whether cases of this phase or a later one may establish effects.
fn is_early(schedule: Schedule) -> bool {
    matches!(schedule, Schedule::First | Schedule::Parallel)
}

/// A finding of a case; a warning, if another case reports its cause. As long as cases may still report that an effect
/// is absent (`early`), the case that found a leftover first may not be the one that reports it.
fn attributed(known: &Known, case: &CaseId, finding: Finding, early: bool) -> Finding {
    let Finding::Leftover(trace, _) = &finding else { return finding };
    match reported_by(known, case, *trace, early) {
        Some(other) => Finding::Warning(format!("{trace}: {}", other.reference())),
        None => finding,
    }
}

/// The other case that reports why something is left behind: the one that establishes the absent effect, or else the
/// first that found it.
fn reported_by<'a>(known: &'a Known, case: &CaseId, trace: Trace, early: bool) -> Option<&'a CaseId> {
    let effects = trace.explained_by();
    let absent = |effect: &Effect| known.absent_effects.get(*effect, trace.access());
    let first = || known.traces.get(&trace).filter(|_| !early || effects.is_empty());
    let other = effects.iter().find_map(absent).map(|absence| &absence.case).or_else(first);
    other.filter(|other| *other != case)
}

/// The cause of a finding, if it quotes an error that has another cause than the request. A case that is about several
/// calls may find more than one that is not implemented.
fn clue(fixture: &Fixture, outcome: &anyhow::Result<()>) -> Option<Clue> {
    let error = outcome.as_ref().err().filter(|_| is_violation(outcome))?;
    let clue = fixture.clue(&format!("{error:#}"))?;
    let wrong = wrong_status(error);
    let is_cause = match &clue.hint {
        Hint::Unimplemented => wrong.is_some_and(WrongStatus::is_unimplemented),
        // A finding about something else as well has a cause of its own.
        Hint::Same(kind) => wrong.is_some_and(|wrong| wrong.is_only(kind)),
        Hint::Foreign(_) | Hint::Full | Hint::Denied => true,
    };
    is_cause.then_some(clue)
}

/// A case that ran in parallel with others while the driver or a step failed, or that depends on such a case: it is run
/// again serially.
struct Rerun<'a> {
    planned: &'a Planned,
    /// How the driver failed, and the calls of the case without a response.
    end: Option<End>,
    calls: Unanswered,
    /// What failed perhaps only because of the other cases.
    failed: Option<&'static str>,
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
    ) -> Self {
        let parallel = driver.parallel(parallel);
        let (started, again) = (AtomicUsize::new(0), Mutex::default());
        let (held, prepared) = (Mutex::default(), Mutex::default());
        Self { driver, parallel, strict, started, events, interrupted, again, held, prepared }
    }

    /// Runs all cases, each in its phase.
    pub async fn run_all(&self, planned: &[Planned]) {
        let mut is_prepared = false;
        for phase in phases(planned, self.parallel) {
            if phase.schedule != Schedule::First && !std::mem::replace(&mut is_prepared, true) {
                self.prepare(planned).await;
            }
            if phase.parallel > 1 {
                self.run_parallel(&phase).await;
            } else {
                phase.run(|planned| async move { self.end(self.run_serial(planned).await) }).await;
            }
            if phase.schedule == Schedule::Parallel {
                self.emit_held();
            }
        }
        let unused = std::mem::take(&mut *self.prepared());
        for (fixture, _) in unused.into_values() {
            // Its case was skipped, so that no case can report a finding.
            fixture.clean_up().await;
        }
        self.driver.leave();
    }

    fn prepared(&self) -> MutexGuard<'_, BTreeMap<CaseId, Prepared>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets cases prepare what they check after the others.
    async fn prepare(&self, planned: &[Planned]) {
        for planned in planned {
            let Some(prepare) = planned.case.row.prepare.filter(|_| self.skip(planned).is_none()) else {
                continue;
            };
            let (began, fixture) = (Instant::now(), self.fixture(planned));
            let prepared = self.bounded(prepare, &fixture).await;
            // A driver that fails must run again for the other cases, which report it.
            self.driver.health_since(began, &fixture.unanswered()).await;
            self.prepared().insert(planned.id(), (fixture, prepared));
        }
    }

    /// A new fixture for a case.
    fn fixture(&self, planned: &Planned) -> Arc<Fixture> {
        let unique = self.started.fetch_add(1, Ordering::Relaxed);
        Arc::new(Fixture::new(Arc::clone(&self.driver), planned.case, unique))
    }

    async fn run_parallel(&self, phase: &Phase<'_, Case>) {
        let attempts =
            phase.run(|planned| async move { self.attempt(planned).await.map(|ended| self.end(ended)) });
        let again: Vec<Rerun<'_>> = attempts.await.into_iter().filter_map(Result::err).collect();
        let cases = again.iter().map(|again| again.planned).collect();
        let serially = Phase { cases, parallel: 1, resting: Resting::default(), ..*phase };
        let mut all = serially.run(|planned| self.run_serial(planned)).await;
        for (again, ended) in again.iter().zip(&mut all) {
            let passed = ended.result == CaseResult::Passed && !ended.is_violation;
            if let Some(failed) = again.failed.filter(|_| passed) {
                ended.warnings.push(format!(
                    "{failed} failed while other cases ran in parallel, but not when the case was run alone"
                ));
            }
        }
        // One case must report that the driver failed, even if only several concurrent cases cause it.
        if all.iter().all(|ended| ended.end.is_none())
            && let Some((first, ended)) = again.iter().zip(&mut all).find(|(again, _)| again.end.is_some())
        {
            let calls = again.iter().flat_map(|again| again.calls.clone()).collect();
            let end = first.end.as_ref().map(|end| end.describe(&calls)).unwrap_or_default();
            let reason =
                format!("{end} while other cases ran in parallel; the case alone does not reproduce it");
            let outcome = Err(anyhow!(reason)).breaks(spec::SERVICE);
            (ended.result, _) = verdict(first.planned.case.row.rule, outcome, &[], self.strict);
            ended.left.clear();
        }
        all.into_iter().for_each(|ended| self.end(ended));
    }

    /// Runs a case in parallel with others, unless it depends on one that is run again.
    async fn attempt<'a>(&self, planned: &'a Planned) -> Result<Ended, Rerun<'a>> {
        let again = || self.again.lock().unwrap_or_else(PoisonError::into_inner);
        let depends = again().iter().any(|other| planned.case.waits_for(other));
        let ended = match depends {
            true => Err(Rerun { planned, end: None, calls: Unanswered::new(), failed: None }),
            false => self.run(planned, true).await,
        };
        if ended.is_err() {
            again().push(planned.case);
        }
        ended
    }

    /// Runs a case serially. A case that makes the driver fail must do so twice: a driver may also exit because of an
    /// earlier case, after it returned.
    async fn run_serial(&self, planned: &Planned) -> Ended {
        let first = self.attempt_serial(planned).await;
        let Some(end) = first.end.clone().filter(|_| {
            matches!(first.result, CaseResult::Failed { .. }) && self.driver.failures.lost().is_none()
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

    async fn attempt_serial(&self, planned: &Planned) -> Ended {
        // A step of an earlier attempt may have failed only because the driver exited after an earlier case.
        self.driver.known().failed_steps.retain(|_, case| *case != planned.id());
        // A call may have timed out only because many cases ran; this attempt decides, with the whole deadline.
        self.driver.forget_late();
        match self.run(planned, false).await {
            Ok(ended) => ended,
            Err(_) => unreachable!("a case that runs alone is not run again"),
        }
    }

    /// The reason for which a case is skipped, if it is.
    fn skip(&self, planned: &Planned) -> Option<String> {
        let broken = || {
            let access = planned.case.access.or(self.driver.capabilities.accesses.first().copied())?;
            let known = self.driver.known();
            let case =
                known.failed_steps.get(&(Step::Create, access)).filter(|case| **case != planned.id())?;
            planned.case.needs().find(|need| *need == CREATE)?;
            Some(format!("{} fails with this driver: see {case}", Step::Create))
        };
        let lacking = || self.lacking(planned);
        planned
            .skip_now(&self.interrupted)
            .or_else(|| self.driver.failures.lost())
            .or_else(broken)
            .or_else(lacking)
    }

    /// The skip reason of a case that depends on an effect which another case has reported as absent.
    fn lacking(&self, planned: &Planned) -> Option<String> {
        let access = planned.case.access.or(self.driver.capabilities.accesses.first().copied())?;
        let (mut known, own) = (self.driver.known(), planned.id());
        let absence = planned.case.needs().find_map(|need| {
            let absence = known.absent_effects.get(need.effect()?, access)?;
            (absence.concerns(need) && absence.case != own).then(|| absence.clone())
        })?;
        let Case { row, access, .. } = planned.case;
        known.absent_effects.imply(row.establishes, access, &absence);
        Some(absence.to_string())
    }

    async fn run<'a>(&self, planned: &'a Planned, parallel: bool) -> Result<Ended, Rerun<'a>> {
        let case = planned.id();
        if let Some(reason) = self.skip(planned) {
            let result = CaseResult::Skipped { reason };
            let (warnings, left) = (Vec::new(), Vec::new());
            let (seconds, is_violation) = (0.0, false);
            return Ok(Ended { case, result, seconds, warnings, end: None, left, is_violation });
        }
        let began = Instant::now();
        self.send(Event::CaseStarted { case: case.clone(), namespace: String::new() });
        let prepared = self.prepared().remove(&case);
        let (fixture, prepared) = prepared.unwrap_or_else(|| (self.fixture(planned), Ok(())));
        let mut outcome = match prepared {
            Ok(()) => self.bounded(planned.case.row.run, &fixture).await,
            Err(error) => Err(skip(format!("nothing could be prepared before the other cases: {error:#}"))),
        };
        let mut calls = fixture.unanswered();
        let mut health = self.driver.health_since(began, &calls).await;
        let late = outcome.is_err() && calls.iter().any(|(_, reason)| *reason == NoResponse::Late);
        let mut findings = fixture.clean_up().await;
        if health == DriverHealth::Healthy && !findings.is_empty() {
            // The cleanup also calls the driver.
            calls = fixture.unanswered();
            health = self.driver.health_since(began, &calls).await;
        }
        if parallel && !self.interrupted.is_cancelled() {
            match health {
                DriverHealth::Healthy if late => {
                    return Err(Rerun { planned, end: None, calls, failed: None });
                }
                DriverHealth::Healthy => {
                    let failed = fixture.failed_step().map(|failed| failed.step.call());
                    let call = || clue(&fixture, &outcome).map(|clue| clue.call);
                    if let Some(failed) = failed.filter(|_| is_violation(&outcome)).or_else(call) {
                        return Err(Rerun { planned, end: None, calls, failed: Some(failed) });
                    }
                }
                DriverHealth::Restarted(end) => {
                    return Err(Rerun { planned, end: Some(end), calls, failed: None });
                }
                _ => {}
            }
        }
        let mut own = None;
        match health {
            DriverHealth::Healthy if late => {
                outcome = self.blame(&case, &calls, "times out", outcome.breaks(spec::SERVICE));
            }
            DriverHealth::Healthy => outcome = self.reported_with_its_cause(planned, &fixture, outcome).await,
            DriverHealth::Restarted(end) => {
                let failed = Err(anyhow!(end.describe(&calls))).breaks(spec::SERVICE);
                outcome = self.blame(&case, &calls, "makes the driver fail", failed);
                // Leftovers of a driver that exits during a call are part of the same defect.
                findings = findings.iter().map(|it| Finding::Warning(it.text().to_owned())).collect();
                own = Some(end);
            }
            DriverHealth::Lost(end, reason) => {
                (outcome, own) = (Err(anyhow!(reason)).breaks(spec::SERVICE), Some(end));
                findings.clear();
            }
            DriverHealth::Unavailable(reason) => {
                outcome = Err(skip(reason));
                findings.clear();
            }
        }
        let early = outcome.is_ok() && is_early(planned.case.row.schedule);
        let mut known = self.driver.known();
        if own.is_none() && is_violation(&outcome) {
            let Case { row, access, .. } = planned.case;
            known.absent_effects.report(row.establishes, access, &case);
            if is_failure(row.rule, &outcome, self.strict) {
                known.failed.insert(fixture.number(), case.clone());
            }
        }
        let findings = findings.into_iter().map(|finding| attributed(&known, &case, finding, early));
        let (warnings, failures): (Vec<_>, Vec<_>) =
            findings.partition(|finding| matches!(finding, Finding::Warning(_)));
        drop(known);
        let warnings = warnings.iter().map(|it| it.text().to_owned()).chain(fixture.warnings());
        let (mut result, violation) = verdict(planned.case.row.rule, outcome, &failures, self.strict);
        if let CaseResult::Failed { cause, .. } = &mut result {
            // At least the cases of one row, with different access types, have one cause.
            cause.get_or_insert_with(|| planned.case.row.name.to_owned());
        }
        let (is_violation, seconds) = (violation.is_some(), began.elapsed().as_secs_f64());
        let warnings = warnings.chain(violation).collect();
        let left = if early { failures } else { Vec::new() };
        Ok(Ended { case, result, seconds, warnings, end: own, left, is_violation })
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

    /// The outcome of a case that may have failed because of an error with another cause than the request: one case
    /// reports each cause.
    async fn reported_with_its_cause(
        &self,
        planned: &Planned,
        fixture: &Fixture,
        outcome: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let case = &planned.id();
        let Some(Clue { call, hint, .. }) = clue(fixture, &outcome) else {
            return self.reported_once(case, fixture, outcome);
        };
        let reported = {
            let known = self.driver.known();
            let by = match &hint {
                Hint::Foreign(name) => {
                    let culprit = || known.failed.get(&case_of(name)?);
                    known.foreign.get(name).or_else(culprit)
                }
                Hint::Unimplemented => known.unimplemented.get(call),
                Hint::Full | Hint::Denied | Hint::Same(_) => None,
            };
            by.filter(|by| *by != case).map(CaseId::reference)
        };
        match (&hint, reported) {
            (Hint::Denied, _) => {
                return Err(skip(
                    "without CAP_SYS_RESOURCE, the kernel does not permit the driver to expand a mounted ext4",
                ));
            }
            (Hint::Foreign(name), Some(by)) => {
                return Err(skip(format!(
                    "the driver fails because of {name}, an object of another case: {by}"
                )));
            }
            (_, Some(by)) => return Err(skip(format!("the driver does not implement {call}: {by}"))),
            (_, None) => {}
        }
        let outcome = self.reported_once(case, fixture, outcome);
        if !is_failure(planned.case.row.rule, &outcome, self.strict) {
            return outcome;
        }
        match hint {
            Hint::Foreign(name) => drop(self.driver.known().foreign.insert(name, case.clone())),
            Hint::Unimplemented => drop(self.driver.known().unimplemented.insert(call, case.clone())),
            Hint::Same(kind) => return self.same_error_once(planned, fixture, outcome, (call, kind)).await,
            Hint::Full | Hint::Denied => {}
        }
        outcome
    }

    /// The outcome of a case that failed only because of this error of a call. One case reports an error that the call
    /// returns for any request, and one an error that it returns for invalid requests.
    async fn same_error_once(
        &self,
        planned: &Planned,
        fixture: &Fixture,
        outcome: anyhow::Result<()>,
        error: (&'static str, String),
    ) -> anyhow::Result<()> {
        let (case, call) = (planned.id(), error.0);
        let required = outcome.as_ref().err().and_then(wrong_status).map(|wrong| wrong.required);
        let is_invalid = required == Some(Required::Error);
        // Other cases depend on what this one establishes.
        let may_be_skipped = planned.case.row.establishes.is_empty();
        let reported = {
            let known = self.driver.known();
            let rejected = || known.rejections.get(&error).filter(|_| is_invalid);
            let by = known.failures.get(&error).or_else(rejected);
            by.filter(|by| may_be_skipped && **by != case).map(CaseId::reference)
        };
        if let Some(by) = reported {
            return Err(skip(format!("{call} fails with the same error: {by}")));
        }
        let is_of_any_request = if call == Step::Create.rpc() {
            let other = self.driver.try_create(fixture.access(), "again").await;
            other.is_err_and(|status| kind_of(&status) == error.1)
        } else {
            required == Some(Required::Success) && !Step::calls(call)
        };
        if is_of_any_request && call == Step::Create.rpc() {
            fixture.warn("CreateVolume now fails with the same error for any volume");
        }
        let mut known = self.driver.known();
        match required {
            _ if is_of_any_request => drop(known.failures.entry(error).or_insert(case)),
            Some(Required::Error) => drop(known.rejections.entry(error).or_insert(case)),
            Some(Required::Success) | None => {}
        }
        outcome
    }

    /// The outcome of a case that may have ended with a failed step. A driver may fail a step only after an earlier case
    /// has changed its state: the first case reports each error, and others are skipped.
    fn reported_once(
        &self,
        case: &CaseId,
        fixture: &Fixture,
        outcome: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Some(failed) = fixture.failed_step().filter(|_| is_violation(&outcome)) else { return outcome };
        let FailedStep { step, error, is_ordinary } = failed;
        let mut known = self.driver.known();
        match known.failures.entry((step.rpc(), error)) {
            Entry::Occupied(by) if by.get() != case => {
                Err(skip(format!("{step} fails with the same error: {}", by.get().reference())))
            }
            Entry::Vacant(entry) if is_ordinary => {
                entry.insert(case.clone());
                outcome
            }
            Entry::Occupied(_) | Entry::Vacant(_) => outcome,
        }
    }

    /// A function of a case, with a time limit and with panics caught.
    async fn bounded(&self, run: Run, fixture: &Arc<Fixture>) -> anyhow::Result<()> {
        let config = &self.driver.config;
        let limit = config.call_limit() * CALLS + Duration::from_secs(config.ready_timeout);
        bounded(run(Arc::clone(fixture)), limit, &self.interrupted)
            .await
            .map_err(anyhow::Error::from)
            .fatal()?
    }

    /// Emits the result of a case, unless a case that has not run yet may report the cause of its failure.
    fn end(&self, ended: Ended) {
        let may_be_explained = |finding: &Finding| matches!(finding, Finding::Leftover(trace, _) if !trace.explained_by().is_empty());
        match ended.left.iter().any(may_be_explained) {
            true => self.held.lock().unwrap_or_else(PoisonError::into_inner).push(ended),
            false => self.emit(ended),
        }
    }

    /// Emits the results that were held back: passed, if other cases report all that they left behind.
    fn emit_held(&self) {
        let held = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        for mut ended in held {
            let known = self.driver.known();
            let left: Vec<Finding> =
                ended.left.drain(..).map(|finding| attributed(&known, &ended.case, finding, false)).collect();
            drop(known);
            if left.iter().all(|finding| matches!(finding, Finding::Warning(_))) {
                ended.result = CaseResult::Passed;
                ended.warnings.extend(left.iter().map(|finding| finding.text().to_owned()));
            }
            self.emit(ended);
        }
    }

    fn emit(&self, Ended { case, mut result, seconds, warnings, .. }: Ended) {
        for text in warnings {
            self.send(Event::Warning { case: case.clone(), text: self.driver.reported(&text) });
        }
        if let CaseResult::Failed { reason, .. } | CaseResult::Skipped { reason } = &mut result {
            *reason = self.driver.reported(reason);
        }
        self.send(Event::CaseFinished { case, result, seconds });
    }

    fn send(&self, event: Event) {
        // An error means that the reporter has ended, which is reported elsewhere.
        let _ = self.events.send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Access;

    #[test]
    fn a_leftover_is_attributed_to_one_case() {
        let case = |name: &str| CaseId::new("suite", name);
        let (cycle, unpublish, other) = (case("cycle"), case("unpublish"), case("other"));
        let left = |trace| Finding::Leftover(trace, "a mount".to_owned());
        let target = Trace::TargetMount(Access::Mount);
        let call = Trace::Call("DeleteVolume", Access::Mount);
        let mut known = Known::default();
        let warning = |trace: Trace, by: &CaseId| Finding::Warning(format!("{trace}: see {by}"));

        // Nothing is known: each case that leaves something behind fails.
        assert_eq!(attributed(&known, &other, left(target), false), left(target));

        // The first case is the finding, and the others are its consequences; early, another case may still report it.
        known.traces.insert(target, cycle.clone());
        known.traces.insert(call, cycle.clone());
        assert_eq!(attributed(&known, &cycle, left(target), false), left(target));
        assert_eq!(attributed(&known, &other, left(target), false), warning(target, &cycle));
        assert_eq!(attributed(&known, &other, left(target), true), left(target));
        assert_eq!(attributed(&known, &other, left(call), true), warning(call, &cycle));

        // The case that establishes the absent effect is the finding instead of the first one.
        known.absent_effects.report(&[Effect::UnpublishUnmounts], Some(Access::Mount), &unpublish);
        for (case, early) in [(&cycle, false), (&other, true), (&other, false)] {
            assert_eq!(attributed(&known, case, left(target), early), warning(target, &unpublish));
        }
        assert_eq!(attributed(&known, &unpublish, left(target), true), left(target));

        // A distinct defect is a finding of its own.
        for distinct in [Trace::StagingMount(Access::Mount), Trace::TargetMount(Access::Block)] {
            assert_eq!(attributed(&known, &other, left(distinct), false), left(distinct));
        }
        let failure = Finding::Failure("cannot remove /tmp/x".to_owned());
        assert_eq!(attributed(&known, &other, failure.clone(), false), failure);
    }
}
