//! Writes that the recording does not show: resizing, retries, subresources, the event view, dry runs.

use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{Fixture, claim, create, pod, refusal};

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn a_claim_grows_when_bound_and_its_class_lets_it() {
    let fixture = Fixture::start().await;
    for (name, expandable) in [("grows", true), ("stays", false)] {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
            "provisioner": "d", "allowVolumeExpansion": expandable,
        });
        fixture.accept("POST", "/apis/storage.k8s.io/v1/storageclasses", JSON, &class).await;
        let mut claim = claim(name);
        claim["spec"]["storageClassName"] = name.into();
        claim["spec"]["volumeName"] = "v".into();
        fixture.accept("POST", CLAIMS, JSON, &claim).await;
        let bound = json!({ "status": { "phase": "Bound", "capacity": { "storage": "64Mi" } } });
        fixture.accept("PATCH", &format!("{CLAIMS}/{name}/status"), MERGE, &bound).await;
    }
    let resize = async |name: &str, size: &str| {
        let patch = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        fixture.send("PATCH", &format!("{CLAIMS}/{name}"), MERGE, &patch).await
    };
    assert_eq!(resize("stays", "128Mi").await.0, 403);
    assert_eq!(resize("grows", "128Mi").await.0, 200);
    let (code, status) = resize("grows", "32Mi").await;
    assert_eq!(code, 422, "less than it has");
    assert_eq!(status["details"]["causes"][0]["field"], "spec.resources.requests.storage");
    // Recovery from a failed expansion: back towards what it has, but above it (KEP-1790).
    assert_eq!(resize("grows", "96Mi").await.0, 200);
}

#[tokio::test]
async fn one_of_two_writers_with_the_same_version_is_refused() {
    let fixture = Fixture::start().await;
    let claims = fixture.api::<PersistentVolumeClaim>();
    let read = create(&claims, claim("a")).await;
    let write = |label: &str| {
        let mut mine = read.clone();
        mine.metadata.labels.get_or_insert_default().insert("who".to_owned(), label.to_owned());
        let claims = claims.clone();
        async move { claims.replace("a", &PostParams::default(), &mine).await }
    };
    let (first, second) = (write("x").await, write("y").await);
    let first = first.unwrap();
    assert_eq!(refusal(second), (409, "Conflict".to_owned()));
    // Writing what is there already is no write.
    let again = claims.replace("a", &PostParams::default(), &first).await.unwrap();
    assert_eq!(again.metadata.resource_version, first.metadata.resource_version);
}

#[tokio::test]
async fn patches_without_a_version_all_count() {
    let fixture = Fixture::start().await;
    let claims = fixture.api::<PersistentVolumeClaim>();
    create(&claims, claim("a")).await;
    let patches = (0..20).map(|index| {
        let claims = claims.clone();
        tokio::spawn(async move {
            let patch = json!({ "metadata": { "labels": { format!("l{index}"): "x" } } });
            claims.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await
        })
    });
    for patch in patches.collect::<Vec<_>>() {
        patch.await.unwrap().unwrap();
    }
    assert_eq!(claims.get("a").await.unwrap().metadata.labels.unwrap().len(), 20);
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let fixture = Fixture::start().await;
    fixture.accept("POST", PODS, JSON, &pod("p")).await;
    let both = json!({ "metadata": { "labels": { "a": "b" } }, "status": { "phase": "Running" } });
    let patched = fixture.accept("PATCH", &format!("{PODS}/p"), MERGE, &both).await;
    assert_eq!(
        (&patched["metadata"]["labels"]["a"], &patched["status"]["phase"]),
        (&json!("b"), &json!("Pending"))
    );
    let both = json!({ "spec": { "nodeName": "n" }, "status": { "phase": "Running" } });
    let patched = fixture.accept("PATCH", &format!("{PODS}/p/status"), MERGE, &both).await;
    assert_eq!(
        (&patched["spec"]["nodeName"], &patched["status"]["phase"]),
        (&Value::Null, &json!("Running"))
    );
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let fixture = Fixture::start().await;
    fixture.accept("POST", PODS, JSON, &pod("p")).await;
    let binding = |node: &str| json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p" }, "target": { "kind": "Node", "name": node } });
    let path = format!("{PODS}/p/binding");
    fixture.accept("POST", &path, JSON, &binding("n")).await;
    let (code, status) = fixture.send("POST", &path, JSON, &binding("m")).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    let selected = ListParams::default().fields("spec.nodeName=n");
    let pods = fixture.api::<Pod>().list(&selected).await.unwrap();
    assert_eq!(pods.items.len(), 1);
    assert_eq!(pods.items[0].metadata.generation, Some(1), "binding is no change of the user's wish");
    assert!(
        fixture
            .api::<Pod>()
            .list(&ListParams::default().fields("spec.nodeName!=n"))
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn events_have_two_shapes() {
    let fixture = Fixture::start().await;
    let new = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "e" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Binding", "reason": "Bound", "type": "Normal",
        "note": "it is bound", "reportingController": "c", "reportingInstance": "c-1",
        "regarding": { "kind": "PersistentVolumeClaim", "name": "a", "namespace": "default" },
    });
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let made = fixture.accept("POST", path, JSON, &new).await;
    assert_eq!((&made["note"], &made["kind"]), (&json!("it is bound"), &json!("Event")));
    // Go writes them even when they are not set.
    assert_eq!(made.get("deprecatedSource"), Some(&json!({})));
    assert_eq!(made.get("deprecatedLastTimestamp"), Some(&Value::Null));
    let core = fixture.api::<Event>();
    let selected = ListParams::default().fields("involvedObject.name=a,reason=Bound");
    let events = core.list(&selected).await.unwrap();
    assert_eq!(events.items[0].message.as_deref(), Some("it is bound"));
    let patch = json!({ "series": { "count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z" } });
    fixture.accept("PATCH", &format!("{path}/e"), MERGE, &patch).await;
    assert_eq!(core.get("e").await.unwrap().series.unwrap().count, Some(2));
    assert_eq!(core.get("e").await.unwrap().involved_object.name.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_dry_run_leaves_nothing() {
    let fixture = Fixture::start().await;
    let path = format!("{CLAIMS}?dryRun=All");
    let shown = fixture.accept("POST", &path, JSON, &claim("a")).await;
    assert_eq!(shown["spec"]["volumeMode"], "Filesystem");
    assert_eq!(fixture.send("GET", &format!("{CLAIMS}/a"), JSON, &Value::Null).await.0, 404);
}

#[tokio::test]
async fn strategic_patches_merge_conditions() {
    let fixture = Fixture::start().await;
    fixture.accept("POST", PODS, JSON, &pod("p")).await;
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status });
    for (kind, status) in [("Ready", "False"), ("Initialized", "True"), ("Ready", "True")] {
        let patch = json!({ "status": { "conditions": [condition(kind, status)] } });
        let path = format!("{PODS}/p/status");
        fixture.accept("PATCH", &path, "application/strategic-merge-patch+json", &patch).await;
    }
    let pod = fixture.send("GET", &format!("{PODS}/p"), JSON, &Value::Null).await.1;
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 2);
    let holds = |kind: &str| {
        conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    assert!(holds("Ready") && holds("Initialized"), "{conditions:?}");
}

