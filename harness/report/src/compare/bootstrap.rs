//! How far chance moves a comparison: by resampling what can be taken for independent.
//!
//! Samples of one run are not: volumes that are on their way together wait for the same processor. So a run is
//! cut into stretches of time, and those are drawn anew; runs as a whole, where there are enough to tell from
//! them how much a run differs from the next.

use fastrand::Rng;
use serde::Serialize;

use super::read::Side;

/// How often is drawn anew: the spread is then known to some three per cent.
const DRAWS: u32 = 500;
/// The same data shall give the same verdict.
const SEED: u64 = 0x5eed;
/// With fewer runs a side, how much one differs from the next cannot be told.
pub(super) const ENOUGH_RUNS: usize = 4;

/// What is drawn anew as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Stretches of a run, of consecutive samples.
    Stretch,
    /// Runs.
    Run,
}

/// How far back a sample depends on those before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Memory {
    /// As far as the machine is of one pace: stretches are as long as there are many.
    Long,
    /// Hardly, since what the machine did is taken out: there are as many stretches as the square of how long they are,
    /// which tells more of how sure one can be. But no shorter than so many volumes are under way together, which wait
    /// for each other.
    Short { abreast: f64 },
}

impl Memory {
    /// How many stretches so many samples are cut into.
    fn stretches(self, samples: usize) -> usize {
        let samples = samples as f64;
        let length = match self {
            Self::Long => samples.sqrt(),
            Self::Short { abreast } => samples.cbrt().max(abreast),
        };
        ((samples / length).ceil() as usize).max(1)
    }
}

/// What these sides allow.
pub(super) fn unit(sides: [&Side; 2]) -> Unit {
    if sides.iter().all(|side| side.runs.len() >= ENOUGH_RUNS) { Unit::Run } else { Unit::Stretch }
}

/// The units of the samples of some runs; none is empty.
pub(super) fn units<'a, T>(runs: &[&'a [T]], unit: Unit, memory: Memory) -> Vec<&'a [T]> {
    let cut = |run: &&'a [T]| {
        let run: &'a [T] = run;
        match unit {
            Unit::Run => vec![run],
            Unit::Stretch => {
                let count = memory.stretches(run.len());
                let at = move |nth: usize| nth * run.len() / count;
                (0..count).map(|nth| &run[at(nth)..at(nth + 1)]).collect()
            }
        }
    };
    runs.iter().flat_map(cut).filter(|unit| !unit.is_empty()).collect()
}

/// What one unit adds to a mean: a sum, and of how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub sum: f64,
    pub count: f64,
}

/// The variance of the mean of these parts if they had been other ones.
///
/// One unit less than there are is drawn: that takes out just what a few units tell too little of their spread
/// (Rao and Wu, 1988).
pub(super) fn variance(parts: &[Part]) -> f64 {
    let mut rng = Rng::with_seed(SEED);
    let draws = parts.len().saturating_sub(1).max(1);
    let means = (0..DRAWS).map(|_| {
        let drawn = (0..draws).map(|_| parts[rng.usize(..parts.len())]);
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
    fn a_run_is_cut_into_stretches_as_long_as_its_memory() {
        let sample = |end_ns| Sample { end_ns, total: 0.0, driver: 0.0, overhead: 0.0 };
        let run: Vec<Sample> = (0..100).map(sample).collect();
        let lengths = |samples: &[Sample], memory| -> Vec<usize> {
            units(&[samples], Unit::Stretch, memory).iter().map(|unit| unit.len()).collect()
        };
        assert_eq!(lengths(&run, Memory::Long), [10; 10]);
        assert_eq!(lengths(&run[..27], Memory::Short { abreast: 1.0 }), [3; 9]);
        assert_eq!(lengths(&run[..27], Memory::Short { abreast: 8.5 }), [6, 7, 7, 7]);
        assert_eq!(lengths(&run[..27], Memory::Short { abreast: 32.0 }), [27]);
        assert_eq!(units(&[&run, &[], &run[..3]], Unit::Stretch, Memory::Long).len(), 12);
        assert_eq!(units(&[&run, &[], &run[..3]], Unit::Run, Memory::Long).len(), 2);
        assert_eq!(units(&[&run], Unit::Stretch, Memory::Short { abreast: 1.0 }).concat(), run);
    }
}
