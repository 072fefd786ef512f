//! Reads `events.ndjson` of a run folder.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use claimcheck_model::LoggedEvent;
use serde::Deserialize;

/// The file of a run folder with all events, in the order in which the reporter received them.
pub const EVENTS: &str = "events.ndjson";

/// An event of earlier versions that no longer exists, and is skipped: the machine speed.
const CALIBRATION: &str = "calibration";

/// The name of any event.
#[derive(Deserialize)]
struct Name {
    event: String,
}

/// The events of a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// Not a run folder.
    #[error("{} is not a run folder: it contains no {EVENTS}; pass the folder given with --out, or a subfolder of runs/", folder.display())]
    NoRun {
        /// Which.
        folder: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// A line cannot be parsed as an event of this version.
    #[error("{} line {line} is not a valid event: it was written by another version, or edited", path.display())]
    NoEvent {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
}

/// Passes every event of a run, with its time of logging, to `take`. The last line of a run that was killed may be
/// incomplete, and is ignored.
///
/// # Errors
/// The folder is not a run folder, or its events cannot be read or parsed; see [`EventsError`].
pub(crate) fn each(folder: &Path, take: impl FnMut(LoggedEvent)) -> Result<(), EventsError> {
    each_of(&folder.join(EVENTS), take).map_err(|error| match error {
        EventsError::Unreadable { source, .. }
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            EventsError::NoRun { folder: folder.to_owned() }
        }
        other => other,
    })
}

/// The same for the file itself.
///
/// # Errors
/// As [`each`].
pub(crate) fn each_of(path: &Path, mut take: impl FnMut(LoggedEvent)) -> Result<(), EventsError> {
    let unreadable = |source: io::Error| EventsError::Unreadable { path: path.to_owned(), source };
    let mut lines = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        if lines.read_line(&mut text).map_err(unreadable)? == 0 || !text.ends_with('\n') {
            break;
        }
        match serde_json::from_str::<LoggedEvent>(&text) {
            Ok(logged) => take(logged),
            Err(_) if serde_json::from_str::<Name>(&text).is_ok_and(|name| name.event == CALIBRATION) => {}
            Err(source) => return Err(EventsError::NoEvent { path: path.to_owned(), line, source }),
        }
    }
    Ok(())
}
