//! What the driver's tests share: a place to work in, requests, and a look at what is left at the end.

pub mod fake;

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use claimcheck_csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest, DeleteVolumeRequest,
    NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability, VolumeContentSource,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
    volume_content_source::{self, SnapshotSource, VolumeSource},
};
use claimcheck_driver::{
    Config, Driver,
    capability::Capabilities,
    error::{Error, Result},
    host::Host,
    secrets::Secrets,
    topology::Segment,
    volume::{NodeId, VolumeId},
};
use rustix::mount::{MountPropagationFlags, mount_change};
use tempfile::TempDir;

/// Longer than the kernel needs for anything, also on a machine that has much else to do.
pub const LONG: Duration = Duration::from_secs(60);
/// Size of image volumes in tests, bytes.
pub const IMAGE_BYTES: i64 = 16 << 20;

/// A directory for one driver's state and one kubelet's paths, gone when dropped.
pub struct Place {
    dir: TempDir,
}

impl Place {
    /// On memory where there is some: records are flushed, which a disk makes slow.
    pub fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir(dir.path().join("kubelet")).unwrap();
        fs::create_dir(dir.path().join("kubelet/staging")).unwrap();
        Self { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn staging(&self) -> PathBuf {
        self.dir.path().join("kubelet/staging")
    }

    pub fn target(&self) -> PathBuf {
        self.dir.path().join("kubelet/target")
    }

    pub fn config(&self, node: &str) -> Config {
        Config {
            driver_name: "test.csi.dev".into(),
            node_id: NodeId::parse(node).unwrap(),
            max_volumes_per_node: 0,
            volumes_lower_limit: false,
            max_volume_bytes: 1 << 40,
            state_dir: self.state(),
            topology: Segment::default(),
            capacity_bytes: None,
            capabilities: Capabilities::default(),
            secrets: Secrets::default(),
            token_audiences: Vec::new(),
            token_field: None,
        }
    }

    pub fn driver(&self, host: Arc<dyn Host>) -> Result<Driver> {
        Driver::start(self.config("node-1"), host)
    }

    /// Names of the volume directories.
    pub fn volumes(&self) -> Vec<String> {
        self.names("volumes")
    }

    /// Names in a folder of the state directory.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let dir = self.state().join(folder);
        if !dir.exists() {
            return Vec::new();
        }
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Everything in volumes and snapshots is complete: a record, content of the right kind and size, no drafts.
    pub fn assert_whole(&self, context: &str) {
        self.assert_whole_in("volumes", "volume.json", "capacity_bytes", context);
        self.assert_whole_in("snapshots", "snapshot.json", "size_bytes", context);
    }

    fn assert_whole_in(&self, folder: &str, record_file: &str, bytes: &str, context: &str) {
        for name in self.names(folder) {
            let dir = self.state().join(folder).join(name);
            let record: serde_json::Value =
                serde_json::from_slice(&fs::read(dir.join(record_file)).unwrap()).unwrap();
            let mut files: Vec<_> =
                fs::read_dir(&dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
            // Where a node has it mounted unasked, if the record says so.
            let text = record.to_string();
            files.retain(|file| !file.starts_with("mount-") || !text.contains(file));
            files.sort();
            match record["kind"].as_str() {
                Some("directory") => assert_eq!(files, ["data", record_file], "{context}"),
                Some("image") => {
                    assert_eq!(files, ["image", record_file], "{context}");
                    let size = fs::metadata(dir.join("image")).unwrap().len();
                    assert_eq!(Some(size), record[bytes].as_u64(), "{context}");
                }
                other => panic!("{context}: kind {other:?}"),
            }
        }
    }
}

impl Place {
    /// Nothing is mounted below it and no loop device has its file there.
    pub fn assert_unmounted(&self, context: &str) {
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let path = self.path().to_str().unwrap();
        let mounts: Vec<_> = table.lines().filter(|line| line.contains(path)).collect();
        assert_eq!(mounts, Vec::<&str>::new(), "{context}");
        assert_loops_clear(self.path(), context);
    }
}

/// The name under which [`create`] makes its volume.
pub const NAME: &str = "pvc-0001";

pub fn id() -> String {
    VolumeId::from_name(NAME).to_string()
}

pub fn capability(mode: Mode, flags: &[&str]) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(MountVolume {
            mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            ..Default::default()
        })),
    }
}

pub fn snapshot(name: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest { name: name.into(), source_volume_id: id(), ..Default::default() }
}

/// A volume of this name, with the content of a snapshot or of a volume.
pub fn copy_of(kind: &str, name: &str, source: volume_content_source::Type) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.into(),
        volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
        ..create(kind)
    }
}

pub fn from_snapshot(snapshot_id: &str) -> volume_content_source::Type {
    volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id: snapshot_id.into() })
}

pub fn from_volume(volume_id: &str) -> volume_content_source::Type {
    volume_content_source::Type::Volume(VolumeSource { volume_id: volume_id.into() })
}

