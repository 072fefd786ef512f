//! Untrusted input: path traversal in ids and paths, oversized texts, control characters, and secrets in errors and in
//! the driver's output.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    pin::Pin,
};

use anyhow::{Context, Result, bail, ensure};
use claimcheck_csi::{
    Code, Status,
    tap::{Disclosure, code_name},
    v1,
};
use claimcheck_engine::skip;

use super::{
    ANY_NAME, ATTACH, CHECKS_NODE, CREATE, EXPAND, GET, GET_SNAPSHOT, GROUPS, LIST_SNAPSHOTS, METADATA,
    MODIFY, MOUNTS, NODE_EXPAND, PERSISTS, SNAPSHOT, SNAPSHOT_USED, STAGE, STATS, SURVIVES, VOLUME_USED,
    case, unused,
};
use crate::{
    alone::Alone,
    case::Row,
    config::Map,
    effect::Effect,
    expect::{Answer, INVALID, NO_SUCH},
    fixture::{Fixture, Kind, Step, VolumeOnNode, from_snapshot, from_volume, text},
    need::Need,
    spec,
};

/// Longer than any field may be.
const HUGE: usize = 1 << 20;

/// Enough `../` to reach the root from any directory.
const UP: usize = 16;

/// A message of more bytes repeats the oversized input.
const REPEATED: usize = 8192;

const CONTROLS: [&str; 3] = ["line\nbreak", "nul\0byte", "escape\u{1b}[2J"];

/// Those that a name must not have: a line break is permitted in it.
const NO_NAME: [&str; 3] = ["vertical\u{b}tab", "nul\0byte", "escape\u{1b}[2J"];

