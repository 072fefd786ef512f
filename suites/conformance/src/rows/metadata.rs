//! Snapshot metadata: the allocated blocks of a snapshot, and the changed blocks between two snapshots.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{BlockMetadata, BlockMetadataType, GetMetadataAllocatedRequest, GetMetadataDeltaRequest},
};

use super::{CREATE, METADATA, SNAPSHOT, case};
use crate::{
    case::{Access, Need, Row},
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{APART, Fixture, PLACE},
};

const ALLOCATED: &str = "GetMetadataAllocated";
const DELTA: &str = "GetMetadataDelta";
const NEEDS: &[Need] = &[METADATA, SNAPSHOT, CREATE, Need::Files];

/// A row about snapshots of block volumes, where block offsets are known.
const fn row(name: &'static str, rule: &'static str, run: crate::case::Run) -> Row {
    Row::new(name, rule, run).needs(NEEDS).only(Access::Block)
}

pub(super) const ROWS: &[Row] = &[
    row("GetMetadataAllocated returns the written blocks", ALLOCATED, case!(allocated)),
    row(
        "GetMetadataAllocated returns blocks in order and within the volume",
        "Metadata Format",
        case!(in_order),
    ),
    row(
        "GetMetadataAllocated with a starting_offset returns only the blocks from there on",
        ALLOCATED,
        case!(from_offset),
    ),
    row("GetMetadataAllocated returns at most max_results blocks per message", ALLOCATED, case!(max_results)),
    row("GetMetadataAllocated of an empty volume returns few blocks", ALLOCATED, case!(empty)),
    row(
        "GetMetadataAllocated with a starting_offset beyond the volume returns OutOfRange",
        "GetMetadataAllocated Errors",
        case!(beyond),
    ),
    row(
        "GetMetadataAllocated with a negative starting_offset returns OutOfRange",
        "GetMetadataAllocated Errors",
        case!(negative),
    ),
    row("GetMetadataDelta returns the blocks written between two snapshots", DELTA, case!(changed)),
    row("GetMetadataDelta between a snapshot and itself returns no blocks", DELTA, case!(unchanged)),
    row("GetMetadataDelta returns at most max_results blocks per message", DELTA, case!(delta_max_results)),
    row(
        "GetMetadataDelta with a starting_offset beyond the volume returns OutOfRange",
        "GetMetadataDelta Errors",
        case!(delta_beyond),
    ),
    Row::new(
        "GetMetadataAllocated without a snapshot_id returns InvalidArgument",
        "GetMetadataAllocated Errors",
        case!(no_id),
    )
    .needs(&[METADATA]),
    Row::new(
        "GetMetadataAllocated of a nonexistent snapshot returns NotFound",
        "GetMetadataAllocated Errors",
        case!(unknown),
    )
    .needs(&[METADATA]),
    Row::new(
        "GetMetadataDelta without snapshot ids returns InvalidArgument",
        "GetMetadataDelta Errors",
        case!(delta_no_id),
    )
    .needs(&[METADATA]),
    Row::new(
        "GetMetadataDelta from a nonexistent base snapshot returns NotFound",
        "GetMetadataDelta Errors",
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

/// Validates every message of a stream, and returns all of its blocks.
macro_rules! blocks {
    ($messages:expr, $capacity:expr) => {{
        let (mut all, mut kind) = (Vec::new(), None);
        for message in $messages {
            ensure!(
                message.volume_capacity_bytes == $capacity,
                "the volume has {} bytes, but its snapshot's metadata has volume_capacity_bytes {}",
                $capacity,
                message.volume_capacity_bytes
            );
            let this = message.block_metadata_type();
            ensure!(this != BlockMetadataType::Unknown, "a message has no block_metadata_type");
            ensure!(*kind.get_or_insert(this) == this, "the block_metadata_type changes within a stream");
            all.extend(message.block_metadata);
        }
        let all: Vec<BlockMetadata> = all;
        all
    }};
}

/// Creates a volume with data at these places, and its snapshot.
async fn snapshot_with(f: &Fixture, places: &[u64]) -> Result<(crate::fixture::Placed, String)> {
    let placed = f.up().await?;
    for &place in places {
        f.write(&placed, place, "allocated").await?;
    }
    let snapshot = f.snapshot(placed.id()).await?.snapshot_id;
    Ok((placed, snapshot))
}

async fn all_allocated(f: &Fixture, snapshot: &str, capacity: i64) -> Result<Vec<BlockMetadata>> {
    let messages = f.get_metadata_allocated(allocated_request(f, snapshot)).await.works(ALLOCATED)?;
    Ok(blocks!(messages, capacity))
}

/// Whether blocks cover a place completely.
fn covers(blocks: &[BlockMetadata], place: u64) -> bool {
    let (mut at, end) = ((place * APART) as i64, (place * APART) as i64 + PLACE as i64);
    for block in blocks {
        if block.byte_offset <= at && at < block.byte_offset + block.size_bytes {
            at = block.byte_offset + block.size_bytes;
        }
    }
    at >= end
}

/// Whether any block overlaps a place.
fn touches(blocks: &[BlockMetadata], place: u64) -> bool {
    let (start, end) = ((place * APART) as i64, (place * APART) as i64 + PLACE as i64);
    blocks.iter().any(|block| block.byte_offset < end && start < block.byte_offset + block.size_bytes)
}

async fn allocated(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1, 5]).await?;
    let blocks = all_allocated(f, &snapshot, placed.volume.capacity_bytes).await?;
    for place in [1, 5] {
        ensure!(
            covers(&blocks, place),
            "data was written at {} MiB, but is not among the allocated blocks",
            place
        );
    }
    if touches(&blocks, 9) {
        f.warn("blocks that were never written are reported as allocated");
    }
    Ok(())
}

