//! Complete volume lifecycles. The first rows only publish and unpublish: a defect there is reported once, and not by
//! every case that depends on it.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{CreateVolumeRequest, Volume},
};
use claimcheck_engine::Schedule;
use tokio::time::{Duration, Instant, sleep};

use super::{
    ATTACH, ATTACH_AGAIN, CREATE, CREATE_AGAIN, DELETE_AGAIN, GET, GROUPS, IF_MOUNTED, IF_PERSISTS,
    LIST_NODES, MOUNTS, PERSISTS, PUBLISH_AGAIN, SAME_DATA, SNAPSHOT, STAGE, STAGE_AGAIN, UNMOUNTS,
    UNPUBLISH_AGAIN, UNSTAGE_AGAIN, case, controller_create::one_volume, controller_delete::validate,
};
use crate::{
    alone::Alone,
    case::{Access, Row},
    effect::Effect,
    expect::Answer,
    fixture::{Fixture, VolumeOnNode},
    need::Need,
    spec,
    verdict::Breaks,
    waits::{Limit, Waits},
};

pub(super) const ROWS: &[Row] = &[
    Row::new("a full volume lifecycle succeeds and leaves nothing behind", spec::CREATE, case!(up_and_down))
        .also(&[
            spec::CREATED,
            spec::DELETE,
            spec::ATTACH,
            spec::ATTACH_WORK,
            spec::DETACH,
            spec::STAGE,
            spec::UNSTAGE,
            spec::UNPUBLISH,
            spec::UNPUBLISH_UNDOES,
            spec::UNSTAGE_UNDOES,
            spec::PUBLISH_WRITER,
            spec::NODE_WRITER,
            spec::WRITER,
        ])
        .needs(&[CREATE])
        .each()
        .schedule(Schedule::First)
        .waits(Waits::up_to(Limit::Seconds(DELETED.as_secs()), "a deleted volume to disappear"))
        .upstream("Controller Service [Controller Server] volume lifecycle should work"),
    Row::new("CreateSnapshot and DeleteSnapshot succeed", spec::SNAPSHOT, case!(snapshot))
        .also(&[spec::DROP, spec::SNAPSHOTTED])
        .needs(&[CREATE, SNAPSHOT])
        .schedule(Schedule::First)
        .upstream(
            "DeleteSnapshot [Controller Server] should return appropriate values (no optional values added)",
        ),
    Row::new("CreateVolumeGroupSnapshot and DeleteVolumeGroupSnapshot succeed", spec::GROUPS, case!(group))
        .also(&[spec::UNGROUP, spec::GROUPED])
        .needs(&[CREATE, GROUPS])
        .schedule(Schedule::First),
    Row::new(
        "a full volume lifecycle with every call repeated succeeds",
        spec::CREATE_TWICE,
        case!(everything_twice),
    )
    .also(&[
        spec::DELETE_TWICE,
        spec::ATTACH_TWICE,
        spec::DETACH_TWICE,
        spec::STAGE_TWICE,
        spec::UNSTAGE_TWICE,
        spec::PUBLISH_TWICE,
        spec::UNPUBLISH_TWICE,
    ])
    .needs(&[
        CREATE,
        CREATE_AGAIN,
        DELETE_AGAIN,
        ATTACH_AGAIN,
        STAGE_AGAIN,
        UNSTAGE_AGAIN,
        PUBLISH_AGAIN,
        UNPUBLISH_AGAIN,
    ])
    .each()
    .upstream("Controller Service [Controller Server] volume lifecycle should be idempotent"),
    Row::new(
        "a full volume lifecycle with every call repeated keeps the data of the volume",
        spec::STAGE_TWICE,
        case!(everything_twice_with_data),
    )
    .also(&[spec::CREATE_TWICE, spec::ATTACH_TWICE, spec::PUBLISH_TWICE, spec::UNPUBLISH_TWICE])
    .needs(&[
        CREATE,
        Need::Files,
        MOUNTS,
        PERSISTS,
        CREATE_AGAIN,
        SAME_DATA,
        ATTACH_AGAIN,
        STAGE_AGAIN,
        UNSTAGE_AGAIN,
        PUBLISH_AGAIN,
        UNPUBLISH_AGAIN,
    ])
    .each(),
    Row::new(
        "data survives unpublishing and publishing the volume again",
        spec::PUBLISH_USABLE,
        case!(data_survives),
    )
    .needs(&[CREATE, Need::Files, MOUNTS])
    .establishes(&[Effect::DataPersists])
    .each(),
    Row::new(
        "owners, modes and links of files survive unpublishing and publishing the volume again",
        spec::PUBLISH_USABLE,
        case!(attributes_survive),
    )
    .needs(&[CREATE, Need::Files, Need::Access(Access::Mount), MOUNTS, PERSISTS]),
    Row::new(
        "CreateVolume called again keeps the data of the volume",
        spec::CREATE_SAME,
        case!(created_again),
    )
    .also(&[spec::CREATE_TWICE])
    .needs(&[CREATE, Need::Files, MOUNTS, PERSISTS, CREATE_AGAIN])
    .establishes(&[Effect::CreateKeepsData])
    .each(),
    Row::new(
        "unpublishing a volume keeps its data, and that of volumes with similar names",
        spec::UNPUBLISH_UNDOES,
        case!(similar_names),
    )
    .also(&[spec::UNSTAGE_UNDOES])
    .needs(&[CREATE, Need::Files, MOUNTS, PERSISTS])
    .each(),
    Row::new("data written to one volume does not appear in another", spec::VOLUME_UNIQUE, case!(no_sharing))
        .needs(&[CREATE, Need::Files, MOUNTS])
        .each(),
    Row::new(
        "CreateVolume with the name of a deleted volume returns an empty volume",
        spec::EMPTY,
        case!(new_and_empty),
    )
    .needs(&[CREATE, Need::Files, MOUNTS])
    .each(),
    Row::new(
        "several volumes are published at the same time and unpublished",
        spec::VOLUME_UNIQUE,
        case!(many),
    )
    .needs(&[CREATE, IF_MOUNTED, IF_PERSISTS])
    .alone(Alone::AttachesMany),
    Row::new("a volume is published and unpublished three times", spec::UNPUBLISH_UNDOES, case!(thrice))
        .also(&[spec::UNSTAGE_UNDOES])
        .needs(&[CREATE])
        .each()
        .upstream("Node Service should work"),
    Row::new(
        "a volume is published and unpublished below a symbolic link",
        spec::UNPUBLISH_UNDOES,
        case!(below_link),
    )
    .also(&[spec::UNSTAGE_UNDOES, spec::PUBLISH_TWICE])
    .needs(&[CREATE, Need::Files, MOUNTS, UNMOUNTS, PERSISTS, PUBLISH_AGAIN])
    .each(),
    Row::new(
        "a volume that was staged but never published is unstaged and detached",
        spec::UNSTAGE_UNDOES,
        case!(half_way),
    )
    .needs(&[CREATE, ATTACH, STAGE, UNPUBLISH_AGAIN]),
];

