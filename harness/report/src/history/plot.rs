//! One quantile of one phase over successive runs. Pure.

use claimcheck_model::Phase;
use schemars::JsonSchema;
use serde::Serialize;

use super::Entry;
use crate::quantile;
use crate::slo::{Measure, Quantile};

/// A run in a plot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// The run.
    pub run: String,
    /// When it began, nanoseconds since the Unix epoch.
    pub started_ns: i64,
    /// Whether the run passed.
    pub passed: bool,
    /// The quantile of the phase.
    pub seconds: f64,
    /// The number of samples.
    pub samples: u64,
}

/// The difference of the last run from the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// The median of the previous runs; seconds.
    pub before: f64,
    /// The number of previous runs.
    pub runs: usize,
    /// The last run minus that median; seconds.
    pub shift: f64,
    /// The same relative to that median; none if that is 0.
    pub shift_ratio: Option<f64>,
}

/// A phase over the runs on one kind of cluster with one driver: others are not comparable.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Plot {
    /// The kind of cluster.
    pub cluster: String,
    /// The driver.
    pub driver: String,
    /// The newest last.
    pub points: Vec<Point>,
    /// None with a single run.
    pub change: Option<Change>,
}

/// A plot for each kind of cluster and driver, in the order of their last run, each with the newest `last`
/// runs. `runs` is sorted with the newest last.
pub fn plots(runs: &[Entry], phase: Phase, measure: Measure, quantile: Quantile, last: usize) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Vec::new();
    for run in runs.iter().rev() {
        let Some(quantiles) = run.quantiles(phase, measure) else { continue };
        let same = |plot: &&mut Plot| plot.cluster == run.cluster && plot.driver == run.driver;
        let point = Point {
            run: run.id.clone(),
            started_ns: run.started_ns,
            passed: run.passed,
            seconds: quantile.of(quantiles),
            samples: quantiles.count,
        };
        match plots.iter_mut().find(same) {
            Some(plot) if plot.points.len() >= last => {}
            Some(plot) => plot.points.push(point),
            None => plots.push(Plot {
                cluster: run.cluster.clone(),
                driver: run.driver.clone(),
                points: vec![point],
                change: None,
            }),
        }
    }
    plots.reverse();
    for plot in &mut plots {
        plot.points.reverse();
        plot.change = change(&plot.points.iter().map(|point| point.seconds).collect::<Vec<_>>());
    }
    plots
}

/// The difference of the last one from the median of the previous ones.
pub(crate) fn change(seconds: &[f64]) -> Option<Change> {
    let (last, before) = seconds.split_last()?;
    let mut sorted = before.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = quantile(&sorted, 0.5)?;
    let shift = last - median;
    let shift_ratio = (median > 0.0).then(|| shift / median);
    Some(Change { before: median, runs: before.len(), shift, shift_ratio })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stands_against_the_median_of_those_before() {
        let table = [
            (&[][..], None),
            (&[1.0], None),
            (&[1.0, 1.5], Some((1.0, 0.5))),
            (&[3.0, 1.0, 2.0, 4.0], Some((2.0, 1.0))),
            (&[9.0, 1.0, 3.0, 1.0, 1.5], Some((1.0, 0.5))),
        ];
        for (seconds, expected) in table {
            let got = change(seconds).map(|change| (change.before, change.shift_ratio.unwrap_or(f64::NAN)));
            assert_eq!(got, expected, "{seconds:?}");
        }
        assert_eq!(change(&[0.0, 1.0]).and_then(|change| change.shift_ratio), None, "no share of nothing");
    }
}
