//! CreateSnapshot, DeleteSnapshot, ListSnapshots, GetSnapshot, and volumes restored from snapshots.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, bail, ensure};
use claimcheck_csi::{
    Code,
    v1::{CapacityRange, GetSnapshotRequest, ListSnapshotsRequest, Snapshot, list_snapshots_response::Entry},
};
use claimcheck_engine::{Schedule, skip};

use super::{
    CREATE, EXPAND, FILTERS, GET_SNAPSHOT, KEEPS, LIST_SNAPSHOTS, MOUNTS, PERSISTS, RESTORES, SNAPSHOT, case,
};
use crate::{
    case::Row,
    effect::Effect,
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{Fixture, Step, VolumeOnNode, from_snapshot},
    need::Need,
    pages::Pages,
    spec,
    verdict::{Breaks, breaking},
};

pub(super) const ROWS: &[Row] = &[
    Row::new("CreateSnapshot without a name returns InvalidArgument", spec::MISSING, case!(no_name))
        .needs(&[SNAPSHOT, CREATE])
        .upstream("CreateSnapshot [Controller Server] should fail when no name is provided"),
    Row::new("CreateSnapshot without a source_volume_id returns InvalidArgument", spec::MISSING, case!(no_source))
        .needs(&[SNAPSHOT])
        .upstream("CreateSnapshot [Controller Server] should fail when no source volume id is provided"),
    Row::new("CreateSnapshot of a nonexistent volume returns NotFound", spec::SNAPSHOT_ERROR, case!(unknown_source))
        .also(&[spec::FAILS])
        .needs(&[SNAPSHOT]),
    Row::new("CreateSnapshot returns snapshot_id, source_volume_id and creation_time", spec::SNAPSHOT_ID, case!(whole))
        .also(&[
            spec::SNAPSHOT_RETURNS, spec::SNAPSHOT_SOURCE, spec::SNAPSHOT_TIME, spec::SNAPSHOT_SIGN,
            spec::LIMITS,
        ])
        .needs(&[SNAPSHOT, CREATE]),
    Row::new("CreateSnapshot called twice with the same name and source returns the same snapshot", spec::SNAPSHOT_SAME, case!(same_again))
        .also(&[spec::SNAPSHOT_TWICE])
        .needs(&[SNAPSHOT, CREATE])
        .upstream("CreateSnapshot [Controller Server] should succeed when requesting to create a snapshot with already existing name and same source volume ID"),
    Row::new("CreateSnapshot with an existing name and a different source returns AlreadyExists", spec::SNAPSHOT_EXISTS, case!(other_source))
        .needs(&[SNAPSHOT, CREATE])
        .upstream("CreateSnapshot [Controller Server] should fail when requesting to create a snapshot with already existing name and different source volume ID"),
    Row::new("CreateSnapshot with the longest allowed name succeeds", spec::ANY_NAME, case!(longest))
        .needs(&[SNAPSHOT, CREATE])
        .upstream("CreateSnapshot [Controller Server] should succeed when creating snapshot with maximum-length name"),
    Row::new("CreateSnapshot returns a snapshot that becomes ready_to_use", spec::READY, case!(ready))
        .also(&[spec::SNAPSHOT_READY])
        .needs(&[SNAPSHOT, CREATE])
        .each(),
    Row::new("DeleteSnapshot without a snapshot_id returns InvalidArgument", spec::MISSING, case!(delete_no_id))
        .needs(&[SNAPSHOT])
        .upstream("DeleteSnapshot [Controller Server] should fail when no snapshot id is provided"),
    Row::new("DeleteSnapshot of a nonexistent snapshot succeeds", spec::DROP_GONE, case!(delete_unknown))
        .needs(&[SNAPSHOT])
        .upstream("DeleteSnapshot [Controller Server] should succeed when an invalid snapshot id is used"),
    Row::new("DeleteSnapshot called twice succeeds", spec::DROP_TWICE, case!(delete_twice))
        .also(&[spec::DROP_GONE, spec::ALONE])
        .needs(&[SNAPSHOT, CREATE]),
    Row::new("CreateVolume from a deleted snapshot returns NotFound", spec::SOURCE_GONE, case!(delete_restore)).needs(&[SNAPSHOT, CREATE]),
    Row::new("ListSnapshots returns entries with a snapshot_id", spec::SNAPSHOT_ID, case!(list))
        .needs(&[LIST_SNAPSHOTS])
        .upstream("ListSnapshots [Controller Server] should return appropriate values (no optional values added)"),
    Row::new("ListSnapshots includes a new snapshot and omits a deleted one", spec::SNAPSHOTS_ALL, case!(list_presence))
        .also(&[spec::SNAPSHOTS_CURRENT])
        .needs(&[LIST_SNAPSHOTS, SNAPSHOT, CREATE])
        // Pages may be wrong while other cases create and delete snapshots.
        .schedule(Schedule::Serial)
        .upstream("ListSnapshots [Controller Server] check the presence of new snapshots in the snapshot list"),
    Row::new("ListSnapshots of a snapshot_id returns that snapshot", spec::SNAPSHOTS_ALL, case!(list_one))
        .also(&[spec::SNAPSHOTS_READY])
        .needs(&[LIST_SNAPSHOTS, SNAPSHOT, CREATE])
        .upstream("ListSnapshots [Controller Server] should return snapshots that match the specified snapshot id"),
    Row::new("ListSnapshots of a nonexistent snapshot_id returns no entries", spec::SNAPSHOTS_ALL, case!(list_unknown))
        .needs(&[LIST_SNAPSHOTS])
        .upstream("ListSnapshots [Controller Server] should return empty when the specified snapshot id does not exist"),
    Row::new("ListSnapshots of a source_volume_id returns all snapshots of that volume", spec::SNAPSHOTS_ALL, case!(list_source))
        .also(&[spec::SNAPSHOT_UNIQUE])
        .needs(&[LIST_SNAPSHOTS, SNAPSHOT, CREATE])
        .establishes(&[Effect::SnapshotFilter])
        .upstream("ListSnapshots [Controller Server] should return snapshots that match the specified source volume id"),
    Row::new("ListSnapshots of a nonexistent source_volume_id returns no entries", spec::SNAPSHOTS_ALL, case!(list_unknown_source))
        .needs(&[LIST_SNAPSHOTS, FILTERS])
        .upstream("ListSnapshots [Controller Server] should return empty when the specified source volume id does not exist"),
    Row::new("ListSnapshots in pages of one returns every snapshot once", spec::SNAPSHOTS_NEXT, case!(pages))
        .also(&[spec::SNAPSHOTS_MAX])
        .needs(&[LIST_SNAPSHOTS, SNAPSHOT, CREATE, FILTERS])
        .upstream("ListSnapshots [Controller Server] should return next token when a limited number of entries are requested"),
    Row::new("ListSnapshots with an invalid starting_token returns Aborted", spec::SNAPSHOTS_TOKEN, case!(bad_token)).needs(&[LIST_SNAPSHOTS]),
    Row::new("GetSnapshot without a snapshot_id returns InvalidArgument", spec::MISSING, case!(get_no_id))
        .needs(&[GET_SNAPSHOT])
        .upstream("GetSnapshot [Controller Server] should return an error"),
    Row::new("GetSnapshot returns the created snapshot", spec::FETCHED, case!(get))
        .also(&[spec::FETCH_CURRENT])
        .needs(&[GET_SNAPSHOT, SNAPSHOT, CREATE])
        .upstream("GetSnapshot [Controller Server] should return snapshot that match the specified snapshot id"),
    Row::new("GetSnapshot of a nonexistent snapshot returns NotFound", spec::FETCH_GONE, case!(get_unknown))
        .needs(&[GET_SNAPSHOT])
        .upstream("GetSnapshot [Controller Server] should return an error when the specified snapshot id does not exist"),
    Row::new("CreateVolume from a snapshot succeeds", spec::SNAPSHOTS_RESTORE, case!(restore))
        .also(&[spec::RESTORE])
        .needs(&[SNAPSHOT, CREATE])
        .each()
        .schedule(Schedule::First)
        .upstream("Controller Service [Controller Server] CreateVolume should create volume from an existing source snapshot"),
    Row::new("CreateVolume from a snapshot restores its data", spec::RESTORE, case!(content))
        .also(&[spec::SNAPSHOTS_RESTORE])
        .needs(&[SNAPSHOT, CREATE, Need::Files, MOUNTS, PERSISTS])
        .establishes(&[Effect::RestoreCopies])
        .each(),
    Row::new("a write to the source after CreateSnapshot does not change the snapshot", spec::CUT, case!(no_alias)).needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES]).establishes(&[Effect::SnapshotKeeps]).each(),
    Row::new("a write to a restored volume does not change the snapshot", spec::RESTORE, case!(two_restores)).needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES]).each(),
    Row::new("a restored volume keeps its data after its snapshot is deleted", spec::RESTORE, case!(outlives))
        .also(&[spec::DROP_IN_USE])
        .needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES])
        .each(),
    Row::new("DeleteVolume of a volume with snapshots keeps them or returns FailedPrecondition", spec::SNAPSHOTS_STAY, case!(source_deleted))
        .also(&[spec::SNAPSHOTS_APART, spec::DELETE_REFUSED])
        .needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES]),
    Row::new("CreateVolume from a snapshot with a larger size succeeds or returns OutOfRange", spec::LARGER_COPY, case!(larger))
        .also(&[spec::SIZE_HONORED])
        .needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES])
        .each(),
    Row::new("CreateVolume from a snapshot without a capacity_range returns a volume of at least its size_bytes", spec::SNAPSHOT_SIZE, case!(no_smaller))
        .also(&[spec::NO_SIZE])
        .needs(&[SNAPSHOT, CREATE]),
    Row::new("CreateVolume from a snapshot with a smaller size succeeds or returns OutOfRange", spec::CREATE_RANGE, case!(smaller)).needs(&[SNAPSHOT, CREATE, EXPAND]),
    Row::new("each snapshot of a volume holds the data of its creation time", spec::CUT, case!(times)).needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES, KEEPS]).each(),
];

