//! NodeStageVolume and NodeUnstageVolume.

use anyhow::{Result, ensure};
use claimcheck_csi::{Code, tap::code_name, v1::NodeUnstageVolumeRequest};
use claimcheck_engine::skip;

use super::{CREATE, MOUNTS, PERSISTS, STAGE, STAGE_AGAIN, UNSTAGE_AGAIN, case};
use crate::{
    case::{Access, Row},
    effect::Effect,
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{Fixture, VolumeOnNode},
    need::Need,
    spec,
    verdict::Breaks,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("NodeStageVolume without a volume_id returns InvalidArgument", spec::MISSING, case!(no_volume))
        .needs(&[STAGE, CREATE])
        .upstream("Node Service NodeStageVolume should fail when no volume id is provided"),
    Row::new(
        "NodeStageVolume without a staging_target_path returns InvalidArgument",
        spec::MISSING,
        case!(no_path),
    )
    .needs(&[STAGE, CREATE])
    .upstream("Node Service NodeStageVolume should fail when no staging target path is provided"),
    Row::new(
        "NodeStageVolume without a volume_capability returns InvalidArgument",
        spec::MISSING,
        case!(no_capability),
    )
    .needs(&[STAGE, CREATE])
    .upstream("Node Service NodeStageVolume should fail when no volume capability is provided"),
    Row::new("NodeStageVolume of a nonexistent volume returns NotFound", spec::STAGE_GONE, case!(unknown))
        .needs(&[STAGE, CREATE]),
    Row::new("NodeStageVolume of a deleted volume returns NotFound", spec::STAGE_GONE, case!(deleted))
        .needs(&[STAGE, CREATE]),
    Row::new("NodeStageVolume called twice succeeds", spec::STAGE_SAME, case!(twice))
        .needs(&[STAGE, CREATE, STAGE_AGAIN])
        .establishes(&[Effect::StageAgain])
        .each(),
    Row::new(
        "NodeStageVolume called three times mounts the volume once",
        spec::STAGE_TWICE,
        case!(one_mount),
    )
    .needs(&[STAGE, CREATE, Need::Files])
    .establishes(&[Effect::StageAgain])
    .each(),
    Row::new(
        "NodeStageVolume called again keeps the data of the volume",
        spec::STAGE_TWICE,
        case!(keeps_data),
    )
    .needs(&[STAGE, CREATE, Need::Files, MOUNTS, PERSISTS, STAGE_AGAIN])
    .each(),
    Row::new(
        "NodeStageVolume at the same path with a different access type returns AlreadyExists",
        spec::STAGE_OTHERWISE,
        case!(other_access),
    )
    .needs(&[STAGE, CREATE, Need::Access(Access::Block)])
    .only(Access::Mount),
    Row::new("NodeStageVolume mounts the volume before it returns", spec::STAGE_PLACE, case!(mounted))
        .needs(&[STAGE, CREATE, Need::Files])
        .only(Access::Mount),
    Row::new(
        "NodeUnstageVolume without a volume_id returns InvalidArgument",
        spec::MISSING,
        case!(undo_no_volume),
    )
    .needs(&[STAGE])
    .upstream("Node Service NodeUnstageVolume should fail when no volume id is provided"),
    Row::new(
        "NodeUnstageVolume without a staging_target_path returns InvalidArgument",
        spec::MISSING,
        case!(undo_no_path),
    )
    .needs(&[STAGE])
    .upstream("Node Service NodeUnstageVolume should fail when no staging target path is provided"),
    Row::new("NodeUnstageVolume called twice succeeds", spec::UNSTAGE_TWICE, case!(undo_twice))
        .also(&[spec::UNSTAGE_DONE])
        .needs(&[STAGE, CREATE])
        .establishes(&[Effect::UnstageAgain])
        .each(),
    Row::new(
        "NodeUnstageVolume of a volume that was never staged succeeds",
        spec::UNSTAGE_DONE,
        case!(undo_unstaged),
    )
    .needs(&[STAGE, CREATE, UNSTAGE_AGAIN]),
    Row::new(
        "NodeUnstageVolume of a nonexistent volume succeeds or returns NotFound",
        spec::UNSTAGE_GONE,
        case!(undo_unknown),
    )
    .needs(&[STAGE]),
    Row::new("NodeUnstageVolume leaves nothing mounted", spec::UNSTAGE_UNDOES, case!(undo_unmounts))
        .needs(&[STAGE, CREATE, Need::Files])
        .establishes(&[Effect::UnstageUnmounts])
        .each(),
    Row::new("NodeStageVolume after NodeUnstageVolume preserves data", spec::STAGE_USABLE, case!(again))
        .needs(&[STAGE, CREATE, Need::Files, MOUNTS, PERSISTS])
        .each(),
    Row::new("NodeUnstageVolume keeps the staging directory", spec::STAGE_PLACE, case!(directory_stays))
        .needs(&[STAGE, CREATE])
        .each(),
];

