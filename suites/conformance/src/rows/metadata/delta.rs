//! GetMetadataDelta: the blocks that changed between two snapshots.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{GetMetadataDeltaRequest, GetMetadataDeltaResponse},
};

use claimcheck_engine::skip;

use super::{
    super::node_expand::finish,
    blocks::{Blocks, at_most_one},
    size, snapshot_with, tracked, write_at,
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

/// The place with data in the base that is zeros in the target.
const ERASED: u64 = 0;

/// Creates two snapshots of a volume, with data written at these places and at its last one between them, and removed from
/// another. The places with new data are returned.
async fn two_snapshots(f: &Fixture, places: &[u64]) -> Result<(i64, GetMetadataDeltaRequest, Vec<u64>)> {
    let (placed, base, _) = snapshot_with(f, &[ERASED, 1, 5]).await?;
    f.erase(&placed, ERASED).await?;
    let places = write_at(f, &placed, places, "changed").await?;
    let (placed, target) = super::super::snapshots::taken(f, placed).await?;
    Ok((placed.volume.capacity_bytes, request_of(f, &base, &target.snapshot_id), places))
}

pub(super) async fn changed(f: &Fixture) -> Result<()> {
    let (capacity, request, places) = two_snapshots(f, &[5, 7]).await?;
    let blocks = blocks_of(f, request, capacity).await?;
    blocks.ordered()?;
    blocks.must_cover(&places, CALL)?;
    blocks.must_cover(&[ERASED], "GetMetadataDelta, after zeros were written over data")?;
    if blocks.touches_alone(1, &[&places[..], &[ERASED]].concat())? {
        f.warn("data at 1 MiB did not change, but is among the changed blocks");
    }
    Ok(())
}

pub(super) async fn unchanged(f: &Fixture) -> Result<()> {
    let (placed, snapshot, _) = snapshot_with(f, &[1]).await.breaks(spec::PUBLISH_USABLE)?;
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
    let (capacity, mut request, places) = two_snapshots(f, &[3, 7]).await?;
    request.starting_offset = 5 * APART as i64;
    let offset = request.starting_offset;
    let blocks = blocks_of(f, request, capacity).await?;
    blocks.must_cover(&places[1..], "GetMetadataDelta from 5 MiB on")?;
    blocks.none_before(offset)
}

/// The messages of one block each, and their blocks, which are complete.
async fn in_ones(f: &Fixture) -> Result<(Vec<GetMetadataDeltaResponse>, Blocks)> {
    let (capacity, mut request, places) = two_snapshots(f, &[5, 7, 9]).await?;
    request.max_results = 1;
    let messages =
        tracked(f.get_metadata_delta(request).await)?.works("GetMetadataDelta with max_results 1")?;
    let blocks = Blocks::of(&messages, capacity)?;
    blocks.must_cover(&places, "GetMetadataDelta with max_results 1").breaks(spec::BLOCKS_ALL)?;
    Ok((messages, blocks))
}

pub(super) async fn max_results(f: &Fixture) -> Result<()> {
    at_most_one(CALL, &in_ones(f).await?.0)
}

pub(super) async fn max_results_in_order(f: &Fixture) -> Result<()> {
    in_ones(f).await?.1.ordered()
}

pub(super) async fn fixed(f: &Fixture) -> Result<()> {
    let (capacity, request, places) = two_snapshots(f, &[2, 3, 4, 7]).await?;
    let blocks = blocks_of(f, request, capacity).await?;
    blocks.must_cover(&places, CALL).breaks(spec::BLOCKS_ALL)?;
    blocks.fixed()
}

/// The blocks that a volume gains by an expansion are none of the base.
pub(super) async fn expanded(f: &Fixture) -> Result<()> {
    let (placed, base, _) = snapshot_with(f, &[1]).await?;
    f.withdraw(&placed).await?;
    let grown = match f.controller_expand_volume(f.expand_request(placed.id())).await {
        Err(status) if status.code() == Code::FailedPrecondition => {
            return Err(skip("volumes that have snapshots cannot be expanded"));
        }
        answer => answer.works("ControllerExpandVolume of a volume with a snapshot")?,
    };
    let placed = f.publish_all(placed.volume).await?;
    finish(f, &placed, grown.node_expansion_required).await?;
    let places = write_at(f, &placed, &[5], "up to the new end").await?;
    let (_, target) = super::super::snapshots::taken(f, placed).await?;
    let blocks = blocks_of(f, request_of(f, &base, &target.snapshot_id), 0).await?;
    blocks.must_cover(&places, "GetMetadataDelta between snapshots before and after an expansion")
}

/// A driver that compares what two snapshots contain may also compare those of two volumes.
pub(super) async fn of_two(f: &Fixture) -> Result<()> {
    let (_, base, mut places) = snapshot_with(f, &[1, 5]).await?;
    let other = f.up().await?;
    places.extend(write_at(f, &other, &[3], "of the other volume").await?);
    let (_, target) = super::super::snapshots::taken(f, other).await?;
    let what = "GetMetadataDelta between snapshots of two volumes";
    match tracked(f.get_metadata_delta(request_of(f, &base, &target.snapshot_id)).await)? {
        Ok(messages) => Blocks::of(&messages, 0)?.must_cover(&places, what).breaks(spec::BLOCKS_ALL),
        refused => refused.refused(what, &[Code::InvalidArgument, Code::NotFound]),
    }
}

async fn at_offset(f: &Fixture, offset: impl Fn(i64) -> i64, what: &str) -> Result<()> {
    let (capacity, mut request, _) = two_snapshots(f, &[5]).await?;
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

pub(super) async fn unknown_target(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    let answer = tracked(f.get_metadata_delta(request_of(f, &snapshot, &f.unknown_snapshot())).await)?;
    answer.refused("GetMetadataDelta to a target snapshot that does not exist", NOT_FOUND)
}
