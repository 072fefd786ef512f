//! What wakes attachments, and how the driver's list of volumes is followed: against the embedded API server and a
//! driver in the test.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use claimcheck_apiserver as apiserver;
use claimcheck_csi::{
    Driver, Endpoint, Server, Services,
    tap::Tap,
    v1::{
        ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
        ControllerUnpublishVolumeResponse, ListVolumesRequest, ListVolumesResponse, Volume, VolumeCapability,
        controller_server::{Controller as CsiController, ControllerServer},
        controller_service_capability::rpc::Type as Rpc,
        list_volumes_response::{Entry, VolumeStatus},
        volume_capability::AccessType,
    },
};
use claimcheck_informer::{
    Change, Informer, KindSet, World,
    testing::{self, DRIVER, annotate},
};
use k8s_openapi::api::{
    core::v1::PersistentVolume,
    storage::v1::{CSINode, VolumeAttachment},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::run::{Attacher, Key, from_secret};
use crate::{
    Attaching, Options,
    context::Context,
    rpc::{DriverInfo, SecretError},
    shell::{self, Controller},
};

/// How long anything may take before the test fails; much longer than it takes.
const LIMIT: Duration = Duration::from_secs(60);

/// What the driver has published: volume and node; and how often it was asked to publish, to unpublish and to list.
#[derive(Clone, Debug, Default)]
struct State {
    published: BTreeSet<(String, String)>,
    capability: Option<VolumeCapability>,
    publishes: usize,
    unpublishes: usize,
    lists: usize,
}

/// A driver that lists one volume a page.
#[derive(Clone, Default)]
struct Fake(Arc<watch::Sender<State>>);

#[tonic::async_trait]
impl CsiController for Fake {
    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.0.send_modify(|state| {
            state.publishes += 1;
            state.capability = request.volume_capability;
            state.published.insert((request.volume_id, request.node_id));
        });
        Ok(Response::new(ControllerPublishVolumeResponse::default()))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.0.send_modify(|state| {
            state.unpublishes += 1;
            state.published.remove(&(request.volume_id, request.node_id));
        });
        Ok(Response::new(ControllerUnpublishVolumeResponse {}))
    }

    /// First a volume without a status, then the one of the test.
    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let request = request.into_inner();
        assert_eq!(request.max_entries, 1);
        let entry = |volume_id: &str, status| Entry {
            volume: Some(Volume { volume_id: volume_id.into(), ..Volume::default() }),
            status,
        };
        if request.starting_token.is_empty() {
            let entries = vec![entry("another", None)];
            return Ok(Response::new(ListVolumesResponse { entries, next_token: "second".into() }));
        }
        self.0.send_modify(|state| state.lists += 1);
        let published = self.0.borrow().published.clone();
        let published_node_ids = published.into_iter().map(|(_, node)| node).collect();
        let status = Some(VolumeStatus { published_node_ids, ..VolumeStatus::default() });
        let entries = vec![entry("handle-pv", status)];
        Ok(Response::new(ListVolumesResponse { entries, next_token: String::new() }))
    }
}

impl Fake {
    async fn until(&self, what: &str, holds: impl FnMut(&State) -> bool) {
        let mut states = self.0.subscribe();
        let waiting = states.wait_for(holds);
        if tokio::time::timeout(LIMIT, waiting).await.is_err() {
            panic!("not within {LIMIT:?}: {what}: {:?}", self.0.borrow());
        }
    }
}

fn lister() -> DriverInfo {
    let rpcs = [Rpc::PublishUnpublishVolume, Rpc::ListVolumes, Rpc::ListVolumesPublishedNodes];
    DriverInfo::new(DRIVER, &[], &rpcs)
}

fn attacher(directory: &tempfile::TempDir, info: DriverInfo) -> Attacher {
    let endpoint = Endpoint::Unix(directory.path().join("csi.sock"));
    let attaching = Attaching { reconcile_sync: Duration::from_millis(200), max_entries: 1 };
    let options = Options { attaching, default_fs_type: "xfs".into(), ..Options::default() };
    Attacher::new(Driver::new(endpoint, Tap::none(), "attacher"), info, options)
}

