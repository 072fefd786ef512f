//! Volumes restored from snapshots, and their data.

use anyhow::{Context as _, Result, anyhow, ensure};
use claimcheck_csi::{
    Code,
    tap::code_name,
    v1::{CreateSnapshotRequest, CreateVolumeRequest, ListSnapshotsRequest, Snapshot, Volume},
};
use claimcheck_engine::skip;

use super::{
    super::{
        GET_SNAPSHOT, LIST_SNAPSHOTS,
        clones::{ensure_that, is_deleted_unless_used},
        concurrency::must_not_restore,
        controller_create::{keeps_text, with_text as with_own_text},
        node_expand::{keeps, published_grown},
    },
    get::found,
    list::{all, has},
};
use crate::{
    effect::Effect,
    expect::{Answer, is_in_use},
    fixture::{Fixture, Step, VolumeOnNode, from_snapshot},
    need::Need,
    spec,
    verdict::{Breaks, breaking},
};

pub(super) async fn restore(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?;
    let request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    let source = request.volume_content_source.clone();
    f.check_content_source(f.make(request).await?, source)
}

pub(super) async fn other_snapshot(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?;
    let request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    let first = with_own_text(f, f.make(request.clone()).await?).await?;
    let other = f.snapshot(&f.volume().await?.volume_id).await?;
    let other =
        CreateVolumeRequest { name: request.name, ..f.create_from(from_snapshot(&other.snapshot_id)) };
    let what = "CreateVolume with an existing name and a different snapshot";
    f.create_volume(other).await.refused(what, &[Code::AlreadyExists])?;
    keeps_text(f, &first, what).await
}

/// Creates a volume that contains `text`, and a snapshot of it.
async fn with_text(f: &Fixture, text: &str) -> Result<(VolumeOnNode, Snapshot)> {
    taken(f, f.up_with(text).await?).await
}

/// Codes of calls that are repeated.
const PASSING: [Code; 4] =
    [Code::Aborted, Code::Unavailable, Code::DeadlineExceeded, Code::ResourceExhausted];

/// A snapshot of a published volume. A driver may be unable to take one of a volume in use: then the volume is unpublished
/// meanwhile. CSI defines no code for that.
pub(in crate::rows) async fn taken(f: &Fixture, source: VolumeOnNode) -> Result<(VolumeOnNode, Snapshot)> {
    let request = f.snapshot_request(source.id());
    match f.create_snapshot(request.clone()).await {
        Err(status) if !PASSING.contains(&status.code()) => {
            f.withdraw(&source).await?;
            let snapshot = f.snapshot_as(request).await?;
            f.warn(format!(
                "CreateSnapshot of a published volume returns {}: volumes in use have no snapshots",
                code_name(status.code())
            ));
            Ok((f.publish_all(source.volume).await?, snapshot))
        }
        // The call is repeated until the snapshot is ready.
        _ => Ok((source, f.snapshot_as(request).await?)),
    }
}

/// A new volume from a snapshot.
pub(in crate::rows) async fn restored(f: &Fixture, snapshot: &Snapshot) -> Result<Volume> {
    f.make(f.create_from(from_snapshot(&snapshot.snapshot_id))).await
}

/// Checks that a snapshot still contains a text: in a new volume that is restored from it.
pub(in crate::rows) async fn must_restore(
    f: &Fixture,
    snapshot: &Snapshot,
    text: &str,
    what: &str,
) -> Result<()> {
    f.must_still_hold(&restored(f, snapshot).await?, text, what).await
}

/// The text of a source, which its snapshots must keep.
const SOURCE_TEXT: &str = "of the source of a snapshot";

/// A new volume for snapshots that must keep its text; without one, if cases cannot write to volumes.
pub(in crate::rows) async fn source_with_text(f: &Fixture) -> Result<Volume> {
    let volume = f.volume().await?;
    if !f.writes() {
        return Ok(volume);
    }
    f.put(volume, SOURCE_TEXT).await.map_err(|error| f.unless_data_fails(error))
}

/// Checks that a snapshot of such a volume still holds the text, if the driver restores snapshots.
pub(in crate::rows) async fn keeps_its_text(f: &Fixture, snapshot: &Snapshot, after: &str) -> Result<()> {
    if !f.writes() || f.builds_on(Step::Restore).is_err() {
        return Ok(());
    }
    let restored = restored(f, snapshot).await;
    let restored =
        restored.map_err(|error| f.or_reported(Effect::RestoreCopies, f.unless_data_fails(error)))?;
    has_source_text(f, &restored, after).await
}

