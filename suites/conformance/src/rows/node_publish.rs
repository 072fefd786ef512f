//! NodePublishVolume and NodeUnpublishVolume.

use anyhow::{Context as _, Result, bail, ensure};
use claimcheck_csi::{
    Code, Status,
    v1::{
        NodePublishVolumeRequest, NodeUnpublishVolumeRequest, Volume,
        node_service_capability::rpc::Type as NodeType, volume_capability,
        volume_capability::access_mode::Mode,
    },
};
use claimcheck_engine::skip;

use super::{CREATE, MOUNTS, PERSISTS, PUBLISH_AGAIN, READ_ONLY, STAGE, UNPUBLISH_AGAIN, case};
use crate::{
    case::{Access, Row},
    effect::{Effect, NodeEffects},
    expect::{Answer, INVALID, NO_SUCH, NOT_FOUND, status_text},
    fixture::{Fixture, Kind, Step, VolumeOnNode, with_mode},
    need::Need,
    spec,
    verdict::Breaks,
};

/// The length of paths that every driver must accept.
const PATH: usize = 128;
pub(super) const MULTI_WRITER: Need = Need::Node(NodeType::SingleNodeMultiWriter);

pub(super) const ROWS: &[Row] = &[
    Row::new("NodePublishVolume without a volume_id returns InvalidArgument", spec::MISSING, case!(no_volume))
        .needs(&[CREATE])
        .upstream("Node Service NodePublishVolume should fail when no volume id is provided"),
    Row::new("NodePublishVolume without a target_path returns InvalidArgument", spec::MISSING, case!(no_target))
        .needs(&[CREATE])
        .upstream("Node Service NodePublishVolume should fail when no target path is provided"),
    Row::new("NodePublishVolume without a volume_capability returns InvalidArgument", spec::MISSING, case!(no_capability))
        .needs(&[CREATE])
        .upstream("Node Service NodePublishVolume should fail when no volume capability is provided"),
    Row::new("NodePublishVolume of a nonexistent volume returns NotFound", spec::PUBLISH_GONE, case!(unknown)),
    Row::new("NodePublishVolume without a staging_target_path returns FailedPrecondition", spec::PUBLISH_UNSTAGED, case!(no_staging)).needs(&[STAGE, CREATE]),
    Row::new("NodePublishVolume of a volume that is not staged returns FailedPrecondition", spec::PUBLISH_USABLE, case!(unstaged)).needs(&[STAGE, CREATE, MOUNTS, PERSISTS]).each(),
    Row::new("NodeStageVolume and NodePublishVolume with paths of 128 bytes succeed", spec::STAGE_PATH, case!(long_paths)).needs(&[CREATE]).each(),
    Row::new("NodePublishVolume creates a target of the requested access type", spec::PUBLISH_DIRECTORY, case!(right_kind))
        .also(&[spec::PUBLISH_DEVICE])
        .needs(&[CREATE, Need::Files, MOUNTS])
        .establishes(&[Effect::PublishMounts])
        .each(),
    Row::new("NodePublishVolume mounts the volume before it returns", spec::PUBLISH_DIRECTORY, case!(mounted))
        .needs(&[CREATE, Need::Files])
        .establishes(&[Effect::PublishMounts])
        .only(Access::Mount),
    Row::new("NodePublishVolume makes the volume writable", spec::PUBLISH_USABLE, case!(written)).needs(&[CREATE, Need::Files, MOUNTS]).each(),
    Row::new("NodePublishVolume makes the full size of the volume available", spec::SIZE_LEAST, case!(size)).needs(&[CREATE, Need::Files, MOUNTS]).each(),
    Row::new("a failed NodePublishVolume leaves the volume staged, with its data", spec::STAGE_USABLE, case!(failed))
        .needs(&[STAGE, CREATE, Need::Files, MOUNTS]).each(),
    Row::new("NodePublishVolume called twice succeeds", spec::PUBLISH_SAME, case!(twice))
        .needs(&[CREATE, PUBLISH_AGAIN])
        .establishes(&[Effect::PublishAgain])
        .each()
        .upstream("Node Service should be idempotent"),
    Row::new("NodePublishVolume called three times mounts the volume once", spec::PUBLISH_TWICE, case!(one_mount)).needs(&[CREATE, Need::Files, MOUNTS]).establishes(&[Effect::PublishAgain]).each(),
    Row::new("NodePublishVolume with a different readonly flag returns AlreadyExists", spec::PUBLISH_OTHERWISE, case!(incompatible)).needs(&[CREATE, MOUNTS, PUBLISH_AGAIN, READ_ONLY]),
    Row::new("NodePublishVolume at the same target with a different access type returns AlreadyExists", spec::PUBLISH_OTHERWISE, case!(other_access))
        .needs(&[CREATE, MOUNTS, PUBLISH_AGAIN, Need::Access(Access::Block)])
        .only(Access::Mount),
    Row::new("NodePublishVolume with the readonly flag prevents writes", spec::PUBLISH_READONLY, case!(readonly)).needs(&[CREATE, Need::Files, MOUNTS]).establishes(&[Effect::ReadOnly]).each(),
    Row::new("NodePublishVolume with the readonly flag at one target leaves another target writable", spec::PUBLISH_USABLE, case!(readonly_one))
        .also(&[spec::PUBLISH_READONLY])
        .needs(&[CREATE, Need::Files, MULTI_WRITER, MOUNTS, READ_ONLY])
        .only(Access::Mount),
    Row::new("NodePublishVolume at two targets shows the same data", spec::PUBLISH_USABLE, case!(two_targets)).needs(&[CREATE, Need::Files, MULTI_WRITER, MOUNTS]).each(),
    Row::new("NodePublishVolume of a single-writer volume at a second target returns FailedPrecondition", spec::PUBLISH_TABLE, case!(one_writer))
        .needs(&[CREATE, MULTI_WRITER, MOUNTS])
        .upstream("Node Service NodePublishVolume with single node multi writer capability should fail when volume with single node single writer access mode is already mounted at a different target path"),
    Row::new("NodePublishVolume applies mount_flags", spec::PUBLISH_USABLE, case!(mount_flags)).needs(&[CREATE, Need::Files, MOUNTS]).only(Access::Mount),
    Row::new("NodePublishVolume provides the file system of fs_type", spec::PUBLISH_USABLE, case!(chosen_fs)).needs(&[CREATE, Need::Files, MOUNTS]).only(Access::Mount),
    Row::new("an unknown fs_type is rejected", spec::INVALID, case!(unknown_fs)).needs(&[CREATE]).only(Access::Mount),
    Row::new("NodeUnpublishVolume without a volume_id returns InvalidArgument", spec::MISSING, case!(undo_no_volume))
        .upstream("Node Service NodeUnpublishVolume should fail when no volume id is provided"),
    Row::new("NodeUnpublishVolume without a target_path returns InvalidArgument", spec::MISSING, case!(undo_no_target))
        .upstream("Node Service NodeUnpublishVolume should fail when no target path is provided"),
    Row::new("NodeUnpublishVolume unmounts and removes the target", spec::UNPUBLISH_REMOVES, case!(undo_removes))
        .also(&[spec::UNPUBLISH_UNDOES])
        .needs(&[CREATE])
        .establishes(&[Effect::UnpublishUnmounts])
        .each()
        .upstream("Node Service NodeUnpublishVolume should remove target path"),
    Row::new("NodeUnpublishVolume called twice succeeds", spec::UNPUBLISH_TWICE, case!(undo_twice)).needs(&[CREATE]).establishes(&[Effect::UnpublishAgain]).each(),
    Row::new("NodeUnpublishVolume of a volume that is not published succeeds or returns NotFound", spec::UNPUBLISH_TWICE, case!(undo_nowhere))
        .also(&[spec::UNPUBLISH_GONE])
        .needs(&[CREATE, UNPUBLISH_AGAIN]),
    Row::new("NodeUnpublishVolume of one target leaves another target published", spec::UNPUBLISH_UNDOES, case!(undo_one)).needs(&[CREATE, Need::Files, MULTI_WRITER, MOUNTS]).each(),
    Row::new("NodePublishVolume after NodeUnpublishVolume preserves data", spec::PUBLISH_USABLE, case!(data)).needs(&[CREATE, Need::Files, MOUNTS, PERSISTS]).each(),
];

