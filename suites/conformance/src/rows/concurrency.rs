//! Concurrent calls: each call with itself, and with its opposite. `Aborted` ("operation pending") is allowed; the
//! final state must be one that sequential calls could produce.

use anyhow::{Result, bail, ensure};
use claimcheck_csi::{
    Code, Status,
    v1::{Volume, volume_capability::access_mode::Mode},
};
use tokio::time::{Duration, Instant, sleep};

use super::{
    ATTACH, ATTACH_AGAIN, CLONE, CLONES, CREATE, CREATE_AGAIN, DELETE_AGAIN, EXPAND, EXPANDS, GROUPS, LIST,
    MODIFY, MOUNTS, NODE_EXPAND, PERSISTS, PUBLISH_AGAIN, PUBLISH_AT_ONCE, RESTORES, SNAPSHOT,
    SNAPSHOTS_AT_ONCE, STAGE, STAGE_AGAIN, UNMOUNTS, UNPUBLISH_AGAIN, UNSTAGE_AGAIN, UNSTAGES, case,
    controller_delete::{must_be_deleted, with_text},
    controller_list,
    node_publish::{MULTI_WRITER, multi_writer_request, placed_for},
};
use crate::{
    alone::Alone,
    case::Row,
    effect::Effect,
    expect::{Answer, NOT_FOUND, raced, same, status_text},
    fixture::{Fixture, Step, VolumeOnNode, from_snapshot, from_volume},
    need::Need,
    spec,
};

