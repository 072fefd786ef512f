//! ListSnapshots.

use anyhow::{Context, Result, anyhow, bail, ensure};
use claimcheck_csi::{
    Code,
    v1::{ListSnapshotsRequest, Snapshot, list_snapshots_response::Entry},
};
use claimcheck_engine::skip;

use super::{
    super::{CREATE, LIST_SNAPSHOTS, SNAPSHOT},
    get::same_snapshot,
};
use crate::{
    expect::{Answer, INVALID},
    fixture::Fixture,
    pages::Pages,
    spec,
    verdict::{Breaks, breaking},
};

/// All snapshots that a request matches, page by page.
pub async fn all(f: &Fixture, request: ListSnapshotsRequest) -> Result<Vec<Snapshot>> {
    let (mut pages, mut snapshots) = (Pages::of("ListSnapshots"), Vec::new());
    let (max_entries, mut token) = (request.max_entries, Some(String::new()));
    while let Some(starting_token) = token {
        let secrets = f.config().secrets.list_snapshots.clone();
        let request = ListSnapshotsRequest { secrets, starting_token, ..request.clone() };
        let page = f.list_snapshots(request).await.works(&pages.call());
        let page = page.breaks(if pages.is_first() { spec::SNAPSHOTS } else { spec::SNAPSHOTS_NEXT })?;
        at_most(max_entries, page.entries.len()).breaks(spec::SNAPSHOTS_MAX)?;
        token = pages.next(page.entries.iter().map(weight), page.next_token).breaks(spec::SNAPSHOTS_NEXT)?;
        for Entry { snapshot } in page.entries {
            snapshots.push(snapshot.context("ListSnapshots returns an entry without a snapshot")?);
        }
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

pub(super) async fn list(f: &Fixture) -> Result<()> {
    let is_empty = !some(f).await?;
    let snapshots = all(f, ListSnapshotsRequest::default()).await?;
    ensure!(
        is_empty || !snapshots.is_empty(),
        "ListSnapshots returns no entries, although a snapshot exists"
    );
    ensure!(
        snapshots.iter().all(|snapshot| !snapshot.snapshot_id.is_empty()),
        "ListSnapshots returns a snapshot without an id"
    );
    Ok(())
}

/// How often a snapshot is in a list.
pub(super) fn has(snapshots: &[Snapshot], id: &str) -> usize {
    snapshots.iter().filter(|snapshot| snapshot.snapshot_id == id).count()
}

pub(super) async fn list_presence(f: &Fixture) -> Result<()> {
    let id = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    let times = has(&all(f, ListSnapshotsRequest::default()).await?, &id);
    ensure!(times == 1, "the new snapshot {id:?} is in ListSnapshots {times} times");
    f.delete_snapshot(f.delete_snapshot_request(&id)).await.works("DeleteSnapshot")?;
    let times = has(&all(f, ListSnapshotsRequest::default()).await?, &id);
    ensure!(times == 0, "the deleted snapshot {id:?} is still in ListSnapshots");
    Ok(())
}

pub(super) async fn list_one(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let (one, _other) = (f.snapshot(&volume).await?, f.snapshot(&volume).await?);
    let found = listed(f, &one.snapshot_id).await?;
    same_snapshot(&one, &found, "ListSnapshots", spec::SNAPSHOTS_CURRENT)?;
    if !found.ready_to_use {
        let late = anyhow!("CreateSnapshot returns ready_to_use, but ListSnapshots does not");
        return Err(breaking(late, spec::SNAPSHOTS_READY));
    }
    Ok(())
}

/// The snapshot with this id, as ListSnapshots describes it.
pub(in crate::rows) async fn listed(f: &Fixture, snapshot_id: &str) -> Result<Snapshot> {
    let request = ListSnapshotsRequest { snapshot_id: snapshot_id.to_owned(), ..Default::default() };
    let mut found = all(f, request).await?;
    let ids: Vec<&str> = found.iter().map(|snapshot| snapshot.snapshot_id.as_str()).collect();
    ensure!(ids == [snapshot_id], "ListSnapshots of the snapshot_id {snapshot_id:?} returns {ids:?}");
    Ok(found.remove(0))
}

/// Creates a snapshot if the driver can: a list without any shows nothing, also if a driver ignores a filter that must
/// omit it. Returns whether one exists.
async fn some(f: &Fixture) -> Result<bool> {
    let creates = f.has(SNAPSHOT) && f.has(CREATE);
    if creates {
        f.snapshot(&f.volume().await?.volume_id).await?;
    }
    Ok(creates)
}

pub(super) async fn list_unknown(f: &Fixture) -> Result<()> {
    some(f).await?;
    let found =
        all(f, ListSnapshotsRequest { snapshot_id: f.unknown_snapshot(), ..Default::default() }).await?;
    ensure!(
        found.is_empty(),
        "ListSnapshots of a snapshot_id that does not exist returns {} snapshots",
        found.len()
    );
    Ok(())
}

pub(super) async fn list_source(f: &Fixture) -> Result<()> {
    let (volume, other) = (f.volume().await?.volume_id, f.volume().await?.volume_id);
    let mut taken = [f.snapshot(&volume).await?.snapshot_id, f.snapshot(&volume).await?.snapshot_id];
    ensure!(taken[0] != taken[1], "two snapshots of a volume have one snapshot_id: {taken:?}");
    taken.sort();
    f.snapshot(&other).await?;
    let request = ListSnapshotsRequest { source_volume_id: volume.clone(), ..Default::default() };
    let mut found: Vec<String> = all(f, request).await?.into_iter().map(|it| it.snapshot_id).collect();
    found.sort();
    ensure!(
        found == taken,
        "ListSnapshots of the source_volume_id {volume:?} returns {found:?}, but its snapshots are {taken:?}"
    );
    Ok(())
}

impl Fixture {
    /// Checks that a volume has this snapshot only, if the driver lists them: what no call returned is never deleted.
    pub(in crate::rows) async fn must_be_only_snapshot(
        &self,
        source: &str,
        id: &str,
        what: &str,
    ) -> Result<()> {
        if !self.has(LIST_SNAPSHOTS) {
            return Ok(());
        }
        let request = ListSnapshotsRequest { source_volume_id: source.to_owned(), ..Default::default() };
        let mut listed = all(self, request).await.breaks(spec::SNAPSHOTS)?;
        listed.retain(|it| it.source_volume_id == source && it.snapshot_id != id);
        let leaked: Vec<String> = listed.into_iter().map(|it| it.snapshot_id).collect();
        ensure!(leaked.is_empty(), "{what} created further snapshots, which no call returned: {leaked:?}");
        Ok(())
    }
}

pub(super) async fn list_unknown_source(f: &Fixture) -> Result<()> {
    some(f).await?;
    let found =
        all(f, ListSnapshotsRequest { source_volume_id: f.unknown_volume(), ..Default::default() }).await?;
    ensure!(
        found.is_empty(),
        "ListSnapshots of a source_volume_id that does not exist returns {} snapshots",
        found.len()
    );
    Ok(())
}

pub(super) async fn pages(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let mut taken = Vec::new();
    // Others, before and after them, may be on the later pages of a driver that forgets what was requested.
    f.snapshot(&f.volume().await?.volume_id).await?;
    for _ in 0..3 {
        taken.push(f.snapshot(&volume).await?.snapshot_id);
    }
    f.snapshot(&f.volume().await?.volume_id).await?;
    let whole = ListSnapshotsRequest { source_volume_id: volume.clone(), ..Default::default() };
    let listed = all(f, whole.clone()).await?;
    if taken.iter().any(|id| has(&listed, id) == 0) {
        return Err(skip(
            "ListSnapshots of a source_volume_id is incomplete: see snapshots::ListSnapshots of a source_volume_id \
             returns all snapshots of that volume",
        ));
    }
    let found = all(f, ListSnapshotsRequest { max_entries: 1, ..whole }).await?;
    let other = found.iter().find(|snapshot| snapshot.source_volume_id != volume);
    if let Some(Snapshot { snapshot_id, source_volume_id, .. }) = other {
        bail!(
            "the pages of ListSnapshots of the source_volume_id {volume:?} contain the snapshot {snapshot_id:?} of the \
             volume {source_volume_id:?}"
        );
    }
    for id in &taken {
        let times = has(&found, id);
        ensure!(times == 1, "snapshot {id:?} is in the pages of ListSnapshots {times} times");
    }
    Ok(())
}

pub(super) async fn negative(f: &Fixture) -> Result<()> {
    some(f).await?;
    let secrets = f.config().secrets.list_snapshots.clone();
    match f.list_snapshots(ListSnapshotsRequest { max_entries: -1, secrets, ..Default::default() }).await {
        // The specification does not define its meaning.
        Ok(_) => f.warn("ListSnapshots accepts max_entries -1"),
        refused => refused.refused("ListSnapshots with max_entries -1", INVALID)?,
    }
    Ok(())
}

pub(super) async fn bad_token(f: &Fixture) -> Result<()> {
    let request = ListSnapshotsRequest { starting_token: "invalid-token".to_owned(), ..Default::default() };
    f.list_snapshots(request).await.refused("ListSnapshots with an invalid starting_token", &[Code::Aborted])
}
