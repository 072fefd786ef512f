//! Snapshot metadata: the allocated blocks of a snapshot, and the changed blocks between two snapshots.

mod allocated;
mod blocks;
mod delta;

use anyhow::Result;
use claimcheck_csi::{Code, Status};
use claimcheck_engine::skip;

use super::{CLONE, CLONES, CREATE, DELTA, EXPAND, EXPANDS, METADATA, MOUNTS, SNAPSHOT, case};
use crate::{
    case::{Access, Row},
    effect::Effect,
    expect::status_text,
    fixture::{APART, Fixture, VolumeOnNode},
    need::Need,
    spec::{self, Sentence},
};

const NEEDS: &[Need] = &[METADATA, SNAPSHOT, CREATE, Need::Files, MOUNTS];
/// Of cases in which the changed blocks are compared.
const DELTA_NEEDS: &[Need] = &[METADATA, SNAPSHOT, CREATE, Need::Files, MOUNTS, DELTA];

/// A row about snapshots of block volumes, where block offsets are known.
const fn row(name: &'static str, rule: &'static Sentence, run: crate::case::Run) -> Row {
    Row::new(name, rule, run).needs(NEEDS).only(Access::Block)
}

pub(super) const ROWS: &[Row] = &[
    row("GetMetadataAllocated returns the written blocks", spec::BLOCKS_ALL, case!(allocated::written))
        .also(&[spec::ALLOCATED, spec::ALLOCATED_TYPE, spec::ALLOCATED_CAPACITY]),
    row(
        "GetMetadataAllocated of a snapshot of a clone returns the blocks of its source",
        spec::BLOCKS_ALL,
        case!(allocated::of_clone),
    )
    .needs(&[METADATA, SNAPSHOT, CREATE, Need::Files, MOUNTS, CLONE, CLONES]),
    row(
        "GetMetadataAllocated returns blocks in order and within the volume",
        spec::ALLOCATED_ORDER,
        case!(allocated::in_order),
    )
    .also(&[spec::BLOCK_SIZE]),
    row(
        "GetMetadataAllocated with a starting_offset returns only the blocks from there on",
        spec::ALLOCATED_FROM,
        case!(allocated::from_offset),
    )
    .also(&[spec::BLOCKS_FROM, spec::ALLOCATED_RESPECTS]),
    row(
        "GetMetadataAllocated returns at most max_results blocks per message",
        spec::ALLOCATED_MAX,
        case!(allocated::max_results),
    ),
    row(
        "GetMetadataAllocated with max_results returns the blocks in order",
        spec::ALLOCATED_ACROSS,
        case!(allocated::max_results_in_order),
    ),
    row(
        "GetMetadataAllocated with FIXED_LENGTH returns blocks of one size",
        spec::ALLOCATED_FIXED,
        case!(allocated::fixed),
    ),
    row(
        "GetMetadataAllocated of an empty volume returns few blocks",
        spec::ALLOCATED_ONLY,
        case!(allocated::empty),
    ),
    row(
        "GetMetadataAllocated with a starting_offset beyond the volume returns OutOfRange",
        spec::ALLOCATED_OFFSET,
        case!(allocated::beyond),
    ),
    row(
        "GetMetadataAllocated with a negative starting_offset returns OutOfRange",
        spec::ALLOCATED_OFFSET,
        case!(allocated::negative),
    ),
    row(
        "GetMetadataDelta returns the blocks written between two snapshots",
        spec::BLOCKS_ALL,
        case!(delta::changed),
    )
    .also(&[spec::DELTA, spec::DELTA_TYPE, spec::DELTA_CAPACITY, spec::DELTA_ORDER, spec::BLOCK_SIZE])
    .establishes(&[Effect::DeltaComplete]),
    row(
        "GetMetadataDelta of an expanded volume returns the blocks beyond its earlier size",
        spec::BLOCKS_ALL,
        case!(delta::expanded),
    )
    .needs(&[METADATA, SNAPSHOT, CREATE, Need::Files, MOUNTS, DELTA, EXPAND, EXPANDS]),
    row(
        "GetMetadataDelta between snapshots of two volumes returns an error or the blocks that differ",
        spec::DELTA_INVALID,
        case!(delta::of_two),
    )
    .also(&[spec::BLOCKS_ALL])
    .needs(DELTA_NEEDS),
    row(
        "GetMetadataDelta between a snapshot and itself returns no blocks",
        spec::DELTA_ONLY,
        case!(delta::unchanged),
    ),
    row(
        "GetMetadataDelta with a starting_offset returns only the blocks from there on",
        spec::DELTA_FROM,
        case!(delta::from_offset),
    )
    .also(&[spec::BLOCKS_FROM, spec::DELTA_RESPECTS])
    .needs(DELTA_NEEDS),
    row(
        "GetMetadataDelta returns at most max_results blocks per message",
        spec::DELTA_MAX,
        case!(delta::max_results),
    ),
    row(
        "GetMetadataDelta with max_results returns the blocks in order",
        spec::DELTA_ACROSS,
        case!(delta::max_results_in_order),
    )
    .needs(DELTA_NEEDS),
    row(
        "GetMetadataDelta with FIXED_LENGTH returns blocks of one size",
        spec::DELTA_FIXED,
        case!(delta::fixed),
    ),
    row(
        "GetMetadataDelta with a starting_offset beyond the volume returns OutOfRange",
        spec::DELTA_OFFSET,
        case!(delta::beyond),
    ),
    row(
        "GetMetadataDelta with a negative starting_offset returns OutOfRange",
        spec::DELTA_OFFSET,
        case!(delta::negative),
    ),
    Row::new(
        "GetMetadataAllocated without a snapshot_id returns InvalidArgument",
        spec::ALLOCATED_INVALID,
        case!(allocated::no_id),
    )
    .needs(&[METADATA]),
    Row::new(
        "GetMetadataAllocated of a nonexistent snapshot returns NotFound",
        spec::ALLOCATED_GONE,
        case!(allocated::unknown),
    )
    .needs(&[METADATA]),
    Row::new(
        "GetMetadataDelta without snapshot ids returns InvalidArgument",
        spec::DELTA_INVALID,
        case!(delta::no_id),
    )
    .needs(&[METADATA]),
    Row::new(
        "GetMetadataDelta from a nonexistent base snapshot returns NotFound",
        spec::DELTA_GONE,
        case!(delta::unknown),
    )
    .needs(&[METADATA, SNAPSHOT, CREATE]),
    Row::new(
        "GetMetadataDelta to a nonexistent target snapshot returns NotFound",
        spec::DELTA_GONE,
        case!(delta::unknown_target),
    )
    .needs(&[METADATA, SNAPSHOT, CREATE]),
];

