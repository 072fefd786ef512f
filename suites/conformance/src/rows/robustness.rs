//! What comes from outside: ids and paths that lead elsewhere, texts without end, control characters, secrets.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Result, bail, ensure};
use claimcheck_csi::{Code, Status, tap::code_name, v1};

use super::{ATTACH, CREATE, EXPAND, GET, GROUPS, METADATA, SNAPSHOT, STAGE, STATS, case};
use crate::{
    case::{Need, Row, When},
    expect::{Answer, said},
    fixture::{Fixture, Kind, from_snapshot, from_volume},
};

const LIMITS: &str = "Size Limits";
const SECRETS: &str = "Secrets Requirements";

/// Longer than any field may be.
const HUGE: usize = 1 << 20;

/// So many steps up lead to the root from anywhere.
const UP: usize = 16;

/// A message of more bytes repeats what was sent, at length.
const REPEATED: usize = 8192;

const CONTROLS: [&str; 3] = ["line\nbreak", "nul\0byte", "escape\u{1b}[2J"];

pub(super) const ROWS: &[Row] = &[
    Row::new("a volume id that leads elsewhere is no volume", LIMITS, case!(volume_traversal)),
    Row::new("a volume id that cannot be one is no volume", LIMITS, case!(volume_no_id)),
    Row::new("a snapshot id that leads elsewhere is no snapshot", LIMITS, case!(snapshot_ids))
        .needs(&[SNAPSHOT, CREATE]),
    Row::new("a group id that leads elsewhere is no group", LIMITS, case!(group_ids)).needs(&[GROUPS]),
    Row::new("a metadata request for an id that leads elsewhere is refused", LIMITS, case!(metadata_ids))
        .needs(&[METADATA]),
    Row::new("a node id that leads elsewhere is no node", LIMITS, case!(node_ids)).needs(&[ATTACH, CREATE]),
    Row::new("a source that leads elsewhere is no source", LIMITS, case!(sources)).needs(&[CREATE]),
    Row::new("a name that leads elsewhere is a name", "CreateVolume", case!(name_traversal)).needs(&[CREATE]),
    Row::new("a name that cannot be one is refused or taken", "CreateVolume", case!(no_name))
        .needs(&[CREATE]),
    Row::new("a snapshot name without end is refused or taken", LIMITS, case!(snapshot_name))
        .needs(&[CREATE, SNAPSHOT]),
    Row::new("a target that is no absolute path is refused", "NodePublishVolume", case!(relative_target))
        .needs(&[CREATE]),
    Row::new("a target with a detour is refused or stays inside", "NodePublishVolume", case!(target_detour))
        .needs(&[CREATE]),
    Row::new("a staging path without end is refused or taken", LIMITS, case!(staging_huge))
        .needs(&[CREATE, STAGE]),
    Row::new("parameters without end are refused", LIMITS, case!(parameters_huge)).needs(&[CREATE]),
    Row::new("a file system that is an option is refused", "VolumeCapability", case!(fs_injection))
        .needs(&[CREATE])
        .only(crate::case::Access::Mount),
    Row::new("a call that CSI does not know is not implemented", "Error Scheme", case!(unknown_call)),
    Row::new("an error has words", "Error Scheme", case!(words)).needs(&[CREATE]),
    Row::new("calls that fail do not tell secrets", SECRETS, case!(failing_secrets)).needs(&[CREATE]),
    Row::new("no error of the whole run tells a secret", SECRETS, case!(no_secrets)).when(When::Last),
    Row::new("the driver still answers in the end", "Probe", case!(still_there)).when(When::Last),
];

/// A bad id in a call about something that should exist: refused, not known, or (where that is how the call
/// treats what is not there) OK. Never an inner error.
fn harmless<T>(f: &Fixture, what: &str, answer: Result<T, Status>, may_work: bool) -> Result<()> {
    match answer {
        Ok(_) if may_work => Ok(()),
        Ok(_) => bail!("{what} answered OK where InvalidArgument or NotFound is due"),
        Err(status) => {
            ensure!(
                matches!(status.code(), Code::InvalidArgument | Code::NotFound | Code::Unimplemented),
                "{what} answered {} where InvalidArgument or NotFound is due",
                said(&status)
            );
            let length = status.message().len();
            if length > REPEATED {
                let code = code_name(status.code());
                f.remark(format!("{what} answers {code} with a message of {length} bytes"));
            }
            Ok(())
        }
    }
}