async fn no_volume(f: &Fixture) -> Result<()> {
    let mut request = f.publish_request(&f.staged().await?);
    request.volume_id.clear();
    f.node_publish_volume(request).await.refused("NodePublishVolume without a volume_id", INVALID)
}

async fn no_target(f: &Fixture) -> Result<()> {
    let mut request = f.publish_request(&f.staged().await?);
    request.target_path.clear();
    f.node_publish_volume(request).await.refused("NodePublishVolume without a target_path", INVALID)
}

async fn no_capability(f: &Fixture) -> Result<()> {
    let mut request = f.publish_request(&f.staged().await?);
    request.volume_capability = None;
    f.node_publish_volume(request).await.refused("NodePublishVolume without a volume_capability", INVALID)
}

/// No driver can create this target.
async fn failed(f: &Fixture) -> Result<()> {
    let placed = f.up_with("before").await?;
    f.unpublish(&placed).await?;
    let mut request = f.publish_request(&placed);
    request.target_path = format!("/dev/null/{}/mount", f.unique());
    if f.node_publish_volume(request.clone()).await.is_ok() {
        let undo =
            NodeUnpublishVolumeRequest { target_path: request.target_path, ..f.unpublish_request(&placed) };
        f.node_unpublish_volume(undo).await.works("NodeUnpublishVolume of a target below a file")?;
        return Err(skip("NodePublishVolume returns OK at a target below a file"));
    }
    let what = "after a NodePublishVolume that failed";
    f.publish(&placed).await.context(what)?;
    f.must_hold_throughout(&placed, "before", what).await
}

