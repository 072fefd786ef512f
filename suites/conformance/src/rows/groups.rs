//! Volume group snapshots.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result, bail, ensure};
use claimcheck_csi::{
    Code,
    v1::{GetVolumeGroupSnapshotRequest, ListSnapshotsRequest, Snapshot, VolumeGroupSnapshot},
};
use tokio::sync::watch;

use super::{
    COMPLETE, CREATE, GET_SNAPSHOT, GROUPS, IF_MOUNTED, IF_PERSISTS, KEEPS, LIST_SNAPSHOTS, LOOPS, RESTORES,
    SNAPSHOT, SNAPSHOT_USED, case,
    snapshots::{
        IF_RESTORES, found, has_source_text, keeps_its_text, listed, looked_up, must_restore, same_snapshot,
        source_with_text,
    },
};
use crate::{
    case::Row,
    creation_time::{is_plausible, is_same},
    effect::Effect,
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{Fixture, Step, VolumeOnNode, from_snapshot},
    need::Need,
    spec::{self, Sentence},
    verdict::Breaks,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("CreateVolumeGroupSnapshot without a name returns InvalidArgument", spec::MISSING, case!(no_name))
        .needs(&[GROUPS, CREATE])
        .upstream("GroupController Service [GroupController VolumeGroupSnapshots] CreateVolumeGroupSnapshot should fail when no name is provided"),
    Row::new("CreateVolumeGroupSnapshot without source_volume_ids returns InvalidArgument", spec::MISSING, case!(no_sources)).needs(&[GROUPS]),
    Row::new("CreateVolumeGroupSnapshot of a nonexistent volume returns NotFound", spec::GROUP_ERROR, case!(unknown_source))
        .also(&[spec::GROUP_UNCOMPLETED])
        .needs(&[GROUPS, CREATE]),
    Row::new("CreateVolumeGroupSnapshot returns one snapshot of each volume", spec::GROUP_MEMBERS, case!(members))
        .also(&[
            spec::GROUP_ID, spec::GROUP_TIME, spec::GROUP_NOT_READY, spec::MEMBER_GROUP, spec::ELEMENTS,
            spec::LIMITS,
        ])
        .needs(&[GROUPS, CREATE])
        .establishes(&[Effect::GroupComplete]),
    Row::new("CreateVolumeGroupSnapshot called twice with the same name and sources returns the same group", spec::GROUP_SAME, case!(same_again))
        .also(&[spec::GROUP_TWICE])
        .needs(&[GROUPS, CREATE]),
    Row::new("CreateVolumeGroupSnapshot called again keeps the data of its snapshots", spec::GROUP_SAME, case!(same_data))
        .also(&[spec::GROUP_TWICE, spec::CUT])
        .needs(&[GROUPS, CREATE, Need::Files, COMPLETE, RESTORES, KEEPS])
        .each(),
    Row::new("CreateVolumeGroupSnapshot with an existing name and different sources returns AlreadyExists", spec::GROUP_EXISTS, case!(other_sources))
        .needs(&[GROUPS, CREATE, IF_MOUNTED, IF_PERSISTS, IF_RESTORES]),
    Row::new("CreateVolumeGroupSnapshot that returns an error leaves no snapshots", spec::GROUP_LEAKS, case!(all_or_none))
        .also(&[spec::GROUP_UNCOMPLETED])
        .needs(&[GROUPS, CREATE, LIST_SNAPSHOTS]),
    Row::new("GetVolumeGroupSnapshot returns the created group", spec::FETCHED_GROUP, case!(get))
        .also(&[spec::FETCH_GROUP_CURRENT])
        .needs(&[GROUPS, CREATE, COMPLETE]),
    Row::new("GetVolumeGroupSnapshot without a group_snapshot_id returns InvalidArgument", spec::MISSING, case!(get_no_id))
        .needs(&[GROUPS])
        .upstream("GroupController Service [GroupController VolumeGroupSnapshots] GetVolumeGroupSnapshot should fail when no volume id is provided"),
    Row::new("GetVolumeGroupSnapshot of a nonexistent group returns NotFound", spec::FETCH_GROUP_GONE, case!(get_unknown))
        .needs(&[GROUPS])
        .upstream("GroupController Service [GroupController VolumeGroupSnapshots] GetVolumeGroupSnapshot should fail when an invalid volume id is used"),
    Row::new("GetVolumeGroupSnapshot with the snapshot_ids of another group returns InvalidArgument", spec::FETCH_GROUP_CHECKS, case!(get_mismatch))
        .also(&[spec::GROUP_UNIQUE, spec::FETCH_GROUP_MISMATCH])
        .needs(&[GROUPS, CREATE, COMPLETE]),
    Row::new("DeleteVolumeGroupSnapshot without a group_snapshot_id returns InvalidArgument", spec::MISSING, case!(delete_no_id))
        .needs(&[GROUPS])
        .upstream("GroupController Service [GroupController VolumeGroupSnapshots] DeleteVolumeGroupSnapshot should fail when no volume id is provided"),
    Row::new("DeleteVolumeGroupSnapshot of a nonexistent group succeeds", spec::UNGROUP_GONE, case!(delete_unknown))
        .needs(&[GROUPS])
        .upstream("GroupController Service [GroupController VolumeGroupSnapshots] DeleteVolumeGroupSnapshot should succeed when an invalid volume id is used"),
    Row::new("DeleteVolumeGroupSnapshot with the snapshot_ids of another group returns InvalidArgument", spec::UNGROUP_CHECKS, case!(delete_mismatch))
        .also(&[spec::UNGROUP_MISMATCH])
        .needs(&[GROUPS, CREATE, COMPLETE, IF_MOUNTED, IF_PERSISTS, IF_RESTORES]),
    Row::new("DeleteVolumeGroupSnapshot called twice succeeds and deletes the snapshots", spec::UNGROUP_TWICE, case!(delete_twice))
        .also(&[spec::UNGROUP_GONE, spec::DROP_GROUP])
        .needs(&[GROUPS, CREATE, COMPLETE, SNAPSHOT_USED]),
    Row::new("CreateVolume from a snapshot of a group restores its data", spec::RESTORE, case!(restore))
        .also(&[spec::GROUP_READY])
        .needs(&[GROUPS, CREATE, Need::Files, COMPLETE, RESTORES, KEEPS])
        .each(),
    Row::new("CreateVolumeGroupSnapshot captures all volumes at one point in time", spec::GROUP_MOMENT, case!(one_moment))
        .also(&[spec::GROUP_CONSISTENT])
        .needs(&[GROUPS, CREATE, Need::Files, COMPLETE, RESTORES, KEEPS, LOOPS]),
    Row::new("ListSnapshots of a snapshot in a group returns it", spec::SNAPSHOTS_ALL, case!(member_listed))
        .also(&[spec::SNAPSHOTS_CURRENT])
        .needs(&[GROUPS, CREATE, LIST_SNAPSHOTS, COMPLETE]),
    Row::new("GetSnapshot of a snapshot in a group returns it", spec::FETCHED, case!(member_found))
        .also(&[spec::FETCH_CURRENT, spec::FETCH_MEMBERS])
        .needs(&[GROUPS, CREATE, GET_SNAPSHOT, COMPLETE]),
    Row::new("DeleteVolume of a volume in a group snapshot keeps the snapshots or returns FailedPrecondition", spec::SNAPSHOTS_STAY, case!(source_deleted))
        .also(&[spec::DELETE_REFUSED])
        .needs(&[GROUPS, CREATE, Need::Files, COMPLETE, RESTORES, KEEPS]),
    Row::new("DeleteSnapshot of a snapshot in a group succeeds or returns InvalidArgument", spec::DROP_MEMBER, case!(delete_member))
        .also(&[spec::MEMBER])
        .needs(&[GROUPS, SNAPSHOT, CREATE, COMPLETE, IF_MOUNTED, IF_PERSISTS, IF_RESTORES]),
];

