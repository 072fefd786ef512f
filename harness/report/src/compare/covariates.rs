//! Compares a phase relative to its covariates: the other phases of the same run at the same time.
//!
//! Anything that slows down the machine, such as a noisy neighbour or a disk flush, slows down all phases
//! that are in progress; a change in one phase does not. So each sample is divided by how much longer than usual
//! the other phases took around that time, and the two sides are compared by the residuals. Of 30 loads of 200
//! volumes, two at a time, the medians of a phase varied by 9 to 12 % from one load to the next, and by 3 to 5 % once
//! the covariates were taken out, which is the sampling error of 200 samples anyway.
//!
//! A delay added to a phase shows best in the samples that did not have to wait for anything else, so the fast
//! ones have more weight ([`super::rank::score`]): on a busy machine this has the same power as
//! a third more samples.
//!
//! Not all phases respond equally to a slow machine, and a change may affect many phases. Both show as disagreement:
//! how much the other phases differ from each other between the two sides is added to the variance of this one.

use std::collections::BTreeMap;

use claimcheck_model::Phase;
use serde::Serialize;

use super::{
    bootstrap::{self, Dependence, Part, Unit},
    phase::{Chance, ENOUGH, Judged, PhaseLine, sorted},
    rank::{difference, quantile, score, shift_of},
    read::{Run, Sample, Side},
    student,
    verdict::holm,
};

/// The window of concurrency, in nanoseconds before and after.
const MOMENT_NS: u64 = 150_000_000;
/// Phases shorter than this, in seconds, are excluded: they are dominated by clock resolution.
const SHORTEST: f64 = 1e-4;
/// Phases with a wider spread than this, as a logarithm, are excluded too: they mix several kinds of work.
const WIDEST: f64 = 1.0;
/// The minimum number of other phases to compare with.
const COMPANIONS: usize = 5;
/// Shrinkage: a window counts as if it had this many additional average samples.
const AS_ALL: f64 = 5.0;
/// Winsorization: deviations are limited to this many spreads, so that stragglers do not dominate.
const FAR: f64 = 2.5;
/// The standard deviation of a normal distribution, in median absolute deviations.
const OF_DEVIATION: f64 = 1.4826;
/// The median of chi squared with one degree of freedom.
const MEDIAN_OF_CHI_SQUARED: f64 = 0.4549;
/// The minimum variation of a phase relative to the others between runs, independent of its samples: on
/// which processor a thread runs, and memory layout. The standard deviation of a logarithm.
const OF_RUN: f64 = 0.015;
/// How differently phases respond to a change of machine speed: of 60 loads on one that was up to half slower for some
/// minutes, phases became longer by the power of 0.8 to 1.3 of what the others did.
const ELASTICITY: f64 = 0.15;
/// The same for a driver, which varies more: it may compute, or wait for a cloud API.
const DRIVER_ELASTICITY: f64 = 0.35;
/// The smallest change worth reporting, as a share of a phase.
pub(super) const A_FIFTH: f64 = 0.2;
/// The 5th percentile of the normal distribution, in standard deviations below the mean.
const POWER_95: f64 = 1.645;
/// The variance of a median relative to that of a mean.
const OF_MEDIAN: f64 = std::f64::consts::FRAC_PI_2;

/// A phase on the second side, or a part of it, relative to the other phases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RelativeChange {
    /// Its increase relative to the other phases, as a share.
    pub ratio: f64,
    /// The p-value.
    pub p: f64,
    /// The p-value after Holm's correction over all phases.
    pub p_holm: f64,
    /// The smallest increase, as a share of the median, that is detected with a power of 95 % with this number of
    /// samples and their variance.
    pub finds: f64,
}

/// The increase of a phase on the second side, adjusted for the other phases at the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RelativeShift {
    /// A difference of logarithms.
    shift: f64,
    /// The same without the adjustment.
    as_is: f64,
    /// The difference if each sample of the first side had taken a fifth of their median longer.
    of_a_fifth: f64,
    /// Its standard error, estimated from the samples.
    spread: f64,
    /// The additional variance between runs.
    of_runs: f64,
    /// The number of units from which the spread is estimated.
    freedom: f64,
}

/// The baseline of a phase on both sides: logarithms of seconds.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    middle: f64,
    spread: f64,
}

/// The baseline of each phase that may be a covariate, and their course during each run.
pub(super) struct Covariates {
    baselines: BTreeMap<Phase, Baseline>,
    windows: [Vec<Windows>; 2],
    /// The peak number of concurrent volumes.
    concurrency: f64,
}