async fn unknown(f: &Fixture) -> Result<()> {
    let unknown = Volume { volume_id: f.unknown_volume(), ..Volume::default() };
    // Without CreateVolume, the driver may reject the missing volume_context first.
    let (mut placed, codes) = match f.has(CREATE) {
        true => (f.staged().await?, NOT_FOUND),
        false => (f.place(unknown.clone()).await?, NO_SUCH),
    };
    let known = std::mem::replace(&mut placed.volume.volume_id, unknown.volume_id);
    let request = f.publish_request(&placed);
    let answer = f.node_publish_volume(request.clone()).await;
    if answer.is_ok() && f.has(CREATE) {
        // Or what this case has published would be reported as left behind by the driver.
        placed.volume.volume_id = known;
        f.unpublish_as(&placed, &request.volume_id).await;
    }
    answer.refused(&f.of_unknown_volume("NodePublishVolume"), codes)
}

async fn no_staging(f: &Fixture) -> Result<()> {
    let mut request = f.publish_request(&f.staged().await?);
    request.staging_target_path.clear();
    let answer = f.node_publish_volume(request).await;
    let what = "NodePublishVolume without a staging_target_path";
    f.warn_of_other_code(&answer, what, Code::FailedPrecondition);
    answer.refused(what, &[Code::FailedPrecondition, Code::InvalidArgument])
}

