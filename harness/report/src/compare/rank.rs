//! Rank statistics of two groups of samples: the number of pairs in which a sample of one is above one of the other
//! (Mann-Whitney), and their shift (Hodges-Lehmann).

/// The number of bisection steps: far below clock resolution.
const HALVINGS: u32 = 36;

/// How many of all pairs have `y - x > shift`; a tie counts half. Both are sorted.
pub(super) fn above(xs: &[f64], ys: &[f64], shift: f64) -> f64 {
    let mut among = Place::default();
    ys.iter().map(|y| among.of(*y, xs, shift)).sum()
}

/// Samples of both sides that are compared only with each other: all of them, or those of two adjacent blocks. Sorted
/// and not empty.
pub(super) type Stratum = [Vec<f64>; 2];

/// The difference `y - x` that this share of all pairs within a stratum does not exceed; shares below 0 and above 1 are
/// the least and the greatest difference. There is at least one stratum.
pub(super) fn difference(strata: &[Stratum], share: f64) -> f64 {
    let least = strata.iter().map(|[xs, ys]| ys[0] - xs[xs.len() - 1]);
    let greatest = strata.iter().map(|[xs, ys]| ys[ys.len() - 1] - xs[0]);
    let (low, high) = (least.fold(f64::INFINITY, f64::min), greatest.fold(f64::NEG_INFINITY, f64::max));
    if share <= 0.0 || share >= 1.0 {
        return if share <= 0.0 { low } else { high };
    }
    let pairs: usize = strata.iter().map(|[xs, ys]| xs.len() * ys.len()).sum();
    let expected = (1.0 - share) * pairs as f64;
    bisect(low, high, |shift| strata.iter().map(|[xs, ys]| above(xs, ys, shift)).sum::<f64>() > expected)
}

/// Where values stand among sorted ones, each later than the one before.
#[derive(Default)]
struct Place {
    below: usize,
    up_to: usize,
}

impl Place {
    /// How many are below; one that is as large counts half.
    fn of(&mut self, value: f64, among: &[f64], shift: f64) -> f64 {
        while self.below < among.len() && among[self.below] + shift < value {
            self.below += 1;
        }
        self.up_to = self.up_to.max(self.below);
        while self.up_to < among.len() && among[self.up_to] + shift <= value {
            self.up_to += 1;
        }
        (self.below + self.up_to) as f64 / 2.0
    }
}

/// Where what holds from `low` on ceases to.
fn bisect(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2.0;
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low + (high - low) / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::phase::sorted, *};

    proptest! {
        #[test]
        fn pairs_are_counted_as_by_hand(
            xs in prop::collection::vec(0_u8..20, 1..12),
            ys in prop::collection::vec(0_u8..20, 1..12),
            shift in -5_i8..5,
        ) {
            let [xs, ys] = [xs, ys].map(|values| sorted(values.into_iter().map(f64::from).collect()));
            let shift = f64::from(shift);
            let one = |x: &f64, y: &f64| {
                let difference = y - x - shift;
                if difference > 0.0 { 1.0 } else if difference == 0.0 { 0.5 } else { 0.0 }
            };
            let by_hand: f64 = xs.iter().flat_map(|x| ys.iter().map(move |y| one(x, y))).sum();
            prop_assert_eq!(above(&xs, &ys, shift), by_hand);
        }

        #[test]
        fn the_middle_difference_is_a_shift(
            xs in prop::collection::vec(0.0_f64..1.0, 1..30),
            shift in -2.0_f64..2.0,
        ) {
            let xs = sorted(xs);
            let ys: Vec<f64> = xs.iter().map(|x| x + shift).collect();
            prop_assert!((difference(&[[xs, ys]], 0.5) - shift).abs() < 1e-9);
        }
    }

    #[test]
    fn samples_of_different_strata_are_not_compared() {
        // The second stratum is a hundred later on both sides; in both, the second side is one later.
        let strata = [[vec![1.0, 2.0], vec![2.0, 3.0]], [vec![101.0, 102.0], vec![102.0, 103.0]]];
        assert!((difference(&strata, 0.5) - 1.0).abs() < 1e-6, "{}", difference(&strata, 0.5));
        assert_eq!([0.0, 1.0].map(|share| difference(&strata, share)), [0.0, 2.0]);
    }
}
