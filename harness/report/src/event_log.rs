//! `events.ndjson`: all events as they come.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use claimcheck_model::LoggedEvent;

use super::events::EVENTS;
use super::folder::create_new;
use super::outputs::{End, Output, Seen, Setup, Sink, Started, started};
use super::unwritten::ReportError;

pub(crate) const OUTPUT: Output = Output { file: Some(EVENTS), start };

/// The output; without a log after an error: it has a gap, and ends there.
struct EventLog(Option<Log>);

fn start(setup: &Setup) -> Started {
    let path = setup.folder.path().join(EVENTS);
    match create_new(&path) {
        Ok(file) => started(EventLog(Some(Log { file: BufWriter::new(file), path }))),
        Err(source) => Err(ReportError { path, source }),
    }
}

impl Sink for EventLog {
    fn observe(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        // Readers that follow the log see each burst at once; one write per event would cost more.
        let written = self.0.as_mut().map_or(Ok(()), |log| log.append(seen.logged, seen.flush));
        if written.is_err() {
            self.0 = None;
        }
        written
    }

    fn finish(&mut self, _: &mut End<'_>) -> Result<(), ReportError> {
        self.0.as_mut().map_or(Ok(()), Log::flush)
    }
}

#[derive(Debug)]
struct Log {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Log {
    fn append(&mut self, event: &LoggedEvent, flush: bool) -> Result<(), ReportError> {
        let written = serde_json::to_writer(&mut self.file, event).map_err(io::Error::from);
        let written = written.and_then(|()| self.file.write_all(b"\n"));
        let written = written.and_then(|()| if flush { self.file.flush() } else { Ok(()) });
        written.map_err(|source| self.failed(source))
    }

    fn flush(&mut self) -> Result<(), ReportError> {
        self.file.flush().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> ReportError {
        ReportError { path: self.path.clone(), source }
    }
}
