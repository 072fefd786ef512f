//! The blocks that a stream of metadata returns, and checks of them.

use anyhow::{Context, Result, ensure};
use claimcheck_csi::v1::{
    BlockMetadata, BlockMetadataType, GetMetadataAllocatedResponse, GetMetadataDeltaResponse,
};

use crate::fixture::{APART, PLACE};

/// A message of either call.
pub(super) trait Message {
    fn kind(&self) -> BlockMetadataType;
    fn capacity(&self) -> i64;
    fn blocks(&self) -> &[BlockMetadata];
}

macro_rules! message {
    ($message:ident) => {
        impl Message for $message {
            fn kind(&self) -> BlockMetadataType {
                self.block_metadata_type()
            }

            fn capacity(&self) -> i64 {
                self.volume_capacity_bytes
            }

            fn blocks(&self) -> &[BlockMetadata] {
                &self.block_metadata
            }
        }
    };
}

message!(GetMetadataAllocatedResponse);
message!(GetMetadataDeltaResponse);

/// The blocks of a stream.
#[derive(Debug)]
pub(super) struct Blocks {
    kind: BlockMetadataType,
    pub(super) capacity: i64,
    pub(super) all: Vec<BlockMetadata>,
}

impl Blocks {
    /// Validates what is equal in all messages of a stream. A volume's `capacity` of 0 is unknown.
    pub(super) fn of<M: Message>(messages: &[M], capacity: i64) -> Result<Self> {
        let Some(first) = messages.first() else {
            return Ok(Self { kind: BlockMetadataType::VariableLength, capacity, all: Vec::new() });
        };
        let (kind, reported) = (first.kind(), first.capacity());
        ensure!(
            capacity == 0 || reported == capacity,
            "the volume has {capacity} bytes, but its snapshot's metadata has volume_capacity_bytes {reported}"
        );
        ensure!(kind != BlockMetadataType::Unknown, "a message has no block_metadata_type");
        for message in messages {
            ensure!(message.kind() == kind, "the block_metadata_type changes within a stream");
            ensure!(
                message.capacity() == reported,
                "volume_capacity_bytes changes within a stream: {reported}, then {}",
                message.capacity()
            );
        }
        let all = messages.iter().flat_map(Message::blocks).copied().collect();
        Ok(Self { kind, capacity: reported, all })
    }

    /// Checks that blocks follow each other without overlap, and begin within the volume. Blocks of a fixed length may
    /// exceed the end of a volume that is no multiple of them.
    pub(super) fn ordered(&self) -> Result<()> {
        let (mut last, capacity) = (0, self.capacity);
        for block in &self.all {
            let (start, size) = (block.byte_offset, block.size_bytes);
            ensure!(size > 0, "a block at {start} has {size} bytes");
            ensure!(start >= last, "a block at {start} follows a block that ends at {last}");
            last = end(block)?;
            let within = match self.kind {
                BlockMetadataType::FixedLength => start < capacity,
                _ => last <= capacity,
            };
            ensure!(within, "the volume has {capacity} bytes, but a block at {start} ends at {last}");
        }
        Ok(())
    }

    /// Checks that no block ends at or before an offset. A block may begin before it: the driver chooses the size of
    /// blocks.
    pub(super) fn none_before(&self, offset: i64) -> Result<()> {
        for block in &self.all {
            let (start, end) = (block.byte_offset, end(block)?);
            ensure!(
                offset < end,
                "from the starting_offset {offset} on, a block at {start} is returned, which ends at {end}"
            );
        }
        Ok(())
    }

    /// Checks that all blocks of a stream of fixed length have one size.
    pub(super) fn fixed(&self) -> Result<()> {
        let (BlockMetadataType::FixedLength, Some(first)) = (self.kind, self.all.first()) else {
            return Ok(());
        };
        let size = first.size_bytes;
        for block in &self.all {
            ensure!(
                block.size_bytes == size,
                "the block_metadata_type is FIXED_LENGTH, but a block has {size} bytes, and one at {} has {}",
                block.byte_offset,
                block.size_bytes
            );
        }
        Ok(())
    }

    /// Checks that blocks cover these places completely; `what` describes the stream.
    pub(super) fn must_cover(&self, places: &[u64], what: &str) -> Result<()> {
        for &place in places {
            ensure!(
                self.covers(place)?,
                "{what}: data was written at {place} MiB, but is not among the {} blocks of the stream",
                self.all.len()
            );
        }
        Ok(())
    }

    /// Whether blocks cover a place completely.
    pub(super) fn covers(&self, place: u64) -> Result<bool> {
        let (mut at, last) = range(place);
        for block in &self.all {
            let end = end(block)?;
            if block.byte_offset <= at && at < end {
                at = end;
            }
        }
        Ok(at >= last)
    }

