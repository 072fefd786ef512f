//! Calls that are cancelled or exceed their deadline, and are then retried. A caller that lost a response retries until
//! it receives one.

use std::time::Duration;

use anyhow::{Result, ensure};
use claimcheck_csi::Status;
use tokio::time::{sleep, timeout};

use super::{
    ATTACH, ATTACH_AGAIN, CREATE, CREATE_AGAIN, DELETE_AGAIN, EXPAND, EXPANDS, GROUPS, MOUNTS, NODE_EXPAND,
    PERSISTS, PUBLISH_AGAIN, PUBLISH_AT_ONCE, SNAPSHOT, STAGE, STAGE_AGAIN, UNMOUNTS, UNPUBLISH_AGAIN,
    UNSTAGE_AGAIN, UNSTAGES, case,
    concurrency::{attached_with_text, is_usable, listed, must_add, must_not_restore, settled},
    controller_delete::must_be_deleted,
};
use crate::{
    alone::Alone,
    case::Row,
    expect::Answer,
    fixture::{Fixture, Step},
    need::Need,
    spec,
};

/// Delays after which calls are cancelled: immediately, during the call, and possibly after it. On a busy machine, a call
/// may not reach the driver before the last one.
const DEADLINES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_micros(200),
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(20),
];
/// How late a driver may begin to execute a cancelled call.
pub(super) const LATE_START: Duration = Duration::from_millis(20);

pub(super) const ROWS: &[Row] = &[
    Row::new("CreateVolume cancelled and retried succeeds", spec::RETRIED, case!(create))
        .needs(&[CREATE, CREATE_AGAIN])
        .alone(Alone::ListsAll)
        .each(),
    Row::new("DeleteVolume cancelled and retried succeeds", spec::RETRIED, case!(delete))
        .needs(&[CREATE, DELETE_AGAIN]),
    Row::new("ControllerPublishVolume cancelled and retried succeeds", spec::RETRIED, case!(attach))
        .needs(&[CREATE, ATTACH, ATTACH_AGAIN]),
    Row::new("ControllerUnpublishVolume cancelled and retried succeeds", spec::RETRIED, case!(detach))
        .needs(&[CREATE, ATTACH]),
    Row::new("NodeStageVolume cancelled and retried succeeds", spec::RETRIED, case!(stage))
        .needs(&[CREATE, STAGE, STAGE_AGAIN, MOUNTS, PERSISTS])
        .each(),
    Row::new("NodeUnstageVolume cancelled and retried succeeds", spec::RETRIED, case!(unstage))
        .needs(&[CREATE, STAGE, UNSTAGE_AGAIN, UNSTAGES])
        .each(),
    Row::new("NodePublishVolume cancelled and retried succeeds", spec::RETRIED, case!(publish))
        .needs(&[CREATE, MOUNTS, PERSISTS, PUBLISH_AGAIN, PUBLISH_AT_ONCE])
        .each(),
    Row::new("NodeUnpublishVolume cancelled and retried succeeds", spec::RETRIED, case!(unpublish))
        .needs(&[CREATE, UNPUBLISH_AGAIN, UNMOUNTS])
        .each(),
    Row::new("ControllerExpandVolume cancelled and retried succeeds", spec::RETRIED, case!(expand))
        .needs(&[CREATE, EXPAND]),
    Row::new("NodeExpandVolume cancelled and retried succeeds", spec::RETRIED, case!(node_expand))
        .needs(&[CREATE, EXPAND, NODE_EXPAND, Need::ONLINE_EXPANSION, EXPANDS, MOUNTS])
        .each(),
    Row::new("CreateSnapshot cancelled and retried succeeds", spec::RETRIED, case!(snapshot))
        .needs(&[CREATE, SNAPSHOT]),
    Row::new("DeleteSnapshot cancelled and retried succeeds", spec::RETRIED, case!(delete_snapshot))
        .needs(&[CREATE, SNAPSHOT]),
    Row::new("CreateVolumeGroupSnapshot cancelled and retried succeeds", spec::RETRIED, case!(group))
        .needs(&[CREATE, GROUPS]),
    Row::new(
        "NodeUnpublishVolume after a cancelled NodePublishVolume succeeds",
        spec::RETRIED,
        case!(half_way),
    )
    .needs(&[CREATE, UNPUBLISH_AGAIN, PUBLISH_AT_ONCE])
    .each(),
];

