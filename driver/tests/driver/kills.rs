//! A driver process is killed again and again while volumes of all kinds come and go: none is lost, none is half
//! there, and nothing is left on the machine.
//!
//! A few kills with the other tests; as many as one likes by `CLAIMCHECK_KILLS=1000 cargo test -p
//! claimcheck-driver kills -- --nocapture`.

use std::{
    cell::Cell,
    env, fs,
    fs::OpenOptions,
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    rc::Rc,
    time::{Duration, Instant},
};

use crate::support::{self, Place, block, capability};
use claimcheck_csi::{
    Driver as Client, Endpoint,
    tap::Tap,
    v1::{
        ControllerExpandVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
        CreateVolumeRequest, DeleteVolumeRequest, ListVolumesRequest, NodePublishVolumeRequest,
        NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
        volume_capability::access_mode::Mode,
    },
};
use claimcheck_driver::{Args, run, volume::VolumeId};
use clap::Parser;
use tonic::{Code, Response, Status};

/// Set for the process that is killed: its command line, one argument a line.
const ARGS: &str = "CLAIMCHECK_KILLED_DRIVER";
const NODE: &str = "node-1";
const WORKERS: usize = 6;

#[test]
#[ignore = "not a test: the process that the others kill"]
fn driver_process() {
    let Ok(args) = env::var(ARGS) else { return };
    let args = Args::try_parse_from(args.lines()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run(args, std::future::pending())).unwrap();
}

/// The process; killed when dropped.
struct Process(Child);

impl Process {
    fn start(place: &Place, socket: &Path) -> Self {
        let endpoint = format!("unix://{}", socket.display());
        let state = place.state().display().to_string();
        let args = ["driver", "--endpoint", &endpoint, "--node-id", NODE, "--state-dir", &state];
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "kills::driver_process", "--ignored"]).env(ARGS, args.join("\n"));
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// What the load is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Directory,
    Image,
    Block,
}