/// The number of volumes that are published at the same time.
const MANY: usize = 8;

/// How long a deleted volume may still be found, and the interval of looks: some back ends delete in the background.
const DELETED: Duration = Duration::from_secs(10);
const LOOKS: Duration = Duration::from_millis(200);

async fn up_and_down(f: &Fixture) -> Result<()> {
    let placed = f.up().await?;
    f.withdraw(&placed).await?;
    let parent = placed.target.parent().into_iter();
    for (call, path, rule) in parent
        .map(|path| ("NodeUnpublishVolume", path, spec::UNPUBLISH_UNDOES))
        .chain(placed.staging.iter().map(|path| ("NodeUnstageVolume", &**path, spec::UNSTAGE_UNDOES)))
    {
        leaves_empty(f, call, path, &placed.target).breaks(rule)?;
    }
    f.delete_volume(f.delete_request(placed.id())).await.works("DeleteVolume")?;
    is_deleted(f, &placed.volume).await.breaks(spec::DELETE)
}

/// Checks that a call left nothing in a directory of the caller, which a kubelet then cannot remove: it repeats the call,
/// and the pod does not end.
fn leaves_empty(f: &Fixture, call: &str, directory: &Path, target: &Path) -> Result<()> {
    if !f.has(Need::Files) {
        return Ok(());
    }
    // Other cases report that the directory is gone, and that the target remains.
    let entries = directory.read_dir().into_iter().flatten().flatten().filter(|entry| entry.path() != target);
    let left: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    ensure!(
        left.is_empty(),
        "{call} returned OK, but left {left:?} in {}, a directory of the caller that was empty before",
        directory.display()
    );
    Ok(())
}

