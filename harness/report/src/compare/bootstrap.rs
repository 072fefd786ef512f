//! The sampling error of a comparison, by resampling units that can be treated as independent.
//!
//! Samples of one run are not independent: concurrent volumes wait for the same processor. So a run is split into
//! blocks of time, and those are resampled; whole runs are resampled if there are enough of them. Of two sides that ran
//! in turn, pairs of adjacent blocks are resampled.
//!
//! A confidence interval is estimated by drawing units with replacement (bootstrap). A p-value is estimated by assigning
//! the units to the sides at random: if the sides are equal, it does not matter which unit is of which side. That holds
//! for few units and for any distribution of samples.

use fastrand::Rng;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    blocks,
    phase::sorted,
    read::{Sample, Side},
};
use crate::quantile;

/// How many random draws an estimate is based on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// The number of resamples for an interval.
    pub resamples: u32,
    /// The maximum number of random assignments for a p-value; it bounds the smallest p-value, which must remain
    /// significant after Holm's correction over some forty times.
    pub assignments: u32,
}

impl Effort {
    /// That of every comparison, but for simulations of many in tests.
    pub(super) const FULL: Self = Self { resamples: 1000, assignments: 20_000 };
}

/// A p-value is known well enough after this many assignments with a greater difference (Besag and Clifford, 1991).
const EXCEEDING: u32 = 50;
/// A fixed seed: the same data must give the same verdict.
const SEED: u64 = 0x5eed;
/// With fewer runs per side, too few ways exist to assign runs to sides for a significant difference.
pub(super) const ENOUGH_RUNS: usize = 8;
/// The same of blocks of a side.
const ENOUGH_BLOCKS: usize = 8;
/// The same of pairs of blocks, each of which can be assigned in two ways.
pub(super) const ENOUGH_PAIRS: usize = 12;

/// The unit of resampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Blocks of consecutive samples of a run.
    Block,
    /// Whole runs.
    Run,
    /// Pairs of adjacent blocks, one of each side.
    Pair,
}

/// The unit that these sides allow.
pub(super) fn unit(sides: [&Side; 2]) -> Unit {
    if blocks::alternate(sides) {
        Unit::Pair
    } else if sides.iter().all(|side| side.runs.len() >= ENOUGH_RUNS) {
        Unit::Run
    } else {
        Unit::Block
    }
}

/// Splits the samples of a run into as many blocks as a block has samples, but not into too few.
pub(super) fn split(run: &[Sample]) -> impl Iterator<Item = &[Sample]> {
    let count = ((run.len() as f64).sqrt().ceil() as usize).max(ENOUGH_BLOCKS).min(run.len());
    let at = move |nth: usize| nth * run.len() / count;
    (0..count).map(move |nth| &run[at(nth)..at(nth + 1)])
}

/// The contribution of one unit to a mean: a sum and a count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub sum: f64,
    pub count: f64,
}

fn mean(parts: impl Iterator<Item = Part>) -> f64 {
    let zero = Part { sum: 0.0, count: 0.0 };
    let total =
        parts.fold(zero, |total, part| Part { sum: total.sum + part.sum, count: total.count + part.count });
    total.sum / total.count
}

/// How far the sum of the means of these groups of parts is off by chance, at this confidence level.
pub(super) fn error(groups: &[Vec<Part>], level: f64, effort: Effort) -> f64 {
    let mut rng = Rng::with_seed(SEED);
    let exact: f64 = groups.iter().map(|parts| mean(parts.iter().copied())).sum();
    let errors = (0..effort.resamples).map(|_| {
        let resampled = groups.iter().map(|parts| {
            // One unit less than available is drawn: that corrects the bias of the spread with few units (Rao and Wu,
            // 1988).
            let count = parts.len().saturating_sub(1).max(1);
            mean((0..count).map(|_| parts[rng.usize(..parts.len())]))
        });
        (resampled.sum::<f64>() - exact).abs()
    });
    quantile(&sorted(errors.collect()), level).unwrap_or_default()
}

