//! A phase held against its company: the other phases of the same run, at the same time.
//!
//! What makes a machine slower, a neighbour of its virtual processors or a disk that flushes, makes all phases slower
//! that are under way; what changes in one phase does not. So each sample is divided by how much longer than usual
//! the other phases took within a moment of it, and the two sides are compared by what is left. Of 30 loads of 200
//! volumes, two at a time, the medians of a phase varied by 9 to 12 % from one load to the next, and by 3 to 5 % once
//! their company was taken out, which is what 200 samples vary by anyway.
//!
//! What comes on top of a phase shows best in the samples that did not have to wait for anything else, so the quick
//! ones count more ([`super::rank::score`]): on a machine that is busy with other things too, as much is found as else
//! with a third more samples.
//!
//! Not all phases feel a slow machine alike, and a change may touch many phases. Either shows as disagreement: how
//! much the other phases differ from each other between the two sides is added to the doubt about this one.

use std::collections::BTreeMap;

use claimcheck_model::Phase;
use serde::Serialize;

use super::{
    bootstrap::{self, Memory, Part, Unit},
    phase::{Chance, ENOUGH, Judged, PhaseLine, sorted},
    rank::{difference, quantile, score, shift_of},
    read::{Run, Sample, Side},
    student,
    verdict::holm,
};

/// What goes on within so many nanoseconds before and after is at the same time.
const MOMENT_NS: u64 = 150_000_000;
/// Shorter phases, in seconds, take no part: they are made of the clock's grain.
const SHORTEST: f64 = 1e-4;
/// Those whose times spread further than this, as a logarithm, take no part either: they are of several kinds.
const WIDEST: f64 = 1.0;
/// With fewer phases to hold it against nothing is said of one.
const COMPANIONS: usize = 5;
/// As if a moment had so many samples more that are as all of the run: few samples say little.
const AS_ALL: f64 = 5.0;
/// So many spreads from the usual counts as this many, for a straggler says nothing of the others.
const FAR: f64 = 2.5;
/// The standard deviation of a normal distribution, in median absolute deviations.
const OF_DEVIATION: f64 = 1.4826;
/// The median of chi squared with one degree of freedom.
const MEDIAN_OF_CHI_SQUARED: f64 = 0.4549;
/// By how much a phase differs from the others from one run to the next at the least, whatever its samples say: on
/// which processor a thread comes to run, and how memory lies. The standard deviation of a logarithm.
const OF_RUN: f64 = 0.015;
/// How differently phases take to a machine of another pace: of 60 loads on one that was up to half slower for some
/// minutes, phases became longer by the power of 0.8 to 1.3 of what the others did.
const ELASTICITY: f64 = 0.15;
/// The same of a driver, more than that: it may compute, or wait for a cloud.
const OWN_WAY: f64 = 0.35;
/// A change that people want to be told of, as a share of a phase.
pub(super) const A_FIFTH: f64 = 0.2;
/// What 19 of 20 normal values are above, in standard deviations below the mean.
const NINETEEN_IN_TWENTY: f64 = 1.645;
/// The variance of a median, in that of a mean.
const OF_MEDIAN: f64 = std::f64::consts::FRAC_PI_2;

/// A phase on the second side, or a part of it, held against the other phases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// By how much longer it takes than they do, as a share.
    pub ratio: f64,
    /// How likely chance does as much.
    pub p: f64,
    /// The same, after Holm, with all phases in mind.
    pub p_holm: f64,
    /// From which share of its median on, had each sample taken as much longer, that is found 19 times in 20, with so
    /// many samples that vary as they do.
    pub finds: f64,
}

/// By how much a phase takes longer on the second side, without what the others did at the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lag {
    /// A difference of logarithms.
    shift: f64,
    /// The same with what the others did.
    as_is: f64,
    /// What it would be had each sample of the first side taken a fifth of their median longer.
    of_a_fifth: f64,
    /// Its standard error, as far as the samples tell.
    spread: f64,
    /// The variance from run to run beyond that.
    of_runs: f64,
    /// Of how many units the spread is known.
    freedom: f64,
}

/// What is usual for a phase on both sides: logarithms of seconds.
#[derive(Clone, Copy, Debug)]
struct Usual {
    middle: f64,
    spread: f64,
}

/// What is usual for each phase that may be a companion, and what they did as each run went on.
pub(super) struct Company {
    usual: BTreeMap<Phase, Usual>,
    moments: [Vec<Moments>; 2],
    /// How many volumes were under way together, where it was most.
    abreast: f64,
}