/// The number of concurrent calls.
const CROWD: usize = 8;
/// Maximum number of retries of a call that returns an error other than Aborted, and the first and the last delay: it
/// doubles.
const RETRIES: (u32, Duration, Duration) = (11, Duration::from_millis(5), Duration::from_millis(500));

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "concurrent CreateVolume calls with one name create one volume",
        spec::CONCURRENT,
        case!(create),
    )
    .needs(&[CREATE, CREATE_AGAIN, MOUNTS, PERSISTS])
    .alone(Alone::ListsAll)
    .each(),
    Row::new(
        "concurrent CreateVolume calls with different names create different volumes",
        spec::CONCURRENT,
        case!(create_many),
    )
    .needs(&[CREATE, MOUNTS, PERSISTS]),
    Row::new("concurrent DeleteVolume calls delete the volume", spec::CONCURRENT, case!(delete))
        .needs(&[CREATE, DELETE_AGAIN]),
    Row::new(
        "concurrent CreateVolume and DeleteVolume calls leave a usable volume or none",
        spec::CONCURRENT,
        case!(create_delete),
    )
    .needs(&[CREATE, CREATE_AGAIN, DELETE_AGAIN, MOUNTS, PERSISTS]),
    Row::new(
        "concurrent ControllerPublishVolume calls return the same publish_context",
        spec::CONCURRENT,
        case!(attach),
    )
    .needs(&[CREATE, ATTACH, ATTACH_AGAIN]),
    Row::new(
        "concurrent ControllerPublishVolume calls for two nodes attach a volume to one of them",
        spec::ATTACH_ELSEWHERE,
        case!(attach_to_two),
    )
    .also(&[spec::CONCURRENT])
    .needs(&[CREATE, ATTACH, Need::SecondNode]),
    Row::new("concurrent ControllerUnpublishVolume calls detach the volume", spec::CONCURRENT, case!(detach))
        .needs(&[CREATE, ATTACH]),
    Row::new(
        "concurrent ControllerPublishVolume and ControllerUnpublishVolume calls leave a valid state",
        spec::CONCURRENT,
        case!(attach_detach),
    )
    .needs(&[CREATE, ATTACH, ATTACH_AGAIN]),
    Row::new(
        "concurrent ControllerPublishVolume and DeleteVolume calls do not both succeed",
        spec::CONCURRENT,
        case!(attach_delete),
    )
    .needs(&[CREATE, ATTACH]),
    Row::new("concurrent NodeStageVolume calls mount the volume once", spec::CONCURRENT, case!(stage))
        .needs(&[CREATE, STAGE, STAGE_AGAIN, MOUNTS, PERSISTS])
        .each(),
    Row::new("concurrent NodeUnstageVolume calls unmount the volume", spec::CONCURRENT, case!(unstage))
        .needs(&[CREATE, STAGE, UNSTAGE_AGAIN, UNSTAGES])
        .each(),
    Row::new(
        "concurrent NodeStageVolume and NodeUnstageVolume calls leave a valid state",
        spec::CONCURRENT,
        case!(stage_unstage),
    )
    .needs(&[CREATE, STAGE, STAGE_AGAIN, UNSTAGE_AGAIN, MOUNTS, PERSISTS])
    .each(),
    Row::new("concurrent NodePublishVolume calls mount the volume once", spec::CONCURRENT, case!(publish))
        .needs(&[CREATE, MOUNTS, PERSISTS, PUBLISH_AGAIN])
        .establishes(&[Effect::PublishAtOnce])
        .each(),
    Row::new(
        "concurrent NodePublishVolume calls at two targets publish the volume at both",
        spec::CONCURRENT,
        case!(publish_at_two),
    )
    .needs(&[CREATE, Need::Files, MULTI_WRITER, MOUNTS])
    .each(),
    Row::new("concurrent NodeUnpublishVolume calls unmount the volume", spec::CONCURRENT, case!(unpublish))
        .needs(&[CREATE, UNPUBLISH_AGAIN, UNMOUNTS])
        .each(),
    Row::new(
        "concurrent NodePublishVolume and NodeUnpublishVolume calls leave a valid state",
        spec::CONCURRENT,
        case!(publish_unpublish),
    )
    .needs(&[CREATE, MOUNTS, PERSISTS, PUBLISH_AGAIN, UNPUBLISH_AGAIN, PUBLISH_AT_ONCE])
    .each(),
    Row::new("concurrent ControllerExpandVolume calls return the same size", spec::CONCURRENT, case!(expand))
        .needs(&[CREATE, EXPAND]),
    Row::new(
        "concurrent ControllerExpandVolume and DeleteVolume calls delete the volume",
        spec::CONCURRENT,
        case!(expand_delete),
    )
    .needs(&[CREATE, EXPAND, DELETE_AGAIN]),
    Row::new("concurrent NodeExpandVolume calls succeed", spec::CONCURRENT, case!(node_expand))
        .needs(&[CREATE, EXPAND, NODE_EXPAND, Need::ONLINE_EXPANSION, EXPANDS, MOUNTS])
        .each(),
    Row::new("concurrent ControllerModifyVolume calls succeed", spec::CONCURRENT, case!(modify)).needs(&[
        CREATE,
        MODIFY,
        Need::MutableParameters,
    ]),
    Row::new(
        "concurrent CreateSnapshot calls with one name create one snapshot",
        spec::CONCURRENT,
        case!(snapshot),
    )
    .needs(&[CREATE, SNAPSHOT])
    .establishes(&[Effect::SnapshotsAtOnce]),
    Row::new("concurrent DeleteSnapshot calls delete the snapshot", spec::CONCURRENT, case!(delete_snapshot))
        .needs(&[CREATE, SNAPSHOT, SNAPSHOTS_AT_ONCE]),
    Row::new(
        "concurrent CreateSnapshot and DeleteSnapshot calls leave a usable snapshot or none",
        spec::CONCURRENT,
        case!(snapshot_undo),
    )
    .needs(&[CREATE, SNAPSHOT, SNAPSHOTS_AT_ONCE, RESTORES, MOUNTS, PERSISTS]),
    Row::new(
        "concurrent CreateSnapshot and DeleteVolume calls leave a usable snapshot or none",
        spec::CONCURRENT,
        case!(snapshot_source),
    )
    .needs(&[CREATE, SNAPSHOT, SNAPSHOTS_AT_ONCE, RESTORES, MOUNTS, PERSISTS]),
    Row::new(
        "concurrent CreateVolume and DeleteVolume calls of a source leave a usable clone or none",
        spec::CONCURRENT,
        case!(clone_source),
    )
    .needs(&[CREATE, CLONE, CLONES, MOUNTS, PERSISTS]),
    Row::new(
        "concurrent CreateVolumeGroupSnapshot calls with one name create one group",
        spec::CONCURRENT,
        case!(group),
    )
    .needs(&[CREATE, GROUPS]),
    Row::new(
        "concurrent DeleteVolumeGroupSnapshot calls delete the group",
        spec::CONCURRENT,
        case!(delete_group),
    )
    .needs(&[CREATE, GROUPS]),
    Row::new("concurrent full publishes of many volumes succeed", spec::CONCURRENT, case!(many_up))
        .needs(&[CREATE])
        .alone(Alone::AttachesMany),
];

