//! Steps that many cases depend on: a claim is bound, a pod starts, a snapshot becomes ready. If one fails for the same
//! reason in several cases and succeeds in none, that is found once: the cases that show the same are skipped.
//!
//! A case is skipped on its own evidence only: it must have reached the step, and have seen the error there that the
//! others have seen. The cases that found it fail, so that the run does.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_model::CaseId;

use crate::refusal::Refusal;

/// The number of cases that must find a cause before others are skipped for it.
const FINDERS: usize = 3;
/// How often an error must occur in one wait: CSI calls are retried, and the first errors may be transient.
const REPEATED: u32 = 3;
/// How long a case waits at least before a final error ends it.
const FINAL: Duration = Duration::from_secs(5);
/// The same for an error that may be transient, which must be shared by several cases.
const STUCK: Duration = Duration::from_secs(30);
/// How long a case waits before a silence ends it with which several others have timed out.
const SILENT: Duration = Duration::from_secs(10);

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A volume is provisioned for a claim, which is bound to it.
    Provision,
    /// A pod with volumes starts: they are attached and mounted.
    Start,
    /// A snapshot is taken.
    Snapshot,
}

impl Step {
    /// Whether Events with this reason report its failures.
    pub(crate) fn reports(self, reason: &str) -> bool {
        match self {
            Self::Provision => reason == "ProvisioningFailed",
            Self::Start => ["ProvisioningFailed", "FailedAttachVolume", "FailedMount", "FailedMapVolume"]
                .contains(&reason),
            // The status of the snapshot does.
            Self::Snapshot => false,
        }
    }

    /// What holds if it fails.
    const fn absence(self) -> &'static str {
        match self {
            Self::Provision => "claims are not bound",
            Self::Start => "pods with volumes do not start",
            Self::Snapshot => "snapshots do not become ready",
        }
    }
}

/// What cases found at the steps of a run.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Errors end waits early. They do not if errors are injected at a rate or for some calls, since any may be the last.
    ends_early: bool,
    outcomes: Mutex<BTreeMap<Step, Outcome>>,
}

/// What cases found at one step.
#[derive(Debug, Default)]
struct Outcome {
    /// A case has passed it.
    passed: bool,
    /// The cases that failed, by the error that they saw, in the order of the failures; `None` if there was none.
    failed: BTreeMap<Option<Refusal>, Vec<CaseId>>,
}

/// What a case has seen while it waits for a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    /// The error, and how often it occurred.
    pub refusal: Option<(&'a Refusal, u32)>,
    /// How long the case has waited.
    pub waited: Duration,
}

/// How a case continues that waits for a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It waits on.
    Wait,
    /// It fails: the error is final, or several cases see it and none has passed the step.
    Fail,
    /// It is skipped for this reason.
    Skip(String),
}

/// What failures of a step have in common, as the cause in reports.
pub(crate) fn cause(step: Step, refusal: &Refusal) -> String {
    format!("{}: {refusal}", step.absence())
}

impl Steps {
    pub(crate) fn new(ends_early: bool) -> Self {
        Self { ends_early, outcomes: Mutex::default() }
    }

    fn outcomes(&self) -> MutexGuard<'_, BTreeMap<Step, Outcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A case has passed the step.
    pub(crate) fn passed(&self, step: Step) {
        self.outcomes().entry(step).or_default().passed = true;
    }

    /// A case has timed out at the step, with this error.
    pub(crate) fn failed(&self, step: Step, refusal: Option<&Refusal>, case: &CaseId) {
        self.outcomes().entry(step).or_default().add(refusal, case);
    }

    /// How a case continues that has seen this.
    pub(crate) fn decide(&self, step: Step, case: &CaseId, seen: Seen<'_>) -> Decision {
        if !self.ends_early {
            return Decision::Wait;
        }
        let mut outcomes = self.outcomes();
        let outcome = outcomes.entry(step).or_default();
        let refusal = seen.refusal.map(|(refusal, _)| refusal);
        if let Some(reason) = outcome.reason_to_skip(step, refusal, case)
            && (refusal.is_some() || seen.waited >= SILENT)
        {
            return Decision::Skip(reason);
        }
        match seen.refusal {
            Some((refusal, times)) if times >= REPEATED || refusal.is_delayed() => {
                let is_final = refusal.is_final() && seen.waited >= FINAL;
                if is_final || seen.waited >= STUCK {
                    outcome.add(Some(refusal), case);
                }
                match is_final || outcome.is_established(Some(refusal)) {
                    true => Decision::Fail,
                    false => Decision::Wait,
                }
            }
            Some(_) | None => Decision::Wait,
        }
    }
}

impl Outcome {
    fn add(&mut self, refusal: Option<&Refusal>, case: &CaseId) {
        let cases = self.failed.entry(refusal.cloned()).or_default();
        // Patterns and repetitions of a case are no further evidence.
        if !cases.iter().any(|other| kind_of(other) == kind_of(case)) {
            cases.push(case.clone());
        }
    }

    /// Whether several cases have failed with the error, and none has passed the step.
    fn is_established(&self, refusal: Option<&Refusal>) -> bool {
        !self.passed && self.failed.get(&refusal.cloned()).is_some_and(|cases| cases.len() >= FINDERS)
    }

