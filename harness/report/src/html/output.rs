//! `report.html` at the end of a run.

use super::rebuild;
use crate::outputs::{End, Output, Sink, started};
use crate::unwritten::ReportError;

pub(crate) const OUTPUT: Output = Output { file: Some("report.html"), start: |_| started(Page) };

struct Page;

impl Sink for Page {
    fn finish(&mut self, end: &mut End<'_>) -> Result<(), ReportError> {
        let made = rebuild(end.folder.path(), end.history.as_ref());
        made.map(drop).map_err(ReportError::from_rebuild)
    }
}
