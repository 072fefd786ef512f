//! Pod-specific fields of node calls: the volume_mount_group (fsGroup) and service account tokens.

use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, bail, ensure};
use claimcheck_csi::v1::{
    VolumeCapability, node_service_capability::rpc::Type as NodeType, volume_capability::AccessType,
};

use super::{CREATE, MOUNTS, case};
use crate::{
    case::{Access, Row},
    expect::Answer,
    fixture::{Fixture, Step},
    need::Need,
    spec,
};

/// A group id that no file has by default.
const GROUP: u32 = 4321;

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
    let owner = std::fs::metadata(&placed.target).context("cannot stat the published volume")?.gid();
    ensure!(
        owner == GROUP,
        "the node declares VOLUME_MOUNT_GROUP, but a volume with volume_mount_group {GROUP} has group {owner}: \
         fsGroup is ignored"
    );
    Ok(())
}

async fn expired(f: &Fixture) -> Result<()> {
    let mut request = f.publish_request(&f.staged().await?);
    f.driver().add_token(&mut request, "2020-01-01T00:00:00Z");
    match f.node_publish_volume(request).await {
        Err(_) => Ok(()),
        Ok(_) => {
            bail!("NodePublishVolume accepted a service account token that expired in 2020")
        }
    }
}

async fn none(f: &Fixture) -> Result<()> {
    let request = f.publish_request_without_token(&f.staged().await?);
    match f.node_publish_volume(request).await {
        Err(_) => Ok(()),
        Ok(_) => bail!("NodePublishVolume succeeded without a service account token"),
    }
}
