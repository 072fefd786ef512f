//! The manager alone, with its time under the test's control: timing and events.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use claimcheck_csi::{Driver, Endpoint, tap::Tap};
use claimcheck_informer::{Cached, EventRecorder, Informer, Kind, KindSet, Options, testing};
use k8s_openapi::api::{
    core::v1::{AttachedVolume, Event, PersistentVolumeSpec, Pod, SecretReference},
    storage::v1::{CSIDriver, CSINode, VolumeError},
};
use kube::{
    Client, Config, ResourceExt,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use tokio::sync::mpsc;
use tonic::Code;

use super::*;
use crate::{
    actual::Actual,
    agent_tests::driver::{FakeDriver, Serving},
    drivers::{NodeCapabilities, RegisteredDriver},
    layout::Layout,
    operations::Executor,
    pods::Eviction,
    populator::uid_of,
    reconciler::{InUse, Start},
    registration::{DriverInfo, NodeInfo},
    testing::{DRIVER, FakeHost},
};

/// Longer than anything takes on a machine that also compiles.
const LONG: Duration = Duration::from_secs(90);

struct Shell {
    manager: VolumeManager<FakeHost>,
    notices: mpsc::UnboundedReceiver<Notice>,
    recorder: EventRecorder,
    client: Client,
    root: tempfile::TempDir,
    host: FakeHost,
    _server: claimcheck_apiserver::Server,
}

impl Shell {
    /// A manager without watches: the test sets its objects.
    async fn start() -> Self {
        let server = claimcheck_apiserver::start(claimcheck_apiserver::Config::default()).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        let client = Client::try_from(config).unwrap();
        // Not in TMPDIR, which may be long: the path of a unix socket ends at 108 bytes.
        let root = tempfile::tempdir_in("/tmp").unwrap();
        let informer = Informer::start(client.clone(), KindSet::of(&[]), &Options::default());
        let recorder = EventRecorder::new(client.clone(), "kubelet");
        let host = FakeHost::default();
        let executor = Executor {
            layout: Layout::new(root.path().join("kubelet")),
            host: Arc::new(host.clone()),
            client: client.clone(),
            informer,
            recorder: recorder.clone(),
            node: "n".into(),
            meter: claimcheck_model::Meter::default(),
        };
        let (sender, notices) = mpsc::unbounded_channel();
        let start = Start {
            actual: Actual::default(),
            in_use: InUse::default(),
            controller_attaches: true,
            node_info: Arc::new(NodeInfo::new(client.clone(), "n")),
        };
        let manager = VolumeManager::new(executor, sender, start);
        Self { manager, notices, recorder, client, root, host, _server: server }
    }

    /// The API server does not have the object, and nothing that it lists removes one of such a version.
    fn apply<K: claimcheck_informer::Watchable + Cached>(&self, mut object: K) {
        static VERSION: AtomicU64 = AtomicU64::new(1 << 40);
        object.meta_mut().resource_version = Some(VERSION.fetch_add(1, Ordering::Relaxed).to_string());
        self.manager.informer.apply(object);
    }

    /// A claim `bound` of a volume `pv`.
    fn bound_claim(&self) {
        self.bound_claim_with(|_| {});
    }

    /// The same, with a change of the volume's spec.
    fn bound_claim_with(&self, change: impl FnOnce(&mut PersistentVolumeSpec)) {
        let (mut claim, mut volume) = (testing::claim("bound", "", "1Gi"), testing::volume("pv", "", "1Gi"));
        change(volume.spec.as_mut().unwrap());
        testing::bind(&mut claim, &mut volume);
        self.apply(claim);
        self.apply(volume);
    }

    /// A pod with a container that mounts all of these volumes.
    fn pod(&self, volumes: Value) -> Pod {
        let mut pod = testing::pod("p", "n", &[]);
        let names = volumes.as_array().unwrap().iter().map(|volume| volume["name"].clone());
        let mounts: Vec<Value> = names.map(|name| json!({"name": name, "mountPath": "/x"})).collect();
        let spec = json!({
            "nodeName": "n", "volumes": volumes, "containers": [{"name": "c", "volumeMounts": mounts}],
        });
        pod.spec = serde_json::from_value(spec).unwrap();
        self.apply(pod.clone());
        pod
    }

    /// A driver that wants to be treated so, and stages nothing.
    fn driver(&mut self, spec: Value) -> (FakeDriver, Serving) {
        let driver = FakeDriver::new(self.host.clone());
        let socket = self.root.path().join("csi.sock");
        let serving = driver.serve(&socket);
        let object = json!({"metadata": {"name": DRIVER}, "spec": spec});
        self.apply::<CSIDriver>(serde_json::from_value(object).unwrap());
        self.manager.driver_registered(RegisteredDriver {
            driver: Driver::new(Endpoint::Unix(socket), Tap::none(), "node"),
            info: DriverInfo {
                name: DRIVER.into(),
                node_id: "n".into(),
                topology: BTreeMap::new(),
                max_volumes: 0,
            },
            capabilities: NodeCapabilities::default(),
        });
        (driver, serving)
    }

    /// Settles until nothing is under way.
    async fn settle(&mut self, now: Moment) -> Option<Moment> {
        loop {
            let (_, wake) = self.manager.settle(now);
            if !self.manager.actual.iter().any(|(_, volume)| volume.running.is_some()) {
                return wake;
            }
            self.take_notice(now).await;
        }
    }

    async fn take_notice(&mut self, now: Moment) {
        let notice = tokio::time::timeout(LONG, self.notices.recv()).await.unwrap().unwrap();
        self.manager.notice(notice, now);
    }

    async fn events(&self) -> Vec<String> {
        self.recorder.flush().await;
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        let text =
            |event: &Event| format!("{}: {}", event.reason.clone().unwrap(), event.message.clone().unwrap());
        events.iter().map(text).collect()
    }
}

fn claimed(name: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
}

fn directory(name: &str, path: &Path) -> Value {
    json!({"name": name, "hostPath": {"path": path, "type": "Directory"}})
}

#[tokio::test]
async fn a_failure_is_tried_again_after_exactly_the_backoff() {
    let mut shell = Shell::start().await;
    let path = shell.root.path().join("none");
    let pod = shell.pod(json!([directory("v", &path)]));
    let mut now = Duration::from_secs(7);
    shell.manager.want(&pod, now);
    for seconds in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0] {
        shell.settle(now).await;
        let delay = Duration::from_secs_f64(seconds);
        assert_eq!(shell.manager.timers.values().copied().collect::<Vec<_>>(), [now + delay]);
        // Not a moment earlier.
        shell.settle(now + delay - Duration::from_millis(1)).await;
        assert_eq!(shell.manager.timers.len(), 1);
        now += delay;
    }
    std::fs::create_dir(&path).unwrap();
    shell.settle(now).await;
    assert!(shell.manager.volumes(&uid_of(&pod)).ready);
    assert_eq!(shell.manager.timers, BTreeMap::new());
    let failed = format!("hostPath type check failed: {} is not a directory", path.display());
    let failed = format!("FailedMount: MountVolume.SetUp failed for volume \"v\" : {failed}");
    let events = shell.events().await;
    assert_eq!(events.iter().filter(|event| **event == failed).count(), 1, "once, then counted: {events:?}");
}

