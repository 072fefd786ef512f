//! What earlier runs came to: a database in the user's state directory, one writer a run at its end.
//!
//! ```text
//! Summary ──Entry::new──> History::record ──> history.db ──History::runs──┬─ text, JSON   `claimcheck history`
//!                                                (schema)                 └─ trend        report.html
//! ```
//!
//! Nothing here fails a run: a history that cannot be used is one warning, and the run's own folder has
//! everything. Several runs may end at once; each waits for its turn, and readers wait for nobody.

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

/// Why a history cannot be used.
#[derive(Debug)]
pub struct HistoryError {
    /// Which.
    pub path: PathBuf,
    /// Why.
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

/// What is wrong with a history, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Its file cannot be made.
    #[error("cannot be made: name another with --history FILE, or keep none with --no-history")]
    Make(#[source] io::Error),
    /// A newer program has written it.
    #[error(
        "is of version {version}, and this program knows {known}: use a newer claimcheck, or another file with --history FILE"
    )]
    Newer {
        /// What it is.
        version: i64,
        /// The newest that is known.
        known: i64,
    },
    /// It has tables that are not ours.
    #[error("is a database of something else: name another with --history FILE")]
    Foreign,
    /// What is in it makes no sense.
    #[error(
        "has something in it that this program has not written: move it away, or name another with --history FILE"
    )]
    Content(#[from] serde_json::Error),
    /// It is no database, or one that was cut or written over.
    #[error("is no database, or a broken one: move it away, or name another with --history FILE")]
    Broken(#[source] rusqlite::Error),
    /// SQLite says no.
    #[error("cannot be used: name another with --history FILE, or keep none with --no-history")]
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
