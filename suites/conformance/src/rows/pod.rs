//! Pod-specific fields of node calls: the volume_mount_group (fsGroup) and service account tokens.

use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{
        NodePublishVolumeRequest, VolumeCapability, node_service_capability::rpc::Type as NodeType,
        volume_capability::AccessType,
    },
};

use super::{CREATE, MOUNTS, case};
use crate::{
    case::{Access, Row},
    expect::Answer,
    fixture::{Fixture, Kind, Step, VolumeOnNode},
    need::Need,
    spec,
};

/// A group id that no file has by default.
const GROUP: u32 = 4321;
/// The permissions of a group that can list, enter and write to a directory.
const GROUP_USE: u32 = 0o070;
/// The codes for a token that the driver does not accept: it is not valid, or not authorized, or not an argument.
const NO_TOKEN: &[Code] = &[Code::Unauthenticated, Code::PermissionDenied, Code::InvalidArgument];

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "NodePublishVolume with a volume_mount_group sets the group of the volume",
        spec::GROUP,
        case!(group),
    )
    .needs(&[CREATE, Need::Node(NodeType::VolumeMountGroup), Need::Files, MOUNTS])
    .only(Access::Mount),
    Row::new(
        "NodePublishVolume with an expired service account token is rejected",
        spec::TOKENS,
        case!(expired),
    )
    .needs(&[CREATE, Need::Tokens]),
    Row::new("NodePublishVolume without a service account token is rejected", spec::TOKENS, case!(none))
        .needs(&[CREATE, Need::Tokens]),
];

/// Adds a volume_mount_group to a capability.
fn for_group(capability: Option<VolumeCapability>) -> Option<VolumeCapability> {
    let mut capability = capability?;
    if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
        mount.volume_mount_group = GROUP.to_string();
    }
    Some(capability)
}

async fn group(f: &Fixture) -> Result<()> {
    for step in [Step::Stage, Step::Publish] {
        f.builds_on(step)?;
    }
    let placed = f.attached().await?;
    if placed.staging.is_some() {
        let mut request = f.stage_request(&placed);
        request.volume_capability = for_group(request.volume_capability);
        f.node_stage_volume(request).await.works("NodeStageVolume with a volume_mount_group")?;
    }
    let mut request = f.publish_request(&placed);
    request.volume_capability = for_group(request.volume_capability);
    f.node_publish_volume(request).await.works("NodePublishVolume with a volume_mount_group")?;
    f.must_be_mounted(&placed)?;
    let root = std::fs::metadata(&placed.target).context("cannot stat the published volume")?;
    let (owner, mode) = (root.gid(), root.mode() & 0o7777);
    ensure!(
        owner == GROUP,
        "the node declares VOLUME_MOUNT_GROUP, but a volume with volume_mount_group {GROUP} has group {owner}: \
         fsGroup is ignored"
    );
    ensure!(
        mode & GROUP_USE == GROUP_USE,
        "the root directory of a volume with volume_mount_group {GROUP} has that group and the mode {mode:04o}, in which \
         the group cannot read, write and enter it: a pod without root cannot write to its volume"
    );
    Ok(())
}

async fn expired(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let mut request = f.publish_request(&placed);
    f.driver().add_token(&mut request, "2020-01-01T00:00:00Z");
    rejected_for_its_token(f, &placed, request, "with a service account token that expired in 2020").await
}

async fn none(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let request = f.publish_request_without_token(&placed);
    rejected_for_its_token(f, &placed, request, "without a service account token").await
}

/// Checks that a publication is rejected and publishes nothing, and that a valid token is all that it lacks.
async fn rejected_for_its_token(
    f: &Fixture,
    placed: &VolumeOnNode,
    request: NodePublishVolumeRequest,
    condition: &str,
) -> Result<()> {
    let what = format!("NodePublishVolume {condition}");
    f.node_publish_volume(request).await.refused(&what, NO_TOKEN)?;
    if f.has(Need::Files) {
        let (mounts, kind) = (f.mounts_at(&placed.target)?, f.kind(&placed.target).await?);
        ensure!(
            mounts == 0 && kind != Kind::Device,
            "{what} returned an error, but the volume {:?} is at the target all the same: {mounts} mounts, {kind:?}",
            placed.id()
        );
    }
    f.publish(placed).await
}