/// Starts this many concurrent calls, and waits for all of them.
pub(super) async fn at_once<F: Future>(count: usize, call: impl Fn() -> F) -> Vec<F::Output> {
    together((0..count).map(|_| call()).collect()).await
}

/// Polls all futures until each is done.
async fn together<F: Future>(calls: Vec<F>) -> Vec<F::Output> {
    let mut calls: Vec<_> = calls.into_iter().map(|call| (Box::pin(call), None)).collect();
    std::future::poll_fn(|context| {
        for (call, output) in &mut calls {
            if output.is_none()
                && let std::task::Poll::Ready(done) = call.as_mut().poll(context)
            {
                *output = Some(done);
            }
        }
        if calls.iter().all(|(_, output)| output.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    calls.into_iter().filter_map(|(_, output)| output).collect()
}

/// Retries a call until it returns OK, as a caller that lost a response does; with a limit. While an operation is
/// pending, `Aborted` is expected, for as long as a call may take, and any other code is a warning.
pub(super) async fn settled<T, F>(f: &Fixture, call: impl Fn() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let (mut pause, mut odd, mut retries) = (RETRIES.1, None, 0);
    let limit = Instant::now() + f.config().call_limit();
    loop {
        match call().await {
            Err(status) if status.code() == Code::Aborted && Instant::now() < limit => sleep(pause).await,
            Err(status) if status.code() != Code::Aborted && retries < f.attempts(&status, RETRIES.0) => {
                (odd, retries) = (Some(status), retries + 1);
                sleep(pause).await;
            }
            answer => {
                if let Some(status) = answer.as_ref().err().filter(|_| retries == RETRIES.0) {
                    f.persists(status);
                }
                if let Some(odd) = odd.filter(|_| answer.is_ok()) {
                    f.warn(format!(
                        "a call that succeeded after retries first returned {}",
                        status_text(&odd)
                    ));
                }
                return answer;
            }
        }
        pause = (pause * 2).min(RETRIES.2);
    }
}

/// The text of volumes before the calls of a case.
const TEXT: &str = "before concurrent calls";
/// The number of attempts of a race: it may not take place in each.
const ROUNDS: usize = 2;

/// Checks that a published volume is mounted once and contains its text, and that what is written to it is in the volume:
/// it is published again before it is read. Then withdraws it.
pub(super) async fn is_usable(f: &Fixture, placed: &VolumeOnNode, text: &str, what: &str) -> Result<()> {
    const NEW: &str = "written in the end";
    if !f.writes() {
        return f.withdraw(placed).await;
    }
    f.must_be_mounted_once(placed, what)?;
    f.must_hold(placed, 0, text, what).await?;
    f.write(placed, 1, NEW).await?;
    let placed = f.withdrawn_and_published(placed).await?;
    f.must_hold(&placed, 0, text, &format!("{what}, once it is published again")).await?;
    f.must_hold(&placed, 1, NEW, &format!("{what}, once it is published again after a write")).await?;
    f.withdraw(&placed).await
}

/// Checks that a volume contains a text, where data can be checked; in any case that it can be published.
async fn contains(f: &Fixture, volume: Volume, text: &str, what: &str) -> Result<()> {
    let placed = f.publish_all(volume).await?;
    if f.writes() {
        f.must_hold(&placed, 0, text, what).await?;
    }
    f.withdraw(&placed).await
}

/// A new volume that contains [`TEXT`], attached.
pub(super) async fn attached_with_text(f: &Fixture, text: &str) -> Result<VolumeOnNode> {
    let mut placed = f.place(with_text(f, f.volume().await?, text).await?).await?;
    f.attach(&mut placed).await?;
    Ok(placed)
}

/// A volume that no call returned is in lists only. Others may create volumes in the same storage meanwhile, so that only what
/// is there after each of two attempts counts.
async fn create(f: &Fixture) -> Result<()> {
    let mut added = Ok(());
    for _ in 0..2 {
        let request = f.create_request();
        let before = listed(f).await?;
        let calls = at_once(CROWD, || f.create_volume(request.clone())).await;
        let ids = raced(f, "CreateVolume", calls, &[])?.into_iter();
        let ids = ids.map(|made| made.volume.unwrap_or_default().volume_id);
        let id = same("the volume_ids from concurrent CreateVolume calls with one name", ids)?;
        let volume = settled(f, || f.create_volume(request.clone())).await;
        let volume = volume.works("CreateVolume after concurrent calls")?.volume.unwrap_or_default();
        ensure!(
            volume.volume_id == id,
            "concurrent CreateVolume calls returned volume {id:?}, and the next call with that name {:?}",
            volume.volume_id
        );
        contains(f, with_text(f, volume, TEXT).await?, TEXT, "after concurrent CreateVolume calls").await?;
        added =
            must_add(f, &before, &id, &format!("{CROWD} concurrent CreateVolume calls with one name")).await;
        if added.is_ok() {
            break;
        }
    }
    added
}

/// The ids of all volumes; none, if the driver does not list them.
pub(super) async fn listed(f: &Fixture) -> Result<Vec<String>> {
    if f.has(LIST) { Ok(controller_list::ids(&controller_list::all(f, 0).await?)) } else { Ok(Vec::new()) }
}

/// Checks that of all volumes only this one is new, for a case that runs alone: what no call returned is never deleted.
pub(super) async fn must_add(f: &Fixture, before: &[String], id: &str, what: &str) -> Result<()> {
    let mut leaked = listed(f).await?;
    leaked.retain(|found| found != id && !before.contains(found));
    ensure!(leaked.is_empty(), "{what} created further volumes, which no call returned: {leaked:?}");
    Ok(())
}

async fn create_many(f: &Fixture) -> Result<()> {
    let requests: Vec<_> = (0..CROWD).map(|_| f.create_request()).collect();
    let calls = requests.iter().map(|request| settled(f, || f.create_volume(request.clone()))).collect();
    let mut volumes = Vec::new();
    for made in together(calls).await {
        volumes.push(made.works("one of several concurrent CreateVolume calls with different names")?);
    }
    let volumes: Vec<Volume> = volumes.into_iter().filter_map(|made| made.volume).collect();
    let ids: std::collections::BTreeSet<_> = volumes.iter().map(|volume| &volume.volume_id).collect();
    ensure!(
        ids.len() == CROWD,
        "{CROWD} volumes with different names, created concurrently, have {} distinct ids",
        ids.len()
    );
    // Two ids may still be one volume.
    for volume in &volumes {
        with_text(f, volume.clone(), &volume.volume_id).await?;
    }
    for volume in volumes {
        let text = volume.volume_id.clone();
        contains(f, volume, &text, "in one of several volumes that were created concurrently").await?;
    }
    Ok(())
}

async fn check_deleted(f: &Fixture, volume: &str) -> Result<()> {
    settled(f, || f.delete_volume(f.delete_request(volume)))
        .await
        .works("DeleteVolume after concurrent calls")?;
    Ok(())
}

async fn delete(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let id = &volume.volume_id;
    raced(f, "DeleteVolume", at_once(CROWD, || f.delete_volume(f.delete_request(id))).await, &[])?;
    check_deleted(f, id).await?;
    must_be_deleted(f, &volume, "after concurrent DeleteVolume calls").await
}

async fn create_delete(f: &Fixture) -> Result<()> {
    let what = "after concurrent CreateVolume and DeleteVolume calls";
    for _ in 0..ROUNDS {
        let request = f.create_request();
        let volume = with_text(f, f.make(request.clone()).await?, TEXT).await?;
        let id = &volume.volume_id;
        let (made, deleted) =
            tokio::join!(f.create_volume(request.clone()), f.delete_volume(f.delete_request(id)));
        let is_deleted = deleted.is_ok();
        raced(f, "CreateVolume and DeleteVolume", vec![made.map(drop), deleted.map(drop)], &[])?;
        // In either order, the name can be created, and its volume can be used.
        let made = settled(f, || f.create_volume(request.clone())).await;
        let again = made.works("CreateVolume after concurrent calls")?.volume.unwrap_or_default();
        // A volume that was not deleted is the same one.
        let again = if is_deleted { with_text(f, again, TEXT).await? } else { again };
        contains(f, again, TEXT, what).await?;
    }
    Ok(())
}

async fn attach(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Attach)?;
    let request = f.attach_request(&f.volume().await?, f.access());
    let calls = at_once(CROWD, || f.controller_publish_volume(request.clone())).await;
    let contexts = raced(f, "ControllerPublishVolume", calls, &[])?.into_iter().map(|it| it.publish_context);
    same("the publish_contexts from concurrent ControllerPublishVolume calls", contexts)?;
    Ok(())
}

/// The scheduler may place two pods of a claim at once.
async fn attach_to_two(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Attach)?;
    f.must_be_single_node()?;
    for _ in 0..ROUNDS {
        let volume = f.volume().await?;
        f.must_reach_second(&volume)?;
        let (first, second) = tokio::join!(
            f.controller_publish_volume(f.attach_request(&volume, f.access())),
            f.controller_publish_volume(f.attach_request_of_second(&volume))
        );
        if first.is_ok() && second.is_ok() {
            f.skip_if_second_node_is_accepted().await?;
            bail!(
                "concurrent ControllerPublishVolume calls attached volume {:?} to two nodes",
                volume.volume_id
            );
        }
        raced(f, "ControllerPublishVolume", vec![first, second], &[Code::FailedPrecondition])?;
    }
    Ok(())
}

async fn detach(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let request = f.detach_request(placed.id(), &f.node_info().node_id);
    let calls = at_once(CROWD, || f.controller_unpublish_volume(request.clone())).await;
    raced(f, "ControllerUnpublishVolume", calls, &[])?;
    f.must_be_detached(&placed.volume, "after concurrent ControllerUnpublishVolume calls").await?;
    check_deleted(f, placed.id()).await
}

async fn attach_detach(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Attach)?;
    let volume = f.volume().await?;
    let attach = f.attach_request(&volume, f.access());
    let detach = f.detach_request(&volume.volume_id, &attach.node_id);
    for _ in 0..CROWD / 2 {
        let (up, down) = tokio::join!(
            f.controller_publish_volume(attach.clone()),
            f.controller_unpublish_volume(detach.clone())
        );
        raced(
            f,
            "ControllerPublishVolume and ControllerUnpublishVolume",
            vec![up.map(drop), down.map(drop)],
            &[],
        )?;
    }
    let down = settled(f, || f.controller_unpublish_volume(detach.clone())).await;
    down.works("ControllerUnpublishVolume after concurrent calls")?;
    let what = "after concurrent ControllerPublishVolume and ControllerUnpublishVolume calls";
    f.must_be_detached(&volume, what).await?;
    check_deleted(f, &volume.volume_id).await
}

