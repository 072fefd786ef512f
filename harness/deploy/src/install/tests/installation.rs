//! Installing on an API server: again, removing, waiting for the workloads, and what blocks them.

use std::time::Duration;

use claimcheck_apiserver as apiserver;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet},
    core::v1::{Event, Namespace, Pod},
    rbac::v1::{ClusterRole, RoleBinding},
    storage::v1::StorageClass,
};
use kube::{
    Api, Config, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::*;

async fn cluster() -> (apiserver::Server, Client) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = apiserver::start(apiserver::Config::default()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    (server, Client::try_from(config).unwrap())
}

#[tokio::test]
async fn a_second_installation_changes_nothing_and_removing_leaves_nothing() {
    let (_server, client) = cluster().await;
    // The namespace of the driver's secrets in `all` is not part of an installation.
    let namespace = json!({ "metadata": { "name": "with-secrets" } });
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    for options in all() {
        let first = apply(&client, &options).await.unwrap();
        // The embedded server has the definitions of snapshots from the start.
        let exists = |applied: &Applied| applied.object.starts_with("CustomResourceDefinition ");
        let expected = |applied: &Applied| if exists(applied) { Change::Unchanged } else { Change::Created };
        assert!(first.applied.iter().all(|applied| applied.change == expected(applied)), "{first:?}");
        assert_eq!(first.applied.len() + first.notes.len(), objects(&options).len());
        let not_openshift = first.notes.iter().filter(|note| note.ends_with("the cluster is not OpenShift"));
        let not_openshift = not_openshift.count();
        assert!(not_openshift > 0, "{:?}", first.notes);
        assert_eq!(first.notes.len(), 1 + not_openshift, "a PodMonitor: {:?}", first.notes);
        let second = apply(&client, &options).await.unwrap();
        assert!(second.applied.iter().all(|applied| applied.change == Change::Unchanged), "{second:?}");

        // A user's change is reverted.
        let classes: Api<StorageClass> = Api::all(client.clone());
        let meddle = json!({ "metadata": { "labels": { "app.kubernetes.io/part-of": "other" } } });
        classes.patch("claimcheck-image", &PatchParams::default(), &Patch::Merge(&meddle)).await.unwrap();
        let third = apply(&client, &options).await.unwrap();
        let changed: Vec<_> =
            third.applied.iter().filter(|applied| applied.change == Change::Changed).collect();
        assert!(matches!(changed[..], [one] if one.object == "StorageClass claimcheck-image"), "{changed:?}");

        // Objects not installed by claimcheck are kept.
        classes.patch("claimcheck-image", &PatchParams::default(), &Patch::Merge(&meddle)).await.unwrap();
        uninstall(&client, &options).await.unwrap();
        let left = classes.list(&ListParams::default()).await.unwrap();
        assert_eq!(left.items.len(), 1);
        classes.delete("claimcheck-image", &Default::default()).await.unwrap();
        let roles: Api<ClusterRole> = Api::all(client.clone());
        // Not those that every cluster has.
        let installed = ListParams::default().labels("!kubernetes.io/bootstrapping");
        assert!(roles.list(&installed).await.unwrap().items.is_empty());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        assert!(namespaces.get_opt("claimcheck-system").await.unwrap().is_none());
        uninstall(&client, &options).await.unwrap();
    }
}

/// The client of a server that also serves this group, without any kind.
fn serving(inner: Client, group: &'static str) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let inner = inner.clone();
        async move {
            let path = format!("/apis/{group}/v1");
            let preferred = json!({ "groupVersion": format!("{group}/v1"), "version": "v1" });
            let answer = match request.uri().path() {
                "/apis" => json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [{
                    "name": group, "versions": [preferred], "preferredVersion": preferred,
                }]}),
                asked if asked == path => json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1"), "resources": [],
                }),
                _ => return inner.send(request).await,
            };
            Ok(http::Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn bindings_of_openshift_are_applied_where_it_is() {
    let (_server, client) = cluster().await;
    let options = Options::new(Variant::Existing);
    apply(&client, &options).await.unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), NAMESPACE);
    assert!(bindings.get_opt("claimcheck-openshift").await.unwrap().is_none());
    let openshift = serving(client.clone(), "security.openshift.io");
    apply(&openshift, &options).await.unwrap();
    for name in ["claimcheck-openshift", "claimcheck-observe-openshift"] {
        assert!(bindings.get_opt(name).await.unwrap().is_some(), "{name}");
    }
    uninstall(&client, &options).await.unwrap();
    assert!(bindings.get_opt("claimcheck-openshift").await.unwrap().is_none());
}