async fn no_name(f: &Fixture) -> Result<()> {
    let mut request = f.snapshot_request(&f.volume().await?.volume_id);
    request.name.clear();
    f.create_snapshot(request).await.refused("CreateSnapshot without a name", INVALID)
}

async fn no_source(f: &Fixture) -> Result<()> {
    f.create_snapshot(f.snapshot_request(""))
        .await
        .refused("CreateSnapshot without a source_volume_id", INVALID)
}

/// An error is required; which one, the specification leaves to the driver.
async fn unknown_source(f: &Fixture) -> Result<()> {
    let answer = f.create_snapshot(f.snapshot_request(&f.unknown_volume())).await;
    let accepted = answer.is_ok();
    let refused = answer.refused("CreateSnapshot of a volume that does not exist", NOT_FOUND);
    if accepted { refused.breaks(spec::FAILS) } else { refused }
}

async fn whole(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let snapshot = f.snapshot(&volume).await?;
    ensure!(!snapshot.snapshot_id.is_empty(), "CreateSnapshot returned an empty snapshot_id");
    ensure!(
        snapshot.snapshot_id.len() <= 128,
        "CreateSnapshot returned a snapshot_id of {} bytes, at most 128 are allowed",
        snapshot.snapshot_id.len()
    );
    ensure!(
        snapshot.source_volume_id == volume,
        "a snapshot of {volume:?} has the source_volume_id {:?}",
        snapshot.source_volume_id
    );
    ensure!(snapshot.creation_time.is_some(), "CreateSnapshot returned no creation_time");
    ensure!(snapshot.size_bytes >= 0, "CreateSnapshot returned size_bytes {}", snapshot.size_bytes);
    Ok(())
}

