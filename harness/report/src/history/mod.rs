//! The results of earlier runs: a database in the user's state directory, written once at the end of each run.
//!
//! ```text
//! Summary ──Entry::new──> History::record ──> history.db ──History::runs──┬─ text, JSON   `claimcheck history`
//!                                                (schema)                 └─ trend        report.html
//! ```
//!
//! Errors here never fail a run: a history that cannot be used is one warning, and the run folder has
//! everything. Several runs may end concurrently; writers wait for each other, readers never block.

mod entry;
mod path;
mod plot;
mod schema;
mod store;
#[cfg(test)]
mod tests;
mod text;

use std::{fmt, io, path::PathBuf};

use rusqlite::ErrorCode;

pub use entry::{Entry, Selection};
pub use path::default_path;
pub(crate) use plot::change;
pub use plot::{Change, Plot, Point, plots};
pub use store::History;
pub use text::{to_json, to_text};

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
    /// It was written by a newer version of claimcheck.
    #[error(
        "has schema version {version}, but this program supports {known}: use a newer claimcheck, or another file with --history FILE"
    )]
    Newer {
        /// Its version.
        version: i64,
        /// The newest supported version.
        known: i64,
    },
    /// It contains tables of another application.
    #[error("is a database of another application: choose another file with --history FILE")]
    Foreign,
    /// It contains invalid data.
    #[error(
        "contains data that this program did not write: move it away, or choose another file with --history FILE"
    )]
    Content(#[from] serde_json::Error),
    /// It is not a database, or it was truncated or overwritten.
    #[error("is not a database, or is corrupted: move it away, or choose another file with --history FILE")]
    Broken(#[source] rusqlite::Error),
    /// Any other SQLite error.
    #[error("cannot be used: choose another file with --history FILE, or disable it with --no-history")]
    Database(#[source] rusqlite::Error),
}

impl From<rusqlite::Error> for Problem {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Broken(error),
            _ => Self::Database(error),
        }
    }
}
