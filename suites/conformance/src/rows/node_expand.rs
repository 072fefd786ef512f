//! NodeExpandVolume.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{NodeExpandVolumeRequest, Volume, plugin_capability::volume_expansion::Type as ExpansionType},
};
use claimcheck_engine::skip;

use super::{CREATE, EXPAND, EXPANDS, MOUNTS, NODE_EXPAND, case, controller_expand::Grown};
use crate::{
    case::Row,
    expect::{Answer, INVALID, NO_SUCH, NOT_FOUND},
    fixture::{Fixture, VolumeOnNode, text},
    need::Need,
    spec,
};

const ONLINE: Need = Need::Expansion(ExpansionType::Online);

pub(super) const ROWS: &[Row] = &[
    Row::new("NodeExpandVolume without a volume_id returns InvalidArgument", spec::MISSING, case!(no_volume))
        .needs(&[NODE_EXPAND, CREATE])
        .upstream("Node Service NodeExpandVolume should fail when no volume id is provided"),
    Row::new("NodeExpandVolume without a volume_path returns InvalidArgument", spec::MISSING, case!(no_path))
        .needs(&[NODE_EXPAND, CREATE])
        .upstream("Node Service NodeExpandVolume should fail when no volume path is provided"),
    Row::new(
        "NodeExpandVolume of a nonexistent volume returns NotFound",
        spec::NODE_EXPAND_GONE,
        case!(unknown),
    )
    .needs(&[NODE_EXPAND])
    .upstream("Node Service NodeExpandVolume should fail when volume is not found"),
    Row::new(
        "NodeExpandVolume at a path without the volume returns InvalidArgument, NotFound or FailedPrecondition",
        spec::INVALID,
        case!(elsewhere),
    )
    .needs(&[NODE_EXPAND, CREATE]),
    Row::new("NodeExpandVolume of a published volume succeeds", spec::NODE_EXPAND, case!(published))
        .also(&[spec::ONLINE])
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE, EXPANDS, MOUNTS])
        .each()
        .upstream("Node Service NodeExpandVolume should work if node-expand is called after node-publish"),
    Row::new("NodeExpandVolume of a staged volume succeeds", spec::NODE_EXPAND, case!(staged))
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE, super::STAGE, EXPANDS])
        .each(),
    Row::new(
        "NodeExpandVolume without a volume_capability and a staging_target_path succeeds",
        spec::NODE_EXPAND,
        case!(no_optional),
    )
    .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE, EXPANDS, MOUNTS])
    .each(),
    Row::new("NodeExpandVolume without a capacity_range succeeds", spec::NODE_EXPAND, case!(no_range))
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE, EXPANDS, MOUNTS]),
    Row::new("NodeExpandVolume called twice succeeds", spec::NODE_EXPAND_TWICE, case!(twice))
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE, EXPANDS, MOUNTS])
        .each(),
    Row::new("NodeExpandVolume to the current size succeeds", spec::NODE_EXPAND_LARGER, case!(large_enough))
        .needs(&[NODE_EXPAND, CREATE, MOUNTS])
        .each(),
    Row::new("NodeExpandVolume makes the new size visible to the workload", spec::SIZE_LEAST, case!(seen))
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE, Need::Files, MOUNTS, EXPANDS])
        .each(),
    Row::new("NodeExpandVolume preserves data", spec::NODE_EXPAND_KEEPS, case!(data))
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE, Need::Files, MOUNTS, EXPANDS])
        .each(),
    Row::new(
        "a volume expanded while unpublished has the new size once it is published",
        spec::SIZE_LEAST,
        case!(offline),
    )
    .also(&[spec::EXPANDED_NODE])
    .needs(&[EXPAND, CREATE, Need::Files, MOUNTS, EXPANDS])
    .each(),
];

async fn no_volume(f: &Fixture) -> Result<()> {
    let mut request = f.node_expand_request(&f.up().await?);
    request.volume_id.clear();
    f.node_expand_volume(request).await.refused("NodeExpandVolume without a volume_id", INVALID)
}

