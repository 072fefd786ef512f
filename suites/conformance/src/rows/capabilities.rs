//! Volume capabilities: invalid ones, and several of one volume. One row covers all calls that take a capability, since
//! drivers validate it in one place or not at all.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code, Status,
    v1::{
        GetCapacityRequest, ValidateVolumeCapabilitiesRequest, Volume, VolumeCapability,
        volume_capability::access_mode::Mode,
    },
};
use claimcheck_engine::skip;

use super::{ATTACH, CAPACITY, CREATE, EXPAND, MOUNTS, NODE_EXPAND, PERSISTS, STAGE, case};
use crate::{
    case::{Access, Row},
    expect::{Answer, status_text},
    fixture::{Fixture, Step, VolumeOnNode, with_mode},
    need::Need,
    spec,
    verdict::Breaks,
};

/// Access modes of which those that a driver supports are requested in addition to that of all cases, one at a time.
const SECOND: [Mode; 3] = [Mode::MultiNodeMultiWriter, Mode::MultiNodeReaderOnly, Mode::SingleNodeReaderOnly];

/// File systems with an id, of which the kernel mounts no second one.
const ONCE: [&str; 2] = ["xfs", "btrfs"];

pub(super) const ROWS: &[Row] = &[
    Row::new("access mode UNKNOWN is rejected by every call", spec::INVALID, case!(unknown_mode))
        .also(&[spec::VALIDATE_ALL, spec::STAGE_ACCESS, spec::PUBLISH_ACCESS, spec::ATTACH_USABLE])
        .needs(&[CREATE]),
    Row::new(
        "a capability with neither mount nor block access is rejected by every call",
        spec::INVALID,
        case!(no_access_type),
    )
    .also(&[spec::VALIDATE_ALL, spec::STAGE_ACCESS, spec::PUBLISH_ACCESS])
    .needs(&[CREATE]),
    Row::new(
        "a volume created with two access modes is usable with each",
        spec::ANY_ACCESS,
        case!(two_modes),
    )
    .also(&[spec::ALL_ACCESS, spec::EITHER_ACCESS])
    .needs(&[CREATE, MOUNTS, PERSISTS])
    .each(),
    Row::new(
        "a MULTI_NODE_MULTI_WRITER volume on two nodes shows the same data",
        spec::ANY_ACCESS,
        case!(two_nodes),
    )
    .also(&[spec::ATTACH_USABLE])
    .needs(&[CREATE, Need::SecondNode, Need::Files, MOUNTS])
    .each(),
    Row::new(
        "a MULTI_NODE_READER_ONLY volume on two nodes shows its data",
        spec::ANY_ACCESS,
        case!(two_readers),
    )
    .also(&[spec::ATTACH_USABLE])
    .needs(&[CREATE, Need::SecondNode, Need::Files, MOUNTS, PERSISTS])
    .each(),
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
    modify: impl Fn(VolumeCapability) -> VolumeCapability,
) -> Result<()> {
    let capability = modify(f.capability());
    let mut answers: Vec<Answered> = Vec::new();
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
    if f.has(CAPACITY) {
        let request = GetCapacityRequest {
            volume_capabilities: vec![capability.clone()],
            parameters: f.config().volume_parameters.clone(),
            accessible_topology: None,
        };
        let available = f.get_capacity(request).await.map(|answer| answer.available_capacity);
        // No room for such volumes also rejects them.
        if !matches!(available, Ok(0)) {
            answers.push(("GetCapacity", available.map(drop)));
        }
    }
    if f.has(EXPAND) {
        let mut request = f.expand_request(placed.id());
        request.volume_capability = Some(capability.clone());
        answers.push(("ControllerExpandVolume", f.controller_expand_volume(request).await.map(drop)));
    }
    if f.has(ATTACH) {
        let mut request = f.attach_request(&placed.volume, placed.access);
        request.volume_capability = Some(capability.clone());
        answers.push(("ControllerPublishVolume", f.controller_publish_volume(request).await.map(drop)));
        if let Err(error) = f.attach(&mut placed).await {
            return stopped(f, what, answers, "ControllerPublishVolume", Err(error).breaks(spec::ATTACH));
        }
    }
    if f.has(STAGE) {
        let mut request = f.stage_request(&placed);
        request.volume_capability = Some(capability.clone());
        answers.push(("NodeStageVolume", f.node_stage_volume(request).await.map(drop)));
        if let Err(error) = f.stage(&placed).await {
            return stopped(f, what, answers, "NodeStageVolume", Err(error).breaks(spec::STAGE));
        }
    }
    let mut request = f.publish_request(&placed);
    request.volume_capability = Some(capability.clone());
    answers.push(("NodePublishVolume", f.node_publish_volume(request).await.map(drop)));
    if f.has(NODE_EXPAND) {
        if let Err(error) = f.publish(&placed).await {
            return stopped(f, what, answers, "NodePublishVolume", Err(error).breaks(spec::PUBLISH_USABLE));
        }
        let mut request = f.node_expand_request(&placed);
        (request.volume_capability, request.capacity_range) = (Some(capability), None);
        answers.push(("NodeExpandVolume", f.node_expand_volume(request).await.map(drop)));
    }
    rejected(f, what, answers)
}

