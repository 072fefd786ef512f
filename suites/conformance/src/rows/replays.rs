//! Calls repeated after the driver was killed and restarted: completed operations must have survived.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context, Result, anyhow, ensure};
use claimcheck_csi::{
    Code,
    v1::{ListSnapshotsRequest, NodeGetInfoRequest, Snapshot, Volume},
};
use claimcheck_engine::skip;

use super::{
    ATTACH, ATTACH_AGAIN, COMPLETE, CREATE, CREATE_AGAIN, DELETE_AGAIN, EXPAND, GET, GROUPS, IF_MOUNTED,
    IF_PERSISTS, KEEPS, LIST, LIST_SNAPSHOTS, MOUNTS, PERSISTS, PUBLISH_AGAIN, RESTORES, SAME_DATA, SNAPSHOT,
    SNAPSHOT_AGAIN, STAGE, STAGE_AGAIN, SURVIVES, case,
    clones::ensure_that,
    concurrency::{listed, must_add, settled},
    controller_create::same_volume,
    controller_delete::validate,
    controller_list::{all, ids},
    groups::{get_request, same_group},
    lifecycle::is_deleted,
    snapshots::{self, looked_up, must_restore, same_snapshot},
};
use crate::{
    alone::Alone,
    case::Row,
    effect::Effect,
    expect::{Answer, NOT_FOUND},
    fixture::{Fixture, Step, from_snapshot},
    need::Need,
    spec::{self, Sentence},
    verdict::Breaks,
};

/// A row that kills the driver: it runs serially, since it affects all other cases.
const fn kills(
    name: &'static str,
    rule: &'static Sentence,
    run: crate::case::Run,
    needs: &'static [Need],
) -> Row {
    Row::new(name, rule, run).needs(needs).alone(Alone::KillsDriver)
}

