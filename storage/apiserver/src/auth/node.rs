//! What nodes may read: of what RBAC permits to them, objects that a pod on the node refers to.
//!
//! Mirrors the Node authorizer (plugin/pkg/auth/authorizer/node), which permits these requests without a role. It does
//! not let a node watch claims, volumes and attachments, nor read an attachment that does not exist yet: a kubelet
//! requests them again and again.

use std::sync::Arc;

use serde_json::Value;

use super::User;
use super::action::{Action, ActionTarget, ResourceTarget};
use crate::resources::Storage;
use crate::store::{Key, Object, Store};

/// The group of nodes, and the prefix of their names.
const GROUP: &str = "system:nodes";
const PREFIX: &str = "system:node:";

/// Why the request of a user is not one of a node about what is its own; `None` if it is, or if the user is no node.
pub fn refusal(store: &Store, user: &User, action: &Action) -> Option<String> {
    let node = user.name.strip_prefix(PREFIX).filter(|_| user.is_in(GROUP))?;
    let ActionTarget::Resource(target) = &action.target else { return None };
    let is_own = match (&*target.group, &*target.resource) {
        ("", "nodes") | ("coordination.k8s.io", "leases") | ("storage.k8s.io", "csinodes") => {
            // Upstream's NodeRestriction reads the name in the body.
            target.name == node || action.verb == "create"
        }
        (
            "",
            "secrets" | "configmaps" | "serviceaccounts" | "persistentvolumeclaims" | "persistentvolumes",
        )
        | ("storage.k8s.io", "volumeattachments") => {
            if target.name.is_empty() {
                return Some("No Object name found".to_owned());
            }
            is_related(store, node, target)
        }
        _ => true,
    };
    (!is_own).then(|| format!("no relationship found between node '{node}' and this object"))
}

fn is_related(store: &Store, node: &str, target: &ResourceTarget) -> bool {
    let name = target.name.as_str();
    if target.resource == "volumeattachments" {
        return match store.get(Storage::Attachments, &Key::cluster(name)) {
            Some(attachment) => attachment.value["spec"]["nodeName"] == node,
            None => {
                let pods = store.pods_on(node);
                let mut volumes = pods.iter().flat_map(|pod| volumes_of(store, pod));
                volumes.any(|volume| attachment_name(&volume, node) == name)
            }
        };
    }
    if target.resource == "persistentvolumes" {
        let Some(volume) = store.get(Storage::Volumes, &Key::cluster(name)) else { return false };
        let claim = &volume.value["spec"]["claimRef"];
        let [namespace, claim] = ["namespace", "name"].map(|field| claim[field].as_str().unwrap_or_default());
        return store
            .pods_on(node)
            .iter()
            .any(|pod| *pod.key.namespace == *namespace && uses_claim(pod, claim));
    }
    let pods = store.pods_on(node);
    let mut of_namespace = pods.iter().filter(|pod| *pod.key.namespace == *target.namespace);
    match &*target.resource {
        "persistentvolumeclaims" => of_namespace.any(|pod| uses_claim(pod, name)),
        "serviceaccounts" => of_namespace.any(|pod| pod.value["spec"]["serviceAccountName"] == name),
        "configmaps" => of_namespace
            .any(|pod| refers(&pod.value["spec"], &["configMap", "configMapKeyRef", "configMapRef"], name)),
        _ => {
            let of_pod = [
                "secretName",
                "secret",
                "secretKeyRef",
                "secretRef",
                "imagePullSecrets",
                "nodePublishSecretRef",
            ];
            of_namespace.any(|pod| refers(&pod.value["spec"], &of_pod, name))
                || pods.iter().any(|pod| volumes_of(store, pod).any(|volume| has_secret(&volume, target)))
        }
    }
}

/// The names of a pod's claims.
fn claims_of(pod: &Object) -> impl Iterator<Item = String> {
    let volumes = pod.value["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(claim) => Some(claim.to_owned()),
        None if volume["ephemeral"].is_null() => None,
        None => Some(format!("{}-{}", pod.key.name, volume["name"].as_str().unwrap_or_default())),
    })
}

fn uses_claim(pod: &Object, name: &str) -> bool {
    claims_of(pod).any(|claim| claim == name)
}

/// The PersistentVolumes of a pod's claims.
fn volumes_of(store: &Store, pod: &Object) -> impl Iterator<Item = Arc<Object>> {
    claims_of(pod).filter_map(|claim| {
        let claim = store.get(Storage::Claims, &Key::new(&pod.key.namespace, &claim))?;
        store.get(Storage::Volumes, &Key::cluster(claim.value["spec"]["volumeName"].as_str()?))
    })
}

/// The name of a volume's attachment to a node.
fn attachment_name(volume: &Object, node: &str) -> String {
    let csi = &volume.value["spec"]["csi"];
    let [handle, driver] = ["volumeHandle", "driver"].map(|field| csi[field].as_str().unwrap_or_default());
    claimcheck_model::attachment_name(handle, driver, node)
}

/// Whether a Secret is for the driver of a volume.
fn has_secret(volume: &Object, target: &ResourceTarget) -> bool {
    let fields = volume.value["spec"]["csi"].as_object().into_iter().flatten();
    fields
        .filter(|(field, _)| field.ends_with("SecretRef"))
        .any(|(_, secret)| secret["name"] == *target.name && secret["namespace"] == *target.namespace)
}

