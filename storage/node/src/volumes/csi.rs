//! CSI volumes: the four node calls, and their counterparts on the host.
//!
//! Each call is idempotent, on the node's side as on the driver's, so that after an uncertain response the same
//! call is simply repeated. Upstream: `pkg/volume/csi/csi_attacher.go`, `pkg/volume/csi/csi_mounter.go`.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use claimcheck_csi::v1::{
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
    VolumeCapability,
    node_service_capability::rpc::Type as Capability,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};
use claimcheck_informer::{EventType, reference};
use claimcheck_model::StorageOperation;
use serde_json::{Value, json};
use tonic::Request;

use crate::{
    actual::Outcome,
    drivers::{NodeCapabilities, RegisteredDriver},
    effects::Host,
    layout::{Layout, MountPaths, VOL_DATA},
    operations::{Executor, OperationError},
    populator::uid_of,
    volumes::{
        CsiVolume, DeviceData, DriverPolicy, Form, FsGroup, FsGroupPolicy, Lifecycle, PodMount, PodUid,
        PublishData, VolumeKey,
        content::{TokenSpec, request_token},
        progress, vol_data,
    },
};

/// Timeout of a call. Upstream: `csiTimeout` in `pkg/volume/csi/csi_plugin.go`.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The key of tokens in the volume context or in the secrets.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

type Map = BTreeMap<String, String>;
type Result<T> = std::result::Result<T, OperationError>;

/// Creates the global mount. For a driver without STAGE_UNSTAGE_VOLUME only the directory is created.
pub(crate) async fn stage<H: Host>(
    executor: &Executor<H>,
    driver: &RegisteredDriver,
    volume: &CsiVolume,
    publish_context: Map,
    secrets: Map,
    fs_group: Option<FsGroup>,
) -> Result<()> {
    let place = executor.layout.staged(&volume.driver, &volume.handle, &volume.form);
    let data = DeviceData { driver_name: volume.driver.clone(), volume_handle: volume.handle.clone() };
    prepare(executor, &place.target, &place.record, &vol_data::encode(&data))?;
    if !driver.capabilities.has(Capability::StageUnstageVolume) {
        return Ok(());
    }
    let request = NodeStageVolumeRequest {
        volume_id: volume.handle.clone(),
        publish_context: publish_context.into_iter().collect(),
        staging_target_path: text(&place.target),
        volume_capability: Some(capability(&driver.capabilities, volume, fs_group)),
        secrets: secrets.into_iter().collect(),
        volume_context: volume.attributes.clone().into_iter().collect(),
    };
    let answer = driver.driver.node().node_stage_volume(timed(request)).await;
    answer
        .map(drop)
        .map_err(|status| clean_up(executor, status, &traces_of_stage(&executor.layout, place, &volume.form)))
}

/// Input of a publication.
pub(crate) struct Publish<'a> {
    /// The volume's key.
    pub key: &'a VolumeKey,
    /// The volume.
    pub volume: &'a CsiVolume,
    /// The pod's requirements.
    pub mount: &'a PodMount,
    /// The driver's policy.
    pub policy: &'a DriverPolicy,
    /// It is mounted already, and stays so if this fails.
    pub again: bool,
}