pub(super) const ROWS: &[Row] = &[
    Row::new("a volume_id with path traversal is rejected", spec::CODES, case!(volume_traversal)),
    Row::new("a volume_id with control characters or of 1 MiB is rejected", spec::CODES, case!(volume_no_id)),
    Row::new(
        "a volume_id of one character is answered as any other that does not exist",
        spec::CODES,
        case!(short),
    ),
    Row::new(
        "a snapshot_id with path traversal or control characters is rejected",
        spec::CODES,
        case!(snapshot_ids),
    )
    .needs(&[SNAPSHOT, CREATE, SNAPSHOT_USED]),
    Row::new(
        "a group_snapshot_id with path traversal or control characters is rejected",
        spec::CODES,
        case!(group_ids),
    )
    .needs(&[GROUPS]),
    Row::new(
        "a metadata request with path traversal or control characters in its id is rejected",
        spec::CODES,
        case!(metadata_ids),
    )
    .needs(&[METADATA]),
    Row::new("a node_id with path traversal or control characters is rejected", spec::CODES, case!(node_ids))
        .needs(&[ATTACH, CREATE, CHECKS_NODE]),
    Row::new(
        "a source volume_id with path traversal or control characters is rejected",
        spec::CODES,
        case!(sources),
    )
    .needs(&[CREATE, VOLUME_USED]),
    Row::new(
        "CreateVolume with path traversal in the name succeeds or returns InvalidArgument",
        spec::ANY_NAME,
        case!(name_traversal),
    )
    .also(&[spec::INVALID])
    .needs(&[CREATE, ANY_NAME])
    .alone(Alone::MayBreak),
    Row::new(
        "CreateVolume with an invalid name succeeds or returns InvalidArgument",
        spec::INVALID,
        case!(no_name),
    )
    .needs(&[CREATE, ANY_NAME])
    .alone(Alone::MayBreak),
    Row::new(
        "CreateSnapshot with a name of 1 MiB succeeds or returns InvalidArgument",
        spec::INVALID,
        case!(snapshot_name),
    )
    .needs(&[CREATE, SNAPSHOT]),
    Row::new(
        "NodePublishVolume with a relative target_path is rejected",
        spec::INVALID,
        case!(relative_target),
    )
    .needs(&[CREATE]),
    Row::new(
        "NodePublishVolume with .. in target_path succeeds or returns InvalidArgument",
        spec::INVALID,
        case!(target_detour),
    )
    .needs(&[CREATE]),
    Row::new(
        "NodeStageVolume with a staging_target_path of 1 MiB does not crash the driver",
        spec::INVALID,
        case!(staging_huge),
    )
    .needs(&[CREATE, STAGE]),
    Row::new(
        "CreateVolume with parameters of 1 MiB succeeds or returns InvalidArgument",
        spec::INVALID,
        case!(parameters_huge),
    )
    .needs(&[CREATE]),
    Row::new(
        "CreateVolume with a shell command as fs_type succeeds or returns InvalidArgument",
        spec::INVALID,
        case!(fs_injection),
    )
    .needs(&[CREATE])
    .only(crate::case::Access::Mount),
    Row::new(
        "an RPC that CSI does not define returns Unimplemented",
        spec::UNIMPLEMENTED,
        case!(unknown_call),
    )
    .also(&[spec::STATUS, spec::UNSUPPORTED]),
    Row::new("error messages of failing calls contain no secrets", spec::SECRET, case!(failing_secrets))
        .also(&[spec::LEAKAGE])
        .needs(&[CREATE]),
    Row::new(
        "the contexts of CreateVolume and ControllerPublishVolume contain no secrets",
        spec::CONTEXT_SECRET,
        case!(contexts),
    )
    .also(&[spec::PUBLISH_CONTEXT_SECRET])
    .needs(&[CREATE]),
    Row::new("error messages of the whole run contain no secrets", spec::SECRET, case!(no_secrets))
        .also(&[spec::LEAKAGE])
        .alone(Alone::ChecksRun),
    Row::new("the driver's output of the whole run contains no secrets", spec::SECRET, case!(output))
        .also(&[spec::LOG_SECRETS])
        .alone(Alone::ChecksRun),
    Row::new("errors of the whole run have a message", spec::MESSAGE, case!(words)).alone(Alone::ChecksRun),
    Row::new("errors of the whole run have no details", spec::DETAILS, case!(no_details))
        .alone(Alone::ChecksRun),
    Row::new(
        "volumes that no case uses keep their data throughout the run",
        spec::VOLUME_UNIQUE,
        case!(unused::unchanged),
    )
    .needs(&[CREATE, Need::Files, MOUNTS, PERSISTS, SURVIVES])
    .each()
    .alone(Alone::ChecksRun)
    .prepare(case!(unused::written)),
    Row::new("Probe after all other cases succeeds", spec::SERVICE, case!(still_present))
        .also(&[spec::PROBE])
        .alone(Alone::ChecksRun),
];

/// Checks the result of a call with an invalid id: rejected, not found, or OK where the call also accepts objects that
/// do not exist. Never Internal. That it followed a path is said of this call.
fn harmless<T>(f: &Fixture, what: &str, answer: Result<T, Status>, may_work: bool) -> Result<()> {
    same_files(f).with_context(|| what.to_owned())?;
    match answer {
        Ok(_) if may_work => Ok(()),
        answer => rejected(f, what, answer, NO_SUCH),
    }
}

/// Checks that a call returned an error that is no failure of the driver; `expected` is what another one is reported
/// against.
fn rejected<T>(f: &Fixture, what: &str, answer: Result<T, Status>, expected: &[Code]) -> Result<()> {
    match answer {
        Err(status)
            if matches!(status.code(), Code::InvalidArgument | Code::NotFound | Code::Unimplemented) =>
        {
            let length = status.message().len();
            if length > REPEATED {
                let code = code_name(status.code());
                f.warn(format!("{what} returns {code} with a message of {length} bytes"));
            }
            Ok(())
        }
        answer => answer.refused(what, expected),
    }
}

