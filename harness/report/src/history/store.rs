//! The database: storing, reading and deleting runs.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use claimcheck_model::{Phase, Stamp};
use rusqlite::{Connection, OpenFlags, Row, named_params, params};
use serde::{Serialize, de::DeserializeOwned};

use super::{Entry, HistoryError, Problem, Selection, entry, path, schema};
use crate::{CaseCounts, Quantiles, Summary};

/// The busy timeout: a write takes milliseconds, so that many runs may end concurrently.
const PATIENCE: Duration = Duration::from_secs(10);

/// The stored runs.
#[derive(Debug)]
pub struct History {
    connection: Connection,
    path: PathBuf,
}

impl History {
    /// Opens or creates the history. Only its user may read it.
    ///
    /// # Errors
    /// It cannot be created or used, or was written by a newer program.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        let made = path::make(path).map_err(Problem::Make);
        made.and_then(|()| Self::connect(path)).map_err(|problem| of(path, problem))
    }

    /// Opens the history if it exists.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_existing(path: &Path) -> Result<Option<Self>, HistoryError> {
        path.exists().then(|| Self::connect(path)).transpose().map_err(|problem| of(path, problem))
    }

    fn connect(path: &Path) -> Result<Self, Problem> {
        let mut connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        schema::migrate(&mut connection)?;
        // The mode is persistent. If another process has the file open at this moment, SQLite refuses rather
        // than waits; then that process or the next one sets it, and the database is equally safe without it.
        if let Err(error) = connection.pragma_update(None, "journal_mode", "WAL") {
            tracing::debug!(error = &error as &dyn std::error::Error, "the history keeps its journal mode");
        }
        Ok(Self { connection, path: path.to_owned() })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a run atomically.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn record(&mut self, summary: &Summary, began: Stamp, folder: &Path) -> Result<Entry, HistoryError> {
        let run = Entry::new(summary, began, folder);
        match self.insert(&run, summary) {
            Ok(()) => Ok(run),
            Err(problem) => Err(of(&self.path, problem)),
        }
    }

    fn insert(&mut self, run: &Entry, summary: &Summary) -> Result<(), Problem> {
        let transaction = self.connection.transaction()?;
        transaction.execute(
            "INSERT INTO run VALUES (:id, :began_ns, :cluster, :driver, :claimcheck_version, :kubernetes_version,
                :environment, :good, :passed, :failed, :skipped, :leaks, :violations, :counts, :load, :elapsed_s,
                :folder)",
            named_params! {
                ":id": run.id,
                ":began_ns": run.began_ns,
                ":cluster": run.cluster,
                ":driver": run.driver,
                ":claimcheck_version": run.claimcheck_version,
                ":kubernetes_version": run.kubernetes_version,
                ":environment": json(&run.environment),
                ":good": run.good,
                ":passed": whole(run.cases.passed),
                ":failed": whole(run.cases.failed),
                ":skipped": whole(run.cases.skipped),
                ":leaks": whole(run.leaks),
                ":violations": whole(run.violations),
                ":counts": json(&run.counts),
                ":load": run.load.as_ref().map(json),
                ":elapsed_s": run.elapsed_s,
                ":folder": run.folder,
            },
        )?;
        {
            let mut phase =
                transaction.prepare("INSERT INTO phase VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?;
            for (name, q) in run.phases.iter().flat_map(|(phase, all)| all.iter().map(|q| (phase.name(), q)))
            {
                let count = whole(q.count);
                phase.execute(params![
                    run.id, name, q.name, count, q.p50, q.p95, q.p99, q.min, q.max, q.avg
                ])?;
            }
            let mut result = transaction.prepare("INSERT INTO result VALUES (?1, ?2, ?3, ?4, ?5)")?;
            for line in &summary.results {
                let case = &line.case;
                result.execute(params![run.id, case.suite, case.name, entry::result(line), line.seconds])?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// The selected runs, the newest last.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn runs(&self, selection: &Selection) -> Result<Vec<Entry>, HistoryError> {
        self.select(selection).map_err(|problem| of(&self.path, problem))
    }

    fn select(&self, of: &Selection) -> Result<Vec<Entry>, Problem> {
        // All reads use one snapshot of the database.
        let transaction = self.connection.unchecked_transaction()?;
        let mut found = transaction.prepare(
            "SELECT * FROM run
             WHERE (:cluster IS NULL OR cluster = :cluster) AND (:driver IS NULL OR driver = :driver)
                AND (:before_ns IS NULL OR began_ns < :before_ns)
                AND (:phase IS NULL OR EXISTS (SELECT 1 FROM phase WHERE run = run.id AND phase = :phase))
             ORDER BY began_ns DESC, id LIMIT :last",
        )?;
        let mut rows = found.query(named_params! {
            ":cluster": of.cluster,
            ":driver": of.driver,
            ":before_ns": of.before_ns,
            ":phase": of.phase.map(Phase::name),
            // SQLite treats a negative limit as unlimited.
            ":last": of.last.map_or(-1, i64::from),
        })?;
        let mut phases =
            transaction.prepare("SELECT * FROM phase WHERE run = ?1 ORDER BY measure <> 'total', measure")?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            let mut run = run(row)?;
            let mut rows = phases.query([&run.id])?;
            while let Some(row) = rows.next()? {
                // Phases of other versions are unknown to this one.
                if let Some(phase) = Phase::from_name(row.get_ref("phase")?.as_str().unwrap_or_default()) {
                    run.phases.entry(phase).or_default().push(quantiles(row)?);
                }
            }
            runs.push(run);
        }
        runs.reverse();
        Ok(runs)
    }

    /// The newest `last` runs before one that began then, on the same kind of cluster with the same driver.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn before(
        &self,
        summary: &Summary,
        began: Stamp,
        last: u32,
    ) -> Result<Vec<Entry>, HistoryError> {
        self.runs(&Selection {
            cluster: summary.environment.get("cluster").cloned(),
            driver: summary.environment.get("driver").cloned(),
            before_ns: Some(entry::nanos(began)),
            last: Some(last),
            phase: None,
        })
    }

    /// Deletes the runs that began before this, nanoseconds since the Unix epoch, and returns their number.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn forget(&mut self, before_ns: i64) -> Result<usize, HistoryError> {
        let delete = "DELETE FROM run WHERE began_ns < ?1";
        let forgotten = self.connection.execute(delete, [before_ns]).and_then(|forgotten| {
            // Otherwise the file keeps its size and the deleted data.
            self.connection.execute_batch("VACUUM")?;
            Ok(forgotten)
        });
        forgotten.map_err(|error| of(&self.path, error.into()))
    }
}

