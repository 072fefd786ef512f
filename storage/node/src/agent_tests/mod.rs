//! The whole agent against the embedded API server, with a fake driver and runtime that record calls. The test
//! acts as user, binder and attach/detach controller.

mod attach;
pub(crate) mod driver;
mod logs;
mod stale;
mod unlisted;
mod volumes;

use std::{path::PathBuf, sync::Arc, time::Duration};

use claimcheck_csi::{Driver, Endpoint, tap::Tap};
use claimcheck_informer::testing;
use claimcheck_runtime::Exit;
use k8s_openapi::api::{
    core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSINode, VolumeAttachment},
};
use kube::{
    Api, Client, Config as ClientConfig, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::wait::await_condition,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use tonic::Code;

use self::driver::{FakeDriver, Serving};
use crate::{
    agent::{Agent, Config},
    pods::Backoff,
    registrar,
    server::Credentials,
    testing::{DRIVER, FakeHost, FakeRuntime},
};

/// Longer than anything takes on a machine that also compiles.
const LONG: Duration = Duration::from_secs(90);
const NODE: &str = "node-1";

/// A node with a driver, and an API server.
struct Cluster {
    client: Client,
    root: tempfile::TempDir,
    host: FakeHost,
    runtime: FakeRuntime,
    driver: FakeDriver,
    agent: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    controller_attach_detach: bool,
    registrar: Option<oneshot::Sender<()>>,
    _serving: Serving,
    server: claimcheck_apiserver::Server,
}

impl Cluster {
    async fn start() -> Self {
        Self::start_with(true).await
    }

    async fn start_with(controller_attach_detach: bool) -> Self {
        let server = claimcheck_apiserver::start(claimcheck_apiserver::Config::default()).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let config = ClientConfig::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        // Not in TMPDIR, which may be long: the path of a unix socket ends at 108 bytes.
        let root = tempfile::tempdir_in("/tmp").unwrap();
        let host = FakeHost::default();
        let driver = FakeDriver::new(host.clone());
        let serving = driver.serve(&root.path().join("csi.sock"));
        let mut cluster = Self {
            client: Client::try_from(config).unwrap(),
            root,
            host,
            runtime: FakeRuntime::default(),
            driver,
            agent: None,
            controller_attach_detach,
            registrar: None,
            _serving: serving,
            server,
        };
        cluster.start_agent();
        cluster.start_registrar();
        let registered = |node: Option<&CSINode>| node.is_some_and(|node| !node.spec.drivers.is_empty());
        wait(&cluster.all::<CSINode>(), NODE, registered).await;
        cluster
    }

    fn start_agent(&mut self) {
        let dial =
            |socket: &std::path::Path| Driver::new(Endpoint::Unix(socket.to_owned()), Tap::none(), "node");
        let agent = Agent {
            config: Config {
                name: NODE.into(),
                ip: "127.0.0.1".into(),
                root: self.root.path().join("kubelet"),
                controller_attach_detach: self.controller_attach_detach,
                restart_backoff: Backoff::default(),
                pod_images: Vec::new(),
                credentials: Credentials::new(Some(self.server.node_token()), None),
            },
            client: self.client.clone(),
            runtime: Arc::new(self.runtime.clone()),
            host: Arc::new(self.host.clone()),
            dial: Arc::new(dial),
            meter: claimcheck_model::Meter::default(),
        };
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move { agent.run(async { drop(stopped.await) }).await.unwrap() });
        self.agent = Some((stop, running));
    }

    async fn stop_agent(&mut self) {
        let (stop, running) = self.agent.take().unwrap();
        drop(stop);
        running.await.unwrap();
    }

    fn start_registrar(&mut self) {
        let socket = self.root.path().join("csi.sock");
        let registry = self.root.path().join("kubelet/plugins_registry");
        std::fs::create_dir_all(&registry).unwrap();
        let (stop, stopped) = oneshot::channel();
        self.registrar = Some(stop);
        tokio::spawn(async move {
            let driver = Driver::new(Endpoint::Unix(socket.clone()), Tap::none(), "registrar");
            let endpoint = socket.to_string_lossy();
            registrar::serve(&driver, &registry, &endpoint, async { drop(stopped.await) }).await.unwrap();
        });
    }

    fn all<K: Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn namespaced<K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>>(
        &self,
    ) -> Api<K> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// A claim that is bound to a volume of this handle, as the binder leaves them.
    async fn bound_claim(&self, name: &str) {
        let mut claim = testing::claim(name, "", "1Gi");
        let mut volume = testing::volume(&format!("pv-{name}"), "", "1Gi");
        let csi = volume.spec.as_mut().unwrap().csi.as_mut().unwrap();
        csi.driver = DRIVER.into();
        csi.volume_handle = name.into();
        claim.metadata.uid = None;
        let claims: Api<PersistentVolumeClaim> = self.namespaced();
        let created = claims.create(&PostParams::default(), &claim).await.unwrap();
        claim = created.clone();
        testing::bind(&mut claim, &mut volume);
        volume.metadata.uid = None;
        self.all::<PersistentVolume>().create(&PostParams::default(), &volume).await.unwrap();
        let spec = Patch::Merge(json!({"spec": {"volumeName": volume.name_any()}}));
        claims.patch(name, &PatchParams::default(), &spec).await.unwrap();
        let status = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        claims.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }

    /// The volume is attached, as the attacher and the attach/detach controller say it.
    async fn attach(&self, name: &str) {
        let attachment = json!({
            "metadata": {"name": claimcheck_model::attachment_name(name, DRIVER, NODE)},
            "spec": {
                "attacher": DRIVER,
                "nodeName": NODE,
                "source": {"persistentVolumeName": format!("pv-{name}")},
            },
        });
        let attachment: VolumeAttachment = serde_json::from_value(attachment).unwrap();
        let attachments: Api<VolumeAttachment> = self.all();
        attachments.create(&PostParams::default(), &attachment).await.unwrap();
        let attached = json!({"status": {"attached": true, "attachmentMetadata": {"device": "/dev/x"}}});
        let name_of = attachment.name_any();
        attachments.patch_status(&name_of, &PatchParams::default(), &Patch::Merge(attached)).await.unwrap();
        let unique = format!("kubernetes.io/csi/{DRIVER}^{name}");
        let listed = json!({"status": {"volumesAttached": [{"name": unique, "devicePath": ""}]}});
        self.all::<Node>().patch_status(NODE, &PatchParams::default(), &Patch::Merge(listed)).await.unwrap();
    }

    /// Writes to the node's status, and returns once the agent has seen it. Watches of different kinds are not
    /// ordered, so it might see what is written afterwards before this. It contradicts that it is not ready.
    async fn node_status(&self, status: Value) {
        let mut status = json!({"status": status});
        status["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
        let ready = |node: &Node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
            ready.map(|ready| ready.status.clone())
        };
        let nodes = self.all::<Node>();
        let silent = nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        assert_eq!(ready(&silent).as_deref(), Some("Unknown"));
        wait(&nodes, NODE, |node| node.is_some_and(|node| ready(node).as_deref() == Some("True"))).await;
    }

    /// A pod on the node that uses the claim; returns its uid.
    async fn pod(&self, name: &str, claim: &str, restart_policy: &str) -> String {
        let volume = json!({"persistentVolumeClaim": {"claimName": claim}});
        self.pod_of(name, volume, json!({"restartPolicy": restart_policy})).await
    }

    /// A pod on the node with one volume, `v`, and these further fields in its spec; returns its uid.
    async fn pod_of(&self, name: &str, volume: Value, more: Value) -> String {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {
                "nodeName": NODE,
                "terminationGracePeriodSeconds": 5,
                "containers": [{
                    "name": "c", "image": "busybox", "command": ["true"],
                    "volumeMounts": [{"name": "v", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "v"}],
            },
        });
        let spec = pod["spec"].as_object_mut().unwrap();
        spec.extend(more.as_object().unwrap().clone());
        spec["volumes"][0].as_object_mut().unwrap().extend(volume.as_object().unwrap().clone());
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let pod = self.namespaced::<Pod>().create(&PostParams::default(), &pod).await.unwrap();
        pod.metadata.uid.unwrap()
    }

    async fn delete(&self, pod: &str) {
        self.namespaced::<Pod>().delete(pod, &DeleteParams::default()).await.unwrap();
    }

    async fn ready(&self, pod: &str) {
        wait(&self.namespaced::<Pod>(), pod, |pod: Option<&Pod>| condition(pod, "Ready") == Some("True"))
            .await;
    }

    async fn deleted(&self, pod: &str) {
        wait(&self.namespaced::<Pod>(), pod, |pod: Option<&Pod>| pod.is_none()).await;
    }

    async fn in_use(&self, volumes: &[&str]) {
        let expected: Vec<String> =
            volumes.iter().map(|name| format!("kubernetes.io/csi/{DRIVER}^{name}")).collect();
        let is = |node: Option<&Node>| {
            let status = node.and_then(|node| node.status.as_ref());
            status.and_then(|status| status.volumes_in_use.clone()).unwrap_or_default() == expected
        };
        wait(&self.all::<Node>(), NODE, is).await;
    }

    /// The source of the first mount of a pod's container.
    fn source(&self, uid: &str) -> PathBuf {
        self.runtime.spec(&format!("{uid}/c/0")).unwrap().mounts[0].source.clone()
    }

    /// Waits for an event that ends so.
    async fn event(&self, end: &str) {
        let event_found = async {
            while !self.events().await.iter().any(|event| event.ends_with(end)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let event_found = timeout(LONG, event_found).await;
        assert!(event_found.is_ok(), "no event ends with {end:?}: {:?}", self.events().await);
    }

    /// Nothing of any volume or pod is left on the node.
    fn assert_empty(&self) {
        assert_eq!(self.left(), Vec::<PathBuf>::new());
        assert_eq!(self.runtime.running(), Vec::<String>::new());
    }

    /// The same, where the object may go before the agent has cleaned up: that of a pod that has ended is
    /// deleted at once. No object shows the end, so this polls.
    async fn becomes_empty(&self) {
        let emptied = async {
            while !self.left().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(LONG, emptied).await.is_ok(), "left: {:?}", self.left());
        self.assert_empty();
    }

    /// Directories of pods and of staged volumes.
    fn left(&self) -> Vec<PathBuf> {
        let kubelet = self.root.path().join("kubelet");
        let csi = kubelet.join("plugins/kubernetes.io/csi").join(DRIVER);
        let entries = [kubelet.join("pods"), csi].into_iter().filter_map(|dir| std::fs::read_dir(dir).ok());
        entries.flatten().map(|entry| entry.unwrap().path()).collect()
    }

    async fn events(&self) -> Vec<String> {
        let events = self.namespaced::<Event>().list(&ListParams::default()).await.unwrap();
        let text = |event: &Event| {
            format!("{}: {}", event.reason.as_deref().unwrap(), event.message.as_deref().unwrap())
        };
        events.iter().map(text).collect()
    }
}

fn condition<'a>(pod: Option<&'a Pod>, kind: &str) -> Option<&'a str> {
    let conditions = pod?.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.as_str())
}

