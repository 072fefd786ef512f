//! Reads the events of run folders.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use claimcheck_model::{Event, LoadEvent, LoggedEvent, Outcome, Phase};

use crate::{
    EventsError, Summary, Tally,
    events::{self, EVENTS},
};

/// One line per request, if the API server is the embedded one.
const AUDIT_LOG: &str = "cluster/api.ndjson";

/// A folder cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It contains no runs.
    #[error("{} is neither a run folder nor a folder of run folders: pass one that `claimcheck run` or `load` created (with {EVENTS})", .0.display())]
    NoRuns(PathBuf),
    /// The events of a run cannot be read.
    #[error(transparent)]
    Events(#[from] EventsError),
    /// The run was killed, or is still in progress.
    #[error("the run in {} is incomplete: omit it", .0.display())]
    Unfinished(PathBuf),
}

/// One sample of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// When it ended, on the clock of its run.
    pub end_ns: u64,
    /// The total; seconds.
    pub total: f64,
    /// The driver's part; 0 if its calls were not observed.
    pub driver: f64,
    /// Kubernetes' part.
    pub overhead: f64,
}

/// The compared data of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub(super) summary: Summary,
    /// In the order in which they ended.
    pub(super) samples: BTreeMap<Phase, Vec<Sample>>,
    /// When each block of a load started, on the same clock, if it ran in blocks.
    pub(super) blocks: Vec<u64>,
    pub(super) api_requests: Option<u64>,
    /// When it started, nanoseconds since the Unix epoch.
    pub(super) started_ns: Option<i64>,
}

/// One side of a comparison: one or several equivalent runs.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// The folder of the run, or of the runs.
    pub(super) folder: PathBuf,
    pub(super) runs: Vec<Run>,
}

impl Side {
    /// Reads a run folder, or all run folders in a folder.
    ///
    /// # Errors
    /// It contains no run, or one is incomplete or cannot be read.
    pub fn read(folder: &Path) -> Result<Self, ReadError> {
        if folder.join(EVENTS).is_file() {
            return Ok(Self { folder: folder.to_owned(), runs: vec![Run::read(folder)?] });
        }
        let Ok(entries) = fs::read_dir(folder) else { return Err(ReadError::NoRuns(folder.to_owned())) };
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.retain(|folder| folder.join(EVENTS).is_file());
        folders.sort();
        let runs: Vec<Run> = folders.iter().map(|folder| Run::read(folder)).collect::<Result<_, _>>()?;
        match runs.is_empty() {
            true => Err(ReadError::NoRuns(folder.to_owned())),
            false => Ok(Self { folder: folder.to_owned(), runs }),
        }
    }
}

impl Run {
    fn read(folder: &Path) -> Result<Self, ReadError> {
        let mut tally = Tally::default();
        let mut samples: BTreeMap<Phase, Vec<Sample>> = BTreeMap::new();
        let mut blocks = Vec::new();
        let mut has_ended = false;
        let mut started_ns = None;
        events::each(folder, |LoggedEvent { at, event }| {
            // Series of metrics are no part of a comparison.
            tally.observe(&event, || 0);
            has_ended |= matches!(event, Event::RunFinished { .. });
            match event {
                Event::RunStarted(_) => started_ns = i64::try_from(at.wall_ns).ok(),
                Event::Phase(sample) => {
                    if let Outcome::Ok { end, seconds, driver_seconds, overhead_seconds, .. } = sample.outcome
                    {
                        samples.entry(sample.phase).or_default().push(Sample {
                            end_ns: end.mono_ns,
                            total: seconds,
                            driver: driver_seconds.unwrap_or_default(),
                            overhead: overhead_seconds.unwrap_or(seconds),
                        });
                    }
                }
                Event::Load(LoadEvent::Block { start }) => blocks.push(start.mono_ns),
                _ => {}
            }
        })?;
        if !has_ended {
            return Err(ReadError::Unfinished(folder.to_owned()));
        }
        samples.values_mut().for_each(|samples| samples.sort_by_key(|sample| sample.end_ns));
        let summary = tally.finish();
        // A load reports its own number of requests; for cases, all requests of the run count.
        let of_load = summary.load.as_ref().map(|load| load.api_requests);
        let api_requests = of_load.unwrap_or_else(|| {
            let log = File::open(folder.join(AUDIT_LOG)).ok()?;
            Some(BufReader::new(log).lines().count() as u64)
        });
        Ok(Self { summary, samples, blocks, api_requests, started_ns })
    }
}
