//! One phase on both sides: its durations and their difference.

use claimcheck_model::Phase;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Options, blocks,
    bootstrap::{self, Effort, Part, Unit},
    rank::{Stratum, above, difference},
    read::{Run, Sample, Side},
    verdict::Verdict,
};
use crate::{Durations, Quantiles};

/// The minimum number of samples per side for a verdict.
pub(super) const ENOUGH: usize = 10;

/// A phase that both sides have. All times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PhaseLine {
    /// The phase.
    pub phase: Phase,
    /// The number of samples of each side.
    pub samples: [usize; 2],
    /// The verdict on the second side: on the whole phase, or else on a part of it.
    pub verdict: Verdict,
    /// All of it.
    pub total: Judged,
    /// The driver's part; none if the driver has no part in it. It is judged too, since it is masked by Kubernetes'
    /// part, which is longer and varies more.
    pub driver: Option<Judged>,
    /// Kubernetes' part; none if that is the whole phase. It is judged too, since a driver with high variance masks it;
    /// it may be close to zero.
    pub overhead: Option<Judged>,
}

/// A time on both sides, and its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Judged {
    /// The time.
    #[serde(flatten)]
    pub measure: Measure,
    /// The verdict on the second side.
    pub verdict: Verdict,
    /// The p-value; none with too few samples.
    pub p: Option<f64>,
    /// The same after Holm's correction over everything judged: the basis of the verdict.
    pub p_holm: Option<f64>,
}

/// A part of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhasePart {
    Driver,
    Overhead,
}

impl PhaseLine {
    /// The part that differs if the whole phase does not.
    pub(super) fn only(&self) -> Option<PhasePart> {
        let parts = [(PhasePart::Driver, self.driver), (PhasePart::Overhead, self.overhead)];
        let differs = |judged: Option<Judged>| judged.is_some_and(|judged| judged.verdict.differs());
        let mut parts = parts.into_iter().filter(|_| !self.total.verdict.differs());
        parts.find(|(_, judged)| differs(*judged)).map(|(part, _)| part)
    }
}

impl std::ops::Deref for Judged {
    type Target = Measure;

    fn deref(&self) -> &Measure {
        &self.measure
    }
}

/// A time on both sides; seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Measure {
    /// The medians.
    pub p50: [f64; 2],
    /// The 95th percentiles.
    pub p95: [f64; 2],
    /// The shift of the second side: the median of all differences.
    pub shift: f64,
    /// The same as a share of the first side's median; none if that is 0.
    pub shift_ratio: Option<f64>,
    /// The confidence interval of the shift, at the stated level for this phase alone; none with too few samples.
    pub interval: Option<[f64; 2]>,
}

/// Compares a phase; none if a side does not have it.
pub(super) fn compare(
    phase: Phase,
    sides: [&Side; 2],
    unit: Unit,
    options: Options,
    effort: Effort,
) -> Option<PhaseLine> {
    // Not every run need have it.
    let runs = sides.map(|side| {
        let having = |run: &&Run| run.samples.get(&phase).is_some_and(|samples| !samples.is_empty());
        side.runs.iter().filter(having).collect::<Vec<_>>()
    });
    let samples = runs.each_ref().map(|runs| runs.iter().map(|run| run.samples[&phase].len()).sum::<usize>());
    if samples.contains(&0) {
        return None;
    }
    let units = Units::of(phase, &runs, unit);
    let driven = runs.iter().flatten().flat_map(|run| &run.samples[&phase]).any(|sample| sample.driver > 0.0);
    let judged = |take: fn(&Sample) -> f64| Times::of(&units, take).judged(options.level, effort);
    Some(PhaseLine {
        phase,
        samples,
        verdict: Verdict::TooFew,
        total: judged(|sample| sample.total),
        driver: driven.then(|| judged(|sample| sample.driver)),
        overhead: driven.then(|| judged(|sample| sample.overhead)),
    })
}

/// The samples of a phase, in the units that are resampled; none is empty.
enum Units<T> {
    /// Of each side, independent of the other.
    Separate([Vec<T>; 2]),
    /// Adjacent blocks, one of each side.
    Pairs(Vec<[T; 2]>),
}