/// Checks that a deleted volume no longer exists, if the driver knows which volumes exist.
pub(super) async fn is_deleted(f: &Fixture, volume: &Volume) -> Result<()> {
    // Other cases check the code of the error.
    let is_missing = async |volume: &Volume| validate(f, volume).await.is_err();
    if !is_missing(&Volume { volume_id: f.unknown_volume(), ..volume.clone() }).await {
        return Ok(());
    }
    let limit = Instant::now() + DELETED;
    while !is_missing(volume).await {
        ensure!(
            Instant::now() < limit,
            "DeleteVolume of {:?} returned OK, but ValidateVolumeCapabilities still finds the volume after {} s",
            volume.volume_id,
            DELETED.as_secs()
        );
        sleep(LOOKS).await;
    }
    Ok(())
}

async fn snapshot(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let snapshot = f.snapshot(&volume.volume_id).await?;
    let request = f.delete_snapshot_request(&snapshot.snapshot_id);
    f.delete_snapshot(request).await.works("DeleteSnapshot")?;
    Ok(())
}

async fn group(f: &Fixture) -> Result<()> {
    let (a, b) = (f.volume().await?, f.volume().await?);
    let group = f.group(vec![a.volume_id, b.volume_id]).await?;
    let request = f.delete_group_request(&group);
    f.delete_volume_group_snapshot(request).await.works("DeleteVolumeGroupSnapshot")?;
    Ok(())
}

async fn everything_twice(f: &Fixture) -> Result<()> {
    let request = f.create_request();
    let volume = f.make(request.clone()).await?;
    one_volume(&volume, &f.make(request).await?)?;
    let mut placed = f.place(volume).await?;
    for _ in 0..2 {
        f.attach(&mut placed).await?;
    }
    for _ in 0..2 {
        f.stage(&placed).await?;
    }
    for _ in 0..2 {
        f.publish(&placed).await?;
    }
    for time in ["NodeUnpublishVolume", "NodeUnpublishVolume called again"] {
        f.node_unpublish_volume(f.unpublish_request(&placed)).await.works(time)?;
    }
    if placed.staging.is_some() {
        for time in ["NodeUnstageVolume", "NodeUnstageVolume called again"] {
            f.node_unstage_volume(f.unstage_request(&placed)).await.works(time)?;
        }
    }
    if f.attaches() {
        for time in ["ControllerUnpublishVolume", "ControllerUnpublishVolume called again"] {
            let request = f.detach_request(placed.id(), &f.node_info().node_id);
            f.controller_unpublish_volume(request).await.works(time)?;
        }
    }
    for time in ["DeleteVolume", "DeleteVolume called again"] {
        f.delete_volume(f.delete_request(placed.id())).await.works(time)?;
    }
    Ok(())
}

async fn everything_twice_with_data(f: &Fixture) -> Result<()> {
    const TEXT: &str = "written before the repeated calls";
    let request = f.create_request();
    let placed = f.publish_all(f.make(request.clone()).await?).await?;
    f.write_throughout(&placed, TEXT).await?;
    f.make(request).await?;
    let mut again = placed.clone();
    f.attach(&mut again).await?;
    f.stage(&again).await?;
    f.publish(&again).await?;
    f.must_hold_throughout(&placed, TEXT, "in a published volume, after every call was repeated").await?;
    for _ in 0..2 {
        f.unpublish(&placed).await?;
    }
    f.stage(&again).await?;
    for _ in 0..2 {
        f.unstage(&placed).await?;
    }
    for _ in 0..2 {
        f.detach(&placed).await?;
    }
    f.must_still_hold(&placed.volume, TEXT, "after every call was repeated").await
}

