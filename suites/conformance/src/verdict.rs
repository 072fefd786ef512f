//! The verdict on a case: what it found, judged by the strength of the sentence that is violated.
//!
//! An error of a row violates the row's sentence, unless it names another one ([`Breaks`]), or is not about the
//! specification at all ([`Breaks::fatal`]).

use std::fmt;

use anyhow::{Result, anyhow};
use claimcheck_model::CaseResult;

use crate::{expect::Skip, fixture::Finding, spec::Sentence};

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

/// The result of a case, and a warning: a violation that does not fail it.
pub(crate) fn verdict(
    rule: &'static Sentence,
    outcome: Result<()>,
    left: &[Finding],
    strict: bool,
) -> (CaseResult, Option<String>) {
    let (why, rule) = match outcome {
        Ok(()) if left.is_empty() => return (CaseResult::Passed, None),
        Ok(()) => (String::new(), Some(rule)),
        Err(error) => match (error.downcast_ref::<Skip>(), error.downcast_ref::<Other>()) {
            (Some(skip), _) if left.is_empty() => {
                return (CaseResult::Skipped { why: skip.to_string() }, None);
            }
            (Some(_), _) => (String::new(), Some(rule)),
            (None, Some(other)) => (other.to_string(), other.rule),
            (None, None) => (format!("{error:#}"), Some(rule)),
        },
    };
    if left.is_empty()
        && let Some(rule) = rule.filter(|rule| !rule.strength.fails(strict))
    {
        // One line, since reports group warnings by their text.
        return (CaseResult::Passed, Some(format!("{why}: {rule}")));
    }
    let left = left.iter().map(|left| format!("left behind: {}", left.text()));
    let lines = Some(why).filter(|why| !why.is_empty()).into_iter().chain(left);
    let lines = lines.chain(rule.map(Sentence::to_string));
    (CaseResult::Failed { why: lines.collect::<Vec<_>>().join("\n") }, None)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;
    use crate::{expect::skip, spec};

    fn failed(why: &str) -> (CaseResult, Option<String>) {
        (CaseResult::Failed { why: why.to_owned() }, None)
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
        assert!(matches!(result, CaseResult::Failed { why } if why.contains("\nSHOULD (")));
        assert_eq!(warning, None);
        let (result, warning) = verdict(spec::LIST_CHANGES, wrong(), &[], true);
        assert_eq!((result, warning.is_some()), (CaseResult::Passed, true));
        let (result, _) = verdict(spec::CONCURRENT, wrong(), &[], false);
        assert!(matches!(result, CaseResult::Failed { why } if why.contains("\nKubernetes (Concurrency)")));
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
        let why = format!("left behind: a mount\n{rule}");
        assert_eq!(verdict(rule, Ok(()), &left, false), failed(&why));
        assert_eq!(verdict(rule, Err(skip("no volumes")), &left, false), failed(&why));
        let why = format!("it is wrong\nleft behind: a mount\n{rule}");
        assert_eq!(verdict(rule, wrong(), &left, false), failed(&why));
    }

    #[test]
    fn a_skip_stays_a_skip() {
        let skipped = (CaseResult::Skipped { why: "no volumes".to_owned() }, None);
        assert_eq!(verdict(spec::MISSING, Err(skip("no volumes")).breaks(spec::CODES), &[], true), skipped);
        assert_eq!(verdict(spec::MISSING, Ok(()), &[], false), (CaseResult::Passed, None));
    }
}
