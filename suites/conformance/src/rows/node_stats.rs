//! NodeGetVolumeStats.

use anyhow::{Context, Result, anyhow, ensure};
use claimcheck_csi::v1::{
    NodeGetVolumeStatsRequest, VolumeUsage, node_service_capability::rpc::Type as NodeType,
    volume_usage::Unit,
};
use claimcheck_engine::skip;
use tokio::time::{Duration, Instant, sleep};

use super::{
    CREATE, EXPAND, EXPANDS, MOUNTS, NODE_EXPAND, STAGE, STATS, case,
    controller_list::healthy,
    node_expand::grow,
    node_publish::{MULTI_WRITER, multi_writer, publish_multi},
};
use crate::{
    case::{Access, Row},
    effect::Effect,
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{Fixture, PLACE, VolumeOnNode, text},
    need::Need,
    spec,
    verdict::{Breaks, breaking},
    waits::{Limit, Waits},
};

/// How long a file system may take to account for data that was synced: ZFS commits a transaction group every 5 s.
const ACCOUNTED: Duration = Duration::from_secs(10);
/// The first and the last delay between queries of statistics: it doubles.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "NodeGetVolumeStats without a volume_id returns InvalidArgument",
        spec::MISSING,
        case!(no_volume),
    )
    .needs(&[STATS, CREATE])
    .upstream("Node Service NodeGetVolumeStats should fail when no volume id is provided"),
    Row::new(
        "NodeGetVolumeStats without a volume_path returns InvalidArgument",
        spec::MISSING,
        case!(no_path),
    )
    .needs(&[STATS, CREATE])
    .upstream("Node Service NodeGetVolumeStats should fail when no volume path is provided"),
    Row::new("NodeGetVolumeStats of a nonexistent volume returns NotFound", spec::STATS_GONE, case!(unknown))
        .needs(&[STATS])
        .upstream("Node Service NodeGetVolumeStats should fail when volume is not found"),
    Row::new(
        "NodeGetVolumeStats at a path without the volume returns NotFound",
        spec::STATS_GONE,
        case!(elsewhere),
    )
    .needs(&[STATS, CREATE])
    .upstream("Node Service NodeGetVolumeStats should fail when volume does not exist on the specified path"),
    Row::new(
        "NodeGetVolumeStats at the path of another volume returns NotFound",
        spec::STATS_GONE,
        case!(others),
    )
    .needs(&[STATS, CREATE]),
    Row::new("NodeGetVolumeStats returns consistent usage", spec::STATS_TRUE, case!(adds_up))
        .also(&[spec::STATS_UNIT, spec::STATS_TOTAL])
        .needs(&[STATS, CREATE, MOUNTS])
        .each(),
    Row::new("NodeGetVolumeStats returns no negative numbers", spec::STATS_SIGN, case!(not_negative))
        .also(&[spec::STATS_TOTAL])
        .needs(&[STATS, CREATE, MOUNTS])
        .each(),
    Row::new("NodeGetVolumeStats returns the size of the volume", spec::STATS_TRUE, case!(this_volume))
        .needs(&[STATS, CREATE, Need::Files, MOUNTS])
        .each(),
    Row::new(
        "NodeGetVolumeStats after NodeExpandVolume returns the new size",
        spec::STATS_TRUE,
        case!(expanded),
    )
    .needs(&[STATS, CREATE, EXPAND, NODE_EXPAND, Need::ONLINE_EXPANSION, Need::Files, MOUNTS, EXPANDS])
    .each(),
    Row::new(
        "NodeGetVolumeStats without a staging_target_path succeeds",
        spec::STATS_TRUE,
        case!(no_staging),
    )
    .needs(&[STATS, CREATE, STAGE, MOUNTS]),
    Row::new("NodeGetVolumeStats at each of two targets succeeds", spec::STATS_TRUE, case!(two_targets))
        .needs(&[STATS, CREATE, Need::Files, MULTI_WRITER, MOUNTS]),
    Row::new("NodeGetVolumeStats counts written data as used", spec::STATS_TRUE, case!(counts))
        .needs(&[STATS, CREATE, Need::Files, MOUNTS])
        .waits(Waits::up_to(
            Limit::Seconds(ACCOUNTED.as_secs()),
            "written data to be counted, which file systems such as ZFS and btrfs do later",
        ))
        .only(Access::Mount),
    Row::new(
        "NodeGetVolumeStats returns a normal volume_condition for a published volume",
        spec::STATS_CONDITION,
        case!(condition),
    )
    .also(&[spec::CONDITION_MESSAGE, spec::CONDITION_NORMAL])
    .needs(&[STATS, CREATE, Need::Node(NodeType::VolumeCondition), MOUNTS]),
];

