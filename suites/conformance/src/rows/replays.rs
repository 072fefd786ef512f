//! Calls repeated after the driver was killed and started again: what it has answered it must still know.

use anyhow::{Result, ensure};

use super::{ATTACH, CREATE, EXPAND, GROUPS, SNAPSHOT, STAGE, case, concurrency::settled};
use crate::{
    case::{Need, Row, When},
    expect::{Answer, NOT_FOUND, skip},
    fixture::{Fixture, Step},
};

const RULE: &str = "Concurrency";

/// A row that kills the driver: alone, since it hits all others.
const fn kills(name: &'static str, run: crate::case::Run, needs: &'static [Need]) -> Row {
    Row::new(name, RULE, run).needs(needs).when(When::Alone)
}

pub(super) const ROWS: &[Row] = &[
    kills("a volume made before a restart is the same after it", case!(create), &[Need::Restart, CREATE])
        .each(),
    kills("a volume deleted before a restart stays deleted", case!(delete), &[Need::Restart, CREATE]),
    kills(
        "a volume attached before a restart is attached after it",
        case!(attach),
        &[Need::Restart, CREATE, ATTACH],
    ),
    kills(
        "a volume staged before a restart can be published after it",
        case!(stage),
        &[Need::Restart, CREATE, STAGE],
    )
    .each(),
    kills(
        "a volume published before a restart is published after it",
        case!(publish),
        &[Need::Restart, CREATE],
    )
    .each(),
    kills("a published volume goes all the way down after a restart", case!(down), &[Need::Restart, CREATE])
        .each(),
    kills(
        "a snapshot taken before a restart is the same after it",
        case!(snapshot),
        &[Need::Restart, CREATE, SNAPSHOT],
    ),
    kills(
        "a group taken before a restart is the same after it",
        case!(group),
        &[Need::Restart, CREATE, GROUPS],
    ),
    kills(
        "a volume that grew before a restart has grown after it",
        case!(expand),
        &[Need::Restart, CREATE, EXPAND],
    ),
    kills("calls killed in the middle can be repeated", case!(in_the_middle), &[Need::Restart, CREATE])
        .each(),
    kills("data survives a restart", case!(data), &[Need::Restart, CREATE, Need::Files]).each(),
];

async fn create(f: &Fixture) -> Result<()> {
    let request = f.create_request();
    let before = f.make(request.clone()).await?;
    f.restart().await?;
    let after = f.make(request).await?;
    ensure!(
        before.volume_id == after.volume_id,
        "one name made two volumes, {:?} before the driver was restarted and {:?} after",
        before.volume_id,
        after.volume_id
    );
    Ok(())
}

async fn delete(f: &Fixture) -> Result<()> {
    let placed = f.place(f.volume().await?).await?;
    f.delete_volume(f.delete_request(placed.id())).await.works("DeleteVolume")?;
    f.restart().await?;
    f.delete_volume(f.delete_request(placed.id())).await.works("DeleteVolume again, after a restart")?;
    if f.attaches() {
        let answer = f.controller_publish_volume(f.attach_request(&placed.volume, placed.access)).await;
        answer.refused("ControllerPublishVolume, after a restart, of a deleted volume", NOT_FOUND)?;
    }
    Ok(())
}

async fn attach(f: &Fixture) -> Result<()> {
    let mut placed = f.attached().await?;
    let before = placed.publish_context.clone();
    f.restart().await?;
    f.attach(&mut placed).await?;
    ensure!(
        before == placed.publish_context,
        "the publish_context of an attached volume changed with a restart"
    );
    f.stage(&placed).await?;
    f.publish(&placed).await?;
    f.lower(&placed).await
}

async fn stage(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    f.restart().await?;
    f.node_stage_volume(f.stage_request(&placed)).await.works("NodeStageVolume again, after a restart")?;
    f.publish(&placed).await?;
    f.lower(&placed).await
}

