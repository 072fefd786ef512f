//! One phase on both sides: its durations and their difference.

use claimcheck_model::Phase;
use serde::Serialize;

use super::{
    Options,
    bootstrap::{self, Dependence, Part, Unit},
    covariates::{Covariates, RelativeChange, RelativeShift},
    rank::{above, difference, quantile},
    read::{Sample, Side},
    student,
    verdict::Verdict,
};

/// The minimum number of samples per side for a verdict.
pub(super) const ENOUGH: usize = 10;

/// A phase that both sides have. All times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The time.
    #[serde(flatten)]
    pub measure: Measure,
    /// The verdict on the second side.
    pub verdict: Verdict,
    /// The p-value without correction for machine speed.
    pub p_as_is: Option<f64>,
    /// The p-value that also allows for a different machine speed.
    pub p: Option<f64>,
    /// The same after Holm's correction over everything judged: the basis of the verdict.
    pub p_holm: Option<f64>,
    /// The shift corrected for machine speed; seconds. None if the machine speed
    /// is not known for both sides.
    pub shift_evened: Option<f64>,
    /// The comparison relative to the other phases. None for a driver's part, which responds to a slow machine in its
    /// own way; and if there are too few phases, or it is too short.
    pub beside: Option<RelativeChange>,
    #[serde(skip)]
    pub(super) relative: Option<RelativeShift>,
}

/// A part of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhasePart {
    Driver,
    Overhead,
}

impl PhaseLine {
    /// The smallest increase by Kubernetes, as a share of the whole phase, that is detected with a power of 95 %.
    pub(super) fn finds(&self) -> Option<f64> {
        let all = [Some(self.total), self.overhead].into_iter().flatten();
        let finds = all.filter_map(|judged| Some(judged.beside?.finds * judged.p50[0] / self.total.p50[0]));
        finds.min_by(f64::total_cmp)
    }

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
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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

/// Compares a phase; none if a side does not have it. `pace` is the slowdown factor of the second side's machine, and
/// `company` the baselines of the other phases, if known.
pub(super) fn compare(
    phase: Phase,
    sides: [&Side; 2],
    unit: Unit,
    pace: Option<f64>,
    covariates: Option<&Covariates>,
    options: Options,
) -> Option<PhaseLine> {
    let of = |side: &Side| -> Vec<Vec<Sample>> {
        side.runs.iter().filter_map(|run| run.samples.get(&phase).cloned()).collect()
    };
    let runs = sides.map(of);
    let samples = [0, 1].map(|side| runs[side].iter().map(Vec::len).sum::<usize>());
    if samples.contains(&0) {
        return None;
    }
    // Not every run need have it.
    let unit =
        if runs.iter().all(|runs| runs.len() >= bootstrap::ENOUGH_RUNS) { unit } else { Unit::Stretch };
    let slices = [0, 1].map(|side| runs[side].iter().map(Vec::as_slice).collect::<Vec<_>>());
    let units = [0, 1].map(|side| bootstrap::units(&slices[side], unit, Dependence::Long));
    let driven = runs.iter().flatten().flatten().any(|sample| sample.driver > 0.0);
    let times = |take: fn(&Sample) -> f64| Times::of(&units, take);
    let beside = |take| Judged {
        relative: covariates.and_then(|covariates| covariates.relative(phase, sides, take)),
        ..times(take).judged(pace, options.level)
    };
    Some(PhaseLine {
        phase,
        samples,
        verdict: Verdict::TooFew,
        total: beside(|sample| sample.total),
        driver: driven.then(|| times(|sample| sample.driver).judged(pace, options.level)),
        overhead: driven.then(|| beside(|sample| sample.overhead)),
    })
}

/// One of the times of all samples of both sides.
struct Times {
    /// Sorted within each unit.
    units: [Vec<Vec<f64>>; 2],
    /// Sorted.
    all: [Vec<f64>; 2],
}

impl Times {
    fn of(units: &[Vec<&[Sample]>; 2], take: fn(&Sample) -> f64) -> Self {
        let values = |unit: &&[Sample]| sorted(unit.iter().map(take).collect());
        let units = [0, 1].map(|side| units[side].iter().map(values).collect::<Vec<_>>());
        Self { all: [0, 1].map(|side| sorted(units[side].concat())), units }
    }

