//! Errors of driver files, with the position and a suggestion.

use std::{
    io,
    path::{Path, PathBuf},
};

use claimcheck_model::unknown;
use serde_saphyr::Error as Yaml;

use super::names::Node;

/// The reason why a driver file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TestDriverError {
    /// The file, or a file that it names, cannot be read.
    #[error("--driver-config: cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is not a valid driver file of upstream's suite.
    #[error("{}:{line}: {what}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The error and a suggestion.
        what: String,
    },
    /// A value that is invalid or contradicts another.
    #[error("{}: {what}", .path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The field, and the expected value.
        what: String,
    },
}

/// The parser's error as a message for the author of the file.
pub(super) fn form(path: &Path, error: &Yaml, document: Option<&Node>) -> TestDriverError {
    let error = error.without_snippet();
    let line = error.location().map_or(0, |location| location.line());
    let field = document.and_then(|document| document.field_at(line)).map(|field| format!("{field}: "));
    let what = match error {
        Yaml::SerdeUnknownVariant { variant, expected, .. } => unknown("name", variant, expected),
        other => other.to_string(),
    };
    TestDriverError::Form { path: path.to_owned(), line, what: field.unwrap_or_default() + &what }
}
