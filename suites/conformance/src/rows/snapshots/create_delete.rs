//! CreateSnapshot and DeleteSnapshot.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{CreateSnapshotRequest, CreateSnapshotResponse, Snapshot},
};
use claimcheck_engine::skip;
use tokio::time::{Duration, sleep};

use super::{
    super::clones::is_deleted_unless_used,
    get::same_snapshot,
    restore::{keeps_its_text, source_with_text},
};
use crate::{
    creation_time::is_plausible,
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{Fixture, Step, from_snapshot},
    spec,
    verdict::Breaks,
};

pub(super) async fn no_name(f: &Fixture) -> Result<()> {
    let mut request = f.snapshot_request(&f.volume().await?.volume_id);
    request.name.clear();
    f.create_snapshot(request).await.refused("CreateSnapshot without a name", INVALID)
}

pub(super) async fn no_source(f: &Fixture) -> Result<()> {
    f.create_snapshot(f.snapshot_request(""))
        .await
        .refused("CreateSnapshot without a source_volume_id", INVALID)
}

/// An error is required; which one, the specification leaves to the driver.
pub(super) async fn unknown_source(f: &Fixture) -> Result<()> {
    let answer = f.create_snapshot(f.snapshot_request(&f.unknown_volume())).await;
    let accepted = answer.is_ok();
    let refused = answer.refused("CreateSnapshot of a volume that does not exist", NOT_FOUND);
    if accepted { refused.breaks(spec::SNAPSHOT_UNCOMPLETED) } else { refused }
}

pub(super) async fn whole(f: &Fixture) -> Result<()> {
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
    let created = snapshot.creation_time.map(|time| (time.seconds, time.nanos));
    is_plausible(f, "CreateSnapshot", created).breaks(spec::SNAPSHOT_TIME)?;
    ensure!(snapshot.size_bytes >= 0, "CreateSnapshot returned size_bytes {}", snapshot.size_bytes);
    Ok(())
}

fn taken(answer: CreateSnapshotResponse) -> Snapshot {
    answer.snapshot.unwrap_or_default()
}

pub(super) async fn same_again(f: &Fixture) -> Result<()> {
    // Long enough that a time of the second call differs.
    let pause = async || {
        sleep(Duration::from_millis(1100)).await;
        Ok(())
    };
    f.cuts_once(f.snapshot_request(&f.volume().await?.volume_id), pause).await
}

impl Fixture {
    /// Checks that CreateSnapshot called twice returns the same snapshot, with something done between the calls.
    pub(in crate::rows) async fn cuts_once(
        &self,
        request: CreateSnapshotRequest,
        between: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        self.builds_on(Step::Snapshot)?;
        let source = request.source_volume_id.clone();
        let first = taken(self.create_snapshot(request.clone()).await.works("CreateSnapshot")?);
        between().await?;
        let again = taken(self.create_snapshot(request).await.works("CreateSnapshot called again")?);
        ensure!(
            first.snapshot_id == again.snapshot_id,
            "CreateSnapshot called twice with one name created two snapshots: {:?} and {:?}",
            first.snapshot_id,
            again.snapshot_id
        );
        same_snapshot(&first, &again, "CreateSnapshot called again", spec::SNAPSHOT_SAME)?;
        let what = "CreateSnapshot called twice with one name";
        self.must_be_only_snapshot(&source, &first.snapshot_id, what).await
    }
}

pub(super) async fn other_source(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let mut request = f.snapshot_request(&source_with_text(f).await?.volume_id);
    let first = f.snapshot_as(request.clone()).await?;
    request.source_volume_id = f.volume().await?.volume_id;
    let what = "CreateSnapshot with an existing name and a different source";
    f.create_snapshot(request).await.refused(what, &[Code::AlreadyExists])?;
    keeps_its_text(f, &first, what).await
}

pub(super) async fn longest(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Snapshot)?;
    let mut request = f.snapshot_request(&f.volume().await?.volume_id);
    request.name = f.longest_name();
    let what = format!("CreateSnapshot with a name of {} bytes", request.name.len());
    f.create_snapshot(request).await.works(&what)?;
    Ok(())
}

/// Back ends that allow shorter names may cut them.
pub(super) async fn last_letter(f: &Fixture) -> Result<()> {
    let (volume, name) = (f.volume().await?.volume_id, f.longest_name());
    let named = |name: &str| CreateSnapshotRequest { name: name.to_owned(), ..f.snapshot_request(&volume) };
    if f.create_snapshot(named(&name)).await.is_err() {
        return Err(skip(
            "the longest allowed names are rejected: see snapshots::CreateSnapshot with the longest allowed name succeeds",
        ));
    }
    let stem = &name[..name.len() - 1];
    let (a, b) =
        (f.snapshot_as(named(&format!("{stem}a"))).await?, f.snapshot_as(named(&format!("{stem}b"))).await?);
    ensure!(
        a.snapshot_id != b.snapshot_id,
        "names that differ in their last letter map to one snapshot, {:?}",
        a.snapshot_id
    );
    Ok(())
}

/// A caller that lost the answer does not know that the source was deleted meanwhile.
pub(super) async fn again_without_source(f: &Fixture) -> Result<()> {
    let source = f.volume().await?.volume_id;
    let request = f.snapshot_request(&source);
    let delete = async || {
        f.snapshot_as(request.clone()).await?;
        is_deleted_unless_used(
            f.delete_volume(f.delete_request(&source)).await,
            "DeleteVolume of a volume with snapshots",
        )
    };
    f.cuts_once(request.clone(), delete).await
}

pub(super) async fn ready(f: &Fixture) -> Result<()> {
    f.snapshot(&f.volume().await?.volume_id).await?;
    Ok(())
}

pub(super) async fn delete_no_id(f: &Fixture) -> Result<()> {
    f.delete_snapshot(f.delete_snapshot_request(""))
        .await
        .refused("DeleteSnapshot without a snapshot_id", INVALID)
}

pub(super) async fn delete_unknown(f: &Fixture) -> Result<()> {
    let request = f.delete_snapshot_request(&f.unknown_snapshot());
    f.delete_snapshot(request).await.works("DeleteSnapshot of a snapshot that does not exist")?;
    Ok(())
}

pub(super) async fn delete_twice(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    for time in ["DeleteSnapshot", "DeleteSnapshot called again"] {
        f.delete_snapshot(f.delete_snapshot_request(&snapshot)).await.works(time)?;
    }
    Ok(())
}

pub(super) async fn delete_restore(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    f.delete_snapshot(f.delete_snapshot_request(&snapshot)).await.works("DeleteSnapshot")?;
    let answer = f.create_volume(f.create_from(from_snapshot(&snapshot))).await;
    answer.refused("CreateVolume from a deleted snapshot", NOT_FOUND)
}