async fn attach_delete(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Attach)?;
    let volume = f.volume().await?;
    let attach = f.attach_request(&volume, f.access());
    let (up, deleted) = tokio::join!(
        f.controller_publish_volume(attach.clone()),
        f.delete_volume(f.delete_request(&volume.volume_id))
    );
    let both = up.is_ok() && deleted.is_ok();
    if both {
        f.skip_if_attached_is_deletable().await?;
    }
    let answers = vec![up.map(drop), deleted.map(drop)];
    raced(
        f,
        "ControllerPublishVolume and DeleteVolume",
        answers,
        &[Code::NotFound, Code::FailedPrecondition],
    )?;
    ensure!(!both, "concurrent ControllerPublishVolume and DeleteVolume of a volume both returned OK");
    Ok(())
}

async fn stage(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Stage)?;
    let placed = attached_with_text(f, TEXT).await?;
    raced(f, "NodeStageVolume", at_once(CROWD, || f.node_stage_volume(f.stage_request(&placed))).await, &[])?;
    if let Some(staging) = placed.staging.as_deref().filter(|_| f.has(Need::Files)) {
        let mounts = f.mounts_at(staging)?;
        ensure!(mounts <= 1, "after concurrent NodeStageVolume calls the volume is mounted {mounts} times");
    }
    f.publish(&placed).await?;
    is_usable(f, &placed, TEXT, "after concurrent NodeStageVolume calls").await
}

