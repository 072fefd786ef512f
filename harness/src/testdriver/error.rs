//! What is wrong with a driver file: where, and what was probably meant.

use std::{
    io,
    path::{Path, PathBuf},
};

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
    let meant = match (nearest(name, known), ELSEWHERE.iter().find(|(misplaced, _)| *misplaced == name)) {
        (Some(nearest), _) => format!("did you mean {nearest}?"),
        (None, Some((_, home))) => format!("it belongs to {home}; here are known {all}"),
        (None, None) => format!("known are {all}"),
    };
    format!("there is no {kind} {name} here: {meant}")
}

/// The known name that was probably meant: at most a third of its letters are wrong. Upper and lower case count as
/// one letter, since that is the commonest mistake and the parser's eyes are sharp.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |known: &str| edits(&name.to_lowercase(), &known.to_lowercase());
    let nearest = known.iter().copied().min_by_key(|known| distance(known))?;
    (distance(nearest) * 3 <= nearest.len()).then_some(nearest)
}

/// How many letters must be added, dropped or changed (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (from, to, expected) in
            [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "", 2)]
        {
            assert_eq!(edits(from, to), expected, "{from} {to}");
        }
    }
}
