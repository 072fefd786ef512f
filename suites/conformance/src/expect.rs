//! Expected results of calls, and the error messages for unexpected ones.

use std::{collections::BTreeSet, error::Error, fmt, sync::Arc};

use anyhow::{Result, anyhow, bail, ensure};
use claimcheck_csi::{Code, Status, tap::code_name};

use crate::fixture::{Fixture, without_ids};

/// Maximum number of characters quoted from a driver's message.
const QUOTED: usize = 300;

/// The message of an error as reports quote it, attached to the status with the message that the driver returned.
#[derive(Debug)]
pub(crate) struct Reported(String);

impl Reported {
    /// The status, with the message that `clean` makes of its own if that differs.
    pub(crate) fn attached(mut status: Status, clean: impl FnOnce(&str) -> String) -> Status {
        let message = clean(status.message());
        if message != status.message() {
            status.set_source(Arc::new(Self(message)));
        }
        status
    }

    fn of(status: &Status) -> &str {
        let attached = status.source().and_then(|source| source.downcast_ref::<Self>());
        attached.map_or_else(|| status.message(), |Self(message)| message)
    }
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Reported {}

/// The status of a call as text: `Internal ("the message")`.
pub(crate) fn status_text(status: &Status) -> String {
    let message: String = Reported::of(status).chars().take(QUOTED).collect();
    format!("{} ({message:?})", code_name(status.code()))
}

/// The cause of all errors of calls that are not implemented.
const UNIMPLEMENTED: &str = "calls of declared capabilities return Unimplemented";

/// Whether a call must succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Required {
    Success,
    Error,
}

/// A call returned an error that is not permitted, and that is all that is wrong. A driver that returns one code in place
/// of another often does so in many calls, so this is the cause of all of them.
#[derive(Debug)]
pub(crate) struct WrongStatus {
    text: String,
    pub required: Required,
    /// In words that do not depend on the call.
    cause: Option<String>,
    /// The errors, as the text quotes them.
    errors: Vec<String>,
}

impl WrongStatus {
    /// An error where OK is required.
    fn failure(text: String, status: &Status) -> Self {
        let cause = (status.code() == Code::Unimplemented).then(|| UNIMPLEMENTED.to_owned());
        Self { text, required: Required::Success, cause, errors: vec![status_text(status)] }
    }

    /// An error where another one is required.
    fn wrong_code(text: String, status: &Status, codes: &[Code]) -> Self {
        // For an object that does not exist, several codes may be permitted; which, depends on the call.
        let required = either(if codes.contains(&Code::NotFound) { &[Code::NotFound] } else { codes });
        let cause = match status.code() {
            Code::Unimplemented => UNIMPLEMENTED.to_owned(),
            returned => format!("{} is returned where {required} is required", code_name(returned)),
        };
        Self { text, required: Required::Error, cause: Some(cause), errors: vec![status_text(status)] }
    }

    /// A call of a declared capability returned Unimplemented.
    pub(crate) fn unimplemented(text: String) -> Self {
        Self { text, required: Required::Success, cause: Some(UNIMPLEMENTED.to_owned()), errors: Vec::new() }
    }

    pub(crate) fn is_unimplemented(&self) -> bool {
        self.cause.as_deref() == Some(UNIMPLEMENTED)
    }

    /// Whether all errors are this one, apart from what differs between volumes.
    pub(crate) fn is_only(&self, kind: &str) -> bool {
        !self.errors.is_empty() && self.errors.iter().all(|error| without_ids(error) == kind)
    }

    /// The cause of an error with a wrong code.
    pub(crate) fn cause_of(error: &anyhow::Error) -> Option<String> {
        error.downcast_ref::<Self>()?.cause.clone()
    }
}

fn either(codes: &[Code]) -> String {
    codes.iter().map(|&code| code_name(code)).collect::<Vec<_>>().join(" or ")
}

impl fmt::Display for WrongStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for WrongStatus {}

/// Checks the result of a call.
pub(crate) trait Answer<T> {
    /// The response of a call that must succeed; `what` completes "... returned".
    fn works(self, what: &str) -> Result<T>;
    /// A call that must return one of these codes.
    fn refused(self, what: &str, codes: &[Code]) -> Result<()>;
}

impl<T> Answer<T> for Result<T, Status> {
    fn works(self, what: &str) -> Result<T> {
        self.map_err(|status| {
            let text = format!("{what} returned {}, expected OK", status_text(&status));
            WrongStatus::failure(text, &status).into()
        })
    }

    fn refused(self, what: &str, codes: &[Code]) -> Result<()> {
        let required = either(codes);
        match self {
            Err(status) if codes.contains(&status.code()) => Ok(()),
            Err(status) => {
                let text = format!("{what} returned {}, expected {required}", status_text(&status));
                Err(WrongStatus::wrong_code(text, &status, codes).into())
            }
            Ok(_) => bail!("{what} returned OK, expected {required}"),
        }
    }
}