#[tokio::test]
async fn what_the_node_is_to_attach_is_rejected_whatever_the_api_reports() {
    let mut shell = Shell::start().await;
    shell.manager.controller_attaches = false;
    shell.bound_claim();
    let key = VolumeKey::csi(testing::DRIVER, "handle-pv");
    let mut node = testing::node("n");
    let attached = AttachedVolume { name: key.to_string(), ..AttachedVolume::default() };
    node.status.get_or_insert_default().volumes_attached = Some(vec![attached]);
    shell.apply(node);
    let name = claimcheck_model::attachment_name("handle-pv", testing::DRIVER, "n");
    shell.apply(testing::attachment(&name, "pv", "n", true));

    let pod = shell.pod(json!([claimed("bound")]));
    let mut now = Duration::from_secs(7);
    shell.manager.want(&pod, now);
    for seconds in [0.5, 1.0, 2.0] {
        shell.settle(now).await;
        let delay = Duration::from_secs_f64(seconds);
        assert_eq!(shell.manager.timers.values().copied().collect::<Vec<_>>(), [now + delay]);
        now += delay;
    }
    let refused =
        "AttachVolume.Attach failed for volume \"pv\" : attaching volumes from the kubelet is not supported";
    assert_eq!(shell.events().await, [format!("FailedAttachVolume: {refused}")], "one event for all");
    shell.manager.controller_attaches = true;
    assert!(shell.manager.publish_context(&key).is_some(), "the controller has attached it");
}