/// What the controllers of a cluster would say of the workloads.
async fn complete(client: &Client) {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let status = json!({ "status": {
        "observedGeneration": 1, "currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberMisscheduled": 0,
        "numberReady": 2, "numberAvailable": 2, "updatedNumberScheduled": 2,
    }});
    for name in [NODE, "claimcheck-observe"] {
        sets.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "claimcheck-system");
    let status = json!({ "status": {
        "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
    }});
    deployments
        .patch_status("claimcheck-controllers", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_installation_ends_when_its_workloads_are_complete() {
    let (_server, client) = cluster().await;
    let options = Options::new(Variant::Stock);
    apply(&client, &options).await.unwrap();
    let (installing, installed) = (client.clone(), options.clone());
    let install = tokio::spawn(async move { install(&installing, &installed).await });
    complete(&client).await;
    tokio::time::timeout(Duration::from_secs(60), install).await.unwrap().unwrap().unwrap();
}

/// A pod of a workload of the installation, as its kubelet sees it.
async fn failing_pod(
    client: &Client,
    (kind, owner, name): (&str, &str, &str),
    container: &str,
    status: Value,
) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let uid = match kind {
        "DaemonSet" => {
            Api::<DaemonSet>::namespaced(client.clone(), NAMESPACE).get(owner).await.unwrap().uid()
        }
        _ => {
            let set = json!({
                "metadata": { "name": owner },
                "spec": {
                    "selector": { "matchLabels": { "a": "b" } },
                    "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
                },
            });
            let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), NAMESPACE);
            sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap().uid()
        }
    };
    let pod = json!({
        "metadata": {
            "name": name,
            "labels": { "app.kubernetes.io/part-of": "claimcheck", "pod-template-hash": "5d4f" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": uid, "controller": true }],
        },
        "spec": { "containers": [{ "name": container, "image": "claimcheck:dev" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let status = Patch::Merge(json!({ "status": status }));
    pods.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test]
async fn the_blocker_of_an_installation_is_named() {
    let (_server, client) = cluster().await;
    let mut options = Options { timeout: Duration::from_millis(200), ..Options::new(Variant::Stock) };
    // A busy machine may need longer to look at the workloads even once.
    loop {
        let error = install(&client, &options).await.unwrap_err().to_string();
        if error.contains("DaemonSet claimcheck-system/claimcheck-node not observed by its controller yet") {
            break;
        }
        assert!(options.timeout < Duration::from_secs(30), "{error}");
        options.timeout *= 2;
    }

    let waiting = json!({ "containerStatuses": [{
        "name": "driver", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "ErrImageNeverPull", "message": "image \"claimcheck:dev\" is not present" } },
    }]});
    failing_pod(&client, ("DaemonSet", NODE, "claimcheck-node-x"), "driver", waiting).await;
    // It cannot succeed, so there is no waiting.
    let options = Options { timeout: Duration::from_secs(300), ..options };
    let failed = tokio::time::timeout(Duration::from_secs(60), install(&client, &options)).await.unwrap();
    let error = failed.unwrap_err().to_string();
    let blocker =
        "pod claimcheck-node-x, container driver: ErrImageNeverPull: image \"claimcheck:dev\" is not present";
    assert!(error.contains(blocker), "{error}");
}

/// A DaemonSet has no condition for pods that it is not permitted to create.
#[tokio::test]
async fn errors_of_the_clusters_controllers_are_quoted() {
    let (_server, client) = cluster().await;
    let mut options = Options { timeout: Duration::from_millis(500), ..Options::new(Variant::Existing) };
    apply(&client, &options).await.unwrap();
    let why = "pods \"claimcheck-node-\" is forbidden: insufficient quota to match these scopes";
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    for (kind, name) in [("DaemonSet", NODE), ("ReplicaSet", "claimcheck-controllers-6d4cf56db6")] {
        let event = json!({
            "metadata": { "name": format!("{name}.1"), "namespace": NAMESPACE },
            "involvedObject": { "kind": kind, "namespace": NAMESPACE, "name": name },
            "type": "Warning", "reason": "FailedCreate", "message": format!("Error creating: {why}"),
            "lastTimestamp": "2026-01-01T00:00:00Z",
        });
        events.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
    }
    loop {
        let error = install(&client, &options).await.unwrap_err().to_string();
        if error.matches(&format!("(FailedCreate: Error creating: {why})")).count() == 2 {
            break;
        }
        // A busy machine may need longer to look at all of them even once.
        assert!(options.timeout < Duration::from_secs(30), "{error}");
        options.timeout *= 2;
    }
}

/// A client with a fake kubelet, which returns the requested URI as the log.
fn with_logs(inner: Client) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let inner = inner.clone();
        async move {
            if !request.uri().path().ends_with("/log") {
                return inner.send(request).await;
            }
            let text = format!("{}\nlast words\n", request.uri());
            Ok(http::Response::new(Body::from(text.into_bytes())))
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn a_container_that_keeps_ending_has_the_last_word() {
    let (_server, client) = cluster().await;
    let client = with_logs(client);
    let options = Options::new(Variant::Existing);
    apply(&client, &options).await.unwrap();
    let crashing = json!({ "containerStatuses": [{
        "name": "controllers", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
        "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 40s" } },
        "lastState": { "terminated": { "exitCode": 3 } },
    }]});
    let pod = ("ReplicaSet", "claimcheck-controllers-5d4f", "claimcheck-controllers-x");
    failing_pod(&client, pod, "controllers", crashing).await;
    let failed = tokio::time::timeout(Duration::from_secs(60), install(&client, &options)).await.unwrap();
    let error = failed.unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().map(str::trim).collect();
    let log = "/api/v1/namespaces/claimcheck-system/pods/claimcheck-controllers-x/log";
    assert_eq!(
        lines[lines.len() - 3..],
        [
            "pod claimcheck-controllers-x, container controllers: CrashLoopBackOff: back-off 40s (last exit \
             code 3); last log lines:",
            &format!("{log}?&container=controllers&previous=true&tailLines=10"),
            "last words",
        ],
        "{error}"
    );
}
