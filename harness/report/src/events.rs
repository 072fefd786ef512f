//! `events.ndjson` of a run folder, read again.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use claimcheck_model::LoggedEvent;

/// The file of a run folder that has every event, in the order in which the reporter took them.
pub(crate) const EVENTS: &str = "events.ndjson";

/// Why the events of a run cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// Not a run folder.
    #[error("{} is no run folder: there is no {EVENTS} in it; give the folder that --out named, or one below runs/", folder.display())]
    NoRun {
        /// Which.
        folder: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A line is not what a run of this version writes.
    #[error("{} line {line} is no event: it was written by another version, or by hand", path.display())]
    NoEvent {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// Gives every event of a run, with when it was logged, to `take`. The last line of a run that was killed may lack
/// its end, and is left out.
///
/// # Errors
/// The folder is none of a run, or its events cannot be read or understood; see [`EventsError`].
pub(crate) fn each(folder: &Path, mut take: impl FnMut(LoggedEvent)) -> Result<(), EventsError> {
    let path = folder.join(EVENTS);
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            EventsError::NoRun { folder: folder.to_owned() }
        }
        _ => EventsError::Unreadable { path: path.clone(), source },
    };
    let mut lines = BufReader::new(File::open(&path).map_err(unreadable)?);
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        if lines.read_line(&mut text).map_err(unreadable)? == 0 || !text.ends_with('\n') {
            break;
        }
        let logged = serde_json::from_str::<LoggedEvent>(&text);
        let logged = logged.map_err(|source| EventsError::NoEvent { path: path.clone(), line, source })?;
        take(logged);
    }
    Ok(())
}
