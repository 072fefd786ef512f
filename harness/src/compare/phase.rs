//! One phase on both sides: how long it took, and by how much that differs.

use claimcheck_model::Phase;
use serde::Serialize;

use super::{
    Options,
    bootstrap::{self, Part, Unit},
    rank::{above, difference, quantile},
    read::{Sample, Side},
    student,
    verdict::Verdict,
};

/// With fewer samples a side nothing is said.
pub(super) const ENOUGH: usize = 10;

/// A phase that both sides have. All times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseLine {
    /// Which.
    pub phase: Phase,
    /// How many samples each side has.
    pub samples: [usize; 2],
    /// What it is on the second side.
    pub verdict: Verdict,
    /// How likely chance alone does as much, in this phase.
    pub p: Option<f64>,
    /// The same, after Holm, with all phases in mind: this is what the verdict is made from.
    pub p_holm: Option<f64>,
    /// All of it.
    pub total: Measure,
    /// The driver's part; none where the driver has no part in it.
    pub driver: Option<Measure>,
    /// Kubernetes' part; none where that is all.
    pub overhead: Option<Measure>,
}

/// A time on both sides; seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measure {
    /// The medians.
    pub p50: [f64; 2],
    /// What 95 of 100 do not exceed.
    pub p95: [f64; 2],
    /// By how much the second side is later: the median of all differences.
    pub shift: f64,
    /// The same as a share of the first side's median; none where that is 0.
    pub shift_ratio: Option<f64>,
    /// Where the shift lies, at the stated level for this phase alone; none where there are too few samples.
    pub interval: Option<[f64; 2]>,
}

/// Compares a phase; none where a side does not have it.
pub(super) fn compare(phase: Phase, sides: [&Side; 2], unit: Unit, options: Options) -> Option<PhaseLine> {
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
    let units = [0, 1].map(|side| bootstrap::units(&slices[side], unit));
    let measure = |take: fn(&Sample) -> f64| measure(&units, take, options.level);
    let (total, p) = measure(|sample| sample.total);
    let driven = runs.iter().flatten().flatten().any(|sample| sample.driver > 0.0);
    Some(PhaseLine {
        phase,
        samples,
        verdict: Verdict::TooFew,
        p,
        p_holm: None,
        total,
        driver: driven.then(|| measure(|sample| sample.driver).0),
        overhead: driven.then(|| measure(|sample| sample.overhead).0),
    })
}

/// One of the times of a sample, on both sides; and how likely chance alone does as much.
fn measure(units: &[Vec<&[Sample]>; 2], take: fn(&Sample) -> f64, level: f64) -> (Measure, Option<f64>) {
    let values = |unit: &[Sample]| sorted(unit.iter().map(take).collect());
    let units = [0, 1].map(|side| units[side].iter().map(|unit| values(unit)).collect::<Vec<_>>());
    let [xs, ys] = [0, 1].map(|side| sorted(units[side].concat()));
    let shift = difference(&xs, &ys, 0.5);
    let p50 = [&xs, &ys].map(|values| quantile(values, 0.5));
    let enough = xs.len().min(ys.len()) >= ENOUGH;
    let chance = enough.then(|| Chance::of(&units, &xs, &ys, shift));
    let interval = chance.map(|chance| {
        let reach = student::critical(level, chance.freedom) * chance.spread;
        [0.5 - reach, 0.5 + reach].map(|share| difference(&xs, &ys, share))
    });
    let measure = Measure {
        p50,
        p95: [&xs, &ys].map(|values| quantile(values, 0.95)),
        shift,
        shift_ratio: (p50[0] > 0.0).then(|| shift / p50[0]),
        interval,
    };
    (measure, chance.map(|chance| chance.p(&xs, &ys)))
}

/// How far chance moves the share of pairs in which the second side is later.
#[derive(Clone, Copy)]
struct Chance {
    /// Its standard error.
    spread: f64,
    /// Of how many units that is known, as degrees of freedom (Welch and Satterthwaite).
    freedom: f64,
}

impl Chance {
    /// By resampling each side against the other, shifted by as much as they differ.
    fn of(units: &[Vec<Vec<f64>>; 2], xs: &[f64], ys: &[f64], shift: f64) -> Self {
        let part =
            |sum: f64, count: usize, against: usize| Part { sum: sum / against as f64, count: count as f64 };
        let first: Vec<Part> =
            units[0].iter().map(|unit| part(above(unit, ys, shift), unit.len(), ys.len())).collect();
        let second: Vec<Part> =
            units[1].iter().map(|unit| part(above(xs, unit, shift), unit.len(), xs.len())).collect();
        let sides =
            [first, second].map(|parts| (bootstrap::variance(&parts), (parts.len() - 1).max(1) as f64));
        let variance: f64 = sides.iter().map(|(variance, _)| variance).sum();
        let doubt: f64 = sides.iter().map(|(variance, freedom)| variance * variance / freedom).sum();
        // Where all samples are the same, nothing is left to chance, and nothing is known of it.
        let freedom = if doubt > 0.0 { variance * variance / doubt } else { 1.0 };
        Self { spread: variance.sqrt(), freedom }
    }

    /// How likely it alone does as much as is seen between these.
    fn p(self, xs: &[f64], ys: &[f64]) -> f64 {
        let seen = above(xs, ys, 0.0) / (xs.len() * ys.len()) as f64 - 0.5;
        match (seen == 0.0, self.spread == 0.0) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => student::two_sided(seen / self.spread, self.freedom),
        }
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}