fn of(path: &Path, problem: Problem) -> HistoryError {
    HistoryError { path: path.to_owned(), problem }
}

fn run(row: &Row<'_>) -> Result<Entry, Problem> {
    let (environment, counts): (String, String) = (row.get("environment")?, row.get("counts")?);
    let load: Option<String> = row.get("load")?;
    let number = |name: &str| row.get::<_, i64>(name).map(|number| u64::try_from(number).unwrap_or_default());
    Ok(Entry {
        id: row.get("id")?,
        began_ns: row.get("began_ns")?,
        cluster: row.get("cluster")?,
        driver: row.get("driver")?,
        claimcheck_version: row.get("claimcheck_version")?,
        kubernetes_version: row.get("kubernetes_version")?,
        environment: parsed(&environment)?,
        good: row.get("good")?,
        cases: CaseCounts {
            passed: number("passed")?,
            failed: number("failed")?,
            skipped: number("skipped")?,
        },
        leaks: number("leaks")?,
        violations: number("violations")?,
        counts: parsed(&counts)?,
        load: load.as_deref().map(parsed).transpose()?,
        elapsed_s: row.get("elapsed_s")?,
        folder: row.get("folder")?,
        phases: BTreeMap::new(),
    })
}

fn quantiles(row: &Row<'_>) -> rusqlite::Result<Quantiles> {
    Ok(Quantiles {
        name: row.get("measure")?,
        count: row.get::<_, i64>("samples").map(|count| u64::try_from(count).unwrap_or_default())?,
        p50: row.get("p50")?,
        p95: row.get("p95")?,
        p99: row.get("p99")?,
        min: row.get("least")?,
        max: row.get("greatest")?,
        avg: row.get("mean")?,
    })
}

/// SQLite integers are signed.
fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("all that is kept has string keys only")
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    Ok(serde_json::from_str(text)?)
}
