//! The load on a driver that is killed: lives of volumes, call by call, each repeated until it is answered.

use std::{
    cell::Cell,
    fs::{self, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use claimcheck_csi::{
    Driver as Client,
    v1::{
        CapacityRange, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
        CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest,
        DeleteVolumeGroupSnapshotRequest, DeleteVolumeRequest, ListSnapshotsRequest, ListVolumesRequest,
        NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
        NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability, VolumeContentSource,
        volume_capability::access_mode::Mode, volume_content_source,
    },
};
use claimcheck_driver::{
    id::{GroupId, SnapshotId},
    volume::VolumeId,
};
use tonic::{Code, Response, Status};

use super::NODE;
use crate::support::{self, IMAGE_BYTES, Place, block, capability};

/// What the load is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Directory,
    Image,
    Block,
}

impl Shape {
    pub(super) fn of(number: usize) -> Self {
        [Self::Directory, Self::Image, Self::Block][number % 3]
    }

    fn capability(self) -> VolumeCapability {
        match self {
            Self::Directory | Self::Image => capability(Mode::SingleNodeWriter, &[]),
            Self::Block => block(Mode::SingleNodeWriter),
        }
    }

    /// The file that holds a volume's data.
    fn file(self, target: &Path) -> PathBuf {
        match self {
            Self::Directory | Self::Image => target.join("file"),
            Self::Block => target.to_owned(),
        }
    }
}

/// What is written to a volume before its snapshot is taken, and after.
#[derive(Clone, Copy, Debug)]
pub(super) enum Text {
    Before,
    After,
}

/// One volume and where it is.
pub(super) struct Life {
    name: String,
    /// The owner of its data.
    written_by: String,
    shape: Shape,
    staging: PathBuf,
    target: PathBuf,
}

impl Life {
    pub(super) fn new(place: &Place, name: &str, shape: Shape) -> Self {
        let dir = place.path().join("kubelet").join(name);
        fs::create_dir(&dir).unwrap();
        fs::create_dir(dir.join("staging")).unwrap();
        Self {
            name: name.to_owned(),
            written_by: name.to_owned(),
            shape,
            staging: dir.join("staging"),
            target: dir.join("target"),
        }
    }

    /// One that is to have the data of this one.
    fn copy(&self, place: &Place, how: &str) -> Self {
        let copy = Self::new(place, &format!("{}-{how}", self.name), self.shape);
        Self { written_by: self.written_by.clone(), ..copy }
    }

    pub(super) fn id(&self) -> String {
        VolumeId::from_name(&self.name).to_string()
    }

    fn data(&self, text: Text) -> String {
        format!("{:>64}", format!("{} {text:?}", self.written_by))
    }

    pub(super) fn write(&self, text: Text) {
        let path = self.shape.file(&self.target);
        let mut file = OpenOptions::new()
            .write(true)
            .create(self.shape != Shape::Block)
            .truncate(false)
            .open(path)
            .unwrap();
        file.write_all(self.data(text).as_bytes()).unwrap();
        file.sync_all().unwrap();
    }

    pub(super) fn check(&self, text: Text) {
        let mut file = fs::File::open(self.shape.file(&self.target)).unwrap();
        let mut read = vec![0; 64];
        file.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8_lossy(&read), self.data(text), "{}: data lost", self.name);
        if self.shape == Shape::Block {
            assert!(self.bytes() >= IMAGE_BYTES.unsigned_abs(), "{}: half a device", self.name);
        }
    }

    /// The size of the file system or device that a workload sees.
    fn bytes(&self) -> u64 {
        match self.shape {
            Shape::Block => fs::File::open(&self.target).unwrap().seek(SeekFrom::End(0)).unwrap(),
            Shape::Directory | Shape::Image => {
                let stat = rustix::fs::statvfs(&self.target).unwrap();
                stat.f_blocks * stat.f_frsize
            }
        }
    }
}

/// What the workers share.
pub(super) struct Load {
    client: Client,
    repeats: Cell<usize>,
    snapshots: Cell<usize>,
    copies: Cell<usize>,
    growths: Cell<usize>,
    over: Cell<bool>,
}

/// Makes one call of a service until it is answered.
macro_rules! call {
    ($load:expr, $service:ident.$call:ident($what:expr, $request:expr)) => {{
        let request = $request;
        let once = || {
            let (mut client, request) = ($load.client.$service(), request.clone());
            async move { client.$call(request).await }
        };
        $load.call(&format!("{} {}", stringify!($call), $what), once).await
    }};
}

fn count(cell: &Cell<usize>) {
    cell.set(cell.get() + 1);
}