#[tokio::test]
async fn a_volume_for_one_pod_is_not_published_in_a_second_one() {
    let mut shell = Shell::start().await;
    let (_driver, _serving) = shell.driver(json!({"attachRequired": false}));
    shell.bound_claim_with(|volume| {
        volume.csi.as_mut().unwrap().driver = DRIVER.into();
        volume.access_modes = Some(vec!["ReadWriteOncePod".into()]);
    });
    let first = shell.pod(json!([claimed("bound")]));
    let now = Duration::from_secs(7);
    shell.manager.want(&first, now);
    shell.settle(now).await;
    assert!(shell.manager.volumes(&uid_of(&first)).ready);

    let mut second = first.clone();
    second.metadata.name = Some("q".into());
    second.metadata.uid = Some("uid-q".into());
    shell.apply(second.clone());
    shell.manager.want(&second, now);
    shell.settle(now).await;
    assert!(!shell.manager.volumes(&uid_of(&second)).ready);
    let refused = "FailedMount: MountVolume.SetUp failed for volume \"pv\" : volume uses the ReadWriteOncePod access \
                   mode and is already in use by another pod";
    assert_eq!(shell.events().await, [refused]);

    shell.manager.release(&uid_of(&first));
    shell.settle(now + Duration::from_secs(1)).await;
    shell.settle(now + Duration::from_secs(3)).await;
    assert!(shell.manager.volumes(&uid_of(&second)).ready);
}

#[tokio::test]
async fn a_pod_that_waits_for_long_gets_an_event() {
    let mut shell = Shell::start().await;
    shell.bound_claim();
    let path = shell.root.path().join("none");
    let empty = json!({"name": "empty", "emptyDir": {}});
    let pod = shell.pod(json!([claimed("none"), claimed("bound"), directory("dir", &path), empty]));
    let start = Duration::from_secs(7);
    shell.manager.want(&pod, start);
    let wake = shell.settle(start).await;
    assert_eq!(wake, Some(start + Duration::from_millis(500)), "the backoff comes first");
    let late = "Unable to attach or mount volumes: unmounted volumes=[bound dir none], \
                unattached volumes=[bound], failed to process volumes=[none]: \
                timed out waiting for the condition";
    let late = format!("FailedMount: {late}");
    shell.settle(start + Duration::from_secs(122)).await;
    assert!(!shell.events().await.contains(&late));
    shell.settle(start + Duration::from_secs(123)).await;
    assert!(shell.events().await.contains(&late), "{:?}", shell.events().await);
    shell.manager.release(&uid_of(&pod));
    shell.settle(start + Duration::from_secs(124)).await;
    assert_eq!(shell.manager.waits.len(), 0, "{}", pod.name_any());
}

