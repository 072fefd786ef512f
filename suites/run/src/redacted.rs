//! Arguments that can contain a password: errors about them omit the value, which clap would print.

use std::{convert::Infallible, fmt::Display, str::FromStr};

use secrecy::{ExposeSecret, SecretString};

/// An argument is invalid; the error omits its value.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {reason}")]
pub struct BadArgument {
    flag: &'static str,
    reason: String,
}

/// A value parser for clap that accepts any value.
pub(crate) fn redacted(text: &str) -> Result<SecretString, Infallible> {
    Ok(text.into())
}

/// Parses the value of this flag; the error of `T` must not contain the value.
pub(crate) fn parse<T: FromStr<Err: Display>>(
    flag: &'static str,
    given: &SecretString,
) -> Result<T, BadArgument> {
    given.expose_secret().parse().map_err(|error: T::Err| BadArgument { flag, reason: error.to_string() })
}