async fn data_survives(f: &Fixture) -> Result<()> {
    let placed = f.up_with("kept").await?;
    f.withdraw(&placed).await?;
    f.must_still_hold(&placed.volume, "kept", "after unpublishing and publishing the volume again").await
}

async fn attributes_survive(f: &Fixture) -> Result<()> {
    let (volume, written) = f.with_attributes().await?;
    f.must_have_attributes(volume, &written, "after unpublishing and publishing the volume again").await
}

impl Fixture {
    /// Creates a volume and writes to it. Checks that a second call with the same request returns the same volume, with
    /// its data, and with something done between the calls.
    pub(super) async fn keeps_its_data(
        &self,
        request: CreateVolumeRequest,
        between: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        const TEXT: &str = "written after the first call";
        let volume = self.put(self.make(request.clone()).await?, TEXT).await?;
        between().await?;
        let again = self.make(request).await?;
        one_volume(&volume, &again)?;
        self.must_still_hold(&again, TEXT, "after CreateVolume was called again").await
    }
}

async fn created_again(f: &Fixture) -> Result<()> {
    f.keeps_its_data(f.create_request(), async || Ok(())).await
}

/// The kubelet forms the ids of inline volumes as `csi-..`, which a driver must not take for those of all its volumes;
/// external-provisioner has `--volume-name-prefix`. Most drivers form ids from names.
async fn similar_names(f: &Fixture) -> Result<()> {
    let name = f.name();
    let names = [format!("csi-{name}"), format!("csi-{name}1"), name];
    let mut volumes = Vec::new();
    for name in names {
        let request = CreateVolumeRequest { name: name.clone(), ..f.create_request() };
        volumes.push((f.put(f.make(request).await?, &name).await?, name));
    }
    for (volume, name) in &volumes {
        let what = "after NodeUnpublishVolume and NodeUnstageVolume of volumes with similar names";
        f.must_still_hold(volume, name, &format!("in the volume {name:?}, {what}")).await?;
    }
    Ok(())
}

/// Both are written to before either is read from a new mount: each mount of one image would show its own data.
async fn no_sharing(f: &Fixture) -> Result<()> {
    let (one, other) = (f.up_with("of the first").await?, f.up_with("of the second").await?);
    f.withdraw(&one).await?;
    f.withdraw(&other).await?;
    for (placed, own, foreign) in
        [(one, "of the first", "of the second"), (other, "of the second", "of the first")]
    {
        let placed = f.publish_all(placed.volume).await?;
        f.must_hold_throughout(&placed, own, "after writes to two volumes").await?;
        f.must_lack(&placed, foreign, "data written to one volume appears in another").await?;
    }
    Ok(())
}

async fn new_and_empty(f: &Fixture) -> Result<()> {
    const TEXT: &str = "of the deleted one";
    let request = f.create_request();
    let deleted = f.put(f.make(request.clone()).await?, TEXT).await?;
    f.delete_volume(f.delete_request(&deleted.volume_id)).await.works("DeleteVolume")?;
    let placed = f.publish_all(f.make(request).await?).await?;
    f.must_lack(&placed, TEXT, "a new volume contains the data of a deleted one").await
}

async fn many(f: &Fixture) -> Result<()> {
    let (mut all, many) = (Vec::new(), f.crowd(MANY));
    for _ in 0..many {
        all.push(f.up().await?);
    }
    let ids: std::collections::BTreeSet<&str> = all.iter().map(|placed| placed.id()).collect();
    ensure!(ids.len() == many, "{many} volumes with different names have only {} distinct ids", ids.len());
    for placed in &all {
        f.withdraw(placed).await?;
    }
    let what = "several volumes that are published at the same time";
    f.must_be_apart(all.into_iter().map(|placed| placed.volume).collect(), what).await
}