/// Checks that a volume that was restored from such a snapshot holds the text.
pub(in crate::rows) async fn has_source_text(f: &Fixture, restored: &Volume, after: &str) -> Result<()> {
    let what = format!("in a volume restored from a snapshot, after {after}");
    let held = f.must_still_hold(restored, SOURCE_TEXT, &what).await;
    held.map_err(|error| f.or_reported(Effect::RestoreCopies, f.unless_data_fails(error)))
}

pub(super) async fn content(f: &Fixture) -> Result<()> {
    let (_, snapshot) = with_text(f, "in the snapshot").await?;
    must_restore(f, &snapshot, "in the snapshot", "in a volume restored from a snapshot").await
}

pub(super) async fn attributes(f: &Fixture) -> Result<()> {
    let (source, written) = f.with_attributes().await?;
    let snapshot = f.snapshot(&source.volume_id).await?;
    let what = "in a volume restored from a snapshot";
    f.must_have_attributes(restored(f, &snapshot).await?, &written, what).await
}

pub(super) async fn no_alias(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "before").await?;
    f.write_throughout(&source, "after").await?;
    f.withdraw(&source).await?;
    must_restore(f, &snapshot, "before", "in a restored volume, after a later write to the source").await
}

pub(super) async fn cut_again(f: &Fixture) -> Result<()> {
    f.keeps_the_cut(async || Ok(())).await
}

impl Fixture {
    /// Checks that CreateSnapshot called again does not cut the snapshot again, with something done between the calls: it
    /// has the data of the first call. external-snapshotter repeats the call until the snapshot is ready.
    pub(in crate::rows) async fn keeps_the_cut(
        &self,
        between: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        let source = self.holding("before the first call").await?;
        let request = self.snapshot_request(&source.volume_id);
        let first = self.snapshot_as(request.clone()).await?;
        self.put(source, "after the first call").await?;
        between().await?;
        let again = self.snapshot_as(request).await?;
        ensure!(
            first.snapshot_id == again.snapshot_id,
            "CreateSnapshot called again returned the snapshot {:?} instead of {:?}",
            again.snapshot_id,
            first.snapshot_id
        );
        let what = "in a volume restored from a snapshot, after CreateSnapshot was called again";
        must_restore(self, &again, "before the first call", what).await
    }
}

pub(super) async fn two_restores(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "shared").await?;
    f.withdraw(&source).await?;
    let one = f.put(restored(f, &snapshot).await?, "of the first").await?;
    let what = "in the source, after a write to a restored volume";
    f.must_still_hold(&source.volume, "shared", what).await?;
    let what = "in a second restored volume, after a write to the first";
    must_restore(f, &snapshot, "shared", what).await?;
    let what = "in the first restored volume, after another was restored";
    f.must_still_hold(&one, "of the first", what).await
}

pub(super) async fn outlives(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "outlives").await?;
    let restored = restored(f, &snapshot).await?;
    let deleted = f.delete_snapshot(f.delete_snapshot_request(&snapshot.snapshot_id)).await;
    if is_in_use(&deleted) {
        f.warn("snapshots cannot be deleted while volumes restored from them exist");
        let refused = "after DeleteSnapshot returned FailedPrecondition";
        f.must_still_hold(&restored, "outlives", &format!("in a restored volume, {refused}")).await?;
        let what = format!("in another volume restored from the snapshot, {refused}");
        return must_restore(f, &snapshot, "outlives", &what).await;
    }
    deleted.works("DeleteSnapshot of a restored snapshot")?;
    f.must_still_hold(&restored, "outlives", "in a restored volume, after its snapshot was deleted").await?;
    // A storage system may keep the blocks of a deleted snapshot as long as its source.
    f.withdraw(&source).await?;
    let deleted = f.delete_volume(f.delete_request(source.id())).await;
    if is_in_use(&deleted) {
        return Ok(());
    }
    deleted.works("DeleteVolume of the source of a deleted snapshot")?;
    let what = "in a restored volume, after its snapshot and the source of that were deleted";
    f.must_still_hold(&restored, "outlives", what).await
}

pub(super) async fn restored_again(f: &Fixture) -> Result<()> {
    let (_, snapshot) = with_text(f, "of the source").await?;
    f.keeps_its_data(f.create_from(from_snapshot(&snapshot.snapshot_id)), async || Ok(())).await
}

pub(super) async fn again_without_snapshot(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?.snapshot_id;
    let delete = async || {
        let answer = f.delete_snapshot(f.delete_snapshot_request(&snapshot)).await;
        is_deleted_unless_used(answer, "DeleteSnapshot of a restored snapshot")
    };
    f.makes_again(f.create_from(from_snapshot(&snapshot)), delete).await
}