impl<'a> Units<&'a [Sample]> {
    /// Of these runs, all of which have the phase.
    fn of(phase: Phase, runs: &[Vec<&'a Run>; 2], unit: Unit) -> Self {
        let of = |run: &&'a Run| -> &'a [Sample] { &run.samples[&phase] };
        match (unit, runs.each_ref().map(Vec::as_slice)) {
            (Unit::Pair, [[a], [b]]) => {
                let [of_a, of_b] = [a, b].map(|run| blocks::of(of(run), &run.blocks));
                let pairs = of_a.into_iter().zip(of_b).map(|(a, b)| [a, b]);
                Self::Pairs(pairs.filter(|pair| pair.iter().all(|block| !block.is_empty())).collect())
            }
            (Unit::Run, [a, b]) if a.len().min(b.len()) >= bootstrap::ENOUGH_RUNS => {
                Self::Separate([a, b].map(|runs| runs.iter().map(of).collect()))
            }
            (Unit::Block | Unit::Run | Unit::Pair, runs) => {
                Self::Separate(runs.map(|runs| runs.iter().map(of).flat_map(bootstrap::split).collect()))
            }
        }
    }
}

/// One of the times of all samples of both sides.
struct Times {
    /// Sorted within each unit.
    units: Units<Vec<f64>>,
    /// What is compared with each other; none if no block of a side has an adjacent one.
    strata: Vec<Stratum>,
    /// All times of the compared units; sorted.
    all: [Vec<f64>; 2],
}

impl Times {
    fn of(units: &Units<&[Sample]>, take: fn(&Sample) -> f64) -> Self {
        let values = |unit: &&[Sample]| sorted(unit.iter().map(take).collect());
        match units {
            Units::Separate(sides) => {
                let sides = sides.each_ref().map(|side| side.iter().map(values).collect::<Vec<_>>());
                let all = sides.each_ref().map(|side| sorted(side.concat()));
                Self { units: Units::Separate(sides), strata: vec![all.clone()], all }
            }
            Units::Pairs(pairs) => {
                let strata: Vec<Stratum> = pairs.iter().map(|pair| pair.each_ref().map(values)).collect();
                let side = |nth: usize| sorted(strata.iter().flat_map(|pair| &pair[nth]).copied().collect());
                let all = [side(0), side(1)];
                Self { units: Units::Pairs(strata.clone()), strata, all }
            }
        }
    }

    fn has_enough(&self) -> bool {
        let enough_units = match &self.units {
            Units::Separate(_) => true,
            Units::Pairs(pairs) => pairs.len() >= bootstrap::ENOUGH_PAIRS,
        };
        enough_units && self.all.iter().all(|side| side.len() >= ENOUGH)
    }

    /// The sampling error of the share of compared pairs of samples in which the second side is later, at this level.
    /// Each side is resampled against the other, shifted by their difference.
    fn error(&self, shift: f64, level: f64, effort: Effort) -> f64 {
        let part = |[xs, ys]: [&[f64]; 2], count: usize, against: usize| Part {
            sum: above(xs, ys, shift) / against as f64,
            count: count as f64,
        };
        match &self.units {
            Units::Separate([first, second]) => {
                let [xs, ys] = self.all.each_ref().map(Vec::as_slice);
                let of_first = |unit: &Vec<f64>| part([unit.as_slice(), ys], unit.len(), ys.len());
                let of_second = |unit: &Vec<f64>| part([xs, unit.as_slice()], unit.len(), xs.len());
                let parts: [Vec<Part>; 2] =
                    [first.iter().map(of_first).collect(), second.iter().map(of_second).collect()];
                bootstrap::error(&parts, level, effort)
            }
            Units::Pairs(pairs) => {
                let of_pair = |[xs, ys]: &Stratum| part([xs.as_slice(), ys], xs.len() * ys.len(), 1);
                bootstrap::error(&[pairs.iter().map(of_pair).collect()], level, effort)
            }
        }
    }

    /// The p-value of the difference between the sides.
    fn p(&self, effort: Effort) -> f64 {
        match &self.units {
            Units::Separate(sides) => {
                // The rank of each sample among those of both sides.
                let both = sorted(self.all.concat());
                let part = |unit: &Vec<f64>| Part { sum: above(&both, unit, 0.0), count: unit.len() as f64 };
                bootstrap::p_of_sides(&sides.each_ref().map(|side| side.iter().map(part).collect()), effort)
            }
            Units::Pairs(pairs) => {
                let later = |[xs, ys]: &Stratum| above(xs, ys, 0.0) - (xs.len() * ys.len()) as f64 / 2.0;
                bootstrap::p_of_pairs(&pairs.iter().map(later).collect::<Vec<_>>(), effort)
            }
        }
    }

    fn judged(&self, level: f64, effort: Effort) -> Judged {
        let has_enough = self.has_enough();
        let shift = if self.strata.is_empty() { 0.0 } else { difference(&self.strata, 0.5) };
        let interval = has_enough.then(|| {
            let reach = self.error(shift, level, effort);
            [0.5 - reach, 0.5 + reach].map(|share| difference(&self.strata, share))
        });
        // With the precision of all reports, so that a run has the same numbers in all of them.
        let quantiles = self.all.each_ref().map(|side| Durations::of(side).quantiles(""));
        let [p50, p95] =
            [|of: &Quantiles| of.p50, |of: &Quantiles| of.p95].map(|of| quantiles.each_ref().map(of));
        let shift_ratio = (p50[0] > 0.0).then(|| shift / p50[0]);
        Judged {
            measure: Measure { p50, p95, shift, shift_ratio, interval },
            verdict: Verdict::TooFew,
            p: has_enough.then(|| self.p(effort)),
            p_holm: None,
        }
    }
}

pub(super) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}
