//! Rank statistics of two groups of samples: the probability that a sample of one is above one of the other
//! (Mann-Whitney), and their shift (Hodges-Lehmann); and the same with more weight on the fast samples,
//! since samples that wait for something else carry little information about an added delay.

/// The number of bisection steps: far below clock resolution.
const HALVINGS: u32 = 36;

/// How many of all pairs have `y - x > shift`; a tie counts half. Both are sorted.
pub(super) fn above(xs: &[f64], ys: &[f64], shift: f64) -> f64 {
    let mut among = Place::default();
    ys.iter().map(|y| among.of(*y, xs, shift)).sum()
}

/// The difference `y - x` that this share of all pairs does not exceed. Both are sorted and not empty; shares
/// below 0 and above 1 are the least and the greatest difference.
pub(super) fn difference(xs: &[f64], ys: &[f64], share: f64) -> f64 {
    let (low, high) = (ys[0] - xs[xs.len() - 1], ys[ys.len() - 1] - xs[0]);
    if share <= 0.0 || share >= 1.0 {
        return if share <= 0.0 { low } else { high };
    }
    let wanted = (1.0 - share) * (xs.len() * ys.len()) as f64;
    bisect(low, high, |shift| above(xs, ys, shift) > wanted)
}

/// How far `ys` are behind `xs`, had each of these taken `shift` longer: the difference of their mean scores, which
/// falls as `shift` grows. Both are sorted and not empty.
pub(super) fn behind(xs: &[f64], ys: &[f64], shift: f64) -> f64 {
    let mean = |values: &[f64], own| score(values, own, xs, ys, shift) / values.len() as f64;
    mean(ys, 0.0) - mean(xs, shift)
}

/// The `shift` at which `ys` are so far behind. Both are sorted and not empty.
pub(super) fn shift_of(xs: &[f64], ys: &[f64], so_far: f64) -> f64 {
    let (low, high) = (ys[0] - xs[xs.len() - 1], ys[ys.len() - 1] - xs[0]);
    bisect(low, high, |shift| behind(xs, ys, shift) > so_far)
}

/// The scores of some samples together, each `own` longer, among `xs`, each `shift` longer, and `ys`: of a rank, 0 the
/// quickest and 1 the slowest, it is -(1 - rank)². All are sorted.
pub(super) fn score(values: &[f64], own: f64, xs: &[f64], ys: &[f64], shift: f64) -> f64 {
    let count = (xs.len() + ys.len()) as f64;
    let (mut among_xs, mut among_ys) = (Place::default(), Place::default());
    let score = |value: &f64| {
        let value = value + own;
        let rank = (among_xs.of(value, xs, shift) + among_ys.of(value, ys, 0.0)) / count;
        -(1.0 - rank).powi(2)
    };
    values.iter().map(score).sum()
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

/// The sample that this share of the sorted samples does not exceed; between two where none is there.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
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
            prop_assert!((difference(&xs, &ys, 0.5) - shift).abs() < 1e-9);
        }

        #[test]
        fn scores_are_those_of_ranks_by_hand(
            xs in prop::collection::vec(0_u8..20, 1..12),
            ys in prop::collection::vec(0_u8..20, 1..12),
            shift in -5_i8..5,
        ) {
            let [xs, ys] = [xs, ys].map(|values| sorted(values.into_iter().map(f64::from).collect()));
            let shift = f64::from(shift);
            let all: Vec<f64> = xs.iter().map(|x| x + shift).chain(ys.iter().copied()).collect();
            let one = |value: f64| {
                let place = |other: &f64| if *other < value { 1.0 } else if *other == value { 0.5 } else { 0.0 };
                -(1.0 - all.iter().map(place).sum::<f64>() / all.len() as f64).powi(2)
            };
            let mean = |values: &[f64]| values.iter().map(|&value| one(value)).sum::<f64>() / values.len() as f64;
            let by_hand = mean(&all[xs.len()..]) - mean(&all[..xs.len()]);
            prop_assert!((behind(&xs, &ys, shift) - by_hand).abs() < 1e-12);
        }

        #[test]
        fn none_is_behind_once_the_shift_is_taken_out(
            xs in prop::collection::vec(0.0_f64..1.0, 2..30),
            shift in -2.0_f64..2.0,
        ) {
            let xs = sorted(xs);
            let ys: Vec<f64> = xs.iter().map(|x| x + shift).collect();
            prop_assert!((shift_of(&xs, &ys, 0.0) - shift).abs() < 1e-9);
        }
    }

    /// Of lognormal times, some of which are spent waiting for something else: how far chance moves either shift.
    #[test]
    fn scores_are_surer_of_a_shift_where_samples_wait() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut side = |waits: f64| {
            let sample = |_| {
                let normal = (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
                let wait = if rng.f64() < waits { -3.0 * (1.0 - rng.f64()).ln() } else { 0.0 };
                ((0.2 * normal).exp() + wait).ln()
            };
            sorted((0..200).map(sample).collect())
        };
        for (waits, surer) in [(0.4, 0.75..0.95), (0.0, 0.9..1.15)] {
            let (mut by_scores, mut by_pairs) = (0.0, 0.0);
            for _ in 0..200 {
                let (xs, ys) = (side(waits), side(waits));
                by_scores += shift_of(&xs, &ys, 0.0).powi(2);
                by_pairs += difference(&xs, &ys, 0.5).powi(2);
            }
            let ratio = (by_scores / by_pairs).sqrt();
            assert!(surer.contains(&ratio), "{waits}: {ratio}");
        }
    }

    #[test]
    fn quantiles_lie_between_samples() {
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|share| quantile(&values, share)), [1.0, 3.0, 5.0, 8.0]);
    }
}