async fn no_path(f: &Fixture) -> Result<()> {
    let mut request = f.node_expand_request(&f.up().await?);
    request.volume_path.clear();
    f.node_expand_volume(request).await.refused("NodeExpandVolume without a volume_path", INVALID)
}

async fn unknown(f: &Fixture) -> Result<()> {
    // At the path of another volume: at a path without one, NotFound may be about the path.
    let request = match f.has(CREATE) {
        true => f.node_expand_request(&f.up().await?),
        false => NodeExpandVolumeRequest {
            volume_path: text(&f.target_root().join(f.unique()).join("mount")),
            ..Default::default()
        },
    };
    let request = NodeExpandVolumeRequest { volume_id: f.unknown_volume(), ..request };
    f.node_expand_volume(request).await.refused("NodeExpandVolume of a volume that does not exist", NOT_FOUND)
}

async fn elsewhere(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let mut request = f.node_expand_request(&placed);
    request.volume_path = text(&f.target_root().join(f.unique()).join("mount"));
    let codes = [NO_SUCH, &[Code::FailedPrecondition]].concat();
    let answer = f.node_expand_volume(request).await;
    if let Err(status) = &answer
        && !codes.contains(&status.code())
    {
        let present = f.node_expand_volume(f.node_expand_request(&placed)).await;
        if present.is_err_and(|other| other.code() == status.code()) {
            return Err(skip("NodeExpandVolume before ControllerExpandVolume fails at any path"));
        }
    }
    answer.refused("NodeExpandVolume at a path without the volume", &codes)
}

/// Expands a published volume at the controller and on the node.
pub(super) async fn grow(f: &Fixture, placed: &VolumeOnNode, path: &std::path::Path) -> Result<()> {
    f.grow(placed.id()).await?;
    let mut request = f.node_expand_request(placed);
    request.volume_path = text(path);
    let answer = f.node_expand_volume(request).await.works("NodeExpandVolume")?;
    let (asked, got) = (f.config().grown(), answer.capacity_bytes);
    ensure!(
        got == 0 || got >= asked,
        "a volume was to be expanded to {asked} bytes, and NodeExpandVolume returned {got}"
    );
    Ok(())
}

async fn published(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    grow(f, &placed, &placed.target).await
}

async fn staged(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let staging = placed.staging.clone().expect("the driver stages, or the row would not run");
    grow(f, &placed, &staging).await
}

/// Both fields are OPTIONAL: "If volume_capability is omitted the SP MAY determine access_type from given volume_path".
async fn no_optional(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.grow(placed.id()).await?;
    let request = NodeExpandVolumeRequest {
        volume_capability: None,
        staging_target_path: String::new(),
        ..f.node_expand_request(&placed)
    };
    let what = "NodeExpandVolume without a volume_capability and a staging_target_path";
    f.node_expand_volume(request).await.works(what)?;
    if f.has(Need::Files) {
        let real = f.sizes_are_real(&placed).await?;
        large(f, &placed, real, &format!("after {what}")).await?;
    }
    Ok(())
}

/// "This field is OPTIONAL": the driver may then expand the volume as far as it can, or not at all.
async fn no_range(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.grow(placed.id()).await?;
    let request = NodeExpandVolumeRequest { capacity_range: None, ..f.node_expand_request(&placed) };
    f.node_expand_volume(request).await.works("NodeExpandVolume without a capacity_range")?;
    Ok(())
}

async fn twice(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    grow(f, &placed, &placed.target).await?;
    let request = f.node_expand_request(&placed);
    f.node_expand_volume(request).await.works("NodeExpandVolume called again")?;
    Ok(())
}

/// The volume has the size already: it was not expanded.
async fn large_enough(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let mut request = f.node_expand_request(&placed);
    request.capacity_range = Some(f.driver().range(f.config().volume_size));
    f.node_expand_volume(request).await.works("NodeExpandVolume to the current size")?;
    Ok(())
}

