//! GetMetadataDelta: the blocks that changed between two snapshots.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{GetMetadataDeltaRequest, GetMetadataDeltaResponse},
};

use super::{
    blocks::{Blocks, at_most_one},
    size, snapshot_with, tracked,
};
use crate::{
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{APART, Fixture},
    spec,
    verdict::Breaks,
};

const CALL: &str = "GetMetadataDelta";

fn request_of(f: &Fixture, base: &str, target: &str) -> GetMetadataDeltaRequest {
    GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        secrets: f.config().secrets.snapshot_metadata.clone(),
        ..Default::default()
    }
}

async fn blocks_of(f: &Fixture, request: GetMetadataDeltaRequest, capacity: i64) -> Result<Blocks> {
    Blocks::of(&tracked(f.get_metadata_delta(request).await)?.works(CALL)?, capacity)
}

/// Creates two snapshots of a volume, with data written at these places between them.
async fn two_snapshots(f: &Fixture, places: &[u64]) -> Result<(i64, GetMetadataDeltaRequest)> {
    let (placed, base) = snapshot_with(f, &[1, 5]).await?;
    for &place in places {
        f.write(&placed, place, "changed").await?;
    }
    let (placed, target) = super::super::snapshots::taken(f, placed).await?;
    Ok((placed.volume.capacity_bytes, request_of(f, &base, &target.snapshot_id)))
}

pub(super) async fn changed(f: &Fixture) -> Result<()> {
    let (capacity, request) = two_snapshots(f, &[5, 7]).await?;
    let blocks = blocks_of(f, request, capacity).await?;
    blocks.ordered()?;
    for place in [5, 7] {
        ensure!(blocks.covers(place)?, "data changed at {place} MiB, but is not among the changed blocks");
    }
    if blocks.touches_alone(1, &[5, 7])? {
        f.warn("data at 1 MiB did not change, but is among the changed blocks");
    }
    Ok(())
}

pub(super) async fn unchanged(f: &Fixture) -> Result<()> {
    let (placed, snapshot) = snapshot_with(f, &[1]).await.breaks(spec::PUBLISH_USABLE)?;
    let messages = tracked(f.get_metadata_delta(request_of(f, &snapshot, &snapshot)).await)?;
    // A driver may reject the request.
    let messages = match messages {
        Err(status) if status.code() == Code::InvalidArgument => return Ok(()),
        answer => answer.works("GetMetadataDelta between a snapshot and itself").breaks(spec::DELTA)?,
    };
    let blocks = Blocks::of(&messages, placed.volume.capacity_bytes).breaks(spec::DELTA)?.all.len();
    ensure!(blocks == 0, "GetMetadataDelta between a snapshot and itself returns {blocks} changed blocks");
    Ok(())
}

pub(super) async fn from_offset(f: &Fixture) -> Result<()> {
    let (capacity, mut request) = two_snapshots(f, &[3, 7]).await?;
    request.starting_offset = 5 * APART as i64;
    let offset = request.starting_offset;
    let blocks = blocks_of(f, request, capacity).await?;
    ensure!(blocks.covers(7)?, "data at 7 MiB is not among the changed blocks from 5 MiB on");
    blocks.none_before(offset)
}

async fn in_ones(f: &Fixture) -> Result<(Vec<GetMetadataDeltaResponse>, i64)> {
    let (capacity, mut request) = two_snapshots(f, &[5, 7, 9]).await?;
    request.max_results = 1;
    let messages =
        tracked(f.get_metadata_delta(request).await)?.works("GetMetadataDelta with max_results 1")?;
    Ok((messages, capacity))
}

pub(super) async fn max_results(f: &Fixture) -> Result<()> {
    at_most_one(CALL, &in_ones(f).await?.0)
}

pub(super) async fn max_results_in_order(f: &Fixture) -> Result<()> {
    let (messages, capacity) = in_ones(f).await?;
    let blocks = Blocks::of(&messages, capacity)?;
    for place in [5, 7, 9] {
        ensure!(
            blocks.covers(place)?,
            "with max_results 1, the change at {place} MiB is not among the blocks"
        );
    }
    blocks.ordered()
}

pub(super) async fn fixed(f: &Fixture) -> Result<()> {
    let (capacity, request) = two_snapshots(f, &[2, 3, 4, 7]).await?;
    blocks_of(f, request, capacity).await?.fixed()
}

async fn at_offset(f: &Fixture, offset: impl Fn(i64) -> i64, what: &str) -> Result<()> {
    let (capacity, mut request) = two_snapshots(f, &[5]).await?;
    request.starting_offset = offset(size(f, capacity));
    tracked(f.get_metadata_delta(request).await)?.refused(what, &[Code::OutOfRange])
}

pub(super) async fn beyond(f: &Fixture) -> Result<()> {
    let what = "GetMetadataDelta with a starting_offset beyond the volume";
    at_offset(f, |capacity| capacity + 1, what).await
}

pub(super) async fn negative(f: &Fixture) -> Result<()> {
    at_offset(f, |_| -1, "GetMetadataDelta with a negative starting_offset").await
}

pub(super) async fn no_id(f: &Fixture) -> Result<()> {
    f.get_metadata_delta(request_of(f, "", ""))
        .await
        .refused("GetMetadataDelta without snapshot ids", INVALID)
}

pub(super) async fn unknown(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    let answer = tracked(f.get_metadata_delta(request_of(f, &f.unknown_snapshot(), &snapshot)).await)?;
    answer.refused("GetMetadataDelta from a base snapshot that does not exist", NOT_FOUND)
}