    /// The times if all of them were scaled by this slowdown of the second side's machine.
    fn evened(&self, pace: f64) -> Self {
        let faster = |values: &Vec<f64>| values.iter().map(|value| value / pace).collect();
        let [first, second] = &self.units;
        let units = [first.clone(), second.iter().map(faster).collect()];
        Self { units, all: [self.all[0].clone(), faster(&self.all[1])] }
    }

    /// The shift of the second side, and its sampling error; none with too few samples.
    fn shift(&self) -> (f64, Option<Chance>) {
        let [xs, ys] = &self.all;
        let shift = difference(xs, ys, 0.5);
        let enough = xs.len().min(ys.len()) >= ENOUGH;
        (shift, enough.then(|| Chance::of(&self.units, xs, ys, shift)))
    }

    /// The p-value.
    fn p(&self, chance: Option<Chance>) -> Option<f64> {
        chance.map(|chance| chance.p(&self.all[0], &self.all[1]))
    }

    fn measure(&self, (shift, chance): (f64, Option<Chance>), level: f64) -> Measure {
        let [xs, ys] = &self.all;
        let p50 = [xs, ys].map(|values| quantile(values, 0.5));
        let interval = chance.map(|chance| {
            let reach = student::critical(level, chance.freedom) * chance.spread;
            [0.5 - reach, 0.5 + reach].map(|share| difference(xs, ys, share))
        });
        Measure {
            p50,
            p95: [xs, ys].map(|values| quantile(values, 0.95)),
            shift,
            shift_ratio: (p50[0] > 0.0).then(|| shift / p50[0]),
            interval,
        }
    }

    /// The share of a phase that scales with machine speed is unknown: between none and all of it. A difference must
    /// hold in both cases, so the greater p-value counts.
    fn judged(&self, pace: Option<f64>, level: f64) -> Judged {
        let shift = self.shift();
        let p_as_is = self.p(shift.1);
        let evened = pace.map(|pace| {
            let evened = self.evened(pace);
            let (shift, chance) = evened.shift();
            (shift, evened.p(chance))
        });
        Judged {
            measure: self.measure(shift, level),
            verdict: Verdict::TooFew,
            p_as_is,
            p: p_as_is.map(|p| evened.and_then(|(_, evened)| evened).map_or(p, |evened| p.max(evened))),
            p_holm: None,
            shift_evened: evened.map(|(shift, _)| shift),
            beside: None,
            relative: None,
        }
    }
}

/// The sampling error of the share of pairs in which the second side is later.
#[derive(Clone, Copy)]
pub(super) struct Chance {
    /// Its standard error.
    pub spread: f64,
    /// Its degrees of freedom (Welch and Satterthwaite).
    pub freedom: f64,
}

impl Chance {
    /// By resampling each side against the other, shifted by their difference.
    pub(super) fn of(units: &[Vec<Vec<f64>>; 2], xs: &[f64], ys: &[f64], shift: f64) -> Self {
        let part =
            |sum: f64, count: usize, against: usize| Part { sum: sum / against as f64, count: count as f64 };
        let first: Vec<Part> =
            units[0].iter().map(|unit| part(above(unit, ys, shift), unit.len(), ys.len())).collect();
        let second: Vec<Part> =
            units[1].iter().map(|unit| part(above(xs, unit, shift), unit.len(), xs.len())).collect();
        Self::of_parts([first, second])
    }

    /// By resampling the contributions of the units to the mean of their side.
    pub(super) fn of_parts(sides: [Vec<Part>; 2]) -> Self {
        let sides = sides.map(|parts| (bootstrap::variance(&parts), (parts.len() - 1).max(1) as f64));
        let variance: f64 = sides.iter().map(|(variance, _)| variance).sum();
        let doubt: f64 = sides.iter().map(|(variance, freedom)| variance * variance / freedom).sum();
        // If all samples are equal, the variance is zero and the degrees of freedom are unknown.
        let freedom = if doubt > 0.0 { variance * variance / doubt } else { 1.0 };
        Self { spread: variance.sqrt(), freedom }
    }

    /// The p-value of the difference between these.
    fn p(self, xs: &[f64], ys: &[f64]) -> f64 {
        let seen = above(xs, ys, 0.0) / (xs.len() * ys.len()) as f64 - 0.5;
        match (seen == 0.0, self.spread == 0.0) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => student::two_sided(seen / self.spread, self.freedom),
        }
    }
}

pub(super) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}
