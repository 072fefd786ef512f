//! Semantic versions.
//!
//! Mirrors apiserver pkg/cel/library/semverlib.go.

use std::cmp::Ordering;

use cel::common::types::{CelBool, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use crate::custom::rules::opaque::opaque;

/// A version.
#[derive(Clone, Debug, PartialEq)]
struct Version {
    numbers: [u64; 3],
    /// The identifiers of a release before it.
    before: Vec<String>,
}

opaque!(Version, "kubernetes.Semver");

pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn semver: (CelString) -> Result<Version>)?;
    cel::add_overload!(env, fn semver_of: (CelString, CelBool) -> Result<Version>, name = "semver")?;
    cel::add_overload!(env, fn is_semver: (CelString) -> CelBool)?;
    cel::add_overload!(env, fn is_semver_of: (CelString, CelBool) -> CelBool, name = "isSemver")?;
    cel::add_member_overload!(env, fn is_greater: (Version, Version) -> CelBool,
        name = "isGreaterThan", id = "semver_is_greater_than")?;
    cel::add_member_overload!(env, fn is_less: (Version, Version) -> CelBool,
        name = "isLessThan", id = "semver_is_less_than")?;
    cel::add_member_overload!(env, fn compare: (Version, Version) -> CelInt,
        name = "compareTo", id = "semver_compare_to")?;
    cel::add_member_overload!(env, fn major: (Version) -> CelInt)?;
    cel::add_member_overload!(env, fn minor: (Version) -> CelInt)?;
    cel::add_member_overload!(env, fn patch: (Version) -> CelInt)
}

impl Version {
    /// The version in `text`, with three numbers without zeros in front.
    fn parse(text: &str) -> Option<Self> {
        let is_identifier = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let has_zeros = |text: &str| text.len() > 1 && text.starts_with('0');
        let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        if build.is_some_and(|build| !build.split('.').all(is_identifier)) {
            return None;
        }
        let (core, before) = text.split_once('-').map_or((text, None), |(core, before)| (core, Some(before)));
        let before: Vec<String> =
            before.into_iter().flat_map(|before| before.split('.')).map(str::to_owned).collect();
        if !before.iter().all(|part| is_identifier(part) && !(is_number(part) && has_zeros(part))) {
            return None;
        }
        let numbers: Vec<u64> = core
            .split('.')
            .map(|part| part.parse().ok().filter(|_| is_number(part) && !has_zeros(part)))
            .collect::<Option<_>>()?;
        Some(Self { numbers: numbers.try_into().ok()?, before })
    }

    /// The version in `text`, which may begin with `v`, have less than three numbers, and zeros in front of them.
    fn normalized(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in parts.iter_mut().filter(|part| part.len() > 1) {
            let rest = part.trim_start_matches('0');
            let zero = if rest.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "0" };
            *part = format!("{zero}{rest}");
        }
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return None;
        }
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }

    fn order(&self, other: &Self) -> Ordering {
        let identifiers = || {
            let number = |text: &String| text.parse::<u64>().ok();
            for (left, right) in self.before.iter().zip(&other.before) {
                let order = match (number(left), number(right)) {
                    (Some(left), Some(right)) => left.cmp(&right),
                    // Numbers are lower than words.
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (None, None) => left.cmp(right),
                };
                if order.is_ne() {
                    return order;
                }
            }
            self.before.len().cmp(&other.before.len())
        };
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.before.is_empty(), other.before.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => identifiers(),
            }
        })
    }
}

fn read(text: &str, normalize: bool) -> Option<Version> {
    if normalize { Version::normalized(text) } else { Version::parse(text) }
}

fn semver_of(text: &CelString<'_>, normalize: &CelBool) -> Result<Version, ExecutionError> {
    let error = || {
        let message = format!("{} is not a semantic version", crate::quote::quote(text.inner()));
        ExecutionError::function_error("semver", message)
    };
    read(text.inner(), *normalize.inner()).ok_or_else(error)
}

fn semver(text: &CelString<'_>) -> Result<Version, ExecutionError> {
    semver_of(text, &CelBool::from(false))
}

fn is_semver_of(text: &CelString<'_>, normalize: &CelBool) -> CelBool {
    CelBool::from(read(text.inner(), *normalize.inner()).is_some())
}

fn is_semver(text: &CelString<'_>) -> CelBool {
    is_semver_of(text, &CelBool::from(false))
}

fn is_greater(version: &Version, other: &Version) -> CelBool {
    CelBool::from(version.order(other).is_gt())
}

fn is_less(version: &Version, other: &Version) -> CelBool {
    CelBool::from(version.order(other).is_lt())
}

fn compare(version: &Version, other: &Version) -> CelInt {
    CelInt::from(version.order(other) as i64)
}

fn number(version: &Version, index: usize) -> CelInt {
    CelInt::from(i64::try_from(version.numbers[index]).unwrap_or(i64::MAX))
}

fn major(version: &Version) -> CelInt {
    number(version, 0)
}

fn minor(version: &Version) -> CelInt {
    number(version, 1)
}

fn patch(version: &Version) -> CelInt {
    number(version, 2)
}