pub(super) async fn restored_deleted(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "of the source").await?;
    f.withdraw(&source).await?;
    let deleted = restored(f, &snapshot).await?;
    f.delete_volume(f.delete_request(&deleted.volume_id)).await.works("DeleteVolume of a restored volume")?;
    let after = "after a volume that was restored from its snapshot was deleted";
    f.must_still_hold(&source.volume, "of the source", &format!("in the source, {after}")).await?;
    let after = "after another volume that was restored from the snapshot was deleted";
    must_restore(f, &snapshot, "of the source", &format!("in a restored volume, {after}")).await
}

pub(super) async fn snapshot_deleted(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "in the snapshot").await?;
    f.write_throughout(&source, "written later").await?;
    f.withdraw(&source).await?;
    let request = f.delete_snapshot_request(&snapshot.snapshot_id);
    f.delete_snapshot(request).await.works("DeleteSnapshot")?;
    f.must_still_hold(&source.volume, "written later", "in the source, after its snapshot was deleted").await
}

/// Back ends form the names of snapshots from those of the requests, and may delete by a part of them.
pub(super) async fn others_stay(f: &Fixture) -> Result<()> {
    let (name, source) = (f.name(), f.holding("before the snapshots").await?);
    let mut taken = Vec::new();
    for name in [name.clone(), format!("{name}1"), format!("a-{name}")] {
        let request = CreateSnapshotRequest { name: name.clone(), ..f.snapshot_request(&source.volume_id) };
        taken.push((f.snapshot_as(request).await?, name));
    }
    f.put(source, "after the snapshots").await?;
    let (deleted, name) = taken.remove(0);
    let request = f.delete_snapshot_request(&deleted.snapshot_id);
    f.delete_snapshot(request).await.works("DeleteSnapshot")?;
    for (snapshot, other) in taken {
        let what = format!(
            "in a volume restored from the snapshot {other:?}, after {name:?} of the same volume was deleted"
        );
        must_restore(f, &snapshot, "before the snapshots", &what).await?;
    }
    Ok(())
}

/// The second snapshot contains what the restored volume has by then, and not what it was restored from.
pub(super) async fn restored_twice(f: &Fixture) -> Result<()> {
    let (_, first) = with_text(f, "of the source").await?;
    let volume = f.put(restored(f, &first).await?, "of the restored volume").await?;
    let second = f.snapshot(&volume.volume_id).await?;
    let what = "in a volume restored from the snapshot of a restored volume";
    must_restore(f, &second, "of the restored volume", what).await?;
    let what = "in a volume restored from the first snapshot, after one of a restored volume";
    must_restore(f, &first, "of the source", what).await
}

/// `size_bytes` is the least size of a volume from the snapshot: external-provisioner compares the size of a claim with
/// it. A back end that stores the size at creation forgets that the source was expanded.
pub(super) async fn own_size(f: &Fixture) -> Result<()> {
    const TEXT: &str = "up to the end of an expanded volume";
    let placed = published_grown(f, f.volume().await?).await?;
    f.write_throughout(&placed, TEXT).await?;
    f.withdraw(&placed).await?;
    let snapshot = f.snapshot(placed.id()).await?;
    let size = snapshot.size_bytes;
    if size == 0 {
        return Err(skip("CreateSnapshot returns no size_bytes"));
    }
    let mut request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    request.capacity_range = Some(f.driver().range(size));
    let what =
        format!("CreateVolume of {size} bytes from a snapshot of an expanded volume with that size_bytes");
    let made = f.create_volume(request).await.works(&what)?.volume.unwrap_or_default();
    f.must_still_hold(&made, TEXT, &what).await
}

/// A restored volume may share blocks with its snapshot, and both with the source, until it is expanded.
pub(super) async fn expanded(f: &Fixture) -> Result<()> {
    const TEXT: &str = "of the source";
    let (source, snapshot) = with_text(f, TEXT).await?;
    f.withdraw(&source).await?;
    let volume = published_grown(f, restored(f, &snapshot).await?).await?;
    keeps(f, &volume, TEXT, "in a restored volume, after ControllerExpandVolume").await?;
    let after = "after a volume that was restored from its snapshot was expanded";
    f.must_still_hold(&source.volume, TEXT, &format!("in the source, {after}")).await?;
    let after = "after another volume that was restored from the snapshot was expanded";
    must_restore(f, &snapshot, TEXT, &format!("in a restored volume, {after}")).await
}

/// A snapshot may be a difference to its source.
pub(super) async fn source_expanded(f: &Fixture) -> Result<()> {
    const TEXT: &str = "of the source";
    let (source, snapshot) = with_text(f, TEXT).await?;
    f.withdraw(&source).await?;
    let source = published_grown(f, source.volume).await?;
    keeps(f, &source, TEXT, "in a volume that has a snapshot, after ControllerExpandVolume").await?;
    must_restore(f, &snapshot, TEXT, "in a restored volume, after the source of its snapshot was expanded")
        .await
}

