//! What a call must answer, and how it is told when it does not.

use std::{collections::BTreeSet, fmt};

use anyhow::{Result, anyhow, bail};
use claimcheck_csi::{Code, Status, tap::code_name};

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

/// Judges the answers of calls that raced: all must be OK, or `Aborted` ("operation pending"), or one of
/// `also`. Returns those that were OK.
///
/// # Errors
/// The first other answer, or that none was OK although `also` is empty.
pub(crate) fn raced<T>(what: &str, answers: Vec<Result<T, Status>>, also: &[Code]) -> Result<Vec<T>> {
    let mut fine = Vec::new();
    for answer in answers {
        match answer {
            Ok(answer) => fine.push(answer),
            Err(status) if status.code() == Code::Aborted || also.contains(&status.code()) => {}
            Err(status) => bail!(
                "one of several calls of {what} at once answered {} where OK or Aborted is due",
                said(&status)
            ),
        }
    }
    if fine.is_empty() && also.is_empty() {
        bail!("of several calls of {what} at once all answered Aborted: one must go through");
    }
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
    fn an_answer_is_told_with_what_was_due() {
        let wrong = Err::<(), _>(Status::internal("boom")).refused("CreateVolume without a name", INVALID);
        assert_eq!(
            wrong.unwrap_err().to_string(),
            r#"CreateVolume without a name answered Internal ("boom") where InvalidArgument is due"#
        );
        let accepted = Ok::<_, Status>(()).refused("x", NO_SUCH).unwrap_err().to_string();
        assert_eq!(accepted, "x answered OK where InvalidArgument or NotFound is due");
    }

    #[test]
    fn racing_calls_may_be_aborted_but_not_all() {
        let aborted = || Err::<u8, _>(Status::aborted("pending"));
        assert_eq!(raced("X", vec![Ok(1), aborted()], &[]).unwrap(), [1]);
        raced("X", vec![aborted(), aborted()], &[]).unwrap_err();
        raced("X", vec![Ok(1), Err(Status::internal("x"))], &[]).unwrap_err();
        assert!(raced("X", vec![Err::<u8, _>(Status::not_found("x"))], NOT_FOUND).unwrap().is_empty());
    }
}
