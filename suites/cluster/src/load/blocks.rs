//! A load in blocks: it pauses between them, so that another load can run in turn with it. Then both of them see the
//! same machine, the speed of which varies from one minute to the next.

use tokio::sync::mpsc;

/// How many blocks a side must have at least for a comparison to be significant; see `compare` of the report.
const FEWEST_BLOCKS: usize = 12;
/// The preferred number of blocks of a side.
const BLOCKS: usize = 40;
/// The preferred minimum number of volumes of a block: shorter ones consist of transitions from the other side.
const FEWEST_VOLUMES: usize = 5;

/// The blocks of a load, which its caller starts one by one.
#[derive(Debug)]
pub struct Blocks {
    /// The number of volumes of the next block; closed after the last one.
    pub requests: mpsc::Receiver<usize>,
    /// Called when the load is ready for its first block, and after each.
    pub ready: fn(),
}

/// Too few volumes for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{volumes} volumes are not enough for {FEWEST_BLOCKS} blocks of {block}: pass --volumes {} or more, or a smaller \
     --concurrency",
    .block * FEWEST_BLOCKS
)]
pub struct TooFewVolumes {
    volumes: usize,
    block: usize,
}

/// The number of volumes of each block of a load, given the number of concurrent volumes, and of volumes that are
/// created together. The last block may be smaller. A block has at least as many volumes as are concurrent.
///
/// # Errors
/// The blocks would be too few for a comparison.
pub fn block_sizes(volumes: usize, concurrency: usize, together: usize) -> Result<Vec<usize>, TooFewVolumes> {
    let block = (volumes / BLOCKS).max(FEWEST_VOLUMES).max(concurrency).next_multiple_of(together.max(1));
    let whole = std::iter::repeat_n(block, volumes / block);
    let rest = volumes % block;
    let blocks: Vec<usize> = whole.chain((rest > 0).then_some(rest)).collect();
    if blocks.len() < FEWEST_BLOCKS { Err(TooFewVolumes { volumes, block }) } else { Ok(blocks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_short_but_not_shorter_than_the_concurrency() {
        let table = [
            ("the default", (200, 1, 1), Ok(vec![5; 40])),
            ("many volumes", (1000, 2, 1), Ok(vec![25; 40])),
            ("few volumes", (60, 1, 1), Ok(vec![5; 12])),
            ("a rest", (58, 1, 1), Ok([vec![5; 11], vec![3]].concat())),
            ("many concurrent volumes", (400, 32, 1), Ok([vec![32; 12], vec![16]].concat())),
            ("pods with several volumes", (200, 1, 4), Ok(vec![8; 25])),
            ("too few volumes", (50, 1, 1), Err(TooFewVolumes { volumes: 50, block: 5 })),
            ("too many concurrent volumes", (200, 32, 1), Err(TooFewVolumes { volumes: 200, block: 32 })),
        ];
        for (what, (volumes, concurrency, together), expected) in table {
            assert_eq!(block_sizes(volumes, concurrency, together), expected, "{what}");
        }
        let error = TooFewVolumes { volumes: 200, block: 32 }.to_string();
        assert!(error.contains("pass --volumes 384 or more"), "{error}");
    }
}