async fn publish(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let mounts = f.mounts_below(&f.target_root()).len();
    f.restart().await?;
    f.node_publish_volume(f.publish_request(&placed))
        .await
        .works("NodePublishVolume again, after a restart")?;
    let after = f.mounts_below(&f.target_root()).len();
    ensure!(mounts == after, "before a restart there were {mounts} mounts at the target, after it {after}");
    f.lower(&placed).await
}

async fn down(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.restart().await?;
    f.lower(&placed).await?;
    f.delete_volume(f.delete_request(placed.id())).await.works("DeleteVolume")?;
    Ok(())
}

async fn snapshot(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let request = f.snapshot_request(&f.volume().await?.volume_id);
    let id =
        |answer: claimcheck_csi::v1::CreateSnapshotResponse| answer.snapshot.unwrap_or_default().snapshot_id;
    let before = id(f.create_snapshot(request.clone()).await.works("CreateSnapshot")?);
    f.restart().await?;
    let after = id(f.create_snapshot(request).await.works("CreateSnapshot again, after a restart")?);
    ensure!(before == after, "one name made two snapshots, {before:?} before a restart and {after:?} after");
    Ok(())
}

async fn group(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Group)?;
    let request = f.group_request(vec![f.volume().await?.volume_id]);
    let id = |answer: claimcheck_csi::v1::CreateVolumeGroupSnapshotResponse| {
        answer.group_snapshot.unwrap_or_default().group_snapshot_id
    };
    let before =
        id(f.create_volume_group_snapshot(request.clone()).await.works("CreateVolumeGroupSnapshot")?);
    f.restart().await?;
    let after = f.create_volume_group_snapshot(request).await;
    let after = id(after.works("CreateVolumeGroupSnapshot again, after a restart")?);
    ensure!(before == after, "one name made two groups, {before:?} before a restart and {after:?} after");
    Ok(())
}

async fn expand(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let grown = f.config().grown();
    f.grow(&volume).await?;
    let mut request = f.expand_request(&volume);
    request.capacity_range = Some(f.suite().range(f.config().volume_size));
    if f.controller_expand_volume(request.clone()).await.is_ok_and(|answer| answer.capacity_bytes < grown) {
        return Err(skip(
            "volumes shrink without a restart, too: see controller_expand::growing to less than it has changes nothing",
        ));
    }
    f.restart().await?;
    let answer =
        f.controller_expand_volume(request).await.works("ControllerExpandVolume, after a restart,")?;
    ensure!(
        answer.capacity_bytes >= grown,
        "a volume grew to {grown} bytes, and after a restart it has {}",
        answer.capacity_bytes
    );
    Ok(())
}

async fn in_the_middle(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Stage)?;
    f.builds_on(Step::Publish)?;
    let request = f.create_request();
    let (_, restarted) = tokio::join!(f.create_volume(request.clone()), f.restart());
    restarted?;
    let made = settled(f, || f.create_volume(request.clone())).await;
    let volume = made.works("CreateVolume, after it was killed,")?.volume.unwrap_or_default();
    let mut placed = f.place(volume).await?;
    f.attach(&mut placed).await?;
    if placed.staging.is_some() {
        let (_, restarted) = tokio::join!(f.node_stage_volume(f.stage_request(&placed)), f.restart());
        restarted?;
        let staged = settled(f, || f.node_stage_volume(f.stage_request(&placed))).await;
        staged.works("NodeStageVolume, after it was killed,")?;
    }
    let (_, restarted) = tokio::join!(f.node_publish_volume(f.publish_request(&placed)), f.restart());
    restarted?;
    let published = settled(f, || f.node_publish_volume(f.publish_request(&placed))).await;
    published.works("NodePublishVolume, after it was killed,")?;
    if f.has(Need::Files) {
        let mounts = f.mounts_at(&placed.target)?;
        ensure!(
            mounts <= 1,
            "after the driver was killed and the calls repeated, the volume is mounted {mounts} times"
        );
    }
    f.lower(&placed).await
}

async fn data(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.write(&placed, 0, "before the restart").await?;
    f.restart().await?;
    f.must_hold(&placed, 0, "before the restart", "after a restart of the driver").await?;
    f.write(&placed, 1, "after the restart").await
}