pub(super) const ROWS: &[Row] = &[
    kills("a volume survives a driver restart", spec::RETRIED, case!(survives), &[Need::Restart, CREATE])
        .establishes(&[Effect::VolumesSurvive]),
    kills(
        "CreateVolume repeated after a driver restart returns the same volume",
        spec::CREATE_SAME,
        case!(create),
        &[Need::Restart, CREATE, SURVIVES, CREATE_AGAIN],
    )
    .each(),
    kills(
        "CreateVolume repeated after a driver restart keeps the data of the volume",
        spec::CREATE_SAME,
        case!(create_keeps),
        &[Need::Restart, CREATE, SURVIVES, Need::Files, MOUNTS, PERSISTS, CREATE_AGAIN, SAME_DATA],
    )
    .each(),
    kills(
        "DeleteVolume repeated after a driver restart succeeds",
        spec::DELETE_GONE,
        case!(delete),
        &[Need::Restart, CREATE, DELETE_AGAIN],
    ),
    kills(
        "ControllerPublishVolume repeated after a driver restart returns the same publish_context",
        spec::ATTACH_SAME,
        case!(attach),
        &[Need::Restart, CREATE, SURVIVES, ATTACH, ATTACH_AGAIN],
    )
    .also(&[spec::PUBLISH_CONTEXT_CACHED]),
    kills(
        "NodeStageVolume repeated after a driver restart succeeds",
        spec::STAGE_SAME,
        case!(stage),
        &[Need::Restart, CREATE, SURVIVES, STAGE, STAGE_AGAIN],
    )
    .also(&[spec::CONTEXT_CACHED])
    .each(),
    kills(
        "NodeStageVolume repeated after a driver restart keeps the data of the volume",
        spec::STAGE_SAME,
        case!(stage_keeps),
        &[Need::Restart, CREATE, SURVIVES, Need::Files, MOUNTS, PERSISTS, STAGE, STAGE_AGAIN],
    )
    .each(),
    kills(
        "NodePublishVolume repeated after a driver restart mounts the volume once",
        spec::PUBLISH_SAME,
        case!(publish),
        &[Need::Restart, CREATE, SURVIVES, PUBLISH_AGAIN, IF_MOUNTED, IF_PERSISTS],
    )
    .each(),
    kills(
        "a volume published before a driver restart is unpublished and deleted after it",
        spec::UNPUBLISH_UNDOES,
        case!(down),
        &[Need::Restart, CREATE, SURVIVES],
    )
    .each(),
    kills(
        "CreateSnapshot repeated after a driver restart returns the same snapshot",
        spec::SNAPSHOT_SAME,
        case!(snapshot),
        &[Need::Restart, CREATE, SURVIVES, SNAPSHOT, SNAPSHOT_AGAIN],
    ),
    kills(
        "CreateSnapshot repeated after a driver restart keeps the data of the snapshot",
        spec::SNAPSHOT_SAME,
        case!(snapshot_keeps),
        &[Need::Restart, CREATE, SURVIVES, Need::Files, SNAPSHOT, RESTORES, KEEPS],
    )
    .each(),
    kills(
        "a snapshot that was taken before a driver restart is restored and deleted after it",
        spec::CUT,
        case!(snapshot_used),
        &[Need::Restart, CREATE, SURVIVES, Need::Files, SNAPSHOT, RESTORES, KEEPS],
    )
    .also(&[spec::RESTORE, spec::DROP, spec::SNAPSHOTS_ALL]),
    kills(
        "a volume that was attached before a driver restart is attached after it",
        spec::ATTACH_ELSEWHERE,
        case!(still_attached),
        &[Need::Restart, CREATE, SURVIVES, ATTACH],
    ),
    kills(
        "NodeGetInfo after a driver restart returns the same node_id and topology",
        spec::INFO_USED,
        case!(info),
        &[Need::Restart],
    ),
    kills(
        "CreateVolumeGroupSnapshot repeated after a driver restart returns the same group",
        spec::GROUP_SAME,
        case!(group),
        &[Need::Restart, CREATE, SURVIVES, GROUPS],
    ),
    kills(
        "CreateVolumeGroupSnapshot repeated after a driver restart keeps the data of the snapshots",
        spec::GROUP_SAME,
        case!(group_keeps),
        &[Need::Restart, CREATE, SURVIVES, Need::Files, GROUPS, RESTORES, KEEPS, COMPLETE],
    )
    .each(),
    kills(
        "a group snapshot that was taken before a driver restart is found and deleted after it",
        spec::FETCHED_GROUP,
        case!(group_used),
        &[Need::Restart, CREATE, SURVIVES, GROUPS, COMPLETE],
    )
    .also(&[spec::FETCH_GROUP_CURRENT, spec::UNGROUP]),
    kills(
        "ControllerExpandVolume to a smaller size after a driver restart keeps the size",
        spec::EXPAND_KEEPS,
        case!(expand),
        &[Need::Restart, CREATE, SURVIVES, EXPAND, IF_MOUNTED, IF_PERSISTS],
    ),
    kills(
        "calls interrupted by a driver restart and retried succeed",
        spec::RETRIED,
        case!(in_the_middle),
        &[Need::Restart, CREATE, SURVIVES, CREATE_AGAIN, STAGE_AGAIN, PUBLISH_AGAIN, IF_MOUNTED, IF_PERSISTS],
    )
    .also(&[spec::SERVICE])
    .each(),
    kills(
        "data survives a driver restart",
        spec::PUBLISH_USABLE,
        case!(data),
        &[Need::Restart, CREATE, SURVIVES, Need::Files, MOUNTS, PERSISTS],
    )
    .each(),
];

/// A driver with its state in memory only, such as one with a fake, fails in each of the other rows.
async fn survives(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let was_valid = validate(f, &volume).await.is_ok();
    f.restart().await?;
    let forgets = "a volume that was created before a driver restart no longer exists after it";
    let valid = if was_valid { validate(f, &volume).await.map(drop) } else { Ok(()) };
    valid.works(&format!("{forgets}: ValidateVolumeCapabilities"))?;
    if f.has(LIST) {
        let listed = ids(&all(f, 0).await?);
        let omitted = anyhow!(
            "ListVolumes omits the volume {:?}, which was created before a driver restart",
            volume.volume_id
        );
        ensure_that(listed.contains(&volume.volume_id), omitted).breaks(spec::LIST_ALL)?;
    }
    let placed = f.publish_all(volume).await.context(forgets)?;
    f.withdraw(&placed).await
}