impl Covariates {
    /// None if there are too few phases.
    pub(super) fn of(sides: [&Side; 2]) -> Option<Self> {
        let baselines = |&phase: &Phase| Some((phase, Baseline::of(phase, sides)?));
        let baselines: BTreeMap<_, _> = Phase::ALL.iter().filter_map(baselines).collect();
        let windows = sides.map(|side| side.runs.iter().map(|run| Windows::of(run, &baselines)).collect());
        let concurrency = sides.iter().flat_map(|side| &side.runs).map(concurrency).fold(1.0, f64::max);
        (baselines.len() > COMPANIONS).then_some(Self { baselines, windows, concurrency })
    }

    /// Compares a phase, or a part of it, adjusted for its covariates. None if it is too short or too rare.
    pub(super) fn relative(
        &self,
        phase: Phase,
        sides: [&Side; 2],
        take: fn(&Sample) -> f64,
    ) -> Option<RelativeShift> {
        self.baselines.get(&phase)?;
        let as_is = sides.map(|side| {
            let samples = side.runs.iter().filter_map(|run| run.samples.get(&phase)).flatten();
            sorted(samples.map(|sample| logarithm(take(sample))).collect())
        });
        if as_is.iter().any(|side| side.is_empty() || quantile(side, 0.5) < SHORTEST.ln()) {
            return None;
        }
        let evened = |side: usize, longer: f64| -> Vec<Vec<f64>> {
            let of = |(run, windows): (&Run, &Windows)| {
                let samples = run.samples.get(&phase).map(Vec::as_slice).unwrap_or_default().iter();
                let of = |sample: &Sample| {
                    logarithm(take(sample) + longer) - windows.deviation_of_others(phase, sample.end_ns)
                };
                samples.map(of).collect()
            };
            sides[side].runs.iter().zip(&self.windows[side]).map(of).collect()
        };
        let runs = [0, 1].map(|side| evened(side, 0.0));
        let [xs, ys] = runs.each_ref().map(|runs| sorted(runs.concat()));
        let shift = shift_of(&xs, &ys, 0.0);
        let chance = |unit| {
            let parts = |runs: &[Vec<f64>], own: f64| {
                let runs: Vec<&[f64]> = runs.iter().map(Vec::as_slice).collect();
                let part = |unit: &[f64]| {
                    let sum = score(&sorted(unit.to_vec()), own, &xs, &ys, shift);
                    Part { sum, count: unit.len() as f64 }
                };
                bootstrap::units(&runs, unit, Dependence::Short { concurrency: self.concurrency })
                    .into_iter()
                    .map(part)
                    .collect()
            };
            Chance::of_parts([parts(&runs[0], shift), parts(&runs[1], 0.0)])
        };
        let blocks = chance(Unit::Stretch);
        let [low, high] = [blocks.spread, -blocks.spread].map(|by| shift_of(&xs, &ys, by));
        let spread = (high - low) / 2.0;
        let least: f64 = sides.iter().map(|side| OF_RUN * OF_RUN / side.runs.len() as f64).sum();
        let of_runs = match bootstrap::unit(sides) {
            Unit::Run => {
                let more = (chance(Unit::Run).spread / blocks.spread).powi(2) - 1.0;
                least.max(spread * spread * more)
            }
            Unit::Stretch => least,
        };
        let a_fifth = sorted(evened(0, A_FIFTH * quantile(&as_is[0], 0.5).exp()).concat());
        Some(RelativeShift {
            shift,
            as_is: difference(&as_is[0], &as_is[1], 0.5),
            of_a_fifth: shift_of(&xs, &a_fifth, 0.0),
            spread,
            of_runs,
            freedom: blocks.freedom,
        })
    }
}

/// The number of concurrent volumes of a run; the phases of one volume are sequential.
fn concurrency(run: &Run) -> f64 {
    let samples = || run.samples.values().flatten();
    let [first, last] =
        [samples().map(|sample| sample.end_ns).min(), samples().map(|sample| sample.end_ns).max()];
    let elapsed = last.zip(first).map_or(0, |(last, first)| last - first) as f64 / 1e9;
    let busy: f64 = samples().map(|sample| sample.total).sum();
    if elapsed > 0.0 { busy / elapsed } else { 1.0 }
}

