//! The tables and their migrations: the only place with SQL `CREATE` statements.

use rusqlite::{Connection, TransactionBehavior};

use super::Problem;

/// The migration to each version from the previous one, starting from an empty database. Users' files exist at every
/// version, so existing entries never change; a schema change adds an entry.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE run (
        id TEXT PRIMARY KEY,
        began_ns INTEGER NOT NULL,
        cluster TEXT NOT NULL,
        driver TEXT NOT NULL,
        claimcheck_version TEXT NOT NULL,
        kubernetes_version TEXT NOT NULL,
        environment TEXT NOT NULL, -- JSON
        good INTEGER NOT NULL,
        passed INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        skipped INTEGER NOT NULL,
        leaks INTEGER NOT NULL,
        violations INTEGER NOT NULL,
        counts TEXT NOT NULL, -- JSON: transitions by kind
        load TEXT, -- JSON
        elapsed_s REAL NOT NULL,
        folder TEXT NOT NULL
    ) STRICT;
    CREATE INDEX run_of ON run (cluster, driver, began_ns);
    CREATE TABLE phase (
        run TEXT NOT NULL REFERENCES run ON DELETE CASCADE,
        phase TEXT NOT NULL,
        measure TEXT NOT NULL, -- total, driver, overhead
        samples INTEGER NOT NULL,
        p50 REAL NOT NULL, p95 REAL NOT NULL, p99 REAL NOT NULL,
        least REAL NOT NULL, greatest REAL NOT NULL, mean REAL NOT NULL, -- all in seconds
        PRIMARY KEY (run, phase, measure)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE result ( -- of a case, which may run several times
        run TEXT NOT NULL REFERENCES run ON DELETE CASCADE,
        suite TEXT NOT NULL,
        name TEXT NOT NULL,
        result TEXT NOT NULL CHECK (result IN ('passed', 'failed', 'skipped')),
        seconds REAL NOT NULL
    ) STRICT;
    CREATE INDEX result_of ON result (run, result);
"];

/// Migrates a database to the version of this program. If several programs start concurrently, one migrates and
/// the others wait.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Problem> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // SQLite's numbers have a sign.
    let known = MIGRATIONS.len() as i64;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == known {
        return Ok(());
    }
    let steps = usize::try_from(version).ok().and_then(|version| MIGRATIONS.get(version..));
    let Some(steps) = steps else { return Err(Problem::Newer { version, known }) };
    let is_empty: bool =
        transaction.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if version == 0 && !is_empty {
        return Err(Problem::Foreign);
    }
    for step in steps {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    Ok(transaction.commit()?)
}
