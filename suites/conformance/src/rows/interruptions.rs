//! Calls that are cancelled or exceed their deadline, and are then retried. A caller that lost a response retries until
//! it receives one.

use std::time::Duration;

use anyhow::{Result, ensure};
use claimcheck_csi::{Status, v1::volume_content_source::Type as Source};
use tokio::time::{sleep, timeout};

use super::{
    ATTACH, ATTACH_AGAIN, CLONE, CLONE_AGAIN, CLONES, CREATE, CREATE_AGAIN, DELETE_AGAIN, EXPAND, EXPANDS,
    GROUPS, IF_MOUNTED, IF_PERSISTS, MOUNTS, NODE_EXPAND, PERSISTS, PUBLISH_AGAIN, PUBLISH_AT_ONCE, RESTORES,
    SNAPSHOT, STAGE, STAGE_AGAIN, UNMOUNTS, UNPUBLISH_AGAIN, UNSTAGE_AGAIN, UNSTAGES, case,
    concurrency::{attached_with_text, is_usable, listed, must_add, must_not_restore, settled},
    controller_delete::must_be_deleted,
    node_expand::finish,
    snapshots::{IF_RESTORES, keeps_its_text, source_with_text},
};
use crate::{
    alone::Alone,
    case::Row,
    effect::Effect,
    expect::Answer,
    fixture::{Fixture, Step, VolumeOnNode, from_snapshot, from_volume},
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
/// Cases that also compare the size of a volume, where drivers expand volumes, and create them as large as requested.
const IF_EXPANDS: Need = Need::Follows(Effect::Expands);
const IF_SIZED: Need = Need::Follows(Effect::SizeHonored);

pub(super) const ROWS: &[Row] = &[
    Row::new("CreateVolume cancelled and retried succeeds", spec::RETRIED, case!(create))
        .needs(&[CREATE, CREATE_AGAIN, IF_MOUNTED, IF_SIZED])
        .alone(Alone::ListsAll)
        .each(),
    Row::new("CreateVolume from a snapshot cancelled and retried succeeds", spec::RETRIED, case!(restore))
        .also(&[spec::RESTORE])
        .needs(&[CREATE, SNAPSHOT, Need::Files, RESTORES, CREATE_AGAIN])
        .each(),
    Row::new("CreateVolume from a volume cancelled and retried succeeds", spec::RETRIED, case!(clone))
        .also(&[spec::CLONE])
        .needs(&[CREATE, CLONE, Need::Files, CLONES, CREATE_AGAIN, CLONE_AGAIN])
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
        .needs(&[CREATE, EXPAND, IF_MOUNTED, IF_EXPANDS]),
    Row::new("NodeExpandVolume cancelled and retried succeeds", spec::RETRIED, case!(node_expand))
        .needs(&[CREATE, EXPAND, NODE_EXPAND, Need::ONLINE_EXPANSION, EXPANDS, MOUNTS])
        .each(),
    Row::new("CreateSnapshot cancelled and retried succeeds", spec::RETRIED, case!(snapshot))
        .also(&[spec::CUT])
        .needs(&[CREATE, SNAPSHOT, IF_MOUNTED, IF_PERSISTS, IF_RESTORES]),
    Row::new("DeleteSnapshot cancelled and retried succeeds", spec::RETRIED, case!(delete_snapshot))
        .needs(&[CREATE, SNAPSHOT]),
    Row::new("CreateVolumeGroupSnapshot cancelled and retried succeeds", spec::RETRIED, case!(group))
        .also(&[spec::CUT])
        .needs(&[CREATE, GROUPS, IF_MOUNTED, IF_PERSISTS, IF_RESTORES]),
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
    let what = "after CreateVolume was cancelled and retried";
    must_have_size(f, &placed, f.config().volume_size, what, Effect::SizeHonored).await?;
    f.withdraw(&placed).await
}

/// Checks the size that the workload of a volume sees, where cases can look, and volumes share no file system; `effect` is
/// what a driver lacks that has such sizes without a cancelled call.
async fn must_have_size(
    f: &Fixture,
    placed: &VolumeOnNode,
    size: i64,
    what: &str,
    effect: Effect,
) -> Result<()> {
    let has_size = async {
        // After an expansion, a file system that still has the size of before is compared, too.
        if f.has(Need::Files) && f.sizes_are_real(placed).await? {
            f.must_have_size(placed, size, what).await?;
        }
        Ok(())
    };
    has_size.await.map_err(|error| f.or_reported(effect, f.or_reported(Effect::PublishMounts, error)))
}

/// Copies take time, so that calls are cancelled in the middle of them: what was copied until then is not the whole.
async fn copy(f: &Fixture, source: Source, call: &str) -> Result<()> {
    let request = f.create_from(source);
    let made = interrupted(f, call, || f.create_volume(request.clone())).await?.volume.unwrap_or_default();
    f.must_still_hold(&made, TEXT, &format!("after {call} was cancelled and retried")).await
}

async fn restore(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.holding(TEXT).await?.volume_id).await?;
    f.builds_on(Step::Restore)?;
    copy(f, from_snapshot(&snapshot.snapshot_id), "CreateVolume from a snapshot").await
}