async fn no_name(f: &Fixture) -> Result<()> {
    let mut request = f.group_request(vec![f.volume().await?.volume_id]);
    request.name.clear();
    let answer = f.create_volume_group_snapshot(request).await;
    answer.refused("CreateVolumeGroupSnapshot without a name", INVALID)
}

async fn no_sources(f: &Fixture) -> Result<()> {
    let answer = f.create_volume_group_snapshot(f.group_request(Vec::new())).await;
    answer.refused("CreateVolumeGroupSnapshot without source_volume_ids", INVALID)
}

async fn unknown_source(f: &Fixture) -> Result<()> {
    let request = f.group_request(vec![f.volume().await?.volume_id, f.unknown_volume()]);
    let answer = f.create_volume_group_snapshot(request).await;
    let accepted = answer.is_ok();
    let refused = answer.refused(
        "CreateVolumeGroupSnapshot with a volume that does not exist",
        &[Code::NotFound, Code::InvalidArgument, Code::FailedPrecondition],
    );
    // An error is required; which one, the specification leaves to the driver.
    if accepted { refused.breaks(spec::GROUP_UNCOMPLETED) } else { refused }
}

async fn two(f: &Fixture) -> Result<Vec<String>> {
    Ok(vec![f.volume().await?.volume_id, f.volume().await?.volume_id])
}

