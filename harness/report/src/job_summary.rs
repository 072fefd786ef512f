//! The summary page of a CI job: `summary.md`, appended to the file that GitHub Actions names.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::markdown;
use super::outputs::{End, Output, Setup, Sink, Started, started};
use super::unwritten::ReportError;

pub(crate) const OUTPUT: Output = Output { file: None, start };

/// The variable with the step summary file of GitHub Actions: a file to append to.
/// <https://docs.github.com/actions/reference/workflow-commands-for-github-actions#adding-a-job-summary>
const STEP_SUMMARY: &str = "GITHUB_STEP_SUMMARY";

struct JobSummary(PathBuf);

fn start(setup: &Setup) -> Started {
    setup.step_summary.clone().map_or(Ok(None), |path| started(JobSummary(path)))
}

impl Sink for JobSummary {
    fn finish(&mut self, end: &mut End<'_>) -> Result<(), ReportError> {
        append(&self.0, &markdown::render(end.summary))
    }
}

/// The step summary file of the current CI job, if any.
pub(super) fn step_summary() -> Option<PathBuf> {
    std::env::var_os(STEP_SUMMARY).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Appends to a summary: a job may run claimcheck more than once.
pub(super) fn append(path: &Path, text: &str) -> Result<(), ReportError> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| ReportError { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_a_step_is_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step");
        append(&path, "one\n").unwrap();
        append(&path, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntwo\n");
    }
}