async fn unstage(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    raced(
        f,
        "NodeUnstageVolume",
        at_once(CROWD, || f.node_unstage_volume(f.unstage_request(&placed))).await,
        &[],
    )?;
    let down = settled(f, || f.node_unstage_volume(f.unstage_request(&placed))).await;
    down.works("NodeUnstageVolume after concurrent calls")?;
    let left = f.mounts_below(&f.staging_root());
    ensure!(left.is_empty(), "after concurrent NodeUnstageVolume calls these mounts remain: {left:?}");
    Ok(())
}

async fn stage_unstage(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Stage)?;
    let placed = attached_with_text(f, TEXT).await?;
    for _ in 0..CROWD / 2 {
        let (up, down) = tokio::join!(
            f.node_stage_volume(f.stage_request(&placed)),
            f.node_unstage_volume(f.unstage_request(&placed))
        );
        raced(f, "NodeStageVolume and NodeUnstageVolume", vec![up.map(drop), down.map(drop)], &[])?;
        f.restore_staging(&placed).await?;
    }
    settled(f, || f.node_stage_volume(f.stage_request(&placed)))
        .await
        .works("NodeStageVolume after concurrent calls")?;
    f.publish(&placed).await?;
    is_usable(f, &placed, TEXT, "after concurrent NodeStageVolume and NodeUnstageVolume calls").await
}