/// Two volumes with a text, which the snapshots of a group must keep.
async fn two_with_text(f: &Fixture) -> Result<Vec<String>> {
    Ok(vec![source_with_text(f).await?.volume_id, source_with_text(f).await?.volume_id])
}

async fn members(f: &Fixture) -> Result<()> {
    let sources = two(f).await?;
    let group = f.group(sources.clone()).await?;
    ensure!(
        !group.group_snapshot_id.is_empty(),
        "CreateVolumeGroupSnapshot returned an empty group_snapshot_id"
    );
    let length = group.group_snapshot_id.len();
    ensure!(
        length <= 128,
        "CreateVolumeGroupSnapshot returned a group_snapshot_id of {length} bytes, at most 128 are allowed"
    );
    let created = group.creation_time.map(|time| (time.seconds, time.nanos));
    is_plausible(f, "CreateVolumeGroupSnapshot", created).breaks(spec::GROUP_TIME)?;
    ensure!(
        !group.ready_to_use || group.snapshots.iter().all(|snapshot| snapshot.ready_to_use),
        "a group is ready_to_use, but not all of its snapshots are"
    );
    for source in &sources {
        let times = group.snapshots.iter().filter(|snapshot| snapshot.source_volume_id == *source).count();
        ensure!(times == 1, "the group contains {times} snapshots of volume {source:?}, expected 1");
    }
    let ids: BTreeSet<&str> = group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.as_str()).collect();
    ensure!(
        group.snapshots.len() == sources.len() && ids.len() == sources.len() && !ids.contains(""),
        "a group of {} volumes has {} snapshots, with the ids {ids:?}",
        sources.len(),
        group.snapshots.len()
    );
    for snapshot in &group.snapshots {
        ensure!(
            snapshot.group_snapshot_id == group.group_snapshot_id,
            "a snapshot of group {:?} has the group_snapshot_id {:?}",
            group.group_snapshot_id,
            snapshot.group_snapshot_id
        );
    }
    Ok(())
}

async fn same_again(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Group)?;
    let request = f.group_request(two(f).await?);
    let group = |answer: claimcheck_csi::v1::CreateVolumeGroupSnapshotResponse| {
        answer.group_snapshot.unwrap_or_default()
    };
    let first = f.create_volume_group_snapshot(request.clone()).await;
    let first = group(first.map_err(|status| f.no_group(&status))?);
    let again =
        f.create_volume_group_snapshot(request).await.works("CreateVolumeGroupSnapshot called again")?;
    let again = group(again);
    ensure!(
        first.group_snapshot_id == again.group_snapshot_id,
        "CreateVolumeGroupSnapshot called twice with one name created two groups: {:?} and {:?}",
        first.group_snapshot_id,
        again.group_snapshot_id
    );
    same_group(&first, &again, "CreateVolumeGroupSnapshot called again")
}

