//! Snapshot metadata: the allocated blocks of a snapshot, and the changed blocks between two snapshots.

use anyhow::{Context, Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{
        BlockMetadata, BlockMetadataType, GetMetadataAllocatedRequest, GetMetadataAllocatedResponse,
        GetMetadataDeltaRequest, GetMetadataDeltaResponse,
    },
};

use super::{CREATE, METADATA, MOUNTS, SNAPSHOT, case};
use crate::{
    case::{Access, Row},
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{APART, Fixture, PLACE},
    need::Need,
    spec::{self, Sentence},
    verdict::Breaks,
};

const ALLOCATED: &str = "GetMetadataAllocated";
const DELTA: &str = "GetMetadataDelta";
const NEEDS: &[Need] = &[METADATA, SNAPSHOT, CREATE, Need::Files, MOUNTS];

/// A row about snapshots of block volumes, where block offsets are known.
const fn row(name: &'static str, rule: &'static Sentence, run: crate::case::Run) -> Row {
    Row::new(name, rule, run).needs(NEEDS).only(Access::Block)
}

pub(super) const ROWS: &[Row] = &[
    row("GetMetadataAllocated returns the written blocks", spec::BLOCKS_ALL, case!(allocated)).also(&[
        spec::ALLOCATED,
        spec::ALLOCATED_TYPE,
        spec::ALLOCATED_CAPACITY,
    ]),
    row(
        "GetMetadataAllocated returns blocks in order and within the volume",
        spec::ALLOCATED_ORDER,
        case!(in_order),
    )
    .also(&[spec::BLOCK_SIZE]),
    row(
        "GetMetadataAllocated with a starting_offset returns only the blocks from there on",
        spec::ALLOCATED_FROM,
        case!(from_offset),
    )
    .also(&[spec::BLOCKS_FROM, spec::ALLOCATED_RESPECTS]),
    row(
        "GetMetadataAllocated returns at most max_results blocks per message",
        spec::ALLOCATED_MAX,
        case!(max_results),
    ),
    row(
        "GetMetadataAllocated with max_results returns the blocks in order",
        spec::ALLOCATED_ACROSS,
        case!(max_results_in_order),
    ),
    row(
        "GetMetadataAllocated with FIXED_LENGTH returns blocks of one size",
        spec::ALLOCATED_FIXED,
        case!(fixed),
    ),
    row("GetMetadataAllocated of an empty volume returns few blocks", spec::ALLOCATED_ONLY, case!(empty)),
    row(
        "GetMetadataAllocated with a starting_offset beyond the volume returns OutOfRange",
        spec::ALLOCATED_OFFSET,
        case!(beyond),
    ),
    row(
        "GetMetadataAllocated with a negative starting_offset returns OutOfRange",
        spec::ALLOCATED_OFFSET,
        case!(negative),
    ),
    row(
        "GetMetadataDelta returns the blocks written between two snapshots",
        spec::BLOCKS_ALL,
        case!(changed),
    )
    .also(&[spec::DELTA, spec::DELTA_TYPE, spec::DELTA_CAPACITY, spec::DELTA_ORDER, spec::BLOCK_SIZE]),
    row(
        "GetMetadataDelta between a snapshot and itself returns no blocks",
        spec::DELTA_ONLY,
        case!(unchanged),
    ),
    row(
        "GetMetadataDelta with a starting_offset returns only the blocks from there on",
        spec::DELTA_FROM,
        case!(delta_from_offset),
    )
    .also(&[spec::BLOCKS_FROM, spec::DELTA_RESPECTS]),
    row(
        "GetMetadataDelta returns at most max_results blocks per message",
        spec::DELTA_MAX,
        case!(delta_max_results),
    ),
    row(
        "GetMetadataDelta with max_results returns the blocks in order",
        spec::DELTA_ACROSS,
        case!(delta_max_results_in_order),
    ),
    row(
        "GetMetadataDelta with FIXED_LENGTH returns blocks of one size",
        spec::DELTA_FIXED,
        case!(delta_fixed),
    ),
    row(
        "GetMetadataDelta with a starting_offset beyond the volume returns OutOfRange",
        spec::DELTA_OFFSET,
        case!(delta_beyond),
    ),
    row(
        "GetMetadataDelta with a negative starting_offset returns OutOfRange",
        spec::DELTA_OFFSET,
        case!(delta_negative),
    ),
    Row::new(
        "GetMetadataAllocated without a snapshot_id returns InvalidArgument",
        spec::ALLOCATED_INVALID,
        case!(no_id),
    )
    .needs(&[METADATA]),
    Row::new(
        "GetMetadataAllocated of a nonexistent snapshot returns NotFound",
        spec::ALLOCATED_GONE,
        case!(unknown),
    )
    .needs(&[METADATA]),
    Row::new(
        "GetMetadataDelta without snapshot ids returns InvalidArgument",
        spec::DELTA_INVALID,
        case!(delta_no_id),
    )
    .needs(&[METADATA]),
    Row::new(
        "GetMetadataDelta from a nonexistent base snapshot returns NotFound",
        spec::DELTA_GONE,
        case!(delta_unknown),
    )
    .needs(&[METADATA, SNAPSHOT, CREATE]),
];

