//! The manager alone, with its time under the test's control: timing and events.

use std::{path::Path, sync::Arc};

use claimcheck_csi::{Driver, Endpoint, tap::Tap};
use claimcheck_informer::{Cached, EventRecorder, Informer, KindSet, Options, testing};
use k8s_openapi::api::{
    core::v1::{AttachedVolume, Event, Pod},
    storage::v1::CSIDriver,
};
use kube::{
    Client, Config, ResourceExt,
    api::ListParams,
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
    layout::{Layout, attachment_name},
    operations::Executor,
    populator::uid_of,
    reconciler::{InUse, Start},
    registration::DriverInfo,
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
            node: "n".into(),
            meter: claimcheck_model::Meter::default(),
        };
        let (sender, notices) = mpsc::unbounded_channel();
        let start = Start { actual: Actual::default(), in_use: InUse::default(), controller_attaches: true };
        let manager = VolumeManager::new(executor, recorder.clone(), sender, start);
        Self { manager, notices, recorder, client, root, host, _server: server }
    }

    fn tell<K: claimcheck_informer::Watchable + Cached>(&self, object: K) {
        self.manager.informer.apply(object);
    }

    /// A claim `bound` of a volume `pv`.
    fn bound_claim(&self) {
        let (mut claim, mut volume) = (testing::claim("bound", "", "1Gi"), testing::volume("pv", "", "1Gi"));
        testing::bind(&mut claim, &mut volume);
        self.tell(claim);
        self.tell(volume);
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
        self.tell(pod.clone());
        pod
    }

    /// A driver that wants to be treated so, and stages nothing.
    fn driver(&mut self, spec: Value) -> (FakeDriver, Serving) {
        let driver = FakeDriver::new(self.host.clone());
        let socket = self.root.path().join("csi.sock");
        let serving = driver.serve(&socket);
        let object = json!({"metadata": {"name": DRIVER}, "spec": spec});
        self.tell::<CSIDriver>(serde_json::from_value(object).unwrap());
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
    let told = shell.events().await;
    assert_eq!(told.iter().filter(|event| **event == failed).count(), 1, "once, then counted: {told:?}");
}

#[tokio::test]
async fn what_the_node_is_to_attach_is_refused_whatever_the_api_says() {
    let mut shell = Shell::start().await;
    shell.manager.controller_attaches = false;
    shell.bound_claim();
    let key = VolumeKey::csi(testing::DRIVER, "handle-pv");
    let mut node = testing::node("n");
    let attached = AttachedVolume { name: key.to_string(), ..AttachedVolume::default() };
    node.status.get_or_insert_default().volumes_attached = Some(vec![attached]);
    shell.tell(node);
    let name = attachment_name("handle-pv", testing::DRIVER, "n");
    shell.tell(testing::attachment(&name, "pv", "n", true));

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
async fn a_pod_that_waits_for_long_is_told_of() {
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
    assert_eq!(shell.manager.patience.len(), 0, "{}", pod.name_any());
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
        assert_eq!(shell.manager.evictions().remove(&uid), message);
    }
    shell.manager.release(&uid);
    assert_eq!(shell.settle(now).await, None);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_driver_that_asks_for_it_is_called_again() {
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
