//! A whole kind cluster for a run: with a fake `kind` for nodes, and the embedded API server.

use std::fs;

use claimcheck_apiserver as apiserver;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::Node,
    storage::v1::CSINode,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    OnKindError,
    nodes::KindEnvironment,
    nodes_tests::{environment, options},
    with_faults,
};
use crate::{
    Cluster, ClusterCapabilities, Disruption, Victim,
    real_nodes::components::{COMPONENTS, InstallComponentsError},
};
use claimcheck_deploy::install::{self, Variant};
use claimcheck_kind::testing::Fake;

const DRIVER: &str = "claimcheck.csi.dev";

/// An API server, and a fake `kind` that returns its kubeconfig.
pub(crate) struct Machine {
    pub fake: Fake,
    pub client: Client,
    _server: apiserver::Server,
}

impl Machine {
    pub async fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = apiserver::start(apiserver::Config::default()).await.unwrap();
        let fake = Fake::new();
        fs::write(fake.path("served"), server.kubeconfig()).unwrap();
        fake.rule(
            "kind create",
            "echo 'claimcheck-a-worker|claimcheck-a|Up 1 second|ours' >>\"$FAKE/containers\"\n\
             cp \"$FAKE/served\" \"$(after --kubeconfig \"$@\")\"; exit 0",
        );
        let client = claimcheck_component::client::client(&server.kubeconfig()).await.unwrap();
        Self { fake, client, _server: server }
    }

    /// Creates a kind cluster with these components.
    async fn up(&self, components: &install::Options) -> Result<Cluster, OnKindError> {
        let environment = KindEnvironment { images: Vec::new(), ..environment(&self.fake) };
        Cluster::on_kind(&options(), &environment, components).await
    }

    /// A node as created by kind, with the driver that its kubelet has registered.
    pub async fn node(&self, name: &str, taints: Value, driver: bool) {
        let drivers =
            if driver { json!([{ "name": DRIVER, "nodeID": name, "topologyKeys": [] }]) } else { json!([]) };
        let node = json!({ "metadata": { "name": name }, "spec": { "taints": taints } });
        let node: Node = serde_json::from_value(node).unwrap();
        let csi_node = json!({ "metadata": { "name": name }, "spec": { "drivers": drivers } });
        let csi_node: CSINode = serde_json::from_value(csi_node).unwrap();
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &csi_node).await.unwrap();
    }

    /// The status that the cluster's controllers report for running workloads; the components were applied before, so
    /// that a second time changes nothing.
    pub async fn complete(&self, components: &install::Options) {
        install::apply(&self.client, components).await.unwrap();
        let running = json!({ "status": {
            "observedGeneration": 1, "currentNumberScheduled": 2, "desiredNumberScheduled": 2,
            "numberMisscheduled": 0, "numberReady": 2, "numberAvailable": 2, "updatedNumberScheduled": 2,
        }});
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), COMPONENTS.namespace);
        for object in install::objects(components) {
            let name = object.metadata.name.unwrap();
            if object.types.unwrap().kind == "DaemonSet" {
                sets.patch_status(&name, &PatchParams::default(), &Patch::Merge(&running)).await.unwrap();
            }
        }
        let running = json!({ "status": {
            "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1,
            "readyReplicas": 1,
        }});
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), COMPONENTS.namespace);
        let patch = Patch::Merge(&running);
        deployments.patch_status(COMPONENTS.controllers, &PatchParams::default(), &patch).await.unwrap();
    }

    fn left(&self) -> (String, usize) {
        (self.fake.containers(), self.fake.store().records().len())
    }
}

const NOTHING: (String, usize) = (String::new(), 0);

#[tokio::test]
async fn a_run_has_nodes_and_the_builtin_driver_and_leaves_nothing() {
    let machine = Machine::new().await;
    let control_plane = json!([{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }]);
    machine.node("claimcheck-a-control-plane", control_plane, true).await;
    machine.node("claimcheck-a-worker", json!([]), true).await;
    let components = install::Options::new(Variant::Kind);
    machine.complete(&with_faults(&components)).await;
    let cluster = machine.up(&components).await.unwrap();
    assert_eq!(
        (cluster.driver_name(), cluster.nodes()),
        (DRIVER, ["claimcheck-a-worker".to_owned()].to_vec())
    );
    assert_eq!(
        cluster.cluster_capabilities(),
        ClusterCapabilities { retracts: true, stops_binder: true, ..ClusterCapabilities::KIND }
    );
    assert!(cluster.has_real_nodes());
    cluster.disrupt(&Victim::NodeAgent("claimcheck-a-worker".to_owned()), Disruption::Kill).await.unwrap();
    cluster.down(false).await;
    assert_eq!(machine.left(), NOTHING);
    let calls = machine.fake.calls();
    assert!(calls.contains("sh -euc pkill -KILL -x kubelet"), "{calls}");
    assert!(!calls.contains("export logs"), "{calls}");
}

#[tokio::test]
async fn components_that_do_not_run_end_it_with_the_nodes_logs() {
    let machine = Machine::new().await;
    machine.node("claimcheck-a-worker", json!([]), false).await;
    let timeout = std::time::Duration::from_millis(200);
    let mut components = install::Options { timeout, ..install::Options::new(Variant::Stock) };
    let error = machine.up(&components).await.err().unwrap();
    assert!(matches!(error, OnKindError::Components(InstallComponentsError::Install(_))), "{error}");
    assert_eq!(machine.left(), NOTHING);

    machine.complete(&with_faults(&components)).await;
    machine.fake.rule("docker exec", "echo 'E1122 11:00:01 plugin claimcheck.csi.dev: err=refused'; exit 0");
    let mut runs = 2;
    loop {
        let message = machine.up(&components).await.err().unwrap().to_string();
        assert_eq!(machine.left(), NOTHING);
        let why = "last seen: not on claimcheck-a-worker\n  \
                   node claimcheck-a-worker, registrar: no pod of DaemonSet claimcheck-node on this node\n  \
                   node claimcheck-a-worker, kubelet: E1122 11:00:01 plugin claimcheck.csi.dev: err=refused";
        if message.ends_with(why) {
            break;
        }
        // A busy machine may need longer to observe that the components run.
        assert!(components.timeout < std::time::Duration::from_secs(30), "{message}");
        components.timeout *= 4;
        runs += 1;
    }
    let calls = machine.fake.calls();
    assert_eq!(calls.matches("kind export logs [dir]/logs/kind").count(), runs, "{calls}");
}

#[tokio::test]
async fn a_failed_run_keeps_the_logs_of_its_nodes() {
    let machine = Machine::new().await;
    machine.node("claimcheck-a-worker", json!([]), true).await;
    let components = install::Options::new(Variant::Kind);
    machine.complete(&with_faults(&components)).await;
    machine.up(&components).await.unwrap().down(true).await;
    assert_eq!(machine.left(), NOTHING);
    assert!(machine.fake.calls().contains("kind export logs [dir]/logs/kind --name claimcheck-a"));
    let nodes = fs::read_to_string(machine.fake.path("logs/objects/nodes.json")).unwrap();
    let nodes: Vec<Node> = serde_json::from_str(&nodes).unwrap();
    assert_eq!(nodes[0].metadata.name.as_deref(), Some("claimcheck-a-worker"));
    assert_eq!(nodes[0].metadata.managed_fields, None);
    assert!(machine.fake.path("logs/objects/events.json").exists());
}
