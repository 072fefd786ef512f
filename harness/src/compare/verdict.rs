//! From likelihoods to words.

use serde::Serialize;

use super::{Options, phase::PhaseLine};

/// What the second side is. Of several, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There are too few samples to say anything.
    TooFew,
    /// Nothing that chance would not do, or too little to matter.
    Same,
    /// It takes less time, or fails less.
    Better,
    /// It takes more time, or fails more.
    Worse,
}

impl Verdict {
    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::TooFew => "too few",
            Self::Same => "no difference",
            Self::Better => "better",
            Self::Worse => "worse",
        }
    }

    /// Of something of which more is worse.
    pub(super) fn of(difference: f64) -> Self {
        match difference {
            more if more > 0.0 => Self::Worse,
            less if less < 0.0 => Self::Better,
            _ => Self::Same,
        }
    }
}

/// Gives each phase its verdict.
pub(super) fn judge(phases: &mut [PhaseLine], options: Options) {
    let corrected = holm(&phases.iter().map(|line| line.p).collect::<Vec<_>>());
    for (line, p) in phases.iter_mut().zip(corrected) {
        line.p_holm = p;
        let Some(p) = p else { continue };
        let matters = line.total.shift.abs() > options.margin * line.total.p50[0];
        let differs = p < 1.0 - options.level && matters;
        line.verdict = if differs { Verdict::of(line.total.shift) } else { Verdict::Same };
    }
}

/// Makes likelihoods of single questions into those of all of them together (Holm, 1979).
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
    fn holm_asks_more_of_the_least_likely() {
        // Worked by hand: 0.01 × 3, 0.02 × 2, and not less than the one before.
        assert_eq!(
            holm(&[Some(0.02), None, Some(0.01), Some(0.03)]),
            [Some(0.04), None, Some(0.03), Some(0.04)]
        );
        assert_eq!(holm(&[Some(0.6), Some(0.7)]), [Some(1.0), Some(1.0)]);
        assert_eq!(holm(&[]), []);
    }
}
