//! Calls at once: each against itself, and against its opposite. `Aborted` ("operation pending") is allowed; the
//! state in the end must be one that the calls, one after another, could have made.

use anyhow::{Result, ensure};
use claimcheck_csi::{Code, Status};
use tokio::time::{Duration, sleep};

use super::{ATTACH, CLONE, CREATE, EXPAND, GROUPS, MODIFY, NODE_EXPAND, SNAPSHOT, STAGE, case};
use crate::{
    case::{Need, Row, When},
    expect::{Answer, NOT_FOUND, raced, said, same},
    fixture::{Fixture, Step, from_volume},
};

const RULE: &str = "Concurrency";
/// So many calls at once.
const CROWD: usize = 8;
/// How often a call is asked again that is answered with Aborted, and after which pause at first; it doubles.
const RETRIES: (u32, Duration) = (8, Duration::from_millis(10));

pub(super) const ROWS: &[Row] = &[
    Row::new("one name made many times at once is one volume", RULE, case!(create)).needs(&[CREATE]).each(),
    Row::new("many names made at once are many volumes", RULE, case!(create_many)).needs(&[CREATE]),
    Row::new("a volume deleted many times at once is gone", RULE, case!(delete)).needs(&[CREATE]),
    Row::new("a volume made and deleted at once is whole or gone", RULE, case!(create_delete))
        .needs(&[CREATE]),
    Row::new("a volume attached many times at once is attached", RULE, case!(attach))
        .needs(&[CREATE, ATTACH]),
    Row::new("a volume detached many times at once is detached", RULE, case!(detach))
        .needs(&[CREATE, ATTACH]),
    Row::new("a volume attached and detached at once is either", RULE, case!(attach_detach))
        .needs(&[CREATE, ATTACH]),
    Row::new("a volume attached and deleted at once is either", RULE, case!(attach_delete))
        .needs(&[CREATE, ATTACH]),
    Row::new("a volume staged many times at once is staged once", RULE, case!(stage))
        .needs(&[CREATE, STAGE])
        .each(),
    Row::new("a volume unstaged many times at once is unstaged", RULE, case!(unstage))
        .needs(&[CREATE, STAGE])
        .each(),
    Row::new("a volume staged and unstaged at once is either", RULE, case!(stage_unstage))
        .needs(&[CREATE, STAGE])
        .each(),
    Row::new("a volume published many times at once is published once", RULE, case!(publish))
        .needs(&[CREATE])
        .each(),
    Row::new("a volume unpublished many times at once is unpublished", RULE, case!(unpublish))
        .needs(&[CREATE])
        .each(),
    Row::new("a volume published and unpublished at once is either", RULE, case!(publish_unpublish))
        .needs(&[CREATE])
        .each(),
    Row::new("a volume that grows many times at once has grown", RULE, case!(expand))
        .needs(&[CREATE, EXPAND]),
    Row::new("a volume that grows and is deleted at once is gone in the end", RULE, case!(expand_delete))
        .needs(&[CREATE, EXPAND]),
    Row::new("a volume that grows many times at once on its node has grown", RULE, case!(node_expand))
        .needs(&[CREATE, EXPAND, NODE_EXPAND, Need::ONLINE_EXPANSION])
        .each(),
    Row::new("a volume modified many times at once is modified", RULE, case!(modify)).needs(&[
        CREATE,
        MODIFY,
        Need::MutableParameters,
    ]),
    Row::new("one name snapshotted many times at once is one snapshot", RULE, case!(snapshot))
        .needs(&[CREATE, SNAPSHOT]),
    Row::new("a snapshot deleted many times at once is gone", RULE, case!(delete_snapshot))
        .needs(&[CREATE, SNAPSHOT]),
    Row::new("a snapshot taken and deleted at once is whole or gone", RULE, case!(snapshot_undo))
        .needs(&[CREATE, SNAPSHOT]),
    Row::new(
        "a snapshot taken while its source is deleted is whole or refused",
        RULE,
        case!(snapshot_source),
    )
    .needs(&[CREATE, SNAPSHOT]),
    Row::new("a clone made while its source is deleted is whole or refused", RULE, case!(clone_source))
        .needs(&[CREATE, CLONE]),
    Row::new("one group snapshotted many times at once is one group", RULE, case!(group))
        .needs(&[CREATE, GROUPS]),
    Row::new("a group deleted many times at once is gone", RULE, case!(delete_group))
        .needs(&[CREATE, GROUPS]),
    Row::new("many volumes go all the way up at once", RULE, case!(many_up))
        .needs(&[CREATE])
        .when(When::Alone),
];