/// The specification defines a code for a missing staging_target_path only, and permits a driver that stages nothing to
/// publish all the same: but what it publishes must be the volume.
async fn unstaged(f: &Fixture) -> Result<()> {
    const TEXT: &str = "written while staged";
    let mut placed = f.place(f.volume().await?).await?;
    if f.has(Need::Files) {
        let before = f.publish_all(placed.volume.clone()).await?;
        f.write(&before, 0, TEXT).await?;
        f.withdraw(&before).await?;
    }
    f.attach(&mut placed).await?;
    match f.node_publish_volume(f.publish_request(&placed)).await {
        Ok(_) => {
            let what = "NodePublishVolume of a volume that is not staged returned OK";
            if f.has(Need::Files) {
                f.must_hold(&placed, 0, TEXT, what).await?;
            }
            f.warn(what);
        }
        Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument) => {}
        Err(status) => f.warn(format!(
            "NodePublishVolume of a volume that is not staged returns {}; FailedPrecondition is recommended",
            status_text(&status)
        )),
    }
    Ok(())
}

/// A path of at least this many bytes below `root`.
fn long(root: &std::path::Path, name: &str, bytes: usize) -> std::path::PathBuf {
    let missing = bytes.saturating_sub(root.as_os_str().len() + 1 + name.len());
    root.join(format!("{name}{}", "x".repeat(missing)))
}

async fn long_paths(f: &Fixture) -> Result<()> {
    let mut placed = f.place(f.volume().await?).await?;
    let name = f.unique();
    if placed.staging.is_some() {
        let staging = long(&f.staging_root(), &name, PATH);
        f.make_directory(&staging).await?;
        placed.staging = Some(staging);
    }
    let parent = long(&f.target_root(), &name, PATH - "/mount".len());
    f.make_directory(&parent).await?;
    placed.target = parent.join("mount");
    f.attach(&mut placed).await?;
    f.stage(&placed).await?;
    f.publish(&placed).await?;
    f.withdraw(&placed).await
}

async fn right_kind(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let (kind, due) = match placed.access {
        Access::Mount => (f.kind(&placed.target).await?, Kind::Directory),
        Access::Block => (f.kind(&placed.target).await?, Kind::Device),
    };
    ensure!(kind == due, "NodePublishVolume returned OK, but the target is: {kind:?}, expected {due:?}");
    Ok(())
}

async fn mounted(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let mounts = f.mounts_at(&placed.target)?;
    ensure!(mounts > 0, "NodePublishVolume returned OK, but nothing is mounted at the target");
    Ok(())
}

async fn written(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.write(&placed, 0, "written").await?;
    f.must_hold(&placed, 0, "written", "read back immediately").await
}

async fn size(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.must_have_size(&placed, f.config().volume_size, "once NodePublishVolume has returned").await?;
    let (bytes, reported) = (f.bytes(&placed).await?, placed.volume.capacity_bytes.unsigned_abs());
    match placed.access {
        _ if reported == 0 => {}
        Access::Block => {
            if let Some(text) = device_size(bytes, reported)? {
                f.warn(text);
            }
        }
        Access::Mount if bytes > reported => f.warn(
            "the file system is larger than the volume: volumes share a file system, and their size is not enforced",
        ),
        Access::Mount => {
            ensure!(bytes >= reported / 2, "CreateVolume returned {reported} bytes, but the file system has {bytes}");
        }
    }
    Ok(())
}

/// Checks the size of a device: "Volume MUST be at least this big". A larger one is notable, since a back end may round
/// up without returning the result.
fn device_size(bytes: u64, reported: u64) -> Result<Option<String>> {
    ensure!(bytes >= reported, "CreateVolume returned {reported} bytes, but the device has {bytes}");
    Ok((bytes > reported).then(|| {
        format!(
            "CreateVolume returned {reported} bytes, but the device has {bytes}: more than Kubernetes reports"
        )
    }))
}

async fn twice(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.node_publish_volume(f.publish_request(&placed)).await.works("NodePublishVolume called again")?;
    Ok(())
}

async fn one_mount(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.must_be_mounted_once(&placed, "after the first NodePublishVolume")?;
    let once = f.mounts_at(&placed.target)?;
    for _ in 0..2 {
        f.node_publish_volume(f.publish_request(&placed)).await.works("NodePublishVolume called again")?;
    }
    let thrice = f.mounts_at(&placed.target)?;
    ensure!(
        once == thrice,
        "NodePublishVolume called three times mounts again: {once} mounts after the first call, {thrice} after the third"
    );
    Ok(())
}