fn id(answer: claimcheck_csi::v1::CreateSnapshotResponse) -> String {
    answer.snapshot.unwrap_or_default().snapshot_id
}

async fn same_again(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let request = f.snapshot_request(&f.volume().await?.volume_id);
    let first = id(f.create_snapshot(request.clone()).await.works("CreateSnapshot")?);
    let again = id(f.create_snapshot(request).await.works("CreateSnapshot called again")?);
    ensure!(
        first == again,
        "CreateSnapshot called twice with one name created two snapshots: {first:?} and {again:?}"
    );
    Ok(())
}

async fn other_source(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let mut request = f.snapshot_request(&f.volume().await?.volume_id);
    f.create_snapshot(request.clone()).await.works("CreateSnapshot")?;
    request.source_volume_id = f.volume().await?.volume_id;
    let what = "CreateSnapshot with an existing name and a different source";
    f.create_snapshot(request).await.refused(what, &[Code::AlreadyExists])
}

async fn longest(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let mut request = f.snapshot_request(&f.volume().await?.volume_id);
    request.name = f.longest_name();
    let what = format!("CreateSnapshot with a name of {} bytes", request.name.len());
    f.create_snapshot(request).await.works(&what)?;
    Ok(())
}

async fn ready(f: &Fixture) -> Result<()> {
    f.snapshot(&f.volume().await?.volume_id).await?;
    Ok(())
}

