//! Default objects of every cluster and every namespace, which are restored when they are deleted.

use serde_json::{Value, json};

use crate::admission::class;
use crate::resources::Storage;
use crate::store::{Key, Store};
use crate::{auth, custom, time};

/// The namespaces of every cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The service account of pods without one.
const SERVICE_ACCOUNT: &str = "default";

/// The CA bundle with which pods verify the API server.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Creates the default objects in an empty store.
pub fn bootstrap_cluster(store: &Store, ca_pem: &str) {
    for name in NAMESPACES {
        let namespace = json!({
            "metadata": metadata(name, json!({ "labels": { "kubernetes.io/metadata.name": name } })),
            "spec": { "finalizers": ["kubernetes"] },
            "status": { "phase": "Active" },
        });
        store.create(Storage::Namespaces, Key::cluster(name), namespace).expect("the store is empty");
        bootstrap_namespace(store, name, ca_pem);
    }
    auth::bootstrap(store);
    custom::create_definitions(store);
    store.kinds().refresh(store);
    // What the controller `kubernetesservice` of kube-apiserver maintains; clients read its address family.
    let service = json!({
        "metadata": metadata("kubernetes", json!({
            "namespace": "default",
            "labels": { "component": "apiserver", "provider": "kubernetes" },
        })),
        "spec": {
            "ports": [{ "name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443 }],
            "clusterIP": "10.96.0.1",
            "clusterIPs": ["10.96.0.1"],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        },
        "status": { "loadBalancer": {} },
    });
    store.create(Storage::Services, Key::new("default", "kubernetes"), service).expect("the store is empty");
    for (name, value, description) in class::SYSTEM_PRIORITIES {
        let class = json!({
            "metadata": metadata(name, json!({ "generation": 1 })),
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        store.create(Storage::PriorityClasses, Key::cluster(name), class).expect("the store is empty");
    }
}

/// Creates the service account and the CA of a namespace, if they are missing.
///
/// Stock Kubernetes has two controllers for that, and rejects pods that are created before. Here both exist as
/// soon as the namespace does.
pub fn bootstrap_namespace(store: &Store, namespace: &str, ca_pem: &str) {
    let account = json!({ "metadata": metadata(SERVICE_ACCOUNT, json!({ "namespace": namespace })) });
    let about = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                 endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                 guaranteed across distributions of Kubernetes clusters.";
    let annotations = json!({
        "namespace": namespace, "annotations": { "kubernetes.io/description": about },
    });
    let ca = json!({ "metadata": metadata(ROOT_CA, annotations), "data": { "ca.crt": ca_pem } });
    for (storage, name, object) in
        [(Storage::ServiceAccounts, SERVICE_ACCOUNT, account), (Storage::ConfigMaps, ROOT_CA, ca)]
    {
        // It is there already, or the namespace is going away: both are fine.
        store.create(storage, Key::new(namespace, name), object).ok();
    }
}

/// Whether [`bootstrap_namespace`] creates this object.
pub fn belongs_to_namespace(storage: Storage, key: &Key) -> bool {
    matches!(
        (storage, &*key.name),
        (Storage::ServiceAccounts, SERVICE_ACCOUNT) | (Storage::ConfigMaps, ROOT_CA)
    )
}

/// The metadata of a new object, and `more` of it.
pub fn metadata(name: &str, more: Value) -> Value {
    let mut metadata = json!({
        "name": name,
        "uid": uuid::Uuid::new_v4().to_string(),
        "creationTimestamp": time::now(),
    });
    if let (Value::Object(metadata), Value::Object(more)) = (&mut metadata, more) {
        metadata.extend(more);
    }
    metadata
}