/// Two snapshots: one from which a volume was restored may be in use.
async fn snapshot_used(f: &Fixture) -> Result<()> {
    let source = f.holding("in the snapshot").await?;
    let (kept, deleted) =
        (f.snapshot(&source.volume_id).await?, f.snapshot(&source.volume_id).await?.snapshot_id);
    f.put(source, "after the snapshot").await?;
    f.restart().await?;
    let what = "in a volume restored from a snapshot that was taken before a driver restart";
    must_restore(f, &kept, "in the snapshot", what).await?;
    if f.has(LIST_SNAPSHOTS) {
        let request = ListSnapshotsRequest { snapshot_id: deleted.clone(), ..Default::default() };
        let omitted =
            anyhow!("ListSnapshots omits the snapshot {deleted:?}, which was taken before a driver restart");
        ensure_that(!snapshots::all(f, request).await?.is_empty(), omitted).breaks(spec::SNAPSHOTS_ALL)?;
    }
    for (call, current, found) in looked_up(f, &kept.snapshot_id).await.breaks(spec::SNAPSHOTS_ALL)? {
        same_snapshot(&kept, &found, &format!("{call} after a driver restart"), current)?;
    }
    let answer = f.delete_snapshot(f.delete_snapshot_request(&deleted)).await;
    answer.works("DeleteSnapshot after a driver restart").breaks(spec::DROP)?;
    let restored = f.create_volume(f.create_from(from_snapshot(&deleted))).await;
    let what = "CreateVolume from a snapshot that was deleted after a driver restart";
    restored.refused(what, NOT_FOUND).breaks(spec::DROP)
}

/// A driver with its attachments in memory would attach a volume to two nodes.
async fn still_attached(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    f.restart().await?;
    f.must_be_attached(&placed.volume, "after a driver restart").await
}

/// The kubelet registers a driver again when its socket appears again; VolumeAttachments keep the earlier node_id.
async fn info(f: &Fixture) -> Result<()> {
    let now = async || f.node_get_info(NodeGetInfoRequest {}).await.works("NodeGetInfo");
    let before = now().await?;
    f.restart().await?;
    let after = now().await?;
    ensure!(
        (&before.node_id, &before.accessible_topology) == (&after.node_id, &after.accessible_topology),
        "NodeGetInfo returned the node_id {:?} with the topology {:?} before a driver restart, and {:?} with {:?} after it",
        before.node_id,
        before.accessible_topology,
        after.node_id,
        after.accessible_topology
    );
    Ok(())
}

async fn create(f: &Fixture) -> Result<()> {
    let (request, listed) = (f.create_request(), listed(f).await?);
    f.make(request.clone()).await?;
    // What a repeated call omits, it may omit after a restart as well; another case reports that.
    let before = f.make(request.clone()).await?;
    f.restart().await?;
    same_volume(&before, &f.make(request).await?)?;
    must_add(f, &listed, &before.volume_id, "CreateVolume repeated after a driver restart").await
}

async fn create_keeps(f: &Fixture) -> Result<()> {
    f.keeps_its_data(f.create_request(), async || f.restart().await).await
}

async fn delete(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    f.delete_volume(f.delete_request(&volume.volume_id)).await.works("DeleteVolume")?;
    // Another row reports a driver that attaches volumes which do not exist.
    let is_found = f.attaches() && !is_missing(f, &volume).await;
    f.restart().await?;
    f.delete_volume(f.delete_request(&volume.volume_id))
        .await
        .works("DeleteVolume repeated after a driver restart")?;
    ensure!(
        !f.attaches() || is_found || is_missing(f, &volume).await,
        "ControllerPublishVolume returns NotFound for a deleted volume, and no longer after a driver restart"
    );
    Ok(())
}

/// Whether ControllerPublishVolume does not find a volume.
async fn is_missing(f: &Fixture, volume: &Volume) -> bool {
    let answer = f.controller_publish_volume(f.attach_request(volume, f.access())).await;
    answer.is_err_and(|status| status.code() == Code::NotFound)
}

async fn attach(f: &Fixture) -> Result<()> {
    let mut placed = f.attached().await?;
    let before = placed.publish_context.clone();
    f.restart().await?;
    f.attach(&mut placed).await?;
    ensure!(
        before == placed.publish_context,
        "the publish_context of an attached volume changed with a driver restart"
    );
    f.stage(&placed).await?;
    f.publish(&placed).await?;
    f.withdraw(&placed).await
}

async fn stage(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    f.restart().await?;
    f.node_stage_volume(f.stage_request(&placed))
        .await
        .works("NodeStageVolume repeated after a driver restart")?;
    f.publish(&placed).await?;
    f.withdraw(&placed).await
}