impl Load {
    pub(super) fn new(client: Client) -> Self {
        let zero = || Cell::new(0);
        Self {
            client,
            repeats: zero(),
            snapshots: zero(),
            copies: zero(),
            growths: zero(),
            over: Cell::new(false),
        }
    }

    /// Lives that have begun end, and no other begins.
    pub(super) fn end(&self) {
        self.over.set(true);
    }

    /// What there was of it.
    pub(super) fn summary(&self) -> String {
        format!(
            "{} snapshots, {} copies, {} growths, {} calls repeated",
            self.snapshots.get(),
            self.copies.get(),
            self.growths.get(),
            self.repeats.get()
        )
    }

    /// Makes a call until the driver answers, as Kubernetes does; any other error is a finding.
    async fn call<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        what: &str,
        call: impl Fn() -> F,
    ) -> T {
        loop {
            match call().await {
                Ok(answer) => return answer.into_inner(),
                Err(status)
                    if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) =>
                {
                    count(&self.repeats);
                    // The driver may be killed once more while it starts.
                    while self.client.wait_ready(Duration::from_secs(30)).await.is_err() {}
                }
                // See `support::take_down`; here the tools of other tests are meant.
                Err(status) if status.message().contains("(os error 16)") => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(status) => panic!("{what}: {status}"),
            }
        }
    }

    pub(super) async fn create(&self, life: &Life, source: Option<volume_content_source::Type>) {
        let kind = if life.shape == Shape::Directory { "directory" } else { "image" };
        let request = CreateVolumeRequest {
            name: life.name.clone(),
            volume_capabilities: vec![life.shape.capability()],
            volume_content_source: source.map(|source| VolumeContentSource { r#type: Some(source) }),
            ..support::create(kind)
        };
        let volume = call!(self, controller.create_volume(life.name, request)).volume.unwrap();
        assert_eq!(volume.volume_id, life.id());
    }

    pub(super) async fn up(&self, life: &Life) {
        let (volume_id, volume_capability) = (life.id(), Some(life.shape.capability()));
        let request = ControllerPublishVolumeRequest {
            volume_id: volume_id.clone(),
            volume_capability: volume_capability.clone(),
            ..support::attach(NODE)
        };
        call!(self, controller.controller_publish_volume(life.name, request));
        let request = NodeStageVolumeRequest {
            volume_id: volume_id.clone(),
            volume_capability: volume_capability.clone(),
            ..support::stage(&life.staging)
        };
        call!(self, node.node_stage_volume(life.name, request));
        let publish = support::publish(&life.staging, &life.target, false);
        let request = NodePublishVolumeRequest { volume_id, volume_capability, ..publish };
        call!(self, node.node_publish_volume(life.name, request));
    }

    pub(super) async fn down(&self, life: &Life) {
        let request = NodeUnpublishVolumeRequest { volume_id: life.id(), ..support::unpublish(&life.target) };
        call!(self, node.node_unpublish_volume(life.name, request));
        assert!(!life.target.exists(), "{}: target left", life.name);
        let request = NodeUnstageVolumeRequest { volume_id: life.id(), ..support::unstage(&life.staging) };
        call!(self, node.node_unstage_volume(life.name, request));
        let request = ControllerUnpublishVolumeRequest { volume_id: life.id(), ..support::detach(NODE) };
        call!(self, controller.controller_unpublish_volume(life.name, request));
    }

    /// Grows a volume to as many times its first size.
    async fn expand(&self, life: &Life, times: i64) {
        let mut request = support::expand(times * IMAGE_BYTES);
        request.volume_id = life.id();
        let answer = call!(self, controller.controller_expand_volume(life.name, request));
        assert_eq!(answer.capacity_bytes, times * IMAGE_BYTES);
        count(&self.growths);
    }

    /// Lets a node that uses a volume see that it has grown.
    async fn expand_on_node(&self, life: &Life, times: i64) {
        let request = NodeExpandVolumeRequest {
            volume_id: life.id(),
            staging_target_path: life.staging.display().to_string(),
            capacity_range: Some(CapacityRange { required_bytes: times * IMAGE_BYTES, limit_bytes: 0 }),
            volume_capability: Some(life.shape.capability()),
            ..support::expand_on_node(&life.target)
        };
        call!(self, node.node_expand_volume(life.name, request));
        assert_eq!(life.bytes(), (times * IMAGE_BYTES).unsigned_abs(), "{}: not grown", life.name);
    }

    pub(super) async fn snapshot(&self, life: &Life) -> String {
        let request = CreateSnapshotRequest { source_volume_id: life.id(), ..support::snapshot(&life.name) };
        let snapshot = call!(self, controller.create_snapshot(life.name, request)).snapshot.unwrap();
        assert_eq!(snapshot.snapshot_id, SnapshotId::from_name(&life.name).as_str());
        assert!(snapshot.ready_to_use, "{}: half a snapshot", life.name);
        count(&self.snapshots);
        snapshot.snapshot_id
    }

    pub(super) async fn delete_snapshot(&self, snapshot: &str) {
        let request = DeleteSnapshotRequest { snapshot_id: snapshot.to_owned(), ..Default::default() };
        call!(self, controller.delete_snapshot(snapshot, request));
    }

    /// Takes a group of two volumes and lets it go.
    async fn group(&self, life: &Life, other: &Life) {
        let mut sources = vec![life.id(), other.id()];
        let request = CreateVolumeGroupSnapshotRequest {
            name: life.name.clone(),
            source_volume_ids: sources.clone(),
            ..Default::default()
        };
        let group = call!(self, group_controller.create_volume_group_snapshot(life.name, request));
        let group = group.group_snapshot.unwrap();
        assert_eq!(group.group_snapshot_id, GroupId::from_name(&life.name).as_str());
        let mut found: Vec<_> = group.snapshots.iter().map(|it| it.source_volume_id.clone()).collect();
        found.sort();
        sources.sort();
        assert_eq!(found, sources, "{}: half a group", life.name);
        count(&self.snapshots);
        let group_snapshot_id = group.group_snapshot_id;
        let request = DeleteVolumeGroupSnapshotRequest { group_snapshot_id, ..Default::default() };
        call!(self, group_controller.delete_volume_group_snapshot(life.name, request));
    }

    /// A snapshot's data is in a volume that is made from it; gives the volume.
    async fn restored(&self, place: &Place, life: &Life, snapshot: &str) -> Life {
        let restored = life.copy(place, "restored");
        self.create(&restored, Some(support::from_snapshot(snapshot))).await;
        count(&self.copies);
        self.up(&restored).await;
        restored.check(Text::Before);
        restored
    }

    /// The same, and lets the volume go.
    pub(super) async fn restore(&self, place: &Place, life: &Life, snapshot: &str) {
        let restored = self.restored(place, life, snapshot).await;
        self.down(&restored).await;
        self.delete(&restored).await;
    }

    pub(super) async fn delete(&self, life: &Life) {
        let request = DeleteVolumeRequest { volume_id: life.id(), ..Default::default() };
        call!(self, controller.delete_volume(life.name, request));
    }

    /// Whole lives of volumes, one after the other, until the load is over; gives their number.
    pub(super) async fn work(&self, place: &Place, worker: usize) -> usize {
        for round in 0.. {
            if self.over.get() {
                return round;
            }
            let life = Life::new(place, &format!("w{worker}-{round}"), Shape::of(worker + round));
            self.live(place, &life).await;
        }
        unreachable!("rounds do not end")
    }

    async fn live(&self, place: &Place, life: &Life) {
        self.create(life, None).await;
        self.up(life).await;
        life.write(Text::Before);
        // While it is in use: a driver that is killed now may leave the file system frozen.
        let snapshot = self.snapshot(life).await;
        life.write(Text::After);

        let clone = life.copy(place, "clone");
        self.create(&clone, Some(support::from_volume(&life.id()))).await;
        count(&self.copies);
        let restored = self.restored(place, life, &snapshot).await;
        self.group(life, &restored).await;
        self.delete_snapshot(&snapshot).await;
        self.down(&restored).await;
        self.delete(&restored).await;

        if life.shape == Shape::Block {
            self.expand(life, 2).await;
            self.expand_on_node(life, 2).await;
        }
        self.down(life).await;
        self.expand(life, 3).await;
        self.up(life).await;
        life.check(Text::After);
        // What a file system needs for itself is below a third.
        let grown = life.shape == Shape::Directory || life.bytes() > 2 * IMAGE_BYTES.unsigned_abs();
        assert!(grown, "{}: {} bytes of {}", life.name, life.bytes(), 3 * IMAGE_BYTES);
        self.down(life).await;
        self.delete(life).await;

        self.up(&clone).await;
        clone.check(Text::After);
        self.down(&clone).await;
        self.delete(&clone).await;
    }

    pub(super) async fn volumes(&self) -> Vec<String> {
        let entries = call!(self, controller.list_volumes("", ListVolumesRequest::default())).entries;
        entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect()
    }

    pub(super) async fn snapshots(&self) -> Vec<String> {
        let entries = call!(self, controller.list_snapshots("", ListSnapshotsRequest::default())).entries;
        entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id).collect()
    }
}