/// Mounts the volume in a pod, and applies the pod's fsGroup if that is the node's task.
pub(crate) async fn publish<H: Host>(
    executor: &Executor<H>,
    driver: &RegisteredDriver,
    Publish { key, volume, mount, policy, again }: Publish<'_>,
    publish_context: Map,
    mut secrets: Map,
) -> Result<()> {
    let inline = matches!(key, VolumeKey::Inline { .. });
    let mode = if inline { Lifecycle::Ephemeral } else { Lifecycle::Persistent };
    if !(if inline { policy.ephemeral } else { policy.persistent }) {
        return Err(OperationError::Lifecycle { mode, driver: volume.driver.clone() });
    }
    let mut volume_context = volume.attributes.clone();
    if policy.pod_info {
        volume_context.extend(pod_info(mount, inline));
    }
    // Upstream passes none with block volumes: `publishVolumeForBlock` in `pkg/volume/csi/csi_block.go`.
    if !policy.tokens.is_empty() && volume.form == Form::Filesystem {
        let place = if policy.tokens_in_secrets { &mut secrets } else { &mut volume_context };
        place.insert(TOKENS.to_owned(), tokens(executor, mount, policy).await?);
    }
    let pod = &mount.pod.uid;
    let target = executor.layout.published(pod, key, &mount.directory, &volume.form);
    let data = PublishData {
        driver_name: volume.driver.clone(),
        volume_handle: volume.handle.clone(),
        pv: volume.pv.clone(),
        node_name: executor.node.clone(),
        attachment: claimcheck_model::attachment_name(&volume.handle, &volume.driver, &executor.node),
        volume_lifecycle_mode: mode,
    };
    match &volume.form {
        Form::Filesystem => {
            let directory = executor.layout.pod_volume(pod, key, &mount.directory);
            prepare(executor, &directory, &directory, &vol_data::encode(&data))?;
        }
        Form::Block { pv } => prepare_device(executor, &target, &executor.layout.pod_devices(pod).join(pv))?,
    }
    // Upstream names the staging path of a block volume also to drivers without STAGE_UNSTAGE_VOLUME.
    let staged = volume.form != Form::Filesystem
        || (!inline && driver.capabilities.has(Capability::StageUnstageVolume));
    let staging = executor.layout.staged(&volume.driver, &volume.handle, &volume.form).target;
    let request = NodePublishVolumeRequest {
        volume_id: volume.handle.clone(),
        publish_context: publish_context.into_iter().collect(),
        staging_target_path: if staged { text(&staging) } else { String::new() },
        target_path: text(&target),
        volume_capability: Some(capability(&driver.capabilities, volume, mount.fs_group)),
        readonly: mount.read_only,
        secrets: secrets.into_iter().collect(),
        volume_context: volume_context.into_iter().collect(),
    };
    let answer = driver.driver.node().node_publish_volume(timed(request)).await;
    answer.map_err(|status| match again {
        true => OperationError::from(status),
        false => {
            let traces = traces_of_publish(&executor.layout, pod, key, &mount.directory, &volume.form);
            clean_up(executor, status, &traces)
        }
    })?;
    let Some(group) = group_to_apply(&driver.capabilities, volume, mount, policy) else { return Ok(()) };
    let began = Instant::now();
    let applied = apply_group(executor, mount, &target, group).await;
    let (plugin, success) = (key.plugin_name(), applied.is_ok());
    StorageOperation::ApplyAccess.ended(&executor.meter, &plugin, success, began.elapsed());
    applied.map_err(|source| OperationError::Finish { path: target, source })
}

/// Hands the volume's files to the group, with events on the pod while that takes long.
async fn apply_group<H: Host>(
    executor: &Executor<H>,
    mount: &PodMount,
    path: &Path,
    group: FsGroup,
) -> io::Result<()> {
    let (root, count) = (path.to_owned(), Arc::new(AtomicU64::default()));
    let counted = count.clone();
    let applied = executor.blocking(move |host| host.apply_group(&root, group, false, &counted));
    let report = |first: bool| {
        let files = (!first).then(|| count.load(Ordering::Relaxed));
        let message = progress::message(path, &mount.pod.uid, files);
        let world = executor.informer.read();
        if let Some(pod) = world.pods.get(&mount.pod.key).filter(|pod| uid_of(pod) == mount.pod.uid) {
            executor.recorder.record(&reference(&**pod), EventType::Warning, progress::REASON, message);
        }
    };
    progress::reported(applied, report).await
}

/// Undoes [`publish`].
pub(crate) async fn unpublish<H: Host>(
    executor: &Executor<H>,
    driver: &RegisteredDriver,
    handle: &str,
    pod: &PodUid,
    directory: &str,
    form: &Form,
) -> Result<()> {
    let key = VolumeKey::csi(&driver.info.name, handle);
    let target = executor.layout.published(pod, &key, directory, form);
    let request = NodeUnpublishVolumeRequest { volume_id: handle.to_owned(), target_path: text(&target) };
    driver.driver.node().node_unpublish_volume(timed(request)).await?;
    finish(executor, &traces_of_publish(&executor.layout, pod, &key, directory, form))
}