async fn incompatible(f: &Fixture) -> Result<()> {
    let codes = [Code::AlreadyExists];
    let writable = f.up().await?;
    let mut request = f.publish_request(&writable);
    request.readonly = true;
    let answer = f.node_publish_volume(request).await;
    answer.refused(
        "NodePublishVolume with readonly at a target where the volume is published writable",
        &codes,
    )?;
    let what = "after NodePublishVolume with another readonly flag was rejected";
    if f.writes() {
        let written = f.write(&writable, 0, "still writable").await;
        written.with_context(|| format!("{what}, the volume cannot be written to any more"))?;
    }

    let readonly = f.staged().await?;
    publish_readonly(f, &readonly).await?;
    let answer = f.node_publish_volume(f.publish_request(&readonly)).await;
    answer.refused(
        "NodePublishVolume without readonly at a target where the volume is published read-only",
        &codes,
    )?;
    if f.has(Need::Files) {
        f.must_not_write(&readonly, 0)
            .await
            .with_context(|| format!("{what}, volume {:?}", readonly.id()))?;
    }
    Ok(())
}

async fn other_access(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    let mut request = f.publish_request(&placed);
    request.readonly = true;
    if f.node_publish_volume(request.clone()).await.is_ok() {
        return Err(skip(
            "NodePublishVolume does not compare what is published at the target: see \
             node_publish::NodePublishVolume with a different readonly flag returns AlreadyExists",
        ));
    }
    request.readonly = false;
    request.volume_capability = Some(f.driver().capability(Access::Block));
    let answer = f.node_publish_volume(request).await;
    // The volume may not support the access type at all.
    let codes = [Code::AlreadyExists, Code::FailedPrecondition, Code::InvalidArgument];
    answer.refused(
        "NodePublishVolume for block access at a target where the volume is published as a mount",
        &codes,
    )
}

/// Publishes a staged volume read-only.
async fn publish_readonly(f: &Fixture, placed: &VolumeOnNode) -> Result<()> {
    let mut request = f.publish_request(placed);
    request.readonly = true;
    let mut answer = f.node_publish_volume(request.clone()).await;
    if answer.is_err() && placed.access == Access::Mount {
        // A driver that creates the file system when it first publishes a volume, need not do so in one that it must not
        // write to.
        f.publish(placed).await?;
        f.unpublish(placed).await?;
        answer = f.node_publish_volume(request).await;
    }
    answer.works("NodePublishVolume with readonly")?;
    Ok(())
}

async fn readonly(f: &Fixture) -> Result<()> {
    const TEXT: &str = "written before";
    let placed = f.staged().await?;
    f.publish(&placed).await?;
    if f.writes() {
        f.write(&placed, 0, TEXT).await?;
    }
    f.unpublish(&placed).await?;
    publish_readonly(f, &placed).await?;
    if f.writes() {
        f.must_hold(&placed, 0, TEXT, "in the volume that was published read-only").await?;
    }
    f.must_not_write(&placed, 0).await?;
    if !f.writes() {
        return Ok(());
    }
    // The flag is one of the publication, and not of the volume.
    f.unpublish(&placed).await?;
    f.publish(&placed).await?;
    f.write(&placed, 1, "writable again").await.context("the volume was published read-only before")
}

/// Creates, attaches and stages a volume for an access mode; `what` names the mode in error messages.
pub(super) async fn placed_for(f: &Fixture, mode: Mode, what: &str) -> Result<VolumeOnNode> {
    let capability = with_mode(f.capability(), mode);
    let mut request = f.create_request();
    request.volume_capabilities = vec![capability.clone()];
    let mut placed = f.place(f.make(request).await?).await?;
    if f.attaches() {
        let mut request = f.attach_request(&placed.volume, placed.access);
        request.volume_capability = Some(capability.clone());
        let attached = f.controller_publish_volume(request).await;
        placed.publish_context = attached.works(&format!("ControllerPublishVolume, {what}"))?.publish_context;
    }
    if placed.staging.is_some() {
        let mut request = f.stage_request(&placed);
        request.volume_capability = Some(capability);
        f.node_stage_volume(request).await.works(&format!("NodeStageVolume, {what}"))?;
    }
    Ok(placed)
}