async fn stage_keeps(f: &Fixture) -> Result<()> {
    const TEXT: &str = "written before the restart";
    let placed = f.up_with(TEXT).await?;
    f.unpublish(&placed).await?;
    f.restart().await?;
    f.stage(&placed).await?;
    f.publish(&placed).await?;
    f.withdraw(&placed).await?;
    f.must_still_hold(&placed.volume, TEXT, "after NodeStageVolume was repeated after a driver restart").await
}

async fn publish(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let mounts = f.mounts_below(&f.target_root()).len();
    f.restart().await?;
    f.node_publish_volume(f.publish_request(&placed))
        .await
        .works("NodePublishVolume repeated after a driver restart")?;
    let after = f.mounts_below(&f.target_root()).len();
    ensure!(
        mounts == after,
        "the target had {mounts} mounts before the driver restart, and has {after} after it"
    );
    f.must_work(&placed, "after NodePublishVolume was repeated after a driver restart").await
}

async fn down(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.restart().await?;
    f.unpublish(&placed).await?;
    let is_gone = |path: &Path, call: &str| -> Result<()> {
        let mounts = if f.has(Need::Files) { f.mounts_at(path)? } else { 0 };
        ensure!(
            mounts == 0,
            "{call} after a driver restart returned OK and left a mount at {}",
            path.display()
        );
        Ok(())
    };
    is_gone(&placed.target, "NodeUnpublishVolume")?;
    f.unstage(&placed).await?;
    if let Some(staging) = &placed.staging {
        is_gone(staging, "NodeUnstageVolume")?;
    }
    f.detach(&placed).await?;
    if f.attaches() {
        let what = "after ControllerUnpublishVolume after a driver restart";
        f.must_be_detached(&placed.volume, what).await?;
    }
    f.delete_volume(f.delete_request(placed.id())).await.works("DeleteVolume")?;
    is_deleted(f, &placed.volume).await.context("after a driver restart")
}

async fn snapshot(f: &Fixture) -> Result<()> {
    f.cuts_once(f.snapshot_request(&f.volume().await?.volume_id), async || f.restart().await).await
}

async fn snapshot_keeps(f: &Fixture) -> Result<()> {
    f.keeps_the_cut(async || f.restart().await).await
}

async fn group(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Group)?;
    let request = f.group_request(vec![f.volume().await?.volume_id]);
    let of = |answer: claimcheck_csi::v1::CreateVolumeGroupSnapshotResponse| {
        let group = answer.group_snapshot.unwrap_or_default();
        let member = |it: Snapshot| (it.source_volume_id, it.snapshot_id);
        let members: BTreeSet<_> = group.snapshots.into_iter().map(member).collect();
        (group.group_snapshot_id, members, group.creation_time.map(|time| time.seconds))
    };
    let before =
        of(f.create_volume_group_snapshot(request.clone()).await.works("CreateVolumeGroupSnapshot")?);
    f.restart().await?;
    let after = f.create_volume_group_snapshot(request).await;
    let after = of(after.works("CreateVolumeGroupSnapshot repeated after a driver restart")?);
    ensure!(
        before == after,
        "CreateVolumeGroupSnapshot returned {before:?} before a driver restart, and {after:?} after it"
    );
    Ok(())
}

async fn group_used(f: &Fixture) -> Result<()> {
    let group = f.group(vec![f.volume().await?.volume_id]).await?;
    f.restart().await?;
    let what = "GetVolumeGroupSnapshot after a driver restart";
    let found = f.get_volume_group_snapshot(get_request(f, &group)).await.works(what)?;
    same_group(&group, &found.group_snapshot.unwrap_or_default(), what)?;
    let answer = f.delete_volume_group_snapshot(f.delete_group_request(&group)).await;
    answer.works("DeleteVolumeGroupSnapshot after a driver restart").breaks(spec::UNGROUP)?;
    let found = f.get_volume_group_snapshot(get_request(f, &group)).await;
    let what = "GetVolumeGroupSnapshot of a group that was deleted after a driver restart";
    found.refused(what, NOT_FOUND).breaks(spec::UNGROUP)
}