#[tokio::test]
async fn a_directory_that_outgrows_its_limit_evicts_its_pod() {
    let mut shell = Shell::start().await;
    let pod = shell.pod(json!([{"name": "v", "emptyDir": {"sizeLimit": "512Ki"}}]));
    let uid = uid_of(&pod);
    let mut now = Duration::from_secs(7);
    shell.manager.want(&pod, now);
    let wake = shell.settle(now).await;
    assert_eq!(wake, Some(now + Duration::from_secs(10)), "it is measured, and not often");
    let path = shell.manager.mounted_at(&uid, "v").unwrap().path;
    for (size, expected) in [(1 << 10, None), (1 << 20, Some("512Ki"))] {
        std::fs::write(path.join("f"), vec![1; size]).unwrap();
        now += Duration::from_secs(10);
        shell.manager.settle(now);
        shell.take_notice(now).await;
        let message =
            expected.map(|limit| format!("Usage of EmptyDir volume \"v\" exceeds the limit {limit:?}. "));
        assert_eq!(shell.manager.evictions().remove(&uid), message.map(Eviction::OverLimit));
    }
    shell.manager.release(&uid);
    assert_eq!(shell.settle(now).await, None);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_driver_with_requires_republish_is_called_again() {
    let mut shell = Shell::start().await;
    let modes = json!({"volumeLifecycleModes": ["Ephemeral"], "requiresRepublish": true});
    let (driver, _serving) = shell.driver(modes);
    let pod = shell.pod(json!([{"name": "v", "csi": {"driver": DRIVER}}]));
    let uid = uid_of(&pod);
    let mut now = Duration::from_secs(7);
    shell.manager.want(&pod, now);
    assert_eq!(shell.settle(now).await, Some(now + REPUBLISH));
    for published in 2..4 {
        now += REPUBLISH;
        shell.settle(now).await;
        assert_eq!(driver.published().len(), published);
    }
    // Also when the pod changes.
    let mut changes = shell.manager.informer.subscribe(KindSet::of(&[Kind::Pod]));
    let mut labelled = pod.clone();
    labelled.metadata.labels = Some([("app".to_owned(), "shop".to_owned())].into());
    shell.apply(labelled);
    while let Ok(change) = changes.try_recv() {
        shell.manager.changed(&change);
    }
    shell.settle(now).await;
    assert_eq!(driver.published().len(), 4);
    // What is mounted stays so, however the driver answers.
    driver.fail("Publish", Code::Internal);
    now += REPUBLISH;
    shell.settle(now).await;
    assert!(shell.manager.volumes(&uid).ready);
    shell.manager.release(&uid);
    assert_eq!(shell.settle(now).await, None);
    assert_eq!(driver.calls().last().map(|call| call.starts_with("Unpublish")), Some(true));
}

#[tokio::test]
async fn one_object_is_watched_as_long_as_a_volume_uses_it() {
    let mut shell = Shell::start().await;
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "1"}});
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(shell.client.clone(), "default");
    maps.create(&Default::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let volume = |name: &str| json!({"name": name, "configMap": {"name": "m"}});
    let pod = shell.pod(json!([volume("one"), volume("two")]));
    let now = Duration::from_secs(7);
    shell.manager.want(&pod, now);
    shell.settle(now).await;
    assert!(!shell.manager.volumes(&uid_of(&pod)).ready, "nothing is known of it yet");
    shell.take_notice(now).await;
    shell.settle(now).await;
    assert!(shell.manager.volumes(&uid_of(&pod)).ready, "one answer is for both");
    let path = shell.manager.mounted_at(&uid_of(&pod), "two").unwrap().path;
    assert_eq!(std::fs::read(path.join("a")).unwrap(), b"1");
    shell.manager.release(&uid_of(&pod));
    shell.settle(now).await;
    assert!(!path.exists());
    assert!(shell.manager.objects.is_empty());
}

#[tokio::test]
async fn the_limit_in_csinode_follows_the_driver() {
    let mut shell = Shell::start().await;
    let (driver, _serving) = shell.driver(json!({"nodeAllocatableUpdatePeriodSeconds": 10}));
    let registered = json!({
        "name": DRIVER, "nodeID": "node-id", "topologyKeys": ["topology.test/zone"], "allocatable": {"count": 7},
    });
    let csi_node = json!({"metadata": {"name": "n"}, "spec": {"drivers": [registered]}});
    let csi_nodes: Api<CSINode> = Api::all(shell.client.clone());
    csi_nodes.create(&PostParams::default(), &serde_json::from_value(csi_node).unwrap()).await.unwrap();
    let (start, period) = (Duration::from_secs(7), Duration::from_secs(10));
    assert_eq!(shell.settle(start).await, Some(start + period));
    driver.set_limit(3);
    assert_eq!(shell.settle(start + period).await, Some(start + 2 * period));
    shell.take_notice(start + period).await;
    let csi_node = csi_nodes.get("n").await.unwrap();
    assert_eq!(csi_node.spec.drivers[0].allocatable.as_ref().and_then(|limit| limit.count), Some(3));
    shell.manager.driver_unregistered(DRIVER);
    assert_eq!(shell.settle(start + 2 * period).await, None);
}