pub(super) async fn multi_writer(f: &Fixture) -> Result<VolumeOnNode> {
    let placed = placed_for(f, Mode::SingleNodeMultiWriter, "multi-writer").await?;
    publish_multi(f, &placed, false).await?;
    Ok(placed)
}

pub(super) async fn publish_multi(f: &Fixture, placed: &VolumeOnNode, readonly: bool) -> Result<()> {
    let request = NodePublishVolumeRequest { readonly, ..multi_writer_request(f, placed) };
    f.node_publish_volume(request).await.works("NodePublishVolume, multi-writer")?;
    Ok(())
}

pub(super) fn multi_writer_request(f: &Fixture, placed: &VolumeOnNode) -> NodePublishVolumeRequest {
    let mut request = f.publish_request(placed);
    request.volume_capability = Some(with_mode(f.capability(), Mode::SingleNodeMultiWriter));
    request
}

async fn readonly_one(f: &Fixture) -> Result<()> {
    let writable = multi_writer(f).await?;
    let readonly = f.with_other_target(&writable).await?;
    publish_multi(f, &readonly, true).await?;
    f.must_not_write(&readonly, 0).await?;
    f.write(&writable, 1, "still writable").await
}

async fn two_targets(f: &Fixture) -> Result<()> {
    let one = multi_writer(f).await?;
    let other = f.with_other_target(&one).await?;
    publish_multi(f, &other, false).await?;
    f.write(&one, 0, "seen from both").await?;
    f.must_hold(&other, 0, "seen from both", "at the volume's second target").await
}

async fn one_writer(f: &Fixture) -> Result<()> {
    let placed = placed_for(f, Mode::SingleNodeSingleWriter, "single writer").await;
    let placed = placed.breaks(spec::PUBLISH_USABLE)?;
    let mut request = f.publish_request(&placed);
    request.volume_capability = Some(with_mode(f.capability(), Mode::SingleNodeSingleWriter));
    let published = f.node_publish_volume(request.clone()).await;
    published.works("NodePublishVolume, single writer").breaks(spec::PUBLISH_USABLE)?;
    let second = f.with_other_target(&placed).await?;
    request.target_path = crate::fixture::text(&second.target);
    let answer = f.node_publish_volume(request).await;
    answer.refused(
        "NodePublishVolume of a SINGLE_NODE_SINGLE_WRITER volume at a second target",
        &[Code::FailedPrecondition],
    )
}

/// Mount flags that every file system of Linux supports.
const FLAGS: [&str; 2] = ["noatime", "nosuid"];

/// Skips the case if a call rejects the mount flags. A driver may support none, and any of the calls with the flag may be
/// the one that validates it ("Invalid or unsupported field in the request: 3 INVALID_ARGUMENT").
fn supported<T>(answer: Result<T, Status>) -> Result<Result<T, Status>> {
    match answer {
        Err(status) if status.code() == Code::InvalidArgument => {
            Err(skip(format!("the driver rejects the mount flags {}", FLAGS.join(" and "))))
        }
        answer => Ok(answer),
    }
}