async fn no_volume(f: &Fixture) -> Result<()> {
    let mut request = f.stage_request(&f.attached().await?);
    request.volume_id.clear();
    f.node_stage_volume(request).await.refused("NodeStageVolume without a volume_id", INVALID)
}

async fn no_path(f: &Fixture) -> Result<()> {
    let mut request = f.stage_request(&f.attached().await?);
    request.staging_target_path.clear();
    f.node_stage_volume(request).await.refused("NodeStageVolume without a staging_target_path", INVALID)
}

async fn no_capability(f: &Fixture) -> Result<()> {
    let mut request = f.stage_request(&f.attached().await?);
    request.volume_capability = None;
    f.node_stage_volume(request).await.refused("NodeStageVolume without a volume_capability", INVALID)
}

async fn unknown(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let mut request = f.stage_request(&placed);
    request.volume_id = f.unknown_volume();
    let answer = f.node_stage_volume(request.clone()).await;
    if answer.is_ok() {
        // Or what this case has staged would be reported as left behind by the driver.
        f.unstage_as(&placed, &request.volume_id).await;
    }
    answer.refused(&f.of_unknown_volume("NodeStageVolume"), NOT_FOUND)
}

const STAGED_ANYWAY: &str = "volumes that do not exist are staged: see node_stage::NodeStageVolume of a nonexistent volume returns NotFound";

async fn deleted(f: &Fixture) -> Result<()> {
    // Attached before it is deleted: a driver may reject a request without its publish_context as invalid.
    let placed = f.attached().await?;
    let mut unknown = f.stage_request(&placed);
    unknown.volume_id = f.unknown_volume();
    let unknown_code = match f.node_stage_volume(unknown.clone()).await {
        Ok(_) => {
            f.unstage_as(&placed, &unknown.volume_id).await;
            // By its publish_context, which is that of a volume that exists: a detached one may have none.
            if !f.attaches() {
                return Err(skip(STAGED_ANYWAY));
            }
            None
        }
        Err(status) => Some(status.code()),
    };
    if f.attaches() {
        let request = f.detach_request(placed.id(), &f.node_info().node_id);
        f.controller_unpublish_volume(request).await.works("ControllerUnpublishVolume")?;
    }
    f.delete_volume(f.delete_request(placed.id())).await.works("DeleteVolume")?;
    match f.node_stage_volume(f.stage_request(&placed)).await {
        Err(status) if status.code() != Code::NotFound && Some(status.code()) == unknown_code => {
            Err(skip(format!(
                "{} is returned for all volumes that do not exist: see node_stage::NodeStageVolume of a nonexistent \
                 volume returns NotFound",
                code_name(status.code())
            )))
        }
        Ok(_) if unknown_code.is_none() => {
            // Whether it works is another case's matter.
            let _ = f.unstage(&placed).await;
            Err(skip(STAGED_ANYWAY))
        }
        answer => answer.refused("NodeStageVolume of a deleted volume", NOT_FOUND),
    }
}

async fn twice(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    f.node_stage_volume(f.stage_request(&placed)).await.works("NodeStageVolume called again")?;
    Ok(())
}

/// The mounts at the staging path; below it for a block volume, since the driver may keep the device there.
fn mounts(f: &Fixture, placed: &VolumeOnNode) -> Result<usize> {
    let staging = placed.staging.as_deref().expect("the driver stages, or the row would not run");
    match placed.access {
        Access::Mount => f.mounts_at(staging),
        Access::Block => Ok(f.mounts_below(staging).len()),
    }
}

async fn one_mount(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let once = mounts(f, &placed)?;
    ensure!(
        placed.access == Access::Block || once <= 1,
        "NodeStageVolume called once mounts volume {:?} {once} times at its staging path",
        placed.id()
    );
    for _ in 0..2 {
        f.node_stage_volume(f.stage_request(&placed)).await.works("NodeStageVolume called again")?;
    }
    let thrice = mounts(f, &placed)?;
    ensure!(
        once == thrice,
        "NodeStageVolume called three times mounts again: {once} mounts after the first call, {thrice} after the third"
    );
    Ok(())
}