fn ordered(blocks: &[BlockMetadata], capacity: i64) -> Result<()> {
    let mut end = 0;
    for block in blocks {
        ensure!(block.size_bytes > 0, "a block at {} has {} bytes", block.byte_offset, block.size_bytes);
        ensure!(
            block.byte_offset >= end,
            "a block at {} follows a block that ends at {end}",
            block.byte_offset
        );
        end = block.byte_offset + block.size_bytes;
    }
    ensure!(end <= capacity, "the volume has {capacity} bytes, but its last block ends at {end}");
    Ok(())
}

async fn in_order(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[0, 3, 7]).await?;
    let capacity = placed.volume.capacity_bytes;
    ordered(&all_allocated(f, &snapshot, capacity).await?, capacity)
}

async fn from_offset(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1, 5]).await?;
    let mut request = allocated_request(f, &snapshot);
    request.starting_offset = 3 * APART as i64;
    let messages =
        f.get_metadata_allocated(request).await.works("GetMetadataAllocated with a starting_offset")?;
    let blocks: Vec<BlockMetadata> = blocks!(messages, placed.volume.capacity_bytes);
    ensure!(covers(&blocks, 5), "data at 5 MiB is not among the allocated blocks from 3 MiB on");
    ensure!(!touches(&blocks, 1), "data at 1 MiB is among the allocated blocks from 3 MiB on");
    Ok(())
}

async fn max_results(f: &Fixture) -> Result<()> {
    let (_, snapshot) = snapshot_with(f, &[1, 3, 5]).await?;
    let mut request = allocated_request(f, &snapshot);
    request.max_results = 1;
    let messages =
        f.get_metadata_allocated(request).await.works("GetMetadataAllocated with max_results 1")?;
    let most = messages.iter().map(|message| message.block_metadata.len()).max().unwrap_or_default();
    ensure!(most <= 1, "GetMetadataAllocated with max_results 1 returns a message of {most} blocks");
    Ok(())
}

async fn empty(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let snapshot = f.snapshot(&volume.volume_id).await?.snapshot_id;
    let blocks = all_allocated(f, &snapshot, volume.capacity_bytes).await?;
    let bytes: i64 = blocks.iter().map(|block| block.size_bytes).sum();
    if bytes > volume.capacity_bytes / 2 {
        f.warn("most of an empty volume is reported as allocated");
    }
    Ok(())
}

async fn at_offset(f: &Fixture, offset: impl Fn(i64) -> i64, what: &str) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1]).await?;
    let mut request = allocated_request(f, &snapshot);
    request.starting_offset = offset(placed.volume.capacity_bytes);
    f.get_metadata_allocated(request).await.refused(what, &[Code::OutOfRange])
}

async fn beyond(f: &Fixture) -> Result<()> {
    at_offset(f, |capacity| capacity + 1, "GetMetadataAllocated with a starting_offset beyond the volume")
        .await
}

async fn negative(f: &Fixture) -> Result<()> {
    at_offset(f, |_| -1, "GetMetadataAllocated with a negative starting_offset").await
}

/// Creates two snapshots of a volume, with data written at these places between them.
async fn two_snapshots(f: &Fixture, places: &[u64]) -> Result<(i64, String, String)> {
    let (placed, base) = snapshot_with(f, &[1, 5]).await?;
    for &place in places {
        f.write(&placed, place, "changed").await?;
    }
    let target = f.snapshot(placed.id()).await?.snapshot_id;
    Ok((placed.volume.capacity_bytes, base, target))
}

async fn changed(f: &Fixture) -> Result<()> {
    let (capacity, base, target) = two_snapshots(f, &[5, 7]).await?;
    let messages = f.get_metadata_delta(delta_request(f, &base, &target)).await.works(DELTA)?;
    let blocks: Vec<BlockMetadata> = blocks!(messages, capacity);
    ordered(&blocks, capacity)?;
    for place in [5, 7] {
        ensure!(covers(&blocks, place), "data changed at {place} MiB, but is not among the changed blocks");
    }
    ensure!(!touches(&blocks, 1), "data at 1 MiB did not change, but is among the changed blocks");
    Ok(())
}

async fn unchanged(f: &Fixture) -> Result<()> {
    let (_, snapshot) = snapshot_with(f, &[1]).await?;
    let messages = f.get_metadata_delta(delta_request(f, &snapshot, &snapshot)).await;
    // A driver may reject the request.
    let messages = match messages {
        Err(status) if status.code() == Code::InvalidArgument => return Ok(()),
        answer => answer.works("GetMetadataDelta between a snapshot and itself")?,
    };
    let blocks: usize = messages.iter().map(|message| message.block_metadata.len()).sum();
    ensure!(blocks == 0, "GetMetadataDelta between a snapshot and itself returns {blocks} changed blocks");
    Ok(())
}

async fn delta_max_results(f: &Fixture) -> Result<()> {
    let (_, base, target) = two_snapshots(f, &[5, 7, 9]).await?;
    let mut request = delta_request(f, &base, &target);
    request.max_results = 1;
    let messages = f.get_metadata_delta(request).await.works("GetMetadataDelta with max_results 1")?;
    let most = messages.iter().map(|message| message.block_metadata.len()).max().unwrap_or_default();
    ensure!(most <= 1, "GetMetadataDelta with max_results 1 returns a message of {most} blocks");
    Ok(())
}

async fn delta_beyond(f: &Fixture) -> Result<()> {
    let (capacity, base, target) = two_snapshots(f, &[5]).await?;
    let mut request = delta_request(f, &base, &target);
    request.starting_offset = capacity + 1;
    let answer = f.get_metadata_delta(request).await;
    answer.refused("GetMetadataDelta with a starting_offset beyond the volume", &[Code::OutOfRange])
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