    /// Whether any block overlaps a place, without one of the other places: places may share a block of a driver with
    /// large blocks.
    pub(super) fn touches_alone(&self, place: u64, others: &[u64]) -> Result<bool> {
        for block in &self.all {
            if overlaps(block, place)? {
                let mut shared = false;
                for &other in others {
                    shared |= overlaps(block, other)?;
                }
                if !shared {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Checks that no message has more blocks than requested.
pub(super) fn at_most_one<M: Message>(call: &str, messages: &[M]) -> Result<()> {
    let most = messages.iter().map(|message| message.blocks().len()).max().unwrap_or_default();
    ensure!(most <= 1, "{call} with max_results 1 returns a message of {most} blocks");
    Ok(())
}

/// The end of a block. Beyond 8 EiB there is none.
fn end(block: &BlockMetadata) -> Result<i64> {
    let BlockMetadata { byte_offset, size_bytes } = block;
    let end = byte_offset.checked_add(*size_bytes);
    end.with_context(|| format!("a block at {byte_offset} of {size_bytes} bytes ends beyond 8 EiB"))
}

/// The bytes of a place.
fn range(place: u64) -> (i64, i64) {
    let start = (place * APART) as i64;
    (start, start + PLACE as i64)
}

fn overlaps(block: &BlockMetadata, place: u64) -> Result<bool> {
    let (start, last) = range(place);
    Ok(block.byte_offset < last && start < end(block)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    fn message(kind: BlockMetadataType, blocks: &[(i64, i64)]) -> GetMetadataAllocatedResponse {
        let block = |&(byte_offset, size_bytes): &(i64, i64)| BlockMetadata { byte_offset, size_bytes };
        GetMetadataAllocatedResponse {
            block_metadata_type: kind.into(),
            volume_capacity_bytes: 64 * MIB,
            block_metadata: blocks.iter().map(block).collect(),
        }
    }

    fn fixed(blocks: &[(i64, i64)]) -> Blocks {
        Blocks::of(&[message(BlockMetadataType::FixedLength, blocks)], 64 * MIB).unwrap()
    }

    fn variable(blocks: &[(i64, i64)]) -> Blocks {
        Blocks::of(&[message(BlockMetadataType::VariableLength, blocks)], 64 * MIB).unwrap()
    }

    #[test]
    fn the_size_of_blocks_is_the_drivers_choice() {
        // Data at 1 and 5 MiB, from 3 MiB on, in blocks of 4 MiB: the first block begins before the offset.
        let blocks = fixed(&[(0, 4 * MIB), (4 * MIB, 4 * MIB)]);
        blocks.none_before(3 * MIB).unwrap();
        assert!(blocks.covers(5).unwrap());
        // Changes at 5 and 7 MiB, in blocks of 8 MiB: the unchanged data at 1 MiB shares their block.
        let blocks = fixed(&[(0, 8 * MIB)]);
        assert!(!blocks.touches_alone(1, &[5, 7]).unwrap());
        blocks.ordered().unwrap();
        // The capacity is no multiple of the size of blocks.
        fixed(&[(60 * MIB, 5 * MIB)]).ordered().unwrap();
    }

    #[test]
    fn blocks_before_the_offset_and_unchanged_blocks_are_noticed() {
        let blocks = fixed(&[(0, MIB), (5 * MIB, MIB)]);
        assert!(blocks.none_before(MIB).unwrap_err().to_string().contains("a block at 0"));
        blocks.none_before(MIB - 1).unwrap();
        assert!(variable(&[(MIB, MIB), (5 * MIB, MIB)]).touches_alone(1, &[5, 7]).unwrap());
    }

    #[test]
    fn order_bounds_and_sizes_are_checked() {
        for (blocks, words) in [
            (variable(&[(MIB, MIB), (0, MIB)]), "follows a block"),
            (variable(&[(0, 2 * MIB), (MIB, MIB)]), "follows a block"),
            (variable(&[(0, 0)]), "has 0 bytes"),
            (variable(&[(63 * MIB, 2 * MIB)]), "the volume has 67108864 bytes"),
            (fixed(&[(64 * MIB, MIB)]), "the volume has 67108864 bytes"),
            // A sum that overflows is not negative, and thus not within the volume.
            (variable(&[(i64::MAX - 1, 4096)]), "beyond 8 EiB"),
        ] {
            let error = blocks.ordered().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let overflowing = variable(&[(i64::MAX - 1, 4096)]);
        overflowing.covers(1).unwrap_err();
        overflowing.none_before(0).unwrap_err();
        overflowing.touches_alone(1, &[]).unwrap();
        fixed(&[(0, MIB), (MIB, 2 * MIB)]).fixed().unwrap_err();
        fixed(&[(0, MIB), (MIB, MIB)]).fixed().unwrap();
        variable(&[(0, MIB), (MIB, 2 * MIB)]).fixed().unwrap();
    }

    #[test]
    fn messages_of_a_stream_agree() {
        let one = message(BlockMetadataType::FixedLength, &[(0, MIB)]);
        let mut other = one.clone();
        // The capacity of the volume may be unknown.
        Blocks::of(&[one.clone(), other.clone()], 0).unwrap();
        Blocks::of(&[one.clone(), other.clone()], 65 * MIB).unwrap_err();
        other.volume_capacity_bytes = MIB;
        Blocks::of(&[one.clone(), other.clone()], 0).unwrap_err();
        other = message(BlockMetadataType::VariableLength, &[(MIB, MIB)]);
        Blocks::of(&[one, other], 0).unwrap_err();
        Blocks::of(&[message(BlockMetadataType::Unknown, &[])], 0).unwrap_err();
        assert!(Blocks::of::<GetMetadataAllocatedResponse>(&[], 0).unwrap().all.is_empty());
    }
}