#[tokio::test]
async fn a_pod_is_checked() {
    let fixture = Fixture::start().await;
    let mut bad = pod("p");
    bad["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "nope", "mountPath": "/x" }]);
    let (code, status) = fixture.send("POST", PODS, JSON, &bad).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("spec.containers[0].volumeMounts[0].name"))
    );
}

#[tokio::test]
async fn a_volume_remembers_when_its_phase_changed() {
    let fixture = Fixture::start().await;
    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": "d", "volumeHandle": "h" },
        },
    });
    fixture.accept("POST", volumes, JSON, &volume).await;
    let status = async |status: Value| {
        let patch = json!({ "status": status });
        let volume = fixture.accept("PATCH", &format!("{volumes}/v/status"), MERGE, &patch).await;
        volume["status"]["lastPhaseTransitionTime"].as_str().unwrap().to_owned()
    };
    let past = "2020-01-01T00:00:00Z";
    let time = status(json!({ "phase": "Available", "lastPhaseTransitionTime": past })).await;
    assert_eq!(time, past, "the writer knows better");
    assert_eq!(status(json!({ "phase": "Available", "message": "m" })).await, past, "the phase is the same");
    assert_ne!(status(json!({ "phase": "Bound" })).await, past);
}

#[tokio::test]
async fn ephemeral_containers_are_added_to_a_pod_and_stay() {
    let fixture = Fixture::start().await;
    let pods = fixture.api::<Pod>();
    create(&pods, pod("p")).await;
    let path = format!("{PODS}/p/ephemeralcontainers");
    let strategic = "application/strategic-merge-patch+json";
    let patch = |container: Value| json!({ "spec": { "ephemeralContainers": [container] } });
    let (code, written) =
        fixture.send("PATCH", &path, strategic, &patch(json!({ "name": "debug", "image": "i:1" }))).await;
    assert_eq!(code, 200, "{written}");
    let debugger = &written["spec"]["ephemeralContainers"][0];
    assert_eq!((&debugger["name"], &debugger["imagePullPolicy"]), (&"debug".into(), &"IfNotPresent".into()));
    assert_eq!(fixture.send("GET", &path, JSON, &Value::Null).await.0, 200);

    for (container, expected) in [
        (json!({ "name": "debug", "image": "i:2" }), "may not be changed"),
        (json!({ "name": "more" }), "image: Required value"),
        (
            json!({ "name": "more", "image": "i:1", "targetContainerName": "x" }),
            "targetContainerName: Not found",
        ),
        (json!({ "name": "more", "image": "i:1", "ports": [{ "containerPort": 1 }] }), "ports: Forbidden"),
    ] {
        let (code, status) = fixture.send("PATCH", &path, strategic, &patch(container)).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(code == 422 && message.contains(expected), "{expected}: {status}");
    }
    // The rest of the pod is not written here, and the containers not with the pod.
    let none = json!({ "spec": { "ephemeralContainers": null, "activeDeadlineSeconds": 5 } });
    let (code, status) = fixture.send("PATCH", &path, MERGE, &none).await;
    assert_eq!(code, 422, "removed: {status}");
    let other = patch(json!({ "name": "more", "image": "i:1" }));
    assert_eq!(fixture.send("PATCH", &format!("{PODS}/p"), strategic, &other).await.0, 422);
}

#[tokio::test]
async fn the_service_of_the_api_server_exists() {
    let fixture = Fixture::start().await;
    let path = "/api/v1/namespaces/default/services/kubernetes";
    let (code, service) = fixture.send("GET", path, JSON, &Value::Null).await;
    assert_eq!((code, &service["spec"]["clusterIP"]), (200, &"10.96.0.1".into()));
    let other = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    let created = fixture.accept("POST", "/api/v1/namespaces/default/services", JSON, &other).await;
    assert_eq!(created["spec"]["ports"][0]["targetPort"], 80);
}
