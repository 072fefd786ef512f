//! The plugin says who it is and whether it is ready.

use anyhow::{Result, ensure};
use claimcheck_csi::v1::{GetPluginInfoRequest, GetPluginInfoResponse, ProbeRequest};

use super::case;
use crate::{
    case::{Need, Row},
    expect::{Answer, same},
    fixture::Fixture,
};

/// How many ask at once.
const CROWD: usize = 32;

pub(super) const ROWS: &[Row] = &[
    Row::new("the plugin has a name in domain notation", "GetPluginInfo", case!(name))
        .upstream("Identity Service GetPluginInfo should return appropriate information"),
    Row::new("the plugin has a version", "GetPluginInfo", case!(version)),
    Row::new("what many ask at once is one answer", "GetPluginInfo", case!(one_answer)),
    Row::new("a controller elsewhere has the same name", "GetPluginInfo", case!(same_name))
        .needs(&[Need::TwoEndpoints]),
    Row::new("the probe is answered", "Probe", case!(probe))
        .upstream("Identity Service Probe should return appropriate information"),
    Row::new("the probe says that the plugin is ready", "Probe", case!(ready)),
];

async fn info(f: &Fixture) -> Result<GetPluginInfoResponse> {
    f.get_plugin_info(GetPluginInfoRequest {}).await.works("GetPluginInfo")
}

async fn name(f: &Fixture) -> Result<()> {
    let name = info(f).await?.name;
    ensure!(!name.is_empty(), "GetPluginInfo gives an empty name");
    ensure!(name.len() <= 63, "the name {name:?} has {} characters, at most 63 are allowed", name.len());
    let ends = [name.bytes().next(), name.bytes().last()];
    ensure!(
        name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
            && ends.into_iter().flatten().all(|b| b.is_ascii_alphanumeric()),
        "the name {name:?} is not made of letters, digits, dashes and dots, with a letter or digit at both ends"
    );
    if !name.contains('.') {
        f.remark(format!("the name {name:?} is in no domain: the specification recommends domain notation"));
    }
    Ok(())
}

async fn version(f: &Fixture) -> Result<()> {
    ensure!(!info(f).await?.vendor_version.is_empty(), "GetPluginInfo gives an empty vendor_version");
    Ok(())
}

async fn one_answer(f: &Fixture) -> Result<()> {
    let mut names = Vec::new();
    // One connection carries them all at once.
    for asked in super::concurrency::at_once(CROWD, || f.get_plugin_info(GetPluginInfoRequest {})).await {
        let info = asked.works("one of many GetPluginInfo at once")?;
        names.push((info.name, info.vendor_version));
    }
    same("the names and versions of one plugin", names)?;
    Ok(())
}

async fn same_name(f: &Fixture) -> Result<()> {
    let node = f.plugin_info_of_node().await.works("GetPluginInfo of the node")?;
    same("the names of the controller and of the node", [info(f).await?.name, node.name])?;
    Ok(())
}

async fn probe(f: &Fixture) -> Result<()> {
    f.probe(ProbeRequest {}).await.works("Probe")?;
    Ok(())
}

async fn ready(f: &Fixture) -> Result<()> {
    match f.probe(ProbeRequest {}).await.works("Probe")?.ready {
        Some(true) => {}
        Some(false) => anyhow::bail!("Probe says that the plugin is not ready, after it said that it was"),
        None => {
            f.remark("Probe does not set `ready`: the caller must take it for ready, even while it starts")
        }
    }
    Ok(())
}