async fn until(context: &Context, what: &str, mut holds: impl FnMut(&World) -> bool) {
    let mut changes = context.informer.subscribe(KindSet::all());
    let waiting = async {
        while !holds(&context.informer.read()) {
            changes.recv().await.unwrap();
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_behind_kubernetes_is_undone() {
    // Not in TMPDIR, which may be long: the path of a unix socket ends at 108 bytes.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let driver = Fake::default();
    let listening = Server::bind(&directory.path().join("csi.sock")).unwrap();
    let services = Services::default().with(ControllerServer::new(driver.clone()));
    let serving = tokio::spawn(async move { listening.serve(services, std::future::pending()).await });
    let server = apiserver::start(apiserver::Config::default()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let informer = Informer::start(client.clone(), Attacher::kinds(), &Default::default());
    let context = Context::new(client.clone(), informer, "attacher");
    let attachments = Api::<VolumeAttachment>::all(client.clone());
    let is_attached = |world: &World| {
        let status = world.attachments.named("va").and_then(|attachment| attachment.status.clone());
        status.is_some_and(|status| status.attached)
    };

    let mut volume = testing::volume("pv", "fast", "1Gi");
    let mut node = testing::csi_node("node", None);
    let mut attachment = testing::attachment("va", "pv", "node", false);
    attachment.metadata.finalizers = Some(vec!["test/holds".into()]);
    (volume.metadata.uid, node.metadata.uid, attachment.metadata.uid) = (None, None, None);
    let params = PostParams::default();
    Api::<PersistentVolume>::all(client.clone()).create(&params, &volume).await.unwrap();
    Api::<CSINode>::all(client).create(&params, &node).await.unwrap();
    let running = tokio::spawn(shell::run(attacher(&directory, lister()), context.clone()));
    attachments.create(&params, &attachment).await.unwrap();
    until(&context, "it is attached", is_attached).await;
    let capability = driver.0.borrow().capability.clone().unwrap();
    assert!(matches!(capability.access_type, Some(AccessType::Mount(mount)) if mount.fs_type == "xfs"));

    driver.0.send_modify(|state| state.published.clear());
    driver.until("it is published again", |state| !state.published.is_empty()).await;
    assert_eq!(driver.0.borrow().publishes, 2);
    // In step: lists follow, and no calls.
    let lists = driver.0.borrow().lists;
    driver.until("it is listed", |state| state.lists > lists + 2).await;
    assert_eq!(driver.0.borrow().publishes, 2);

    attachments.delete("va", &DeleteParams::default()).await.unwrap();
    until(&context, "it is detached", |world| !is_attached(world)).await;
    assert_eq!(driver.0.borrow().unpublishes, 1);
    let again = ("handle-pv".to_owned(), "node".to_owned());
    driver.0.send_modify(|state| state.published.extend([again]));
    driver.until("it is unpublished again", |state| state.published.is_empty()).await;
    assert_eq!(driver.0.borrow().unpublishes, 2);
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    attachments.patch("va", &PatchParams::default(), &free).await.unwrap();
    until(&context, "it is gone", |world| world.attachments.is_empty()).await;
    running.abort();
    serving.abort();
}

/// What the change wakes.
fn enqueued(attacher: &Attacher, change: Option<Change>, world: &World) -> Vec<Key> {
    attacher.map_to_keys(&change.unwrap(), world)
}

#[tokio::test]
async fn a_failed_call_is_not_repeated_for_what_does_not_concern_it() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let attacher = attacher(&directory, DriverInfo::new(DRIVER, &[], &[Rpc::PublishUnpublishVolume]));
    let mut world = World::default();
    world.apply(testing::attachment("va", "pv", "node", false));
    let (va, pv) = (|| Key::Attachment("va".into()), || Key::Volume("pv".into()));

    let mut volume = testing::volume("pv", "fast", "1Gi");
    let change = world.apply(volume.clone());
    assert_eq!(enqueued(&attacher, change, &world), [va(), pv()], "it waited for the volume");
    annotate(&mut volume.metadata, "a", "b");
    volume.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    volume.status.get_or_insert_default().phase = Some("Bound".into());
    let change = world.apply(volume);
    assert_eq!(enqueued(&attacher, change, &world), [pv()]);

    let mut node = testing::csi_node("node", None);
    let registered = std::mem::take(&mut node.spec.drivers);
    let change = world.apply(node.clone());
    assert_eq!(enqueued(&attacher, change, &world), [], "another driver's");
    node.spec.drivers = registered;
    let change = world.apply(node.clone());
    assert_eq!(enqueued(&attacher, change, &world), [va()], "it waited for the driver");
    annotate(&mut node.metadata, "a", "b");
    let change = world.apply(node);
    assert_eq!(enqueued(&attacher, change, &world), []);

    let mut failed = testing::attachment("va", "pv", "node", false);
    failed.status.get_or_insert_default().attach_error = Some(Default::default());
    let change = world.apply(failed.clone());
    assert_eq!(enqueued(&attacher, change, &world), [], "the error is its own");
    annotate(&mut failed.metadata, "a", "b");
    let change = world.apply(failed);
    assert_eq!(enqueued(&attacher, change, &world), [va()]);
}

#[test]
fn a_missing_secret_is_reported_in_the_words_of_upstreams_attacher() {
    let (namespace, name) = ("ns".to_owned(), "key".to_owned());
    let error = SecretError::Get { namespace, name, cause: r#"secrets "key" not found"#.into() };
    assert_eq!(error.to_string(), r#"error getting secret key in namespace ns: secrets "key" not found"#);
    assert_eq!(from_secret(error).to_string(), r#"failed to load secret "ns/key": secrets "key" not found"#);
}