async fn delete_no_id(f: &Fixture) -> Result<()> {
    f.delete_snapshot(f.delete_snapshot_request(""))
        .await
        .refused("DeleteSnapshot without a snapshot_id", INVALID)
}

async fn delete_unknown(f: &Fixture) -> Result<()> {
    let request = f.delete_snapshot_request(&f.unknown_snapshot());
    f.delete_snapshot(request).await.works("DeleteSnapshot of a snapshot that does not exist")?;
    Ok(())
}

async fn delete_twice(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    for time in ["DeleteSnapshot", "DeleteSnapshot called again"] {
        f.delete_snapshot(f.delete_snapshot_request(&snapshot)).await.works(time)?;
    }
    Ok(())
}

async fn delete_restore(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    f.delete_snapshot(f.delete_snapshot_request(&snapshot)).await.works("DeleteSnapshot")?;
    let answer = f.create_volume(f.create_from(from_snapshot(&snapshot))).await;
    answer.refused("CreateVolume from a deleted snapshot", NOT_FOUND)
}

/// All snapshots that a request matches, page by page.
pub(super) async fn all(f: &Fixture, request: ListSnapshotsRequest) -> Result<Vec<Snapshot>> {
    let (mut pages, mut snapshots) = (Pages::of("ListSnapshots"), Vec::new());
    let (max_entries, mut token) = (request.max_entries, Some(String::new()));
    while let Some(starting_token) = token {
        let secrets = f.config().secrets.list_snapshots.clone();
        let request = ListSnapshotsRequest { secrets, starting_token, ..request.clone() };
        let page = f.list_snapshots(request).await.works("ListSnapshots")?;
        at_most(max_entries, page.entries.len()).breaks(spec::SNAPSHOTS_MAX)?;
        token = pages.next(page.entries.iter().map(weight), page.next_token).breaks(spec::SNAPSHOTS_NEXT)?;
        snapshots.extend(page.entries.into_iter().filter_map(|Entry { snapshot }| snapshot));
    }
    Ok(snapshots)
}

/// Checks the number of entries of a page.
fn at_most(max_entries: i32, count: usize) -> Result<()> {
    let limit = usize::try_from(max_entries).unwrap_or(0);
    ensure!(limit == 0 || count <= limit, "ListSnapshots with max_entries {limit} returns {count} entries");
    Ok(())
}

/// The size of the texts of an entry.
fn weight(Entry { snapshot }: &Entry) -> usize {
    let texts = |it: &Snapshot| it.snapshot_id.len() + it.source_volume_id.len() + it.group_snapshot_id.len();
    snapshot.as_ref().map_or(0, texts)
}

async fn list(f: &Fixture) -> Result<()> {
    let snapshots = all(f, ListSnapshotsRequest::default()).await?;
    ensure!(
        snapshots.iter().all(|snapshot| !snapshot.snapshot_id.is_empty()),
        "ListSnapshots returns a snapshot without an id"
    );
    Ok(())
}

fn has(snapshots: &[Snapshot], id: &str) -> usize {
    snapshots.iter().filter(|snapshot| snapshot.snapshot_id == id).count()
}

async fn list_presence(f: &Fixture) -> Result<()> {
    let id = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    let times = has(&all(f, ListSnapshotsRequest::default()).await?, &id);
    ensure!(times == 1, "the new snapshot {id:?} is in ListSnapshots {times} times");
    f.delete_snapshot(f.delete_snapshot_request(&id)).await.works("DeleteSnapshot")?;
    let times = has(&all(f, ListSnapshotsRequest::default()).await?, &id);
    ensure!(times == 0, "the deleted snapshot {id:?} is still in ListSnapshots");
    Ok(())
}

async fn list_one(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let (one, _other) = (f.snapshot(&volume).await?, f.snapshot(&volume).await?);
    let found =
        all(f, ListSnapshotsRequest { snapshot_id: one.snapshot_id.clone(), ..Default::default() }).await?;
    let ids: Vec<&str> = found.iter().map(|snapshot| snapshot.snapshot_id.as_str()).collect();
    ensure!(
        ids == [one.snapshot_id.as_str()],
        "ListSnapshots of the snapshot_id {:?} returns {ids:?}",
        one.snapshot_id
    );
    if found.iter().any(|snapshot| !snapshot.ready_to_use) {
        let late = anyhow!("CreateSnapshot returns ready_to_use, but ListSnapshots does not");
        return Err(breaking(late, spec::SNAPSHOTS_READY));
    }
    Ok(())
}