async fn clone(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Clone)?;
    let source = f.holding(TEXT).await?;
    copy(f, from_volume(&source.volume_id), "CreateVolume from a volume").await
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
    let volume = f.volume().await?;
    let call = || f.controller_expand_volume(f.expand_request(&volume.volume_id));
    let expanded = interrupted(f, "ControllerExpandVolume", call).await?;
    let (got, grown) = (expanded.capacity_bytes, f.config().grown());
    ensure!(got >= grown, "a volume was to be expanded to {grown} bytes, but has {got}");
    // A driver that takes a cancelled call for done returns that size, too.
    let placed = f.publish_all(volume).await?;
    finish(f, &placed, expanded.node_expansion_required).await?;
    let what = "after ControllerExpandVolume was cancelled and retried";
    must_have_size(f, &placed, grown, what, Effect::Expands).await
}

async fn node_expand(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.grow(placed.id()).await?;
    interrupted(f, "NodeExpandVolume", || f.node_expand_volume(f.node_expand_request(&placed))).await?;
    let what = "after NodeExpandVolume was cancelled and retried";
    must_have_size(f, &placed, f.config().grown(), what, Effect::Expands).await
}

async fn snapshot(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let request = f.snapshot_request(&source_with_text(f).await?.volume_id);
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
    f.must_be_only_snapshot(&request.source_volume_id, &taken, what).await?;
    let snapshot = f.snapshot_as(request).await?;
    keeps_its_text(f, &snapshot, "CreateSnapshot was cancelled and retried").await
}

async fn delete_snapshot(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    let call = || f.delete_snapshot(f.delete_snapshot_request(&snapshot));
    interrupted(f, "DeleteSnapshot", call).await?;
    must_not_restore(f, &snapshot, "after DeleteSnapshot was cancelled and retried").await
}

async fn group(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Group)?;
    let request = f.group_request(vec![source_with_text(f).await?.volume_id]);
    f.publish_unused_if_required(&request.source_volume_ids).await;
    let call = || f.create_volume_group_snapshot(request.clone());
    let taken = interrupted(f, "CreateVolumeGroupSnapshot", call).await?;
    let again = settled(f, call).await.works("CreateVolumeGroupSnapshot called again")?;
    let (taken, again) = (taken.group_snapshot.unwrap_or_default(), again.group_snapshot.unwrap_or_default());
    let what = "CreateVolumeGroupSnapshot, cancelled and retried twice,";
    ensure!(taken.group_snapshot_id == again.group_snapshot_id, "{what} created two groups");
    for member in &again.snapshots {
        f.must_be_only_snapshot(&member.source_volume_id, &member.snapshot_id, what).await?;
    }
    for member in &f.group_as(request).await?.snapshots {
        keeps_its_text(f, member, "CreateVolumeGroupSnapshot was cancelled and retried").await?;
    }
    Ok(())
}

async fn half_way(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    // On a busy machine, a driver does not receive a call that is cancelled early.
    for deadline in DEADLINES {
        let _ = timeout(deadline, f.node_publish_volume(f.publish_request(&placed))).await;
        // The driver may still be executing the call, or may begin it after the first NodeUnpublishVolume: gRPC does not
        // order concurrent calls. The second one reverts a late effect.
        for _ in 0..2 {
            let down = settled(f, || f.node_unpublish_volume(f.unpublish_request(&placed))).await;
            down.works("NodeUnpublishVolume after a cancelled NodePublishVolume")?;
            sleep(LATE_START).await;
        }
    }
    f.withdraw(&placed).await
}
