//! The results of earlier runs: a file in the user's state directory, one JSON object per line and run.
//!
//! ```text
//! Summary ──Entry::new──> History::record ──> history.ndjson ──History::runs──┬─ text, JSON   `claimcheck history`
//!                                                                             └─ trend        report.html
//! ```
//!
//! Errors here never fail a run: a history that cannot be used is one warning, and the run folder has
//! everything. Several runs may end concurrently; writers wait for each other, readers never block.

mod entry;
mod output;
mod path;
mod plot;
mod store;
#[cfg(test)]
mod tests;
mod text;

use std::{fmt, io, path::PathBuf};

pub use entry::{Entry, Selection};
pub(crate) use output::OUTPUT;
pub use path::default_path;
pub(crate) use plot::change;
pub use plot::{Change, Plot, Point, plots};
pub use store::History;
pub(crate) use text::when;
pub use text::{Document, to_text};

/// The history cannot be used.
#[derive(Debug)]
pub struct HistoryError {
    /// Its path.
    pub path: PathBuf,
    /// The problem.
    pub problem: Problem,
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the history {} {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for HistoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.problem.source()
    }
}

/// A problem of a history, and its remedy.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Its file cannot be created.
    #[error("cannot be created: choose another file with --history FILE, or disable it with --no-history")]
    Make(#[source] io::Error),
    /// It cannot be read.
    #[error("cannot be read: choose another file with --history FILE, or disable it with --no-history")]
    Read(#[source] io::Error),
    /// It cannot be written.
    #[error("cannot be written: choose another file with --history FILE, or disable it with --no-history")]
    Write(#[source] io::Error),
    /// It was written by another version of claimcheck.
    #[error(
        "has schema version {version}, but this program supports {known}: use the claimcheck that wrote it, or \
         another file with --history FILE"
    )]
    Version {
        /// Its version.
        version: u32,
        /// The supported version.
        known: u32,
    },
    /// It is not a text of lines.
    #[error("is not a history: move it away, or choose another file with --history FILE")]
    Foreign,
    /// It contains other data.
    #[error(
        "contains data that this program did not write, in line {line}: move it away, or choose another file \
         with --history FILE"
    )]
    Content {
        /// The number of the line, from 1.
        line: usize,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
}