async fn group_keeps(f: &Fixture) -> Result<()> {
    let source = f.holding("before the first call").await?;
    let request = f.group_request(vec![source.volume_id.clone()]);
    f.group_as(request.clone()).await?;
    f.put(source, "after the first call").await?;
    f.restart().await?;
    let what = "after CreateVolumeGroupSnapshot was repeated after a driver restart";
    for member in f.group_as(request).await?.snapshots {
        must_restore(f, &member, "before the first call", what).await?;
    }
    Ok(())
}

async fn expand(f: &Fixture) -> Result<()> {
    const TEXT: &str = "at the end of an expanded volume";
    let volume = f.volume().await?;
    let grown = f.config().grown();
    f.grow(&volume.volume_id).await?;
    let volume = if f.writes() { f.put(volume, TEXT).await? } else { volume };
    let mut request = f.expand_request(&volume.volume_id);
    request.capacity_range = Some(f.driver().range(f.config().volume_size));
    // A driver may also reject a smaller size.
    if !f.controller_expand_volume(request.clone()).await.is_ok_and(|answer| answer.capacity_bytes >= grown) {
        return Err(skip(
            "a smaller size is rejected, or shrinks volumes, also without a restart: see \
             controller_expand::ControllerExpandVolume to a smaller size succeeds and keeps the size",
        ));
    }
    f.restart().await?;
    let answer = f.controller_expand_volume(request).await;
    let answer = answer.works("ControllerExpandVolume after a driver restart").breaks(spec::EXPAND_TWICE)?;
    let mut sizes = vec![answer.capacity_bytes];
    if f.has(GET) {
        let found = f.get(&volume.volume_id).await?.volume.unwrap_or_default().capacity_bytes;
        // It may be unknown.
        sizes.extend((found != 0).then_some(found));
    }
    ensure!(
        sizes.iter().all(|size| *size >= grown),
        "a volume was expanded to {grown} bytes, and has {sizes:?} after a driver restart"
    );
    if !f.writes() {
        return Ok(());
    }
    let what = "after ControllerExpandVolume to a smaller size after a driver restart";
    let holds = f.must_still_hold(&volume, TEXT, what).await;
    holds.map_err(|error| f.unless_data_fails(error))
}

async fn in_the_middle(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Stage)?;
    f.builds_on(Step::Publish)?;
    // This shows whether the driver mounts volumes.
    f.withdraw(&f.up().await?).await?;
    let request = f.create_request();
    let (_, restarted) = tokio::join!(f.create_volume(request.clone()), f.restart());
    restarted?;
    let made = settled(f, || f.create_volume(request.clone())).await;
    let volume =
        made.works("CreateVolume, interrupted by a driver restart and retried,")?.volume.unwrap_or_default();
    let mut placed = f.place(volume).await?;
    f.attach(&mut placed).await?;
    if placed.staging.is_some() {
        let (_, restarted) = tokio::join!(f.node_stage_volume(f.stage_request(&placed)), f.restart());
        restarted?;
        let staged = settled(f, || f.node_stage_volume(f.stage_request(&placed))).await;
        staged.works("NodeStageVolume, interrupted by a driver restart and retried,")?;
    }
    let (_, restarted) = tokio::join!(f.node_publish_volume(f.publish_request(&placed)), f.restart());
    restarted?;
    let published = settled(f, || f.node_publish_volume(f.publish_request(&placed))).await;
    published.works("NodePublishVolume, interrupted by a driver restart and retried,")?;
    f.must_work(&placed, "after calls that a driver restart interrupted were retried").await
}

async fn data(f: &Fixture) -> Result<()> {
    let placed = f.up_with("before the restart").await?;
    f.restart().await?;
    f.must_hold_throughout(&placed, "before the restart", "in a volume that stayed published").await?;
    let placed = f.withdrawn_and_published(&placed).await?;
    f.must_hold_throughout(&placed, "before the restart", "in a volume published again after a restart")
        .await?;
    f.write_throughout(&placed, "after the restart").await?;
    f.withdraw(&placed).await?;
    f.must_still_hold(&placed.volume, "after the restart", "written after a driver restart").await?;
    if f.has(SNAPSHOT) && f.builds_on(Step::Restore).is_ok() {
        let what = "in a volume restored from a snapshot that was taken after a driver restart";
        must_restore(f, &f.snapshot(placed.id()).await?, "after the restart", what).await?;
    }
    Ok(())
}
