//! Pods: their many defaults, and their mutable fields.
//!
//! Mirrors pkg/apis/core/v1/defaults.go and pkg/apis/core/validation.

use serde_json::{Value, json};

use super::{BASE, Field, Generation, Resource, Storage, Subresource, Write, default_to, status_of};
use crate::admission;
use crate::names;
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
                Subresource {
                    name: "ephemeralcontainers",
                    kind: "Pod",
                    foreign: None,
                    verbs: &["get", "patch", "update"],
                },
                connection("exec", "PodExecOptions"),
                Subresource { name: "log", kind: "Pod", foreign: None, verbs: &["get"] },
                connection("portforward", "PodPortForwardOptions"),
                status_of("Pod"),
            ]
        },
        returns_deleted: true,
        warnings,
        retained: &["priority", "preemptionPolicy", "priorityClassName"],
        generation: Generation::Versions,
        default,
        begin: |pod| pod["status"] = json!({ "phase": "Pending", "qosClass": quality_of_service(pod) }),
        settle_status: |old, pod| {
            let class = &old["status"]["qosClass"];
            if class.is_string() {
                pod["status"]["qosClass"] = class.clone();
            }
            write_times(pod, &["lastProbeTime", "lastTransitionTime"]);
            // `Convert_v1_PodStatus_To_core_PodStatus`.
            let address = pod["status"]["podIP"].as_str().filter(|address| !address.is_empty());
            if let (Some(address), true) = (address.map(str::to_owned), pod["status"]["podIPs"].is_null()) {
                pod["status"]["podIPs"] = json!([{ "ip": address }]);
            }
        },
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
        empty: r#","spec":{"containers":null},"status":{}"#,
        ..BASE
    }
}

/// A name that is no DNS label. It is a subdomain, which is validated.
fn warnings(pod: &Value, write: Write) -> Vec<String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let faults = names::faults_as_label(name).filter(|_| write == Write::Create);
    let warning = faults.map(|faults| {
        format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
             is recommended: {faults}"
        )
    });
    warning.into_iter().collect()
}

/// A subresource that is a connection to a container or a port.
const fn connection(name: &'static str, kind: &'static str) -> Subresource {
    Subresource { name, kind, foreign: None, verbs: &["create", "get"] }
}

fn default(pod: &mut Value) {
    let spec = &mut pod["spec"];
    default_spec(spec);
    default_to(spec, "enableServiceLinks", true);
    let host_network = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec, list) {
            default_pod_container(container, host_network);
        }
    }
    // What the admission plug-ins ServiceAccount and DefaultTolerationSeconds add.
    default_to(spec, "serviceAccountName", "default");
    copy_service_account(spec);
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        tolerate(spec, key);
    }
    // An empty name is how Go writes none.
    if spec["nodeName"] == "" {
        remove(spec, "nodeName");
    }
}

/// The defaults of a pod's spec, and of that in a pod template.
///
/// Mirrors `SetDefaults_PodSpec` and the functions for its parts; `SetDefaults_Pod` is for pods only.
pub(super) fn default_spec(spec: &mut Value) {
    default_to(spec, "restartPolicy", "Always");
    default_to(spec, "terminationGracePeriodSeconds", 30);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = 1.into();
    }
    default_to(spec, "dnsPolicy", "ClusterFirst");
    default_to(spec, "securityContext", json!({}));
    default_to(spec, "schedulerName", "default-scheduler");
    copy_service_account(spec);
    for volume in items_mut(spec, "volumes") {
        default_volume(volume);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items_mut(spec, list) {
            default_container(container);
        }
    }
}

/// The name of the account has a second, deprecated field (`Convert_core_PodSpec_To_v1_PodSpec`).
fn copy_service_account(spec: &mut Value) {
    let deprecated = spec["serviceAccount"].clone();
    if !deprecated.is_null() {
        default_to(spec, "serviceAccountName", deprecated);
    }
    match spec.get("serviceAccountName").cloned() {
        Some(name) => spec["serviceAccount"] = name,
        None => remove(spec, "serviceAccount"),
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
    let policy = pull_policy(container["image"].as_str().unwrap_or_default());
    default_to(container, "imagePullPolicy", policy);
    for port in items_mut(container, "ports") {
        default_to(port, "protocol", "TCP");
    }
    for variable in items_mut(container, "env") {
        if let Some(reference) = variable.pointer_mut("/valueFrom/fieldRef") {
            default_to(reference, "apiVersion", "v1");
        }
        if let Some(reference) = variable.pointer_mut("/valueFrom/fileKeyRef") {
            default_to(reference, "optional", false);
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
            default_action(probe);
            if let Some(call) = probe.get_mut("grpc") {
                default_to(call, "service", "");
            }
        }
    }
    for hook in ["/lifecycle/postStart", "/lifecycle/preStop"] {
        if let Some(hook) = container.pointer_mut(hook) {
            default_action(hook);
        }
    }
}

/// An image without a tag has the tag `latest`.
fn pull_policy(image: &str) -> &'static str {
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    let latest = !image.contains('@') && tag.is_none_or(|tag| tag == "latest");
    if latest { "Always" } else { "IfNotPresent" }
}