/// A text that callers may not send. A driver need not mind; it must not fail.
fn too_long<T>(f: &Fixture, what: &str, answer: Result<T, Status>) -> Result<()> {
    match answer {
        Ok(_) => {
            f.remark(format!("{what} answers OK"));
            Ok(())
        }
        refused => harmless(f, what, refused, false),
    }
}

/// What a call about a volume answers, and whether it may be OK where there is no such volume.
type Answered = (&'static str, Result<(), Status>, bool);

/// Every call that takes the id of a volume, with this one.
async fn volume_calls(f: &Fixture, volume_id: &str) -> Vec<Answered> {
    let id = || volume_id.to_owned();
    let path = crate::fixture::text(&f.target_root().join(f.unique()).join("mount"));
    let staging_path = crate::fixture::text(&f.staging_root().join(f.unique()));
    let mut all: Vec<Answered> = Vec::new();
    if f.has(CREATE) {
        all.push(("DeleteVolume", f.delete_volume(f.delete_request(volume_id)).await.map(drop), true));
        let request = v1::ValidateVolumeCapabilitiesRequest {
            volume_id: id(),
            volume_capabilities: vec![f.capability()],
            ..Default::default()
        };
        let answer = f.validate_volume_capabilities(request).await.map(drop);
        all.push(("ValidateVolumeCapabilities", answer, false));
    }
    if f.has(ATTACH) {
        let volume = v1::Volume { volume_id: id(), ..Default::default() };
        let answer = f.controller_publish_volume(f.attach_request(&volume, f.access())).await.map(drop);
        all.push(("ControllerPublishVolume", answer, false));
        let request = f.detach_request(volume_id, &f.node_info().node_id);
        all.push(("ControllerUnpublishVolume", f.controller_unpublish_volume(request).await.map(drop), true));
    }
    if f.has(GET) {
        let answer = f.controller_get_volume(v1::ControllerGetVolumeRequest { volume_id: id() }).await;
        all.push(("ControllerGetVolume", answer.map(drop), false));
    }
    if f.has(EXPAND) {
        let answer = f.controller_expand_volume(f.expand_request(volume_id)).await.map(drop);
        all.push(("ControllerExpandVolume", answer, false));
    }
    if f.has(SNAPSHOT) {
        let answer = f.create_snapshot(f.snapshot_request(volume_id)).await.map(drop);
        all.push(("CreateSnapshot", answer, false));
    }
    if f.has(STAGE) {
        let request = v1::NodeStageVolumeRequest {
            volume_id: id(),
            staging_target_path: staging_path.clone(),
            volume_capability: Some(f.capability()),
            ..Default::default()
        };
        all.push(("NodeStageVolume", f.node_stage_volume(request).await.map(drop), false));
        let request =
            v1::NodeUnstageVolumeRequest { volume_id: id(), staging_target_path: staging_path.clone() };
        all.push(("NodeUnstageVolume", f.node_unstage_volume(request).await.map(drop), true));
    }
    let request = v1::NodePublishVolumeRequest {
        volume_id: id(),
        target_path: path.clone(),
        staging_target_path: staging_path,
        volume_capability: Some(f.capability()),
        ..Default::default()
    };
    match f.node_publish_volume(request).await.map(drop) {
        // Whether it is staged may be looked at first.
        Err(status) if f.has(STAGE) && status.code() == Code::FailedPrecondition => {}
        answer => all.push(("NodePublishVolume", answer, false)),
    }
    let request = v1::NodeUnpublishVolumeRequest { volume_id: id(), target_path: path.clone() };
    all.push(("NodeUnpublishVolume", f.node_unpublish_volume(request).await.map(drop), true));
    if f.has(STATS) {
        let request =
            v1::NodeGetVolumeStatsRequest { volume_id: id(), volume_path: path, ..Default::default() };
        all.push(("NodeGetVolumeStats", f.node_get_volume_stats(request).await.map(drop), false));
    }
    all
}

/// Every call with a volume id of these. What a call answers wrongly for any volume that is not there is told by
/// the rows about those.
async fn volume_ids(f: &Fixture, ids: impl IntoIterator<Item = String>, kind: &str) -> Result<()> {
    let wrong_anyway =
        |(call, answer, may_work): Answered| harmless(f, call, answer, may_work).err().map(|_| call);
    let unknown = f.unknown_volume();
    let told: BTreeSet<&str> = volume_calls(f, &unknown).await.into_iter().filter_map(wrong_anyway).collect();
    for id in ids {
        for (call, answer, may_work) in volume_calls(f, &id).await {
            if !told.contains(call) {
                harmless(f, &format!("{call} with a volume_id {kind}"), answer, may_work)?;
            }
        }
    }
    Ok(())
}

async fn volume_traversal(f: &Fixture) -> Result<()> {
    let answers = volume_ids(f, elsewhere(f).await?, "that leads elsewhere").await;
    // What became of the place says more than what the calls answered.
    untouched(f).await?;
    answers
}

/// One row for both: a driver that looks at ids looks at all of one.
async fn volume_no_id(f: &Fixture) -> Result<()> {
    volume_ids(f, CONTROLS.map(str::to_owned), "with control characters").await?;
    volume_ids(f, ["x".repeat(HUGE)], "of a mebibyte").await
}

/// Ids that lead out of where a driver keeps its own. A driver may follow one and delete what is there, so that all
/// of them lead to a directory of this case, or to where nothing is.
async fn elsewhere(f: &Fixture) -> Result<[String; 3]> {
    let place = sentinel(f);
    f.make_directory(&place).await?;
    let place = crate::fixture::text(&place);
    Ok([
        format!("{}{place}", "../".repeat(UP).trim_end_matches('/')),
        place,
        format!("a/../../{}", f.unique()),
    ])
}

fn sentinel(f: &Fixture) -> PathBuf {
    f.target_root().join("elsewhere")
}

/// That the directory to which such ids lead is still there.
async fn untouched(f: &Fixture) -> Result<()> {
    let place = sentinel(f);
    ensure!(
        f.kind(&place).await? == Kind::Directory,
        "an id that leads to {} was followed: the directory, which is not the driver's, is gone",
        place.display()
    );
    Ok(())
}

/// Ids that are no ids. One without end is not among them: a driver that repeats what it was sent fails with it
/// whatever the id is of, and the row about volumes tells that once.
async fn bad_ids(f: &Fixture) -> Result<Vec<(String, &'static str)>> {
    let elsewhere = elsewhere(f).await?.into_iter().map(|id| (id, "that leads elsewhere"));
    let controls = CONTROLS.into_iter().map(|id| (id.to_owned(), "with control characters"));
    Ok(elsewhere.chain(controls).collect())
}

async fn snapshot_ids(f: &Fixture) -> Result<()> {
    for (id, kind) in bad_ids(f).await? {
        let answer = f.delete_snapshot(f.delete_snapshot_request(&id)).await;
        harmless(f, &format!("DeleteSnapshot with a snapshot_id {kind}"), answer, true)?;
        let answer = f.create_volume(f.create_from(from_snapshot(&id))).await;
        harmless(f, &format!("CreateVolume from a snapshot_id {kind}"), answer, false)?;
        if f.has(super::GET_SNAPSHOT) {
            let answer =
                f.get_snapshot(v1::GetSnapshotRequest { snapshot_id: id, ..Default::default() }).await;
            harmless(f, &format!("GetSnapshot with a snapshot_id {kind}"), answer, false)?;
        }
    }
    untouched(f).await
}

async fn group_ids(f: &Fixture) -> Result<()> {
    for (id, kind) in bad_ids(f).await? {
        let answer = f.delete_volume_group_snapshot(f.delete_group_of(&id, Vec::new())).await;
        harmless(f, &format!("DeleteVolumeGroupSnapshot with a group_snapshot_id {kind}"), answer, true)?;
        let request = v1::GetVolumeGroupSnapshotRequest { group_snapshot_id: id, ..Default::default() };
        let answer = f.get_volume_group_snapshot(request).await;
        harmless(f, &format!("GetVolumeGroupSnapshot with a group_snapshot_id {kind}"), answer, false)?;
    }
    untouched(f).await
}

async fn metadata_ids(f: &Fixture) -> Result<()> {
    for (id, kind) in bad_ids(f).await? {
        let request = v1::GetMetadataAllocatedRequest { snapshot_id: id.clone(), ..Default::default() };
        let answer = f.get_metadata_allocated(request).await;
        harmless(f, &format!("GetMetadataAllocated with a snapshot_id {kind}"), answer, false)?;
        let request = v1::GetMetadataDeltaRequest {
            base_snapshot_id: id.clone(),
            target_snapshot_id: id,
            ..Default::default()
        };
        let answer = f.get_metadata_delta(request).await;
        harmless(f, &format!("GetMetadataDelta with a base_snapshot_id {kind}"), answer, false)?;
    }
    Ok(())
}

async fn node_ids(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    for (id, kind) in bad_ids(f).await? {
        let mut request = f.attach_request(&volume, f.access());
        request.node_id = id;
        let answer = f.controller_publish_volume(request).await;
        harmless(f, &format!("ControllerPublishVolume with a node_id {kind}"), answer, false)?;
    }
    Ok(())
}

async fn sources(f: &Fixture) -> Result<()> {
    for (id, kind) in bad_ids(f).await? {
        let answer = f.create_volume(f.create_from(from_volume(&id))).await;
        harmless(f, &format!("CreateVolume from a volume_id {kind}"), answer, false)?;
    }
    Ok(())
}

async fn name_traversal(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.name = format!("../../{}", request.name);
    match f.create_volume(request).await {
        // A name is any text: it must come to be a volume like others.
        Ok(made) => {
            let volume = made.volume.unwrap_or_default();
            ensure!(!volume.volume_id.is_empty(), "CreateVolume answered OK with an empty volume_id");
            let placed = f.raise(volume).await?;
            f.lower(&placed).await
        }
        refused => refused.refused("CreateVolume with a name that leads elsewhere", &[Code::InvalidArgument]),
    }
}

/// One row for both: a driver that looks at names looks at all of one.
async fn no_name(f: &Fixture) -> Result<()> {
    let controls = CONTROLS.map(|control| (format!("{}{control}", f.name()), format!("{control:?} in it")));
    let huge = (format!("{}{}", f.name(), "x".repeat(HUGE)), "a mebibyte".to_owned());
    for (name, what) in controls.into_iter().chain([huge]) {
        let mut request = f.create_request();
        request.name = name;
        too_long(f, &format!("CreateVolume with a name of {what}"), f.create_volume(request).await)?;
    }
    Ok(())
}

async fn snapshot_name(f: &Fixture) -> Result<()> {
    let mut request = f.snapshot_request(&f.volume().await?.volume_id);
    request.name = "x".repeat(HUGE);
    too_long(f, "CreateSnapshot with a name of a mebibyte", f.create_snapshot(request).await)
}

async fn relative_target(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let mut request = f.publish_request(&placed);
    request.target_path = format!("claimcheck-relative-{}", f.unique());
    match f.node_publish_volume(request.clone()).await {
        Ok(_) => {
            let undo = v1::NodeUnpublishVolumeRequest {
                volume_id: request.volume_id,
                target_path: request.target_path,
            };
            f.node_unpublish_volume(undo).await.works("NodeUnpublishVolume of a relative target")?;
            bail!("NodePublishVolume at a relative target_path answered OK where InvalidArgument is due")
        }
        Err(status) => {
            let code = status.code();
            if code != Code::InvalidArgument {
                f.remark(format!(
                    "NodePublishVolume at a relative target_path answers {} where InvalidArgument would say why",
                    code_name(code)
                ));
            }
            Ok(())
        }
    }
}

async fn target_detour(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let parent = placed.target.parent().expect("it is below the root of the targets");
    let mut request = f.publish_request(&placed);
    // The same place, said with a detour.
    request.target_path = crate::fixture::text(
        &parent.join("..").join(parent.file_name().expect("it has a name of its own")).join("mount"),
    );
    match f.node_publish_volume(request.clone()).await {
        Ok(_) => {
            let undo = v1::NodeUnpublishVolumeRequest {
                volume_id: request.volume_id,
                target_path: request.target_path,
            };
            f.node_unpublish_volume(undo).await.works("NodeUnpublishVolume at a path with a detour")?;
            Ok(())
        }
        refused => {
            refused.refused("NodePublishVolume at a target_path with a detour", &[Code::InvalidArgument])
        }
    }
}

async fn staging_huge(f: &Fixture) -> Result<()> {
    let mut request = f.stage_request(&f.attached().await?);
    request.staging_target_path = format!("/{}", "x".repeat(HUGE));
    match f.node_stage_volume(request).await {
        Err(status) if status.code() != Code::InvalidArgument && status.code() != Code::NotFound => {
            // What the file system says of it is no harm; that the driver is still there shows at the end.
            f.remark(format!("NodeStageVolume at a path of a mebibyte answers {}", code_name(status.code())));
            Ok(())
        }
        answer => too_long(f, "NodeStageVolume at a path of a mebibyte", answer),
    }
}

async fn parameters_huge(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.parameters.insert("claimcheck".to_owned(), "x".repeat(HUGE));
    match f.create_volume(request).await {
        Ok(_) => {
            f.remark("parameters beyond 4 KiB are taken");
            Ok(())
        }
        refused => refused.refused("CreateVolume with parameters of a mebibyte", &[Code::InvalidArgument]),
    }
}

async fn fs_injection(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    for capability in &mut request.volume_capabilities {
        if let Some(v1::volume_capability::AccessType::Mount(mount)) = &mut capability.access_type {
            mount.fs_type = "../../bin/sh -c".to_owned();
        }
    }
    match f.create_volume(request).await {
        // Then nobody has looked at it yet, and staging a volume of it is tried by another row.
        Ok(_) => Ok(()),
        refused => refused.refused("CreateVolume with fs_type \"../../bin/sh -c\"", &[Code::InvalidArgument]),
    }
}

async fn unknown_call(f: &Fixture) -> Result<()> {
    let mut client = tonic::client::Grpc::new(f.suite().node.service());
    client.ready().await.map_err(|error| anyhow::anyhow!("the driver cannot be called: {error}"))?;
    let codec = tonic_prost::ProstCodec::<v1::ProbeRequest, v1::ProbeResponse>::default();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/csi.v1.Identity/ClaimcheckUnknown");
    let answer = client.unary(tonic::Request::new(v1::ProbeRequest {}), path, codec).await;
    let answer = answer.inspect_err(|status| f.watch("ClaimcheckUnknown", status));
    answer.refused("a call that CSI does not know", &[Code::Unimplemented])
}

async fn words(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.name.clear();
    if let Err(status) = f.create_volume(request).await
        && status.message().trim().is_empty()
    {
        f.remark("errors have no message: people are left with a number");
    }
    Ok(())
}

async fn failing_secrets(f: &Fixture) -> Result<()> {
    let before = f.suite().known().told_secrets.clone();
    // Calls with secrets that fail, each for another reason.
    let mut request = f.create_request();
    request.volume_capabilities.clear();
    let _ = f.create_volume(request).await;
    let mut request = f.create_request();
    request.parameters.insert("claimcheck-unknown-parameter".to_owned(), "x".to_owned());
    let _ = f.create_volume(request).await;
    let unknown = v1::Volume { volume_id: f.unknown_volume(), ..Default::default() };
    let _ = f.controller_publish_volume(f.attach_request(&unknown, f.access())).await;
    let _ = f.controller_expand_volume(f.expand_request(&unknown.volume_id)).await;
    let _ = f.create_snapshot(f.snapshot_request(&unknown.volume_id)).await;
    let placed = f.place(unknown).await?;
    let _ = f.node_stage_volume(f.stage_request(&placed)).await;
    let _ = f.node_publish_volume(f.publish_request(&placed)).await;
    let _ = f.node_expand_volume(f.node_expand_request(&placed)).await;
    let told: Vec<String> = f.suite().known().told_secrets.difference(&before).cloned().collect();
    ensure!(told.is_empty(), "errors of these calls tell the value of a secret: {}", told.join(", "));
    Ok(())
}

async fn no_secrets(f: &Fixture) -> Result<()> {
    let told = f.suite().known().told_secrets.clone();
    let told: Vec<String> = told.into_iter().collect();
    ensure!(told.is_empty(), "errors of these calls told the value of a secret: {}", told.join(", "));
    Ok(())
}

async fn still_there(f: &Fixture) -> Result<()> {
    f.probe(v1::ProbeRequest {}).await.works("Probe after everything else")?;
    if f.has(CREATE) && f.has(Need::Files) {
        let placed = f.up().await?;
        f.lower(&placed).await?;
    }
    Ok(())
}
