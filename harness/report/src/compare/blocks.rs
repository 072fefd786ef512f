//! Blocks of two loads that ran in turn (`load --against`): the samples of each block, and which blocks are adjacent.

use super::read::{Sample, Side};

/// Whether each side is one run, and their blocks alternate in time. Which of two adjacent blocks is first may differ
/// from one pair to the next. The last pair of an interrupted load may be incomplete.
pub(super) fn alternate(sides: [&Side; 2]) -> bool {
    let [[a], [b]] = sides.map(|side| side.runs.as_slice()) else { return false };
    let pairs: Vec<[u64; 2]> = a.blocks.iter().zip(&b.blocks).map(|(a, b)| [*a, *b]).collect();
    let in_turn = |adjacent: &[[u64; 2]]| {
        let ([a, b], [next_a, next_b]) = (adjacent[0], adjacent[1]);
        a.max(b) < next_a.min(next_b)
    };
    pairs.len() > 1 && a.blocks.len().abs_diff(b.blocks.len()) <= 1 && pairs.windows(2).all(in_turn)
}

/// The samples of each block, all of which are in the order of time. A block continues until the next one starts.
pub(super) fn of<'a>(samples: &'a [Sample], starts: &[u64]) -> Vec<&'a [Sample]> {
    let at = |start: &u64| samples.partition_point(|sample| sample.end_ns < *start);
    let end = |nth: usize| starts.get(nth + 1).map_or(samples.len(), at);
    starts.iter().enumerate().map(|(nth, start)| &samples[at(start)..end(nth)]).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::read::Run, *};

    #[test]
    fn blocks_alternate_if_each_pair_ends_before_the_next() {
        let side = |blocks: &[u64]| Side {
            runs: vec![Run { blocks: blocks.to_vec(), ..Run::default() }],
            ..Side::default()
        };
        let table: [(&str, &[u64], &[u64], bool); 6] = [
            ("in turn", &[1, 4, 5], &[2, 3, 6], true),
            ("the last pair is incomplete", &[1, 4, 5], &[2, 3], true),
            ("one run after the other", &[1, 2, 3], &[4, 5, 6], false),
            ("a side has other blocks", &[1, 4, 5, 8], &[2, 3], false),
            ("no blocks", &[], &[], false),
            ("one pair", &[1], &[2], false),
        ];
        for (what, a, b, expected) in table {
            assert_eq!(alternate([&side(a), &side(b)]), expected, "{what}");
        }
        let two = Side { runs: vec![Run::default(), Run::default()], ..Side::default() };
        assert!(!alternate([&two, &side(&[1, 4])]));
    }

    #[test]
    fn samples_belong_to_the_block_in_which_they_ended() {
        let sample = |end_ns| Sample { end_ns, total: 0.0, driver: 0.0, overhead: 0.0 };
        let samples = [5, 10, 19, 20, 31].map(sample);
        let ends = |starts: &[u64]| -> Vec<Vec<u64>> {
            let ends = |block: &[Sample]| block.iter().map(|sample| sample.end_ns).collect();
            of(&samples, starts).into_iter().map(ends).collect()
        };
        assert_eq!(ends(&[10, 20, 25, 30]), [vec![10, 19], vec![20], vec![], vec![31]]);
        assert!(ends(&[]).is_empty());
    }
}