/// Mirrors `SetDefaults_HTTPGetAction`.
fn default_action(handler: &mut Value) {
    if let Some(action) = handler.get_mut("httpGet") {
        default_to(action, "path", "/");
        default_to(action, "scheme", "HTTP");
    }
}

/// What a container has by default in a pod, and not in a template.
fn default_pod_container(container: &mut Value, host_network: bool) {
    let limits = container["resources"]["limits"].clone();
    if let Value::Object(limits) = limits {
        // A limit without a request implies an equal request.
        for (name, limit) in limits {
            default_to(&mut container["resources"]["requests"], &name, limit);
        }
    }
    if host_network {
        for port in items_mut(container, "ports") {
            let number = port["containerPort"].clone();
            default_to(port, "hostPort", number);
        }
    }
}

/// Mirrors `SetDefaults_Volume` and the functions for the sources of volumes.
fn default_volume(volume: &mut Value) {
    let sources = ["configMap", "secret", "projected", "downwardAPI"];
    for source in sources {
        if let Some(source) = volume.get_mut(source) {
            default_to(source, "defaultMode", 420);
        }
    }
    default_source(volume);
    if let Some(image) = volume.get_mut("image") {
        let policy = pull_policy(image["reference"].as_str().unwrap_or_default());
        default_to(image, "pullPolicy", policy);
    }
    if let Some(template) = volume.pointer_mut("/ephemeral/volumeClaimTemplate") {
        // Go writes it even when it is empty.
        default_to(template, "metadata", json!({}));
        default_to(&mut template["spec"], "volumeMode", "Filesystem");
    }
    // A volume that names no source is an empty directory.
    if volume.as_object().is_some_and(|fields| fields.keys().all(|name| name == "name")) {
        volume["emptyDir"] = json!({});
    }
    if let Some(source) = volume.get_mut("downwardAPI") {
        default_items(source);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in items_mut(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                default_to(token, "expirationSeconds", 3600);
            }
            if let Some(source) = source.get_mut("downwardAPI") {
                default_items(source);
            }
        }
    }
}

/// Fields of the sources of volumes with a text as default.
const DEFAULTS_OF_SOURCES: &[(&str, &[(&str, &str)])] = &[
    ("hostPath", &[("type", "")]),
    ("iscsi", &[("iscsiInterface", "default")]),
    ("rbd", &[("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")]),
    ("azureDisk", &[("cachingMode", "ReadWrite"), ("kind", "Shared"), ("fsType", "ext4")]),
    ("scaleIO", &[("storageMode", "ThinProvisioned"), ("fsType", "xfs")]),
];

/// The defaults of a source that pods and PersistentVolumes have.
pub(super) fn default_source(volume: &mut Value) {
    for (source, fields) in DEFAULTS_OF_SOURCES {
        if let Some(source) = volume.get_mut(source) {
            for (field, value) in *fields {
                default_to(source, field, *value);
            }
        }
    }
    if let Some(disk) = volume.get_mut("azureDisk") {
        default_to(disk, "readOnly", false);
    }
}

/// The version of the fields that files of a downward API volume have.
fn default_items(source: &mut Value) {
    for item in items_mut(source, "items") {
        if let Some(reference) = item.get_mut("fieldRef") {
            default_to(reference, "apiVersion", "v1");
        }
    }
}