pub(super) async fn source_deleted(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "of the source").await?;
    f.withdraw(&source).await?;
    let deleted = f.delete_volume(f.delete_request(source.id())).await;
    if is_in_use(&deleted) {
        let what = "in a volume with snapshots, after DeleteVolume returned FailedPrecondition";
        f.must_still_hold(&source.volume, "of the source", what).await.breaks(spec::DELETE_REFUSED)?;
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
    if f.has(GET_SNAPSHOT) {
        found(f, &snapshot.snapshot_id).await.context("after the source of a snapshot was deleted")?;
    }
    let what = "in a restored volume, after the source of the snapshot was deleted";
    must_restore(f, &snapshot, "of the source", what).await?;
    let deleted = f.delete_snapshot(f.delete_snapshot_request(&snapshot.snapshot_id)).await;
    if is_in_use(&deleted) {
        // The restored volume uses it.
        return Ok(());
    }
    deleted.works("DeleteSnapshot of a snapshot without its source").breaks(spec::DROP)?;
    let what = "after DeleteSnapshot of a snapshot without its source";
    must_not_restore(f, &snapshot.snapshot_id, what).await.breaks(spec::DROP)
}

pub(super) async fn larger(f: &Fixture) -> Result<()> {
    let (_, snapshot) = with_text(f, "in a larger one").await?;
    let what = "CreateVolume from a snapshot with a larger size";
    let mut request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    request.capacity_range = Some(f.driver().range(f.config().grown()));
    let made = match f.create_volume(request).await {
        Err(status) if status.code() == Code::OutOfRange => {
            f.warn("volumes restored from a snapshot cannot be larger than the snapshot");
            return Ok(());
        }
        made => made.works(what)?.volume.unwrap_or_default(),
    };
    f.must_be_larger(made, "in a larger one", what).await
}

pub(super) async fn no_smaller(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?;
    let mut request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    request.capacity_range = None;
    let made = f.make(request).await?;
    let (got, size) = (made.capacity_bytes, snapshot.size_bytes);
    // Both may be unknown.
    ensure!(
        got == 0 || got >= size,
        "a snapshot has size_bytes {size}, and a volume that was restored from it has {got} bytes"
    );
    if !f.has(Need::Files) {
        return Ok(());
    }
    let restored = f.publish_all(made).await?;
    // A snapshot without a size has that of its source.
    let least = if size == 0 { f.config().volume_size } else { size };
    f.must_have_size(&restored, least, "CreateVolume from a snapshot without a capacity_range").await
}

pub(super) async fn smaller(f: &Fixture) -> Result<()> {
    const TEXT: &str = "in a smaller one";
    let volume = f.volume().await?;
    f.grow(&volume.volume_id).await?;
    let volume = if f.writes() { f.put(volume, TEXT).await? } else { volume };
    let snapshot = f.snapshot(&volume.volume_id).await?;
    let request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    let what = "CreateVolume from a snapshot with a smaller size";
    let Some(made) = f.make_smaller(request, what).await? else { return Ok(()) };
    // The size of a snapshot may be that of its data, so that a smaller volume may hold all of it.
    f.warn("a restored volume may be smaller than the source of its snapshot");
    let (got, size) = (made.capacity_bytes, snapshot.size_bytes);
    let cut = anyhow!(
        "{what} returned OK and the volume {:?} of {got} bytes, but its snapshot has size_bytes {size}",
        made.volume_id
    );
    ensure_that(got == 0 || got >= size, cut).breaks(spec::SNAPSHOT_SIZE)?;
    if f.writes() {
        f.must_still_hold(&made, TEXT, what).await.breaks(spec::RESTORE)?;
    }
    Ok(())
}

/// What was deleted between two snapshots is not in the second, also if it is made of the first and of what was written
/// since.
pub(super) async fn times(f: &Fixture) -> Result<()> {
    const DELETED: u64 = 1;
    let source = f.up_with("first").await?;
    f.write(&source, DELETED, "only in the first").await?;
    let (source, first) = taken(f, source).await?;
    f.write_throughout(&source, "second").await?;
    f.erase(&source, DELETED).await?;
    let (source, second) = taken(f, source).await?;
    f.write_throughout(&source, "third").await?;
    let what = "in a volume restored from the first of two snapshots";
    must_restore(f, &first, "first", what).await?;
    let what = "in a volume restored from the second of two snapshots";
    let restored = f.publish_all(restored(f, &second).await?).await?;
    f.must_hold_throughout(&restored, "second", what).await?;
    f.must_be_erased(&restored, DELETED, what).await
}
