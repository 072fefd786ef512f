//! From p-values to verdicts.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Options, phase::PhaseLine};

/// The verdict on the second side. Of several, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There are too few samples for a verdict.
    TooFew,
    /// Not significant, or too small to matter.
    Same,
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

/// Gives each phase its verdict, and each of its parts.
pub(super) fn judge(phases: &mut [PhaseLine], options: Options) {
    let all = |line: &PhaseLine| [Some(line.total), line.driver, line.overhead].into_iter().flatten();
    let ps: Vec<Option<f64>> = phases.iter().flat_map(all).map(|judged| judged.p).collect();
    let mut corrected = holm(&ps).into_iter();
    for line in phases {
        let least = options.margin * line.total.p50[0];
        for judged in std::iter::once(&mut line.total).chain(&mut line.driver).chain(&mut line.overhead) {
            judged.p_holm = corrected.next().expect("one for each that is judged");
            judged.verdict = match judged.p_holm {
                None => Verdict::TooFew,
                Some(p) if p < 1.0 - options.level && judged.shift.abs() > least => Verdict::of(judged.shift),
                Some(_) => Verdict::Same,
            };
        }
        let mut verdicts = all(line).map(|judged| judged.verdict);
        line.verdict = verdicts.find(|verdict| verdict.differs()).unwrap_or(line.total.verdict);
    }
}

/// Corrects p-values for multiple comparisons (Holm, 1979).
fn holm(ps: &[Option<f64>]) -> Vec<Option<f64>> {
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