fn request(f: &Fixture, placed: &VolumeOnNode) -> NodeGetVolumeStatsRequest {
    let at = f.publish_request(placed);
    NodeGetVolumeStatsRequest {
        volume_id: at.volume_id,
        volume_path: at.target_path,
        staging_target_path: at.staging_target_path,
    }
}

/// The statistics of a published volume.
async fn usages(f: &Fixture, placed: &VolumeOnNode) -> Result<Vec<VolumeUsage>> {
    let stats = f.node_get_volume_stats(request(f, placed)).await.works("NodeGetVolumeStats")?;
    Ok(stats.usage)
}

/// The same, for the rows that do not report that the call fails.
async fn readable(f: &Fixture, placed: &VolumeOnNode) -> Result<Vec<VolumeUsage>> {
    usages(f, placed).await.map_err(|_| {
        skip(
            "NodeGetVolumeStats of a published volume fails: see node_stats::NodeGetVolumeStats returns \
             consistent usage",
        )
    })
}

/// The statistics in bytes. "This field is OPTIONAL", and a driver may count inodes only.
async fn bytes(f: &Fixture, placed: &VolumeOnNode) -> Result<Option<VolumeUsage>> {
    let usage = readable(f, placed).await?.into_iter().find(|usage| usage.unit == Unit::Bytes as i32);
    if usage.is_none() {
        no_bytes(f);
    }
    Ok(usage)
}

fn no_bytes(f: &Fixture) {
    f.warn("NodeGetVolumeStats returns no usage in bytes: the kubelet reports no capacity of its volumes");
}

/// Checks what the specification requires of each usage.
fn valid(usage: &VolumeUsage) -> Result<()> {
    let VolumeUsage { available, total, used, unit } = *usage;
    let unit = Unit::try_from(unit).ok().filter(|unit| *unit != Unit::Unknown);
    let Some(unit) = unit.map(|unit| unit.as_str_name()) else {
        return Err(breaking(anyhow!("NodeGetVolumeStats returns a usage without a unit"), spec::STATS_UNIT));
    };
    ensure!(
        total >= 0 && available >= 0 && used >= 0,
        "NodeGetVolumeStats returns a total of {total} {unit}, {available} available and {used} used"
    );
    Ok(())
}

/// Warns about totals that are the largest number: file systems without a limit of inodes have no such total, and alerts
/// compute with it.
fn unlimited(f: &Fixture, usages: &[VolumeUsage]) {
    for usage in usages.iter().filter(|usage| usage.total == i64::MAX) {
        let unit = Unit::try_from(usage.unit).unwrap_or_default().as_str_name();
        f.warn(format!(
            "NodeGetVolumeStats returns a total of 2^63-1 {unit}, which the kubelet reports as that of the volume: an \
             unknown total is omitted with its usage"
        ));
    }
}

async fn not_negative(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    // Another row reports a usage without a unit.
    let usages = readable(f, &placed).await?;
    usages.iter().filter(|usage| usage.unit != Unit::Unknown as i32).try_for_each(valid)
}

async fn no_volume(f: &Fixture) -> Result<()> {
    let request = NodeGetVolumeStatsRequest { volume_id: String::new(), ..request(f, &f.up().await?) };
    f.node_get_volume_stats(request).await.refused("NodeGetVolumeStats without a volume_id", INVALID)
}

async fn no_path(f: &Fixture) -> Result<()> {
    let request = NodeGetVolumeStatsRequest { volume_path: String::new(), ..request(f, &f.up().await?) };
    f.node_get_volume_stats(request).await.refused("NodeGetVolumeStats without a volume_path", INVALID)
}