/// Creates a volume with data at these places and at its last one, and its snapshot. All places are returned.
async fn snapshot_with(f: &Fixture, places: &[u64]) -> Result<(VolumeOnNode, String, Vec<u64>)> {
    let placed = f.up().await?;
    let places = write_at(f, &placed, places, "allocated").await?;
    let (placed, snapshot) = super::snapshots::taken(f, placed).await?;
    Ok((placed, snapshot.snapshot_id, places))
}

/// Writes a text to these places of a published volume and to its last one, since a stream may end too early. All places
/// are returned.
async fn write_at(f: &Fixture, placed: &VolumeOnNode, places: &[u64], text: &str) -> Result<Vec<u64>> {
    let last = (f.bytes(placed).await? / APART).saturating_sub(1);
    let places: Vec<u64> = places.iter().copied().chain([last]).collect();
    for &place in &places {
        f.write(placed, place, text).await?;
    }
    Ok(places)
}

/// Skips the case if the changed blocks of the volume are not tracked: "Changed block tracking is not enabled:
/// 9 FAILED_PRECONDITION".
fn tracked<T>(answer: Result<T, Status>) -> Result<Result<T, Status>> {
    match answer {
        Err(status) if status.code() == Code::FailedPrecondition => {
            Err(skip(format!("changed block tracking is not enabled: {}", status_text(&status))))
        }
        answer => Ok(answer),
    }
}

/// The size of a volume; the requested one, if its capacity is unknown.
fn size(f: &Fixture, capacity: i64) -> i64 {
    if capacity == 0 { f.config().volume_size } else { capacity }
}
