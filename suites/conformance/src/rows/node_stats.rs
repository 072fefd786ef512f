//! NodeGetVolumeStats.

use anyhow::{Result, bail, ensure};
use claimcheck_csi::v1::{
    NodeGetVolumeStatsRequest, VolumeUsage, node_service_capability::rpc::Type as NodeType,
    volume_usage::Unit,
};

use super::{CREATE, STATS, case};
use crate::{
    case::{Access, Need, Row},
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{Fixture, PLACE, Placed, text},
};

const RULE: &str = "NodeGetVolumeStats";
const ERRORS: &str = "NodeGetVolumeStats Errors";

pub(super) const ROWS: &[Row] = &[
    Row::new("NodeGetVolumeStats without a volume_id returns InvalidArgument", ERRORS, case!(no_volume))
        .needs(&[STATS, CREATE])
        .upstream("Node Service NodeGetVolumeStats should fail when no volume id is provided"),
    Row::new("NodeGetVolumeStats without a volume_path returns InvalidArgument", ERRORS, case!(no_path))
        .needs(&[STATS, CREATE])
        .upstream("Node Service NodeGetVolumeStats should fail when no volume path is provided"),
    Row::new("NodeGetVolumeStats of a nonexistent volume returns NotFound", ERRORS, case!(unknown))
        .needs(&[STATS])
        .upstream("Node Service NodeGetVolumeStats should fail when volume is not found"),
    Row::new("NodeGetVolumeStats at a path without the volume returns NotFound", ERRORS, case!(elsewhere))
        .needs(&[STATS, CREATE])
        .upstream(
            "Node Service NodeGetVolumeStats should fail when volume does not exist on the specified path",
        ),
    Row::new("NodeGetVolumeStats at the path of another volume returns NotFound", ERRORS, case!(others))
        .needs(&[STATS, CREATE]),
    Row::new("NodeGetVolumeStats returns consistent usage", RULE, case!(adds_up))
        .needs(&[STATS, CREATE])
        .each(),
    Row::new("NodeGetVolumeStats returns the size of the volume", RULE, case!(of_this))
        .needs(&[STATS, CREATE, Need::Files])
        .each(),
    Row::new("NodeGetVolumeStats counts written data as used", RULE, case!(counts))
        .needs(&[STATS, CREATE, Need::Files])
        .only(Access::Mount),
    Row::new(
        "NodeGetVolumeStats returns a normal volume_condition for a published volume",
        RULE,
        case!(condition),
    )
    .needs(&[STATS, CREATE, Need::Node(NodeType::VolumeCondition)]),
];

fn request(f: &Fixture, placed: &Placed) -> NodeGetVolumeStatsRequest {
    let at = f.publish_request(placed);
    NodeGetVolumeStatsRequest {
        volume_id: at.volume_id,
        volume_path: at.target_path,
        staging_target_path: at.staging_target_path,
    }
}

async fn usage(f: &Fixture, placed: &Placed, unit: Unit) -> Result<Option<VolumeUsage>> {
    let stats = f.node_get_volume_stats(request(f, placed)).await.works("NodeGetVolumeStats")?;
    Ok(stats.usage.into_iter().find(|usage| usage.unit == unit as i32))
}

async fn bytes(f: &Fixture, placed: &Placed) -> Result<VolumeUsage> {
    let usage = usage(f, placed, Unit::Bytes).await?;
    usage.ok_or_else(|| anyhow::anyhow!("NodeGetVolumeStats returned OK without a usage in bytes"))
}

async fn no_volume(f: &Fixture) -> Result<()> {
    let request = NodeGetVolumeStatsRequest { volume_id: String::new(), ..request(f, &f.up().await?) };
    f.node_get_volume_stats(request).await.refused("NodeGetVolumeStats without a volume_id", INVALID)
}

async fn no_path(f: &Fixture) -> Result<()> {
    let request = NodeGetVolumeStatsRequest { volume_path: String::new(), ..request(f, &f.up().await?) };
    f.node_get_volume_stats(request).await.refused("NodeGetVolumeStats without a volume_path", INVALID)
}

async fn unknown(f: &Fixture) -> Result<()> {
    let volume_path = text(&f.target_root().join(f.unique()).join("mount"));
    let request =
        NodeGetVolumeStatsRequest { volume_id: f.unknown_volume(), volume_path, ..Default::default() };
    let answer = f.node_get_volume_stats(request).await;
    answer.refused("NodeGetVolumeStats of a volume that does not exist", NOT_FOUND)
}

async fn elsewhere(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let elsewhere = text(&f.target_root().join(f.unique()).join("mount"));
    let request = NodeGetVolumeStatsRequest { volume_path: elsewhere, ..request(f, &placed) };
    let answer = f.node_get_volume_stats(request).await;
    answer.refused("NodeGetVolumeStats at a path without the volume", NOT_FOUND)
}

async fn others(f: &Fixture) -> Result<()> {
    let (one, other) = (f.up().await?, f.up().await?);
    let request = NodeGetVolumeStatsRequest { volume_path: text(&other.target), ..request(f, &one) };
    let answer = f.node_get_volume_stats(request).await;
    answer.refused("NodeGetVolumeStats at the path of another volume", NOT_FOUND)
}

async fn adds_up(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let VolumeUsage { available, total, used, .. } = bytes(f, &placed).await?;
    ensure!(
        total > 0 && available >= 0 && used >= 0,
        "NodeGetVolumeStats returns total {total}, available {available} and used {used}"
    );
    ensure!(
        used <= total && available <= total,
        "NodeGetVolumeStats returns more than the total {total}: available {available}, used {used}"
    );
    if let Some(inodes) = usage(f, &placed, Unit::Inodes).await? {
        ensure!(
            inodes.used <= inodes.total,
            "NodeGetVolumeStats returns {} inodes, of which {} are used",
            inodes.total,
            inodes.used
        );
    }
    Ok(())
}

async fn of_this(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let (total, seen) = (bytes(f, &placed).await?.total.unsigned_abs(), f.bytes(&placed).await?);
    if placed.access == Access::Mount && !f.sizes_are_real(&placed).await? {
        // Volumes that share a file system may report its size or their own.
        let size = placed.volume.capacity_bytes.unsigned_abs();
        ensure!(
            total == seen || total == size,
            "NodeGetVolumeStats returns {total} bytes; the file system has {seen}, the volume {size}"
        );
        return Ok(());
    }
    ensure!(
        total.abs_diff(seen) <= seen / 10,
        "NodeGetVolumeStats returns a total of {total} bytes, but the volume has {seen}: statistics of another object"
    );
    Ok(())
}

async fn counts(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    if !f.sizes_are_real(&placed).await? {
        return Err(crate::expect::skip(
            "volumes share a file system: other cases write to it at the same time",
        ));
    }
    let before = bytes(f, &placed).await?.used;
    for place in 0..8 {
        f.write(&placed, place, "counted").await?;
    }
    let (after, written) = (bytes(f, &placed).await?.used, 8 * PLACE as i64);
    ensure!(
        after - before >= written / 2,
        "{written} bytes were written, but NodeGetVolumeStats counts {} more than before",
        after - before
    );
    Ok(())
}

async fn condition(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let stats = f.node_get_volume_stats(request(f, &placed)).await.works("NodeGetVolumeStats")?;
    let Some(condition) = stats.volume_condition else {
        bail!("VOLUME_CONDITION is declared, but NodeGetVolumeStats returns no volume_condition")
    };
    ensure!(
        !condition.abnormal,
        "NodeGetVolumeStats reports the volume as abnormal: {:?}",
        condition.message
    );
    Ok(())
}
