//! The sampling error of a comparison, by resampling units that can be treated as independent.
//!
//! Samples of one run are not independent: concurrent volumes wait for the same processor. So a run is
//! split into blocks of time, and those are resampled (block bootstrap); whole runs are resampled if there are enough
//! of them to estimate the variation between runs.

use fastrand::Rng;
use serde::Serialize;

use super::read::Side;

/// The number of resamples: the spread is then known to about three per cent.
const RESAMPLES: u32 = 500;
/// A fixed seed: the same data must give the same verdict.
const SEED: u64 = 0x5eed;
/// With fewer runs per side, the variation between runs cannot be estimated.
pub(super) const ENOUGH_RUNS: usize = 4;

/// The unit of resampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Blocks of consecutive samples of a run.
    Stretch,
    /// Whole runs.
    Run,
}

/// The range of autocorrelation between samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Dependence {
    /// As long as the machine speed is stable: the length of a block equals the number of blocks.
    Long,
    /// Short, since the machine speed is taken out: the number of blocks is the square of their length,
    /// which gives a better estimate of the spread. But no shorter than the number of concurrent volumes, which wait
    /// for each other.
    Short { concurrency: f64 },
}

impl Dependence {
    /// The number of blocks for this many samples.
    fn blocks(self, samples: usize) -> usize {
        let samples = samples as f64;
        let length = match self {
            Self::Long => samples.sqrt(),
            Self::Short { concurrency } => samples.cbrt().max(concurrency),
        };
        ((samples / length).ceil() as usize).max(1)
    }
}

/// The unit that these sides allow.
pub(super) fn unit(sides: [&Side; 2]) -> Unit {
    if sides.iter().all(|side| side.runs.len() >= ENOUGH_RUNS) { Unit::Run } else { Unit::Stretch }
}

/// The units of the samples of some runs; none is empty.
pub(super) fn units<'a, T>(runs: &[&'a [T]], unit: Unit, dependence: Dependence) -> Vec<&'a [T]> {
    let cut = |run: &&'a [T]| {
        let run: &'a [T] = run;
        match unit {
            Unit::Run => vec![run],
            Unit::Stretch => {
                let count = dependence.blocks(run.len());
                let at = move |nth: usize| nth * run.len() / count;
                (0..count).map(|nth| &run[at(nth)..at(nth + 1)]).collect()
            }
        }
    };
    runs.iter().flat_map(cut).filter(|unit| !unit.is_empty()).collect()
}

/// The contribution of one unit to a mean: a sum and a count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub sum: f64,
    pub count: f64,
}

/// The sampling variance of the mean of these parts.
///
/// One unit less than available is drawn: that corrects the bias of the spread with few units
/// (Rao and Wu, 1988).
pub(super) fn variance(parts: &[Part]) -> f64 {
    let mut rng = Rng::with_seed(SEED);
    let resampled_units = parts.len().saturating_sub(1).max(1);
    let means = (0..RESAMPLES).map(|_| {
        let drawn = (0..resampled_units).map(|_| parts[rng.usize(..parts.len())]);
        let total = drawn.fold(Part { sum: 0.0, count: 0.0 }, |total, part| Part {
            sum: total.sum + part.sum,
            count: total.count + part.count,
        });
        total.sum / total.count
    });
    let means: Vec<f64> = means.collect();
    let mean = means.iter().sum::<f64>() / means.len() as f64;
    means.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (means.len() - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::{super::read::Sample, *};

    #[test]
    fn the_variance_is_that_of_a_mean() {
        let parts: Vec<Part> = (0..20).map(|n| Part { sum: f64::from(n % 5), count: 1.0 }).collect();
        let mean = parts.iter().map(|part| part.sum).sum::<f64>() / 20.0;
        let exact = parts.iter().map(|part| (part.sum - mean).powi(2)).sum::<f64>() / 19.0 / 20.0;
        assert!((variance(&parts) / exact - 1.0).abs() < 0.15, "{} {exact}", variance(&parts));
    }

    #[test]
    fn a_run_is_split_into_blocks_as_long_as_its_dependence() {
        let sample = |end_ns| Sample { end_ns, total: 0.0, driver: 0.0, overhead: 0.0 };
        let run: Vec<Sample> = (0..100).map(sample).collect();
        let lengths = |samples: &[Sample], dependence| -> Vec<usize> {
            units(&[samples], Unit::Stretch, dependence).iter().map(|unit| unit.len()).collect()
        };
        assert_eq!(lengths(&run, Dependence::Long), [10; 10]);
        assert_eq!(lengths(&run[..27], Dependence::Short { concurrency: 1.0 }), [3; 9]);
        assert_eq!(lengths(&run[..27], Dependence::Short { concurrency: 8.5 }), [6, 7, 7, 7]);
        assert_eq!(lengths(&run[..27], Dependence::Short { concurrency: 32.0 }), [27]);
        assert_eq!(units(&[&run, &[], &run[..3]], Unit::Stretch, Dependence::Long).len(), 12);
        assert_eq!(units(&[&run, &[], &run[..3]], Unit::Run, Dependence::Long).len(), 2);
        assert_eq!(units(&[&run], Unit::Stretch, Dependence::Short { concurrency: 1.0 }).concat(), run);
    }
}