/// Checks that a call returns the group that CreateVolumeGroupSnapshot has returned. Only readiness may change, a size that
/// is not known yet, and times by less than a second: they may be stored with less precision.
pub(super) fn same_group(
    created: &VolumeGroupSnapshot,
    found: &VolumeGroupSnapshot,
    call: &str,
) -> Result<()> {
    let time = |group: &VolumeGroupSnapshot| group.creation_time.map(|time| (time.seconds, time.nanos));
    ensure!(
        found.group_snapshot_id == created.group_snapshot_id
            && is_same(time(found), time(created))
            && found.ready_to_use >= created.ready_to_use,
        "CreateVolumeGroupSnapshot returned the group {:?} of {:?} with ready_to_use {}, but {call} returned {:?} of {:?} \
         with ready_to_use {}",
        created.group_snapshot_id,
        created.creation_time,
        created.ready_to_use,
        found.group_snapshot_id,
        found.creation_time,
        found.ready_to_use
    );
    let (created, found) = (members_of(created), members_of(found));
    let fixed = |member: &Snapshot| Snapshot {
        size_bytes: 0,
        ready_to_use: false,
        creation_time: None,
        ..member.clone()
    };
    let time = |member: &Snapshot| member.creation_time.map(|time| (time.seconds, time.nanos));
    let is_same_member = |(one, other): (&Snapshot, &Snapshot)| {
        let sizes = [one.size_bytes, other.size_bytes];
        fixed(one) == fixed(other)
            && is_same(time(one), time(other))
            && other.ready_to_use >= one.ready_to_use
            && (sizes.contains(&0) || sizes[0] == sizes[1])
    };
    ensure!(
        created.len() == found.len() && created.iter().zip(&found).all(is_same_member),
        "CreateVolumeGroupSnapshot returned a group with the snapshots {created:?}, but {call} returned {found:?}"
    );
    Ok(())
}

/// The snapshots of a group, in an order that does not depend on the driver.
fn members_of(group: &VolumeGroupSnapshot) -> Vec<Snapshot> {
    let mut members = group.snapshots.clone();
    members.sort_unstable_by(|one, other| one.snapshot_id.cmp(&other.snapshot_id));
    members
}

/// The snapshot of a volume in a group.
fn member<'a>(group: &'a VolumeGroupSnapshot, source: &str) -> Result<&'a Snapshot> {
    let found = group.snapshots.iter().find(|snapshot| snapshot.source_volume_id == source);
    found.with_context(|| format!("volume {source:?} has no snapshot in its group"))
}

/// A published volume from the snapshot of a volume in a group.
async fn restored(f: &Fixture, group: &VolumeGroupSnapshot, source: &str) -> Result<VolumeOnNode> {
    let snapshot = &member(group, source)?.snapshot_id;
    f.publish_all(f.make(f.create_from(from_snapshot(snapshot))).await?).await
}

/// external-snapshotter repeats the call until the group is ready, while workloads write.
async fn same_data(f: &Fixture) -> Result<()> {
    let texts = ["of the first, before", "of the second, before"];
    let (one, two) = (f.up().await?, f.up().await?);
    for (source, text) in [&one, &two].into_iter().zip(texts) {
        f.write(source, 0, text).await?;
    }
    let request = f.group_request(vec![one.id().to_owned(), two.id().to_owned()]);
    let group = f.group_as(request.clone()).await?;
    for source in [&one, &two] {
        f.write(source, 0, "after the first call").await?;
    }
    let again = f.group_as(request).await?;
    same_group(&group, &again, "CreateVolumeGroupSnapshot called again")?;
    for (source, text) in [&one, &two].into_iter().zip(texts) {
        let restored = restored(f, &group, source.id()).await?;
        let what = "in a volume restored from a snapshot of a group, after CreateVolumeGroupSnapshot was called again";
        f.must_hold(&restored, 0, text, what).await?;
    }
    Ok(())
}

async fn other_sources(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Group)?;
    let mut request = f.group_request(two_with_text(f).await?);
    let first = f.group_as(request.clone()).await?;
    request.source_volume_ids.pop();
    const CALL: &str = "CreateVolumeGroupSnapshot with an existing name and different sources";
    f.create_volume_group_snapshot(request).await.refused(CALL, &[Code::AlreadyExists])?;
    for snapshot in &first.snapshots {
        keeps_its_text(f, snapshot, CALL).await?;
    }
    Ok(())
}

async fn all_or_none(f: &Fixture) -> Result<()> {
    let source = f.volume().await?.volume_id;
    let request = f.group_request(vec![source.clone(), f.unknown_volume()]);
    rejected(f.create_volume_group_snapshot(request).await.is_err()).breaks(spec::GROUP_UNCOMPLETED)?;
    let request = ListSnapshotsRequest { source_volume_id: source, ..Default::default() };
    let left = super::snapshots::all(f, request).await.breaks(spec::SNAPSHOTS)?.len();
    ensure!(left == 0, "CreateVolumeGroupSnapshot failed and left {left} snapshots behind");
    Ok(())
}

fn rejected(is: bool) -> Result<()> {
    ensure!(is, "CreateVolumeGroupSnapshot with a volume that does not exist returned OK");
    Ok(())
}

