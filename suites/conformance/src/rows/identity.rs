//! GetPluginInfo and Probe.

use anyhow::{Result, ensure};
use claimcheck_csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    ProbeRequest,
};

use super::case;
use crate::{
    case::Row,
    expect::{Answer, same},
    fixture::Fixture,
    need::Need,
    spec,
    verdict::Breaks,
};

/// The number of concurrent calls.
const CROWD: usize = 32;

pub(super) const ROWS: &[Row] = &[
    Row::new("GetPluginInfo returns a valid plugin name", spec::NAME_CHARACTERS, case!(name))
        .also(&[spec::NAME, spec::NAME_FORMAT, spec::NAME_COMPANY, spec::IDENTITY_CALLS, spec::FIELDS])
        .upstream("Identity Service GetPluginInfo should return appropriate information"),
    Row::new("GetPluginInfo returns a vendor_version", spec::VENDOR_VERSION, case!(version))
        .also(&[spec::FIELDS]),
    Row::new(
        "GetPluginInfo called concurrently returns the same name and version",
        spec::CONCURRENT,
        case!(one_answer),
    ),
    Row::new("GetPluginInfo returns the same name for controller and node", spec::IDENTITY, case!(same_name))
        .needs(&[Need::TwoEndpoints]),
    Row::new(
        "GetPluginCapabilities returns the same capabilities for controller and node",
        spec::SAME_CAPABILITIES,
        case!(same_capabilities),
    )
    .needs(&[Need::TwoEndpoints]),
    Row::new("Probe succeeds", spec::PROBE, case!(probe))
        .also(&[spec::STATUS])
        .upstream("Identity Service Probe should return appropriate information"),
    Row::new("Probe reports that the plugin is ready", spec::PROBE_READY, case!(ready)),
];

async fn info(f: &Fixture) -> Result<GetPluginInfoResponse> {
    f.get_plugin_info(GetPluginInfoRequest {}).await.works("GetPluginInfo")
}

async fn name(f: &Fixture) -> Result<()> {
    let name = info(f).await?.name;
    ensure!(!name.is_empty(), "GetPluginInfo returns an empty name");
    ensure!(name.len() <= 63, "the name {name:?} has {} characters, at most 63 are allowed", name.len());
    let ends = [name.bytes().next(), name.bytes().last()];
    ensure!(
        name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
            && ends.into_iter().flatten().all(|b| b.is_ascii_alphanumeric()),
        "the name {name:?} must consist of letters, digits, dashes and dots, and start and end with a letter or digit"
    );
    has_labels(&name).breaks(spec::NAME_FORMAT)?;
    has_domain_notation(&name).breaks(spec::NAME_COMPANY)
}

fn has_labels(name: &str) -> Result<()> {
    ensure!(
        is_domain(name),
        "the name {name:?} must consist of labels between dots, each of which starts and ends with a letter or digit"
    );
    Ok(())
}

/// Whether each label between the dots of a domain name starts and ends with a letter or digit. A label may start with a
/// digit, which RFC 1123 permits in addition to RFC 1035.
pub(super) fn is_domain(name: &str) -> bool {
    name.split('.').all(|label| {
        let ends = [label.chars().next(), label.chars().last()];
        ends.into_iter().all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric()))
    })
}

fn has_domain_notation(name: &str) -> Result<()> {
    ensure!(name.contains('.'), "the name {name:?} is not in domain notation, with the name of a company");
    Ok(())
}

async fn version(f: &Fixture) -> Result<()> {
    ensure!(!info(f).await?.vendor_version.is_empty(), "GetPluginInfo returns an empty vendor_version");
    Ok(())
}

async fn one_answer(f: &Fixture) -> Result<()> {
    let mut names = Vec::new();
    // One connection carries all of them concurrently.
    for asked in super::concurrency::at_once(CROWD, || f.get_plugin_info(GetPluginInfoRequest {})).await {
        let info = asked.works("one of many concurrent GetPluginInfo calls")?;
        names.push((info.name, info.vendor_version));
    }
    same("the names and versions from concurrent GetPluginInfo calls", names)?;
    Ok(())
}

async fn same_name(f: &Fixture) -> Result<()> {
    let node = f.plugin_info_of_node().await.works("GetPluginInfo at the node endpoint")?;
    same("the plugin names at the controller and node endpoints", [info(f).await?.name, node.name])?;
    Ok(())
}

async fn same_capabilities(f: &Fixture) -> Result<()> {
    let sorted = |answer: GetPluginCapabilitiesResponse| {
        let mut texts: Vec<_> = answer.capabilities.iter().map(|it| format!("{:?}", it.r#type)).collect();
        texts.sort_unstable();
        texts
    };
    let node = f.plugin_capabilities_of_node().await.works("GetPluginCapabilities at the node endpoint")?;
    let controller = f.get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await;
    let controller = controller.works("GetPluginCapabilities at the controller endpoint")?;
    same("the plugin capabilities at the controller and node endpoints", [sorted(controller), sorted(node)])?;
    Ok(())
}

async fn probe(f: &Fixture) -> Result<()> {
    f.probe(ProbeRequest {}).await.works("Probe")?;
    Ok(())
}

async fn ready(f: &Fixture) -> Result<()> {
    match f.probe(ProbeRequest {}).await.works("Probe")?.ready {
        Some(true) => {}
        Some(false) => {
            anyhow::bail!("Probe reports that the plugin is not ready, after it reported that it was")
        }
        None => f.warn(
            "Probe does not set `ready`: callers must assume that the plugin is ready, even while it starts",
        ),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_of_a_domain_starts_and_ends_with_a_letter_or_digit() {
        for (name, fine) in [
            ("hostpath.csi.k8s.io", true),
            ("plain", true),
            ("3par.example-1.com", true),
            ("a..b", false),
            ("a-.b", false),
            ("a.-b", false),
            ("", false),
        ] {
            assert_eq!(is_domain(name), fine, "{name:?}");
        }
    }
}
