//! Invalid volume capabilities: one row covers all calls that take a capability, since drivers validate it in one
//! place or not at all.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code, Status,
    v1::{ValidateVolumeCapabilitiesRequest, VolumeCapability, volume_capability::access_mode::Mode},
};

use super::{ATTACH, CREATE, STAGE, case};
use crate::{
    case::Row,
    expect::said,
    fixture::{Fixture, with_mode},
};

/// "Invalid or unsupported field in the request".
const RULE: &str = "Error Scheme";

pub(super) const ROWS: &[Row] = &[
    Row::new("access mode UNKNOWN is rejected by every call", RULE, case!(unknown_mode)).needs(&[CREATE]),
    Row::new(
        "a capability with neither mount nor block access is rejected by every call",
        RULE,
        case!(no_access_type),
    )
    .needs(&[CREATE]),
];

async fn unknown_mode(f: &Fixture) -> Result<()> {
    let unknown = |capability| with_mode(capability, Mode::Unknown);
    refused_everywhere(f, "the access mode UNKNOWN", unknown).await
}

async fn no_access_type(f: &Fixture) -> Result<()> {
    let neither = |capability| VolumeCapability { access_type: None, ..capability };
    refused_everywhere(f, "neither mount nor block access", neither).await
}

async fn refused_everywhere(
    f: &Fixture,
    what: &str,
    spoilt: impl Fn(VolumeCapability) -> VolumeCapability,
) -> Result<()> {
    let capability = spoilt(f.capability());
    let mut answers: Vec<(&str, Result<(), Status>)> = Vec::new();
    let mut request = f.create_request();
    request.volume_capabilities = vec![capability.clone()];
    answers.push(("CreateVolume", f.create_volume(request).await.map(drop)));
    let mut placed = f.place(f.volume().await?).await?;
    let request = ValidateVolumeCapabilitiesRequest {
        volume_id: placed.id().to_owned(),
        volume_context: placed.volume.volume_context.clone(),
        volume_capabilities: vec![capability.clone()],
        secrets: f.config().secrets.validate_volume_capabilities.clone(),
        ..Default::default()
    };
    let confirmed = f.validate_volume_capabilities(request).await.map(|answer| answer.confirmed.is_some());
    // Not confirming the capability also rejects it.
    if confirmed.as_ref().map_or(true, |confirmed| *confirmed) {
        answers.push(("ValidateVolumeCapabilities", confirmed.map(drop)));
    }
    if f.has(ATTACH) {
        let mut request = f.attach_request(&placed.volume, placed.access);
        request.volume_capability = Some(capability.clone());
        answers.push(("ControllerPublishVolume", f.controller_publish_volume(request).await.map(drop)));
        f.attach(&mut placed).await?;
    }
    if f.has(STAGE) {
        let mut request = f.stage_request(&placed);
        request.volume_capability = Some(capability.clone());
        answers.push(("NodeStageVolume", f.node_stage_volume(request).await.map(drop)));
        f.stage(&placed).await?;
    }
    let mut request = f.publish_request(&placed);
    request.volume_capability = Some(capability);
    answers.push(("NodePublishVolume", f.node_publish_volume(request).await.map(drop)));
    let wrong: Vec<String> = answers.into_iter().filter_map(wrong).collect();
    ensure!(wrong.is_empty(), "{what}: expected InvalidArgument, but {}", wrong.join(", "));
    Ok(())
}

/// Describes an unexpected result. Node calls may also return FailedPrecondition ("Exceeds capabilities") for what a
/// volume does not support.
fn wrong((call, answer): (&str, Result<(), Status>)) -> Option<String> {
    match answer {
        Ok(()) => Some(format!("{call} returned OK")),
        Err(status) if status.code() == Code::InvalidArgument => None,
        Err(status) if status.code() == Code::FailedPrecondition && call.starts_with("Node") => None,
        Err(status) => Some(format!("{call} returned {}", said(&status))),
    }
}
