//! The objects of a load: claims, and idle pods that use them.

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

use super::Spec;
use crate::{fixture::STAY, workload::IMAGE};

/// The load's own namespace.
pub(super) fn namespace(name: &str) -> Namespace {
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "claimcheck.dev/load": "true" } },
    }))
    .expect("a Namespace")
}

/// A claim, of the default class if the load names none.
pub(super) fn claim(name: &str, spec: &Spec) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": spec.size } },
        },
    });
    if let Some(class) = &spec.class {
        claim["spec"]["storageClassName"] = json!(class);
    }
    serde_json::from_value(claim).expect("a PersistentVolumeClaim")
}

/// A pod that mounts all these claims; on `node`, if it must run on the same node as another pod.
pub(super) fn pod(name: &str, claims: &[String], node: Option<&str>) -> Pod {
    let each = |object: fn(usize, &String) -> Value| -> Vec<Value> {
        claims.iter().enumerate().map(|(nth, claim)| object(nth, claim)).collect()
    };
    let volumes = each(
        |nth, claim| json!({ "name": format!("v{nth}"), "persistentVolumeClaim": { "claimName": claim } }),
    );
    let mounts = each(|nth, _| json!({ "name": format!("v{nth}"), "mountPath": format!("/data{nth}") }));
    let mut pod = json!({
        "metadata": { "name": name },
        "spec": {
            // Short: a pod that is deleted before its shell has set the trap uses the whole period.
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "command": ["sh", "-c", STAY],
                "volumeMounts": mounts,
            }],
            "volumes": volumes,
        },
    });
    if let Some(node) = node {
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    }
    serde_json::from_value(pod).expect("a Pod")
}
