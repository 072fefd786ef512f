//! Pods: their many defaults, and their mutable fields.
//!
//! Mirrors pkg/apis/core/v1/defaults.go and pkg/apis/core/validation.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::decode::decode;
use super::{BASE, Field, Resource, Storage, Subresource, columns, default_to, status_of};
use crate::admission;
use crate::status::FieldError;

pub(super) fn row() -> Resource {
    Resource {
        storage: Storage::Pods,
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        namespaced: true,
        subresources: const {
            &[
                connection("attach", "PodAttachOptions"),
                Subresource { name: "binding", kind: "Binding", foreign: None, verbs: &["create"] },
                Subresource {
                    name: "eviction",
                    kind: "Eviction",
                    foreign: Some(("policy", "v1")),
                    verbs: &["create"],
                },
                connection("exec", "PodExecOptions"),
                Subresource { name: "log", kind: "Pod", foreign: None, verbs: &["get"] },
                connection("portforward", "PodPortForwardOptions"),
                status_of("Pod"),
            ]
        },
        returns_deleted: true,
        retained: &["priority", "preemptionPolicy", "priorityClassName"],
        generation: true,
        decode: decode::<Pod>,
        quantities: &[
            "spec/containers/*/resources/requests/*",
            "spec/containers/*/resources/limits/*",
            "spec/initContainers/*/resources/requests/*",
            "spec/initContainers/*/resources/limits/*",
            "spec/volumes/*/emptyDir/sizeLimit",
            "spec/volumes/*/ephemeral/volumeClaimTemplate/spec/resources/requests/*",
        ],
        default,
        begin: |pod| pod["status"] = json!({ "phase": "Pending", "qosClass": quality_of_service(pod) }),
        validate: admission::pod::validate,
        validate_update,
        fields: &[
            Field { name: "spec.nodeName", pointers: &["/spec/nodeName"], unset: "" },
            Field { name: "spec.restartPolicy", pointers: &["/spec/restartPolicy"], unset: "" },
            Field { name: "spec.schedulerName", pointers: &["/spec/schedulerName"], unset: "" },
            Field { name: "spec.serviceAccountName", pointers: &["/spec/serviceAccountName"], unset: "" },
            Field { name: "spec.hostNetwork", pointers: &["/spec/hostNetwork"], unset: "false" },
            Field { name: "status.phase", pointers: &["/status/phase"], unset: "" },
            Field { name: "status.podIP", pointers: &["/status/podIP"], unset: "" },
            Field { name: "status.nominatedNodeName", pointers: &["/status/nominatedNodeName"], unset: "" },
        ],
        columns: columns::POD,
        empty: r#","spec":{"containers":null},"status":{}"#,
        ..BASE
    }
}

/// A subresource that is a connection to a container or a port.
const fn connection(name: &'static str, kind: &'static str) -> Subresource {
    Subresource { name, kind, foreign: None, verbs: &["create", "get"] }
}

fn default(pod: &mut Value) {
    let spec = &mut pod["spec"];
    default_to(spec, "restartPolicy", "Always");
    default_to(spec, "terminationGracePeriodSeconds", 30);
    default_to(spec, "dnsPolicy", "ClusterFirst");
    default_to(spec, "securityContext", json!({}));
    default_to(spec, "schedulerName", "default-scheduler");
    default_to(spec, "enableServiceLinks", true);
    // What the admission plug-ins ServiceAccount and DefaultTolerationSeconds add.
    default_to(spec, "serviceAccountName", "default");
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        tolerate(spec, key);
    }
    // An empty name is how Go writes none.
    if spec["nodeName"] == "" {
        remove(spec, "nodeName");
    }
    for volume in items_mut(spec, "volumes") {
        default_volume(volume);
    }
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec, list) {
            default_container(container);
        }
    }
}

