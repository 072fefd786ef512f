//! A run as stored in the history, and the selection of runs.

use std::{collections::BTreeMap, path::Path};

use claimcheck_model::{Phase, Stamp, TransitionKind, read_environment};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::slo::{Measure, Quantile};
use crate::{CaseCounts, DOWN, Ending, LoadSummary, Quantiles, Summary, UP};

/// A stored run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// Its id, independent of the name of its folder.
    pub id: String,
    /// When it began, nanoseconds since the Unix epoch.
    #[serde(alias = "began_ns")]
    pub started_ns: i64,
    /// The kind of cluster.
    pub cluster: String,
    /// The driver's name.
    pub driver: String,
    /// The version of this program.
    pub claimcheck_version: String,
    /// The version that the API server reported; empty without one.
    pub kubernetes_version: String,
    /// Driver, cluster and environment.
    #[serde(deserialize_with = "read_environment")]
    pub environment: BTreeMap<String, String>,
    /// Whether nothing failed, nothing was leaked, and all thresholds were met.
    #[serde(alias = "good")]
    pub passed: bool,
    /// The number of cases by result.
    pub cases: CaseCounts,
    /// The number of leaked objects.
    pub leaks: u64,
    /// The number of calls out of order.
    pub violations: u64,
    /// Transitions: what was attached, staged, mounted, and the reverse.
    pub counts: BTreeMap<TransitionKind, u64>,
    /// The result of the load, if it was one; without usage samples and errors.
    pub load: Option<LoadSummary>,
    /// The duration, seconds.
    pub elapsed_s: f64,
    /// The path of its run folder.
    pub folder: String,
    /// Distributions of each phase that was measured; seconds.
    pub phases: BTreeMap<Phase, Vec<Quantiles>>,
}

impl Entry {
    /// The entry for a run with this summary.
    pub(crate) fn new(summary: &Summary, started: Stamp, folder: &Path) -> Self {
        let environment = |name: &str| summary.environment.get(name).cloned().unwrap_or_default();
        let load = summary.load.clone().map(|load| LoadSummary {
            errors: Vec::new(),
            samples: Vec::new(),
            growth: Vec::new(),
            ..load
        });
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            started_ns: nanos(started),
            cluster: environment("cluster"),
            driver: environment("driver"),
            claimcheck_version: environment("claimcheck_version"),
            kubernetes_version: environment("kubernetes_version"),
            environment: summary.environment.clone(),
            passed: summary.ending() == Ending::Passed,
            cases: summary.cases,
            leaks: summary.leaks.len() as u64,
            violations: summary.violations.values().sum(),
            counts: summary.counts.clone(),
            load,
            elapsed_s: summary.elapsed_s,
            // Readers may have another working directory.
            folder: std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).display().to_string(),
            phases: summary.phases.clone(),
        }
    }

    /// A quantile of a phase, seconds; none if it was not measured.
    pub fn time(&self, phase: Phase, measure: Measure, quantile: Quantile) -> Option<f64> {
        Some(quantile.of(self.quantiles(phase, measure)?))
    }

    /// The distribution of a phase.
    pub(super) fn quantiles(&self, phase: Phase, measure: Measure) -> Option<&Quantiles> {
        self.phases.get(&phase)?.iter().find(|quantiles| quantiles.name == measure.name())
    }

    /// From claim to running pod: the sum of the medians of all phases; none if no pod became ready.
    pub fn up_s(&self) -> Option<f64> {
        self.sum(&UP)
    }

    /// The teardown; none if no volume was deleted.
    pub fn down_s(&self) -> Option<f64> {
        self.sum(&DOWN)
    }

    fn sum(&self, phases: &[Phase]) -> Option<f64> {
        self.time(*phases.last()?, Measure::Total, Quantile::P50)?;
        let medians = phases.iter().filter_map(|&phase| self.time(phase, Measure::Total, Quantile::P50));
        medians.reduce(|a, b| a + b)
    }
}

/// A time as stored in the history.
pub(super) fn nanos(stamp: Stamp) -> i64 {
    i64::try_from(stamp.wall_ns).unwrap_or(i64::MAX)
}

/// A selection of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only runs on this kind of cluster.
    pub cluster: Option<String>,
    /// Only runs of this driver.
    pub driver: Option<String>,
    /// Only runs in which this phase was measured.
    pub phase: Option<Phase>,
    /// Only runs that began before this, nanoseconds since the Unix epoch.
    pub before_ns: Option<i64>,
    /// At most this many runs, the newest.
    pub last: Option<u32>,
}

impl Selection {
    /// Whether a run is selected, its number aside.
    pub(super) fn includes(&self, run: &Entry) -> bool {
        self.cluster.as_ref().is_none_or(|cluster| *cluster == run.cluster)
            && self.driver.as_ref().is_none_or(|driver| *driver == run.driver)
            && self.phase.is_none_or(|phase| run.phases.contains_key(&phase))
            && self.before_ns.is_none_or(|before| run.started_ns < before)
    }
}
