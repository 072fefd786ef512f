//! From a run folder to its page: the end of a run, and `claimcheck report`.

use std::{
    io,
    path::{Path, PathBuf},
};

use claimcheck_files::replace_private;
use claimcheck_model::{Event, Stamp};

use super::{
    super::{
        events::{self, EventsError},
        summary::{Summary, Tally},
    },
    Timelines, render, trend,
};
use crate::history::{Entry, History};

/// The page of a run could not be created.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The events of the run cannot be read.
    #[error(transparent)]
    Events(#[from] EventsError),
    /// The summary cannot be parsed by this version.
    #[error("{} cannot be parsed: it was written by another version, or edited", path.display())]
    Summary {
        /// The file.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}

/// Regenerates `report.html` of a run folder and returns its path. The folder of a run that was killed is
/// accepted: its page shows everything until then. With a history it shows the previous runs too.
///
/// # Errors
/// If the folder is not a run folder, or one of its files cannot be read or parsed; see [`RebuildError`].
pub fn rebuild(folder: &Path, history: Option<&History>) -> Result<PathBuf, RebuildError> {
    let summarized = summary(folder)?;
    let (mut timelines, mut tally, mut started) = (Timelines::default(), Tally::default(), None);
    events::each(folder, |logged| {
        if let Event::RunStarted(_) = logged.event {
            started = Some(logged.at);
        }
        timelines.observe(&logged.event);
        // Only the summary of a run that was killed must be computed again.
        if summarized.is_none() {
            tally.observe(&logged.event, usize::default);
        }
    })?;
    let summary = summarized.unwrap_or_else(|| tally.finish());
    let earlier = earlier(history, &summary, started);
    let page = folder.join("report.html");
    // Atomically: the old page may be open in a browser.
    let written = replace_private(&page, render(&summary, &timelines, &earlier).as_bytes());
    written.map_err(|source| RebuildError::File { path: page.clone(), source })?;
    Ok(page)
}

/// The previous runs; none without a readable history: the page is complete without it.
fn earlier(history: Option<&History>, summary: &Summary, started: Option<Stamp>) -> Vec<Entry> {
    let Some((history, started)) = history.zip(started) else { return Vec::new() };
    trend::earlier(history, summary, started).unwrap_or_else(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "the page shows no earlier runs");
        Vec::new()
    })
}

/// The summary of a completed run: it has data that no event carries.
fn summary(folder: &Path) -> Result<Option<Summary>, RebuildError> {
    let path = folder.join("summary.json");
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        // The events determine whether this is a run folder at all.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(RebuildError::File { path, source }),
    };
    let summary = serde_json::from_slice(&text);
    summary.map(Some).map_err(|source| RebuildError::Summary { path, source })
}
