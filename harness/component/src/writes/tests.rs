//! The records of requests, as a table; and those of a real client, through the socket, for a server's responses.

use claimcheck_apiserver as apiserver;
use claimcheck_csi::tap::{self, Telemetry};
use claimcheck_model::{ApiWrite, LifecycleObjectKind, Stamp};
use http::Request;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{ApiWriteRecorder, recording_client, request::PendingWrite};
use crate::client::{AGENT, client};

fn line(write: &ApiWrite) -> String {
    let ApiWrite { agent, verb, object, refers_to, code, .. } = write;
    let refers_to = match refers_to {
        Some(all) => all.iter().map(|one| format!(" -> {:?} {}", one.kind, one.key)).collect(),
        None => " -> ?".to_owned(),
    };
    format!("{agent}: {verb} {} {} {code}{refers_to}", write.resource(), object.key)
}

fn recorded(method: &str, path: &str, sent: &str, answered: &str) -> Option<String> {
    let request = Request::builder().method(method).uri(path).header("user-agent", "agent/1.0 (linux)");
    let pending = PendingWrite::of(&request.body(()).unwrap(), "nobody")?;
    let at = |mono_ns| Stamp { mono_ns, wall_ns: 0 };
    pending.ended(200, sent.as_bytes(), answered.as_bytes(), at(1), at(2)).as_ref().map(line)
}

#[test]
fn writes_are_distinguished_from_reads_and_name_their_object() {
    let pod = r#"{"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [], "volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "ephemeral": {}},
        {"name": "no", "emptyDir": {}}]}}"#;
    let status = r#"{"kind": "Status", "metadata": {}, "status": "Failure", "code": 409}"#;
    let attachment = r#"{"metadata": {"name": "va"}, "spec": {"attacher": "d", "nodeName": "n",
        "source": {"persistentVolumeName": "pv"}}}"#;
    let (pods, attachments) = ("/api/v1/namespaces/ns/pods", "/apis/storage.k8s.io/v1/volumeattachments");
    for (method, path, sent, answered, expected) in [
        ("POST", pods, "{}", pod, "create pods ns/p 200 -> Claim ns/data -> Claim ns/p-e"),
        // Rejected: only the request body is known.
        ("POST", pods, pod, status, "create pods ns/p 200 -> Claim ns/data -> Claim ns/p-e"),
        (
            "POST",
            &format!("{pods}/p/binding"),
            r#"{"metadata": {"name": "p"}}"#,
            status,
            "create pods/binding ns/p 200 -> ?",
        ),
        ("DELETE", &format!("{pods}/p?gracePeriodSeconds=0"), "{}", status, "delete pods ns/p 200 -> ?"),
        (
            "PATCH",
            &format!("{attachments}/va/status"),
            r#"{"status": {}}"#,
            attachment,
            "patch volumeattachments.storage.k8s.io/status va 200 -> Volume pv",
        ),
        (
            "PUT",
            "/api/v1/persistentvolumes/pv",
            r#"{"metadata": {"name": "pv"}, "spec": {}}"#,
            "",
            "update persistentvolumes pv 200",
        ),
        (
            "PATCH",
            "/api/v1/namespaces/ns/persistentvolumeclaims/data",
            "{}",
            "",
            "patch persistentvolumeclaims ns/data 200",
        ),
    ] {
        assert_eq!(
            recorded(method, path, sent, answered),
            Some(format!("agent: {expected}")),
            "{method} {path}"
        );
    }
    for (method, path) in [
        ("GET", pods),
        ("DELETE", pods),
        ("POST", "/api/v1/namespaces"),
        ("PUT", "/api/v1/namespaces/pods/finalize"),
        ("PATCH", "/api/v1/namespaces/pods"),
        ("POST", "/apis/metrics.k8s.io/v1/namespaces/ns/pods"),
        ("POST", "/api/v1/namespaces/ns/events"),
        ("PATCH", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"),
    ] {
        assert_eq!(recorded(method, path, pod, pod), None, "{method} {path}");
    }
    assert_eq!(recorded("POST", pods, "{}", status), None, "the object is unknown");
}

#[tokio::test]
async fn a_client_sends_its_writes_to_the_socket() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = apiserver::start(apiserver::Config::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tap.sock");
    let Telemetry { mut writes, .. } = tap::listen(&path).unwrap();
    let recorder = ApiWriteRecorder::connect(&path).unwrap();
    let client = recording_client(&client(&server.kubeconfig()).await.unwrap(), &recorder, AGENT);
    drop(recorder);

    let (post, patch) = (PostParams::default(), PatchParams::default());
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }))
    .unwrap();
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), "default");
    let made = claims.create(&post, &claim).await.unwrap();
    assert_eq!(made.metadata.name.as_deref(), Some("data"), "the caller has its answer");
    assert!(claims.create(&post, &claim).await.is_err());
    claims.get("data").await.unwrap();
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "d", "volumeHandle": "h"}, "claimRef": {"namespace": "default", "name": "data"},
        },
    }))
    .unwrap();
    let volumes = Api::<PersistentVolume>::all(client.clone());
    volumes.create(&post, &volume).await.unwrap();
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    volumes.patch("pv", &patch, &Patch::Merge(&label)).await.unwrap();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "pod"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }))
    .unwrap();
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    pods.create(&post, &pod).await.unwrap();
    pods.delete("pod", &DeleteParams::default().grace_period(0)).await.unwrap();
    // The socket ends with its last client.
    drop((client, claims, volumes, pods));

    let mut lines = Vec::new();
    for _ in 0..6 {
        let write = writes.recv().await.unwrap();
        assert!(write.seconds >= 0.0 && write.start.mono_ns > 0);
        if write.object.kind == LifecycleObjectKind::Claim {
            assert_eq!(write.refers_to, Some(Vec::new()));
        }
        lines.push(line(&write).replace("claimcheck-harness: ", ""));
    }
    assert_eq!(
        lines,
        [
            "create persistentvolumeclaims default/data 201",
            "create persistentvolumeclaims default/data 409",
            "create persistentvolumes pv 201 -> Claim default/data",
            "patch persistentvolumes pv 200 -> Claim default/data",
            "create pods default/pod 201 -> Claim default/data",
            "delete pods default/pod 200 -> Claim default/data",
        ]
    );
    server.shutdown().await;
}
