//! What a call must answer, and how it is told when it does not.

use std::{collections::BTreeSet, fmt};

use anyhow::{Result, anyhow, bail, ensure};
use claimcheck_csi::{Code, Status, tap::code_name};

use crate::fixture::Fixture;

/// As many characters of a driver's message are quoted.
const QUOTED: usize = 300;

/// The case found that it cannot run with this driver.
#[derive(Debug)]
pub(crate) struct Skip(pub(crate) String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Ends a case as skipped.
pub(crate) fn skip(why: impl Into<String>) -> anyhow::Error {
    anyhow!(Skip(why.into()))
}

/// What a call answered, in words: `Internal ("the message")`.
pub(crate) fn said(status: &Status) -> String {
    let message: String = status.message().chars().take(QUOTED).collect();
    format!("{} ({message:?})", code_name(status.code()))
}

/// Judges an answer.
pub(crate) trait Answer<T> {
    /// The answer of a call that must work; `what` completes "... answered".
    fn works(self, what: &str) -> Result<T>;
    /// A call that must be refused with one of these codes.
    fn refused(self, what: &str, codes: &[Code]) -> Result<()>;
}

impl<T> Answer<T> for Result<T, Status> {
    fn works(self, what: &str) -> Result<T> {
        self.map_err(|status| anyhow!("{what} answered {} where OK is due", said(&status)))
    }

    fn refused(self, what: &str, codes: &[Code]) -> Result<()> {
        let due: Vec<&str> = codes.iter().map(|&code| code_name(code)).collect();
        let due = due.join(" or ");
        match self {
            Err(status) if codes.contains(&status.code()) => Ok(()),
            Err(status) => bail!("{what} answered {} where {due} is due", said(&status)),
            Ok(_) => bail!("{what} answered OK where {due} is due"),
        }
    }
}

/// Two judgements of one row; both are told where both failed.
pub(crate) fn both(one: Result<()>, other: Result<()>) -> Result<()> {
    match (one, other) {
        (Err(one), Err(other)) => bail!("{one:#}, and {other:#}"),
        (one, other) => one.and(other),
    }
}

/// Judges the answers of calls that raced, and returns those that were OK. Due are OK, `Aborted` ("operation
/// pending") and `also`; that a driver is no more graceful than to answer anything else is a remark, since it shows
/// in some runs only.
///
/// # Errors
/// None was OK although `also` is empty: one must go through.
pub(crate) fn raced<T>(
    f: &Fixture,
    what: &str,
    answers: Vec<Result<T, Status>>,
    also: &[Code],
) -> Result<Vec<T>> {
    let (mut fine, mut odd) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(answer) => fine.push(answer),
            Err(status) if status.code() == Code::Aborted || also.contains(&status.code()) => {}
            Err(status) => odd = Some(status),
        }
    }
    let Some(odd) = odd else {
        ensure!(
            !fine.is_empty() || !also.is_empty(),
            "of several calls of {what} at once all answered Aborted: one must go through"
        );
        return Ok(fine);
    };
    let odd =
        format!("one of several calls of {what} at once answered {} where OK or Aborted is due", said(&odd));
    ensure!(!fine.is_empty() || !also.is_empty(), "{odd}, and none answered OK");
    f.remark(odd);
    Ok(fine)
}

/// That all of these are the same, and which.
pub(crate) fn same<T: Ord + fmt::Debug + Clone>(what: &str, all: impl IntoIterator<Item = T>) -> Result<T> {
    let distinct: BTreeSet<T> = all.into_iter().collect();
    match distinct.len() {
        1 => Ok(distinct.into_iter().next().expect("there is one")),
        0 => bail!("{what}: there is none"),
        _ => bail!("{what} differ where they must be one: {distinct:?}"),
    }
}

/// The codes for what is not a valid argument, however the driver looks at it: refused as such, or not known.
pub(crate) const NO_SUCH: &[Code] = &[Code::InvalidArgument, Code::NotFound];
/// A missing or invalid argument.
pub(crate) const INVALID: &[Code] = &[Code::InvalidArgument];
/// No such object.
pub(crate) const NOT_FOUND: &[Code] = &[Code::NotFound];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_failures_both_are_told() {
        let failed = |text: &'static str| Err(anyhow!(text));
        assert_eq!(both(failed("a"), failed("b")).unwrap_err().to_string(), "a, and b");
        assert_eq!(both(Ok(()), failed("b")).unwrap_err().to_string(), "b");
        both(Ok(()), Ok(())).unwrap();
    }

    #[test]
    fn an_answer_is_told_with_what_was_due() {
        let wrong = Err::<(), _>(Status::internal("boom")).refused("CreateVolume without a name", INVALID);
        assert_eq!(
            wrong.unwrap_err().to_string(),
            r#"CreateVolume without a name answered Internal ("boom") where InvalidArgument is due"#
        );
        let accepted = Ok::<_, Status>(()).refused("x", NO_SUCH).unwrap_err().to_string();
        assert_eq!(accepted, "x answered OK where InvalidArgument or NotFound is due");
    }
}
