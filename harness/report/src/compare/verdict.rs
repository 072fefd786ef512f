//! From p-values to verdicts.

use serde::Serialize;

use super::{
    Options,
    covariates::{self, RelativeChange},
    phase::{Judged, PhaseLine},
};

/// The verdict on the second side. Of several, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There are too few samples for a verdict.
    TooFew,
    /// Not significant, or too small to matter.
    Same,
    /// It takes more or less time, which the machine speed explains.
    Machine,
    /// It takes less time, or fails less.
    Better,
    /// It takes more time, or fails more.
    Worse,
}

impl Verdict {
    /// The words for reports.
    pub const fn words(self) -> &'static str {
        match self {
            Self::TooFew => "too few",
            Self::Same => "no difference",
            Self::Machine => "inconclusive",
            Self::Better => "better",
            Self::Worse => "worse",
        }
    }

    /// Better or worse.
    pub const fn differs(self) -> bool {
        matches!(self, Self::Better | Self::Worse)
    }

    /// The verdict for a quantity of which more is worse.
    pub(super) fn of(difference: f64) -> Self {
        match difference {
            more if more > 0.0 => Self::Worse,
            less if less < 0.0 => Self::Better,
            _ => Self::Same,
        }
    }
}

/// The share of the error budget for the comparison relative to the other phases. The rest is for what the
/// machine does not explain, as when all phases differ.
const RELATIVE_SHARE: f64 = 0.9;

/// The share of a relative difference that must show without the other phases.
const SHOWS: f64 = 0.25;

/// Gives each phase its verdict. It differs if it does relative to the other phases, or else if it does by itself and
/// the machine does not explain it.
pub(super) fn judge(phases: &mut [PhaseLine], options: Options) {
    covariates::judge(phases, RELATIVE_SHARE * (1.0 - options.level));
    let all = |line: &PhaseLine| [Some(line.total), line.driver, line.overhead].into_iter().flatten();
    let corrected =
        |of: fn(Judged) -> Option<f64>| holm(&phases.iter().flat_map(all).map(of).collect::<Vec<_>>());
    let [as_is, either_way] = [corrected(|judged| judged.p_as_is), corrected(|judged| judged.p)];
    let mut corrected = as_is.into_iter().zip(either_way);
    let share = if phases.iter().any(|line| line.total.beside.is_some()) { RELATIVE_SHARE } else { 0.0 };
    let [relative_doubt, doubt] = [share, 1.0 - share].map(|share| share * (1.0 - options.level));
    for line in phases {
        let least = options.margin * line.total.p50[0];
        for judged in std::iter::once(&mut line.total).chain(&mut line.driver).chain(&mut line.overhead) {
            let (as_is, either_way) = corrected.next().expect("one for each that is judged");
            judged.p_holm = either_way;
            let by_itself = by_itself(judged, as_is, doubt, least);
            judged.verdict = relative(judged, relative_doubt, least).unwrap_or(by_itself);
        }
        let all = [Some(line.total), line.driver, line.overhead].into_iter().flatten();
        let mut all = all.map(|judged| judged.verdict);
        line.verdict = all.find(|verdict| verdict.differs()).unwrap_or(line.total.verdict);
    }
}

/// The verdict if its p-values are below `doubt`, uncorrected and corrected for the machine, and it differs by at
/// `least` so many seconds.
fn by_itself(judged: &Judged, as_is: Option<f64>, doubt: f64, least: f64) -> Verdict {
    let verdict_of = |p: f64, shift: f64| match p < doubt && shift.abs() > least {
        true => Verdict::of(shift),
        false => Verdict::Same,
    };
    let as_is = as_is.map_or(Verdict::TooFew, |p| verdict_of(p, judged.shift));
    let evened = judged.p_holm.zip(judged.shift_evened).map_or(as_is, |(p, shift)| verdict_of(p, shift));
    if as_is.differs() && evened != as_is { Verdict::Machine } else { as_is }
}

/// The verdict relative to the other phases, if it differs from them.
fn relative(judged: &Judged, doubt: f64, least: f64) -> Option<Verdict> {
    let RelativeChange { ratio, p_holm, .. } = judged.beside?;
    let shift = ratio * judged.p50[0];
    // All others may have become faster, and this one be unchanged: enough of its lag must show by itself, or
    // once the machine is taken out.
    let mut shifts = [Some(judged.shift), judged.shift_evened].into_iter().flatten();
    let differs = p_holm < doubt && shift.abs() > least && shifts.any(|seen| seen / shift >= SHOWS);
    differs.then(|| Verdict::of(shift))
}

/// Corrects p-values for multiple comparisons (Holm, 1979).
pub(super) fn holm(ps: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut known: Vec<(usize, f64)> =
        ps.iter().enumerate().filter_map(|(at, p)| Some((at, (*p)?))).collect();
    known.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    let mut corrected = vec![None; ps.len()];
    let mut greatest: f64 = 0.0;
    for (rank, (at, p)) in known.iter().enumerate() {
        greatest = greatest.max(p * (known.len() - rank) as f64).min(1.0);
        corrected[*at] = Some(greatest);
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_corrects_the_smallest_p_value_most() {
        // Worked by hand: 0.01 × 3, 0.02 × 2, and not less than the one before.
        assert_eq!(
            holm(&[Some(0.02), None, Some(0.01), Some(0.03)]),
            [Some(0.04), None, Some(0.03), Some(0.04)]
        );
        assert_eq!(holm(&[Some(0.6), Some(0.7)]), [Some(1.0), Some(1.0)]);
        assert_eq!(holm(&[]), []);
    }
}