impl Company {
    /// None where there are too few phases.
    pub(super) fn of(sides: [&Side; 2]) -> Option<Self> {
        let usual = |&phase: &Phase| Some((phase, Usual::of(phase, sides)?));
        let usual: BTreeMap<_, _> = Phase::ALL.iter().filter_map(usual).collect();
        let moments = sides.map(|side| side.runs.iter().map(|run| Moments::of(run, &usual)).collect());
        let abreast = sides.iter().flat_map(|side| &side.runs).map(abreast).fold(1.0, f64::max);
        (usual.len() > COMPANIONS).then_some(Self { usual, moments, abreast })
    }

    /// Compares a phase, or a part of it, without what its company did. None where it is too short, or too rare.
    pub(super) fn lag(&self, phase: Phase, sides: [&Side; 2], take: fn(&Sample) -> f64) -> Option<Lag> {
        self.usual.get(&phase)?;
        let as_is = sides.map(|side| {
            let samples = side.runs.iter().filter_map(|run| run.samples.get(&phase)).flatten();
            sorted(samples.map(|sample| logarithm(take(sample))).collect())
        });
        if as_is.iter().any(|side| side.is_empty() || quantile(side, 0.5) < SHORTEST.ln()) {
            return None;
        }
        let evened = |side: usize, longer: f64| -> Vec<Vec<f64>> {
            let of = |(run, moments): (&Run, &Moments)| {
                let samples = run.samples.get(&phase).map(Vec::as_slice).unwrap_or_default().iter();
                let of =
                    |sample: &Sample| logarithm(take(sample) + longer) - moments.beside(phase, sample.end_ns);
                samples.map(of).collect()
            };
            sides[side].runs.iter().zip(&self.moments[side]).map(of).collect()
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
                bootstrap::units(&runs, unit, Memory::Short { abreast: self.abreast })
                    .into_iter()
                    .map(part)
                    .collect()
            };
            Chance::of_parts([parts(&runs[0], shift), parts(&runs[1], 0.0)])
        };
        let stretches = chance(Unit::Stretch);
        let [low, high] = [stretches.spread, -stretches.spread].map(|by| shift_of(&xs, &ys, by));
        let spread = (high - low) / 2.0;
        let least: f64 = sides.iter().map(|side| OF_RUN * OF_RUN / side.runs.len() as f64).sum();
        let of_runs = match bootstrap::unit(sides) {
            Unit::Run => {
                let more = (chance(Unit::Run).spread / stretches.spread).powi(2) - 1.0;
                least.max(spread * spread * more)
            }
            Unit::Stretch => least,
        };
        let a_fifth = sorted(evened(0, A_FIFTH * quantile(&as_is[0], 0.5).exp()).concat());
        Some(Lag {
            shift,
            as_is: difference(&as_is[0], &as_is[1], 0.5),
            of_a_fifth: shift_of(&xs, &a_fifth, 0.0),
            spread,
            of_runs,
            freedom: stretches.freedom,
        })
    }
}

/// How many volumes of a run were under way together, for phases of one follow each other.
fn abreast(run: &Run) -> f64 {
    let samples = || run.samples.values().flatten();
    let [first, last] =
        [samples().map(|sample| sample.end_ns).min(), samples().map(|sample| sample.end_ns).max()];
    let elapsed = last.zip(first).map_or(0, |(last, first)| last - first) as f64 / 1e9;
    let busy: f64 = samples().map(|sample| sample.total).sum();
    if elapsed > 0.0 { busy / elapsed } else { 1.0 }
}

impl Usual {
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

/// What the phases of a run did, as it went on.
struct Moments {
    all: Sums,
    of: BTreeMap<Phase, Sums>,
}

impl Moments {
    fn of(run: &Run, usual: &BTreeMap<Phase, Usual>) -> Self {
        let of = |(&phase, usual): (&Phase, &Usual)| {
            let far = FAR * usual.spread;
            let samples = run.samples.get(&phase)?.iter().map(|sample| Sum {
                end_ns: sample.end_ns,
                distance: (logarithm(sample.total) - usual.middle).clamp(-far, far) * usual.weight(),
                weight: usual.weight(),
                count: 1.0,
            });
            Some((phase, samples.collect::<Vec<_>>()))
        };
        let of: BTreeMap<Phase, Vec<Sum>> = usual.iter().filter_map(of).collect();
        let all = of.values().flatten().copied().collect();
        Self { all: Sums::of(all), of: of.into_iter().map(|(phase, of)| (phase, Sums::of(of))).collect() }
    }

