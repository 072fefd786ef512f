//! What is wrong with a driver file: where, and what was probably meant.

use std::{
    io,
    path::{Path, PathBuf},
};

use claimcheck_model::nearest;
use serde_saphyr::Error as Yaml;

/// Why a driver file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TestDriverError {
    /// It, or a file that it names, cannot be read.
    #[error("--driver-config: cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not what upstream's suite reads.
    #[error("{}:{line}: {what}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong, and what was probably meant.
        what: String,
    },
    /// A value that says nothing, or contradicts another.
    #[error("{}: {what}", .path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Which, and what it should be.
        what: String,
    },
}

/// Names that belong elsewhere in the file: as they are misplaced, and where they belong.
const ELSEWHERE: [(&str, &str); 4] = [
    ("NumSnapshots", "VolumeSnapshotStressTestOptions or VolumeGroupSnapshotStressTestOptions"),
    ("FromName", "StorageClass, SnapshotClass and GroupSnapshotClass"),
    ("Capabilities", "DriverInfo"),
    ("SupportedFsType", "DriverInfo"),
];

/// What the parser found, in words for those who wrote the file.
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
        (None, Some((_, home))) => format!("it belongs to {home}; here are known {all}"),
        (None, None) => format!("known are {all}"),
    };
    format!("there is no {kind} {name} here: {meant}")
}