async fn publish(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Publish)?;
    let placed = attached_with_text(f, TEXT).await?;
    f.stage(&placed).await?;
    raced(
        f,
        "NodePublishVolume",
        at_once(CROWD, || f.node_publish_volume(f.publish_request(&placed))).await,
        &[],
    )?;
    is_usable(f, &placed, TEXT, "after concurrent NodePublishVolume calls").await
}

/// As for two pods that start at once. A call that was pending is repeated, the others are not.
async fn publish_at_two(f: &Fixture) -> Result<()> {
    const TEXT: &str = "seen from both targets";
    let one = placed_for(f, Mode::SingleNodeMultiWriter, "multi-writer").await?;
    let other = f.with_other_target(&one).await?;
    let publish = async |placed| f.node_publish_volume(multi_writer_request(f, placed)).await;
    let (first, second) = tokio::join!(publish(&one), publish(&other));
    let is_pending = [first.is_err(), second.is_err()];
    raced(f, "NodePublishVolume", vec![first, second], &[])?;
    let what = "after concurrent NodePublishVolume calls at two targets";
    for (placed, is_pending) in [&one, &other].into_iter().zip(is_pending) {
        if is_pending {
            settled(f, || publish(placed)).await.works("NodePublishVolume after concurrent calls")?;
        }
        f.must_be_mounted_once(placed, what)?;
    }
    f.write(&one, 0, TEXT).await?;
    f.must_hold(&other, 0, TEXT, what).await?;
    f.unpublish(&other).await?;
    f.withdraw(&one).await
}

async fn unpublish(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let calls = at_once(CROWD, || f.node_unpublish_volume(f.unpublish_request(&placed))).await;
    raced(f, "NodeUnpublishVolume", calls, NOT_FOUND)?;
    let down = settled(f, || f.node_unpublish_volume(f.unpublish_request(&placed))).await;
    down.works("NodeUnpublishVolume after concurrent calls")?;
    let left = f.mounts_below(&f.target_root());
    ensure!(left.is_empty(), "after concurrent NodeUnpublishVolume calls these mounts remain: {left:?}");
    Ok(())
}

async fn publish_unpublish(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Publish)?;
    let placed = attached_with_text(f, TEXT).await?;
    f.stage(&placed).await?;
    for _ in 0..CROWD / 2 {
        let (up, down) = tokio::join!(
            f.node_publish_volume(f.publish_request(&placed)),
            f.node_unpublish_volume(f.unpublish_request(&placed))
        );
        raced(f, "NodePublishVolume and NodeUnpublishVolume", vec![up.map(drop), down.map(drop)], NOT_FOUND)?;
    }
    let up = settled(f, || f.node_publish_volume(f.publish_request(&placed))).await;
    up.works("NodePublishVolume after concurrent calls")?;
    is_usable(f, &placed, TEXT, "after concurrent NodePublishVolume and NodeUnpublishVolume calls").await
}

async fn expand(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Expand)?;
    let volume = f.volume().await?.volume_id;
    let calls = at_once(CROWD, || f.controller_expand_volume(f.expand_request(&volume))).await;
    let sizes = raced(f, "ControllerExpandVolume", calls, &[])?.into_iter().map(|it| it.capacity_bytes);
    let size = same("the sizes from concurrent ControllerExpandVolume calls", sizes)?;
    let grown = f.config().grown();
    ensure!(size >= grown, "a volume was to be expanded to {grown} bytes, but has {size}");
    Ok(())
}

async fn expand_delete(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let (grown, deleted) = tokio::join!(
        f.controller_expand_volume(f.expand_request(&volume)),
        f.delete_volume(f.delete_request(&volume))
    );
    raced(f, "ControllerExpandVolume and DeleteVolume", vec![grown.map(drop), deleted.map(drop)], NOT_FOUND)?;
    check_deleted(f, &volume).await?;
    if f.controller_expand_volume(f.expand_request(&f.unknown_volume())).await.is_ok() {
        return Ok(());
    }
    let answer = f.controller_expand_volume(f.expand_request(&volume)).await;
    answer.refused("ControllerExpandVolume of the deleted volume", NOT_FOUND)
}

