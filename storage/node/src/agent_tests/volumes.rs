//! Volumes that a pod's spec holds: made, kept up to date, and removed with the pod.

use std::path::Path;

use claimcheck_informer::key_of;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    storage::v1::CSIDriver,
};

use super::*;

async fn config_map(cluster: &Cluster, name: &str, data: Value) {
    let map = json!({"metadata": {"name": name}, "data": data});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    cluster.namespaced().create(&PostParams::default(), &map).await.unwrap();
}

/// Waits until a file holds this text. Changes are not announced, so this polls.
async fn holds(path: &Path, text: &str) {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    let changed = async {
        while read() != text {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(LONG, changed).await.is_ok(), "{} holds {:?}", path.display(), read());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_follow_their_objects() {
    let cluster = Cluster::start().await;
    config_map(&cluster, "config", json!({"a": "1", "b": "2"})).await;
    let secret = json!({"metadata": {"name": "secret"}, "stringData": {"key": "s"}, "data": {"key": "cw=="}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    cluster.namespaced().create(&PostParams::default(), &secret).await.unwrap();
    let volume = json!({"projected": {"sources": [
        {"configMap": {"name": "config", "items": [{"key": "a", "path": "config/a"}]}},
        {"secret": {"name": "secret"}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]}});
    let uid = cluster.pod_of("p", volume, json!({})).await;
    cluster.ready("p").await;
    let root = cluster.source(&uid);
    assert!(root.ends_with(format!("pods/{uid}/volumes/kubernetes.io~projected/v")));
    holds(&root.join("config/a"), "1").await;
    holds(&root.join("key"), "s").await;
    holds(&root.join("labels"), "app=\"web\"").await;

    let change = Patch::Merge(json!({"data": {"a": "3"}}));
    cluster.namespaced::<ConfigMap>().patch("config", &PatchParams::default(), &change).await.unwrap();
    holds(&root.join("config/a"), "3").await;
    let change = Patch::Merge(json!({"metadata": {"labels": {"app": "shop"}}}));
    cluster.namespaced::<Pod>().patch("p", &PatchParams::default(), &change).await.unwrap();
    holds(&root.join("labels"), "app=\"shop\"").await;

    cluster.delete("p").await;
    cluster.deleted("p").await;
    cluster.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_object_emits_an_event_and_is_waited_for() {
    let cluster = Cluster::start().await;
    let uid = cluster.pod_of("p", json!({"configMap": {"name": "late"}}), json!({})).await;
    cluster.event("MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found").await;
    config_map(&cluster, "late", json!({"a": "1"})).await;
    cluster.ready("p").await;
    holds(&cluster.source(&uid).join("a"), "1").await;
    // The mount stays when the object is deleted.
    cluster.namespaced::<ConfigMap>().delete("late", &DeleteParams::default()).await.unwrap();
    cluster.pod_of("q", json!({"configMap": {"name": "late", "optional": true}}), json!({})).await;
    cluster.ready("q").await;
    holds(&cluster.source(&uid).join("a"), "1").await;
    cluster.delete("p").await;
    cluster.deleted("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_brings_files_up_to_date() {
    let mut cluster = Cluster::start().await;
    config_map(&cluster, "config", json!({"a": "1"})).await;
    let uid = cluster.pod_of("p", json!({"configMap": {"name": "config"}}), json!({})).await;
    cluster.ready("p").await;
    cluster.stop_agent().await;
    let change = Patch::Merge(json!({"data": {"a": "2"}}));
    cluster.namespaced::<ConfigMap>().patch("config", &PatchParams::default(), &change).await.unwrap();
    cluster.start_agent();
    holds(&cluster.source(&uid).join("a"), "2").await;
    let pod = cluster.namespaced::<Pod>().get("p").await.unwrap();
    assert_eq!(condition(Some(&pod), "Ready"), Some("True"), "{:?}", key_of(&pod));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_mounted_and_unmounted() {
    let cluster = Cluster::start().await;
    let volume = json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}});
    let uid = cluster.pod_of("p", volume, json!({})).await;
    cluster.ready("p").await;
    let source = cluster.source(&uid);
    assert!(cluster.host.is_mounted(&source));
    cluster.delete("p").await;
    cluster.deleted("p").await;
    assert!(!cluster.host.is_mounted(&source));
    cluster.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_path_must_be_what_it_is_taken_for() {
    let cluster = Cluster::start().await;
    let path = cluster.root.path().join("here");
    let volume = |kind: &str| json!({"hostPath": {"path": path, "type": kind}});
    cluster.pod_of("p", volume("Directory"), json!({})).await;
    let message = format!("hostPath type check failed: {} is not a directory", path.display());
    cluster.event(&format!("MountVolume.SetUp failed for volume \"v\" : {message}")).await;
    let uid = cluster.pod_of("q", volume("DirectoryOrCreate"), json!({})).await;
    cluster.ready("q").await;
    assert_eq!(cluster.source(&uid), path);
    // Tried again by itself.
    cluster.ready("p").await;
    for pod in ["p", "q"] {
        cluster.delete(pod).await;
        cluster.deleted(pod).await;
    }
    assert!(path.is_dir(), "it belongs to the node");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_volume_is_found_safely() {
    let cluster = Cluster::start().await;
    let container = |sub_path: &str| {
        json!({"containers": [{
            "name": "c", "image": "busybox", "env": [{"name": "WHO", "value": "me"}],
            "volumeMounts": [{"name": "v", "mountPath": "/data", "subPathExpr": sub_path}],
        }]})
    };
    let uid = cluster.pod_of("p", json!({"emptyDir": {}}), container("of/$(WHO)")).await;
    cluster.ready("p").await;
    let source = cluster.source(&uid);
    assert!(source.ends_with("kubernetes.io~empty-dir/v/of/me"), "{}", source.display());
    assert!(source.is_dir());

    let outside = cluster.root.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink("/", outside.join("way")).unwrap();
    cluster.pod_of("q", json!({"hostPath": {"path": outside}}), container("way/etc")).await;
    cluster.event("it leads out of the volume, by a symbolic link").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_volume_is_published_and_nothing_else() {
    let cluster = Cluster::start().await;
    let volume = json!({"csi": {"driver": DRIVER, "volumeAttributes": {"size": "1"}, "readOnly": true}});
    let uid = cluster.pod_of("p", volume, json!({})).await;
    // A driver has to say that it serves them.
    let refused = format!("volume mode Ephemeral not supported by driver {DRIVER}");
    cluster.event(&format!("{refused}: see its CSIDriver's volumeLifecycleModes")).await;
    let modes = json!({"podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"]});
    csi_driver(&cluster, modes).await;
    cluster.ready("p").await;
    let published = cluster.driver.published().pop().unwrap();
    let context = |key: &str| published.volume_context.get(key).map(String::as_str);
    assert_eq!(context("csi.storage.k8s.io/ephemeral"), Some("true"));
    assert_eq!((context("csi.storage.k8s.io/pod.name"), context("size")), (Some("p"), Some("1")));
    assert!(published.readonly && published.staging_target_path.is_empty());
    assert!(published.target_path.ends_with(&format!("pods/{uid}/volumes/kubernetes.io~csi/v/mount")));
    cluster.delete("p").await;
    cluster.deleted("p").await;
    let handle = published.volume_id;
    assert_eq!(
        cluster.driver.calls(),
        [format!("Publish {handle} {uid}"), format!("Unpublish {handle} {uid}")]
    );
    cluster.in_use(&[]).await;
    cluster.assert_empty();
}

async fn csi_driver(cluster: &Cluster, spec: Value) {
    let driver = json!({"metadata": {"name": DRIVER}, "spec": spec});
    let driver: CSIDriver = serde_json::from_value(driver).unwrap();
    cluster.all().create(&PostParams::default(), &driver).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_passed_where_the_driver_wants_them() {
    for in_secrets in [None, Some(false), Some(true)] {
        let cluster = Cluster::start().await;
        let spec = json!({
            "volumeLifecycleModes": ["Ephemeral"],
            "tokenRequests": [{"audience": "vault"}],
            "serviceAccountTokenInSecrets": in_secrets,
        });
        csi_driver(&cluster, spec).await;
        cluster.pod_of("p", json!({"csi": {"driver": DRIVER}}), json!({})).await;
        cluster.ready("p").await;
        let published = cluster.driver.published().pop().unwrap();
        let tokens = "csi.storage.k8s.io/serviceAccount.tokens";
        let (context, secrets) = (published.volume_context.get(tokens), published.secrets.get(tokens));
        let (with, without) = if in_secrets == Some(true) { (secrets, context) } else { (context, secrets) };
        assert_eq!(without, None, "{in_secrets:?}");
        let passed: Value = serde_json::from_str(with.unwrap()).unwrap();
        assert!(passed["vault"]["token"].is_string() && passed["vault"]["expirationTimestamp"].is_string());
    }
}