async fn list_unknown(f: &Fixture) -> Result<()> {
    let found =
        all(f, ListSnapshotsRequest { snapshot_id: f.unknown_snapshot(), ..Default::default() }).await?;
    ensure!(
        found.is_empty(),
        "ListSnapshots of a snapshot_id that does not exist returns {} snapshots",
        found.len()
    );
    Ok(())
}

async fn list_source(f: &Fixture) -> Result<()> {
    let (volume, other) = (f.volume().await?.volume_id, f.volume().await?.volume_id);
    let mut taken = BTreeSet::new();
    for _ in 0..2 {
        taken.insert(f.snapshot(&volume).await?.snapshot_id);
    }
    ensure!(taken.len() == 2, "two snapshots of a volume have one snapshot_id: {taken:?}");
    f.snapshot(&other).await?;
    let request = ListSnapshotsRequest { source_volume_id: volume.clone(), ..Default::default() };
    let found: BTreeSet<String> = all(f, request).await?.into_iter().map(|it| it.snapshot_id).collect();
    ensure!(
        found == taken,
        "ListSnapshots of the source_volume_id {volume:?} returns {found:?}, but its snapshots are {taken:?}"
    );
    Ok(())
}

async fn list_unknown_source(f: &Fixture) -> Result<()> {
    let found =
        all(f, ListSnapshotsRequest { source_volume_id: f.unknown_volume(), ..Default::default() }).await?;
    ensure!(
        found.is_empty(),
        "ListSnapshots of a source_volume_id that does not exist returns {} snapshots",
        found.len()
    );
    Ok(())
}

async fn pages(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.push(f.snapshot(&volume).await?.snapshot_id);
    }
    let whole = ListSnapshotsRequest { source_volume_id: volume, ..Default::default() };
    let listed = all(f, whole.clone()).await?;
    if taken.iter().any(|id| has(&listed, id) == 0) {
        return Err(skip(
            "ListSnapshots of a source_volume_id is incomplete: see snapshots::ListSnapshots of a source_volume_id \
             returns all snapshots of that volume",
        ));
    }
    let found = all(f, ListSnapshotsRequest { max_entries: 1, ..whole }).await?;
    for id in &taken {
        let times = has(&found, id);
        ensure!(times == 1, "snapshot {id:?} is in the pages of ListSnapshots {times} times");
    }
    Ok(())
}

async fn bad_token(f: &Fixture) -> Result<()> {
    let request = ListSnapshotsRequest { starting_token: "invalid-token".to_owned(), ..Default::default() };
    f.list_snapshots(request).await.refused("ListSnapshots with an invalid starting_token", &[Code::Aborted])
}

fn get_request(f: &Fixture, snapshot_id: String) -> GetSnapshotRequest {
    GetSnapshotRequest { snapshot_id, secrets: f.config().secrets.get_snapshot.clone() }
}

async fn get_no_id(f: &Fixture) -> Result<()> {
    let answer = f.get_snapshot(get_request(f, String::new())).await;
    answer.refused("GetSnapshot without a snapshot_id", INVALID)
}

async fn get(f: &Fixture) -> Result<()> {
    let taken = f.snapshot(&f.volume().await?.volume_id).await?;
    let found = f.get_snapshot(get_request(f, taken.snapshot_id.clone())).await.works("GetSnapshot")?;
    let Some(found) = found.snapshot else { bail!("GetSnapshot returned OK without a snapshot") };
    same_snapshot(&taken, &found)
}

/// Checks that two messages describe one snapshot. Its size may become known later (0 is unknown), and its time may be
/// stored with less precision.
fn same_snapshot(taken: &Snapshot, found: &Snapshot) -> Result<()> {
    let identity =
        |it: &Snapshot| (it.snapshot_id.clone(), it.source_volume_id.clone(), it.group_snapshot_id.clone());
    ensure!(
        identity(taken) == identity(found),
        "CreateSnapshot returned {taken:?}, but GetSnapshot returns {found:?}"
    );
    let second = |it: &Snapshot| it.creation_time.as_ref().map(|time| time.seconds);
    let sizes = [taken.size_bytes, found.size_bytes];
    let same_size = sizes.contains(&0) || taken.size_bytes == found.size_bytes;
    if !same_size || second(taken) != second(found) {
        let other = anyhow!("CreateSnapshot returned {taken:?}, but GetSnapshot returns {found:?}");
        return Err(breaking(other, spec::FETCH_CURRENT));
    }
    Ok(())
}

