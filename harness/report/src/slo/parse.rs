//! From a file of thresholds to [`Objective`]s. Strict: a misspelt threshold would never be checked.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use claimcheck_model::Phase;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{Counted, Measure, Objective, Quantile, Samples};

/// Why thresholds cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SloError {
    /// The file cannot be read.
    #[error("cannot read --slo {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// It is not a list of thresholds.
    #[error("--slo: {0}")]
    Form(String),
    /// One of them is invalid.
    #[error("--slo: slos[{index}]: {what}")]
    Entry {
        /// Its index, from 0.
        index: usize,
        /// Its first line in the file, from 1.
        line: u64,
        /// The problem and the remedy.
        what: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    slos: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    phase: Option<String>,
    quantile: Option<Quantile>,
    measure: Option<Measure>,
    driver: Option<String>,
    class: Option<String>,
    count: Option<String>,
    max: String,
}

/// Reads a file of thresholds.
///
/// # Errors
/// It cannot be read, or is invalid; see [`SloError`].
pub fn load(path: &Path) -> Result<Vec<Objective>, SloError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| SloError::Read { path: path.to_owned(), source })?;
    parse(&text)
}

/// Reads thresholds.
///
/// # Errors
/// They are invalid; see [`SloError`].
pub fn parse(text: &str) -> Result<Vec<Objective>, SloError> {
    Ok(parse_lines(text)?.into_iter().map(|(_, objective)| objective).collect())
}

/// Reads thresholds, each with its first line in the file, from 1.
///
/// # Errors
/// They are invalid; see [`SloError`].
pub(super) fn parse_lines(text: &str) -> Result<Vec<(u64, Objective)>, SloError> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| SloError::Form(error.to_string()))?;
    if file.slos.is_empty() {
        return Err(SloError::Form("slos is empty: add a threshold, or do not pass the file".to_owned()));
    }
    let entry = |(index, entry): (usize, Spanned<Entry>)| {
        let line = entry.referenced.line();
        let objective = objective(entry.value).map_err(|what| SloError::Entry { index, line, what });
        objective.map(|objective| (line, objective))
    };
    file.slos.into_iter().enumerate().map(entry).collect()
}

fn objective(entry: Entry) -> Result<Objective, String> {
    let Entry { phase, quantile, measure, driver, class, count, max } = entry;
    match (phase, count) {
        (Some(name), None) => {
            let phase = Phase::ALL.iter().copied().find(|phase| phase.name() == name);
            let phase = phase.ok_or_else(|| {
                format!(
                    "phase: unknown phase {name:?}; known phases: {}",
                    list(Phase::ALL.iter().map(|phase| phase.name()))
                )
            })?;
            let quantile = quantile.ok_or("quantile is missing: P50, P95, P99, max or avg")?;
            let measure = measure.unwrap_or_default();
            if measure == Measure::Driver && phase.info().rpc.is_none() {
                return Err(format!("measure: {name} has no driver part, since it includes no CSI call"));
            }
            let max =
                seconds(&max).ok_or("max must be a duration above zero, for example 500ms, 2s or 1m")?;
            Ok(Objective::Phase { of: Samples { phase, driver, class }, measure, quantile, max })
        }
        (None, Some(name)) => {
            let what = Counted::all().find(|what| what.name() == name);
            let what = what.ok_or_else(|| {
                format!(
                    "count: unknown count {name:?}; known counts: {}",
                    list(Counted::all().map(Counted::name))
                )
            })?;
            if quantile.is_some() || measure.is_some() || driver.is_some() || class.is_some() {
                return Err("quantile, measure, driver and class apply to a phase, not to a count".to_owned());
            }
            let max = max.parse().map_err(|_| "max of a count must be an integer, 0 or more")?;
            Ok(Objective::Count { what, max })
        }
        (Some(_), Some(_)) => Err("it has both phase and count: split it into two entries".to_owned()),
        (None, None) => Err("it has neither phase nor count: set the one that max applies to".to_owned()),
    }
}

fn seconds(text: &str) -> Option<f64> {
    let duration: Duration = text.parse::<SignedDuration>().ok()?.try_into().ok()?;
    Some(duration.as_secs_f64()).filter(|seconds| *seconds > 0.0)
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use claimcheck_model::TransitionKind;

    use super::*;

    #[test]
    fn thresholds_of_phases_and_counts() {
        let objectives = parse(
            "slos:\n  - {phase: provision, quantile: P99, max: 500ms}\n  - {phase: stage, quantile: max, \
             measure: driver, driver: d.io, class: fast, max: 1m}\n  - {count: detach, max: 7}\n  - {count: leaks, max: 0}\n",
        )
        .unwrap();
        let of = |phase, only: Option<&str>, class: Option<&str>| Samples {
            phase,
            driver: only.map(str::to_owned),
            class: class.map(str::to_owned),
        };
        let phase = |of, measure, quantile, max| Objective::Phase { of, measure, quantile, max };
        assert_eq!(
            objectives,
            [
                phase(of(Phase::Provision, None, None), Measure::Total, Quantile::P99, 0.5),
                phase(of(Phase::Stage, Some("d.io"), Some("fast")), Measure::Driver, Quantile::Max, 60.0),
                Objective::Count { what: Counted::Transitions(TransitionKind::Detach), max: 7 },
                Objective::Count { what: Counted::Leaks, max: 0 },
            ]
        );
        assert_eq!(objectives[1].to_string(), "stage max of the driver (driver d.io, class fast)");
    }

    #[test]
    fn a_threshold_that_never_applies_is_rejected() {
        for (entry, words) in [
            (
                "{phase: provison, quantile: P99, max: 1s}",
                "slos[0]: phase: unknown phase \"provison\"; known phases: provision, bind",
            ),
            ("{phase: bind, max: 1s}", "quantile is missing"),
            ("{phase: bind, quantile: P98, max: 1s}", "P98"),
            ("{phase: bind, quantile: P99, measure: driver, max: 1s}", "it includes no CSI call"),
            ("{phase: bind, quantile: P99, max: 5}", "max must be a duration"),
            ("{phase: bind, quantile: P99, max: 0s}", "max must be a duration"),
            ("{phase: bind, quantile: P99, maximum: 1s}", "maximum"),
            ("{count: mounts, max: 1}", "known counts: attach, detach"),
            ("{count: mount, class: fast, max: 1}", "apply to a phase"),
            ("{count: mount, max: 1s}", "an integer"),
            ("{count: mount, phase: bind, max: 1}", "both phase and count"),
            ("{max: 1}", "neither phase nor count"),
        ] {
            let error = parse(&format!("slos:\n  - {entry}\n")).unwrap_err().to_string();
            assert!(error.contains(words), "{entry}: {error}");
        }
        let second = "slos:\n  - {count: leaks, max: 0}\n\n  - count: leaks\n    max: 1s\n";
        assert!(matches!(parse(second), Err(SloError::Entry { index: 1, line: 4, .. })));
        assert!(parse("slos: []").unwrap_err().to_string().contains("empty"));
        assert!(parse("slo: []").unwrap_err().to_string().starts_with("--slo: "));
    }
}