/// Expands a published volume on the node, if ControllerExpandVolume requires it.
pub(super) async fn finish(f: &Fixture, placed: &VolumeOnNode, on_node: bool) -> Result<()> {
    if on_node && f.has(NODE_EXPAND) {
        let answer = f.node_expand_volume(f.node_expand_request(placed)).await;
        answer.works("NodeExpandVolume after ControllerExpandVolume required it")?;
    }
    Ok(())
}

/// Expands a volume that is not published, and publishes it with the expansion completed on the node.
pub(super) async fn published_grown(f: &Fixture, volume: Volume) -> Result<VolumeOnNode> {
    let on_node = f.grow(&volume.volume_id).await?;
    let placed = f.publish_all(volume).await?;
    finish(f, &placed, on_node).await?;
    Ok(placed)
}

/// Checks that an expanded volume that is published contains a text throughout, and what is then written up to its new
/// end.
pub(super) async fn keeps(f: &Fixture, placed: &VolumeOnNode, text: &str, when: &str) -> Result<()> {
    const NEW: &str = "after the expansion";
    f.must_hold_throughout(placed, text, when).await?;
    f.write_throughout(placed, NEW).await?;
    let placed = f.withdrawn_and_published(placed).await?;
    let what = format!("{when}, in what was then written up to the new end of the volume");
    f.must_hold_throughout(&placed, NEW, &what).await?;
    f.withdraw(&placed).await
}

/// Checks that the workload sees the new size, where sizes are real.
async fn large(f: &Fixture, placed: &VolumeOnNode, real: bool, when: &str) -> Result<()> {
    if real { f.must_have_size(placed, f.config().grown(), when).await } else { Ok(()) }
}

/// As a caller expands volumes, which calls NodeExpandVolume only if the controller requires it.
async fn seen(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let real = f.sizes_are_real(&placed).await?;
    let on_node = f.grow(placed.id()).await?;
    finish(f, &placed, on_node).await?;
    let when = match on_node {
        true => "after NodeExpandVolume",
        false => "after ControllerExpandVolume that does not require NodeExpandVolume",
    };
    large(f, &placed, real, when).await?;
    match f.grow_further(placed.id()).await {
        Some(grown) if real => twice_as_large(f, &placed, grown).await,
        _ => Ok(()),
    }
}

/// Checks that the workload sees the size of a second expansion, and that the returned size is that of the volume.
async fn twice_as_large(f: &Fixture, placed: &VolumeOnNode, grown: Grown) -> Result<()> {
    let mut size = grown.size;
    if grown.on_node {
        let capacity_range = Some(f.driver().range(grown.asked));
        let request = NodeExpandVolumeRequest { capacity_range, ..f.node_expand_request(placed) };
        let answer =
            f.node_expand_volume(request).await.works("NodeExpandVolume after a second expansion")?;
        size = size.max(answer.capacity_bytes);
    }
    f.must_have_size(placed, grown.asked.min(grown.size), "after a second expansion").await?;
    // A driver may need a part of the volume itself.
    f.must_have_size(placed, size / 10 * 9, "after an expansion that returned a larger size").await
}

async fn data(f: &Fixture) -> Result<()> {
    const TEXT: &str = "before the expansion";
    let placed = f.up_with(TEXT).await?;
    grow(f, &placed, &placed.target).await?;
    f.must_hold_throughout(&placed, TEXT, "after NodeExpandVolume, where it is mounted").await?;
    let placed = f.withdrawn_and_published(&placed).await?;
    keeps(f, &placed, TEXT, "after NodeExpandVolume").await
}

async fn offline(f: &Fixture) -> Result<()> {
    const TEXT: &str = "before the expansion";
    let placed = f.up_with(TEXT).await?;
    let real = f.sizes_are_real(&placed).await?;
    f.withdraw(&placed).await?;
    let placed = published_grown(f, placed.volume).await?;
    large(f, &placed, real, "after an expansion while unpublished").await?;
    f.must_hold_throughout(&placed, TEXT, "after an expansion while unpublished").await
}