fn tolerate(spec: &mut Value, key: &str) {
    let tolerations = spec["tolerations"].as_array().map_or(&[][..], Vec::as_slice);
    let tolerated = tolerations.iter().any(|toleration| {
        (toleration["key"] == key || toleration["key"].is_null())
            && (toleration["effect"] == "NoExecute" || toleration["effect"].is_null())
    });
    if !tolerated {
        let toleration =
            json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
        match &mut spec["tolerations"] {
            Value::Array(tolerations) => tolerations.push(toleration),
            unset => *unset = json!([toleration]),
        }
    }
}

fn default_container(container: &mut Value) {
    default_to(container, "resources", json!({}));
    default_to(container, "terminationMessagePath", "/dev/termination-log");
    default_to(container, "terminationMessagePolicy", "File");
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    let latest = !image.contains('@') && tag.is_none_or(|tag| tag == "latest");
    default_to(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    for port in items_mut(container, "ports") {
        default_to(port, "protocol", "TCP");
    }
    let limits = container["resources"]["limits"].clone();
    if let Value::Object(limits) = limits {
        // A limit without a request implies an equal request.
        for (name, limit) in limits {
            default_to(&mut container["resources"]["requests"], &name, limit);
        }
    }
    for variable in items_mut(container, "env") {
        if let Some(reference) = variable.pointer_mut("/valueFrom/fieldRef") {
            default_to(reference, "apiVersion", "v1");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            for (field, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                default_to(probe, field, value);
            }
        }
    }
}

fn default_volume(volume: &mut Value) {
    let sources = ["configMap", "secret", "projected", "downwardAPI"];
    for source in sources {
        if let Some(source) = volume.get_mut(source) {
            default_to(source, "defaultMode", 420);
        }
    }
    if let Some(claim) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        default_to(claim, "volumeMode", "Filesystem");
    }
    if let Some(path) = volume.get_mut("hostPath") {
        default_to(path, "type", "");
    }
    // A volume that names no source is an empty directory.
    if volume.as_object().is_some_and(|fields| fields.keys().all(|name| name == "name")) {
        volume["emptyDir"] = json!({});
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in items_mut(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                default_to(token, "expirationSeconds", 3600);
            }
        }
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`, by the requests and limits of all containers.
fn quality_of_service(pod: &Value) -> &'static str {
    let lists = ["containers", "initContainers"];
    let containers = || lists.iter().filter_map(|list| pod["spec"][list].as_array()).flatten();
    let any = containers().any(|container| {
        ["requests", "limits"]
            .iter()
            .any(|of| ["cpu", "memory"].iter().any(|r| !container["resources"][of][r].is_null()))
    });
    let all = containers().all(|container| {
        let (requests, limits) = (&container["resources"]["requests"], &container["resources"]["limits"]);
        ["cpu", "memory"].iter().all(|r| !limits[r].is_null() && requests[r] == limits[r])
    });
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// A pod's spec is immutable, except images, the deadline and additional tolerations. `nodeName` is set by
/// binding.
fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut allowed = old["spec"].clone();
    let added = new["spec"]["tolerations"].as_array().map_or(&[][..], Vec::as_slice);
    let kept = old["spec"]["tolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .all(|toleration| added.contains(toleration));
    for list in ["containers", "initContainers"] {
        for (index, container) in items_mut(&mut allowed, list).iter_mut().enumerate() {
            if let Some(image) = new["spec"][list].get(index).and_then(|container| container.get("image")) {
                container["image"] = image.clone();
            }
        }
    }
    copy(&new["spec"], &mut allowed, "activeDeadlineSeconds");
    if kept {
        copy(&new["spec"], &mut allowed, "tolerations");
    }
    if allowed == new["spec"] {
        return Vec::new();
    }
    vec![FieldError::forbidden(
        "spec",
        "pod updates may not change fields other than `spec.containers[*].image`,\
         `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
         existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
         previously negative)",
    )]
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => remove(to, field),
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Value::Object(fields) = object {
        fields.shift_remove(field);
    }
}

fn items_mut<'a>(object: &'a mut Value, list: &str) -> &'a mut [Value] {
    match object.get_mut(list) {
        Some(Value::Array(items)) => items,
        _ => &mut [],
    }
}