fn allocated_request(f: &Fixture, snapshot_id: &str) -> GetMetadataAllocatedRequest {
    let secrets = f.config().secrets.snapshot_metadata.clone();
    GetMetadataAllocatedRequest { snapshot_id: snapshot_id.to_owned(), secrets, ..Default::default() }
}

fn delta_request(f: &Fixture, base: &str, target: &str) -> GetMetadataDeltaRequest {
    GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        secrets: f.config().secrets.snapshot_metadata.clone(),
        ..Default::default()
    }
}

/// A message of either call.
trait Message {
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
struct Blocks {
    kind: BlockMetadataType,
    capacity: i64,
    all: Vec<BlockMetadata>,
}

impl Blocks {
    /// Validates what is equal in all messages of a stream. A volume's `capacity` of 0 is unknown.
    fn of<M: Message>(messages: &[M], capacity: i64) -> Result<Self> {
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
    fn ordered(&self) -> Result<()> {
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
    fn none_before(&self, offset: i64) -> Result<()> {
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
    fn fixed(&self) -> Result<()> {
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

    /// Whether blocks cover a place completely.
    fn covers(&self, place: u64) -> Result<bool> {
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
    fn touches_alone(&self, place: u64, others: &[u64]) -> Result<bool> {
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

/// Creates a volume with data at these places, and its snapshot.
async fn snapshot_with(f: &Fixture, places: &[u64]) -> Result<(crate::fixture::VolumeOnNode, String)> {
    let placed = f.up().await?;
    for &place in places {
        f.write(&placed, place, "allocated").await?;
    }
    let snapshot = f.snapshot(placed.id()).await?.snapshot_id;
    Ok((placed, snapshot))
}

async fn allocated_blocks(
    f: &Fixture,
    request: GetMetadataAllocatedRequest,
    capacity: i64,
) -> Result<Blocks> {
    Blocks::of(&f.get_metadata_allocated(request).await.works(ALLOCATED)?, capacity)
}

async fn changed_blocks(f: &Fixture, request: GetMetadataDeltaRequest, capacity: i64) -> Result<Blocks> {
    Blocks::of(&f.get_metadata_delta(request).await.works(DELTA)?, capacity)
}

async fn allocated(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1, 5]).await?;
    let request = allocated_request(f, &snapshot);
    let blocks = allocated_blocks(f, request, placed.volume.capacity_bytes).await?;
    for place in [1, 5] {
        ensure!(
            blocks.covers(place)?,
            "data was written at {place} MiB, but is not among the allocated blocks"
        );
    }
    if blocks.touches_alone(9, &[1, 5])? {
        f.warn("blocks that were never written are reported as allocated");
    }
    Ok(())
}

async fn in_order(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[0, 3, 7]).await?;
    let request = allocated_request(f, &snapshot);
    allocated_blocks(f, request, placed.volume.capacity_bytes).await?.ordered()
}

async fn from_offset(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1, 5]).await?;
    let mut request = allocated_request(f, &snapshot);
    request.starting_offset = 3 * APART as i64;
    let offset = request.starting_offset;
    let blocks = allocated_blocks(f, request, placed.volume.capacity_bytes).await?;
    ensure!(blocks.covers(5)?, "data at 5 MiB is not among the allocated blocks from 3 MiB on");
    blocks.none_before(offset)
}

/// Checks that no message has more blocks than requested.
fn at_most_one<M: Message>(call: &str, messages: &[M]) -> Result<()> {
    let most = messages.iter().map(|message| message.blocks().len()).max().unwrap_or_default();
    ensure!(most <= 1, "{call} with max_results 1 returns a message of {most} blocks");
    Ok(())
}

/// The messages of one block each of a snapshot, and the capacity of its volume.
async fn in_ones(f: &Fixture) -> Result<(Vec<GetMetadataAllocatedResponse>, i64)> {
    let (placed, snapshot) = snapshot_with(f, &[1, 3, 5]).await?;
    let mut request = allocated_request(f, &snapshot);
    request.max_results = 1;
    let messages =
        f.get_metadata_allocated(request).await.works("GetMetadataAllocated with max_results 1")?;
    Ok((messages, placed.volume.capacity_bytes))
}

async fn max_results(f: &Fixture) -> Result<()> {
    at_most_one(ALLOCATED, &in_ones(f).await?.0)
}

async fn max_results_in_order(f: &Fixture) -> Result<()> {
    let (messages, capacity) = in_ones(f).await?;
    let blocks = Blocks::of(&messages, capacity)?;
    for place in [1, 3, 5] {
        ensure!(blocks.covers(place)?, "with max_results 1, the data at {place} MiB is not among the blocks");
    }
    blocks.ordered()
}

async fn fixed(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[0, 1, 2, 5]).await?;
    let request = allocated_request(f, &snapshot);
    allocated_blocks(f, request, placed.volume.capacity_bytes).await?.fixed()
}

async fn empty(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let snapshot = f.snapshot(&volume.volume_id).await?.snapshot_id;
    let blocks = allocated_blocks(f, allocated_request(f, &snapshot), volume.capacity_bytes).await?;
    let bytes = blocks.all.iter().fold(0i64, |sum, block| sum.saturating_add(block.size_bytes));
    if bytes > blocks.capacity / 2 {
        f.warn("most of an empty volume is reported as allocated");
    }
    Ok(())
}

async fn at_offset(f: &Fixture, offset: impl Fn(i64) -> i64, what: &str) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1]).await?;
    let mut request = allocated_request(f, &snapshot);
    request.starting_offset = offset(size(f, placed.volume.capacity_bytes));
    f.get_metadata_allocated(request).await.refused(what, &[Code::OutOfRange])
}

