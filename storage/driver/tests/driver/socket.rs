//! The driver as its callers see it: over a unix socket, with real mounts, two nodes on one state directory.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use crate::support::{self, Place};
use claimcheck_csi::{
    Driver as Client, Endpoint,
    tap::Tap,
    v1::{
        ControllerGetCapabilitiesRequest, GetMetadataAllocatedRequest, GetPluginCapabilitiesRequest,
        GetPluginInfoRequest, GroupControllerGetCapabilitiesRequest, ListVolumesRequest,
        NodeGetCapabilitiesRequest, NodeGetInfoRequest, NodeStageVolumeRequest,
    },
};
use claimcheck_driver::{Args, run};
use clap::Parser;
use tokio::sync::oneshot;
use tonic::Code;

/// A driver process in all but the process.
struct Node {
    name: &'static str,
    client: Client,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

impl Node {
    async fn start(place: &Place, name: &'static str) -> Self {
        Self::start_with(place, name, &["--max-volumes-per-node", "9"]).await
    }

    async fn start_with(place: &Place, name: &'static str, more: &[&str]) -> Self {
        let endpoint = format!("unix://{}/{name}.sock", place.path().display());
        let state = place.state().display().to_string();
        let args = ["driver", "--endpoint", &endpoint, "--node-id", name, "--state-dir", &state];
        let args = Args::try_parse_from(args.iter().chain(more)).unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(async move {
            run(args, async { drop(stopped.await) }).await.unwrap();
        });
        let client = Client::new(Endpoint::parse(&endpoint).unwrap(), Tap::none(), "test");
        client.wait_ready(support::LONG).await.unwrap();
        Self { name, client, stop, served }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        // Its connection goes first: a server waits for its clients.
        drop(self.client);
        tokio::time::timeout(support::LONG, self.served).await.unwrap().unwrap();
    }

    /// Attached, staged and published at `place`'s paths; every call twice, as a caller that lost the answer.
    async fn bring_up(&self, place: &Place, readonly: bool) {
        let (staging, target) = (place.staging(), place.target());
        for _ in 0..2 {
            self.client.controller().controller_publish_volume(support::attach(self.name)).await.unwrap();
        }
        for _ in 0..2 {
            self.client.node().node_stage_volume(support::stage(&staging)).await.unwrap();
        }
        for _ in 0..2 {
            let request = support::publish(&staging, &target, readonly);
            self.client.node().node_publish_volume(request).await.unwrap();
        }
    }

    async fn take_down(&self, place: &Place) {
        let (staging, target) = (place.staging(), place.target());
        for _ in 0..2 {
            // See `support::take_down`.
            while let Err(busy) = self.client.node().node_unpublish_volume(support::unpublish(&target)).await
            {
                assert!(busy.message().contains("(os error 16)"), "{busy}");
            }
            assert!(!target.exists());
        }
        for _ in 0..2 {
            self.client.node().node_unstage_volume(support::unstage(&staging)).await.unwrap();
        }
        for _ in 0..2 {
            self.client.controller().controller_unpublish_volume(support::detach(self.name)).await.unwrap();
        }
    }
}

/// Runs `test` in a private mount table with a runtime of its own, with all threads in that table.
fn on_a_machine<F: Future<Output = ()>>(kind: &'static str, test: impl FnOnce(Place) -> F + Send + 'static) {
    support::with_mounts_of(kind, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(test(Place::new()));
    });
}