fn phase(pod: Option<&Pod>) -> Option<&str> {
    pod?.status.as_ref()?.phase.as_deref()
}

async fn wait<K>(api: &Api<K>, name: &str, condition: impl Fn(Option<&K>) -> bool)
where
    K: Clone + std::fmt::Debug + Send + DeserializeOwned + Resource + 'static,
{
    let met = timeout(LONG, await_condition(api.clone(), name, condition)).await;
    if !matches!(met, Ok(Ok(_))) {
        panic!("timed out waiting for {name}: {:#?}", api.get_opt(name).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_life_cycle_calls_the_driver_once_each() {
    let cluster = Cluster::start().await;
    cluster.bound_claim("a").await;
    let uid = cluster.pod("p", "a", "Always").await;
    cluster.in_use(&["a"]).await;
    assert_eq!(cluster.driver.calls(), Vec::<String>::new(), "nothing is mounted before it is attached");
    cluster.attach("a").await;
    cluster.ready("p").await;
    let spec = cluster.runtime.spec(&format!("{uid}/c/0")).unwrap();
    assert!(spec.mounts[0].source.ends_with(format!("pods/{uid}/volumes/kubernetes.io~csi/pv-a/mount")));
    assert_eq!((spec.mounts[0].target.as_str(), spec.argv.as_slice()), ("/data", &["true".to_owned()][..]));
    let context = cluster.driver.staged()[0].publish_context.clone();
    assert_eq!(context, [("device".to_owned(), "/dev/x".to_owned())].into(), "what attaching gave");

    cluster.delete("p").await;
    cluster.deleted("p").await;
    cluster.in_use(&[]).await;
    assert_eq!(
        cluster.driver.calls(),
        ["Stage a".into(), format!("Publish a {uid}"), format!("Unpublish a {uid}"), "Unstage a".into()]
    );
    cluster.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_share_one_stage() {
    let cluster = Cluster::start().await;
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    let one = cluster.pod("one", "a", "Always").await;
    cluster.ready("one").await;
    let two = cluster.pod("two", "a", "Always").await;
    cluster.ready("two").await;
    cluster.delete("one").await;
    cluster.deleted("one").await;
    cluster.delete("two").await;
    let calls = cluster.driver.wait(6).await;
    cluster.in_use(&[]).await;
    assert_eq!(
        calls,
        [
            "Stage a".into(),
            format!("Publish a {one}"),
            format!("Publish a {two}"),
            format!("Unpublish a {one}"),
            format!("Unpublish a {two}"),
            "Unstage a".into()
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_takes_over_and_cleans_up_after_pods_that_went() {
    let mut cluster = Cluster::start().await;
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    let uid = cluster.pod("p", "a", "Always").await;
    cluster.ready("p").await;
    let before = cluster.namespaced::<Pod>().get("p").await.unwrap();

    cluster.stop_agent().await;
    cluster.start_agent();
    // A second pod shows that the new agent works; the first is as it was.
    let other = cluster.pod("other", "a", "Always").await;
    cluster.ready("other").await;
    // A mount does not show that what follows it was done, too.
    let mut calls = cluster.driver.wait(5).await;
    assert_eq!(calls[2], "Stage a");
    calls[3..].sort();
    let mut published = [format!("Publish a {uid}"), format!("Publish a {other}")];
    published.sort();
    assert_eq!(calls[3..], published);
    let after = cluster.namespaced::<Pod>().get("p").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "nothing had to be said");
    cluster.delete("other").await;
    cluster.deleted("other").await;

    cluster.stop_agent().await;
    let force = DeleteParams::default().grace_period(0);
    cluster.namespaced::<Pod>().delete("p", &force).await.unwrap();
    cluster.start_agent();
    let calls = cluster.driver.wait(8).await;
    cluster.in_use(&[]).await;
    assert_eq!(calls[6..], [format!("Unpublish a {uid}"), "Unstage a".into()]);
    assert_eq!(cluster.runtime.running(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_emit_events_and_are_retried() {
    let cluster = Cluster::start().await;
    cluster.driver.fail("Stage", Code::Internal);
    cluster.driver.fail("Publish", Code::Unavailable);
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    cluster.pod("p", "a", "Always").await;
    cluster.ready("p").await;
    let methods: Vec<String> =
        cluster.driver.calls().iter().filter_map(|call| call.split(' ').next().map(str::to_owned)).collect();
    assert_eq!(methods, ["Stage", "Stage", "Publish", "Publish"]);
    let events = cluster.events().await;
    for (operation, code) in [("MountVolume.MountDevice", "Internal"), ("MountVolume.SetUp", "Unavailable")] {
        let error = format!("rpc error: code = {code} desc = injected failure");
        let expected = format!("FailedMount: {operation} failed for volume \"pv-a\" : {error}");
        assert!(events.contains(&expected), "{expected} is not in {events:?}");
    }
}

/// The calls for a pod that is deleted while its volume cannot be staged.
async fn calls_after_a_failed_stage(code: Code) -> Vec<String> {
    let cluster = Cluster::start().await;
    cluster.driver.fail("Stage", code);
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    cluster.pod("p", "a", "Always").await;
    cluster.driver.wait(1).await;
    cluster.delete("p").await;
    cluster.deleted("p").await;
    cluster.in_use(&[]).await;
    cluster.assert_empty();
    cluster.driver.calls()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncertain_stage_is_undone_and_a_failed_one_is_not() {
    assert_eq!(calls_after_a_failed_stage(Code::DeadlineExceeded).await, ["Stage a", "Unstage a"]);
    assert_eq!(calls_after_a_failed_stage(Code::InvalidArgument).await, ["Stage a"]);
}

/// The calls for a pod that is deleted while its volume cannot be published.
async fn calls_after_a_failed_publish(fail: impl FnOnce(&FakeDriver)) -> Vec<String> {
    let cluster = Cluster::start().await;
    fail(&cluster.driver);
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    cluster.pod("p", "a", "Always").await;
    cluster.driver.wait(2).await;
    cluster.delete("p").await;
    cluster.deleted("p").await;
    cluster.in_use(&[]).await;
    cluster.assert_empty();
    let methods = cluster.driver.calls().into_iter();
    methods.filter_map(|call| call.split(' ').next().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncertain_publish_is_undone_and_a_failed_one_is_not() {
    let undone = ["Stage", "Publish", "Unpublish", "Unstage"];
    for code in [Code::DeadlineExceeded, Code::Aborted] {
        assert_eq!(calls_after_a_failed_publish(|driver| driver.fail("Publish", code)).await, undone);
    }
    // Its response was ambiguous, and the call had succeeded.
    let late = |driver: &FakeDriver| driver.fail_late("Publish", Code::Unavailable);
    assert_eq!(calls_after_a_failed_publish(late).await, undone);
    let failed = calls_after_a_failed_publish(|driver| driver.fail("Publish", Code::Internal)).await;
    assert_eq!(failed, ["Stage", "Publish", "Unstage"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unmount_that_fails_is_done_again() {
    let cluster = Cluster::start().await;
    cluster.driver.fail("Unpublish", Code::Internal);
    cluster.driver.fail_late("Unstage", Code::DeadlineExceeded);
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    cluster.pod("p", "a", "Always").await;
    cluster.ready("p").await;
    cluster.delete("p").await;
    cluster.deleted("p").await;
    cluster.in_use(&[]).await;
    cluster.assert_empty();
    let calls = cluster.driver.calls().into_iter();
    let methods: Vec<String> = calls.filter_map(|call| call.split(' ').next().map(str::to_owned)).collect();
    assert_eq!(methods, ["Stage", "Publish", "Unpublish", "Unpublish", "Unstage", "Unstage"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unmount_is_done_again_though_another_pod_waits_for_the_volume() {
    let cluster = Cluster::start().await;
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    let one = cluster.pod("one", "a", "Always").await;
    cluster.ready("one").await;
    cluster.node_status(json!({"volumesAttached": null})).await;
    cluster.pod("two", "a", "Always").await;
    // Said once it has waited for a while, so it is known to the agent.
    let waits = |pod: Option<&Pod>| condition(pod, "Ready") == Some("False");
    wait(&cluster.namespaced::<Pod>(), "two", waits).await;
    cluster.driver.fail("Unpublish", Code::Internal);
    cluster.delete("one").await;
    let calls = cluster.driver.wait(4).await;
    assert_eq!(calls[2..], [format!("Unpublish a {one}"), format!("Unpublish a {one}")]);
    cluster.deleted("one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_pod_has_a_message_and_its_volume_is_unmounted() {
    let cluster = Cluster::start().await;
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    let uid = cluster.pod("p", "a", "Never").await;
    cluster.ready("p").await;
    let id = format!("{uid}/c/0");
    let message = cluster.runtime.spec(&id).unwrap().mounts.pop().unwrap();
    assert_eq!(message.target, "/dev/termination-log");
    std::fs::write(&message.source, "well done").unwrap();
    cluster.runtime.end(&id, Exit::Code(0));
    wait(&cluster.namespaced::<Pod>(), "p", |pod: Option<&Pod>| phase(pod) == Some("Succeeded")).await;
    let status = cluster.namespaced::<Pod>().get("p").await.unwrap().status.unwrap();
    let state: Value = serde_json::to_value(&status.container_statuses.unwrap()[0].state).unwrap();
    assert_eq!(
        (&state["terminated"]["message"], &state["terminated"]["exitCode"]),
        (&json!("well done"), &json!(0))
    );
    cluster.driver.wait(4).await;
    cluster.in_use(&[]).await;
    cluster.delete("p").await;
    cluster.deleted("p").await;
    cluster.becomes_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_is_registered_and_removed_with_its_socket() {
    let mut cluster = Cluster::start().await;
    let csi_node = cluster.all::<CSINode>().get(NODE).await.unwrap();
    let entry = &csi_node.spec.drivers[0];
    assert_eq!((entry.name.as_str(), entry.node_id.as_str()), (DRIVER, "node-id"));
    assert_eq!(entry.allocatable.as_ref().and_then(|limit| limit.count), Some(7));
    let node = cluster.all::<Node>().get(NODE).await.unwrap();
    assert_eq!(node.labels().get("topology.test/zone").map(String::as_str), Some("a"));

    drop(cluster.registrar.take());
    let no_driver = |node: Option<&CSINode>| node.is_some_and(|node| node.spec.drivers.is_empty());
    wait(&cluster.all::<CSINode>(), NODE, no_driver).await;
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    cluster.pod("p", "a", "Always").await;
    // It reports what it waits for, and continues by itself.
    wait(&cluster.namespaced::<Pod>(), "p", |pod: Option<&Pod>| condition(pod, "Ready") == Some("False"))
        .await;
    cluster.start_registrar();
    cluster.ready("p").await;
    let missing = format!("driver name {DRIVER} not found in the list of registered CSI drivers");
    assert!(cluster.events().await.iter().any(|event| event.ends_with(&missing)));
}