/// The p-value of the difference between the means of two sides.
pub(super) fn p_of_sides(sides: &[Vec<Part>; 2], effort: Effort) -> f64 {
    let first = sides[0].len();
    let mut parts = sides.concat();
    let difference = |parts: &[Part]| {
        let (a, b) = parts.split_at(first);
        mean(b.iter().copied()) - mean(a.iter().copied())
    };
    let seen = difference(&parts);
    p_value(seen, effort, |rng| {
        rng.shuffle(&mut parts);
        difference(&parts)
    })
}

/// The p-value of the sum of the differences within pairs.
pub(super) fn p_of_pairs(differences: &[f64], effort: Effort) -> f64 {
    p_value(differences.iter().sum(), effort, |rng| {
        differences.iter().map(|difference| if rng.bool() { *difference } else { -difference }).sum()
    })
}

/// The share of random assignments with a difference at least as great as the `seen` one.
fn p_value(seen: f64, effort: Effort, mut assigned: impl FnMut(&mut Rng) -> f64) -> f64 {
    // Sums of the same numbers in another order are not exactly equal.
    let seen = seen.abs() * (1.0 - 1e-9);
    let mut rng = Rng::with_seed(SEED);
    let (mut drawn, mut exceeding) = (0, 0);
    while drawn < effort.assignments && exceeding < EXCEEDING {
        drawn += 1;
        exceeding += u32::from(assigned(&mut rng).abs() >= seen);
    }
    match exceeding {
        EXCEEDING => f64::from(exceeding) / f64::from(drawn),
        // The observed assignment is one of them.
        fewer => f64::from(fewer + 1) / f64::from(drawn + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(values: impl IntoIterator<Item = u32>) -> Vec<Part> {
        values.into_iter().map(|value| Part { sum: value.into(), count: 1.0 }).collect()
    }

    #[test]
    fn the_error_is_that_of_a_mean() {
        let parts = parts((0..40).map(|n| n % 5));
        let mean = parts.iter().map(|part| part.sum).sum::<f64>() / 40.0;
        let variance = parts.iter().map(|part| (part.sum - mean).powi(2)).sum::<f64>() / 39.0 / 40.0;
        let found = error(std::slice::from_ref(&parts), 0.95, Effort::FULL);
        assert!((found / (1.96 * variance.sqrt()) - 1.0).abs() < 0.15, "{found} {variance}");
        // Of a difference, the variances add up.
        let of_both = error(&[parts.clone(), parts], 0.95, Effort::FULL);
        assert!((of_both / found - 2.0_f64.sqrt()).abs() < 0.2, "{of_both} {found}");
    }

    #[test]
    fn p_values_are_those_of_all_assignments() {
        // Of the 70 ways to choose four of eight, two separate them.
        let separate = p_of_sides(&[parts([1, 2, 3, 4]), parts([5, 6, 7, 8])], Effort::FULL);
        assert!((separate - 2.0 / 70.0).abs() < 0.015, "{separate}");
        // Of the 1024 combinations of signs, two are all alike.
        let alike = p_of_pairs(&[1.0; 10], Effort::FULL);
        assert!((alike - 2.0 / 1024.0).abs() < 0.001, "{alike}");
        assert_eq!(p_of_pairs(&[1.0, -1.0, 2.0, -2.0], Effort::FULL), 1.0);
        assert_eq!(p_of_sides(&[parts([1, 2]), parts([2, 1])], Effort::FULL), 1.0);
        assert_eq!(p_of_pairs(&[0.0; 20], Effort::FULL), 1.0);
    }

    #[test]
    fn a_run_is_split_into_as_many_blocks_as_they_are_long() {
        let sample = |end_ns| Sample { end_ns, total: 0.0, driver: 0.0, overhead: 0.0 };
        let run: Vec<Sample> = (0..100).map(sample).collect();
        let lengths = |samples: &[Sample]| -> Vec<usize> { split(samples).map(<[Sample]>::len).collect() };
        assert_eq!(lengths(&run), [10; 10]);
        assert_eq!(lengths(&run[..16]), [2; 8]);
        assert_eq!(lengths(&run[..3]), [1; 3]);
        assert!(lengths(&[]).is_empty());
        assert_eq!(split(&run).collect::<Vec<_>>().concat(), run);
    }
}
