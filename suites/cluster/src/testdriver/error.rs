//! Errors of driver files, with the position and a suggestion.

use std::{
    io,
    path::{Path, PathBuf},
};

use claimcheck_model::nearest;
use serde_saphyr::Error as Yaml;

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

/// Names that are often misplaced, and the fields that they belong to.
const ELSEWHERE: [(&str, &str); 4] = [
    ("NumSnapshots", "VolumeSnapshotStressTestOptions or VolumeGroupSnapshotStressTestOptions"),
    ("FromName", "StorageClass, SnapshotClass and GroupSnapshotClass"),
    ("Capabilities", "DriverInfo"),
    ("SupportedFsType", "DriverInfo"),
];

/// The parser's error as a message for the author of the file.
pub(super) fn form(path: &Path, error: &Yaml) -> TestDriverError {
    let error = error.without_snippet();
    let line = error.location().map_or(0, |location| location.line());
    let what = match error {
        Yaml::SerdeUnknownField { field, expected, .. } => unknown("field", field, expected),
        Yaml::SerdeUnknownVariant { variant, expected, .. } => unknown("name", variant, expected),
        other => other.to_string(),
    };
    TestDriverError::Form { path: path.to_owned(), line, what }
}

fn unknown(kind: &str, name: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    let meant = match (
        nearest(name, known.iter().copied()),
        ELSEWHERE.iter().find(|(misplaced, _)| *misplaced == name),
    ) {
        (Some(nearest), _) => format!("did you mean {nearest}?"),
        (None, Some((_, home))) => format!("it belongs to {home}; known here are {all}"),
        (None, None) => format!("known are {all}"),
    };
    format!("unknown {kind} {name}: {meant}")
}