/// Checks the result of a call with a text that callers must not send. A driver may accept it, but must not fail.
fn too_long<T>(f: &Fixture, what: &str, answer: Result<T, Status>) -> Result<()> {
    match answer {
        Ok(_) => {
            f.warn(format!("{what} returns OK"));
            Ok(())
        }
        // The text is no id: the cause is not that of objects that do not exist.
        answer => rejected(f, what, answer, INVALID),
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

async fn volume_traversal(f: &Fixture) -> Result<()> {
    let excluded = wrong_anyway(f).await;
    let ids = elsewhere(f).await?;
    unfollowed(f, volume_ids(f, &excluded, ids, "with path traversal")).await
}

/// One row for both: a driver that validates ids validates all of an id.
async fn volume_no_id(f: &Fixture) -> Result<()> {
    let excluded = wrong_anyway(f).await;
    volume_ids(f, &excluded, control_ids(f), "with control characters").await?;
    volume_ids(f, &excluded, ["x".repeat(HUGE)], "of 1 MiB").await
}

/// A driver may cut its own ids in pieces, of which such an id has none.
async fn short(f: &Fixture) -> Result<()> {
    let excluded = wrong_anyway(f).await;
    volume_ids(f, &excluded, ["x".to_owned()], "of one character").await
}

/// The files that ids and names with path traversal lead to.
const FILES: [&str; 2] = ["nearby", "place/inside"];
/// The text of these files.
const PRESENT: &str = "a file that is not the driver's\n";

/// Ids with path traversal. A driver may follow one and delete or overwrite its target, so all of them lead to files of
/// this case, or to a path that does not exist.
async fn elsewhere(f: &Fixture) -> Result<[String; 4]> {
    let root = sentinel(f).await?;
    let (place, file) = (text(&root.join("place")), text(&root.join(FILES[0])));
    let up = "../".repeat(UP);
    let up = up.trim_end_matches('/');
    Ok([format!("{up}{place}"), place, format!("{up}{file}"), format!("a/../../{}", f.unique())])
}

/// Creates the directory to which ids and names with path traversal lead, with files where the driver's paths are
/// accessible here.
async fn sentinel(f: &Fixture) -> Result<PathBuf> {
    let root = sentinel_root(f);
    f.make_directory(&root.join("place")).await?;
    if f.config().paths.is_none() {
        for file in FILES {
            let file = root.join(file);
            fs::write(&file, PRESENT).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(root)
}

fn sentinel_root(f: &Fixture) -> PathBuf {
    f.target_root().join("elsewhere")
}

/// Checks that the directory to which such ids and names lead still exists and contains what it did.
async fn untouched(f: &Fixture) -> Result<()> {
    let place = sentinel_root(f).join("place");
    ensure!(f.kind(&place).await? == Kind::Directory, "{} was deleted", changed(f));
    same_files(f)
}

/// The same for the files in it, where it is accessible here and [exists](sentinel).
fn same_files(f: &Fixture) -> Result<()> {
    let root = sentinel_root(f);
    if f.config().paths.is_some() || !root.exists() {
        return Ok(());
    }
    let mut expected: BTreeMap<PathBuf, String> =
        FILES.into_iter().map(|file| (file.into(), PRESENT.to_owned())).collect();
    expected.insert("place".into(), DIRECTORY.to_owned());
    let found = tree(&root, &root).with_context(|| format!("cannot read {}", root.display()))?;
    ensure!(found == expected, "{} contained {expected:?}, and now contains {found:?}", changed(f));
    Ok(())
}

fn changed(f: &Fixture) -> String {
    let root = sentinel_root(f);
    format!(
        "a request with path traversal, or a shell command, to {} was followed: the directory, which is not the driver's,",
        root.display()
    )
}

/// What [`tree`] returns for a directory.
const DIRECTORY: &str = "a directory";

/// The paths below a directory, relative to `root`, with the beginning of the files' text.
fn tree(root: &Path, directory: &Path) -> io::Result<BTreeMap<PathBuf, String>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let kind = path.symlink_metadata()?;
        let content = match () {
            () if kind.is_dir() => DIRECTORY.to_owned(),
            () if kind.is_file() => {
                let mut text = Vec::new();
                fs::File::open(&path)?.take(128).read_to_end(&mut text)?;
                String::from_utf8_lossy(&text).into_owned()
            }
            () => "neither a file nor a directory".to_owned(),
        };
        if kind.is_dir() {
            all.extend(tree(root, &path)?);
        }
        all.insert(path.strip_prefix(root).unwrap_or(&path).to_owned(), content);
    }
    Ok(all)
}

/// The outcome of calls with path traversal: that one was followed is a stronger finding than a wrong code.
async fn unfollowed(f: &Fixture, calls: impl Future<Output = Result<()>>) -> Result<()> {
    let answers = calls.await;
    untouched(f).await?;
    answers
}

/// Invalid ids, without oversized ones: a driver that repeats its input in errors fails for oversized ids of any
/// object, and the row about volume ids reports that once.
async fn bad_ids(f: &Fixture) -> Result<Vec<(String, &'static str)>> {
    let elsewhere = elsewhere(f).await?.into_iter().map(|id| (id, "with path traversal"));
    let controls = control_ids(f).map(|id| (id, "with control characters"));
    Ok(elsewhere.chain(controls).collect())
}

async fn snapshot_ids(f: &Fixture) -> Result<()> {
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

async fn group_ids(f: &Fixture) -> Result<()> {
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

async fn metadata_ids(f: &Fixture) -> Result<()> {
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

async fn node_ids(f: &Fixture) -> Result<()> {
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

async fn sources(f: &Fixture) -> Result<()> {
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

/// Names with path traversal: one of an unknown directory, and those that lead to a directory of this case, if they are not
/// too long.
async fn names_elsewhere(f: &Fixture) -> Result<Vec<String>> {
    let root = text(&sentinel(f).await?);
    let mut names = vec![format!("../../{}", f.name())];
    let absolute = format!("{root}/{}", f.unique());
    let room = f.config().name_length.saturating_sub(absolute.len());
    if absolute.len() <= f.config().name_length {
        names.push(absolute);
    }
    let up = "../".repeat(UP.min(room / "../".len()));
    if !up.is_empty() {
        names.push(format!("{}{root}/{}", up.trim_end_matches('/'), f.unique()));
    }
    Ok(names)
}

async fn name_traversal(f: &Fixture) -> Result<()> {
    for name in names_elsewhere(f).await? {
        let request = v1::CreateVolumeRequest { name, ..f.create_request() };
        let made = f.create_volume(request).await;
        untouched(f).await?;
        match made {
            // Any text is a valid name: the volume must work like any other.
            Ok(made) => {
                let volume = made.volume.unwrap_or_default();
                ensure!(!volume.volume_id.is_empty(), "CreateVolume returned OK with an empty volume_id");
                let placed = f.publish_all(volume).await?;
                f.withdraw(&placed).await?;
            }
            refused => {
                let refused =
                    refused.refused("CreateVolume with path traversal in the name", &[Code::InvalidArgument]);
                refused.map_err(|error| f.or_reported(Effect::AnyName, error))?;
            }
        }
        untouched(f).await?;
    }
    Ok(())
}

/// One row for both: a driver that validates names validates all of a name.
async fn no_name(f: &Fixture) -> Result<()> {
    let controls = NO_NAME.map(|control| (format!("{}{control}", f.name()), format!("with {control:?}")));
    let huge = (format!("{}{}", f.name(), "x".repeat(HUGE)), "of 1 MiB".to_owned());
    for (name, what) in controls.into_iter().chain([huge]) {
        let mut request = f.create_request();
        request.name = name;
        too_long(f, &format!("CreateVolume with a name {what}"), f.create_volume(request).await)
            .map_err(|error| f.or_reported(Effect::AnyName, error))?;
    }
    Ok(())
}

async fn snapshot_name(f: &Fixture) -> Result<()> {
    let mut request = f.snapshot_request(&f.volume().await?.volume_id);
    request.name = "x".repeat(HUGE);
    too_long(f, "CreateSnapshot with a name of 1 MiB", f.create_snapshot(request).await)
}

async fn relative_target(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let mut request = f.publish_request(&placed);
    request.target_path = format!("claimcheck-relative-{}", f.unique());
    let target = request.target_path.clone();
    let checked = refuses_relative_target(f, request).await;
    // A driver that creates the target before it fails leaves it in its working directory, which is ours if the driver
    // was started here. A mounted directory is not removed.
    let _ = fs::remove_dir(target);
    checked
}

async fn refuses_relative_target(f: &Fixture, request: v1::NodePublishVolumeRequest) -> Result<()> {
    match f.node_publish_volume(request.clone()).await {
        Ok(_) => {
            let undo = v1::NodeUnpublishVolumeRequest {
                volume_id: request.volume_id,
                target_path: request.target_path,
            };
            f.node_unpublish_volume(undo).await.works("NodeUnpublishVolume of a relative target_path")?;
            bail!("NodePublishVolume at a relative target_path returned OK, expected InvalidArgument")
        }
        Err(status) => {
            let code = status.code();
            if code != Code::InvalidArgument {
                f.warn(format!(
                    "NodePublishVolume at a relative target_path returns {}; InvalidArgument is recommended",
                    code_name(code)
                ));
            }
            Ok(())
        }
    }
}

async fn target_detour(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Publish)?;
    let placed = f.staged().await?;
    let parent = placed.target.parent().expect("it is below the root of the targets");
    let mut request = f.publish_request(&placed);
    // The same path with a `..` component.
    request.target_path =
        text(&parent.join("..").join(parent.file_name().expect("it has a name of its own")).join("mount"));
    match f.node_publish_volume(request.clone()).await {
        Ok(_) => {
            if f.has(Need::Files) {
                f.must_be_mounted_once(&placed, "after NodePublishVolume with .. in target_path")?;
            }
            let undo = v1::NodeUnpublishVolumeRequest {
                volume_id: request.volume_id,
                target_path: request.target_path,
            };
            f.node_unpublish_volume(undo).await.works("NodeUnpublishVolume with .. in target_path")?;
            Ok(())
        }
        refused => refused.refused("NodePublishVolume with .. in target_path", &[Code::InvalidArgument]),
    }
}

async fn staging_huge(f: &Fixture) -> Result<()> {
    let mut request = f.stage_request(&f.attached().await?);
    request.staging_target_path = format!("/{}", "x".repeat(HUGE));
    match f.node_stage_volume(request).await {
        Err(status) if status.code() != Code::InvalidArgument && status.code() != Code::NotFound => {
            // An error of the file system is acceptable; a later case checks that the driver still runs.
            f.warn(format!(
                "NodeStageVolume with a staging_target_path of 1 MiB returns {}",
                code_name(status.code())
            ));
            Ok(())
        }
        answer => too_long(f, "NodeStageVolume with a staging_target_path of 1 MiB", answer),
    }
}

async fn parameters_huge(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.parameters.insert("claimcheck".to_owned(), "x".repeat(HUGE));
    match f.create_volume(request).await {
        Ok(_) => {
            f.warn("parameters larger than 4 KiB are accepted");
            Ok(())
        }
        refused => refused.refused("CreateVolume with parameters of 1 MiB", &[Code::InvalidArgument]),
    }
}

async fn fs_injection(f: &Fixture) -> Result<()> {
    let file = text(&sentinel(f).await?.join("injected"));
    for fs_type in ["../../bin/sh -c".to_owned(), format!("ext4; touch {file}"), format!("$(touch {file})")] {
        let outcome = used_with(f, &fs_type).await;
        untouched(f).await?;
        outcome?;
    }
    Ok(())
}

/// Creates a volume with an fs_type, and publishes it: a driver may validate it in any of these calls, and formats the
/// volume in the last ones.
async fn used_with(f: &Fixture, fs_type: &str) -> Result<()> {
    let mut request = f.create_request();
    for capability in &mut request.volume_capabilities {
        if let Some(v1::volume_capability::AccessType::Mount(mount)) = &mut capability.access_type {
            fs_type.clone_into(&mut mount.fs_type);
        }
    }
    let capability = request.volume_capabilities.first().cloned();
    let volume = match f.create_volume(request).await {
        Ok(made) => made.volume.unwrap_or_default(),
        refused => {
            return refused
                .refused(&format!("CreateVolume with fs_type {fs_type:?}"), &[Code::InvalidArgument]);
        }
    };
    let mut placed = f.place(volume).await?;
    f.attach(&mut placed).await?;
    // Another row checks how an unknown fs_type is rejected.
    if placed.staging.is_some() {
        let mut request = f.stage_request(&placed);
        request.volume_capability.clone_from(&capability);
        if f.node_stage_volume(request).await.is_err() {
            return Ok(());
        }
    }
    let mut request = f.publish_request(&placed);
    request.volume_capability = capability;
    if f.node_publish_volume(request).await.is_ok() {
        f.warn("a volume with a shell command as fs_type was published: the driver ignores fs_type");
        f.withdraw(&placed).await?;
    }
    Ok(())
}

async fn unknown_call(f: &Fixture) -> Result<()> {
    let mut client = tonic::client::Grpc::new(f.driver().node.service());
    client.ready().await.map_err(|error| anyhow::anyhow!("cannot call the driver: {error}"))?;
    let codec = tonic_prost::ProstCodec::<v1::ProbeRequest, v1::ProbeResponse>::default();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/csi.v1.Identity/ClaimcheckUnknown");
    let answer = client.unary(tonic::Request::new(v1::ProbeRequest {}), path, codec).await;
    let answer = answer.map_err(|status| f.watch("ClaimcheckUnknown", status));
    answer.refused("an RPC that CSI does not define", &[Code::Unimplemented])
}

async fn words(f: &Fixture) -> Result<()> {
    let silent: Vec<String> = f.driver().known().silent.iter().cloned().collect();
    ensure!(silent.is_empty(), "errors of these calls had no message: {}", silent.join(", "));
    Ok(())
}

async fn contexts(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let contexts =
        [("volume_context", &placed.volume.volume_context), ("publish_context", &placed.publish_context)];
    for (name, context) in contexts {
        let secret = context.iter().find(|(_, value)| value.contains(&f.driver().marker));
        ensure!(
            secret.is_none(),
            "the {name} contains the value of a secret, as {:?}",
            secret.map(|(key, _)| key)
        );
    }
    Ok(())
}

async fn failing_secrets(f: &Fixture) -> Result<()> {
    let before = f.driver().known().leaked_secrets.clone();
    // Calls with secrets that fail, each for a different reason.
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
    let leaking: Vec<String> = f.driver().known().leaked_secrets.difference(&before).cloned().collect();
    ensure!(
        leaking.is_empty(),
        "errors of these calls contain the value of a secret: {}",
        leaking.join(", ")
    );
    Ok(())
}

async fn no_secrets(f: &Fixture) -> Result<()> {
    let leaking = f.driver().known().leaked_secrets.clone();
    let leaking: Vec<String> = leaking.into_iter().collect();
    ensure!(
        leaking.is_empty(),
        "errors of these calls contained the value of a secret: {}",
        leaking.join(", ")
    );
    Ok(())
}

async fn output(f: &Fixture) -> Result<()> {
    let Some(log) = &f.config().output else {
        let reason = "not observed: the output of a driver that claimcheck did not start cannot be read: let --driver \
                      start it";
        return Err(skip(reason.to_owned()));
    };
    let bytes =
        fs::read(log).with_context(|| format!("cannot read the driver's output {}", log.display()))?;
    let found = Disclosure::all(f.driver().known_secrets(), &String::from_utf8_lossy(&bytes));
    if let Some(first) = found.first() {
        let name = log.file_name().unwrap_or_default().display();
        bail!(
            "{} lines of {name} contain a secret or token that was passed to the driver, {first}",
            found.len()
        );
    }
    if f.driver().not_searched > 0 {
        f.warn(format!(
            "the output was not searched for {} configured values, which are shorter than 8 characters, or of which the \
             key does not name something confidential",
            f.driver().not_searched
        ));
    }
    Ok(())
}

async fn no_details(f: &Fixture) -> Result<()> {
    let detailed: Vec<String> = f.driver().known().details.iter().cloned().collect();
    ensure!(detailed.is_empty(), "errors of these calls had details: {}", detailed.join(", "));
    Ok(())
}

async fn still_present(f: &Fixture) -> Result<()> {
    f.probe(v1::ProbeRequest {}).await.works("Probe after all other cases")?;
    if f.has(CREATE) && f.has(Need::Files) {
        let placed = f.up().await?;
        f.withdraw(&placed).await?;
    }
    Ok(())
}