/// A capability for raw use.
pub fn block(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Block(BlockVolume {})),
    }
}

pub fn expand(required_bytes: i64) -> ControllerExpandVolumeRequest {
    ControllerExpandVolumeRequest {
        volume_id: id(),
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
        ..Default::default()
    }
}

pub fn expand_on_node(path: &Path) -> NodeExpandVolumeRequest {
    NodeExpandVolumeRequest { volume_id: id(), volume_path: path.display().to_string(), ..Default::default() }
}

pub fn stats(path: &Path) -> NodeGetVolumeStatsRequest {
    NodeGetVolumeStatsRequest {
        volume_id: id(),
        volume_path: path.display().to_string(),
        ..Default::default()
    }
}

fn writer() -> VolumeCapability {
    capability(Mode::SingleNodeWriter, &["noexec"])
}

pub fn create(kind: &str) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: NAME.into(),
        capacity_range: Some(CapacityRange { required_bytes: IMAGE_BYTES, limit_bytes: 0 }),
        volume_capabilities: vec![writer()],
        parameters: [("kind".to_owned(), kind.to_owned())].into(),
        ..Default::default()
    }
}

pub fn delete() -> DeleteVolumeRequest {
    DeleteVolumeRequest { volume_id: id(), ..Default::default() }
}

pub fn attach(node: &str) -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: id(),
        node_id: node.into(),
        volume_capability: Some(writer()),
        ..Default::default()
    }
}

pub fn detach(node: &str) -> ControllerUnpublishVolumeRequest {
    ControllerUnpublishVolumeRequest { volume_id: id(), node_id: node.into(), ..Default::default() }
}

pub fn stage(path: &Path) -> NodeStageVolumeRequest {
    NodeStageVolumeRequest {
        volume_id: id(),
        staging_target_path: path.display().to_string(),
        volume_capability: Some(writer()),
        ..Default::default()
    }
}

pub fn unstage(path: &Path) -> NodeUnstageVolumeRequest {
    NodeUnstageVolumeRequest { volume_id: id(), staging_target_path: path.display().to_string() }
}

pub fn publish(staging: &Path, target: &Path, readonly: bool) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: id(),
        staging_target_path: staging.display().to_string(),
        target_path: target.display().to_string(),
        volume_capability: Some(writer()),
        readonly,
        ..Default::default()
    }
}

pub fn unpublish(target: &Path) -> NodeUnpublishVolumeRequest {
    NodeUnpublishVolumeRequest { volume_id: id(), target_path: target.display().to_string() }
}

/// Unpublishes; see [`once_free`].
pub fn take_down(driver: &Driver, request: &NodeUnpublishVolumeRequest) {
    once_free(|| driver.unpublish(request.clone()));
}

/// Calls, and again while the kernel calls a mount busy, as the kubelet does: a tool that another test starts has,
/// between fork and exec, a copy of every file that this one had open there.
pub fn once_free<T: std::fmt::Debug>(call: impl Fn() -> Result<T>) {
    let deadline = Instant::now() + LONG;
    loop {
        match call() {
            Err(Error::Host { source, .. })
                if source.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline =>
            {
                std::thread::yield_now();
            }
            outcome => {
                outcome.unwrap();
                return;
            }
        }
    }
}

/// Runs `test` on a thread with a mount table of its own, so that whatever happens nothing stays mounted. For tests that
/// require root.
pub fn with_private_mounts(test: impl FnOnce() + Send + 'static) {
    claimcheck_needs::require("root");
    let thread = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).unwrap();
        test();
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// [`with_private_mounts`], for tests that require root and loop devices.
pub fn with_loops(test: impl FnOnce() + Send + 'static) {
    claimcheck_needs::require("root, loop");
    with_private_mounts(test);
}

/// [`with_loops`] for volumes of the kind `image`, [`with_private_mounts`] for others.
pub fn with_mounts_of(kind: &str, test: impl FnOnce() + Send + 'static) {
    match kind {
        "image" => with_loops(test),
        _ => with_private_mounts(test),
    }
}

/// Loop devices with a backing file below `dir`, as the kernel lists them.
pub fn loops_below(dir: &Path) -> Vec<String> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let backing = |device: fs::DirEntry| fs::read_to_string(device.path().join("loop/backing_file")).ok();
    // Below a private mount the kernel names files from that mount's root, so only the tail can be compared.
    let tail = dir.file_name().unwrap().to_str().unwrap();
    devices.filter_map(|device| backing(device.unwrap())).filter(|file| file.contains(tail)).collect()
}

/// The kernel clears a loop device a moment after its last user is gone.
pub fn assert_loops_clear(dir: &Path, context: &str) {
    let deadline = Instant::now() + LONG;
    while !loops_below(dir).is_empty() {
        assert!(Instant::now() < deadline, "{context}: {:?}", loops_below(dir));
        std::thread::yield_now();
    }
}

#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T>, code: tonic::Code, words: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(words), "{error} does not say {words:?}");
}