async fn get_unknown(f: &Fixture) -> Result<()> {
    let answer = f.get_snapshot(get_request(f, f.unknown_snapshot())).await;
    answer.refused("GetSnapshot of a snapshot that does not exist", NOT_FOUND)
}

async fn restore(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?;
    let request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    let source = request.volume_content_source.clone();
    f.check_content_source(f.make(request).await?, source)
}

/// Creates a volume that contains `text`, and a snapshot of it.
async fn with_text(f: &Fixture, text: &str) -> Result<(VolumeOnNode, Snapshot)> {
    let source = f.up().await?;
    f.write(&source, 0, text).await?;
    let snapshot = f.snapshot(source.id()).await?;
    Ok((source, snapshot))
}

async fn restored(f: &Fixture, snapshot: &Snapshot) -> Result<VolumeOnNode> {
    f.publish_all(f.make(f.create_from(from_snapshot(&snapshot.snapshot_id))).await?).await
}

async fn content(f: &Fixture) -> Result<()> {
    let (_, snapshot) = with_text(f, "in the snapshot").await?;
    f.must_hold(&restored(f, &snapshot).await?, 0, "in the snapshot", "in a volume restored from a snapshot")
        .await
}

async fn no_alias(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "before").await?;
    f.write(&source, 0, "after").await?;
    let restored = restored(f, &snapshot).await?;
    f.must_hold(&restored, 0, "before", "in a restored volume, after a later write to the source").await
}

async fn two_restores(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "shared").await?;
    let one = restored(f, &snapshot).await?;
    f.write(&one, 0, "of the first").await?;
    f.must_hold(&source, 0, "shared", "in the source, after a write to a restored volume").await?;
    let two = restored(f, &snapshot).await?;
    f.must_hold(&two, 0, "shared", "in a second restored volume, after a write to the first").await
}

async fn outlives(f: &Fixture) -> Result<()> {
    let (_, snapshot) = with_text(f, "outlives").await?;
    let restored = restored(f, &snapshot).await?;
    let deleted = f.delete_snapshot(f.delete_snapshot_request(&snapshot.snapshot_id)).await;
    if matches!(&deleted, Err(status) if status.code() == Code::FailedPrecondition) {
        f.warn("snapshots cannot be deleted while volumes restored from them exist");
        return Ok(());
    }
    deleted.works("DeleteSnapshot of a restored snapshot")?;
    f.must_hold(&restored, 0, "outlives", "in a restored volume, after its snapshot was deleted").await
}

async fn source_deleted(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "of the source").await?;
    f.withdraw(&source).await?;
    let deleted = f.delete_volume(f.delete_request(source.id())).await;
    if matches!(&deleted, Err(status) if status.code() == Code::FailedPrecondition) {
        let source = f.publish_all(source.volume).await?;
        let what = "in a volume with snapshots, after DeleteVolume returned FailedPrecondition";
        f.must_hold(&source, 0, "of the source", what).await.breaks(spec::DELETE_REFUSED)?;
        let dependent = anyhow!("volumes that have snapshots cannot be deleted");
        return Err(breaking(dependent, spec::SNAPSHOTS_APART));
    }
    deleted.works("DeleteVolume of a volume with snapshots")?;
    if f.has(LIST_SNAPSHOTS) {
        let request =
            ListSnapshotsRequest { snapshot_id: snapshot.snapshot_id.clone(), ..Default::default() };
        let times = has(&all(f, request).await?, &snapshot.snapshot_id);
        ensure!(
            times == 1,
            "after the source of a snapshot was deleted, the snapshot is in ListSnapshots {times} times"
        );
    }
    let restored = restored(f, &snapshot).await?;
    f.must_hold(
        &restored,
        0,
        "of the source",
        "in a restored volume, after the source of the snapshot was deleted",
    )
    .await
}

