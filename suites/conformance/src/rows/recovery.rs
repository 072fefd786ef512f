//! What callers do after an unplanned event on a node: a reboot, which loses the mounts, a process that still uses a
//! volume, a call of unknown outcome, a volume with another file system than the requested one. Such reports about
//! real drivers ended with lost data, or with pods that stay Terminating.

use std::{fs::File, time::Duration};

use anyhow::{Context, Result, ensure};
use claimcheck_csi::v1::{VolumeCapability, volume_capability::AccessType};
use tokio::time::{sleep, timeout};

use super::{
    ATTACH, CREATE, MOUNTS, PERSISTS, PUBLISH_AGAIN, RESTORES, SNAPSHOT, STAGE, STAGE_AGAIN, SURVIVES,
    UNMOUNTS, UNPUBLISH_AGAIN, UNSTAGE_AGAIN, UNSTAGES, case, concurrency::settled,
    interruptions::LATE_START, snapshots::restored,
};
use crate::{
    alone::Alone,
    case::{Access, Row},
    expect::Answer,
    fixture::{Fixture, VolumeOnNode, place_of},
    need::Need,
    spec,
};

/// Delays after which a call is cancelled.
const CANCELLED: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(4), Duration::from_millis(16)];

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "NodeStageVolume and NodePublishVolume after the node lost its mounts mount the volume again",
        spec::PUBLISH_USABLE,
        case!(mounted_again),
    )
    .needs(&[Need::Restart, CREATE, SURVIVES, Need::Files, MOUNTS, PERSISTS, STAGE_AGAIN, PUBLISH_AGAIN])
    .alone(Alone::KillsDriver)
    .only(Access::Mount),
    Row::new(
        "NodeUnpublishVolume and NodeUnstageVolume after the node lost its mounts succeed",
        spec::UNPUBLISH_TWICE,
        case!(undone),
    )
    .needs(&[Need::Restart, CREATE, SURVIVES, Need::Files, MOUNTS, UNPUBLISH_AGAIN, UNSTAGE_AGAIN])
    .alone(Alone::KillsDriver)
    .only(Access::Mount),
    Row::new("NodeUnpublishVolume of a target in use leaves the data", spec::UNPUBLISH_UNDOES, case!(in_use))
        .needs(&[CREATE, Need::Files, MOUNTS, PERSISTS, UNMOUNTS])
        .only(Access::Mount),
    Row::new(
        "NodeStageVolume or NodePublishVolume with another fs_type leaves the data",
        spec::PUBLISH_USABLE,
        case!(other_file_system),
    )
    .needs(&[CREATE, Need::Files, MOUNTS, PERSISTS, UNMOUNTS])
    .only(Access::Mount),
    Row::new(
        "NodeStageVolume or NodePublishVolume of a restored volume with another fs_type leaves the data",
        spec::PUBLISH_USABLE,
        case!(restored_with_another),
    )
    .needs(&[CREATE, SNAPSHOT, Need::Files, MOUNTS, RESTORES, UNMOUNTS])
    .only(Access::Mount),
    Row::new(
        "NodeUnstageVolume after a cancelled NodeStageVolume leaves nothing mounted",
        spec::UNSTAGE_UNDOES,
        case!(stage_in_doubt),
    )
    .needs(&[CREATE, STAGE, Need::Files, UNSTAGE_AGAIN, UNSTAGES])
    .each(),
    Row::new(
        "DeleteVolume after a cancelled ControllerPublishVolume and ControllerUnpublishVolume succeeds",
        spec::DETACH_NODE,
        case!(attach_in_doubt),
    )
    .needs(&[CREATE, ATTACH]),
];

/// A published volume with data, of which the node has lost all mounts, as after a reboot: the directories remain, and
/// the driver has been started again.
async fn after_reboot(f: &Fixture) -> Result<VolumeOnNode> {
    let placed = f.up().await?;
    f.write(&placed, 0, "before the reboot").await?;
    for root in [f.target_root(), f.staging_root()] {
        f.unmount_below(&root)?;
    }
    f.restart().await?;
    Ok(placed)
}

async fn mounted_again(f: &Fixture) -> Result<()> {
    let placed = after_reboot(f).await?;
    if placed.staging.is_some() {
        let staged = f.node_stage_volume(f.stage_request(&placed)).await;
        staged.works("NodeStageVolume after the node lost its mounts")?;
    }
    let published = f.node_publish_volume(f.publish_request(&placed)).await;
    published.works("NodePublishVolume after the node lost its mounts")?;
    f.must_be_mounted_once(&placed, "after the node lost its mounts and NodePublishVolume returned OK")?;
    f.must_hold(
        &placed,
        0,
        "before the reboot",
        "in a volume that is published after the node lost its mounts",
    )
    .await?;
    f.withdraw(&placed).await
}

async fn undone(f: &Fixture) -> Result<()> {
    let placed = after_reboot(f).await?;
    let down = f.node_unpublish_volume(f.unpublish_request(&placed)).await;
    down.works("NodeUnpublishVolume after the node lost its mounts")?;
    if placed.staging.is_some() {
        let unstaged = f.node_unstage_volume(f.unstage_request(&placed)).await;
        unstaged.works("NodeUnstageVolume after the node lost its mounts")?;
    }
    f.detach(&placed).await
}

