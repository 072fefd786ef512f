//! Ids with path traversal, of control characters, and of impossible length.

use std::{collections::BTreeSet, pin::Pin};

use anyhow::{Context, Result};
use claimcheck_csi::{Code, Status, v1};

use super::{
    super::{
        ATTACH, CREATE, EXPAND, GET, GET_SNAPSHOT, GROUPS, LIST_SNAPSHOTS, MODIFY, NODE_EXPAND, SNAPSHOT,
        STAGE, STATS,
    },
    HUGE, rejected,
    traversal::{elsewhere, same_files, unfollowed},
};
use crate::{
    config::Map,
    expect::NO_SUCH,
    fixture::{Fixture, VolumeOnNode, from_snapshot, from_volume, text},
};

const CONTROLS: [&str; 3] = ["line\nbreak", "nul\0byte", "escape\u{1b}[2J"];

/// Checks the result of a call with an invalid id: rejected, not found, or OK where the call also accepts objects that
/// do not exist. Never Internal. That it followed a path is said of this call.
fn harmless<T>(f: &Fixture, what: &str, answer: Result<T, Status>, may_work: bool) -> Result<()> {
    same_files(f).with_context(|| what.to_owned())?;
    match answer {
        Ok(_) if may_work => Ok(()),
        answer => rejected(f, what, answer, NO_SUCH),
    }
}

/// A call about a volume that does not exist; it is made when it is awaited.
struct Call<'a> {
    name: &'static str,
    /// Whether it may return OK.
    may_work: bool,
    answer: Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>,
}

/// Adds a call to a list.
macro_rules! add {
    ($all:ident: $name:literal, $may_work:literal, $f:ident.$method:ident($request:expr)) => {{
        let request = $request;
        let answer = Box::pin(async move { $f.$method(request).await.map(drop) });
        $all.push(Call { name: $name, may_work: $may_work, answer });
    }};
}

/// Every call that has a volume_id, with this id.
fn volume_calls<'a>(f: &'a Fixture, volume_id: &str) -> Vec<Call<'a>> {
    let id = || volume_id.to_owned();
    let volume = v1::Volume { volume_id: id(), ..Default::default() };
    // Its directories do not exist.
    let placed = VolumeOnNode {
        volume: volume.clone(),
        access: f.access(),
        publish_context: Map::new(),
        staging: f.has(STAGE).then(|| f.staging_root().join(f.unique())),
        target: f.target_root().join(f.unique()).join("mount"),
    };
    let mut all = Vec::new();
    if f.has(CREATE) {
        add!(all: "DeleteVolume", true, f.delete_volume(f.delete_request(volume_id)));
        let request = v1::ValidateVolumeCapabilitiesRequest {
            volume_id: id(),
            volume_capabilities: vec![f.capability()],
            secrets: f.config().secrets.validate_volume_capabilities.clone(),
            ..Default::default()
        };
        add!(all: "ValidateVolumeCapabilities", false, f.validate_volume_capabilities(request));
    }
    if f.has(ATTACH) {
        let request = f.attach_request(&volume, f.access());
        add!(all: "ControllerPublishVolume", false, f.controller_publish_volume(request));
        let request = f.detach_request(volume_id, &f.node_info().node_id);
        add!(all: "ControllerUnpublishVolume", true, f.controller_unpublish_volume(request));
    }
    if f.has(GET) {
        let request = v1::ControllerGetVolumeRequest { volume_id: id() };
        add!(all: "ControllerGetVolume", false, f.controller_get_volume(request));
    }
    if f.has(EXPAND) {
        add!(all: "ControllerExpandVolume", false, f.controller_expand_volume(f.expand_request(volume_id)));
    }
    if f.has(MODIFY) {
        let request = v1::ControllerModifyVolumeRequest {
            volume_id: id(),
            secrets: f.config().secrets.controller_modify_volume.clone(),
            mutable_parameters: f.mutable(),
        };
        add!(all: "ControllerModifyVolume", false, f.controller_modify_volume(request));
    }
    if f.has(SNAPSHOT) {
        add!(all: "CreateSnapshot", false, f.create_snapshot(f.snapshot_request(volume_id)));
    }
    if f.has(GROUPS) {
        let request = f.group_request(vec![id()]);
        add!(all: "CreateVolumeGroupSnapshot", false, f.create_volume_group_snapshot(request));
    }
    if f.has(STAGE) {
        add!(all: "NodeStageVolume", false, f.node_stage_volume(f.stage_request(&placed)));
        add!(all: "NodeUnstageVolume", true, f.node_unstage_volume(f.unstage_request(&placed)));
    }
    add!(all: "NodePublishVolume", false, f.node_publish_volume(f.publish_request(&placed)));
    add!(all: "NodeUnpublishVolume", true, f.node_unpublish_volume(f.unpublish_request(&placed)));
    let volume_path = text(&placed.target);
    if f.has(STATS) {
        let request = v1::NodeGetVolumeStatsRequest { volume_id: id(), volume_path, ..Default::default() };
        add!(all: "NodeGetVolumeStats", false, f.node_get_volume_stats(request));
    }
    if f.has(NODE_EXPAND) {
        add!(all: "NodeExpandVolume", false, f.node_expand_volume(f.node_expand_request(&placed)));
    }
    all
}

