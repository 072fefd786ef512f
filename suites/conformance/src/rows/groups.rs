//! Volume group snapshots.

use anyhow::{Result, bail, ensure};
use claimcheck_csi::{
    Code,
    v1::{GetVolumeGroupSnapshotRequest, Snapshot, VolumeGroupSnapshot},
};
use tokio::sync::watch;

use super::{COMPLETE, CREATE, GROUPS, KEEPS, LOOPS, RESTORES, SNAPSHOT, SNAPSHOT_USED, case};
use crate::{
    case::Row,
    creation_time::is_plausible,
    effect::Effect,
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{Fixture, Step, from_snapshot},
    need::Need,
    spec,
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
    Row::new("CreateVolumeGroupSnapshot with an existing name and different sources returns AlreadyExists", spec::GROUP_EXISTS, case!(other_sources)).needs(&[GROUPS, CREATE]),
    Row::new("CreateVolumeGroupSnapshot that returns an error leaves no snapshots", spec::GROUP_LEAKS, case!(all_or_none))
        .also(&[spec::GROUP_UNCOMPLETED])
        .needs(&[GROUPS, CREATE, super::LIST_SNAPSHOTS]),
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
        .needs(&[GROUPS, CREATE, COMPLETE]),
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
    Row::new("DeleteSnapshot of a snapshot in a group succeeds or returns InvalidArgument", spec::DROP_MEMBER, case!(delete_member))
        .also(&[spec::MEMBER])
        .needs(&[GROUPS, SNAPSHOT, CREATE, COMPLETE]),
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
    Ok(())
}

async fn other_sources(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Group)?;
    let mut request = f.group_request(two(f).await?);
    let first = f.create_volume_group_snapshot(request.clone()).await;
    first.map_err(|status| f.no_group(&status))?;
    request.source_volume_ids.pop();
    let answer = f.create_volume_group_snapshot(request).await;
    answer.refused(
        "CreateVolumeGroupSnapshot with an existing name and different sources",
        &[Code::AlreadyExists],
    )
}

async fn all_or_none(f: &Fixture) -> Result<()> {
    let source = f.volume().await?.volume_id;
    let request = f.group_request(vec![source.clone(), f.unknown_volume()]);
    rejected(f.create_volume_group_snapshot(request).await.is_err()).breaks(spec::GROUP_UNCOMPLETED)?;
    let request = claimcheck_csi::v1::ListSnapshotsRequest { source_volume_id: source, ..Default::default() };
    let left = super::snapshots::all(f, request).await.breaks(spec::SNAPSHOTS)?.len();
    ensure!(left == 0, "CreateVolumeGroupSnapshot failed and left {left} snapshots behind");
    Ok(())
}

fn rejected(is: bool) -> Result<()> {
    ensure!(is, "CreateVolumeGroupSnapshot with a volume that does not exist returned OK");
    Ok(())
}

fn get_request(f: &Fixture, group: &VolumeGroupSnapshot) -> GetVolumeGroupSnapshotRequest {
    GetVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids: group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect(),
        secrets: f.config().secrets.group_snapshot.clone(),
    }
}

async fn get(f: &Fixture) -> Result<()> {
    let group = f.group(two(f).await?).await?;
    let found = f.get_volume_group_snapshot(get_request(f, &group)).await.works("GetVolumeGroupSnapshot")?;
    let found = found.group_snapshot.unwrap_or_default();
    let ids = |group: &VolumeGroupSnapshot| -> std::collections::BTreeSet<String> {
        group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect()
    };
    ensure!(
        found.group_snapshot_id == group.group_snapshot_id && ids(&found) == ids(&group),
        "CreateVolumeGroupSnapshot returned {group:?}, but GetVolumeGroupSnapshot returns {found:?}"
    );
    Ok(())
}