/// The text of volumes before calls are cancelled.
const TEXT: &str = "before an interruption";

/// Cancels the call after increasing delays, then retries it until it succeeds, and none that was cancelled is in progress.
async fn interrupted<T, F>(f: &Fixture, what: &str, call: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T, Status>>,
{
    for deadline in DEADLINES {
        // The result is ignored, even if the call ends in time.
        let _ = timeout(deadline, call()).await;
    }
    let answer = settled(f, &call).await.works(&format!("{what}, cancelled and retried,"))?;
    // A driver may begin to execute a cancelled call after the one that succeeded, which then keeps the volume busy: calls
    // about it may return Aborted until the repeated one has returned OK.
    sleep(LATE_START).await;
    settled(f, call).await.works(&format!("{what}, cancelled, retried and repeated,"))?;
    Ok(answer)
}

async fn create(f: &Fixture) -> Result<()> {
    let (request, before) = (f.create_request(), listed(f).await?);
    let made = interrupted(f, "CreateVolume", || f.create_volume(request.clone())).await?;
    let again = settled(f, || f.create_volume(request.clone())).await.works("CreateVolume called again")?;
    let again = again.volume.unwrap_or_default();
    ensure!(
        made.volume.unwrap_or_default().volume_id == again.volume_id,
        "CreateVolume, cancelled and retried twice, created two volumes"
    );
    must_add(f, &before, &again.volume_id, "CreateVolume, cancelled and retried twice,").await?;
    let placed = f.publish_all(again).await?;
    f.withdraw(&placed).await
}

async fn delete(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let request = f.delete_request(&volume.volume_id);
    interrupted(f, "DeleteVolume", || f.delete_volume(request.clone())).await?;
    must_be_deleted(f, &volume, "after DeleteVolume was cancelled and retried").await
}

async fn attach(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Attach)?;
    let mut placed = f.place(f.volume().await?).await?;
    let request = f.attach_request(&placed.volume, placed.access);
    let call = || f.controller_publish_volume(request.clone());
    placed.publish_context = interrupted(f, "ControllerPublishVolume", call).await?.publish_context;
    f.stage(&placed).await?;
    f.publish(&placed).await?;
    f.withdraw(&placed).await
}

async fn detach(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let request = f.detach_request(placed.id(), &f.node_info().node_id);
    let call = || f.controller_unpublish_volume(request.clone());
    interrupted(f, "ControllerUnpublishVolume", call).await?;
    let what = "after ControllerUnpublishVolume was cancelled and retried";
    f.must_be_detached(&placed.volume, what).await?;
    f.delete_volume(f.delete_request(placed.id())).await.works("DeleteVolume")?;
    Ok(())
}

async fn stage(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Stage)?;
    let placed = attached_with_text(f, TEXT).await?;
    interrupted(f, "NodeStageVolume", || f.node_stage_volume(f.stage_request(&placed))).await?;
    if let Some(staging) = placed.staging.as_deref().filter(|_| f.has(Need::Files)) {
        let mounts = f.mounts_at(staging)?;
        ensure!(
            mounts <= 1,
            "after NodeStageVolume was cancelled and retried, the volume is mounted {mounts} times"
        );
    }
    f.publish(&placed).await?;
    is_usable(f, &placed, TEXT, "after NodeStageVolume was cancelled and retried").await
}

async fn unstage(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    interrupted(f, "NodeUnstageVolume", || f.node_unstage_volume(f.unstage_request(&placed))).await?;
    let left = f.mounts_below(&f.staging_root());
    ensure!(
        left.is_empty(),
        "after NodeUnstageVolume was cancelled and retried, these mounts remain: {left:?}"
    );
    Ok(())
}