impl Baseline {
    fn of(phase: Phase, sides: [&Side; 2]) -> Option<Self> {
        let of = |side: &Side| {
            let samples = side.runs.iter().filter_map(|run| run.samples.get(&phase)).flatten();
            sorted(samples.map(|sample| logarithm(sample.total)).collect())
        };
        let sides = sides.map(of);
        if sides.iter().any(|values| values.len() < ENOUGH) {
            return None;
        }
        let off = |values: &Vec<f64>| {
            let middle = quantile(values, 0.5);
            values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>()
        };
        let spread = OF_DEVIATION * quantile(&sorted(sides.iter().flat_map(off).collect()), 0.5);
        let middle = quantile(&sorted(sides.concat()), 0.5);
        (spread > 0.0 && spread < WIDEST && middle >= SHORTEST.ln()).then_some(Self { middle, spread })
    }

    fn weight(self) -> f64 {
        1.0 / (self.spread * self.spread)
    }
}

/// The course of the phases during a run.
struct Windows {
    all: Sums,
    of: BTreeMap<Phase, Sums>,
}

impl Windows {
    fn of(run: &Run, baselines: &BTreeMap<Phase, Baseline>) -> Self {
        let of = |(&phase, baselines): (&Phase, &Baseline)| {
            let far = FAR * baselines.spread;
            let samples = run.samples.get(&phase)?.iter().map(|sample| Sum {
                end_ns: sample.end_ns,
                distance: (logarithm(sample.total) - baselines.middle).clamp(-far, far) * baselines.weight(),
                weight: baselines.weight(),
                count: 1.0,
            });
            Some((phase, samples.collect::<Vec<_>>()))
        };
        let of: BTreeMap<Phase, Vec<Sum>> = baselines.iter().filter_map(of).collect();
        let all = of.values().flatten().copied().collect();
        Self { all: Sums::of(all), of: of.into_iter().map(|(phase, of)| (phase, Sums::of(of))).collect() }
    }

    /// The deviation of all other phases from their baseline around that time, as a logarithm.
    fn deviation_of_others(&self, phase: Phase, end_ns: u64) -> f64 {
        let but_own = |of: &dyn Fn(&Sums) -> Sum| {
            let own = self.of.get(&phase).map_or_else(Sum::default, of);
            of(&self.all).less(own)
        };
        let (from, to) = (end_ns.saturating_sub(MOMENT_NS), end_ns + MOMENT_NS + 1);
        let then = but_own(&|sums| sums.before(to).less(sums.before(from)));
        let run = but_own(&|sums| sums.before(u64::MAX));
        let as_all = AS_ALL / run.count.max(1.0);
        let weight = then.weight + as_all * run.weight;
        if weight > 0.0 { (then.distance + as_all * run.distance) / weight } else { 0.0 }
    }
}

/// Cumulative sums of samples.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// When the last of them ended.
    end_ns: u64,
    /// The weighted deviation from the baseline.
    distance: f64,
    weight: f64,
    count: f64,
}

impl Sum {
    fn less(self, other: Self) -> Self {
        let (distance, weight) = (self.distance - other.distance, self.weight - other.weight);
        Self { end_ns: self.end_ns, distance, weight, count: self.count - other.count }
    }
}

/// Sums of all samples up to each, in the order in which they ended.
struct Sums(Vec<Sum>);

impl Sums {
    fn of(mut samples: Vec<Sum>) -> Self {
        samples.sort_by_key(|sample| sample.end_ns);
        let mut up_to = Sum::default();
        for sample in &mut samples {
            sample.distance += up_to.distance;
            sample.weight += up_to.weight;
            sample.count += up_to.count;
            up_to = *sample;
        }
        Self(samples)
    }

    fn before(&self, end_ns: u64) -> Sum {
        let count = self.0.partition_point(|sum| sum.end_ns < end_ns);
        count.checked_sub(1).map_or_else(Sum::default, |last| self.0[last])
    }
}

impl RelativeShift {
    /// The variance of the shift, given this disagreement of the others.
    fn variance(&self, disagreement: f64) -> f64 {
        self.spread * self.spread + disagreement
    }

    /// The shift without the component common to the others, and its standard error, where the power of what the
    /// others did by which it takes to another machine is known so well.
    fn adjusted(&self, others: &[Self], elasticity: f64) -> (f64, f64) {
        let (mut common, mut disagree) = (0.0, 0.0);
        // The precision of each depends on their disagreement, which is known once their median is.
        for _ in 0..2 {
            common = middle(others, disagree);
            disagree = disagreement(others, common);
        }
        let machine = median(others, |other| other.as_is);
        disagree = disagree.max((elasticity * machine).powi(2));
        // A few runs give a poor estimate of their variation: no phase is more certain than most of them.
        let of_runs = self.of_runs.max(median(others, |other| other.of_runs));
        let sure: f64 = others.iter().map(|other| other.variance(disagree).recip()).sum();
        let variance = self.variance(disagree) + of_runs + OF_MEDIAN / sure;
        (self.shift - common, variance.sqrt())
    }
}

