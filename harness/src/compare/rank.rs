//! What the ranks of two groups of samples say: how likely a sample of one is above one of the other
//! (Mann-Whitney), and by how much they are shifted (Hodges-Lehmann).

/// How often bisection halves: far below what a clock tells apart.
const HALVINGS: u32 = 48;

/// How many of all pairs have `y - x > shift`; a tie counts half. Both are sorted.
pub(super) fn above(xs: &[f64], ys: &[f64], shift: f64) -> f64 {
    let (mut below, mut up_to, mut pairs) = (0, 0, 0.0);
    for y in ys {
        while below < xs.len() && xs[below] + shift < *y {
            below += 1;
        }
        up_to = up_to.max(below);
        while up_to < xs.len() && xs[up_to] + shift <= *y {
            up_to += 1;
        }
        pairs += (below + up_to) as f64 / 2.0;
    }
    pairs
}

/// The difference `y - x` that this share of all pairs does not exceed. Both are sorted and not empty; shares
/// below 0 and above 1 are the least and the greatest difference.
pub(super) fn difference(xs: &[f64], ys: &[f64], share: f64) -> f64 {
    let (mut low, mut high) = (ys[0] - xs[xs.len() - 1], ys[ys.len() - 1] - xs[0]);
    if share <= 0.0 || share >= 1.0 {
        return if share <= 0.0 { low } else { high };
    }
    let wanted = (1.0 - share) * (xs.len() * ys.len()) as f64;
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2.0;
        if above(xs, ys, middle) > wanted {
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

    use super::*;

    fn sorted(mut values: Vec<f64>) -> Vec<f64> {
        values.sort_by(f64::total_cmp);
        values
    }

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
    }

    #[test]
    fn quantiles_lie_between_samples() {
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|share| quantile(&values, share)), [1.0, 3.0, 5.0, 8.0]);
    }
}