/// The size of a volume; the requested one, if its capacity is unknown.
fn size(f: &Fixture, capacity: i64) -> i64 {
    if capacity == 0 { f.config().volume_size } else { capacity }
}

async fn beyond(f: &Fixture) -> Result<()> {
    at_offset(f, |capacity| capacity + 1, "GetMetadataAllocated with a starting_offset beyond the volume")
        .await
}

async fn negative(f: &Fixture) -> Result<()> {
    at_offset(f, |_| -1, "GetMetadataAllocated with a negative starting_offset").await
}

/// Creates two snapshots of a volume, with data written at these places between them.
async fn two_snapshots(f: &Fixture, places: &[u64]) -> Result<(i64, GetMetadataDeltaRequest)> {
    let (placed, base) = snapshot_with(f, &[1, 5]).await?;
    for &place in places {
        f.write(&placed, place, "changed").await?;
    }
    let target = f.snapshot(placed.id()).await?.snapshot_id;
    Ok((placed.volume.capacity_bytes, delta_request(f, &base, &target)))
}

async fn changed(f: &Fixture) -> Result<()> {
    let (capacity, request) = two_snapshots(f, &[5, 7]).await?;
    let blocks = changed_blocks(f, request, capacity).await?;
    blocks.ordered()?;
    for place in [5, 7] {
        ensure!(blocks.covers(place)?, "data changed at {place} MiB, but is not among the changed blocks");
    }
    if blocks.touches_alone(1, &[5, 7])? {
        f.warn("data at 1 MiB did not change, but is among the changed blocks");
    }
    Ok(())
}