async fn node_expand(f: &Fixture) -> Result<()> {
    let placed = if f.writes() { f.up_with(TEXT).await? } else { f.up().await? };
    f.grow(placed.id()).await?;
    raced(
        f,
        "NodeExpandVolume",
        at_once(CROWD, || f.node_expand_volume(f.node_expand_request(&placed))).await,
        &[],
    )?;
    if f.writes() {
        let kept = f.must_hold_throughout(&placed, TEXT, "after concurrent NodeExpandVolume calls").await;
        kept.map_err(|error| f.unless_data_fails(error))?;
    }
    Ok(())
}

async fn modify(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let request = claimcheck_csi::v1::ControllerModifyVolumeRequest {
        volume_id: volume,
        secrets: f.config().secrets.controller_modify_volume.clone(),
        mutable_parameters: f.mutable(),
    };
    raced(
        f,
        "ControllerModifyVolume",
        at_once(CROWD, || f.controller_modify_volume(request.clone())).await,
        &[],
    )?;
    Ok(())
}

async fn snapshot(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let request = f.snapshot_request(&f.volume().await?.volume_id);
    let taken = raced(f, "CreateSnapshot", at_once(CROWD, || f.create_snapshot(request.clone())).await, &[])?;
    let ids = taken.into_iter().map(|taken| taken.snapshot.unwrap_or_default().snapshot_id);
    let id = same("the snapshot_ids from concurrent CreateSnapshot calls with one name", ids)?;
    let what = format!("{CROWD} concurrent CreateSnapshot calls with one name");
    f.must_be_only_snapshot(&request.source_volume_id, &id, &what).await
}

async fn delete_snapshot(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    let calls = at_once(CROWD, || f.delete_snapshot(f.delete_snapshot_request(&snapshot))).await;
    snapshot_answers(f, raced(f, "DeleteSnapshot", calls, &[]))?;
    must_not_restore(f, &snapshot, "after concurrent DeleteSnapshot calls").await
}

/// Checks that no volume can be created from a deleted snapshot, if the driver returns an error for one that never was.
pub(super) async fn must_not_restore(f: &Fixture, snapshot: &str, what: &str) -> Result<()> {
    let restore = async |id: &str| f.create_volume(f.create_from(from_snapshot(id))).await;
    let made = restore(snapshot).await;
    if made.is_ok() && restore(&f.unknown_snapshot()).await.is_err() {
        bail!("{what}, CreateVolume from snapshot {snapshot:?} returned OK, expected NotFound");
    }
    Ok(())
}

/// A driver that does not expect concurrent calls for a snapshot fails in each of them.
fn snapshot_answers<T>(f: &Fixture, answers: Result<T>) -> Result<T> {
    answers.map_err(|error| f.or_reported(Effect::SnapshotsAtOnce, error))
}

async fn snapshot_undo(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let source = with_text(f, f.volume().await?, TEXT).await?;
    let mut request = f.snapshot_request(&source.volume_id);
    for _ in 0..ROUNDS {
        request.name = f.name();
        let taken =
            f.create_snapshot(request.clone()).await.works("CreateSnapshot")?.snapshot.unwrap_or_default();
        let (again, deleted) = tokio::join!(
            f.create_snapshot(request.clone()),
            f.delete_snapshot(f.delete_snapshot_request(&taken.snapshot_id))
        );
        let answers = vec![again.map(drop), deleted.map(drop)];
        snapshot_answers(f, raced(f, "CreateSnapshot and DeleteSnapshot", answers, &[]))?;
        let settled = settled(f, || f.create_snapshot(request.clone())).await;
        snapshot_answers(f, settled.works("CreateSnapshot after concurrent calls"))?;
    }
    let snapshot = f.snapshot_as(request).await?;
    let restored = f.make(f.create_from(from_snapshot(&snapshot.snapshot_id))).await?;
    let what = "in a volume from a snapshot, after concurrent CreateSnapshot and DeleteSnapshot calls";
    contains(f, restored, TEXT, what).await
}

async fn snapshot_source(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    for _ in 0..ROUNDS {
        snapshot_source_once(f).await?;
    }
    Ok(())
}