    /// By how much longer than usual all phases but this one took about then, as a logarithm.
    fn beside(&self, phase: Phase, end_ns: u64) -> f64 {
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

/// What samples add up to.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// When the last of them ended.
    end_ns: u64,
    /// From the usual, weighted.
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

impl Lag {
    /// The variance of the shift, where the others disagree by so much.
    fn variance(&self, disagreement: f64) -> f64 {
        self.spread * self.spread + disagreement
    }

    /// What it is without what the others' have in common, and the standard error of that, where the power of what the
    /// others did by which it takes to another machine is known so well.
    fn beside(&self, others: &[Self], elasticity: f64) -> (f64, f64) {
        let (mut common, mut disagree) = (0.0, 0.0);
        // How sure each of them is depends on how much they disagree, which is known once their middle is.
        for _ in 0..2 {
            common = middle(others, disagree);
            disagree = disagreement(others, common);
        }
        let machine = median(others, |other| other.as_is);
        disagree = disagree.max((elasticity * machine).powi(2));
        // What a few runs tell of how much they differ is little: no phase is surer than most of them.
        let of_runs = self.of_runs.max(median(others, |other| other.of_runs));
        let sure: f64 = others.iter().map(|other| other.variance(disagree).recip()).sum();
        let variance = self.variance(disagree) + of_runs + OF_MEDIAN / sure;
        (self.shift - common, variance.sqrt())
    }
}

/// Holds each phase, and Kubernetes' part in it, against the other phases, where `doubt` is how often any of them may
/// be named by chance.
pub(super) fn judge(lines: &mut [PhaseLine], doubt: f64) {
    let companions: Vec<Option<Lag>> = lines.iter().map(|line| line.total.sure_lag()).collect();
    let mut all = Vec::new();
    for (at, line) in lines.iter_mut().enumerate() {
        let others = [&companions[..at], &companions[at + 1..]].concat();
        let others: Vec<Lag> = others.into_iter().flatten().collect();
        // A driver takes to another machine in its own way, so the less of a phase is Kubernetes' the less is known.
        let driver = line.driver.map_or(0.0, |driver| driver.p50[0] / line.total.p50[0]).min(1.0);
        let parts = [(Some(&mut line.total), driver), (line.overhead.as_mut(), 0.0)];
        for (judged, driver) in parts {
            let Some(judged) = judged else { continue };
            let Some(lag) = judged.sure_lag().filter(|_| others.len() >= COMPANIONS) else { continue };
            let (shift, error) = lag.beside(&others, ELASTICITY + OWN_WAY * driver);
            let p = student::two_sided(shift / error, lag.freedom);
            let beside = Beside { ratio: shift.exp_m1(), p, p_holm: p, finds: 0.0 };
            all.push((lag, error, judged.beside.insert(beside)));
        }
    }
    let corrected = holm(&all.iter().map(|(.., beside)| Some(beside.p)).collect::<Vec<_>>());
    let each = doubt / all.len() as f64;
    for ((lag, error, beside), p_holm) in all.into_iter().zip(corrected.into_iter().flatten()) {
        beside.p_holm = p_holm;
        let found = (student::critical(1.0 - each, lag.freedom) + NINETEEN_IN_TWENTY) * error;
        beside.finds = A_FIFTH * found / lag.of_a_fifth;
    }
}

impl Judged {
    /// Its lag, if its samples tell how sure that is.
    fn sure_lag(&self) -> Option<Lag> {
        self.lag.filter(|lag| lag.spread > 0.0)
    }
}

/// The weighted median of the shifts.
fn middle(all: &[Lag], disagreement: f64) -> f64 {
    let weighted = |lag: &Lag| (lag.shift, lag.variance(disagreement).recip());
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

/// The variance of the shifts beyond what chance accounts for.
fn disagreement(all: &[Lag], common: f64) -> f64 {
    let seen = median(all, |lag| (lag.shift - common).powi(2)) / MEDIAN_OF_CHI_SQUARED;
    (seen - median(all, |lag| lag.spread * lag.spread)).max(0.0)
}

fn median(all: &[Lag], of: impl Fn(&Lag) -> f64) -> f64 {
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
    fn as_many_volumes_are_abreast_as_phases_take_of_the_time() {
        let sample =
            |second: u64| Sample { end_ns: second * 1_000_000_000, total: 1.5, driver: 0.0, overhead: 1.5 };
        let of = |seconds: u64| {
            let samples =
                [Phase::Attach, Phase::Stage].map(|phase| (phase, (0..=seconds).map(sample).collect()));
            abreast(&Run { samples: samples.into(), ..Run::default() })
        };
        assert!((of(1000) - 3.0).abs() < 0.01, "{}", of(1000));
        assert_eq!((of(0), abreast(&Run::default())), (1.0, 1.0), "in no time");
    }
}