async fn publish(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Publish)?;
    let placed = attached_with_text(f, TEXT).await?;
    f.stage(&placed).await?;
    interrupted(f, "NodePublishVolume", || f.node_publish_volume(f.publish_request(&placed))).await?;
    is_usable(f, &placed, TEXT, "after NodePublishVolume was cancelled and retried").await
}

async fn unpublish(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    interrupted(f, "NodeUnpublishVolume", || f.node_unpublish_volume(f.unpublish_request(&placed))).await?;
    let left = f.mounts_below(&f.target_root());
    ensure!(
        left.is_empty(),
        "after NodeUnpublishVolume was cancelled and retried, these mounts remain: {left:?}"
    );
    Ok(())
}

async fn expand(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Expand)?;
    let volume = f.volume().await?.volume_id;
    let call = || f.controller_expand_volume(f.expand_request(&volume));
    let (got, grown) =
        (interrupted(f, "ControllerExpandVolume", call).await?.capacity_bytes, f.config().grown());
    ensure!(got >= grown, "a volume was to be expanded to {grown} bytes, but has {got}");
    Ok(())
}

async fn node_expand(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.grow(placed.id()).await?;
    interrupted(f, "NodeExpandVolume", || f.node_expand_volume(f.node_expand_request(&placed))).await?;
    Ok(())
}

async fn snapshot(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let request = f.snapshot_request(&f.volume().await?.volume_id);
    f.publish_unused_if_required(std::slice::from_ref(&request.source_volume_id)).await;
    let taken = interrupted(f, "CreateSnapshot", || f.create_snapshot(request.clone())).await?;
    // A call that was cancelled may be executed after the one that succeeded, and keep the snapshot busy.
    let again =
        settled(f, || f.create_snapshot(request.clone())).await.works("CreateSnapshot called again")?;
    let id =
        |answer: claimcheck_csi::v1::CreateSnapshotResponse| answer.snapshot.unwrap_or_default().snapshot_id;
    let taken = id(taken);
    let what = "CreateSnapshot, cancelled and retried twice,";
    ensure!(taken == id(again), "{what} created two snapshots");
    f.must_be_only_snapshot(&request.source_volume_id, &taken, what).await
}

async fn delete_snapshot(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    let call = || f.delete_snapshot(f.delete_snapshot_request(&snapshot));
    interrupted(f, "DeleteSnapshot", call).await?;
    must_not_restore(f, &snapshot, "after DeleteSnapshot was cancelled and retried").await
}

async fn group(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Group)?;
    let request = f.group_request(vec![f.volume().await?.volume_id]);
    f.publish_unused_if_required(&request.source_volume_ids).await;
    let call = || f.create_volume_group_snapshot(request.clone());
    let taken = interrupted(f, "CreateVolumeGroupSnapshot", call).await?;
    let again = settled(f, call).await.works("CreateVolumeGroupSnapshot called again")?;
    let id = |answer: claimcheck_csi::v1::CreateVolumeGroupSnapshotResponse| {
        answer.group_snapshot.unwrap_or_default().group_snapshot_id
    };
    ensure!(
        id(taken) == id(again),
        "CreateVolumeGroupSnapshot, cancelled and retried twice, created two groups"
    );
    Ok(())
}

async fn half_way(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let _ = timeout(DEADLINES[2], f.node_publish_volume(f.publish_request(&placed))).await;
    // The driver may still be executing the call, or may begin it after the first NodeUnpublishVolume: gRPC does not
    // order concurrent calls. The second one reverts a late effect.
    for _ in 0..2 {
        let down = settled(f, || f.node_unpublish_volume(f.unpublish_request(&placed))).await;
        down.works("NodeUnpublishVolume after a cancelled NodePublishVolume")?;
        sleep(LATE_START).await;
    }
    f.withdraw(&placed).await
}