/// Makes a call with an id of this kind, and checks its result.
async fn harmless_call(f: &Fixture, call: Call<'_>, kind: &str) -> Result<()> {
    match call.answer.await {
        // The driver may check first whether the volume is staged.
        Err(status)
            if call.name == "NodePublishVolume"
                && f.has(STAGE)
                && status.code() == Code::FailedPrecondition =>
        {
            Ok(())
        }
        answer => harmless(f, &format!("{} with a volume_id {kind}", call.name), answer, call.may_work),
    }
}

/// The calls that return a wrong code for any volume that does not exist: other rows report them.
async fn wrong_anyway(f: &Fixture) -> BTreeSet<&'static str> {
    let mut wrong = BTreeSet::new();
    for call in volume_calls(f, &f.unknown_volume()) {
        let name = call.name;
        if harmless_call(f, call, "").await.is_err() {
            wrong.insert(name);
        }
    }
    wrong
}

/// Makes every call with each of these volume ids, until one returns a wrong code.
async fn volume_ids(
    f: &Fixture,
    excluded: &BTreeSet<&str>,
    ids: impl IntoIterator<Item = String>,
    kind: &str,
) -> Result<()> {
    for id in ids {
        for call in volume_calls(f, &id).into_iter().filter(|call| !excluded.contains(call.name)) {
            harmless_call(f, call, kind).await?;
        }
    }
    Ok(())
}

/// Ids with control characters, of this case alone: a driver may return Aborted while a call of another case with the
/// same id is pending.
fn control_ids(f: &Fixture) -> [String; 3] {
    CONTROLS.map(|id| format!("{id}-{}", f.unique()))
}

pub(super) async fn volume_traversal(f: &Fixture) -> Result<()> {
    let excluded = wrong_anyway(f).await;
    let ids = elsewhere(f).await?;
    unfollowed(f, volume_ids(f, &excluded, ids, "with path traversal")).await
}

/// One row for both: a driver that validates ids validates all of an id.
pub(super) async fn volume_no_id(f: &Fixture) -> Result<()> {
    let excluded = wrong_anyway(f).await;
    volume_ids(f, &excluded, control_ids(f), "with control characters").await?;
    volume_ids(f, &excluded, ["x".repeat(HUGE)], "of 1 MiB").await
}

/// A driver may cut its own ids in pieces, of which such an id has none.
pub(super) async fn short(f: &Fixture) -> Result<()> {
    let excluded = wrong_anyway(f).await;
    volume_ids(f, &excluded, ["x".to_owned()], "of one character").await
}

/// Invalid ids, without oversized ones: a driver that repeats its input in errors fails for oversized ids of any
/// object, and the row about volume ids reports that once.
async fn bad_ids(f: &Fixture) -> Result<Vec<(String, &'static str)>> {
    let elsewhere = elsewhere(f).await?.into_iter().map(|id| (id, "with path traversal"));
    let controls = control_ids(f).map(|id| (id, "with control characters"));
    Ok(elsewhere.chain(controls).collect())
}