/// Whether a call returned that an object is in use: FailedPrecondition.
pub(crate) fn is_in_use<T>(answer: &Result<T, Status>) -> bool {
    matches!(answer, Err(status) if status.code() == Code::FailedPrecondition)
}

/// Combines two checks of one row; if both fail, both errors are reported.
pub(crate) fn both(one: Result<()>, other: Result<()>) -> Result<()> {
    let (one, other) = match (one, other) {
        (Err(one), Err(other)) => (one, other),
        (one, other) => return one.and(other),
    };
    let text = format!("{one:#}, and {other:#}");
    match (one.downcast_ref::<WrongStatus>(), other.downcast_ref::<WrongStatus>()) {
        (Some(one), Some(other)) if one.required == other.required => {
            let errors = [&one.errors[..], &other.errors].concat();
            Err(WrongStatus { text, required: one.required, cause: None, errors }.into())
        }
        _ => Err(anyhow!(text)),
    }
}

/// Checks the results of concurrent calls, and returns the successful responses. Expected are OK, `Aborted`
/// ("operation pending") and `also`; any other code is a warning rather than a failure, since it does not show in
/// every run.
///
/// # Errors
/// No call returned OK although `also` is empty: at least one call must succeed.
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
            "all of several concurrent {what} calls returned Aborted: at least one must succeed"
        );
        return Ok(fine);
    };
    let text = format!(
        "one of several concurrent {what} calls returned {}, expected OK or Aborted",
        status_text(&odd)
    );
    if fine.is_empty() && also.is_empty() {
        return Err(WrongStatus::failure(format!("{text}, and none returned OK"), &odd).into());
    }
    f.warn(text);
    Ok(fine)
}

/// Checks that all values are equal, and returns that value.
pub(crate) fn same<T: Ord + fmt::Debug + Clone>(what: &str, all: impl IntoIterator<Item = T>) -> Result<T> {
    let distinct: BTreeSet<T> = all.into_iter().collect();
    match distinct.len() {
        1 => Ok(distinct.into_iter().next().expect("it has one element")),
        0 => bail!("{what}: no values"),
        _ => bail!("{what} must be equal, and differ: {distinct:?}"),
    }
}

/// The codes for an id that is not valid: a driver may report it as invalid or as not found.
pub(crate) const NO_SUCH: &[Code] = &[Code::InvalidArgument, Code::NotFound];
/// A missing or invalid argument.
pub(crate) const INVALID: &[Code] = &[Code::InvalidArgument];
/// No such object.
pub(crate) const NOT_FOUND: &[Code] = &[Code::NotFound];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_of_two_failures_are_reported() {
        let failed = |text: &'static str| Err(anyhow!(text));
        assert_eq!(both(failed("a"), failed("b")).unwrap_err().to_string(), "a, and b");
        assert_eq!(both(Ok(()), failed("b")).unwrap_err().to_string(), "b");
        both(Ok(()), Ok(())).unwrap();
    }

    #[test]
    fn two_wrong_statuses_may_be_one_error() {
        let fails = |id: &str| Err::<(), _>(Status::internal(format!("no volume {id}")));
        let is_only = |error: anyhow::Error| {
            let wrong = error.downcast_ref::<WrongStatus>();
            wrong.is_some_and(|wrong| wrong.is_only("Internal (\"no volume #\")"))
        };
        let refused = |id: &str| fails(id).refused("x", INVALID);
        assert!(is_only(both(refused("a1"), refused("b2")).unwrap_err()));
        assert!(is_only(fails("a1").works("x").unwrap_err()));
        assert!(!is_only(both(refused("a1"), refused("at all")).unwrap_err()));
        assert!(!is_only(both(refused("a1"), fails("a1").works("y")).unwrap_err()));
        assert!(!is_only(both(refused("a1"), Err(anyhow!("also wrong"))).unwrap_err()));
    }

    #[test]
    fn checks_read_the_message_and_reports_quote_it_without_secrets() {
        let message = format!("{}hunter2", "x".repeat(QUOTED - 3));
        let clean = |text: &str| text.replace("hunter2", "***");
        let status = Reported::attached(Status::internal(message.clone()), clean);
        assert_eq!(status.message(), message);
        // The secret is removed before the quotation is cut.
        assert_eq!(status_text(&status), format!("Internal (\"{}***\")", "x".repeat(QUOTED - 3)));
        let plain = Reported::attached(Status::internal("boom"), clean);
        assert_eq!(status_text(&plain), "Internal (\"boom\")");
    }

    #[test]
    fn an_unexpected_response_is_reported_with_the_expected_one() {
        let wrong = Err::<(), _>(Status::internal("boom")).refused("CreateVolume without a name", INVALID);
        assert_eq!(
            wrong.unwrap_err().to_string(),
            r#"CreateVolume without a name returned Internal ("boom"), expected InvalidArgument"#
        );
        let accepted = Ok::<_, Status>(()).refused("x", NO_SUCH).unwrap_err().to_string();
        assert_eq!(accepted, "x returned OK, expected InvalidArgument or NotFound");
    }
}