async fn mount_flags(f: &Fixture) -> Result<()> {
    for step in [Step::Create, Step::Stage, Step::Publish] {
        f.builds_on(step)?;
    }
    let mut capability = f.capability();
    if let Some(volume_capability::AccessType::Mount(mount)) = &mut capability.access_type {
        mount.mount_flags.extend(FLAGS.map(str::to_owned));
    }
    let mut request = f.create_request();
    request.volume_capabilities = vec![capability.clone()];
    let made = supported(f.create_volume(request).await)?;
    let mut placed = f.place(made.works("CreateVolume with mount flags")?.volume.unwrap_or_default()).await?;
    f.attach(&mut placed).await?;
    if placed.staging.is_some() {
        let mut request = f.stage_request(&placed);
        request.volume_capability = Some(capability.clone());
        supported(f.node_stage_volume(request).await)?.works("NodeStageVolume with mount flags")?;
    }
    let mut request = f.publish_request(&placed);
    request.volume_capability = Some(capability);
    supported(f.node_publish_volume(request).await)?.works("NodePublishVolume with mount flags")?;
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let target = crate::fixture::text(&placed.target);
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(target.as_str()));
    let Some(options) = line.and_then(|line| line.split(' ').nth(5)) else {
        bail!("NodePublishVolume returned OK, but nothing is mounted at the target")
    };
    ensure!(
        FLAGS.iter().all(|flag| options.split(',').any(|option| option == *flag)),
        "the volume was to be mounted with {}, but is mounted with {options}",
        FLAGS.join(" and ")
    );
    Ok(())
}

/// File systems of disks: what else a volume has may have another name in the mount table than in fs_type, as NFS has.
const OF_DISKS: [&str; 5] = ["ext2", "ext3", "ext4", "xfs", "btrfs"];

async fn chosen_fs(f: &Fixture) -> Result<()> {
    let asked = &f.config().fs_type;
    if !OF_DISKS.contains(&asked.as_str()) {
        return Err(skip("--fs-type names no file system of disks"));
    }
    let placed = f.up().await?;
    let found = f.file_system_at(&placed.target)?;
    if OF_DISKS.contains(&found.as_str()) && f.sizes_are_real(&placed).await? {
        ensure!(
            found == *asked,
            "a volume with fs_type {asked:?} was published with the file system {found:?}"
        );
    } else if found != *asked {
        f.warn(format!("a volume with fs_type {asked:?} was published with the file system {found:?}"));
    }
    Ok(())
}

/// The first call that validates fs_type rejects it: CreateVolume need not validate it. A driver of volumes that share a
/// file system has nothing to create, but one that creates a file system must not create another one than requested.
async fn unknown_fs(f: &Fixture) -> Result<()> {
    let mut capability = f.capability();
    if let Some(volume_capability::AccessType::Mount(mount)) = &mut capability.access_type {
        mount.fs_type = "claimcheckfs".to_owned();
    }
    // What fails may also be the tool that creates file systems.
    let refused = |status: &Status, call: &str| {
        if status.code() != Code::InvalidArgument {
            let status = status_text(status);
            f.warn(format!(
                "{call} with an unknown fs_type returned {status}, for which CSI defines InvalidArgument"
            ));
        }
        Ok(())
    };
    let mut request = f.create_request();
    request.volume_capabilities = vec![capability.clone()];
    let volume = match f.create_volume(request).await {
        Ok(made) => made.volume.unwrap_or_default(),
        refused => return refused.refused("CreateVolume with an unknown fs_type", INVALID),
    };
    let mut placed = f.place(volume).await?;
    f.attach(&mut placed).await?;
    if placed.staging.is_some() {
        let mut request = f.stage_request(&placed);
        request.volume_capability = Some(capability.clone());
        if let Err(status) = f.node_stage_volume(request).await {
            return refused(&status, "NodeStageVolume");
        }
    }
    let mut request = f.publish_request(&placed);
    request.volume_capability = Some(capability);
    if let Err(status) = f.node_publish_volume(request).await {
        return refused(&status, "NodePublishVolume");
    }
    if f.has(Need::Files) && f.sizes_are_real(&placed).await? {
        let instead = f.file_system_at(&placed.target)?;
        bail!("a volume with fs_type \"claimcheckfs\" was published with the file system {instead:?}");
    }
    f.warn("a volume with fs_type \"claimcheckfs\" was published: the driver ignores fs_type");
    Ok(())
}