/// "This field is OPTIONAL": the path of the volume is enough.
async fn no_staging(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    // Another row reports that the call fails.
    readable(f, &placed).await?;
    let request = NodeGetVolumeStatsRequest { staging_target_path: String::new(), ..request(f, &placed) };
    f.node_get_volume_stats(request).await.works("NodeGetVolumeStats without a staging_target_path")?;
    Ok(())
}

/// The kubelet asks at the target of each pod.
async fn two_targets(f: &Fixture) -> Result<()> {
    let one = multi_writer(f).await?;
    // Another row reports that the call fails with one target.
    readable(f, &one).await?;
    let other = f.with_other_target(&one).await?;
    publish_multi(f, &other, false).await?;
    for (target, placed) in [("first", &one), ("second", &other)] {
        let stats = f.node_get_volume_stats(request(f, placed)).await;
        stats.works(&format!("NodeGetVolumeStats at the {target} of two targets"))?;
    }
    Ok(())
}

async fn unknown(f: &Fixture) -> Result<()> {
    let volume_path = text(&f.target_root().join(f.unique()).join("mount"));
    let nowhere =
        NodeGetVolumeStatsRequest { volume_id: f.unknown_volume(), volume_path, ..Default::default() };
    let answer = f.node_get_volume_stats(nowhere).await;
    answer.refused("NodeGetVolumeStats of a volume that does not exist", NOT_FOUND)?;
    if !f.has(CREATE) {
        return Ok(());
    }
    // A driver that ignores the id finds nothing at a path that does not exist, and another volume at this one.
    let request = NodeGetVolumeStatsRequest { volume_id: f.unknown_volume(), ..request(f, &f.up().await?) };
    let answer = f.node_get_volume_stats(request).await;
    answer.refused(
        "NodeGetVolumeStats of a volume that does not exist, at the path of another volume,",
        NOT_FOUND,
    )
}

async fn elsewhere(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let elsewhere = text(&f.target_root().join(f.unique()).join("mount"));
    let nowhere = NodeGetVolumeStatsRequest { volume_path: elsewhere, ..request(f, &placed) };
    let answer = f.node_get_volume_stats(nowhere).await;
    answer.refused("NodeGetVolumeStats at a path without the volume", NOT_FOUND)?;
    f.unpublish(&placed).await?;
    let answer = f.node_get_volume_stats(request(f, &placed)).await;
    let gone = answer.refused("NodeGetVolumeStats at the target of a NodeUnpublishVolume", NOT_FOUND);
    // At a target that remains there may be something else.
    gone.map_err(|error| f.or_reported(Effect::UnpublishUnmounts, error))
}

async fn others(f: &Fixture) -> Result<()> {
    let (one, other) = (f.up().await?, f.up().await?);
    let request = NodeGetVolumeStatsRequest { volume_path: text(&other.target), ..request(f, &one) };
    let answer = f.node_get_volume_stats(request).await;
    answer.refused("NodeGetVolumeStats at the path of another volume", NOT_FOUND)
}

async fn adds_up(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let usages = usages(f, &placed).await?;
    usages.iter().try_for_each(valid).breaks(spec::STATS_SIGN)?;
    unlimited(f, &usages);
    let of = |unit: Unit| usages.iter().find(|usage| usage.unit == unit as i32);
    if let Some(VolumeUsage { available, total, used, .. }) = of(Unit::Bytes) {
        ensure!(*total > 0, "NodeGetVolumeStats returns a total of {total} bytes");
        ensure!(
            used <= total && available <= total,
            "NodeGetVolumeStats returns more than the total {total}: available {available}, used {used}"
        );
        ensure!(
            used.saturating_add(*available) <= *total,
            "NodeGetVolumeStats returns {used} used and {available} available bytes, together more than the total {total}"
        );
    } else {
        no_bytes(f);
    }
    if let Some(inodes) = of(Unit::Inodes) {
        ensure!(
            inodes.used <= inodes.total,
            "NodeGetVolumeStats returns {} inodes, of which {} are used",
            inodes.total,
            inodes.used
        );
        ensure!(
            inodes.total == 0 || inodes.available <= inodes.total,
            "NodeGetVolumeStats returns {} inodes, of which {} are available",
            inodes.total,
            inodes.available
        );
    }
    Ok(())
}

