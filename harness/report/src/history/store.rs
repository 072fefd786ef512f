//! The file: one JSON object per line and run, appended, read and deleted.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use claimcheck_model::Stamp;
use serde::{Deserialize, Serialize};

use super::{Entry, HistoryError, Problem, Selection, entry, path};
use crate::Summary;

/// The version of a line. It is raised when a field changes its name or meaning, not when one is added.
const SCHEMA: u32 = 2;
/// The oldest version that is still read: older names are aliases.
const OLDEST: u32 = 1;

/// The stored runs.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
}

/// A line, as written.
#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    #[serde(flatten)]
    run: &'a Entry,
}

/// The field that all versions of a line have.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

impl History {
    /// Opens or creates the history. Only its user may read it.
    ///
    /// # Errors
    /// It cannot be created or read, or was not written by this program, or by a newer one.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        let created = path::make(path).map_err(Problem::Make);
        let checked = created.and_then(|()| Self::checked(path));
        // Only then it is known to be a history.
        let private = checked.and_then(|it| path::make_private(path).map(|()| it).map_err(Problem::Make));
        private.map_err(|problem| of(path, problem))
    }

    /// Opens the history if it exists.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_existing(path: &Path) -> Result<Option<Self>, HistoryError> {
        path.exists().then(|| Self::checked(path)).transpose().map_err(|problem| of(path, problem))
    }

    /// Another application's file must not be appended to.
    fn checked(path: &Path) -> Result<Self, Problem> {
        parse(&fs::read(path).map_err(Problem::Read)?)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a run.
    ///
    /// # Errors
    /// It cannot be written; then the file is as before.
    pub fn record(&self, summary: &Summary, started: Stamp, folder: &Path) -> Result<Entry, HistoryError> {
        let run = Entry::new(summary, started, folder);
        match self.append(&run) {
            Ok(()) => Ok(run),
            Err(error) => Err(of(&self.path, Problem::Write(error))),
        }
    }

    fn append(&self, run: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line { schema: SCHEMA, run })?;
        line.push(b'\n');
        let (mut file, content) = self.locked()?;
        // A writer that was killed may have left a part of its line.
        let whole = whole_lines(&content).len() as u64;
        file.set_len(whole)?;
        let written = file.write_all(&line);
        if written.is_err() {
            file.set_len(whole)?;
        }
        written
    }

    /// The file for appending, locked against other writers, and its content.
    fn locked(&self) -> io::Result<(File, Vec<u8>)> {
        loop {
            let mut file = OpenOptions::new().read(true).append(true).open(&self.path)?;
            file.lock()?;
            // While this waited for the lock, another process may have replaced the file.
            if file.metadata()?.ino() == fs::metadata(&self.path)?.ino() {
                let mut content = Vec::new();
                file.read_to_end(&mut content)?;
                return Ok((file, content));
            }
        }
    }

    /// The selected runs, the newest last.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn runs(&self, selection: &Selection) -> Result<Vec<Entry>, HistoryError> {
        let content = fs::read(&self.path).map_err(Problem::Read);
        let runs = content.and_then(|content| parse(&content)).map_err(|problem| of(&self.path, problem))?;
        let mut selected: Vec<Entry> = runs.into_iter().filter(|run| selection.includes(run)).collect();
        selected.sort_by_key(|run| run.started_ns);
        let extra = selection.last.map_or(0, |last| selected.len().saturating_sub(last as usize));
        Ok(selected.split_off(extra))
    }

    /// The newest `last` runs before one that began then, on the same kind of cluster with the same driver.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn before(
        &self,
        summary: &Summary,
        started: Stamp,
        last: u32,
    ) -> Result<Vec<Entry>, HistoryError> {
        self.runs(&Selection {
            cluster: summary.environment.get("cluster").cloned(),
            driver: summary.environment.get("driver").cloned(),
            before_ns: Some(entry::nanos(started)),
            last: Some(last),
            phase: None,
        })
    }

    /// Deletes the runs that began before this, nanoseconds since the Unix epoch, and returns their number.
    ///
    /// # Errors
    /// It cannot be written; then all runs are kept.
    pub fn forget(&self, before_ns: i64) -> Result<usize, HistoryError> {
        self.delete_before(before_ns).map_err(|problem| of(&self.path, problem))
    }

    fn delete_before(&self, before_ns: i64) -> Result<usize, Problem> {
        let (_locked, content) = self.locked().map_err(Problem::Write)?;
        let lines = whole_lines(&content).split_inclusive(|&byte| byte == b'\n');
        let is_kept: Vec<bool> = parse(&content)?.iter().map(|run| run.started_ns >= before_ns).collect();
        let kept: Vec<u8> = lines
            .zip(&is_kept)
            .filter(|(_, is_kept)| **is_kept)
            .flat_map(|(line, _)| line)
            .copied()
            .collect();
        let replacement = tempfile::NamedTempFile::new_in(self.path.parent().unwrap_or(Path::new(".")));
        let replaced = replacement.and_then(|mut file| {
            file.write_all(&kept)?;
            file.persist(&self.path).map_err(|error| error.error)
        });
        replaced.map_err(Problem::Write)?;
        Ok(is_kept.iter().filter(|is_kept| !**is_kept).count())
    }
}

fn of(path: &Path, problem: Problem) -> HistoryError {
    HistoryError { path: path.to_owned(), problem }
}

/// Without a last line that has no end: a process is writing it, or was killed.
fn whole_lines(content: &[u8]) -> &[u8] {
    let end = content.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    &content[..end]
}

/// All runs, in the order of their lines.
fn parse(content: &[u8]) -> Result<Vec<Entry>, Problem> {
    let lines = whole_lines(content);
    if lines.is_empty() && !content.is_empty() && content[0] != b'{' {
        return Err(Problem::Foreign);
    }
    let mut runs = Vec::new();
    for (number, line) in (1..).zip(lines.split_inclusive(|&byte| byte == b'\n')) {
        let content = |source| Problem::Content { line: number, source };
        let Version { schema } = serde_json::from_slice(line).map_err(content)?;
        if !(OLDEST..=SCHEMA).contains(&schema) {
            return Err(Problem::Version { version: schema, known: SCHEMA });
        }
        runs.push(serde_json::from_slice(line).map_err(content)?);
    }
    Ok(runs)
}