async fn thrice(f: &Fixture) -> Result<()> {
    let mut volume = f.volume().await?;
    for _ in 0..3 {
        let placed = f.publish_all(volume).await?;
        f.withdraw(&placed).await?;
        volume = placed.volume;
    }
    Ok(())
}

/// The same path with a symbolic link in it. The kubelet's directory may be one, and drivers receive paths as they are
/// configured, while the mount table has those that they lead to.
fn with_link(f: &Fixture, path: &Path) -> Result<PathBuf> {
    let (parent, name) = path.parent().zip(path.file_name()).context("a path of a volume has a parent")?;
    let link = parent.join(format!("{}-link", f.unique()));
    symlink(".", &link).with_context(|| format!("cannot create the link {}", link.display()))?;
    Ok(link.join(name))
}

async fn below_link(f: &Fixture) -> Result<()> {
    const TEXT: &str = "written below a symbolic link";
    let here = f.place(f.volume().await?).await?;
    let staging = here.staging.as_deref().map(|staging| with_link(f, staging)).transpose()?;
    let mut linked = VolumeOnNode { target: with_link(f, &here.target)?, staging, ..here.clone() };
    f.attach(&mut linked).await?;
    f.stage(&linked).await?;
    for time in ["NodePublishVolume", "NodePublishVolume called again"] {
        let what = format!("{time} at a path below a symbolic link");
        f.node_publish_volume(f.publish_request(&linked)).await.works(&what)?;
        f.must_be_mounted_once(&here, &format!("after {what}"))?;
    }
    if f.writes() {
        f.write_throughout(&linked, TEXT).await?;
    }
    f.unpublish(&linked).await?;
    must_be_unmounted(f, &here.target, "NodeUnpublishVolume")?;
    f.unstage(&linked).await?;
    if let Some(staging) = &here.staging {
        must_be_unmounted(f, staging, "NodeUnstageVolume")?;
    }
    f.detach(&linked).await?;
    match f.writes() {
        true => f.must_still_hold(&here.volume, TEXT, "after a use below a symbolic link").await,
        false => Ok(()),
    }
}

fn must_be_unmounted(f: &Fixture, path: &Path, call: &str) -> Result<()> {
    let mounts = f.mounts_at(path)?;
    ensure!(
        mounts == 0,
        "{call} at a path below a symbolic link returned OK, but {mounts} mounts remain where it leads to"
    );
    Ok(())
}

async fn half_way(f: &Fixture) -> Result<()> {
    // Attached and staged, never published: a pod that was deleted early.
    let placed = f.staged().await?;
    f.node_unpublish_volume(f.unpublish_request(&placed))
        .await
        .or_else(|status| if status.code() == Code::NotFound { Ok(Default::default()) } else { Err(status) })
        .works("NodeUnpublishVolume of a volume that was never published")?;
    f.unstage(&placed).await?;
    f.detach(&placed).await?;
    let reachable = f.has(Need::SecondNode) && f.must_reach_second(&placed.volume).is_ok();
    if let Some(second) = f.capabilities().second.as_ref().filter(|_| reachable) {
        let mut request = f.attach_request(&placed.volume, f.access());
        request.node_id.clone_from(&second.node_id);
        let attached = f.controller_publish_volume(request).await;
        attached.works(
            "ControllerPublishVolume to a second node, of a volume that was detached from the first,",
        )?;
        let request = f.detach_request(placed.id(), &second.node_id);
        f.controller_unpublish_volume(request)
            .await
            .works("ControllerUnpublishVolume from the second node")?;
    }
    // Without LIST_VOLUMES_PUBLISHED_NODES the list has no meaning.
    if f.has(GET) && f.has(LIST_NODES) {
        let status = f.get(placed.id()).await?.status.unwrap_or_default();
        f.still_published(&status.published_node_ids, "ControllerGetVolume");
    }
    Ok(())
}
