//! The outputs of a run that could not be written: the verdict does not depend on them.

use std::error::Error as _;
use std::io::{self, Write as _};
use std::path::PathBuf;

use super::{html::RebuildError, job_summary, markdown, summary::Summary};

/// A report could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: check that the disk has space and the folder still exists, or choose another with --out", path.display())]
pub struct ReportError {
    /// The file.
    pub path: PathBuf,
    /// The I/O error.
    #[source]
    pub source: io::Error,
}

impl ReportError {
    /// The report page could not be created.
    pub(super) fn from_rebuild(error: RebuildError) -> Self {
        match error {
            RebuildError::File { path, source } => Self { path, source },
            RebuildError::Events(_) | RebuildError::Summary { .. } => {
                let reason = error.source().map(|source| format!("{error}: {source}"));
                let source = io::Error::other(reason.unwrap_or_else(|| error.to_string()));
                Self { path: "report.html".into(), source }
            }
        }
    }
}

/// The result of a run, after its outputs were written.
#[derive(Debug)]
pub struct Reported {
    /// The summary, with the verdict.
    pub summary: Summary,
    /// The outputs that could not be written.
    pub unwritten: Vec<ReportError>,
}

impl Reported {
    /// The exit code of the process, if it depends on nothing else.
    pub fn exit_code(&self) -> u8 {
        self.or_unwritten(self.summary.ending().exit_code())
    }

    /// This exit code; 5 instead of 0 if an output could not be written.
    pub fn or_unwritten(&self, code: u8) -> u8 {
        match (code, self.unwritten.is_empty()) {
            (0, false) => 5,
            (code, _) => code,
        }
    }
}

/// Gathers the errors of outputs.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    pub errors: Vec<ReportError>,
}

impl Unwritten {
    /// The value, or none after an error.
    pub fn keep<T>(&mut self, written: Result<T, ReportError>) -> Option<T> {
        written.map_err(|error| self.errors.push(error)).ok()
    }

    /// Prints what is missing, one line for each reason.
    pub fn report(&self) {
        let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
        for ReportError { path, source } in &self.errors {
            let (reason, path) = (source.to_string(), path.display().to_string());
            match reasons.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, paths)) => paths.push(path),
                None => reasons.push((reason, vec![path])),
            }
        }
        for (reason, paths) in reasons {
            let paths = paths.join(", ");
            // If standard error is closed, the exit code still states it.
            let _ = writeln!(
                io::stderr(),
                "claimcheck: the verdict stands, but these outputs could not be written: {paths}: {reason}: check that \
                 the disk has space, or choose another folder with --out"
            );
        }
    }
}

/// Appends to the summary of a CI job that a run could not start, if it failed before it had a folder for its reports.
pub fn report_failed_start(reason: &str) {
    let summary = Summary::not_started(reason);
    if let Some(path) = job_summary::step_summary()
        && let Err(error) = job_summary::append(&path, &markdown::render(&summary))
    {
        let _ = writeln!(io::stderr(), "claimcheck: {error}: {}", error.source);
    }
}