/// A call with the invalid capability, and its result.
type Answered = (&'static str, Result<(), Status>);

fn rejected(f: &Fixture, what: &str, mut answers: Vec<Answered>) -> Result<()> {
    // The capability is OPTIONAL in calls that expand a volume: a plugin that does not need it may ignore it.
    answers.retain(|(call, answer)| {
        let is_ignored = answer.is_ok() && call.ends_with("ExpandVolume");
        if is_ignored {
            f.warn(format!("{call} with {what} in the optional volume_capability returned OK"));
        }
        !is_ignored
    });
    let wrong: Vec<String> = answers.into_iter().filter_map(wrong).collect();
    ensure!(wrong.is_empty(), "{what}: expected InvalidArgument, but {}", wrong.join(", "));
    Ok(())
}

/// The outcome if an ordinary call failed, after the same call with the invalid capability: an error of that one has
/// nothing to do with the capability.
fn stopped(
    f: &Fixture,
    what: &str,
    mut answers: Vec<Answered>,
    call: &str,
    failed: Result<()>,
) -> Result<()> {
    answers.retain(|(name, answer)| *name != call || answer.is_ok());
    rejected(f, what, answers).inspect_err(|_| f.leave_failed_step())?;
    failed
}

/// Describes an unexpected result. Node calls may also return FailedPrecondition ("Exceeds capabilities") for what a
/// volume does not support.
fn wrong((call, answer): Answered) -> Option<String> {
    match answer {
        Ok(()) => Some(format!("{call} returned OK")),
        // That is not about the capability: another case reports a call that is not implemented.
        Err(status) if status.code() == Code::Unimplemented => None,
        Err(status) if status.code() == Code::InvalidArgument => None,
        Err(status) if status.code() == Code::FailedPrecondition && call.starts_with("Node") => None,
        Err(status) => Some(format!("{call} returned {}", status_text(&status))),
    }
}

async fn two_modes(f: &Fixture) -> Result<()> {
    let modes = second_modes(f).await;
    if modes.is_empty() {
        return Err(skip("the driver supports no second access mode"));
    }
    for mode in modes {
        with_second_mode(f, mode).await?;
    }
    Ok(())
}

async fn with_second_mode(f: &Fixture, second: Mode) -> Result<()> {
    let Some(volume) = made_for_both(f, second).await else { return Ok(()) };
    let mut held = None;
    for mode in [f.driver().mode, second] {
        let name = mode.as_str_name();
        let placed = published_as(f, volume.clone(), mode).await?;
        if f.has(Need::Files) {
            if let Some(text) = held {
                let what =
                    format!("in the volume with access mode {name}, after it was used with another one");
                f.must_hold(&placed, 0, text, &what).await?;
            }
            if is_writer(mode) {
                f.write(&placed, 0, name).await?;
                held = Some(name);
            }
        }
        f.withdraw(&placed).await?;
    }
    let Some(text) = held else { return Ok(()) };
    let placed = f.publish_all(volume).await?;
    f.must_hold(&placed, 0, text, "after the volume was used with two access modes").await
}

/// A new volume for the mode of all cases and a second one. "Otherwise SP MUST return the appropriate gRPC error code": a
/// volume with both modes may be impossible.
async fn made_for_both(f: &Fixture, second: Mode) -> Option<Volume> {
    let mut request = f.create_request();
    request.volume_capabilities.push(with_mode(f.capability(), second));
    Some(f.create_volume(request).await.ok()?.volume.unwrap_or_default())
}

async fn two_nodes(f: &Fixture) -> Result<()> {
    let mode = Mode::MultiNodeMultiWriter;
    let mut request = f.create_request();
    request.volume_capabilities = vec![with_mode(f.capability(), mode)];
    let Ok(made) = f.create_volume(request).await else {
        return Err(skip(format!("the driver supports no {} volumes", mode.as_str_name())));
    };
    let volume = made.volume.unwrap_or_default();
    f.must_reach_second(&volume)?;
    let placed = published_as(f, volume, mode).await?;
    f.must_share(&placed, with_mode(f.capability(), mode)).await?;
    f.withdraw(&placed).await
}

/// A volume for readers on several nodes is written to before, with the mode of all cases.
async fn two_readers(f: &Fixture) -> Result<()> {
    const TEXT: &str = "for readers on two nodes";
    let mode = Mode::MultiNodeReaderOnly;
    let Some(volume) = made_for_both(f, mode).await else {
        let (writer, reader) = (f.driver().mode.as_str_name(), mode.as_str_name());
        return Err(skip(format!("the driver supports no volumes with {writer} and {reader}")));
    };
    f.must_reach_second(&volume)?;
    let placed = published_as(f, f.put(volume, TEXT).await?, mode).await?;
    f.must_hold_throughout(&placed, TEXT, "in a volume that is published for readers").await?;
    // Both nodes may have a device of their own for it, with one id on this machine.
    let found = f.file_system_at(&placed.target).unwrap_or_default();
    if placed.access == Access::Mount && ONCE.contains(&found.as_str()) {
        f.withdraw(&placed).await?;
        return Err(skip(format!(
            "one machine mounts a file system {found} once, so it cannot be two nodes"
        )));
    }
    let on_second = async |second: &VolumeOnNode| {
        f.must_hold_throughout(second, TEXT, "in a volume that is published for readers on a second node")
            .await
    };
    f.on_second(&placed.volume, with_mode(f.capability(), mode), on_second).await?;
    f.withdraw(&placed).await
}

const fn is_writer(mode: Mode) -> bool {
    !matches!(mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
}

/// The second modes that the driver supports alone.
async fn second_modes(f: &Fixture) -> Vec<Mode> {
    let mut supported = Vec::new();
    for mode in SECOND.into_iter().filter(|mode| *mode != f.driver().mode) {
        let mut request = f.create_request();
        request.volume_capabilities = vec![with_mode(f.capability(), mode)];
        if f.create_volume(request).await.is_ok() {
            supported.push(mode);
        }
    }
    supported
}

/// Publishes a volume with an access mode.
async fn published_as(f: &Fixture, volume: Volume, mode: Mode) -> Result<VolumeOnNode> {
    for step in [Step::Attach, Step::Stage, Step::Publish] {
        f.builds_on(step)?;
    }
    let (capability, name) = (Some(with_mode(f.capability(), mode)), mode.as_str_name());
    let mut placed = f.place(volume).await?;
    if f.attaches() {
        let mut request = f.attach_request(&placed.volume, placed.access);
        request.volume_capability.clone_from(&capability);
        let attached = f.controller_publish_volume(request).await;
        let attached = attached.works(&format!("ControllerPublishVolume with access mode {name}"))?;
        placed.publish_context = attached.publish_context;
    }
    if placed.staging.is_some() {
        let mut request = f.stage_request(&placed);
        request.volume_capability.clone_from(&capability);
        f.node_stage_volume(request).await.works(&format!("NodeStageVolume with access mode {name}"))?;
    }
    let mut request = f.publish_request(&placed);
    request.volume_capability = capability;
    f.node_publish_volume(request).await.works(&format!("NodePublishVolume with access mode {name}"))?;
    Ok(placed)
}
