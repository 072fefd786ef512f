//! From a run folder to its page: the end of a run, and `claimcheck report`.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

use claimcheck_model::LoggedEvent;

use super::{
    super::summary::{Summary, Tally},
    Lives, render,
};

/// The page of a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// Not a run folder.
    #[error("{} is no run folder: there is no events.ndjson in it; give the folder that --out named, or one below runs/", folder.display())]
    NoRun {
        /// Which.
        folder: PathBuf,
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
    /// A file is not what a run of this version writes.
    #[error("{} line {line} cannot be understood: it was written by another version, or by hand", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// Makes `report.html` of a run folder anew and returns where it is. The folder of a run that was killed will
/// do: its page tells what there was until then.
///
/// # Errors
/// If the folder is none of a run, or a file of it cannot be read or understood; see [`RebuildError`].
pub fn rebuild(folder: &Path) -> Result<PathBuf, RebuildError> {
    let (lives, tally) = events(folder)?;
    let summary = summary(folder)?.unwrap_or_else(|| tally.finish());
    let page = folder.join("report.html");
    // Whole or not at all: somebody may be looking at the old one.
    let part = folder.join(".report.html.part");
    let written =
        File::create(&part).and_then(|mut file| file.write_all(render(&summary, &lives).as_bytes()));
    let written = written.and_then(|()| std::fs::rename(&part, &page));
    written.map_err(|source| RebuildError::File { path: page.clone(), source })?;
    Ok(page)
}

fn events(folder: &Path) -> Result<(Lives, Tally), RebuildError> {
    let path = folder.join("events.ndjson");
    let file = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            RebuildError::NoRun { folder: folder.to_owned() }
        }
        _ => RebuildError::File { path: path.clone(), source },
    };
    let mut lines = BufReader::new(File::open(&path).map_err(file)?);
    let (mut lives, mut tally) = (Lives::default(), Tally::default());
    let (mut line, mut number) = (String::new(), 0);
    loop {
        line.clear();
        number += 1;
        // The last line of a run that was killed may lack its end.
        if lines.read_line(&mut line).map_err(file)? == 0 || !line.ends_with('\n') {
            return Ok((lives, tally));
        }
        let event = serde_json::from_str::<LoggedEvent>(&line);
        let event =
            event.map_err(|source| RebuildError::Content { path: path.clone(), line: number, source })?;
        lives.observe(&event.event);
        tally.observe(&event.event, usize::default);
    }
}

/// The summary of a run that ended: it knows what no event says.
fn summary(folder: &Path) -> Result<Option<Summary>, RebuildError> {
    let path = folder.join("summary.json");
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(RebuildError::File { path, source }),
    };
    let summary = serde_json::from_slice(&text);
    summary.map(Some).map_err(|source| RebuildError::Content { path, line: source.line(), source })
}