async fn get_no_id(f: &Fixture) -> Result<()> {
    let answer = f.get_volume_group_snapshot(GetVolumeGroupSnapshotRequest::default()).await;
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
    let (group, other) = (f.group(two(f).await?).await?, f.group(two(f).await?).await?);
    let mut request = f.delete_group_request(&group);
    request.snapshot_ids = f.delete_group_request(&other).snapshot_ids;
    let answer = f.delete_volume_group_snapshot(request).await;
    answer.refused("DeleteVolumeGroupSnapshot with the snapshot_ids of another group", INVALID)
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
    let Some(member) = group.snapshots.first() else { bail!("the group has no snapshots") };
    let answer = f.create_volume(f.create_from(from_snapshot(&member.snapshot_id))).await;
    answer.refused("CreateVolume from a snapshot of a deleted group", NOT_FOUND)
}

async fn restore(f: &Fixture) -> Result<()> {
    let (one, two) = (f.up().await?, f.up().await?);
    f.write(&one, 0, "of the first").await?;
    f.write(&two, 0, "of the second").await?;
    let group = f.group(vec![one.id().to_owned(), two.id().to_owned()]).await?;
    for (source, text) in [(&one, "of the first"), (&two, "of the second")] {
        f.write(source, 0, "later").await?;
        let member = group.snapshots.iter().find(|snapshot| snapshot.source_volume_id == source.id());
        let Some(member) = member else { bail!("volume {:?} has no snapshot in its group", source.id()) };
        let restored =
            f.publish_all(f.make(f.create_from(from_snapshot(&member.snapshot_id))).await?).await?;
        f.must_hold(&restored, 0, text, "in a volume restored from a snapshot of a group").await?;
    }
    Ok(())
}

async fn one_moment(f: &Fixture) -> Result<()> {
    const ROUNDS: u64 = 12;
    let (one, two) = (f.up().await?, f.up().await?);
    let (written, mut progress) = watch::channel(());
    // Each round is written to the first volume before the second: the second is never ahead.
    let writing = async {
        let written = written;
        for round in 0..ROUNDS {
            f.write(&one, round, "round").await?;
            f.write(&two, round, "round").await?;
            written.send_replace(());
        }
        anyhow::Ok(())
    };
    // A plugin that cannot block writes may return errors while writes continue, rather than create an inconsistent
    // group; the result after the writes have ended counts.
    let taking = async {
        let request = f.group_request(vec![one.id().to_owned(), two.id().to_owned()]);
        while progress.changed().await.is_ok() {
            // "MUST give a write-order consistency guarantee or fail if that's not possible".
            if f.create_volume_group_snapshot(request.clone()).await.is_ok() {
                break;
            }
        }
        f.group_as(request).await
    };
    let (written, group) = tokio::join!(writing, taking);
    written?;
    let group = group?;
    let mut rounds = Vec::new();
    for source in [&one, &two] {
        let member = group.snapshots.iter().find(|snapshot| snapshot.source_volume_id == source.id());
        let Some(member) = member else { bail!("volume {:?} has no snapshot in its group", source.id()) };
        let restored =
            f.publish_all(f.make(f.create_from(from_snapshot(&member.snapshot_id))).await?).await?;
        let mut count = 0;
        for round in 0..ROUNDS {
            count += u64::from(f.holds(&restored, round, "round").await?);
        }
        rounds.push(count);
    }
    ensure!(
        rounds[0] >= rounds[1] && rounds[0] - rounds[1] <= 1,
        "the snapshots of a group are of different points in time: the first volume has {} rounds of writes, the \
         second, written after it, {}",
        rounds[0],
        rounds[1]
    );
    Ok(())
}

async fn delete_member(f: &Fixture) -> Result<()> {
    let group = f.group(two(f).await?).await?;
    let Some(member) = group.snapshots.first() else { bail!("the group has no snapshots") };
    match f.delete_snapshot(f.delete_snapshot_request(&member.snapshot_id)).await {
        Ok(_) => f.warn("a snapshot of a group can be deleted without the group"),
        refused => {
            refused.refused(
                "DeleteSnapshot of a snapshot that is part of a group",
                &[Code::InvalidArgument, Code::FailedPrecondition],
            )?;
            named(member).breaks(spec::MEMBER)?;
        }
    }
    Ok(())
}

/// Checks that a snapshot that cannot be deleted alone names its group.
fn named(member: &Snapshot) -> Result<()> {
    ensure!(
        !member.group_snapshot_id.is_empty(),
        "a snapshot cannot be deleted without its group, but has no group_snapshot_id"
    );
    Ok(())
}