async fn life_cycle(place: Place, kind: &'static str) {
    let one = Node::start(&place, "node-1").await;
    let two = Node::start(&place, "node-2").await;
    let file = place.target().join("file");

    // The same wish eight times at once, through two processes: one volume.
    let (a, b) = (one.client.controller(), two.client.controller());
    let calls: Vec<_> = (0..8)
        .map(|n| {
            let mut client = if n % 2 == 0 { a.clone() } else { b.clone() };
            tokio::spawn(async move { client.create_volume(support::create(kind)).await })
        })
        .collect();
    for call in calls {
        let volume = call.await.unwrap().unwrap().into_inner().volume.unwrap();
        assert_eq!(volume.volume_id, support::id());
        assert_eq!(volume.capacity_bytes, support::IMAGE_BYTES);
    }
    assert_eq!(place.volumes().len(), 1);

    one.bring_up(&place, false).await;
    fs::write(&file, "kept").unwrap();
    let refused = two.client.controller().controller_publish_volume(support::attach(two.name)).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    let refused = one.client.controller().delete_volume(support::delete()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("published at"), "{refused}");
    let stats = support::stats(&place.target());
    let usage = one.client.node().node_get_volume_stats(stats).await.unwrap().into_inner().usage;
    assert_eq!(usage.len(), 2);
    if kind == "image" {
        assert_eq!(support::loops_below(place.path()).len(), 1);
        assert!(usage[0].total <= support::IMAGE_BYTES && usage[0].total > support::IMAGE_BYTES / 2);
        assert_eq!(fill(&place.target().join("big")), ErrorKind::StorageFull);
    }
    one.take_down(&place).await;
    support::assert_loops_clear(place.path(), kind);

    // On the other node the data is there, and read-only is honoured.
    two.bring_up(&place, true).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert_eq!(fs::write(&file, "changed").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    two.take_down(&place).await;

    for _ in 0..2 {
        two.client.controller().delete_volume(support::delete()).await.unwrap();
    }
    assert_eq!(place.volumes(), Vec::<String>::new());
    one.stop().await;
    two.stop().await;
    assert!(!place.path().join("node-1.sock").exists(), "the socket stayed");
}

/// Writes until the file system is full, and gives what it then says.
fn fill(path: &Path) -> ErrorKind {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    let chunk = vec![1; 1 << 20];
    for _ in 0..2 * support::IMAGE_BYTES / (1 << 20) {
        if let Err(error) = file.write_all(&chunk) {
            return error.kind();
        }
    }
    panic!("twice the size of the volume could be written")
}

#[test]
#[ignore = "requires root"]
fn directory() {
    on_a_machine("directory", |place| life_cycle(place, "directory"));
}

#[test]
#[ignore = "requires root, loop"]
fn image() {
    on_a_machine("image", |place| life_cycle(place, "image"));
}

/// Stagings of one volume racing each other make one mount.
#[test]
#[ignore = "requires root, loop"]
fn racing_stages() {
    on_a_machine("image", |place| async move {
        let node = Node::start(&place, "node-1").await;
        node.client.controller().create_volume(support::create("image")).await.unwrap();
        let calls: Vec<_> = (0..8)
            .map(|_| {
                let (mut client, request) = (node.client.node(), support::stage(&place.staging()));
                tokio::spawn(async move { client.node_stage_volume(request).await })
            })
            .collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let staging = place.staging();
        assert_eq!(table.lines().filter(|line| line.contains(staging.to_str().unwrap())).count(), 1);
        node.client.node().node_unstage_volume(support::unstage(&staging)).await.unwrap();
        node.client.controller().delete_volume(support::delete()).await.unwrap();
        node.stop().await;
    });
}

/// What the driver says about itself; needs no privileges.
#[tokio::test]
async fn declares_what_it_implements() {
    let place = Place::new();
    let node = Node::start(&place, "node-1").await;
    let info = node.client.identity().get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, "claimcheck.csi.dev");
    let plugin =
        node.client.identity().get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await.unwrap();
    assert_eq!(plugin.into_inner().capabilities.len(), 4);
    let controller = node
        .client
        .controller()
        .controller_get_capabilities(ControllerGetCapabilitiesRequest {})
        .await
        .unwrap();
    assert_eq!(controller.into_inner().capabilities.len(), 15);
    let capabilities = node.client.node().node_get_capabilities(NodeGetCapabilitiesRequest {}).await.unwrap();
    assert_eq!(capabilities.into_inner().capabilities.len(), 5);
    let info = node.client.node().node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.node_id.as_str(), info.max_volumes_per_node), ("node-1", 9));
    assert_eq!(info.accessible_topology, None);

    let mut groups = node.client.group_controller();
    let request = GroupControllerGetCapabilitiesRequest {};
    let answer = groups.group_controller_get_capabilities(request).await.unwrap();
    assert_eq!(answer.into_inner().capabilities.len(), 1);
    let blocks =
        node.client.snapshot_metadata().get_metadata_allocated(GetMetadataAllocatedRequest::default()).await;
    assert_eq!(blocks.unwrap_err().message(), "snapshot_id is missing");
    let empty = node.client.node().node_stage_volume(NodeStageVolumeRequest::default()).await.unwrap_err();
    assert_eq!((empty.code(), empty.message()), (Code::InvalidArgument, "volume_id is missing"));
    node.stop().await;
}

/// On shutdown the driver finishes the call in progress; one that does not end is abandoned.
#[tokio::test]
async fn calls_under_way_are_finished_within_bounds() {
    for (grace, finishes) in [("30", true), ("0", false)] {
        let place = Place::new();
        let node = Node::start_with(&place, "node-1", &["--shutdown-grace", grace]).await;
        node.client.controller().create_volume(support::create("directory")).await.unwrap();
        // Whoever holds the volume's directory keeps calls about it waiting.
        let dir = fs::File::open(place.state().join("volumes").join(support::id())).unwrap();
        rustix::fs::flock(&dir, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let mut client = node.client.controller();
        let call = tokio::spawn(async move { client.delete_volume(support::delete()).await });
        // It is sent first, so the list comes after the deletion has been taken in, on the same connection.
        tokio::task::yield_now().await;
        node.client.controller().list_volumes(ListVolumesRequest::default()).await.unwrap();
        let Node { client, stop, served, .. } = node;
        drop(client);
        stop.send(()).unwrap();
        if finishes {
            rustix::fs::flock(&dir, rustix::fs::FlockOperation::Unlock).unwrap();
            call.await.unwrap().unwrap();
            served.await.unwrap();
            assert_eq!(place.volumes(), Vec::<String>::new());
        } else {
            served.await.unwrap();
            rustix::fs::flock(&dir, rustix::fs::FlockOperation::Unlock).unwrap();
            // The process would be gone by now; here the call still comes to its end.
            call.await.unwrap().ok();
        }
        assert!(!place.path().join("node-1.sock").exists(), "the socket stayed");
    }
}

/// A group of this user, since any other requires root.
#[tokio::test]
async fn a_group_may_be_let_in() {
    let place = Place::new();
    let socket = place.path().join("shared.sock");
    let endpoint = format!("unix://{}", socket.display());
    let (state, group) = (place.state().display().to_string(), rustix::process::getegid().as_raw());
    let group = group.to_string();
    let args = ["driver", "--endpoint", &endpoint, "--node-id", "n", "--state-dir", &state];
    let args = Args::try_parse_from(args.into_iter().chain(["--socket-group", &group])).unwrap();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(run(args, async { drop(stopped.await) }));
    let client = Client::new(Endpoint::Unix(socket.clone()), Tap::none(), "test");
    client.wait_ready(support::LONG).await.unwrap();
    let metadata = fs::metadata(&socket).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.gid().to_string()), (0o660, group));
    drop(client);
    stop.send(()).unwrap();
    served.await.unwrap().unwrap();
}