async fn snapshot_source_once(f: &Fixture) -> Result<()> {
    let source = with_text(f, f.volume().await?, TEXT).await?;
    let volume = source.volume_id.clone();
    let request = f.snapshot_request(&volume);
    let repeated = request.clone();
    let (taken, deleted) =
        tokio::join!(f.create_snapshot(request), f.delete_volume(f.delete_request(&volume)));
    let snapshot = taken.as_ref().ok().and_then(|taken| taken.snapshot.clone());
    let is_deleted = deleted.is_ok();
    let answers = vec![taken.map(drop), deleted.map(drop)];
    let answers =
        raced(f, "CreateSnapshot and DeleteVolume", answers, &[Code::NotFound, Code::FailedPrecondition]);
    snapshot_answers(f, answers)?;
    if !is_deleted {
        remains(f, source, "DeleteVolume, concurrent with CreateSnapshot").await?;
    }
    if let Some(snapshot) = snapshot {
        // Only a snapshot that is ready can be restored; without its source, a driver need not report when it is.
        if !snapshot.ready_to_use && f.snapshot_as(repeated).await.is_err() {
            return Ok(());
        }
        let request = f.create_from(from_snapshot(&snapshot.snapshot_id));
        let made = settled(f, || f.create_volume(request.clone())).await;
        let what = "CreateVolume from a snapshot that was created while its source was deleted";
        contains(f, made.works(what)?.volume.unwrap_or_default(), TEXT, what).await?;
    }
    Ok(())
}

/// Checks that a volume that was not deleted contains its text. It may be published, for a snapshot.
async fn remains(f: &Fixture, source: Volume, what: &str) -> Result<()> {
    if !f.driver().known().snapshots_of_used {
        let what = format!("after {what}, which returned an error");
        contains(f, source, TEXT, &what).await?;
    }
    Ok(())
}

async fn clone_source(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Clone)?;
    for _ in 0..ROUNDS {
        clone_source_once(f).await?;
    }
    Ok(())
}

async fn clone_source_once(f: &Fixture) -> Result<()> {
    let source = with_text(f, f.volume().await?, TEXT).await?;
    let request = f.create_from(from_volume(&source.volume_id));
    let (made, deleted) =
        tokio::join!(f.create_volume(request), f.delete_volume(f.delete_request(&source.volume_id)));
    let volume = made.as_ref().ok().and_then(|made| made.volume.clone());
    let is_deleted = deleted.is_ok();
    let answers = vec![made.map(drop), deleted.map(drop)];
    raced(
        f,
        "CreateVolume from a volume and DeleteVolume",
        answers,
        &[Code::NotFound, Code::FailedPrecondition],
    )?;
    if !is_deleted {
        remains(f, source, "DeleteVolume, concurrent with CreateVolume from the volume").await?;
    }
    if let Some(volume) = volume {
        contains(f, volume, TEXT, "in a clone that was created while its source was deleted").await?;
    }
    Ok(())
}

async fn group(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Group)?;
    let sources = vec![f.volume().await?.volume_id, f.volume().await?.volume_id];
    let request = f.group_request(sources);
    let calls = at_once(CROWD, || f.create_volume_group_snapshot(request.clone())).await;
    let ids = raced(f, "CreateVolumeGroupSnapshot", calls, &[])?
        .into_iter()
        .map(|taken| taken.group_snapshot.unwrap_or_default().group_snapshot_id);
    same("the group_snapshot_ids from concurrent CreateVolumeGroupSnapshot calls with one name", ids)?;
    Ok(())
}

async fn delete_group(f: &Fixture) -> Result<()> {
    let group = f.group(vec![f.volume().await?.volume_id]).await?;
    let request = f.delete_group_request(&group);
    let calls = at_once(CROWD, || f.delete_volume_group_snapshot(request.clone())).await;
    raced(f, "DeleteVolumeGroupSnapshot", calls, &[])?;
    for member in &group.snapshots {
        must_not_restore(f, &member.snapshot_id, "after concurrent DeleteVolumeGroupSnapshot calls").await?;
    }
    Ok(())
}

async fn many_up(f: &Fixture) -> Result<()> {
    let placed = at_once(f.crowd(CROWD), || f.up()).await.into_iter().collect::<Result<Vec<_>>>()?;
    let withdrawn = together(placed.iter().map(|placed| f.withdraw(placed)).collect()).await;
    withdrawn.into_iter().collect::<Result<()>>()?;
    let delete = |placed: &VolumeOnNode| f.delete_volume(f.delete_request(placed.id()));
    for deleted in together(placed.iter().map(delete).collect()).await {
        deleted.works("DeleteVolume")?;
    }
    Ok(())
}