/// Compares each phase, and Kubernetes' part in it, with the other phases, where `doubt` is the family-wise error
/// rate.
pub(super) fn judge(lines: &mut [PhaseLine], doubt: f64) {
    let companions: Vec<Option<RelativeShift>> =
        lines.iter().map(|line| line.total.certain_shift()).collect();
    let mut all = Vec::new();
    for (at, line) in lines.iter_mut().enumerate() {
        let others = [&companions[..at], &companions[at + 1..]].concat();
        let others: Vec<RelativeShift> = others.into_iter().flatten().collect();
        // A driver responds to machine speed in its own way, so the smaller Kubernetes' share of a phase, the less is
        // known.
        let driver = line.driver.map_or(0.0, |driver| driver.p50[0] / line.total.p50[0]).min(1.0);
        let parts = [(Some(&mut line.total), driver), (line.overhead.as_mut(), 0.0)];
        for (judged, driver) in parts {
            let Some(judged) = judged else { continue };
            let Some(relative) = judged.certain_shift().filter(|_| others.len() >= COMPANIONS) else {
                continue;
            };
            let (shift, error) = relative.adjusted(&others, ELASTICITY + DRIVER_ELASTICITY * driver);
            let p = student::two_sided(shift / error, relative.freedom);
            let beside = RelativeChange { ratio: shift.exp_m1(), p, p_holm: p, finds: 0.0 };
            all.push((relative, error, judged.beside.insert(beside)));
        }
    }
    let corrected = holm(&all.iter().map(|(.., beside)| Some(beside.p)).collect::<Vec<_>>());
    let each = doubt / all.len() as f64;
    for ((relative, error, beside), p_holm) in all.into_iter().zip(corrected.into_iter().flatten()) {
        beside.p_holm = p_holm;
        let found = (student::critical(1.0 - each, relative.freedom) + POWER_95) * error;
        beside.finds = A_FIFTH * found / relative.of_a_fifth;
    }
}

impl Judged {
    /// Its lag, if its standard error can be estimated.
    fn certain_shift(&self) -> Option<RelativeShift> {
        self.relative.filter(|relative| relative.spread > 0.0)
    }
}

/// The weighted median of the shifts.
fn middle(all: &[RelativeShift], disagreement: f64) -> f64 {
    let weighted = |relative: &RelativeShift| (relative.shift, relative.variance(disagreement).recip());
    let mut weighted: Vec<(f64, f64)> = all.iter().map(weighted).collect();
    weighted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = weighted.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let reaches = |(_, weight): &&(f64, f64)| {
        sum += weight;
        sum >= half
    };
    weighted.iter().find(reaches).map_or(0.0, |(shift, _)| *shift)
}

/// The variance of the shifts beyond the sampling error.
fn disagreement(all: &[RelativeShift], common: f64) -> f64 {
    let seen = median(all, |relative| (relative.shift - common).powi(2)) / MEDIAN_OF_CHI_SQUARED;
    (seen - median(all, |relative| relative.spread * relative.spread)).max(0.0)
}

fn median(all: &[RelativeShift], of: impl Fn(&RelativeShift) -> f64) -> f64 {
    let values = sorted(all.iter().map(of).collect());
    if values.is_empty() { 0.0 } else { quantile(&values, 0.5) }
}

/// Of a time in seconds; no less than a microsecond.
fn logarithm(seconds: f64) -> f64 {
    seconds.max(1e-6).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrency_is_busy_time_per_elapsed_time() {
        let sample =
            |second: u64| Sample { end_ns: second * 1_000_000_000, total: 1.5, driver: 0.0, overhead: 1.5 };
        let of = |seconds: u64| {
            let samples =
                [Phase::Attach, Phase::Stage].map(|phase| (phase, (0..=seconds).map(sample).collect()));
            concurrency(&Run { samples: samples.into(), ..Run::default() })
        };
        assert!((of(1000) - 3.0).abs() < 0.01, "{}", of(1000));
        assert_eq!((of(0), concurrency(&Run::default())), (1.0, 1.0), "in no time");
    }
}
