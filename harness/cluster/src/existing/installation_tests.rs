//! The built-in components on an existing cluster: installed, and removed regardless of how the run ends.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Pod},
    rbac::v1::ClusterRole,
    storage::v1::{CSIDriver, StorageClass},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::json;

use super::{
    installation::{Install, InstallationError},
    target::Target,
};
use crate::{Cluster, ClusterCapabilities, DisruptError, Disruption, Victim, kind::tests::Machine};
use claimcheck_deploy::install::{self, Options, Variant};

/// The components installed on a cluster.
async fn left(machine: &Machine) -> usize {
    let (client, all) = (|| machine.client.clone(), ListParams::default());
    // Not those that every cluster has.
    let installed = ListParams::default().labels("!kubernetes.io/bootstrapping");
    let roles = Api::<ClusterRole>::all(client()).list(&installed).await.unwrap().items.len();
    let classes = Api::<StorageClass>::all(client()).list(&all).await.unwrap().items.len();
    let drivers = Api::<CSIDriver>::all(client()).list(&all).await.unwrap().items.len();
    let namespace = Api::<Namespace>::all(client()).get_opt(install::NAMESPACE).await.unwrap();
    roles + classes + drivers + usize::from(namespace.is_some())
}

fn target(machine: &Machine) -> Target {
    Target { kubeconfig: Some(machine.fake.path("served")), ..Target::default() }
}

/// Installs while a fake cluster runs the applied workloads.
async fn installed(machine: &Machine, install: &Install) -> Result<Cluster, InstallationError> {
    let completed = async {
        let deployments: Api<Deployment> = Api::namespaced(machine.client.clone(), install::NAMESPACE);
        let present = |deployment: Option<&Deployment>| deployment.is_some();
        await_condition(deployments, install::CONTROLLERS, present).await.unwrap();
        machine.complete(&install.components).await;
    };
    let (target, logs) = (target(machine), machine.fake.path(""));
    let (cluster, ()) = tokio::join!(Cluster::with_components(&target, install, &logs), completed);
    cluster
}

fn expected() -> Install {
    Install { components: Options::new(Variant::Existing), keep: false, disrupt: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn components_exist_during_a_run_and_are_removed_after_it() {
    let machine = Machine::new().await;
    machine.node("a", json!([]), true).await;
    let cluster = installed(&machine, &expected()).await.unwrap();
    assert_eq!((cluster.driver_name(), cluster.nodes()), ("claimcheck.csi.dev", ["a".to_owned()].to_vec()));
    let built_in = ClusterCapabilities { upstream_sidecars: false, ..ClusterCapabilities::EXISTING };
    assert_eq!(cluster.cluster_capabilities(), built_in);
    assert!(cluster.has_real_nodes());
    assert!(left(&machine).await > 0);
    cluster.down(true).await;
    assert_eq!(left(&machine).await, 0);

    // As after Ctrl-C: without an orderly end.
    drop(installed(&machine, &expected()).await.unwrap());
    assert_eq!(left(&machine).await, 0);
}

/// Deletes the pod through the API: then no driver serves the volumes on the old node.
#[tokio::test(flavor = "multi_thread")]
async fn moved_controllers_are_reported_with_later_failures() {
    let machine = Machine::new().await;
    machine.node("a", json!([]), true).await;
    machine.node("b", json!([]), true).await;
    let install = expected();
    install::apply(&machine.client, &install.components).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(machine.client.clone(), install::NAMESPACE);
    let on = async |name: &str, node: &str| {
        let pod = json!({
            "metadata": { "name": name, "labels": {
                "app.kubernetes.io/part-of": "claimcheck", "app.kubernetes.io/component": "controllers",
            }},
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    };
    on("before", "a").await;
    let cluster = installed(&machine, &install).await.unwrap();
    assert!(cluster.logs_mentioning(&[]).await.is_empty());
    on("after", "b").await;
    let move_reported = async {
        loop {
            if let Some(log) = cluster.logs_mentioning(&[]).await.pop() {
                break log;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let log = tokio::time::timeout(Duration::from_secs(30), move_reported).await.unwrap();
    assert_eq!(log.of, "Deployment claimcheck-controllers");
    assert!(log.text.contains("from node a to node b (pod after)"), "{}", log.text);
    cluster.down(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn components_that_do_not_run_are_removed_and_those_that_were_there_stay() {
    let machine = Machine::new().await;
    let components = Options { timeout: Duration::from_secs(3), ..Options::new(Variant::Existing) };
    let install = Install { components, keep: false, disrupt: false };
    let error =
        Cluster::with_components(&target(&machine), &install, &machine.fake.path("")).await.err().unwrap();
    assert!(error.to_string().starts_with("components are not ready after"), "{error}");
    let timeout = Duration::from_secs(30);
    let install = Install { components: Options { timeout, ..install.components }, ..install };
    assert_eq!(left(&machine).await, 0);

    machine.node("a", json!([]), true).await;
    install::apply(&machine.client, &install.components).await.unwrap();
    let before = left(&machine).await;
    installed(&machine, &install).await.unwrap().down(false).await;
    assert_eq!(left(&machine).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn builtin_controllers_are_not_installed_next_to_stock_ones() {
    let machine = Machine::new().await;
    let install = Install { components: Options::new(Variant::Kind), keep: false, disrupt: false };
    let error = Cluster::with_components(&target(&machine), &install, &machine.fake.path(""))
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("no kube-controller-manager pod found"), "{error}");
    assert_eq!(left(&machine).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_installed_can_be_hit_where_that_is_allowed() {
    let machine = Machine::new().await;
    machine.node("a", json!([]), true).await;
    let cluster = installed(&machine, &Install { disrupt: true, ..expected() }).await.unwrap();
    assert!(cluster.cluster_capabilities().disrupt && !cluster.cluster_capabilities().agents);
    let driver = Victim::Driver("a".to_owned());
    let absent = cluster.disrupt(&driver, Disruption::Kill).await.unwrap_err();
    assert!(matches!(absent, DisruptError::Absent(_)), "{absent}");
    let pods: Api<Pod> = Api::namespaced(machine.client.clone(), install::NAMESPACE);
    for component in ["node", "controllers"] {
        let labels =
            json!({ "app.kubernetes.io/part-of": "claimcheck", "app.kubernetes.io/component": component });
        let pod = json!({
            "metadata": { "name": component, "labels": labels },
            "spec": { "nodeName": "a", "containers": [{ "name": "c", "image": "i" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    cluster.disrupt(&driver, Disruption::Kill).await.unwrap();
    assert!(pods.get_opt("node").await.unwrap().is_none());
    assert!(pods.get_opt("controllers").await.unwrap().is_some());
    cluster.disrupt(&Victim::Controllers, Disruption::Kill).await.unwrap();
    assert!(pods.get_opt("controllers").await.unwrap().is_none());
    let agent = cluster.disrupt(&Victim::NodeAgent("a".to_owned()), Disruption::Stop).await.unwrap_err();
    assert!(matches!(agent, DisruptError::Cannot { .. }), "{agent}");
    cluster.down(false).await;
    assert_eq!(left(&machine).await, 0);
}