async fn unchanged(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1]).await.breaks(spec::PUBLISH_USABLE)?;
    let messages = f.get_metadata_delta(delta_request(f, &snapshot, &snapshot)).await;
    // A driver may reject the request.
    let messages = match messages {
        Err(status) if status.code() == Code::InvalidArgument => return Ok(()),
        answer => answer.works("GetMetadataDelta between a snapshot and itself").breaks(spec::DELTA)?,
    };
    let blocks = Blocks::of(&messages, placed.volume.capacity_bytes).breaks(spec::DELTA)?.all.len();
    ensure!(blocks == 0, "GetMetadataDelta between a snapshot and itself returns {blocks} changed blocks");
    Ok(())
}

async fn delta_from_offset(f: &Fixture) -> Result<()> {
    let (capacity, mut request) = two_snapshots(f, &[3, 7]).await?;
    request.starting_offset = 5 * APART as i64;
    let offset = request.starting_offset;
    let blocks = changed_blocks(f, request, capacity).await?;
    ensure!(blocks.covers(7)?, "data at 7 MiB is not among the changed blocks from 5 MiB on");
    blocks.none_before(offset)
}

async fn delta_in_ones(f: &Fixture) -> Result<(Vec<GetMetadataDeltaResponse>, i64)> {
    let (capacity, mut request) = two_snapshots(f, &[5, 7, 9]).await?;
    request.max_results = 1;
    let messages = f.get_metadata_delta(request).await.works("GetMetadataDelta with max_results 1")?;
    Ok((messages, capacity))
}

async fn delta_max_results(f: &Fixture) -> Result<()> {
    at_most_one(DELTA, &delta_in_ones(f).await?.0)
}

async fn delta_max_results_in_order(f: &Fixture) -> Result<()> {
    let (messages, capacity) = delta_in_ones(f).await?;
    let blocks = Blocks::of(&messages, capacity)?;
    for place in [5, 7, 9] {
        ensure!(
            blocks.covers(place)?,
            "with max_results 1, the change at {place} MiB is not among the blocks"
        );
    }
    blocks.ordered()
}

async fn delta_fixed(f: &Fixture) -> Result<()> {
    let (capacity, request) = two_snapshots(f, &[2, 3, 4, 7]).await?;
    changed_blocks(f, request, capacity).await?.fixed()
}

async fn delta_at_offset(f: &Fixture, offset: impl Fn(i64) -> i64, what: &str) -> Result<()> {
    let (capacity, mut request) = two_snapshots(f, &[5]).await?;
    request.starting_offset = offset(size(f, capacity));
    f.get_metadata_delta(request).await.refused(what, &[Code::OutOfRange])
}

async fn delta_beyond(f: &Fixture) -> Result<()> {
    let what = "GetMetadataDelta with a starting_offset beyond the volume";
    delta_at_offset(f, |capacity| capacity + 1, what).await
}

async fn delta_negative(f: &Fixture) -> Result<()> {
    delta_at_offset(f, |_| -1, "GetMetadataDelta with a negative starting_offset").await
}

async fn no_id(f: &Fixture) -> Result<()> {
    let answer = f.get_metadata_allocated(allocated_request(f, "")).await;
    answer.refused("GetMetadataAllocated without a snapshot_id", INVALID)
}

async fn unknown(f: &Fixture) -> Result<()> {
    let answer = f.get_metadata_allocated(allocated_request(f, &f.unknown_snapshot())).await;
    answer.refused("GetMetadataAllocated of a snapshot that does not exist", NOT_FOUND)
}

async fn delta_no_id(f: &Fixture) -> Result<()> {
    f.get_metadata_delta(delta_request(f, "", ""))
        .await
        .refused("GetMetadataDelta without snapshot ids", INVALID)
}

async fn delta_unknown(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    let answer = f.get_metadata_delta(delta_request(f, &f.unknown_snapshot(), &snapshot)).await;
    answer.refused("GetMetadataDelta from a base snapshot that does not exist", NOT_FOUND)
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