async fn larger(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "in a larger one").await?;
    let real = f.sizes_are_real(&source).await?;
    let mut request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    request.capacity_range = Some(f.driver().range(f.config().grown()));
    let made = match f.create_volume(request).await {
        Err(status) if status.code() == Code::OutOfRange => {
            f.warn("volumes restored from a snapshot cannot be larger than the snapshot");
            return Ok(());
        }
        made => made.works("CreateVolume from a snapshot with a larger size")?.volume.unwrap_or_default(),
    };
    let grown = f.config().grown();
    ensure!(
        made.capacity_bytes == 0 || made.capacity_bytes >= grown,
        "a restored volume of {grown} bytes was requested, and CreateVolume returned {}",
        made.capacity_bytes
    );
    let restored = f.publish_all(made).await?;
    f.must_hold(&restored, 0, "in a larger one", "in a larger volume restored from a snapshot").await?;
    let (bytes, grown) = (f.bytes(&restored).await?, grown.unsigned_abs());
    ensure!(
        !real || bytes >= grown / 10 * 8,
        "a restored volume of {grown} bytes was requested, and its workload sees {bytes}"
    );
    Ok(())
}

async fn no_smaller(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?;
    let mut request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    request.capacity_range = None;
    let (got, size) = (f.make(request).await?.capacity_bytes, snapshot.size_bytes);
    // Both may be unknown.
    ensure!(
        got == 0 || got >= size,
        "a snapshot has size_bytes {size}, and a volume that was restored from it has {got} bytes"
    );
    Ok(())
}

async fn smaller(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    f.grow(&volume).await?;
    let snapshot = f.snapshot(&volume).await?;
    if snapshot.size_bytes == 0 {
        return Err(skip("snapshots have no size_bytes"));
    }
    let mut request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    let less = f.config().volume_size / 2;
    request.capacity_range = Some(CapacityRange { required_bytes: less, limit_bytes: less });
    let codes = [Code::OutOfRange, Code::InvalidArgument];
    match f.create_volume(request).await {
        // The driver decides which sizes are allowed.
        Ok(_) => f.warn("a restored volume may be smaller than its snapshot"),
        answer => answer.refused("CreateVolume from a snapshot with a smaller size", &codes)?,
    }
    Ok(())
}

async fn times(f: &Fixture) -> Result<()> {
    let (source, first) = with_text(f, "first").await?;
    f.write(&source, 0, "second").await?;
    let second = f.snapshot(source.id()).await?;
    f.write(&source, 0, "third").await?;
    f.must_hold(
        &restored(f, &first).await?,
        0,
        "first",
        "in a volume restored from the first of two snapshots",
    )
    .await?;
    f.must_hold(
        &restored(f, &second).await?,
        0,
        "second",
        "in a volume restored from the second of two snapshots",
    )
    .await
}

#[cfg(test)]
mod tests {
    use claimcheck_model::CaseResult;

    use super::*;
    use crate::verdict::verdict;

    /// The result of a comparison, with the snapshot changed by `change`.
    fn compared(change: impl FnOnce(&mut Snapshot)) -> CaseResult {
        let taken = Snapshot {
            snapshot_id: "snap".to_owned(),
            source_volume_id: "vol".to_owned(),
            size_bytes: 4096,
            creation_time: Some(std::time::SystemTime::UNIX_EPOCH.into()),
            ready_to_use: true,
            ..Snapshot::default()
        };
        let mut found = taken.clone();
        change(&mut found);
        verdict(spec::FETCHED, same_snapshot(&taken, &found), &[], true).0
    }

    #[test]
    fn a_snapshot_may_be_described_with_less_precision() {
        let nanos = |found: &mut Snapshot| found.creation_time.as_mut().unwrap().nanos = 999_999_999;
        let changes: [fn(&mut Snapshot); 2] = [|_| {}, |found| found.size_bytes = 0];
        for change in changes {
            assert_eq!(compared(change), CaseResult::Passed);
        }
        assert_eq!(compared(nanos), CaseResult::Passed);
    }

    #[test]
    fn another_snapshot_is_not_the_same() {
        let seconds = |found: &mut Snapshot| found.creation_time.as_mut().unwrap().seconds = 1_000;
        let failed = |result| matches!(result, CaseResult::Failed { .. });
        assert!(failed(compared(|found| found.snapshot_id.push('2'))));
        assert!(failed(compared(|found| found.source_volume_id.push('2'))));
        assert!(failed(compared(|found| found.group_snapshot_id.push('2'))));
        assert!(failed(compared(|found| found.size_bytes = 1)));
        assert!(failed(compared(seconds)));
    }
}