async fn in_use(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.write(&placed, 0, "in use").await?;
    let user = File::open(place_of(&placed, 0)).context("cannot open a file of the published volume")?;
    // It may fail, since the target is busy, or unmount it lazily.
    let _ = f.node_unpublish_volume(f.unpublish_request(&placed)).await;
    drop(user);
    let down = settled(f, || f.node_unpublish_volume(f.unpublish_request(&placed))).await;
    down.works("NodeUnpublishVolume of a target that is no longer in use")?;
    f.unstage(&placed).await?;
    f.stage(&placed).await?;
    f.publish(&placed).await?;
    f.must_hold(&placed, 0, "in use", "after NodeUnpublishVolume of a target in use").await
}

/// The capability with a file system other than `fs_type`.
fn with_other_file_system(mut capability: VolumeCapability, fs_type: &str) -> VolumeCapability {
    if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
        mount.fs_type = if fs_type == "xfs" { "ext4" } else { "xfs" }.to_owned();
    }
    capability
}

const FIRST: &str = "of the first file system";

async fn other_file_system(f: &Fixture) -> Result<()> {
    let placed = f.up_with(FIRST).await?;
    let present = f.file_system_at(&placed.target)?;
    f.unpublish(&placed).await?;
    f.unstage(&placed).await?;
    f.restore_staging(&placed).await?;
    survives_another(f, &placed, &present).await
}

/// A restored volume has its file system from the snapshot: the node has never published it.
async fn restored_with_another(f: &Fixture) -> Result<()> {
    let source = f.up_with(FIRST).await?;
    let present = f.file_system_at(&source.target)?;
    f.withdraw(&source).await?;
    let snapshot = f.snapshot(source.id()).await?;
    let mut placed = f.place(restored(f, &snapshot).await?).await?;
    f.attach(&mut placed).await?;
    survives_another(f, &placed, &present).await
}

/// Checks that an attached volume keeps [`FIRST`] if it is staged and published with a file system other than `present`.
async fn survives_another(f: &Fixture, placed: &VolumeOnNode, present: &str) -> Result<()> {
    let capability = Some(with_other_file_system(f.driver().capability(placed.access), present));
    // The driver may reject the request, or mount the file system that exists.
    let staged = match placed.staging {
        Some(_) => {
            let mut request = f.stage_request(placed);
            request.volume_capability.clone_from(&capability);
            f.node_stage_volume(request).await.is_ok()
        }
        None => true,
    };
    if staged {
        let mut request = f.publish_request(placed);
        request.volume_capability = capability;
        if f.node_publish_volume(request).await.is_ok() {
            f.must_hold_throughout(placed, FIRST, "in a volume that is published with another fs_type")
                .await?;
            f.unpublish(placed).await?;
        }
        f.unstage(placed).await?;
    }
    f.stage(placed).await?;
    f.publish(placed).await?;
    f.must_hold_throughout(placed, FIRST, "after another fs_type was requested").await
}

async fn stage_in_doubt(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    for deadline in CANCELLED {
        f.restore_staging(&placed).await?;
        let _ = timeout(deadline, f.node_stage_volume(f.stage_request(&placed))).await;
        // As after a cancelled NodePublishVolume: the second call reverts a late effect.
        for _ in 0..2 {
            let down = settled(f, || f.node_unstage_volume(f.unstage_request(&placed))).await;
            down.works("NodeUnstageVolume after a cancelled NodeStageVolume")?;
            sleep(LATE_START).await;
        }
    }
    if !f.mounts_below(&f.staging_root()).is_empty() {
        // A call that a busy machine began later still.
        f.unstage(&placed).await?;
    }
    let left = f.mounts_below(&f.staging_root());
    ensure!(
        left.is_empty(),
        "after a cancelled NodeStageVolume, NodeUnstageVolume returned OK, but these mounts remain: {left:?}"
    );
    f.detach(&placed).await
}

async fn attach_in_doubt(f: &Fixture) -> Result<()> {
    let placed = f.place(f.volume().await?).await?;
    let attach = f.attach_request(&placed.volume, placed.access);
    let detach = f.detach_request(placed.id(), &f.node_info().node_id);
    for deadline in CANCELLED {
        let _ = timeout(deadline, f.controller_publish_volume(attach.clone())).await;
        for _ in 0..2 {
            let detached = settled(f, || f.controller_unpublish_volume(detach.clone())).await;
            detached.works("ControllerUnpublishVolume after a cancelled ControllerPublishVolume")?;
            sleep(LATE_START).await;
        }
    }
    let mut deleted = f.delete_volume(f.delete_request(placed.id())).await;
    if deleted.is_err() {
        f.detach(&placed).await?;
        deleted = f.delete_volume(f.delete_request(placed.id())).await;
    }
    deleted.works(
        "DeleteVolume of a volume that ControllerUnpublishVolume detached after a cancelled ControllerPublishVolume",
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::v1::volume_capability::MountVolume;

    use super::*;

    #[test]
    fn the_other_file_system_differs_from_the_present_one() {
        for (present, other) in [("ext4", "xfs"), ("xfs", "ext4"), ("nfs4", "xfs")] {
            let access_type = Some(AccessType::Mount(MountVolume::default()));
            let capability = VolumeCapability { access_type, ..Default::default() };
            let changed = with_other_file_system(capability, present);
            assert!(matches!(changed.access_type, Some(AccessType::Mount(mount)) if mount.fs_type == other));
        }
    }
}
