//! Checks the manifests of the monitor against Kubernetes' types, Pod Security and kubectl, and installs them on an API
//! server.

use std::{fs, path::Path, process::Command};

use claimcheck_apiserver as apiserver;
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{ConfigMap, Namespace, ResourceQuota, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Config,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use super::*;
use claimcheck_deploy::install::Change;

async fn cluster() -> (apiserver::Server, Client) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = apiserver::start(apiserver::Config::default()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    (server, Client::try_from(config).unwrap())
}

fn everything() -> Options {
    Options { canary: vec!["fast=1m".to_owned()], ..Options::default().with_all() }
}

fn names(objects: &[Value]) -> BTreeSet<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = |object: &Value| {
        let meta = &object["metadata"];
        format!("{} {}/{}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]))
    };
    objects.iter().map(name).collect()
}

/// What kubectl would apply for the base with these components.
fn kubectl(components: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    // kustomize refuses absolute paths.
    let root = "../".repeat(path.components().count() - 1);
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../manifests").canonicalize().unwrap();
    let manifests = format!("{root}{}", manifests.strip_prefix("/").unwrap().display());
    let components: Vec<String> = components.iter().map(|name| format!("{manifests}/{name}")).collect();
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [format!("{manifests}/monitor")],
        "components": components,
    });
    fs::write(path.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let output = Command::new("kubectl").arg("kustomize").arg(&path).output();
    let output = output.expect("kubectl is missing: ci/test installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(std::str::from_utf8(&output.stdout).unwrap()).unwrap()
}

#[test]
fn kubectl_reads_each_combination_as_we_do() {
    let options = everything();
    let all = options.components();
    let singles = all.chunks(1);
    let both: [&[&str]; 2] = [&[], &all];
    for components in both.into_iter().chain(singles) {
        let (builtin, built) = (resolve_with("monitor", components), kubectl(components));
        assert_eq!(names(&builtin), names(&built), "{components:?}");
        for object in &builtin {
            assert!(built.contains(object), "{components:?}: {object}");
        }
    }
}

/// Reads an object by its type and writes it again: an unknown field is lost then.
fn again<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

#[test]
fn every_field_is_known_to_kubernetes() {
    for object in values(&everything()) {
        let again = match object["kind"].as_str().unwrap() {
            "Namespace" => again::<Namespace>(&object),
            "ServiceAccount" => again::<ServiceAccount>(&object),
            "ResourceQuota" => again::<ResourceQuota>(&object),
            "ClusterRole" => again::<ClusterRole>(&object),
            "ClusterRoleBinding" => again::<ClusterRoleBinding>(&object),
            "Role" => again::<Role>(&object),
            "RoleBinding" => again::<RoleBinding>(&object),
            "Deployment" => again::<Deployment>(&object),
            "DaemonSet" => again::<DaemonSet>(&object),
            "Service" => again::<Service>(&object),
            "ConfigMap" => again::<ConfigMap>(&object),
            "NetworkPolicy" => again::<NetworkPolicy>(&object),
            "PodDisruptionBudget" => again::<PodDisruptionBudget>(&object),
            // Of an extension.
            "ServiceMonitor" | "PodMonitor" | "PrometheusRule" => continue,
            other => panic!("{other} is not checked"),
        };
        assert_eq!(again, object);
    }
}

/// The policy `restricted` of Pod Security: `policy/check_*.go` in k8s.io/pod-security-admission.
#[test]
fn every_container_of_the_monitor_satisfies_restricted_pod_security() {
    let objects = values(&everything());
    let mut containers = 0;
    for object in objects.iter().filter(|object| object["kind"] == "Deployment") {
        let pod = &object["spec"]["template"]["spec"];
        for field in ["hostPID", "hostIPC", "hostNetwork", "volumes", "initContainers"] {
            assert!(pod[field].is_null(), "{field}");
        }
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"], json!({ "type": "RuntimeDefault" }));
        for container in pod["containers"].as_array().unwrap() {
            let expected = json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
            });
            assert_eq!(container["securityContext"], expected);
            containers += 1;
        }
    }
    assert_eq!(containers, 1);
}