    /// The reason for which a case is skipped that sees the error, unless it is one of those that found it.
    fn reason_to_skip(&self, step: Step, refusal: Option<&Refusal>, case: &CaseId) -> Option<String> {
        let cases = self.failed.get(&refusal.cloned()).filter(|_| self.is_established(refusal))?;
        let (first, finders) = (cases.first()?, &cases[..FINDERS]);
        if finders.contains(case) {
            return None;
        }
        let what = match refusal {
            Some(refusal) => cause(step, refusal),
            None => format!("{}, and no Event reports a reason", step.absence()),
        };
        Some(format!("{what} (found by {FINDERS} cases): {}", first.reference()))
    }
}

/// A case without its pattern.
fn kind_of(case: &CaseId) -> (&str, &str) {
    (&case.suite, case.name.split_once(" [").map_or(case.name.as_str(), |(name, _)| name))
}

/// A step that failed.
#[derive(Debug)]
pub(crate) struct FailedStep {
    /// The step.
    pub step: Step,
    /// The error that was seen last, if one was.
    pub refusal: Option<Refusal>,
    /// What the case waited for, and why it ended.
    pub text: String,
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for FailedStep {}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> CaseId {
        CaseId::new("volumes", name)
    }

    fn refusal(code: &str) -> Refusal {
        let message = format!("failed to provision: rpc error: code = {code} desc = no");
        Refusal::of("ProvisioningFailed", &message, "cc-1-ns").unwrap()
    }

    fn decide(steps: &Steps, name: &str, refusal: Option<(&Refusal, u32)>, seconds: u64) -> Decision {
        let seen = Seen { refusal, waited: Duration::from_secs(seconds) };
        steps.decide(Step::Provision, &case(name), seen)
    }

    #[test]
    fn a_final_error_fails_each_case_until_several_have_found_it() {
        let (steps, invalid) = (Steps::new(true), refusal("InvalidArgument"));
        assert_eq!(decide(&steps, "a [ext4]", Some((&invalid, 2)), 60), Decision::Wait);
        assert_eq!(decide(&steps, "a [ext4]", Some((&invalid, 3)), 4), Decision::Wait);
        for name in ["a [ext4]", "a [xfs]", "b", "c"] {
            assert_eq!(decide(&steps, name, Some((&invalid, 3)), 5), Decision::Fail, "{name}");
        }
        let reason = "claims are not bound: ProvisioningFailed: rpc error: code = InvalidArgument desc = no (found by 3 \
                      cases): see volumes::a [ext4]";
        for name in ["d", "a [block]"] {
            assert_eq!(decide(&steps, name, Some((&invalid, 1)), 2), Decision::Skip(reason.to_owned()));
        }
        // Another error, or none, is no evidence.
        assert_eq!(decide(&steps, "d", Some((&refusal("Internal"), 9)), 20), Decision::Wait);
        assert_eq!(decide(&steps, "d", None, 60), Decision::Wait);
        // The driver rejects some volumes only.
        steps.passed(Step::Provision);
        assert_eq!(decide(&steps, "d", Some((&invalid, 1)), 2), Decision::Wait);
        assert_eq!(decide(&steps, "d", Some((&invalid, 3)), 5), Decision::Fail);
    }

    #[test]
    fn a_final_error_that_is_repeated_only_after_minutes_counts_at_once() {
        let (steps, invalid) = (Steps::new(true), "rpc error: code = InvalidArgument desc = no");
        let delayed = Refusal::of("R", &format!("Retries will be delayed. {invalid}"), "cc-1-ns").unwrap();
        assert_eq!(decide(&steps, "a", Some((&delayed, 1)), 4), Decision::Wait);
        assert_eq!(decide(&steps, "a", Some((&delayed, 1)), 5), Decision::Fail);
    }

    #[test]
    fn an_error_that_may_be_transient_ends_cases_only_if_several_are_stuck_and_none_has_passed() {
        let (steps, internal) = (Steps::new(true), refusal("Internal"));
        for name in ["a", "a [block]", "b"] {
            assert_eq!(decide(&steps, name, Some((&internal, 9)), 31), Decision::Wait, "{name}");
        }
        assert_eq!(decide(&steps, "c", Some((&internal, 3)), 29), Decision::Wait);
        assert_eq!(decide(&steps, "c", Some((&internal, 3)), 30), Decision::Fail);
        assert_eq!(decide(&steps, "a", Some((&internal, 9)), 32), Decision::Fail);
        assert!(matches!(decide(&steps, "d", Some((&internal, 1)), 2), Decision::Skip(_)));
        assert_eq!(
            steps.decide(Step::Start, &case("d"), Seen { refusal: Some((&internal, 9)), waited: STUCK }),
            Decision::Wait
        );
        steps.passed(Step::Provision);
        assert_eq!(decide(&steps, "d", Some((&internal, 9)), 60), Decision::Wait);
    }

    #[test]
    fn a_silence_ends_cases_after_several_have_timed_out() {
        let steps = Steps::new(true);
        for name in ["a", "b", "c"] {
            assert_eq!(decide(&steps, "d", None, 60), Decision::Wait);
            steps.failed(Step::Provision, None, &case(name));
        }
        assert_eq!(decide(&steps, "d", None, 9), Decision::Wait);
        assert!(
            matches!(decide(&steps, "d", None, 10), Decision::Skip(reason) if reason.ends_with("see volumes::a"))
        );
    }

    #[test]
    fn nothing_ends_early_if_errors_are_injected_for_some_calls() {
        let (steps, invalid) = (Steps::new(false), refusal("InvalidArgument"));
        for name in ["a", "b", "c", "d"] {
            steps.failed(Step::Provision, Some(&invalid), &case(name));
            assert_eq!(decide(&steps, name, Some((&invalid, 9)), 60), Decision::Wait);
        }
    }
}
