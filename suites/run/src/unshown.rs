//! Arguments that may hold a password: what is wrong with one is told without the argument, which clap would repeat.

use std::{convert::Infallible, fmt::Display, str::FromStr};

use secrecy::{ExposeSecret, SecretString};

/// An argument makes no sense. It is not told.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {why}")]
pub struct BadArgument {
    flag: &'static str,
    why: String,
}

/// Takes whatever was given: for clap.
pub(crate) fn unshown(text: &str) -> Result<SecretString, Infallible> {
    Ok(text.into())
}

/// What was given with this flag; its error must not repeat what it could not read.
pub(crate) fn parse<T: FromStr<Err: Display>>(
    flag: &'static str,
    given: &SecretString,
) -> Result<T, BadArgument> {
    given.expose_secret().parse().map_err(|error: T::Err| BadArgument { flag, why: error.to_string() })
}
