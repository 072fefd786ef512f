//! GetMetadataAllocated: the written blocks of a snapshot.

use anyhow::Result;
use claimcheck_csi::{
    Code,
    v1::{GetMetadataAllocatedRequest, GetMetadataAllocatedResponse},
};

use super::{
    blocks::{Blocks, at_most_one},
    size, snapshot_with, tracked, write_at,
};
use crate::{
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{APART, Fixture, from_volume},
    spec,
    verdict::Breaks,
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
    let (placed, snapshot, places) = snapshot_with(f, &[1, 5]).await?;
    let request = request_of(f, &snapshot);
    let blocks = blocks_of(f, request, placed.volume.capacity_bytes).await?;
    blocks.must_cover(&places, CALL)?;
    if blocks.touches_alone(9, &places)? {
        f.warn("blocks that were never written are reported as allocated");
    }
    Ok(())
}

/// A clone contains blocks that were written to its source only, and so do its snapshots.
pub(super) async fn of_clone(f: &Fixture) -> Result<()> {
    let source = f.up().await?;
    let mut places = write_at(f, &source, &[1, 5], "of the source").await?;
    f.withdraw(&source).await?;
    let clone = f.make(f.create_from(from_volume(source.id()))).await?;
    let clone = f.publish_all(clone).await?;
    f.write(&clone, 3, "of the clone").await?;
    places.push(3);
    let (clone, snapshot) = super::super::snapshots::taken(f, clone).await?;
    let request = request_of(f, &snapshot.snapshot_id);
    let blocks = blocks_of(f, request, clone.volume.capacity_bytes).await?;
    blocks.must_cover(&places, "GetMetadataAllocated of a snapshot of a clone")
}

pub(super) async fn in_order(f: &Fixture) -> Result<()> {
    let (placed, snapshot, places) = snapshot_with(f, &[0, 3, 7]).await?;
    let blocks = blocks_of(f, request_of(f, &snapshot), placed.volume.capacity_bytes).await?;
    blocks.ordered()?;
    blocks.must_cover(&places, CALL).breaks(spec::BLOCKS_ALL)
}

pub(super) async fn from_offset(f: &Fixture) -> Result<()> {
    let (placed, snapshot, places) = snapshot_with(f, &[1, 5]).await?;
    let mut request = request_of(f, &snapshot);
    request.starting_offset = 3 * APART as i64;
    let offset = request.starting_offset;
    let blocks = blocks_of(f, request, placed.volume.capacity_bytes).await?;
    blocks.must_cover(&places[1..], "GetMetadataAllocated from 3 MiB on")?;
    blocks.none_before(offset)
}

/// The messages of one block each of a snapshot, and their blocks, which are complete.
async fn in_ones(f: &Fixture) -> Result<(Vec<GetMetadataAllocatedResponse>, Blocks)> {
    let (placed, snapshot, places) = snapshot_with(f, &[1, 3, 5]).await?;
    let mut request = request_of(f, &snapshot);
    request.max_results = 1;
    let messages =
        tracked(f.get_metadata_allocated(request).await)?.works("GetMetadataAllocated with max_results 1")?;
    let blocks = Blocks::of(&messages, placed.volume.capacity_bytes)?;
    blocks.must_cover(&places, "GetMetadataAllocated with max_results 1").breaks(spec::BLOCKS_ALL)?;
    Ok((messages, blocks))
}

pub(super) async fn max_results(f: &Fixture) -> Result<()> {
    at_most_one(CALL, &in_ones(f).await?.0)
}

pub(super) async fn max_results_in_order(f: &Fixture) -> Result<()> {
    in_ones(f).await?.1.ordered()
}

pub(super) async fn fixed(f: &Fixture) -> Result<()> {
    let (placed, snapshot, places) = snapshot_with(f, &[0, 1, 2, 5]).await?;
    let blocks = blocks_of(f, request_of(f, &snapshot), placed.volume.capacity_bytes).await?;
    blocks.must_cover(&places, CALL).breaks(spec::BLOCKS_ALL)?;
    blocks.fixed()
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
    let (placed, snapshot, _) = snapshot_with(f, &[1]).await?;
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
