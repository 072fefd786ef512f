//! Volumes restored from snapshots, and their data.

use anyhow::{Result, anyhow, ensure};
use claimcheck_csi::{
    Code,
    v1::{CapacityRange, ListSnapshotsRequest, Snapshot},
};
use claimcheck_engine::skip;

use super::{
    super::LIST_SNAPSHOTS,
    list::{all, has},
};
use crate::{
    expect::Answer,
    fixture::{Fixture, VolumeOnNode, from_snapshot},
    spec,
    verdict::{Breaks, breaking},
};

pub(super) async fn restore(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.volume().await?.volume_id).await?;
    let request = f.create_from(from_snapshot(&snapshot.snapshot_id));
    let source = request.volume_content_source.clone();
    f.check_content_source(f.make(request).await?, source)
}

/// Creates a volume that contains `text`, and a snapshot of it.
async fn with_text(f: &Fixture, text: &str) -> Result<(VolumeOnNode, Snapshot)> {
    taken(f, f.up_with(text).await?).await
}

/// A snapshot of a published volume. A driver may be unable to take one of a volume in use: then the volume is unpublished
/// meanwhile.
pub(in crate::rows) async fn taken(f: &Fixture, source: VolumeOnNode) -> Result<(VolumeOnNode, Snapshot)> {
    let request = f.snapshot_request(source.id());
    match f.create_snapshot(request.clone()).await {
        Err(status) if status.code() == Code::FailedPrecondition => {
            f.warn("CreateSnapshot of a published volume returns FailedPrecondition: volumes in use have no snapshots");
            f.withdraw(&source).await?;
            let snapshot = f.snapshot_as(request).await?;
            Ok((f.publish_all(source.volume).await?, snapshot))
        }
        // The call is repeated until the snapshot is ready.
        _ => Ok((source, f.snapshot_as(request).await?)),
    }
}

async fn restored(f: &Fixture, snapshot: &Snapshot) -> Result<VolumeOnNode> {
    f.publish_all(f.make(f.create_from(from_snapshot(&snapshot.snapshot_id))).await?).await
}

pub(super) async fn content(f: &Fixture) -> Result<()> {
    let (_, snapshot) = with_text(f, "in the snapshot").await?;
    f.must_hold(&restored(f, &snapshot).await?, 0, "in the snapshot", "in a volume restored from a snapshot")
        .await
}

pub(super) async fn no_alias(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "before").await?;
    f.write(&source, 0, "after").await?;
    let restored = restored(f, &snapshot).await?;
    f.must_hold(&restored, 0, "before", "in a restored volume, after a later write to the source").await
}

pub(super) async fn two_restores(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "shared").await?;
    let one = restored(f, &snapshot).await?;
    f.write(&one, 0, "of the first").await?;
    f.must_hold(&source, 0, "shared", "in the source, after a write to a restored volume").await?;
    let two = restored(f, &snapshot).await?;
    f.must_hold(&two, 0, "shared", "in a second restored volume, after a write to the first").await
}

pub(super) async fn outlives(f: &Fixture) -> Result<()> {
    let (_, snapshot) = with_text(f, "outlives").await?;
    let restored = f.make(f.create_from(from_snapshot(&snapshot.snapshot_id))).await?;
    let deleted = f.delete_snapshot(f.delete_snapshot_request(&snapshot.snapshot_id)).await;
    if matches!(&deleted, Err(status) if status.code() == Code::FailedPrecondition) {
        f.warn("snapshots cannot be deleted while volumes restored from them exist");
        return Ok(());
    }
    deleted.works("DeleteSnapshot of a restored snapshot")?;
    f.must_still_hold(&restored, "outlives", "in a restored volume, after its snapshot was deleted").await
}

pub(super) async fn restored_again(f: &Fixture) -> Result<()> {
    let (_, snapshot) = with_text(f, "of the source").await?;
    f.keeps_its_data(f.create_from(from_snapshot(&snapshot.snapshot_id))).await
}

pub(super) async fn restored_deleted(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "of the source").await?;
    f.withdraw(&source).await?;
    let restored = f.make(f.create_from(from_snapshot(&snapshot.snapshot_id))).await?;
    f.delete_volume(f.delete_request(&restored.volume_id))
        .await
        .works("DeleteVolume of a restored volume")?;
    let after = "after a volume that was restored from its snapshot was deleted";
    f.must_still_hold(&source.volume, "of the source", &format!("in the source, {after}")).await?;
    let restored = f.make(f.create_from(from_snapshot(&snapshot.snapshot_id))).await?;
    let after = "after another volume that was restored from the snapshot was deleted";
    f.must_still_hold(&restored, "of the source", &format!("in a restored volume, {after}")).await
}

pub(super) async fn snapshot_deleted(f: &Fixture) -> Result<()> {
    let (source, snapshot) = with_text(f, "in the snapshot").await?;
    f.write_throughout(&source, "written later").await?;
    f.withdraw(&source).await?;
    let request = f.delete_snapshot_request(&snapshot.snapshot_id);
    f.delete_snapshot(request).await.works("DeleteSnapshot")?;
    f.must_still_hold(&source.volume, "written later", "in the source, after its snapshot was deleted").await
}

pub(super) async fn source_deleted(f: &Fixture) -> Result<()> {
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

pub(super) async fn larger(f: &Fixture) -> Result<()> {
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

pub(super) async fn no_smaller(f: &Fixture) -> Result<()> {
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

pub(super) async fn smaller(f: &Fixture) -> Result<()> {
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

pub(super) async fn times(f: &Fixture) -> Result<()> {
    let (source, first) = with_text(f, "first").await?;
    f.write(&source, 0, "second").await?;
    let (source, second) = taken(f, source).await?;
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