/// Starts so many calls at once, and waits for all of them.
pub(super) async fn at_once<F: Future>(count: usize, call: impl Fn() -> F) -> Vec<F::Output> {
    together((0..count).map(|_| call()).collect()).await
}

/// Polls all of these until each is done.
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

/// Calls until the answer is OK, as whoever lost one does; not for ever. Of what is pending, `Aborted` is due, and
/// anything else a remark.
pub(super) async fn settled<T, F>(f: &Fixture, call: impl Fn() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let (mut pause, mut odd) = (RETRIES.1, None);
    for _ in 0..RETRIES.0 {
        match call().await {
            Err(status) => {
                if status.code() != Code::Aborted {
                    odd = Some(status);
                }
                sleep(pause).await;
            }
            answer => {
                if let Some(odd) = odd {
                    f.remark(format!("what works in the end was first answered {}", said(&odd)));
                }
                return answer;
            }
        }
        pause *= 2;
    }
    call().await
}

async fn create(f: &Fixture) -> Result<()> {
    let request = f.create_request();
    let made = raced(f, "CreateVolume", at_once(CROWD, || f.create_volume(request.clone())).await, &[])?;
    let ids = made.into_iter().map(|made| made.volume.unwrap_or_default().volume_id);
    same("the ids that CreateVolume gives for one name, called many times at once,", ids)?;
    Ok(())
}

async fn create_many(f: &Fixture) -> Result<()> {
    let made = raced(f, "CreateVolume", at_once(CROWD, || f.create_volume(f.create_request())).await, &[])?;
    let count = made.len();
    let ids: std::collections::BTreeSet<_> =
        made.into_iter().map(|made| made.volume.unwrap_or_default().volume_id).collect();
    ensure!(ids.len() == count, "{count} volumes of different names made at once have {} ids", ids.len());
    Ok(())
}

async fn gone(f: &Fixture, volume: &str) -> Result<()> {
    settled(f, || f.delete_volume(f.delete_request(volume))).await.works("DeleteVolume in the end")?;
    Ok(())
}

async fn delete(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    raced(f, "DeleteVolume", at_once(CROWD, || f.delete_volume(f.delete_request(&volume))).await, &[])?;
    gone(f, &volume).await
}

async fn create_delete(f: &Fixture) -> Result<()> {
    let request = f.create_request();
    let volume = f.make(request.clone()).await?.volume_id;
    let (made, deleted) =
        tokio::join!(f.create_volume(request.clone()), f.delete_volume(f.delete_request(&volume)));
    raced(f, "CreateVolume beside DeleteVolume", vec![made.map(drop), deleted.map(drop)], &[])?;
    // Whichever was first: the name can be had, and what it names can be used.
    let made = settled(f, || f.create_volume(request.clone())).await;
    let volume = made.works("CreateVolume in the end")?.volume.unwrap_or_default();
    let placed = f.raise(volume).await?;
    f.lower(&placed).await
}

async fn attach(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Attach)?;
    let request = f.attach_request(&f.volume().await?, f.access());
    let calls = at_once(CROWD, || f.controller_publish_volume(request.clone())).await;
    let contexts = raced(f, "ControllerPublishVolume", calls, &[])?.into_iter().map(|it| it.publish_context);
    same("the publish_contexts of one volume attached many times at once", contexts)?;
    Ok(())
}

async fn detach(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let request = f.detach_request(placed.id(), &f.node_info().node_id);
    let calls = at_once(CROWD, || f.controller_unpublish_volume(request.clone())).await;
    raced(f, "ControllerUnpublishVolume", calls, &[])?;
    gone(f, placed.id()).await
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
            "ControllerPublishVolume beside ControllerUnpublishVolume",
            vec![up.map(drop), down.map(drop)],
            &[],
        )?;
    }
    let down = settled(f, || f.controller_unpublish_volume(detach.clone())).await;
    down.works("ControllerUnpublishVolume in the end")?;
    gone(f, &volume.volume_id).await
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
        f.minds_attached().await?;
    }
    let answers = vec![up.map(drop), deleted.map(drop)];
    raced(
        f,
        "ControllerPublishVolume beside DeleteVolume",
        answers,
        &[Code::NotFound, Code::FailedPrecondition],
    )?;
    ensure!(!both, "a volume was attached and deleted at once: both calls answered OK");
    Ok(())
}