pub(super) fn get_request(f: &Fixture, group: &VolumeGroupSnapshot) -> GetVolumeGroupSnapshotRequest {
    GetVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids: group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect(),
        secrets: f.config().secrets.group_snapshot.clone(),
    }
}

async fn get(f: &Fixture) -> Result<()> {
    let group = f.group(two(f).await?).await?;
    let found = f.get_volume_group_snapshot(get_request(f, &group)).await.works("GetVolumeGroupSnapshot")?;
    same_group(&group, &found.group_snapshot.unwrap_or_default(), "GetVolumeGroupSnapshot")
}

async fn get_no_id(f: &Fixture) -> Result<()> {
    let answer = f.get_volume_group_snapshot(get_request(f, &VolumeGroupSnapshot::default())).await;
    answer.refused("GetVolumeGroupSnapshot without a group_snapshot_id", INVALID)
}

fn unknown(f: &Fixture) -> VolumeGroupSnapshot {
    VolumeGroupSnapshot { group_snapshot_id: f.unknown_snapshot(), ..Default::default() }
}

async fn get_unknown(f: &Fixture) -> Result<()> {
    let answer = f.get_volume_group_snapshot(get_request(f, &unknown(f))).await;
    answer.refused("GetVolumeGroupSnapshot of a group that does not exist", NOT_FOUND)
}

async fn delete_no_id(f: &Fixture) -> Result<()> {
    let answer = f.delete_volume_group_snapshot(f.delete_group_of("", Vec::new())).await;
    answer.refused("DeleteVolumeGroupSnapshot without a group_snapshot_id", INVALID)
}

async fn get_mismatch(f: &Fixture) -> Result<()> {
    let (group, other) = (f.group(two(f).await?).await?, f.group(two(f).await?).await?);
    distinct(&group, &other).breaks(spec::GROUP_UNIQUE)?;
    let mut request = get_request(f, &group);
    request.snapshot_ids = get_request(f, &other).snapshot_ids;
    let answer = f.get_volume_group_snapshot(request).await;
    answer.refused("GetVolumeGroupSnapshot with the snapshot_ids of another group", INVALID)
}

fn distinct(one: &VolumeGroupSnapshot, other: &VolumeGroupSnapshot) -> Result<()> {
    ensure!(
        one.group_snapshot_id != other.group_snapshot_id,
        "two groups with different names have one group_snapshot_id: {:?}",
        one.group_snapshot_id
    );
    Ok(())
}

async fn delete_mismatch(f: &Fixture) -> Result<()> {
    let sources = two_with_text(f).await?;
    let (group, other) = (f.group(sources.clone()).await?, f.group(sources).await?);
    let mut request = f.delete_group_request(&group);
    request.snapshot_ids = f.delete_group_request(&other).snapshot_ids;
    const CALL: &str = "DeleteVolumeGroupSnapshot with the snapshot_ids of another group";
    let answer = f.delete_volume_group_snapshot(request).await;
    // A driver that ignores the ids deletes the group that was named, and never the other one.
    let named = if answer.is_err() { Some(&group) } else { None };
    for kept in named.into_iter().chain([&other]) {
        is_complete(f, kept, CALL).await.breaks(spec::GROUP_UNIQUE)?;
    }
    answer.refused(CALL, INVALID)
}

/// Checks that a group of volumes with a text, and its snapshots, are still as they were before a call.
async fn is_complete(f: &Fixture, group: &VolumeGroupSnapshot, call: &str) -> Result<()> {
    let found = f.get_volume_group_snapshot(get_request(f, group)).await;
    let found =
        found.works(&format!("after {call}, GetVolumeGroupSnapshot of {:?}", group.group_snapshot_id))?;
    same_group(
        group,
        &found.group_snapshot.unwrap_or_default(),
        &format!("GetVolumeGroupSnapshot after {call}"),
    )?;
    let restores = f.builds_on(Step::Restore).is_ok();
    for snapshot in group.snapshots.iter().filter(|_| restores) {
        let (id, request) = (&snapshot.snapshot_id, f.create_from(from_snapshot(&snapshot.snapshot_id)));
        let restored = f.create_volume(request).await;
        let restored =
            restored.works(&format!("after {call}, CreateVolume from the snapshot {id:?} of a group"))?;
        if f.writes() {
            has_source_text(f, &restored.volume.unwrap_or_default(), call).await?;
        }
    }
    Ok(())
}

