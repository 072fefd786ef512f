//! Counts on both sides, as means per run.

use claimcheck_model::TransitionKind;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    read::{Run, Side},
    verdict::Verdict,
};
use crate::{CallCounts, ControllersCost};

/// A count; means per run, so that sides may have several runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Count {
    /// The counted quantity.
    pub name: String,
    /// On each side; none if unknown.
    pub per_run: [Option<f64>; 2],
    /// Whether it is a defect: more is worse.
    pub is_defect: bool,
}

impl Count {
    /// More defects are worse; other counts have no verdict.
    pub(super) fn verdict(&self) -> Verdict {
        match self.per_run {
            [Some(a), Some(b)] if self.is_defect => Verdict::of(b - a),
            [Some(_) | None, _] => Verdict::Same,
        }
    }
}

/// All counts of a side.
pub(super) fn compare(sides: [&Side; 2]) -> Vec<Count> {
    let mean = |side: &Side, of: &dyn Fn(&Run) -> Option<u64>| {
        let counts: Option<Vec<u64>> = side.runs.iter().map(of).collect();
        counts
            .filter(|counts| !counts.is_empty())
            .map(|counts| counts.iter().sum::<u64>() as f64 / counts.len() as f64)
    };
    let count = |name: String, is_defect, of: &dyn Fn(&Run) -> Option<u64>| Count {
        name,
        per_run: sides.map(|side| mean(side, of)),
        is_defect,
    };
    let mut all = Vec::new();
    for &kind in TransitionKind::ALL {
        all.push(count(kind.name().to_owned(), false, &|run| Some(run.summary.count(kind))));
    }
    let calls = |run: &Run, of: fn(&CallCounts) -> u64| run.summary.calls.values().map(of).sum();
    all.push(count("calls to the driver".to_owned(), false, &|run| Some(calls(run, |calls| calls.calls))));
    all.push(count("of these failed".to_owned(), false, &|run| Some(calls(run, |calls| calls.errors))));
    all.push(count("API requests".to_owned(), false, &|run| run.api_requests));
    all.push(count("volumes of a load".to_owned(), false, &|run| Some(run.summary.load.as_ref()?.volumes)));
    // Per volume, since the sides of `--against` may run different numbers.
    let cost = |run: &Run, of: fn(&ControllersCost) -> f64| {
        Some(of(run.summary.load.as_ref()?.controllers.as_ref()?).round() as u64)
    };
    all.push(count("CPU of controllers per volume, µs".to_owned(), false, &|run| {
        cost(run, |controllers| controllers.cpu_per_volume_s * 1e6)
    }));
    all.push(count("peak memory of controllers, MiB".to_owned(), false, &|run| {
        cost(run, |controllers| controllers.peak_pss_bytes as f64 / f64::from(1 << 20))
    }));
    all.push(count("volumes that failed".to_owned(), true, &|run| Some(run.summary.load.as_ref()?.failed)));
    let violations = |run: &Run| Some(run.summary.violations.values().sum());
    all.push(count("calls out of order".to_owned(), true, &violations));
    all.push(count("left behind".to_owned(), true, &|run| Some(run.summary.leaks.len() as u64)));
    // Counts that neither side has are omitted.
    all.retain(|count| count.per_run.iter().any(|mean| mean.is_some_and(|mean| mean > 0.0)));
    all
}
