//! Tables and verdict on standard output, at the end of a run.

use std::io::{self, Write as _};

use super::outputs::{End, Output, Setup, Sink, Started, started};
use super::summary::Summary;
use super::tables::{Style, render_with};
use super::unwritten::ReportError;

pub(crate) const OUTPUT: Output = Output { file: None, start };

struct Tables {
    style: Style,
    details: Option<fn(&Summary) -> String>,
}

fn start(setup: &Setup) -> Started {
    if !setup.terminal {
        return Ok(None);
    }
    started(Tables { style: Style::detect(), details: setup.details })
}

impl Sink for Tables {
    fn finish(&mut self, end: &mut End<'_>) -> Result<(), ReportError> {
        let details = self.details.filter(|_| end.started.is_some()).map(|details| details(end.summary));
        let text = render_with(end.summary, self.style, details, Some(&end.folder.result()));
        // If standard output is closed, the files still have the result.
        let _ = writeln!(io::stdout(), "{text}");
        Ok(())
    }
}
