//! What regular expressions find in strings.
//!
//! Mirrors apiserver pkg/cel/library/regex.go.

use cel::common::types::{CelInt, CelList, CelString};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError};
use regex::Regex;

use crate::custom::pattern;

pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_member_overload!(env, fn find: (CelString, CelString) -> Result<CelString>)?;
    cel::add_member_overload!(env, fn find_all: (CelString, CelString) -> Result<CelList>)?;
    cel::add_member_overload!(env, fn find_some: (CelString, CelString, CelInt) -> Result<CelList>,
        name = "findAll")
}

fn pattern(text: &CelString<'_>) -> Result<Regex, ExecutionError> {
    let error = |error: String| {
        ExecutionError::function_error("find", format!("Illegal regex: error parsing regexp: {error}"))
    };
    pattern::compile(text.inner()).map_err(error)
}

fn find(text: &CelString<'_>, by: &CelString<'_>) -> Result<CelString<'static>, ExecutionError> {
    let found = pattern(by)?.find(text.inner()).map(|found| found.as_str().to_owned());
    Ok(CelString::from(found.unwrap_or_default()))
}

fn find_all(text: &CelString<'_>, by: &CelString<'_>) -> Result<CelList<'static>, ExecutionError> {
    find_some(text, by, &CelInt::from(-1))
}

/// As many as the limit, or all if that is negative.
fn find_some(
    text: &CelString<'_>,
    by: &CelString<'_>,
    limit: &CelInt,
) -> Result<CelList<'static>, ExecutionError> {
    let limit = usize::try_from(*limit.inner()).unwrap_or(usize::MAX);
    let pattern = pattern(by)?;
    let found = pattern.find_iter(text.inner()).take(limit);
    let found = found.map(|found| Box::new(CelString::from(found.as_str().to_owned())) as Box<dyn Val>);
    Ok(super::owned_list(found.collect()))
}