impl Shape {
    fn of(number: usize) -> Self {
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

/// One volume and where it is.
struct Life {
    name: String,
    shape: Shape,
    staging: PathBuf,
    target: PathBuf,
}

/// What the workers share.
struct Load {
    client: Client,
    repeats: Cell<usize>,
    over: Cell<bool>,
}

impl Load {
    /// Makes a call until the driver answers, as Kubernetes does; any other error is a finding.
    async fn call<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        what: &str,
        fine: Option<Code>,
        call: impl Fn() -> F,
    ) -> Option<T> {
        loop {
            match call().await {
                Ok(answer) => return Some(answer.into_inner()),
                Err(status) if fine == Some(status.code()) => return None,
                Err(status)
                    if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) =>
                {
                    self.repeats.set(self.repeats.get() + 1);
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

    async fn create(&self, life: &Life) {
        let Life { name, shape, .. } = life;
        let kind = if *shape == Shape::Directory { "directory" } else { "image" };
        let request = CreateVolumeRequest {
            name: name.clone(),
            volume_capabilities: vec![shape.capability()],
            ..support::create(kind)
        };
        let create = || {
            let (mut client, request) = (self.client.controller(), request.clone());
            async move { client.create_volume(request).await }
        };
        let volume = self.call(&format!("create {name}"), None, create).await.unwrap().volume.unwrap();
        assert_eq!(volume.volume_id, life.id());
    }

    async fn up(&self, life: &Life) {
        let what = format!("{} {:?}", life.name, life.shape);
        let request = ControllerPublishVolumeRequest {
            volume_id: life.id(),
            volume_capability: Some(life.shape.capability()),
            ..support::attach(NODE)
        };
        let attach = || {
            let (mut client, request) = (self.client.controller(), request.clone());
            async move { client.controller_publish_volume(request).await }
        };
        self.call(&format!("attach {what}"), None, attach).await;
        let request = NodeStageVolumeRequest {
            volume_id: life.id(),
            volume_capability: Some(life.shape.capability()),
            ..support::stage(&life.staging)
        };
        let stage = || {
            let (mut client, request) = (self.client.node(), request.clone());
            async move { client.node_stage_volume(request).await }
        };
        self.call(&format!("stage {what}"), None, stage).await;
        let request = NodePublishVolumeRequest {
            volume_id: life.id(),
            volume_capability: Some(life.shape.capability()),
            ..support::publish(&life.staging, &life.target, false)
        };
        let publish = || {
            let (mut client, request) = (self.client.node(), request.clone());
            async move { client.node_publish_volume(request).await }
        };
        self.call(&format!("publish {what}"), None, publish).await;
    }

    async fn down(&self, life: &Life) {
        let what = format!("{} {:?}", life.name, life.shape);
        let request = NodeUnpublishVolumeRequest { volume_id: life.id(), ..support::unpublish(&life.target) };
        let unpublish = || {
            let (mut client, request) = (self.client.node(), request.clone());
            async move { client.node_unpublish_volume(request).await }
        };
        self.call(&format!("unpublish {what}"), None, unpublish).await;
        assert!(!life.target.exists(), "{what}: target left");
        let request = NodeUnstageVolumeRequest { volume_id: life.id(), ..support::unstage(&life.staging) };
        let unstage = || {
            let (mut client, request) = (self.client.node(), request.clone());
            async move { client.node_unstage_volume(request).await }
        };
        self.call(&format!("unstage {what}"), None, unstage).await;
        let request = ControllerUnpublishVolumeRequest { volume_id: life.id(), ..support::detach(NODE) };
        let detach = || {
            let (mut client, request) = (self.client.controller(), request.clone());
            async move { client.controller_unpublish_volume(request).await }
        };
        self.call(&format!("detach {what}"), None, detach).await;
    }

    async fn expand(&self, life: &Life) {
        let request = ControllerExpandVolumeRequest {
            volume_id: life.id(),
            ..support::expand(2 * support::IMAGE_BYTES)
        };
        let expand = || {
            let (mut client, request) = (self.client.controller(), request.clone());
            async move { client.controller_expand_volume(request).await }
        };
        let answer = self.call(&format!("expand {}", life.name), None, expand).await.unwrap();
        assert_eq!(answer.capacity_bytes, 2 * support::IMAGE_BYTES);
    }

    async fn delete(&self, life: &Life) {
        let request = DeleteVolumeRequest { volume_id: life.id(), ..Default::default() };
        let delete = || {
            let (mut client, request) = (self.client.controller(), request.clone());
            async move { client.delete_volume(request).await }
        };
        self.call(&format!("delete {}", life.name), None, delete).await;
    }

    /// Whole lives of volumes, one after the other, until the load is over; gives their number.
    async fn work(&self, place: &Place, worker: usize) -> usize {
        for round in 0.. {
            if self.over.get() {
                return round;
            }
            let life = Life::new(place, &format!("w{worker}-{round}"), Shape::of(worker + round));
            self.create(&life).await;
            self.up(&life).await;
            life.write();
            self.down(&life).await;
            self.expand(&life).await;
            self.up(&life).await;
            life.check();
            self.down(&life).await;
            self.delete(&life).await;
        }
        unreachable!("rounds do not end")
    }

    async fn names(&self) -> Vec<String> {
        let list = || {
            let mut client = self.client.controller();
            async move { client.list_volumes(ListVolumesRequest::default()).await }
        };
        let entries = self.call("list", None, list).await.unwrap().entries;
        entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect()
    }
}

impl Life {
    fn new(place: &Place, name: &str, shape: Shape) -> Self {
        let dir = place.path().join("kubelet").join(name);
        fs::create_dir(&dir).unwrap();
        fs::create_dir(dir.join("staging")).unwrap();
        Self { name: name.to_owned(), shape, staging: dir.join("staging"), target: dir.join("target") }
    }

    fn id(&self) -> String {
        VolumeId::from_name(&self.name).to_string()
    }

    fn data(&self) -> String {
        format!("{:>64}", self.name)
    }

    fn write(&self) {
        let path = self.shape.file(&self.target);
        let mut file = OpenOptions::new().write(true).create(self.shape != Shape::Block).open(path).unwrap();
        file.write_all(self.data().as_bytes()).unwrap();
        file.sync_all().unwrap();
    }

    fn check(&self) {
        let mut file = fs::File::open(self.shape.file(&self.target)).unwrap();
        let mut read = vec![0; 64];
        file.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8_lossy(&read), self.data(), "{}: data lost", self.name);
        if self.shape == Shape::Block {
            let size = file.seek(SeekFrom::End(0)).unwrap();
            assert!(size >= support::IMAGE_BYTES.unsigned_abs(), "{}: half a device", self.name);
        }
    }
}

async fn kills(place: Rc<Place>, kills: usize) {
    let socket = place.path().join("csi.sock");
    let mut process = Process::start(&place, &socket);
    let client = Client::new(Endpoint::Unix(socket.clone()), Tap::none(), "load");
    client.wait_ready(Duration::from_secs(30)).await.unwrap();
    let load = Rc::new(Load { client, repeats: Cell::new(0), over: Cell::new(false) });

    // Some stay throughout, one of each kind in use and one not.
    let kept: Vec<Life> = (0..6).map(|n| Life::new(&place, &format!("kept-{n}"), Shape::of(n))).collect();
    let (in_use, idle) = kept.split_at(3);
    for life in &kept {
        load.create(life).await;
        load.up(life).await;
        life.write();
    }
    for life in idle {
        load.down(life).await;
    }

    let began = Instant::now();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (load, place) = (Rc::clone(&load), Rc::clone(&place));
            tokio::task::spawn_local(async move { load.work(&place, worker).await })
        })
        .collect();
    for _ in 0..kills {
        // From before it serves to well after.
        tokio::time::sleep(Duration::from_micros(fastrand::u64(1_000..150_000))).await;
        process = {
            drop(process);
            Process::start(&place, &socket)
        };
        assert!(!workers.iter().any(|worker| worker.is_finished()), "a worker failed");
    }
    load.over.set(true);
    let mut lives = 0;
    for worker in workers {
        lives += worker.await.unwrap();
    }
    println!("{kills} kills in {:?}: {lives} lives, {} calls repeated", began.elapsed(), load.repeats.get());

    let mut expected: Vec<String> = kept.iter().map(Life::id).collect();
    expected.sort();
    assert_eq!(load.names().await, expected, "a volume was lost, or one that was deleted stayed");
    place.assert_whole("after the kills");
    for life in in_use {
        life.check();
    }
    for life in idle {
        load.up(life).await;
        life.check();
    }
    for life in &kept {
        load.down(life).await;
        load.delete(life).await;
    }
    assert_eq!(place.volumes(), Vec::<String>::new());
    drop(process);
    place.assert_unmounted("after the kills");
}

#[test]
fn at_random() {
    let count = env::var("CLAIMCHECK_KILLS").map_or(20, |text| text.parse().unwrap());
    support::with_loops(move || {
        // One thread: the only one that has the private mount table in which the driver mounts.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, kills(Rc::new(Place::new()), count));
    });
}