#[tokio::test]
async fn a_pod_is_rejected_once_it_has_waited_for_a_full_node() {
    // (the driver's period, whether the pod is rejected)
    for (period, rejected) in [(None, false), (Some(60), true)] {
        let mut shell = Shell::start().await;
        let (_driver, _serving) = shell.driver(json!({"nodeAllocatableUpdatePeriodSeconds": period}));
        shell.bound_claim_with(|volume| volume.csi.as_mut().unwrap().driver = DRIVER.into());
        let name = claimcheck_model::attachment_name("handle-pv", DRIVER, "n");
        let mut attachment = testing::attachment(&name, "pv", "n", false);
        let full = VolumeError { error_code: Some(Code::ResourceExhausted as i32), ..VolumeError::default() };
        attachment.status.as_mut().unwrap().attach_error = Some(full);
        shell.apply(attachment);
        let pod = shell.pod(json!([claimed("bound")]));
        let start = Duration::from_secs(7);
        shell.manager.want(&pod, start);
        shell.settle(start + Duration::from_secs(122)).await;
        assert_eq!(shell.manager.evictions(), BTreeMap::new());
        shell.settle(start + Duration::from_secs(123)).await;
        let missing = "unmounted volumes=[bound], unattached volumes=[bound], failed to process volumes=[]";
        let message = format!(
            "Node has reached its volume attachment limit, rejecting pod. {missing}: context deadline exceeded"
        );
        let expected = rejected.then_some(Eviction::AttachLimit(message));
        assert_eq!(shell.manager.evictions().remove(&uid_of(&pod)), expected);
        let late = format!(
            "FailedMount: Unable to attach or mount volumes: {missing}: timed out waiting for the condition"
        );
        assert_eq!(shell.events().await.contains(&late), !rejected);
    }
}

#[tokio::test]
async fn a_driver_without_staging_needs_no_secret_for_it() {
    let mut shell = Shell::start().await;
    let (driver, _serving) = shell.driver(json!({"attachRequired": false}));
    shell.bound_claim_with(|volume| {
        let csi = volume.csi.as_mut().unwrap();
        csi.driver = DRIVER.into();
        let missing = SecretReference { name: Some("missing".into()), namespace: Some("default".into()) };
        csi.node_stage_secret_ref = Some(missing);
    });
    let pod = shell.pod(json!([claimed("bound")]));
    let now = Duration::from_secs(7);
    shell.manager.want(&pod, now);
    shell.settle(now).await;
    assert!(shell.manager.volumes(&uid_of(&pod)).ready, "{:?}", shell.events().await);
    assert_eq!(driver.published()[0].staging_target_path, "");
}

#[tokio::test]
async fn a_block_volume_gets_its_staging_path_and_no_tokens() {
    let mut shell = Shell::start().await;
    let spec = json!({"attachRequired": false, "tokenRequests": [{"audience": "vault"}]});
    let (driver, _serving) = shell.driver(spec);
    shell.bound_claim_with(|volume| {
        volume.csi.as_mut().unwrap().driver = DRIVER.into();
        volume.volume_mode = Some("Block".into());
    });
    let mut pod = shell.pod(json!([claimed("bound")]));
    let container = &mut pod.spec.as_mut().unwrap().containers[0];
    container.volume_mounts = None;
    let device = json!([{"name": "bound", "devicePath": "/dev/x"}]);
    container.volume_devices = serde_json::from_value(device).unwrap();
    shell.apply(pod.clone());
    let now = Duration::from_secs(7);
    shell.manager.want(&pod, now);
    shell.settle(now).await;
    assert!(shell.manager.volumes(&uid_of(&pod)).ready, "{:?}", shell.events().await);
    let published = driver.published().pop().unwrap();
    let staging = shell.root.path().join("kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/pv");
    assert_eq!(Path::new(&published.staging_target_path), staging);
    assert!(published.volume_context.is_empty() && published.secrets.is_empty());
}
