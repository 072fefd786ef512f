//! A run as the history has it, and which runs are asked for.

use std::{collections::BTreeMap, path::Path};

use claimcheck_model::{CaseResult, Phase, Stamp, TransitionKind};
use serde::Serialize;

use crate::slo::{Measure, Quantile};
use crate::{CaseCounts, CaseLine, DOWN, Ending, LoadSummary, Quantiles, Summary, UP};

/// A run that is kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Its own, whatever its folder is called.
    pub id: String,
    /// When it began, nanoseconds since the Unix epoch.
    pub began_ns: i64,
    /// The kind of cluster.
    pub cluster: String,
    /// The driver's name.
    pub driver: String,
    /// The version of this program.
    pub claimcheck_version: String,
    /// What the API server said it was; empty where there was none.
    pub kubernetes_version: String,
    /// What ran, on what.
    pub environment: BTreeMap<String, String>,
    /// Nothing failed, nothing was left behind, and every threshold was kept.
    pub good: bool,
    /// How many cases ended how.
    pub cases: CaseCounts,
    /// How many things were left behind.
    pub leaks: u64,
    /// How many calls came out of order.
    pub violations: u64,
    /// Transitions: what was attached, staged, mounted, and the reverse.
    pub counts: BTreeMap<TransitionKind, u64>,
    /// What the load came to, where it was one; without what it used when, and its errors.
    pub load: Option<LoadSummary>,
    /// How long it took, seconds.
    pub elapsed_s: f64,
    /// Where its run folder was.
    pub folder: String,
    /// Distributions of each phase that was measured; seconds.
    pub phases: BTreeMap<Phase, Vec<Quantiles>>,
}

impl Entry {
    /// What is kept of a run that came to this.
    pub(crate) fn new(summary: &Summary, began: Stamp, folder: &Path) -> Self {
        let told = |name: &str| summary.environment.get(name).cloned().unwrap_or_default();
        let load = summary.load.clone().map(|load| LoadSummary {
            errors: Vec::new(),
            samples: Vec::new(),
            growth: Vec::new(),
            ..load
        });
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            began_ns: nanos(began),
            cluster: told("cluster"),
            driver: told("driver"),
            claimcheck_version: told("claimcheck_version"),
            kubernetes_version: told("kubernetes_version"),
            environment: summary.environment.clone(),
            good: summary.ending() == Ending::Passed,
            cases: summary.cases,
            leaks: summary.leaks.len() as u64,
            violations: summary.violations.values().sum(),
            counts: summary.counts.clone(),
            load,
            elapsed_s: summary.elapsed_s,
            // Whoever asks is elsewhere by then.
            folder: std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).display().to_string(),
            phases: summary.phases.clone(),
        }
    }

    /// A time of a phase, seconds; none where it was not measured.
    pub fn time(&self, phase: Phase, measure: Measure, quantile: Quantile) -> Option<f64> {
        Some(quantile.of(self.quantiles(phase, measure)?))
    }

    /// The distribution of a phase.
    pub(super) fn quantiles(&self, phase: Phase, measure: Measure) -> Option<&Quantiles> {
        self.phases.get(&phase)?.iter().find(|quantiles| quantiles.name == measure.name())
    }

    /// From claim to running pod: the sum of the medians of all steps; none where none was measured.
    pub fn up_s(&self) -> Option<f64> {
        self.sum(&UP)
    }

    /// The way back.
    pub fn down_s(&self) -> Option<f64> {
        self.sum(&DOWN)
    }

    fn sum(&self, phases: &[Phase]) -> Option<f64> {
        let medians = phases.iter().filter_map(|&phase| self.time(phase, Measure::Total, Quantile::P50));
        medians.reduce(|a, b| a + b)
    }
}

/// A moment as the history keeps it.
pub(super) fn nanos(stamp: Stamp) -> i64 {
    i64::try_from(stamp.wall_ns).unwrap_or(i64::MAX)
}

/// How a case ended, as the history spells it.
pub(super) fn result(line: &CaseLine) -> &'static str {
    match line.result {
        CaseResult::Passed => "passed",
        CaseResult::Failed { .. } => "failed",
        CaseResult::Skipped { .. } => "skipped",
    }
}

/// Which runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Those on this kind of cluster.
    pub cluster: Option<String>,
    /// Those of this driver.
    pub driver: Option<String>,
    /// Those in which this phase was measured.
    pub phase: Option<Phase>,
    /// Those that began before this, nanoseconds since the Unix epoch.
    pub before_ns: Option<i64>,
    /// No more than so many, the newest.
    pub last: Option<u32>,
}