/// Whether one of these fields, at any depth, has the name: itself, or of an object in it.
fn refers(value: &Value, fields: &[&str], name: &str) -> bool {
    match value {
        Value::Object(entries) => entries.iter().any(|(field, value)| {
            let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            let is_named = || items.iter().any(|item| *item == name || item["name"] == name);
            (fields.contains(&field.as_str()) && is_named()) || refers(value, fields, name)
        }),
        Value::Array(items) => items.iter().any(|item| refers(item, fields, name)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_may_read_what_its_pods_refer_to() {
        let (store, _notices) = Store::new(64);
        store.create(Storage::Namespaces, Key::cluster("d"), json!({ "metadata": {} })).unwrap();
        let pod = json!({ "metadata": { "uid": "p" }, "spec": {
            "nodeName": "n", "serviceAccountName": "account", "imagePullSecrets": [{ "name": "pull" }],
            "containers": [{ "envFrom": [{ "configMapRef": { "name": "from" } }], "env": [{
                "name": "secret", "valueFrom": { "secretKeyRef": { "name": "key", "key": "k" } },
            }] }],
            "volumes": [
                { "name": "c", "persistentVolumeClaim": { "claimName": "claim" } }, { "name": "e", "ephemeral": {} },
                { "name": "s", "secret": { "secretName": "file" } },
                { "name": "p", "projected": { "sources": [{ "configMap": { "name": "part" } }] } },
            ],
        } });
        let volume = json!({ "metadata": { "uid": "v" }, "spec": {
            "claimRef": { "namespace": "d", "name": "claim" },
            "csi": { "volumeHandle": "4205bd0a-e526-11f1-a62c-56592867d590", "driver": "hostpath.csi.k8s.io",
                "nodeStageSecretRef": { "namespace": "drivers", "name": "stage" } },
        } });
        let claim = json!({ "metadata": { "uid": "c" }, "spec": { "volumeName": "pv" } });
        let attachment = json!({ "metadata": { "uid": "a" }, "spec": { "nodeName": "n" } });
        let pod = store.create(Storage::Pods, Key::new("d", "pod"), pod).unwrap();
        store.create(Storage::Volumes, Key::cluster("pv"), volume).unwrap();
        store.create(Storage::Claims, Key::new("d", "claim"), claim).unwrap();
        store.create(Storage::Attachments, Key::cluster("csi-1"), attachment).unwrap();
        let user = |name: &str, group: &str| User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..User::default()
        };
        let refused = |user: &User, resource: &str, namespace: &str, name: &str| {
            let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
            let [group, resource, namespace, name] = [group, resource, namespace, name].map(str::to_owned);
            let target = ResourceTarget { group, resource, namespace, name, ..ResourceTarget::default() };
            refusal(&store, user, &Action::on_resource("watch", target))
        };
        let (node, other) = (user("system:node:n", GROUP), user("system:node:m", GROUP));
        let own = [
            ("persistentvolumeclaims", "d", "claim"),
            ("persistentvolumeclaims", "d", "pod-e"),
            ("persistentvolumes", "", "pv"),
            ("volumeattachments.storage.k8s.io", "", "csi-1"),
            ("serviceaccounts", "d", "account"),
            ("secrets", "d", "pull"),
            ("secrets", "d", "key"),
            ("secrets", "d", "file"),
            ("secrets", "drivers", "stage"),
            ("configmaps", "d", "from"),
            ("configmaps", "d", "part"),
            ("leases.coordination.k8s.io", "kube-node-lease", "n"),
            ("csinodes.storage.k8s.io", "", "n"),
            ("nodes", "", "n"),
        ];
        for (resource, namespace, name) in own {
            assert_eq!(refused(&node, resource, namespace, name), None, "{resource} {name}");
            let why = refused(&other, resource, namespace, name);
            let expected = "no relationship found between node 'm' and this object";
            assert_eq!(why.as_deref(), Some(expected), "{resource} {name}");
            assert!(refused(&node, resource, namespace, "other").is_some(), "{resource}");
            assert_eq!(refused(&user("system:node:m", "other"), resource, namespace, name), None, "no node");
        }
        for (resource, namespace, name) in
            [("secrets", "d", "stage"), ("secrets", "other", "key"), ("secrets", "d", "")]
        {
            assert!(refused(&node, resource, namespace, name).is_some(), "{resource} {namespace} {name}");
        }
        let future = "csi-2928b48a93e8c589fb57771b0b0f91d40e5be90f096d3730540f05eb7b2942bc";
        assert_eq!(
            refused(&node, "volumeattachments.storage.k8s.io", "", future),
            None,
            "it does not exist yet"
        );
        assert!(refused(&other, "volumeattachments.storage.k8s.io", "", future).is_some());
        assert_eq!(refused(&other, "csidrivers.storage.k8s.io", "", ""), None, "of no node");

        store.remove(Storage::Pods, &pod, pod.value.clone()).unwrap();
        assert!(refused(&node, "persistentvolumeclaims", "d", "claim").is_some(), "the pod is gone");
    }
}
