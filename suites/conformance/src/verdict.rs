//! The verdict on a case: what it found, judged by the strength of the sentence that is violated.
//!
//! An error of a row violates the row's sentence, unless it names another one ([`Breaks`]), or is not about the
//! specification at all ([`Breaks::fatal`]).

use std::fmt;

use anyhow::{Result, anyhow};
use claimcheck_engine::Skip;
use claimcheck_model::CaseResult;

use crate::{expect::WrongStatus, fixture::Finding, spec::Sentence};

/// An error that does not violate the sentence of its row.
#[derive(Debug)]
struct Other {
    /// The sentence that it violates; none if the case fails for another reason, whatever its strength.
    rule: Option<&'static Sentence>,
    error: anyhow::Error,
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl std::error::Error for Other {}

/// Names the sentence that an error violates. The first that is named counts.
pub(crate) trait Breaks<T> {
    /// The error violates this sentence.
    fn breaks(self, rule: &'static Sentence) -> Result<T>;
    /// The error fails the case, and violates no sentence.
    fn fatal(self) -> Result<T>;
}

impl<T> Breaks<T> for Result<T> {
    fn breaks(self, rule: &'static Sentence) -> Result<T> {
        self.map_err(|error| breaking(error, rule))
    }

    fn fatal(self) -> Result<T> {
        self.map_err(|error| other(error, None))
    }
}

/// The same error, of this sentence unless another one was named.
pub(crate) fn breaking(error: anyhow::Error, rule: &'static Sentence) -> anyhow::Error {
    other(error, Some(rule))
}

fn other(error: anyhow::Error, rule: Option<&'static Sentence>) -> anyhow::Error {
    if error.is::<Skip>() || error.is::<Other>() {
        return error;
    }
    anyhow!(Other { rule, error })
}

/// Whether a case has found that the driver violates a sentence: it was not skipped, stopped or interrupted.
pub(crate) fn is_violation(outcome: &Result<()>) -> bool {
    let Err(error) = outcome else { return false };
    let judged = error.downcast_ref::<Other>().is_none_or(|other| other.rule.is_some());
    judged && !error.is::<Skip>()
}

/// Whether a case with this rule fails because of what it found: skip reasons cannot refer to a warning.
pub(crate) fn is_failure(rule: &'static Sentence, outcome: &Result<()>, strict: bool) -> bool {
    let other = outcome.as_ref().err().and_then(|error| error.downcast_ref::<Other>());
    let rule = other.and_then(|other| other.rule).unwrap_or(rule);
    is_violation(outcome) && rule.strength.fails(strict)
}

/// What is wrong, if that is only the status of a call.
pub(crate) fn wrong_status(error: &anyhow::Error) -> Option<&WrongStatus> {
    error.downcast_ref::<Other>().map_or(error, |other| &other.error).downcast_ref()
}

/// The result of a case, and a warning: a violation that does not fail it.
pub(crate) fn verdict(
    rule: &'static Sentence,
    outcome: Result<()>,
    left: &[Finding],
    strict: bool,
) -> (CaseResult, Option<String>) {
    // What a case only leaves behind may violate another sentence than its own.
    let of_leftovers = || {
        let first = left.iter().find_map(|finding| match finding {
            Finding::Leftover(trace, _) => trace.rule(),
            Finding::Failure(_) | Finding::Warning(_) => None,
        });
        Some(first.unwrap_or(rule))
    };
    let (reason, rule, code) = match outcome {
        Ok(()) if left.is_empty() => return (CaseResult::Passed, None),
        Ok(()) => (String::new(), of_leftovers(), None),
        Err(error) => match (error.downcast_ref::<Skip>(), error.downcast_ref::<Other>()) {
            (Some(skip), _) if left.is_empty() => {
                return (CaseResult::Skipped { reason: skip.to_string() }, None);
            }
            (Some(_), _) => (String::new(), of_leftovers(), None),
            (None, Some(other)) => (other.to_string(), other.rule, WrongStatus::cause_of(&other.error)),
            (None, None) => (format!("{error:#}"), Some(rule), WrongStatus::cause_of(&error)),
        },
    };
    if left.is_empty()
        && let Some(rule) = rule.filter(|rule| !rule.strength.fails(strict))
    {
        // One line, since reports group warnings by their text.
        return (CaseResult::Passed, Some(format!("{reason}: {rule}")));
    }
    let left = left.iter().map(|left| format!("left behind: {}", left.text()));
    let lines = Some(reason).filter(|reason| !reason.is_empty()).into_iter().chain(left);
    let lines = lines.chain(rule.map(Sentence::to_string));
    // A driver that returns one code in place of another does so in many calls, each with a sentence of its own.
    // A sentence about all calls is the cause of nothing in particular.
    let particular = rule.filter(|rule| rule.is_about_one_call());
    let cause = code.or_else(|| particular.map(Sentence::to_string));
    (CaseResult::Failed { reason: lines.collect::<Vec<_>>().join("\n"), cause }, None)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;
    use claimcheck_csi::{Code, Status};
    use claimcheck_engine::skip;

    use super::*;
    use crate::{
        case::Access,
        expect::{Answer as _, NOT_FOUND},
        fixture::Trace,
        spec,
    };

    fn failed(reason: &str) -> (CaseResult, Option<String>) {
        let is_cause = |line: &&str| line.contains(": \"") && !line.contains("(Error Scheme)");
        let cause = reason.lines().find(is_cause).map(str::to_owned);
        (CaseResult::Failed { reason: reason.to_owned(), cause }, None)
    }

    fn wrong() -> Result<()> {
        bail!("it is wrong")
    }

    #[test]
    fn a_violated_should_is_a_warning_unless_the_run_is_strict() {
        let must = "it is wrong\nMUST (Error Scheme): \"Missing required field: 3 INVALID_ARGUMENT\"";
        assert_eq!(verdict(spec::MISSING, wrong(), &[], false), failed(must));
        let (result, warning) = verdict(spec::EXPAND_LARGER, wrong(), &[], false);
        assert_eq!(result, CaseResult::Passed);
        let warning = warning.unwrap();
        assert!(
            warning.starts_with("it is wrong: SHOULD (ControllerExpandVolume): \"If a volume"),
            "{warning}"
        );
        let (result, warning) = verdict(spec::EXPAND_LARGER, wrong(), &[], true);
        assert!(matches!(result, CaseResult::Failed { reason, .. } if reason.contains("\nSHOULD (")));
        assert_eq!(warning, None);
        let (result, warning) = verdict(spec::LIST_CHANGES, wrong(), &[], true);
        assert_eq!((result, warning.is_some()), (CaseResult::Passed, true));
        let (result, _) = verdict(spec::CONCURRENT, wrong(), &[], false);
        let CaseResult::Failed { reason, .. } = result else { panic!("{result:?}") };
        assert!(reason.contains("\nKubernetes (Concurrency)"), "{reason}");
    }

    #[test]
    fn an_error_may_violate_another_sentence_or_none() {
        let other = wrong().breaks(spec::MISSING).breaks(spec::CODES).fatal();
        let must = "it is wrong\nMUST (Error Scheme): \"Missing required field: 3 INVALID_ARGUMENT\"";
        assert_eq!(verdict(spec::LIST_CHANGES, other, &[], false), failed(must));
        assert_eq!(verdict(spec::LIST_CHANGES, wrong().fatal(), &[], false), failed("it is wrong"));
    }

    #[test]
    fn what_a_case_leaves_behind_fails_it() {
        let left = [Finding::Failure("a mount".to_owned())];
        let rule = spec::STAGE_PLACE;
        let reason = format!("left behind: a mount\n{rule}");
        assert_eq!(verdict(rule, Ok(()), &left, false), failed(&reason));
        assert_eq!(verdict(rule, Err(skip("no volumes")), &left, false), failed(&reason));
        let reason = format!("it is wrong\nleft behind: a mount\n{rule}");
        assert_eq!(verdict(rule, wrong(), &left, false), failed(&reason));
    }

    #[test]
    fn leftovers_alone_violate_the_sentence_about_them() {
        let mount = || Finding::Leftover(Trace::StagingMount(Access::Mount), "a mount".to_owned());
        let reason = format!("left behind: a mount\n{}", spec::UNSTAGE_UNDOES);
        assert_eq!(verdict(spec::CREATE, Ok(()), &[mount()], false), failed(&reason));
        let call = Finding::Leftover(Trace::Call("DeleteVolume", Access::Mount), "a volume".to_owned());
        let reason = format!("left behind: a volume\n{}", spec::CREATE);
        assert_eq!(verdict(spec::CREATE, Ok(()), &[call], false), failed(&reason));
        let reason = format!("it is wrong\nleft behind: a mount\n{}", spec::CREATE);
        assert_eq!(verdict(spec::CREATE, wrong(), &[mount()], false), failed(&reason));
    }

    #[test]
    fn a_wrong_code_is_one_cause_whichever_sentence_it_violates() {
        let cause = |rule, code| {
            let answer = Err::<(), _>(Status::new(code, "boom"));
            let outcome = answer.refused("NodeStageVolume of a volume that does not exist", NOT_FOUND);
            match verdict(rule, outcome.breaks(rule), &[], false).0 {
                CaseResult::Failed { cause, .. } => cause.unwrap(),
                other => panic!("{other:?}"),
            }
        };
        let internal = cause(spec::STAGE_GONE, Code::Internal);
        assert_eq!(internal, "Internal is returned where NotFound is required");
        assert_eq!(cause(spec::PUBLISH_GONE, Code::Internal), internal);
        assert_ne!(cause(spec::STAGE_GONE, Code::Unknown), internal);
        let unimplemented = "calls of declared capabilities return Unimplemented";
        assert_eq!(cause(spec::STAGE_GONE, Code::Unimplemented), unimplemented);
        let accepted = Ok::<_, Status>(()).refused("x", NOT_FOUND);
        let (result, _) = verdict(spec::STAGE_GONE, accepted, &[], false);
        let CaseResult::Failed { cause, .. } = result else { panic!("{result:?}") };
        assert_eq!(cause, Some(spec::STAGE_GONE.to_string()));
    }

    #[test]
    fn a_sentence_about_all_calls_is_no_cause() {
        for rule in [spec::MISSING, spec::CONCURRENT, spec::RETRIED, spec::SERVICE] {
            assert!(!rule.is_about_one_call(), "{rule}");
            assert!(matches!(verdict(rule, wrong(), &[], false).0, CaseResult::Failed { cause: None, .. }));
        }
        for rule in [spec::CREATE, spec::STAGE_GONE, spec::PUBLISH_TWICE] {
            assert!(rule.is_about_one_call(), "{rule}");
        }
    }

    #[test]
    fn only_a_judged_outcome_shows_that_an_effect_is_absent() {
        for outcome in [wrong(), wrong().breaks(spec::MISSING)] {
            assert!(is_violation(&outcome));
        }
        for outcome in [Ok(()), wrong().fatal(), Err(skip("no volumes"))] {
            assert!(!is_violation(&outcome));
        }
    }

    #[test]
    fn a_violated_should_is_a_failure_only_if_the_run_is_strict() {
        for (outcome, strict, expected) in [
            (wrong(), false, false),
            (wrong(), true, true),
            (wrong().breaks(spec::MISSING), false, true),
            (wrong().fatal(), true, false),
            (Err(skip("no volumes")), true, false),
            (Ok(()), true, false),
        ] {
            assert_eq!(is_failure(spec::EXPAND_LARGER, &outcome, strict), expected, "{outcome:?} {strict}");
        }
    }

    #[test]
    fn a_skip_stays_a_skip() {
        let skipped = (CaseResult::Skipped { reason: "no volumes".to_owned() }, None);
        assert_eq!(verdict(spec::MISSING, Err(skip("no volumes")).breaks(spec::CODES), &[], true), skipped);
        assert_eq!(verdict(spec::MISSING, Ok(()), &[], false), (CaseResult::Passed, None));
    }
}