#[test]
fn policies_budget_and_spread_select_the_pods_of_the_deployment() {
    let objects = values(&Options::default());
    let find = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let template = &find("Deployment")["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    assert_eq!(find("NetworkPolicy")["spec"]["podSelector"]["matchLabels"], *labels);
    assert_eq!(find("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], *labels);
    assert_eq!(find("Service")["spec"]["selector"], *labels);
    let spread = template["spec"]["topologySpreadConstraints"].as_array().unwrap();
    assert_eq!(spread.len(), 2);
    assert!(spread.iter().all(|constraint| constraint["labelSelector"]["matchLabels"] == *labels));
    let ports = &template["spec"]["containers"][0]["ports"];
    assert_eq!(ports[0]["name"], find("NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"]);
    let all = values(&everything());
    let scraped = all.iter().find(|object| object["kind"] == "ServiceMonitor").unwrap();
    assert_eq!(scraped["spec"]["selector"]["matchLabels"], find("Service")["metadata"]["labels"]);
    assert_eq!(scraped["spec"]["endpoints"][0]["port"], find("Service")["spec"]["ports"][0]["name"]);
}

#[test]
fn the_observers_are_scraped_if_there_is_an_operator() {
    let all = values(&everything());
    let of_observer = |kind: &str| {
        let namespace = "claimcheck-system";
        all.iter().find(|object| object["kind"] == kind && object["metadata"]["namespace"] == namespace)
    };
    let set = of_observer("DaemonSet").unwrap();
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    let ports = set["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap();
    let has_port = |name: &Value| ports.iter().any(|port| port["name"] == *name);
    let selects = |selector: &Value| {
        let mut pairs = selector["matchLabels"].as_object().unwrap().iter();
        pairs.all(|(name, value)| labels[name] == *value)
    };
    let monitor = of_observer("PodMonitor").unwrap();
    assert!(selects(&monitor["spec"]["selector"]), "{monitor}");
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!((&endpoint["port"], &endpoint["path"]), (&json!("metrics"), &json!("/metrics")));
    assert!(has_port(&endpoint["port"]), "{set}");
    // Every port of the observer, and no other.
    let policy = &of_observer("NetworkPolicy").unwrap()["spec"];
    assert!(selects(&policy["podSelector"]), "{policy}");
    let open = policy["ingress"][0]["ports"].as_array().unwrap();
    assert!(open.len() == ports.len() && open.iter().all(|rule| has_port(&rule["port"])), "{policy}");
    for options in [
        Options { observer: true, ..Options::default() },
        Options { prometheus_operator: true, ..Options::default() },
    ] {
        assert!(values(&options).iter().all(|object| object["kind"] != "PodMonitor"));
    }
}

#[test]
fn every_rule_for_clusters_in_use_is_installed_and_none_of_runs() {
    let objects = values(&everything());
    let rules = objects.iter().filter(|object| object["kind"] == "PrometheusRule");
    let installed: Vec<&Value> =
        rules.flat_map(|object| object["spec"]["groups"].as_array().unwrap()).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../dashboards/prometheus");
    let mut expected = 0;
    for file in ["cluster.rules.yaml", "driver-time.rules.yaml", "slo.rules.yaml"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let rules: Value = serde_saphyr::from_str(&text).unwrap();
        for group in rules["groups"].as_array().unwrap() {
            assert!(installed.contains(&group), "{file}: {} is not in manifests/monitor", group["name"]);
            expected += 1;
        }
    }
    assert_eq!(installed.len(), expected);
}

#[test]
fn a_dry_run_prints_the_objects() {
    let options = Options {
        namespace: "storage".into(),
        image: "registry.example/claimcheck:1".into(),
        replicas: 3,
        canary: vec!["fast=1m".into()],
        events: true,
        ..Options::default()
    };
    let text = yaml(&objects(&options));
    let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let expected: Vec<Value> =
        objects(&options).iter().map(|object| serde_json::to_value(object).unwrap()).collect();
    assert_eq!(read, expected);
    insta::assert_snapshot!(text);
}

/// The objects of an installation that exist.
async fn left(client: &Client) -> Vec<String> {
    let all = objects(&everything());
    let existing = existing_labels(client, &all).await.unwrap();
    all.iter().zip(existing).filter(|(_, labels)| labels.is_some()).map(|(object, _)| title(object)).collect()
}

#[tokio::test]
async fn a_second_installation_changes_nothing_and_removing_leaves_nothing() {
    let (_server, client) = cluster().await;
    let options = everything();
    let first = install(&client, &options, false).await.unwrap();
    assert!(first.applied.iter().all(|applied| applied.change == Change::Created), "{first:?}");
    assert_eq!(first.applied.len() + first.notes.len(), objects(&options).len());
    let second = install(&client, &options, false).await.unwrap();
    assert!(second.applied.iter().all(|applied| applied.change == Change::Unchanged), "{second:?}");

    // Also without the flags of the installation.
    let removed = uninstall(&client, &Options::default()).await.unwrap();
    assert_eq!(removed.len(), first.applied.len());
    assert_eq!(left(&client).await, Vec::<String>::new());
    assert_eq!(uninstall(&client, &Options::default()).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn an_installation_with_fewer_components_removes_their_rights() {
    let (_server, client) = cluster().await;
    install(&client, &everything(), false).await.unwrap();
    let installed = install(&client, &Options::default(), false).await.unwrap();
    let remaining: BTreeSet<String> = left(&client).await.into_iter().collect();
    let applied: BTreeSet<String> = installed.applied.into_iter().map(|applied| applied.object).collect();
    assert_eq!(remaining, applied);
    let note = "ClusterRole claimcheck-monitor-events is deleted: no flag requires it";
    assert!(installed.notes.iter().any(|found| found == note), "{:?}", installed.notes);
}

#[tokio::test]
async fn an_existing_namespace_remains_without_the_lease() {
    let (_server, client) = cluster().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "storage" } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let options = Options { namespace: "storage".to_owned(), ..Options::default() };
    let installed = install(&client, &options, false).await.unwrap();
    let note = "Namespace storage is used as it is, since it existed already";
    assert!(installed.notes.iter().any(|found| found == note), "{:?}", installed.notes);
    // As the monitor does.
    let leases: Api<Lease> = Api::namespaced(client.clone(), "storage");
    let lease = serde_json::from_value(json!({ "metadata": { "name": LEASE } })).unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
    uninstall(&client, &options).await.unwrap();
    assert!(leases.list(&ListParams::default()).await.unwrap().items.is_empty());
    let found = namespaces.get("storage").await.unwrap();
    assert!(found.metadata.deletion_timestamp.is_none());
}

#[tokio::test]
async fn objects_of_others_are_neither_replaced_nor_removed() {
    let (_server, client) = cluster().await;
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let role = json!({
        "metadata": { "name": "claimcheck-monitor", "labels": { "app.kubernetes.io/part-of": "claimcheck" } },
        "rules": [],
    });
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let error = install(&client, &Options::default(), false).await.unwrap_err().to_string();
    assert!(error.starts_with("ClusterRole claimcheck-monitor exists, and was not created by"), "{error}");
    assert_eq!(left(&client).await, ["ClusterRole claimcheck-monitor"]);
    uninstall(&client, &Options::default()).await.unwrap();
    assert_eq!(left(&client).await, ["ClusterRole claimcheck-monitor"]);
}

#[tokio::test]
async fn waiting_ends_when_the_pods_are_available() {
    let (_server, client) = cluster().await;
    let options = Options::default();
    install(&client, &options, false).await.unwrap();
    let status = json!({ "status": {
        "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2,
    }});
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = Patch::Merge(&status);
    deployments.patch_status("claimcheck-monitor", &PatchParams::default(), &patch).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(60), install(&client, &options, true)).await;
    waited.unwrap().unwrap();
}

#[tokio::test]
async fn an_incomplete_installation_names_the_workload() {
    let (_server, client) = cluster().await;
    let mut options = Options { timeout: Duration::from_millis(200), ..Options::default() };
    // A busy machine may need longer to observe the workload once.
    loop {
        let error = install(&client, &options, true).await.unwrap_err().to_string();
        if error.contains("claimcheck-monitor/claimcheck-monitor not observed by its controller yet") {
            break;
        }
        assert!(options.timeout < Duration::from_secs(30), "{error}");
        options.timeout *= 2;
    }
}