/// Staged again while the volume is published, and while it is not: kubelet does both after a restart.
async fn keeps_data(f: &Fixture) -> Result<()> {
    const TEXT: &str = "written before it is staged again";
    let placed = f.up_with(TEXT).await?;
    f.stage(&placed).await?;
    f.unpublish(&placed).await?;
    f.stage(&placed).await?;
    f.publish(&placed).await?;
    f.must_hold_throughout(&placed, TEXT, "in a volume that was staged again").await?;
    f.withdraw(&placed).await?;
    f.must_still_hold(&placed.volume, TEXT, "after NodeStageVolume was called again").await
}

async fn other_access(f: &Fixture) -> Result<()> {
    const TEXT: &str = "written before it is staged for block access";
    let placed = if f.writes() { f.up_with(TEXT).await? } else { f.staged().await? };
    let mut request = f.stage_request(&placed);
    request.volume_capability = Some(f.driver().capability(Access::Block));
    let answer = f.node_stage_volume(request).await;
    let codes = [Code::AlreadyExists, Code::FailedPrecondition, Code::InvalidArgument];
    answer.refused(
        "NodeStageVolume for block access at a path where the volume is staged as a mount",
        &codes,
    )?;
    if !f.writes() {
        return Ok(());
    }
    f.withdraw(&placed).await?;
    f.must_still_hold(&placed.volume, TEXT, "after NodeStageVolume for block access was rejected").await
}

async fn mounted(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    // A driver may mount in NodePublishVolume only.
    if mounts(f, &placed)? == 0 {
        f.warn("NodeStageVolume mounts nothing at the staging path");
    }
    Ok(())
}

async fn undo_no_volume(f: &Fixture) -> Result<()> {
    let staging_target_path = f.staging_root().to_string_lossy().into_owned();
    let request = NodeUnstageVolumeRequest { volume_id: String::new(), staging_target_path };
    f.node_unstage_volume(request).await.refused("NodeUnstageVolume without a volume_id", INVALID)
}

async fn undo_no_path(f: &Fixture) -> Result<()> {
    let request =
        NodeUnstageVolumeRequest { volume_id: f.unknown_volume(), staging_target_path: String::new() };
    f.node_unstage_volume(request).await.refused("NodeUnstageVolume without a staging_target_path", INVALID)
}

async fn undo_twice(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    for time in ["NodeUnstageVolume", "NodeUnstageVolume called again"] {
        f.node_unstage_volume(f.unstage_request(&placed)).await.works(time)?;
    }
    Ok(())
}

async fn undo_unstaged(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let answer = f.node_unstage_volume(f.unstage_request(&placed)).await;
    answer.works("NodeUnstageVolume of a volume that was never staged")?;
    Ok(())
}

async fn undo_unknown(f: &Fixture) -> Result<()> {
    let staging_target_path = f.staging_root().join(f.unique()).to_string_lossy().into_owned();
    let request = NodeUnstageVolumeRequest { volume_id: f.unknown_volume(), staging_target_path };
    match f.node_unstage_volume(request).await {
        Ok(_) => Ok(()),
        refused => refused.refused("NodeUnstageVolume of a volume that does not exist", NOT_FOUND),
    }
}

async fn undo_unmounts(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    f.unstage(&placed).await?;
    let left = f.mounts_below(&f.staging_root());
    ensure!(left.is_empty(), "NodeUnstageVolume returned OK, but these mounts remain: {left:?}");
    Ok(())
}

async fn again(f: &Fixture) -> Result<()> {
    let placed = f.up_with("staged before").await?;
    f.unpublish(&placed).await?;
    f.unstage(&placed).await?;
    f.stage(&placed).await?;
    f.publish(&placed).await?;
    f.must_hold_throughout(&placed, "staged before", "after NodeUnstageVolume and NodeStageVolume").await
}

async fn directory_stays(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let unstaged = f.node_unstage_volume(f.unstage_request(&placed)).await;
    unstaged.works("NodeUnstageVolume").breaks(spec::UNSTAGE)?;
    let staging = placed.staging.as_deref().expect("the driver stages, or the row would not run");
    if f.kind(staging).await? == crate::fixture::Kind::Absent {
        f.warn("NodeUnstageVolume removes the staging directory, which belongs to the caller");
    }
    Ok(())
}
