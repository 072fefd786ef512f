//! `summary.json`: the summary, for programs and later comparison.

use super::folder::SUMMARY;
use super::outputs::{End, Output, Sink, started};
use super::unwritten::ReportError;

pub(crate) const OUTPUT: Output = Output { file: Some(SUMMARY), start: |_| started(SummaryFile) };

struct SummaryFile;

impl Sink for SummaryFile {
    fn finish(&mut self, end: &mut End<'_>) -> Result<(), ReportError> {
        end.folder.write(SUMMARY, &end.summary.to_json())
    }
}
