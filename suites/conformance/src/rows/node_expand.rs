//! NodeExpandVolume.

use anyhow::{Result, ensure};
use claimcheck_csi::{Code, v1::plugin_capability::volume_expansion::Type as ExpansionType};

use super::{CREATE, EXPAND, NODE_EXPAND, case};
use crate::{
    case::{Access, Need, Row},
    expect::{Answer, INVALID, NO_SUCH, NOT_FOUND},
    fixture::{Fixture, Placed, text},
};

const RULE: &str = "NodeExpandVolume";
const ERRORS: &str = "NodeExpandVolume Errors";
const ONLINE: Need = Need::Expansion(ExpansionType::Online);

pub(super) const ROWS: &[Row] = &[
    Row::new("growing on the node without a volume id is refused", ERRORS, case!(no_volume))
        .needs(&[NODE_EXPAND, CREATE])
        .upstream("Node Service NodeExpandVolume should fail when no volume id is provided"),
    Row::new("growing on the node without a path is refused", ERRORS, case!(no_path))
        .needs(&[NODE_EXPAND, CREATE])
        .upstream("Node Service NodeExpandVolume should fail when no volume path is provided"),
    Row::new("growing what is not there is refused", ERRORS, case!(unknown))
        .needs(&[NODE_EXPAND])
        .upstream("Node Service NodeExpandVolume should fail when volume is not found"),
    Row::new("growing where the volume is not is refused", ERRORS, case!(elsewhere))
        .needs(&[NODE_EXPAND, CREATE]),
    Row::new("a published volume grows", RULE, case!(published))
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE])
        .each()
        .upstream("Node Service NodeExpandVolume should work if node-expand is called after node-publish"),
    Row::new("a staged volume grows", RULE, case!(staged))
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE, super::STAGE])
        .each()
        .upstream("Node Service NodeExpandVolume should work"),
    Row::new("growing twice is growing once", RULE, case!(twice))
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE])
        .each()
        .upstream("Node Service NodeExpandVolume should be idempotent"),
    Row::new("a workload sees that its volume has grown", RULE, case!(seen))
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE, Need::Files])
        .each(),
    Row::new("a workload's data survives that its volume grows", RULE, case!(data))
        .needs(&[NODE_EXPAND, EXPAND, ONLINE, CREATE, Need::Files])
        .each(),
    Row::new("a volume that grew while nobody used it is as large as it says", RULE, case!(offline))
        .needs(&[EXPAND, CREATE, Need::Files])
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
    let target = f.target_root().join(f.unique()).join("mount");
    let request = claimcheck_csi::v1::NodeExpandVolumeRequest {
        volume_id: f.unknown_volume(),
        volume_path: text(&target),
        ..Default::default()
    };
    f.node_expand_volume(request).await.refused("NodeExpandVolume of a volume that does not exist", NOT_FOUND)
}

async fn elsewhere(f: &Fixture) -> Result<()> {
    let mut request = f.node_expand_request(&f.up().await?);
    request.volume_path = text(&f.target_root().join(f.unique()).join("mount"));
    let codes = [NO_SUCH, &[Code::FailedPrecondition]].concat();
    f.node_expand_volume(request).await.refused("NodeExpandVolume at a path where the volume is not", &codes)
}

/// Grows a volume that is up at the controller, and on the node if it must.
async fn grow(f: &Fixture, placed: &Placed, path: &std::path::Path) -> Result<()> {
    f.grow(placed.id()).await?;
    let mut request = f.node_expand_request(placed);
    request.volume_path = text(path);
    let answer = f.node_expand_volume(request).await.works("NodeExpandVolume")?;
    let (asked, got) = (f.config().grown(), answer.capacity_bytes);
    ensure!(
        got == 0 || got >= asked,
        "a volume was to grow to {asked} bytes, and NodeExpandVolume gives {got}"
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

async fn twice(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    grow(f, &placed, &placed.target).await?;
    let request = f.node_expand_request(&placed);
    f.node_expand_volume(request).await.works("NodeExpandVolume called again")?;
    Ok(())
}

/// That a volume is as large as it was to become, where its size can be seen.
async fn large(f: &Fixture, placed: &Placed, real: bool, when: &str) -> Result<()> {
    let (bytes, grown) = (f.bytes(placed).await?, f.config().grown().unsigned_abs());
    // A file system keeps some of it for itself.
    let least = if placed.access == Access::Block { grown } else { grown / 10 * 8 };
    ensure!(!real || bytes >= least, "{when} the volume has {grown} bytes, and its workload sees {bytes}");
    Ok(())
}

async fn seen(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let real = f.sizes_are_real(&placed).await?;
    grow(f, &placed, &placed.target).await?;
    large(f, &placed, real, "after NodeExpandVolume").await
}

async fn data(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.write(&placed, 0, "before it grew").await?;
    grow(f, &placed, &placed.target).await?;
    f.must_hold(&placed, 0, "before it grew", "after NodeExpandVolume").await?;
    f.write(&placed, 1, "after it grew").await
}

async fn offline(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let real = f.sizes_are_real(&placed).await?;
    f.lower(&placed).await?;
    let on_node = f.grow(placed.id()).await?;
    let placed = f.raise(placed.volume).await?;
    if on_node && f.has(NODE_EXPAND) {
        let request = f.node_expand_request(&placed);
        f.node_expand_volume(request)
            .await
            .works("NodeExpandVolume after the volume grew while nobody used it")?;
    }
    large(f, &placed, real, "after it grew while nobody used it").await
}