/// Undoes [`stage`].
pub(crate) async fn unstage<H: Host>(
    executor: &Executor<H>,
    driver: &RegisteredDriver,
    handle: &str,
    form: &Form,
) -> Result<()> {
    let place = executor.layout.staged(&driver.info.name, handle, form);
    if driver.capabilities.has(Capability::StageUnstageVolume) {
        let request = NodeUnstageVolumeRequest {
            volume_id: handle.to_owned(),
            staging_target_path: text(&place.target),
        };
        driver.driver.node().node_unstage_volume(timed(request)).await?;
    }
    finish(executor, &traces_of_stage(&executor.layout, place, form))
}

pub(super) fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(TIMEOUT);
    request
}

/// Paths below the kubelet's root consist of names that are text.
pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Creates the directories of a mount, and writes its record, before the driver is called.
fn prepare<H: Host>(executor: &Executor<H>, dir: &Path, record: &Path, data: &[u8]) -> Result<()> {
    let host = &executor.host;
    let prepared = host.make_dir(dir).and_then(|()| host.make_dir(record));
    let prepared = prepared.and_then(|()| host.write(&record.join(VOL_DATA), data));
    prepared.map_err(|source| OperationError::Prepare { path: dir.to_owned(), source })
}

/// The same for the device of a block volume. The link in the pod's directory shows after a restart that the
/// pod uses it; the driver creates the device itself.
fn prepare_device<H: Host>(executor: &Executor<H>, target: &Path, link: &Path) -> Result<()> {
    let host = &executor.host;
    let mut parents = [target, link].into_iter().filter_map(Path::parent);
    let prepared =
        parents.try_for_each(|parent| host.make_dir(parent)).and_then(|()| host.link(link, target));
    prepared.map_err(|source| OperationError::Prepare { path: target.to_owned(), source })
}

/// The entries of a staging next to those of the driver, in the order of their removal: the record is removed
/// last, so a restarted agent can identify the volume as long as any entry exists.
fn traces_of_stage(layout: &Layout, MountPaths { target, record }: MountPaths, form: &Form) -> Vec<PathBuf> {
    let file = record.join(VOL_DATA);
    match form {
        Form::Filesystem => vec![target, file, record],
        Form::Block { pv } => {
            vec![target, layout.block_publish(pv), file, record, layout.block_devices().join(pv)]
        }
    }
}

/// The same for a publication.
fn traces_of_publish(
    layout: &Layout,
    pod: &PodUid,
    key: &VolumeKey,
    directory: &str,
    form: &Form,
) -> Vec<PathBuf> {
    let target = layout.published(pod, key, directory, form);
    match form {
        Form::Filesystem => {
            let record = layout.pod_volume(pod, key, directory);
            vec![target, record.join(VOL_DATA), record]
        }
        Form::Block { pv } => vec![target, layout.pod_devices(pod).join(pv)],
    }
}

/// Removes the results of [`prepare`].
fn finish<H: Host>(executor: &Executor<H>, traces: &[PathBuf]) -> Result<()> {
    for path in traces {
        let removed = executor.host.remove(path);
        removed.map_err(|source| OperationError::Finish { path: path.clone(), source })?;
    }
    Ok(())
}

/// After a final failure nothing is mounted, so the preparation is undone. Entries that cannot be removed are
/// reused by the next attempt, or found at the next start.
fn clean_up<H: Host>(executor: &Executor<H>, status: tonic::Status, traces: &[PathBuf]) -> OperationError {
    let error = OperationError::from(status);
    if error.outcome() == Outcome::Failed
        && let Err(left) = finish(executor, traces)
    {
        tracing::warn!(error = %left, "cannot clean up after a failed mount");
    }
    error
}

/// Upstream: `asCSIAccessModeV1` in `pkg/volume/csi/csi_client.go`; like there, the PV's first mode counts.
pub(super) fn capability(
    can: &NodeCapabilities,
    volume: &CsiVolume,
    fs_group: Option<FsGroup>,
) -> VolumeCapability {
    let fine = can.has(Capability::SingleNodeMultiWriter);
    let mode = match (volume.access_modes.first().map(String::as_str), fine) {
        (Some("ReadOnlyMany"), _) => Mode::MultiNodeReaderOnly,
        (Some("ReadWriteMany"), _) => Mode::MultiNodeMultiWriter,
        (Some("ReadWriteOncePod"), true) => Mode::SingleNodeSingleWriter,
        (Some("ReadWriteOnce") | None, true) => Mode::SingleNodeMultiWriter,
        _ => Mode::SingleNodeWriter,
    };
    let access_mode = Some(AccessMode { mode: mode.into() });
    if volume.form != Form::Filesystem {
        return VolumeCapability { access_mode, access_type: Some(AccessType::Block(BlockVolume {})) };
    }
    let delegated = can.has(Capability::VolumeMountGroup);
    let mount = MountVolume {
        fs_type: volume.fs_type.clone(),
        mount_flags: volume.mount_options.clone(),
        volume_mount_group: fs_group
            .filter(|_| delegated)
            .map(|group| group.gid.to_string())
            .unwrap_or_default(),
    };
    VolumeCapability { access_mode, access_type: Some(AccessType::Mount(mount)) }
}