async fn expanded(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    if !f.sizes_are_real(&placed).await? {
        return Err(skip("volumes share a file system, of which the size does not change"));
    }
    let Some(before) = bytes(f, &placed).await? else { return Ok(()) };
    let seen = f.bytes(&placed).await?;
    grow(f, &placed, &placed.target).await?;
    if f.bytes(&placed).await? <= seen {
        return Err(skip(
            "the workload does not see the new size: see node_expand::NodeExpandVolume makes the new size visible to \
             the workload",
        ));
    }
    let Some(after) = bytes(f, &placed).await? else { return Ok(()) };
    let now = f.bytes(&placed).await?;
    ensure!(
        after.total > before.total && after.total.unsigned_abs().abs_diff(now) <= now / 10,
        "NodeGetVolumeStats returned a total of {} bytes before NodeExpandVolume, and {} after it, but the volume then \
         has {now}",
        before.total,
        after.total
    );
    Ok(())
}

async fn this_volume(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let Some(usage) = bytes(f, &placed).await? else { return Ok(()) };
    let (total, seen) = (usage.total.unsigned_abs(), f.bytes(&placed).await?);
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
        return Err(skip("volumes share a file system: other cases write to it at the same time"));
    }
    let Some(before) = bytes(f, &placed).await? else { return Ok(()) };
    let held = used_at(&placed)?;
    for place in 0..8 {
        f.write(&placed, place, "counted").await?;
    }
    let (written, limit, mut pause) = (8 * PLACE as i64, Instant::now() + ACCOUNTED, PAUSES.0);
    loop {
        let Some(after) = bytes(f, &placed).await? else { return Ok(()) };
        // "This field is OPTIONAL": data was written, so that zero is not a number of bytes.
        if (before.used, after.used) == (0, 0) {
            f.warn("NodeGetVolumeStats returns no used bytes: the kubelet reports the volume as empty");
            return Ok(());
        }
        let more = after.used.saturating_sub(before.used);
        let fewer = before.available.saturating_sub(after.available);
        // "This field is OPTIONAL" holds for the available ones, too.
        if more >= written / 2 && (before.available == 0 || fewer >= written / 2) {
            let shown = used_at(&placed)?.saturating_sub(held).max(written);
            ensure!(
                more / 3 <= shown / 2,
                "{written} bytes were written, of which the file system counts {shown}, but NodeGetVolumeStats counts \
                 {more} more as used than before"
            );
            return Ok(());
        }
        if Instant::now() > limit {
            let shown = used_at(&placed)?.saturating_sub(held);
            let text = format!(
                "{written} bytes were written, of which the file system counts {shown}, but NodeGetVolumeStats counts \
                 {more} more as used and {fewer} fewer as available than before after {} s",
                ACCOUNTED.as_secs()
            );
            ensure!(shown < written / 2, text);
            // The specification requires no moment at which a file system accounts for what it holds.
            f.warn(text);
            return Ok(());
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// The used bytes of the file system of a published volume, as the node counts them.
fn used_at(placed: &VolumeOnNode) -> Result<i64> {
    let stat = rustix::fs::statvfs(&placed.target).context("cannot read the published file system")?;
    Ok((stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize).cast_signed())
}

async fn condition(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let stats = f.node_get_volume_stats(request(f, &placed)).await.works("NodeGetVolumeStats")?;
    healthy(stats.volume_condition, "NodeGetVolumeStats", "the volume")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_has_a_unit_and_no_negative_numbers() {
        let usage = |unit: Unit, total, used| VolumeUsage { unit: unit.into(), total, used, available: 0 };
        valid(&usage(Unit::Inodes, 0, 0)).unwrap();
        valid(&usage(Unit::Unknown, 1, 0)).unwrap_err();
        for (total, used) in [(-1, 0), (1, -1)] {
            let error = valid(&usage(Unit::Bytes, total, used)).unwrap_err().to_string();
            assert!(error.contains("BYTES"), "{error}");
        }
    }
}