async fn undo_no_volume(f: &Fixture) -> Result<()> {
    let target_path = crate::fixture::text(&f.target_root().join(f.unique()));
    let request = NodeUnpublishVolumeRequest { volume_id: String::new(), target_path };
    f.node_unpublish_volume(request).await.refused("NodeUnpublishVolume without a volume_id", INVALID)
}

async fn undo_no_target(f: &Fixture) -> Result<()> {
    let request = NodeUnpublishVolumeRequest { volume_id: f.unknown_volume(), target_path: String::new() };
    f.node_unpublish_volume(request).await.refused("NodeUnpublishVolume without a target_path", INVALID)
}

async fn undo_removes(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.unpublish(&placed).await?;
    if f.has(Need::Files) {
        let mounts = f.mounts_at(&placed.target)?;
        ensure!(mounts == 0, "NodeUnpublishVolume returned OK, but the target is still mounted");
    }
    if f.config().node_effects == NodeEffects::None {
        return Ok(());
    }
    let kind = f.kind(&placed.target).await?;
    ensure!(
        kind == Kind::Absent,
        "NodeUnpublishVolume returned OK, but the target path still exists: {kind:?}"
    );
    let parent = placed.target.parent().context("a target has a parent directory")?;
    let kind = f.kind(parent).await?;
    ensure!(
        kind == Kind::Directory,
        "NodeUnpublishVolume removed the parent directory of the target, which belongs to the caller: {kind:?}"
    );
    Ok(())
}

async fn undo_twice(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.unpublish(&placed).await?;
    f.node_unpublish_volume(f.unpublish_request(&placed)).await.works("NodeUnpublishVolume called again")?;
    Ok(())
}

async fn undo_nowhere(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    match f.node_unpublish_volume(f.unpublish_request(&placed)).await {
        Ok(_) => Ok(()),
        refused => refused.refused("NodeUnpublishVolume of a volume that is not published", NOT_FOUND),
    }
}

async fn undo_one(f: &Fixture) -> Result<()> {
    let stays = multi_writer(f).await?;
    let goes = f.with_other_target(&stays).await?;
    publish_multi(f, &goes, false).await?;
    f.write(&stays, 0, "stays").await?;
    f.unpublish(&goes).await?;
    f.must_hold(&stays, 0, "stays", "at one target, after another was unpublished").await
}

async fn data(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.write(&placed, 0, "before").await?;
    f.unpublish(&placed).await?;
    f.publish(&placed).await?;
    f.must_hold(&placed, 0, "before", "after NodeUnpublishVolume and NodePublishVolume").await
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use claimcheck_engine::Skip;

    use super::*;

    #[test]
    fn a_device_may_be_larger_but_not_smaller_than_its_volume() {
        assert_eq!(device_size(5, 5).unwrap(), None);
        assert!(device_size(6, 5).unwrap().unwrap().contains("more than Kubernetes reports"));
        device_size(4, 5).unwrap_err();
    }

    #[test]
    fn a_rejected_mount_flag_is_no_failure() {
        let rejected = supported(Err::<(), _>(Status::invalid_argument("noatime"))).unwrap_err();
        assert!(rejected.is::<Skip>());
        supported(Ok(())).unwrap().unwrap();
        supported(Err::<(), _>(Status::internal("boom"))).unwrap().unwrap_err();
    }

    #[test]
    fn long_paths_have_the_length_that_every_driver_must_accept() {
        for root in ["/t", "/tmp/claimcheck-csi-0a1b2c3d/targets/12"] {
            let parent = long(Path::new(root), "0a1b2c3d-12-0", PATH - "/mount".len());
            assert_eq!(parent.join("mount").as_os_str().len(), PATH, "{}", parent.display());
        }
        let root = format!("/{}", "r".repeat(PATH));
        assert_eq!(long(Path::new(&root), "n", PATH), Path::new(&root).join("n"));
    }
}
