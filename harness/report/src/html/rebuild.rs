//! From a run folder to its page: the end of a run, and `claimcheck report`.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use claimcheck_model::{Event, Stamp};

use super::{
    super::{
        events::{self, EventsError},
        summary::{Summary, Tally},
    },
    Lives, render, trend,
};
use crate::history::{Entry, History};

/// The page of a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// There are no events to make it of.
    #[error(transparent)]
    Events(#[from] EventsError),
    /// The summary is not what a run of this version writes.
    #[error("{} cannot be understood: it was written by another version, or by hand", path.display())]
    Summary {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Makes `report.html` of a run folder anew and returns where it is. The folder of a run that was killed will
/// do: its page tells what there was until then. With a history it shows the runs before this one too.
///
/// # Errors
/// If the folder is none of a run, or a file of it cannot be read or understood; see [`RebuildError`].
pub fn rebuild(folder: &Path, history: Option<&History>) -> Result<PathBuf, RebuildError> {
    let told = summary(folder)?;
    let (mut lives, mut tally, mut began) = (Lives::default(), Tally::default(), None);
    events::each(folder, |logged| {
        if let Event::RunStarted(_) = logged.event {
            began = Some(logged.at);
        }
        lives.observe(&logged.event);
        // Only a run that was killed must be added up again.
        if told.is_none() {
            tally.observe(&logged.event, usize::default);
        }
    })?;
    let summary = told.unwrap_or_else(|| tally.finish());
    let earlier = earlier(history, &summary, began);
    let page = folder.join("report.html");
    // Whole or not at all: somebody may be looking at the old one.
    let part = folder.join(".report.html.part");
    let written = File::create(&part)
        .and_then(|mut file| file.write_all(render(&summary, &lives, &earlier).as_bytes()));
    let written = written.and_then(|()| std::fs::rename(&part, &page));
    written.map_err(|source| RebuildError::File { path: page.clone(), source })?;
    Ok(page)
}

/// The runs before; none where there is no history, or one that cannot be read: the page is whole without it.
fn earlier(history: Option<&History>, summary: &Summary, began: Option<Stamp>) -> Vec<Entry> {
    let Some((history, began)) = history.zip(began) else { return Vec::new() };
    trend::earlier(history, summary, began).unwrap_or_else(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "the page shows no earlier runs");
        Vec::new()
    })
}

/// The summary of a run that ended: it knows what no event says.
fn summary(folder: &Path) -> Result<Option<Summary>, RebuildError> {
    let path = folder.join("summary.json");
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        // Whether that is a run folder at all its events tell.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(RebuildError::File { path, source }),
    };
    let summary = serde_json::from_slice(&text);
    summary.map(Some).map_err(|source| RebuildError::Summary { path, source })
}