async fn delete_unknown(f: &Fixture) -> Result<()> {
    let answer = f.delete_volume_group_snapshot(f.delete_group_request(&unknown(f))).await;
    answer.works("DeleteVolumeGroupSnapshot of a group that does not exist")?;
    Ok(())
}

async fn delete_twice(f: &Fixture) -> Result<()> {
    let group = f.group(two(f).await?).await?;
    for time in ["DeleteVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot called again"] {
        f.delete_volume_group_snapshot(f.delete_group_request(&group)).await.works(time)?;
    }
    for Snapshot { snapshot_id, .. } in &group.snapshots {
        let answer = f.create_volume(f.create_from(from_snapshot(snapshot_id))).await;
        let what = format!("CreateVolume from the snapshot {snapshot_id:?} of a deleted group");
        answer.refused(&what, NOT_FOUND)?;
        if f.has(LIST_SNAPSHOTS) {
            let request = ListSnapshotsRequest { snapshot_id: snapshot_id.clone(), ..Default::default() };
            let listed = super::snapshots::all(f, request).await.breaks(spec::SNAPSHOTS)?.len();
            ensure!(listed == 0, "ListSnapshots lists the snapshot {snapshot_id:?} of a deleted group");
        }
    }
    let answer = f.get_volume_group_snapshot(get_request(f, &group)).await;
    answer.refused("GetVolumeGroupSnapshot of a deleted group", NOT_FOUND).breaks(spec::FETCH_GROUP_GONE)
}

async fn restore(f: &Fixture) -> Result<()> {
    let texts = ["of the first", "of the second"];
    let (one, two) = (f.up_with(texts[0]).await?, f.up_with(texts[1]).await?);
    let group = f.group(vec![one.id().to_owned(), two.id().to_owned()]).await?;
    for (source, text) in [&one, &two].into_iter().zip(texts) {
        f.write(source, 0, "later").await?;
        let restored = restored(f, &group, source.id()).await?;
        f.must_hold_throughout(&restored, text, "in a volume restored from a snapshot of a group").await?;
    }
    Ok(())
}

/// How many groups are created while a workload writes: two snapshots of different points in time may have no write
/// between them.
const ATTEMPTS: usize = 4;
/// How often the driver may return an error for a group while a workload writes, before the workload stops.
const PATIENCE: usize = 3;
/// The maximum number of rounds of writes.
const ROUNDS: u64 = 2048;
/// The number of places that the rounds use in turn.
const PLACES: u64 = 16;

async fn one_moment(f: &Fixture) -> Result<()> {
    let (one, two) = (f.up().await?, f.up().await?);
    let (written, mut progress) = watch::channel(());
    let ended = AtomicBool::new(false);
    // Each round is written to the first volume before the second: the second is never ahead.
    let writing = async {
        let written = written;
        let mut rounds = 0;
        while rounds < ROUNDS && !ended.load(Ordering::Relaxed) {
            for volume in [&one, &two] {
                f.write(volume, rounds % PLACES, &format!("round {rounds}")).await?;
            }
            rounds += 1;
            written.send_replace(());
        }
        anyhow::Ok(rounds)
    };
    // A plugin that cannot block writes may return errors while writes continue, rather than create an inconsistent
    // group; then the result after the writes have ended counts.
    let mut requests: Vec<_> =
        (0..ATTEMPTS).map(|_| f.group_request(vec![one.id().to_owned(), two.id().to_owned()])).collect();
    let taking = async {
        let mut taken = 0;
        'groups: for request in &requests {
            for _ in 0..PATIENCE {
                let is_writing = progress.changed().await.is_ok();
                // "MUST give a write-order consistency guarantee or fail if that's not possible".
                if is_writing && f.create_volume_group_snapshot(request.clone()).await.is_ok() {
                    taken += 1;
                    continue 'groups;
                }
            }
            break;
        }
        ended.store(true, Ordering::Relaxed);
        taken
    };
    let (written, taken) = tokio::join!(writing, taking);
    let written = written?;
    requests.truncate(taken.max(1));
    for request in requests {
        let group = f.group_as(request).await?;
        let mut rounds = Vec::new();
        for source in [&one, &two] {
            rounds.push(rounds_in(f, &restored(f, &group, source.id()).await?, written).await?);
        }
        ensure!(
            rounds[0] >= rounds[1] && rounds[0] - rounds[1] <= 1,
            "the snapshots of group {:?} are of different points in time: the first volume has {} rounds of writes, the \
             second, written after it, {}",
            group.group_snapshot_id,
            rounds[0],
            rounds[1]
        );
    }
    Ok(())
}