/// Go writes these times of conditions even when they are not set.
pub(super) fn write_times(object: &mut Value, times: &[&str]) {
    let Some(status) = object.get_mut("status") else { return };
    for condition in items_mut(status, "conditions") {
        for time in times {
            default_to(condition, time, Value::Null);
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

/// The errors of a change, and before them those of the new pod.
///
/// Mirrors `ValidatePodUpdate`.
fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let change = validate_change(old, new);
    if change.is_empty() { change } else { admission::pod::validate(new).into_iter().chain(change).collect() }
}

/// The errors of a write of `ephemeralcontainers`: those of the pod, and of changes to the containers that it has.
///
/// Mirrors `ValidatePodEphemeralContainersUpdate`.
pub fn validate_ephemeral_containers(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = admission::pod::validate(new);
    let of = |pod: &Value| pod["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
    let (before, after) = (of(old), of(new));
    let path = "spec.ephemeralContainers";
    for container in &before {
        let name = container["name"].as_str().unwrap_or_default();
        let fault = match after.iter().find(|other| other["name"] == container["name"]) {
            None => "removed",
            Some(other) if other != container => "changed",
            Some(_) => continue,
        };
        errors.push(FieldError::forbidden(
            path,
            format!("existing ephemeral containers {name:?} may not be {fault}\n"),
        ));
    }
    errors
}

/// A pod's spec is immutable, except images, the deadline and additional tolerations. `nodeName` is set by
/// binding.
fn validate_change(old: &Value, new: &Value) -> Vec<FieldError> {
    for list in ["containers", "initContainers"] {
        let count = |pod: &Value| pod["spec"][list].as_array().map_or(0, Vec::len);
        if count(old) != count(new) {
            let message = "pod updates may not add or remove containers";
            return vec![FieldError::forbidden(format!("spec.{list}"), message)];
        }
    }
    let (was, is) = (&old["spec"]["activeDeadlineSeconds"], &new["spec"]["activeDeadlineSeconds"]);
    let refused = match (was.as_i64(), is.as_i64()) {
        (Some(_), None) => Some("must not update from a positive integer to nil value"),
        (Some(was), Some(is)) if was < is => Some("must be less than or equal to previous value"),
        _ => None,
    };
    if let Some(message) = refused {
        return vec![FieldError::invalid("spec.activeDeadlineSeconds", is, message)];
    }
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

/// The items of a list, none if it is not set.
pub(super) fn items_mut<'a>(object: &'a mut Value, list: &str) -> &'a mut [Value] {
    match object.get_mut(list) {
        Some(Value::Array(items)) => items,
        _ => &mut [],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        json!({ "spec": {
            "hostNetwork": true,
            "containers": [{
                "name": "c", "image": "i:1", "ports": [{ "containerPort": 80 }],
                "resources": { "limits": { "cpu": "1" } },
                "livenessProbe": { "httpGet": { "port": 80 } }, "readinessProbe": { "grpc": { "port": 81 } },
            }],
        } })
    }

    #[test]
    fn requests_and_host_ports_are_defaults_of_pods_and_not_of_templates() {
        let mut template = pod();
        default_spec(&mut template["spec"]);
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(
            container["livenessProbe"]["httpGet"],
            json!({ "port": 80, "path": "/", "scheme": "HTTP" })
        );
        assert_eq!(container["readinessProbe"]["grpc"], json!({ "port": 81, "service": "" }));
        assert_eq!(container["resources"], json!({ "limits": { "cpu": "1" } }));
        assert_eq!(container["ports"], json!([{ "containerPort": 80, "protocol": "TCP" }]));
        assert!(template["spec"].get("enableServiceLinks").is_none(), "{template}");

        let mut pod = pod();
        default(&mut pod);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"], json!({ "cpu": "1" }));
        assert_eq!(container["ports"][0]["hostPort"], 80);
        assert_eq!(pod["spec"]["enableServiceLinks"], true);
    }

    #[test]
    fn a_status_keeps_its_class_and_writes_unset_times() {
        let settle = row().settle_status;
        let old = json!({ "status": { "phase": "Pending", "qosClass": "Burstable" } });
        let mut new = json!({ "status": { "conditions": [{ "type": "Ready" }] } });
        settle(&old, &mut new);
        let condition = json!({ "type": "Ready", "lastProbeTime": null, "lastTransitionTime": null });
        assert_eq!(new["status"], json!({ "qosClass": "Burstable", "conditions": [condition] }));
        let mut none = json!({});
        settle(&old, &mut none);
        assert_eq!(none["status"], json!({ "qosClass": "Burstable" }));
    }

    #[test]
    fn what_a_change_may_not_do() {
        let with = |field: &str, value: Value| {
            let mut pod = pod();
            pod["spec"][field] = value;
            pod
        };
        let deadline = |seconds: Value| with("activeDeadlineSeconds", seconds);
        let table = [
            (pod(), pod(), ""),
            (pod(), deadline(json!(9)), ""),
            (deadline(json!(9)), deadline(json!(8)), ""),
            (
                deadline(json!(9)),
                deadline(json!(10)),
                "spec.activeDeadlineSeconds: Invalid value: 10: must be less",
            ),
            (
                deadline(json!(9)),
                pod(),
                "spec.activeDeadlineSeconds: Invalid value: null: must not update from",
            ),
            (
                pod(),
                with("containers", json!([])),
                "spec.containers: Forbidden: pod updates may not add or remove",
            ),
            (
                pod(),
                with("nodeName", json!("n")),
                "spec: Forbidden: pod updates may not change fields other than",
            ),
        ];
        for (old, new, expected) in table {
            let errors: Vec<String> = validate_change(&old, &new).iter().map(ToString::to_string).collect();
            assert_eq!(errors.len(), usize::from(!expected.is_empty()), "{expected}: {errors:?}");
            assert!(errors.iter().all(|error| error.starts_with(expected)), "{expected}: {errors:?}");
        }
    }
}