async fn stage(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Stage)?;
    let placed = f.attached().await?;
    raced(f, "NodeStageVolume", at_once(CROWD, || f.node_stage_volume(f.stage_request(&placed))).await, &[])?;
    if let Some(staging) = placed.staging.as_deref().filter(|_| f.has(Need::Files)) {
        let mounts = f.mounts_at(staging)?;
        ensure!(mounts <= 1, "a volume staged many times at once is mounted {mounts} times");
    }
    f.publish(&placed).await?;
    f.lower(&placed).await
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
    down.works("NodeUnstageVolume in the end")?;
    let left = f.mounts_below(&f.staging_root());
    ensure!(left.is_empty(), "a volume unstaged many times at once is still mounted: {left:?}");
    Ok(())
}

async fn stage_unstage(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Stage)?;
    let placed = f.attached().await?;
    for _ in 0..CROWD / 2 {
        let (up, down) = tokio::join!(
            f.node_stage_volume(f.stage_request(&placed)),
            f.node_unstage_volume(f.unstage_request(&placed))
        );
        raced(f, "NodeStageVolume beside NodeUnstageVolume", vec![up.map(drop), down.map(drop)], &[])?;
    }
    settled(f, || f.node_stage_volume(f.stage_request(&placed))).await.works("NodeStageVolume in the end")?;
    f.publish(&placed).await?;
    f.lower(&placed).await
}

async fn publish(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Publish)?;
    let placed = f.staged().await?;
    raced(
        f,
        "NodePublishVolume",
        at_once(CROWD, || f.node_publish_volume(f.publish_request(&placed))).await,
        &[],
    )?;
    if f.has(Need::Files) {
        let mounts = f.mounts_at(&placed.target)?;
        ensure!(mounts <= 1, "a volume published many times at once is mounted {mounts} times");
        f.write(&placed, 0, "published once").await?;
    }
    f.lower(&placed).await
}

async fn unpublish(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let calls = at_once(CROWD, || f.node_unpublish_volume(f.unpublish_request(&placed))).await;
    raced(f, "NodeUnpublishVolume", calls, NOT_FOUND)?;
    let down = settled(f, || f.node_unpublish_volume(f.unpublish_request(&placed))).await;
    down.works("NodeUnpublishVolume in the end")?;
    let left = f.mounts_below(&f.target_root());
    ensure!(left.is_empty(), "a volume unpublished many times at once is still mounted: {left:?}");
    Ok(())
}

async fn publish_unpublish(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Publish)?;
    let placed = f.staged().await?;
    for _ in 0..CROWD / 2 {
        let (up, down) = tokio::join!(
            f.node_publish_volume(f.publish_request(&placed)),
            f.node_unpublish_volume(f.unpublish_request(&placed))
        );
        raced(
            f,
            "NodePublishVolume beside NodeUnpublishVolume",
            vec![up.map(drop), down.map(drop)],
            NOT_FOUND,
        )?;
    }
    let up = settled(f, || f.node_publish_volume(f.publish_request(&placed))).await;
    up.works("NodePublishVolume in the end")?;
    if f.has(Need::Files) {
        f.write(&placed, 0, "published in the end").await?;
    }
    f.lower(&placed).await
}

async fn expand(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Expand)?;
    let volume = f.volume().await?.volume_id;
    let calls = at_once(CROWD, || f.controller_expand_volume(f.expand_request(&volume))).await;
    let sizes = raced(f, "ControllerExpandVolume", calls, &[])?.into_iter().map(|it| it.capacity_bytes);
    let size = same("the sizes that a volume grew to at once", sizes)?;
    let grown = f.config().grown();
    ensure!(size >= grown, "a volume was to grow to {grown} bytes, and has {size}");
    Ok(())
}