/// Upstream: `supportsFSGroup` in `pkg/volume/csi/csi_mounter.go`.
fn group_to_apply(
    can: &NodeCapabilities,
    volume: &CsiVolume,
    mount: &PodMount,
    policy: &DriverPolicy,
) -> Option<FsGroup> {
    let group = mount.fs_group?;
    let single_writer =
        volume.access_modes.iter().any(|mode| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod");
    let applies = match policy.fs_group {
        FsGroupPolicy::None => false,
        FsGroupPolicy::File => true,
        FsGroupPolicy::ReadWriteOnceWithFsType => !volume.fs_type.is_empty() && single_writer,
    };
    let delegated = can.has(Capability::VolumeMountGroup);
    let files = volume.form == Form::Filesystem;
    (applies && files && !mount.read_only && !delegated).then_some(group)
}

/// The tokens that the driver requests, by audience. Upstream: `podServiceAccountTokenAttrs`.
async fn tokens<H: Host>(executor: &Executor<H>, mount: &PodMount, policy: &DriverPolicy) -> Result<String> {
    let mut tokens = serde_json::Map::new();
    for (audience, expiration) in &policy.tokens {
        let token_spec = TokenSpec {
            audience: Some(audience.clone()).filter(|audience| !audience.is_empty()),
            expiration: *expiration,
        };
        let token = request_token(&executor.client, &mount.pod, &token_spec).await?;
        tokens.insert(audience.clone(), json!({"token": token.text, "expirationTimestamp": token.expires}));
    }
    Ok(Value::Object(tokens).to_string())
}

/// Upstream: `getPodInfoAttrs` in `pkg/volume/csi/csi_util.go`.
fn pod_info(mount: &PodMount, inline: bool) -> Map {
    let pod = &mount.pod;
    [
        ("csi.storage.k8s.io/pod.name", pod.key.name.clone()),
        ("csi.storage.k8s.io/pod.namespace", pod.key.namespace.clone()),
        ("csi.storage.k8s.io/pod.uid", pod.uid.to_string()),
        ("csi.storage.k8s.io/serviceAccount.name", pod.service_account.clone()),
        ("csi.storage.k8s.io/ephemeral", inline.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::v1::{
        NodeGetCapabilitiesResponse, NodeServiceCapability,
        node_service_capability::{Rpc, Type},
    };
    use k8s_openapi::api::storage::v1::CSIDriver;

    use super::*;
    use crate::{testing::volume_use, volumes::VolumeSpec};

    fn can(capabilities: &[Capability]) -> NodeCapabilities {
        let one = |capability: &Capability| NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: (*capability).into() })),
        };
        let capabilities = capabilities.iter().map(one).collect();
        NodeCapabilities::new(&NodeGetCapabilitiesResponse { capabilities })
    }

    fn volume(modes: &[&str], fs_type: &str) -> CsiVolume {
        let VolumeSpec::Csi(mut volume) = volume_use("v", "p").spec else {
            unreachable!("it is a CSI volume")
        };
        volume.access_modes = modes.iter().map(|mode| (*mode).to_owned()).collect();
        volume.fs_type = fs_type.into();
        *volume
    }

    fn policy(spec: Value) -> DriverPolicy {
        let driver: CSIDriver =
            serde_json::from_value(json!({"metadata": {"name": "d"}, "spec": spec})).unwrap();
        DriverPolicy::of(Some(&driver))
    }

    #[test]
    fn access_modes_are_translated_as_the_driver_understands_them() {
        let fine = can(&[Capability::SingleNodeMultiWriter]);
        let coarse = can(&[]);
        let rows = [
            ("ReadWriteOnce", Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter),
            ("ReadWriteOncePod", Mode::SingleNodeWriter, Mode::SingleNodeSingleWriter),
            ("ReadOnlyMany", Mode::MultiNodeReaderOnly, Mode::MultiNodeReaderOnly),
            ("ReadWriteMany", Mode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter),
        ];
        for (mode, of_coarse, of_fine) in rows {
            let asked = |can| capability(can, &volume(&[mode], "ext4"), None).access_mode.unwrap().mode();
            assert_eq!((asked(&coarse), asked(&fine)), (of_coarse, of_fine), "{mode}");
        }
    }

    #[test]
    fn file_system_and_options_are_handed_on() {
        let mut volume = volume(&["ReadWriteOnce"], "xfs");
        volume.mount_options = vec!["noatime".into()];
        let group = Some(FsGroup { gid: 7, on_root_mismatch: false });
        for (can, expected) in [(can(&[]), ""), (can(&[Capability::VolumeMountGroup]), "7")] {
            let Some(AccessType::Mount(mount)) = capability(&can, &volume, group).access_type else {
                panic!("not a file system")
            };
            assert_eq!(
                (mount.fs_type.as_str(), mount.mount_flags.as_slice()),
                ("xfs", &["noatime".into()][..])
            );
            assert_eq!(mount.volume_mount_group, expected);
        }
    }

    #[test]
    fn when_the_node_hands_files_to_a_group() {
        let (once, many, none): (&[&str], &[&str], &[&str]) = (&["ReadWriteOnce"], &["ReadWriteMany"], &[]);
        // (policy, access modes, file system, read-only, the driver does it, the node does it)
        let rows = [
            (None, once, "ext4", false, false, true),
            (None, once, "", false, false, false),
            (None, many, "ext4", false, false, false),
            (None, none, "ext4", false, false, false),
            (Some("ReadWriteOnceWithFSType"), &["ReadOnlyMany", "ReadWriteOnce"], "ext4", false, false, true),
            (Some("File"), many, "", false, false, true),
            (Some("File"), once, "ext4", true, false, false),
            (Some("File"), once, "ext4", false, true, false),
            (Some("None"), once, "ext4", false, false, false),
        ];
        let group = FsGroup { gid: 7, on_root_mismatch: true };
        for (name, modes, fs_type, read_only, delegated, expected) in rows {
            let can = if delegated { can(&[Capability::VolumeMountGroup]) } else { can(&[]) };
            let mount = PodMount { read_only, fs_group: Some(group), ..volume_use("v", "p").mount };
            let policy = policy(json!({"fsGroupPolicy": name}));
            let applied = group_to_apply(&can, &volume(modes, fs_type), &mount, &policy);
            assert_eq!(applied, expected.then_some(group), "{name:?} {modes:?} {fs_type:?} {read_only}");
            let without_group = PodMount { fs_group: None, ..mount };
            assert_eq!(group_to_apply(&can, &volume(modes, fs_type), &without_group, &policy), None);
        }
    }

    #[test]
    fn a_driver_declares_which_volumes_it_serves() {
        let rows = [
            (json!({}), (true, false)),
            (json!({"volumeLifecycleModes": []}), (true, false)),
            (json!({"volumeLifecycleModes": ["Ephemeral"]}), (false, true)),
            (json!({"volumeLifecycleModes": ["Persistent", "Ephemeral"]}), (true, true)),
        ];
        for (spec, expected) in rows {
            let policy = policy(spec.clone());
            assert_eq!((policy.persistent, policy.ephemeral), expected, "{spec}");
        }
        assert!(DriverPolicy::of(None).persistent && !DriverPolicy::of(None).ephemeral);
        let tokens = policy(json!({"tokenRequests": [{"audience": "vault", "expirationSeconds": 600}]}));
        assert_eq!(tokens.tokens, [("vault".to_owned(), Some(600))]);
        assert!(!tokens.tokens_in_secrets);
        assert!(policy(json!({"serviceAccountTokenInSecrets": true})).tokens_in_secrets);
        let period = |seconds: Option<i64>| {
            policy(json!({"nodeAllocatableUpdatePeriodSeconds": seconds})).allocatable_period
        };
        assert_eq!((period(None), period(Some(10))), (None, Some(Duration::from_secs(10))));
    }
}
