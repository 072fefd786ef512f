//! GetMetadataAllocated: the written blocks of a snapshot.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{GetMetadataAllocatedRequest, GetMetadataAllocatedResponse},
};

use super::{
    blocks::{Blocks, at_most_one},
    size, snapshot_with, tracked,
};
use crate::{
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{APART, Fixture},
};

const CALL: &str = "GetMetadataAllocated";

fn request_of(f: &Fixture, snapshot_id: &str) -> GetMetadataAllocatedRequest {
    let secrets = f.config().secrets.snapshot_metadata.clone();
    GetMetadataAllocatedRequest { snapshot_id: snapshot_id.to_owned(), secrets, ..Default::default() }
}

async fn blocks_of(f: &Fixture, request: GetMetadataAllocatedRequest, capacity: i64) -> Result<Blocks> {
    Blocks::of(&tracked(f.get_metadata_allocated(request).await)?.works(CALL)?, capacity)
}

pub(super) async fn written(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1, 5]).await?;
    let request = request_of(f, &snapshot);
    let blocks = blocks_of(f, request, placed.volume.capacity_bytes).await?;
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

pub(super) async fn in_order(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[0, 3, 7]).await?;
    let request = request_of(f, &snapshot);
    blocks_of(f, request, placed.volume.capacity_bytes).await?.ordered()
}

pub(super) async fn from_offset(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1, 5]).await?;
    let mut request = request_of(f, &snapshot);
    request.starting_offset = 3 * APART as i64;
    let offset = request.starting_offset;
    let blocks = blocks_of(f, request, placed.volume.capacity_bytes).await?;
    ensure!(blocks.covers(5)?, "data at 5 MiB is not among the allocated blocks from 3 MiB on");
    blocks.none_before(offset)
}

/// The messages of one block each of a snapshot, and the capacity of its volume.
async fn in_ones(f: &Fixture) -> Result<(Vec<GetMetadataAllocatedResponse>, i64)> {
    let (placed, snapshot) = snapshot_with(f, &[1, 3, 5]).await?;
    let mut request = request_of(f, &snapshot);
    request.max_results = 1;
    let messages =
        tracked(f.get_metadata_allocated(request).await)?.works("GetMetadataAllocated with max_results 1")?;
    Ok((messages, placed.volume.capacity_bytes))
}

pub(super) async fn max_results(f: &Fixture) -> Result<()> {
    at_most_one(CALL, &in_ones(f).await?.0)
}

pub(super) async fn max_results_in_order(f: &Fixture) -> Result<()> {
    let (messages, capacity) = in_ones(f).await?;
    let blocks = Blocks::of(&messages, capacity)?;
    for place in [1, 3, 5] {
        ensure!(blocks.covers(place)?, "with max_results 1, the data at {place} MiB is not among the blocks");
    }
    blocks.ordered()
}

pub(super) async fn fixed(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[0, 1, 2, 5]).await?;
    let request = request_of(f, &snapshot);
    blocks_of(f, request, placed.volume.capacity_bytes).await?.fixed()
}

pub(super) async fn empty(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let snapshot = f.snapshot(&volume.volume_id).await?.snapshot_id;
    let blocks = blocks_of(f, request_of(f, &snapshot), volume.capacity_bytes).await?;
    let bytes = blocks.all.iter().fold(0i64, |sum, block| sum.saturating_add(block.size_bytes));
    if bytes > blocks.capacity / 2 {
        f.warn("most of an empty volume is reported as allocated");
    }
    Ok(())
}

async fn at_offset(f: &Fixture, offset: impl Fn(i64) -> i64, what: &str) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1]).await?;
    let mut request = request_of(f, &snapshot);
    request.starting_offset = offset(size(f, placed.volume.capacity_bytes));
    tracked(f.get_metadata_allocated(request).await)?.refused(what, &[Code::OutOfRange])
}

pub(super) async fn beyond(f: &Fixture) -> Result<()> {
    at_offset(f, |capacity| capacity + 1, "GetMetadataAllocated with a starting_offset beyond the volume")
        .await
}

pub(super) async fn negative(f: &Fixture) -> Result<()> {
    at_offset(f, |_| -1, "GetMetadataAllocated with a negative starting_offset").await
}

pub(super) async fn no_id(f: &Fixture) -> Result<()> {
    let answer = f.get_metadata_allocated(request_of(f, "")).await;
    answer.refused("GetMetadataAllocated without a snapshot_id", INVALID)
}

pub(super) async fn unknown(f: &Fixture) -> Result<()> {
    let answer = f.get_metadata_allocated(request_of(f, &f.unknown_snapshot())).await;
    answer.refused("GetMetadataAllocated of a snapshot that does not exist", NOT_FOUND)
}