pub(super) async fn snapshot_ids(f: &Fixture) -> Result<()> {
    let ids = bad_ids(f).await?;
    let calls = async {
        for (id, kind) in ids {
            let answer = f.delete_snapshot(f.delete_snapshot_request(&id)).await;
            harmless(f, &format!("DeleteSnapshot with a snapshot_id {kind}"), answer, true)?;
            let answer = f.create_volume(f.create_from(from_snapshot(&id))).await;
            harmless(f, &format!("CreateVolume from a snapshot_id {kind}"), answer, false)?;
            if f.has(LIST_SNAPSHOTS) {
                let secrets = f.config().secrets.list_snapshots.clone();
                let request =
                    v1::ListSnapshotsRequest { snapshot_id: id.clone(), secrets, ..Default::default() };
                let answer = f.list_snapshots(request).await;
                harmless(f, &format!("ListSnapshots with a snapshot_id {kind}"), answer, true)?;
            }
            if f.has(GET_SNAPSHOT) {
                let secrets = f.config().secrets.get_snapshot.clone();
                let answer = f.get_snapshot(v1::GetSnapshotRequest { snapshot_id: id, secrets }).await;
                harmless(f, &format!("GetSnapshot with a snapshot_id {kind}"), answer, false)?;
            }
        }
        Ok(())
    };
    unfollowed(f, calls).await
}

pub(super) async fn group_ids(f: &Fixture) -> Result<()> {
    let ids = bad_ids(f).await?;
    let calls = async {
        for (id, kind) in ids {
            let answer = f.delete_volume_group_snapshot(f.delete_group_of(&id, Vec::new())).await;
            harmless(f, &format!("DeleteVolumeGroupSnapshot with a group_snapshot_id {kind}"), answer, true)?;
            let request = v1::GetVolumeGroupSnapshotRequest {
                group_snapshot_id: id,
                secrets: f.config().secrets.group_snapshot.clone(),
                ..Default::default()
            };
            let answer = f.get_volume_group_snapshot(request).await;
            harmless(f, &format!("GetVolumeGroupSnapshot with a group_snapshot_id {kind}"), answer, false)?;
        }
        Ok(())
    };
    unfollowed(f, calls).await
}

pub(super) async fn metadata_ids(f: &Fixture) -> Result<()> {
    let ids = bad_ids(f).await?;
    let calls = async {
        for (id, kind) in ids {
            let secrets = f.config().secrets.snapshot_metadata.clone();
            let request = v1::GetMetadataAllocatedRequest {
                snapshot_id: id.clone(),
                secrets: secrets.clone(),
                ..Default::default()
            };
            let answer = f.get_metadata_allocated(request).await;
            harmless(f, &format!("GetMetadataAllocated with a snapshot_id {kind}"), answer, false)?;
            let request = v1::GetMetadataDeltaRequest {
                base_snapshot_id: id.clone(),
                target_snapshot_id: id,
                secrets,
                ..Default::default()
            };
            let answer = f.get_metadata_delta(request).await;
            harmless(f, &format!("GetMetadataDelta with a base_snapshot_id {kind}"), answer, false)?;
        }
        Ok(())
    };
    unfollowed(f, calls).await
}

pub(super) async fn node_ids(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let ids = bad_ids(f).await?;
    let detach =
        async |node: &str| f.controller_unpublish_volume(f.detach_request(&volume.volume_id, node)).await;
    // Another row reports a wrong code for any node that does not exist.
    let is_judged = harmless(f, "", detach(&f.unknown_node()).await, true).is_ok();
    let calls = async {
        for (id, kind) in ids {
            let mut request = f.attach_request(&volume, f.access());
            request.node_id.clone_from(&id);
            let answer = f.controller_publish_volume(request).await;
            harmless(f, &format!("ControllerPublishVolume with a node_id {kind}"), answer, false)?;
            let answer = detach(&id).await;
            if is_judged {
                harmless(f, &format!("ControllerUnpublishVolume with a node_id {kind}"), answer, true)?;
            }
        }
        Ok(())
    };
    unfollowed(f, calls).await
}

pub(super) async fn sources(f: &Fixture) -> Result<()> {
    let ids = bad_ids(f).await?;
    let calls = async {
        for (id, kind) in ids {
            let answer = f.create_volume(f.create_from(from_volume(&id))).await;
            harmless(f, &format!("CreateVolume from a volume_id {kind}"), answer, false)?;
        }
        Ok(())
    };
    unfollowed(f, calls).await
}