/// The number of rounds of writes that a volume contains, of those that were written.
async fn rounds_in(f: &Fixture, placed: &VolumeOnNode, written: u64) -> Result<u64> {
    for round in (0..written).rev() {
        if f.holds(placed, round % PLACES, &format!("round {round}")).await? {
            return Ok(round + 1);
        }
    }
    Ok(0)
}

/// Checks that a call describes a snapshot of a group as the group does. One that can be deleted alone needs no
/// group_snapshot_id outside of it.
fn same_member(member: &Snapshot, found: &Snapshot, call: &str, current: &'static Sentence) -> Result<()> {
    let mut member = member.clone();
    if found.group_snapshot_id.is_empty() {
        member.group_snapshot_id.clear();
    }
    same_snapshot(&member, found, call, current)
}

async fn member_listed(f: &Fixture) -> Result<()> {
    for member in f.group(two(f).await?).await?.snapshots {
        let found = listed(f, &member.snapshot_id).await?;
        same_member(&member, &found, "ListSnapshots", spec::SNAPSHOTS_CURRENT)?;
    }
    Ok(())
}

async fn member_found(f: &Fixture) -> Result<()> {
    for member in f.group(two(f).await?).await?.snapshots {
        let found = found(f, &member.snapshot_id).await.breaks(spec::FETCH_MEMBERS)?;
        same_member(&member, &found, "GetSnapshot", spec::FETCH_CURRENT)?;
    }
    Ok(())
}

async fn source_deleted(f: &Fixture) -> Result<()> {
    let texts = ["of the volume that stays", "of the deleted volume"];
    let (kept, deleted) = (f.up_with(texts[0]).await?, f.up_with(texts[1]).await?);
    let group = f.group(vec![kept.id().to_owned(), deleted.id().to_owned()]).await?;
    f.withdraw(&deleted).await?;
    let call = match f.delete_volume(f.delete_request(deleted.id())).await {
        Err(status) if status.code() == Code::FailedPrecondition => {
            f.warn("volumes that have snapshots in groups cannot be deleted");
            "DeleteVolume of one of its volumes, which returned FailedPrecondition"
        }
        answer => {
            answer.works("DeleteVolume of a volume with a snapshot in a group")?;
            "DeleteVolume of one of its volumes"
        }
    };
    let found = f.get_volume_group_snapshot(get_request(f, &group)).await;
    let found = found.works(&format!("after {call}, GetVolumeGroupSnapshot"))?.group_snapshot;
    same_group(&group, &found.unwrap_or_default(), &format!("GetVolumeGroupSnapshot after {call}"))?;
    for (source, text) in [&kept, &deleted].into_iter().zip(texts) {
        let what = format!("in a volume restored from a snapshot of a group, after {call}");
        must_restore(f, member(&group, source.id())?, text, &what).await?;
    }
    Ok(())
}

async fn delete_member(f: &Fixture) -> Result<()> {
    let group = f.group(two_with_text(f).await?).await?;
    let Some(member) = group.snapshots.first() else { bail!("the group has no snapshots") };
    match f.delete_snapshot(f.delete_snapshot_request(&member.snapshot_id)).await {
        Ok(_) => f.warn("a snapshot of a group can be deleted without the group"),
        refused => {
            refused.refused(
                "DeleteSnapshot of a snapshot that is part of a group",
                &[Code::InvalidArgument, Code::FailedPrecondition],
            )?;
            named("CreateVolumeGroupSnapshot", member).breaks(spec::MEMBER)?;
            // That it is not found is reported by other rows.
            for (call, _, found) in looked_up(f, &member.snapshot_id).await.into_iter().flatten() {
                named(call, &found).breaks(spec::MEMBER)?;
            }
            is_complete(f, &group, "DeleteSnapshot of a snapshot that is part of a group").await?;
        }
    }
    Ok(())
}

/// Checks that a snapshot that cannot be deleted alone names its group.
fn named(call: &str, member: &Snapshot) -> Result<()> {
    ensure!(
        !member.group_snapshot_id.is_empty(),
        "a snapshot cannot be deleted without its group, but has no group_snapshot_id in the answer of {call}"
    );
    Ok(())
}