async fn expand_delete(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let (grown, deleted) = tokio::join!(
        f.controller_expand_volume(f.expand_request(&volume)),
        f.delete_volume(f.delete_request(&volume))
    );
    raced(
        f,
        "ControllerExpandVolume beside DeleteVolume",
        vec![grown.map(drop), deleted.map(drop)],
        NOT_FOUND,
    )?;
    gone(f, &volume).await?;
    if f.controller_expand_volume(f.expand_request(&f.unknown_volume())).await.is_ok() {
        return Ok(());
    }
    let answer = f.controller_expand_volume(f.expand_request(&volume)).await;
    answer.refused("ControllerExpandVolume of the deleted volume", NOT_FOUND)
}

async fn node_expand(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.grow(placed.id()).await?;
    raced(
        f,
        "NodeExpandVolume",
        at_once(CROWD, || f.node_expand_volume(f.node_expand_request(&placed))).await,
        &[],
    )?;
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
    same("the ids that CreateSnapshot gives for one name, called many times at once,", ids)?;
    Ok(())
}

async fn delete_snapshot(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    let calls = at_once(CROWD, || f.delete_snapshot(f.delete_snapshot_request(&snapshot))).await;
    raced(f, "DeleteSnapshot", calls, &[])?;
    Ok(())
}

async fn snapshot_undo(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let request = f.snapshot_request(&f.volume().await?.volume_id);
    let taken =
        f.create_snapshot(request.clone()).await.works("CreateSnapshot")?.snapshot.unwrap_or_default();
    let (again, deleted) = tokio::join!(
        f.create_snapshot(request.clone()),
        f.delete_snapshot(f.delete_snapshot_request(&taken.snapshot_id))
    );
    raced(f, "CreateSnapshot beside DeleteSnapshot", vec![again.map(drop), deleted.map(drop)], &[])?;
    settled(f, || f.create_snapshot(request.clone())).await.works("CreateSnapshot in the end")?;
    Ok(())
}

async fn snapshot_source(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let volume = f.volume().await?.volume_id;
    let (taken, deleted) = tokio::join!(
        f.create_snapshot(f.snapshot_request(&volume)),
        f.delete_volume(f.delete_request(&volume))
    );
    let snapshot = taken.as_ref().ok().and_then(|taken| taken.snapshot.clone());
    let answers = vec![taken.map(drop), deleted.map(drop)];
    raced(f, "CreateSnapshot beside DeleteVolume", answers, &[Code::NotFound, Code::FailedPrecondition])?;
    if let Some(snapshot) = snapshot {
        let request = f.create_from(crate::fixture::from_snapshot(&snapshot.snapshot_id));
        let made = settled(f, || f.create_volume(request.clone())).await;
        made.works("CreateVolume from a snapshot that was taken while its source was deleted")?;
    }
    Ok(())
}

async fn clone_source(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Clone)?;
    let source = f.volume().await?.volume_id;
    let request = f.create_from(from_volume(&source));
    let (made, deleted) = tokio::join!(f.create_volume(request), f.delete_volume(f.delete_request(&source)));
    let volume = made.as_ref().ok().and_then(|made| made.volume.clone());
    let answers = vec![made.map(drop), deleted.map(drop)];
    raced(
        f,
        "CreateVolume from a volume beside its DeleteVolume",
        answers,
        &[Code::NotFound, Code::FailedPrecondition],
    )?;
    if let Some(volume) = volume {
        let placed = f.raise(volume).await?;
        f.lower(&placed).await?;
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
    same("the ids that CreateVolumeGroupSnapshot gives for one name, called many times at once,", ids)?;
    Ok(())
}

async fn delete_group(f: &Fixture) -> Result<()> {
    let group = f.group(vec![f.volume().await?.volume_id]).await?;
    let request = f.delete_group_request(&group);
    let calls = at_once(CROWD, || f.delete_volume_group_snapshot(request.clone())).await;
    raced(f, "DeleteVolumeGroupSnapshot", calls, &[])?;
    Ok(())
}

async fn many_up(f: &Fixture) -> Result<()> {
    for placed in at_once(f.crowd(CROWD), || f.up()).await {
        f.lower(&placed?).await?;
    }
    Ok(())
}
