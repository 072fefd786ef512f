//! What a CO passes on for the pod that is to use a volume: its group, and tokens of its service account.

use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, bail, ensure};
use claimcheck_csi::v1::{
    VolumeCapability, node_service_capability::rpc::Type as NodeType, volume_capability::AccessType,
};

use super::{CREATE, case};
use crate::{
    case::{Access, Need, Row},
    expect::Answer,
    fixture::Fixture,
};

/// A group that nothing belongs to by chance.
const GROUP: u32 = 4321;
/// KEP-1855.
const TOKENS: &str = "NodePublishVolume, volume_context; Kubernetes, CSIDriver tokenRequests";

pub(super) const ROWS: &[Row] = &[
    Row::new("a volume belongs to the group that it was mounted for", "VolumeCapability", case!(group))
        .needs(&[CREATE, Need::Node(NodeType::VolumeMountGroup), Need::Files])
        .only(Access::Mount),
    Row::new("a token that has expired is refused", TOKENS, case!(expired)).needs(&[CREATE, Need::Tokens]),
    Row::new("publishing without a token is refused", TOKENS, case!(none)).needs(&[CREATE, Need::Tokens]),
];

/// The same for a group.
fn for_group(capability: Option<VolumeCapability>) -> Option<VolumeCapability> {
    let mut capability = capability?;
    if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
        mount.volume_mount_group = GROUP.to_string();
    }
    Some(capability)
}

async fn group(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    if placed.staging.is_some() {
        let mut request = f.stage_request(&placed);
        request.volume_capability = for_group(request.volume_capability);
        f.node_stage_volume(request).await.works("NodeStageVolume with a volume_mount_group")?;
    }
    let mut request = f.publish_request(&placed);
    request.volume_capability = for_group(request.volume_capability);
    f.node_publish_volume(request).await.works("NodePublishVolume with a volume_mount_group")?;
    let owner = std::fs::metadata(&placed.target).context("cannot look at the published volume")?.gid();
    ensure!(
        owner == GROUP,
        "the node declares VOLUME_MOUNT_GROUP, and a volume mounted for group {GROUP} belongs to group {owner}: \
         fsGroup is ignored"
    );
    Ok(())
}

async fn expired(f: &Fixture) -> Result<()> {
    let mut request = f.publish_request(&f.staged().await?);
    f.suite().add_token(&mut request.volume_context, "2020-01-01T00:00:00Z");
    match f.node_publish_volume(request).await {
        Err(_) => Ok(()),
        Ok(_) => {
            bail!("NodePublishVolume accepted a token of the pod's service account that expired in 2020")
        }
    }
}

async fn none(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let mut request = f.publish_request(&placed);
    request.volume_context = placed.volume.volume_context;
    match f.node_publish_volume(request).await {
        Err(_) => Ok(()),
        Ok(_) => bail!("NodePublishVolume accepted that no token of the pod's service account came with it"),
    }
}
