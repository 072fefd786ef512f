//! The phases of a node's volumes with the objects of the embedded API server. The records are those of a mount table.

#![expect(clippy::unwrap_used, reason = "helpers of a test are a test; a panic is its way to fail")]

use std::time::Duration;

use claimcheck_apiserver as apiserver;
use claimcheck_model::{KubeletPath, Stamp};
use claimcheck_node_phases::{Series, follow};
use claimcheck_observe::{Change, Record};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, PersistentVolume, Pod},
    storage::v1::CSIDriver,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::sleep,
};
use tokio_util::task::AbortOnDropHandle;

/// Longer than anything takes, also on a machine that has much else to do.
const LONG: Duration = Duration::from_secs(60);
/// The SHA-256 of the volume handle `abc`: a test vector of FIPS 180-4.
const SHA: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

struct Cluster {
    _server: apiserver::Server,
    client: Client,
}

impl Cluster {
    /// With the node `n1`, a driver, and a volume that is bound to the claim `c`.
    async fn start() -> Self {
        let server = apiserver::start(apiserver::Config::default()).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let post = PostParams::default();
        let namespace: Namespace = object(json!({ "metadata": { "name": "default" } }));
        // There may be one already.
        let _ = Api::all(client.clone()).create(&post, &namespace).await;
        let node: Node = object(json!({ "metadata": { "name": "n1" } }));
        Api::all(client.clone()).create(&post, &node).await.unwrap();
        let driver: CSIDriver =
            object(json!({ "metadata": { "name": "csi.test" }, "spec": { "attachRequired": true } }));
        Api::all(client.clone()).create(&post, &driver).await.unwrap();
        let volume: PersistentVolume = object(json!({
            "metadata": { "name": "pv" },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "storageClassName": "fast",
                "csi": { "driver": "csi.test", "volumeHandle": "abc" },
                "claimRef": { "namespace": "default", "name": "c" },
            },
        }));
        Api::all(client.clone()).create(&post, &volume).await.unwrap();
        Self { _server: server, client }
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// A pod on a node that uses the claim; returns its uid.
    async fn pod(&self, name: &str, node: &str) -> String {
        let pod: Pod = object(json!({
            "metadata": { "name": name },
            "spec": {
                "nodeName": node,
                "containers": [{ "name": "c", "image": "i" }],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }],
            },
        }));
        self.pods().create(&PostParams::default(), &pod).await.unwrap().metadata.uid.unwrap()
    }

    async fn attach(&self) {
        let listed = json!([{ "name": "kubernetes.io/csi/csi.test^abc", "devicePath": "" }]);
        let patch = Patch::Merge(json!({ "status": { "volumesAttached": listed } }));
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch_status("n1", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn complete(&self, pod: &str) {
        let patch = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
        self.pods().patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }
}

fn object<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// A running observer of the node `n1`.
struct Observer {
    series: Series,
    records: UnboundedSender<Record>,
    _task: AbortOnDropHandle<()>,
}

impl Observer {
    /// Starts one, and waits for its first lists.
    async fn start(cluster: &Cluster) -> Self {
        let series = Series::new("claimcheck-canary");
        let (records, received) = unbounded_channel();
        let (client, of_task) = (cluster.client.clone(), series.clone());
        let task = tokio::spawn(async move { follow(client, "n1", received, &of_task).await });
        let observer = Self { series, records, _task: AbortOnDropHandle::new(task) };
        observer.until("the first lists", |_| observer.series.is_synced()).await;
        observer
    }

    fn record(&self, change: Change, place: KubeletPath) {
        let record = Record { at: Stamp::now(), seq: 0, node: "n1".into(), change, place };
        self.records.send(record).unwrap();
    }

    fn stage(&self, change: Change) {
        self.record(change, KubeletPath::Stage { driver: "csi.test".into(), handle_sha256: SHA.into() });
    }

    fn publish(&self, change: Change, pod: &str) {
        self.record(change, KubeletPath::Publish { pod: pod.into(), volume: "pv".into() });
    }

    /// Waits until a condition of the metrics holds.
    async fn until(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let step = Duration::from_millis(20);
        for _ in 0..(LONG.as_millis() / step.as_millis()) {
            if condition(&self.series.text()) {
                return;
            }
            sleep(step).await;
        }
        panic!("{what} is not in\n{}", self.series.text());
    }

    async fn has(&self, phase: &str, result: &str, count: usize) {
        let line = line(phase, result, count);
        self.until(&line, |text| text.contains(&line)).await;
    }

    fn has_none(&self, phase: &str) {
        let text = self.series.text();
        assert!(!text.contains(&format!("phase=\"{phase}\"")), "{text}");
    }
}

fn line(phase: &str, result: &str, count: usize) -> String {
    let name = match result {
        "ok" => "claimcheck_phase_duration_seconds_count",
        _ => "claimcheck_phase_without_duration_total",
    };
    format!(
        "{name}{{cluster_kind=\"existing\",driver_name=\"csi.test\",phase=\"{phase}\",\
         result=\"{result}\",source=\"mount\",storage_class=\"fast\",volume_mode=\"Filesystem\"}} {count}\n"
    )
}

#[tokio::test]
async fn a_life_on_the_node_is_measured_and_one_on_another_node_is_not() {
    let cluster = Cluster::start().await;
    let observer = Observer::start(&cluster).await;
    cluster.pod("elsewhere", "n2").await;
    let pod = cluster.pod("p", "n1").await;
    cluster.attach().await;
    observer.stage(Change::Mounted);
    observer.publish(Change::Mounted, &pod);
    observer.has("stage", "ok", 1).await;
    observer.has("publish", "ok", 1).await;
    cluster.complete("elsewhere").await;
    cluster.complete("p").await;
    observer.publish(Change::Unmounted, &pod);
    observer.has("unpublish", "ok", 1).await;
    observer.stage(Change::Unmounted);
    observer.has("unstage", "ok", 1).await;
    let text = observer.series.text();
    for kind in ["Pod", "Node"] {
        let line = format!("claimcheck_lists_after_start_total{{kind=\"{kind}\"}} 0\n");
        assert!(text.contains(&line), "{text}");
    }
}

/// What was there before it has no duration, and what ends later has one if its start was observed.
#[tokio::test]
async fn a_restarted_observer_adopts_what_exists() {
    let cluster = Cluster::start().await;
    let (old, new) = (cluster.pod("old", "n1").await, cluster.pod("new", "n1").await);
    cluster.attach().await;
    let observer = Observer::start(&cluster).await;
    observer.stage(Change::Found);
    observer.publish(Change::Found, &old);
    // It is mounted now, but was scheduled before the observer started.
    observer.publish(Change::Mounted, &new);
    observer.has("publish", "unobserved", 1).await;
    cluster.complete("old").await;
    observer.publish(Change::Unmounted, &old);
    observer.has("unpublish", "ok", 1).await;
    observer.has_none("stage");
    observer.has_none("unstage");
    assert!(!observer.series.text().contains(&line("publish", "ok", 1)));
}
