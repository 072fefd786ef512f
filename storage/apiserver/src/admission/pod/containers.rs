//! Validation of a pod's containers, and of their use of its volumes.
//!
//! Mirrors validateContainers and ValidateVolumeMounts in pkg/apis/core/validation.

use std::collections::HashSet;

use serde_json::Value;

use super::volumes::without_backsteps;
use super::{check_name, environment, items, requirements};
use crate::status::FieldError;

/// All containers of the spec at `path`. `mountable` are the names of its valid volumes.
pub fn validate(path: &str, spec: &Value, mountable: &HashSet<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if items(&spec["containers"]).next().is_none() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut seen = HashSet::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in items(&spec[list]).enumerate() {
            let path = format!("{path}.{list}[{index}]");
            errors.extend(common(&path, container, spec, mountable));
            errors.extend(unique(&path, container, &mut seen));
            if list == "initContainers" && container["restartPolicy"] != "Always" {
                errors.extend(no_life_cycle(&path, container));
            }
        }
    }
    for (index, container) in items(&spec["ephemeralContainers"]).enumerate() {
        let path = format!("{path}.ephemeralContainers[{index}]");
        errors.extend(common(&path, container, spec, mountable));
        errors.extend(unique(&path, container, &mut seen));
        errors.extend(ephemeral(&path, container, spec));
    }
    errors
}

/// What all containers have in common, in upstream's order (`validateContainerCommon`).
fn common(path: &str, container: &Value, spec: &Value, mountable: &HashSet<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // Whether it is unique is validated afterwards.
    errors.extend(check_name(path, container, &mut HashSet::new()));
    errors.extend(image(path, container));
    let policies = ["File", "FallbackToLogsOnError"];
    errors.extend(policy(path, container, "terminationMessagePolicy", &policies));
    errors.extend(ports(path, container));
    errors.extend(environment::validate(path, container));
    errors.extend(mounts(path, container, mountable));
    errors.extend(devices(path, container, spec, mountable));
    errors.extend(policy(path, container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"]));
    errors.extend(requirements::validate(&format!("{path}.resources"), &container["resources"]));
    errors
}

/// Containers of all lists have different names; a missing name is one, too.
fn unique<'a>(path: &str, container: &'a Value, seen: &mut HashSet<&'a str>) -> Option<FieldError> {
    let name = container["name"].as_str().unwrap_or_default();
    (!seen.insert(name)).then(|| FieldError::duplicate(format!("{path}.name"), &name.into()))
}

/// What only other containers may have. Mirrors validateEphemeralContainers.
fn ephemeral(path: &str, container: &Value, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let target = &container["targetContainerName"];
    let mut others = ["initContainers", "containers"].iter().flat_map(|list| items(&spec[*list]));
    if target.as_str().is_some_and(|name| !name.is_empty()) && !others.any(|other| other["name"] == *target) {
        errors.push(FieldError::not_found(format!("{path}.targetContainerName"), target));
    }
    let message = "cannot be set for an Ephemeral Container";
    for field in [
        "ports",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "restartPolicy",
        "resizePolicy",
    ] {
        let value = &container[field];
        if !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()) {
            errors.push(FieldError::forbidden(format!("{path}.{field}"), message));
        }
    }
    if container["resources"].as_object().is_some_and(|fields| !fields.is_empty()) {
        errors.push(FieldError::forbidden(format!("{path}.resources"), message));
    }
    for (index, mount) in items(&container["volumeMounts"]).enumerate() {
        for field in ["subPath", "subPathExpr"] {
            if mount[field].as_str().is_some_and(|path| !path.is_empty()) {
                errors.push(FieldError::forbidden(format!("{path}.volumeMounts[{index}].{field}"), message));
            }
        }
    }
    errors
}

fn image(path: &str, container: &Value) -> Option<FieldError> {
    let image = container["image"].as_str().unwrap_or_default();
    let field = format!("{path}.image");
    if image.is_empty() {
        return Some(FieldError::required(field, ""));
    }
    let message = "must not have leading or trailing whitespace";
    (image.trim() != image).then(|| FieldError::invalid(field, &container["image"], message))
}

/// The fault of a policy that is none of `known`; upstream lists them in this order.
fn policy(path: &str, container: &Value, field: &str, known: &[&str]) -> Option<FieldError> {
    if known.iter().any(|known| container[field] == *known) {
        return None;
    }
    Some(FieldError::not_one_of(format!("{path}.{field}"), &container[field], known))
}

fn no_life_cycle(path: &str, container: &Value) -> Vec<FieldError> {
    let fields = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
    let given = fields.into_iter().filter(|field| container[field].is_object());
    let message = "may not be set for init containers without restartPolicy=Always";
    given.map(|field| FieldError::forbidden(format!("{path}.{field}"), message)).collect()
}

/// No quantity is negative, and no request is above its limit.
fn mounts(path: &str, container: &Value, mountable: &HashSet<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut targets = HashSet::new();
    for (index, mount) in items(&container["volumeMounts"]).enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let at = |field: &str| format!("{path}.{field}");
        errors.extend(volume_name(&path, mount, mountable));
        let target = mount["mountPath"].as_str().unwrap_or_default();
        if target.is_empty() {
            errors.push(FieldError::required(at("mountPath"), ""));
        } else if !targets.insert(target) {
            errors.push(FieldError::invalid(at("mountPath"), &mount["mountPath"], "must be unique"));
        }
        if items(&container["volumeDevices"]).any(|device| device["name"] == mount["name"]) {
            let message = "must not already exist in volumeDevices";
            errors.push(FieldError::invalid(at("name"), &mount["name"], message));
        }
        if items(&container["volumeDevices"]).any(|device| device["devicePath"] == target) {
            let message = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(at("mountPath"), &mount["mountPath"], message));
        }
        let set = |field: &str| mount[field].as_str().is_some_and(|text| !text.is_empty());
        if set("subPath") && set("subPathExpr") {
            let message = "subPathExpr and subPath are mutually exclusive";
            errors.push(FieldError::invalid(at("subPathExpr"), &mount["subPathExpr"], message));
        }
        for field in ["subPath", "subPathExpr"] {
            if mount[field].as_str().is_some_and(|part| part.starts_with('/')) {
                errors.push(FieldError::invalid(at(field), &mount[field], "must be a relative path"));
            }
            errors.extend(without_backsteps(at(field), &mount[field]));
        }
        let known = ["Bidirectional", "HostToContainer", "None"];
        let propagation = &mount["mountPropagation"];
        if !propagation.is_null() && !known.iter().any(|known| propagation == known) {
            errors.push(FieldError::not_supported(at("mountPropagation"), propagation, &known));
        }
    }
    errors
}

fn devices(path: &str, container: &Value, spec: &Value, mountable: &HashSet<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut targets = HashSet::new();
    for (index, device) in items(&container["volumeDevices"]).enumerate() {
        let path = format!("{path}.volumeDevices[{index}]");
        let at = |field: &str| format!("{path}.{field}");
        errors.extend(volume_name(&path, device, mountable));
        let volume = items(&spec["volumes"]).find(|volume| volume["name"] == device["name"]);
        let blocks = |volume: &&Value| {
            ["persistentVolumeClaim", "ephemeral"].iter().any(|source| volume[*source].is_object())
        };
        if volume.is_some_and(|volume| !blocks(&volume)) {
            let message =
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            errors.push(FieldError::invalid(at("name"), &device["name"], message));
        }
        let target = device["devicePath"].as_str().unwrap_or_default();
        if target.is_empty() {
            errors.push(FieldError::required(at("devicePath"), ""));
        } else if !targets.insert(target) {
            errors.push(FieldError::invalid(at("devicePath"), &device["devicePath"], "must be unique"));
        }
        errors.extend(without_backsteps(at("devicePath"), &device["devicePath"]));
        if items(&container["volumeMounts"]).any(|mount| mount["name"] == device["name"]) {
            let message = "must not already exist in volumeMounts";
            errors.push(FieldError::invalid(at("name"), &device["name"], message));
        }
        if items(&container["volumeMounts"]).any(|mount| mount["mountPath"] == target) {
            let message = "must not already exist as a path in volumeMounts";
            errors.push(FieldError::invalid(at("devicePath"), &device["devicePath"], message));
        }
    }
    errors
}

/// The name of a valid volume of the pod.
fn volume_name(path: &str, usage: &Value, mountable: &HashSet<&str>) -> Vec<FieldError> {
    let field = format!("{path}.name");
    let name = usage["name"].as_str().unwrap_or_default();
    let required = name.is_empty().then(|| FieldError::required(field.as_str(), ""));
    let unknown = (!mountable.contains(name)).then(|| FieldError::not_found(field.as_str(), &name.into()));
    required.into_iter().chain(unknown).collect()
}

/// Mirrors `validateContainerPorts`, except for the ports' names.
fn ports(path: &str, container: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, port) in items(&container["ports"]).enumerate() {
        let path = format!("{path}.ports[{index}]");
        for field in ["containerPort", "hostPort"] {
            match port[field].as_i64().unwrap_or_default() {
                0 if field == "containerPort" => {
                    errors.push(FieldError::required(format!("{path}.{field}"), ""));
                }
                0..=65535 => {}
                _ => {
                    let message = "must be between 1 and 65535, inclusive";
                    errors.push(FieldError::invalid(format!("{path}.{field}"), &port[field], message));
                }
            }
        }
        let (protocol, known) = (&port["protocol"], ["SCTP", "TCP", "UDP"]);
        if !protocol.is_null() && !known.iter().any(|known| protocol == known) {
            errors.push(FieldError::not_supported(format!("{path}.protocol"), protocol, &known));
        }
    }
    errors
}

/// In the network of the host, ports are those of the host.
///
/// Mirrors `validatePodHostNetworkDeps`.
pub fn host_ports(path: &str, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if spec["hostNetwork"] != true {
        return errors;
    }
    for (index, container) in items(&spec["containers"]).enumerate() {
        for (port_index, port) in items(&container["ports"]).enumerate() {
            let number = |field: &str| port[field].as_i64().unwrap_or_default();
            let (host, own) = (number("hostPort"), number("containerPort"));
            if host != own {
                let field = format!("{path}.containers[{index}].ports[{port_index}].hostPort");
                let message = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(field, &host.into(), message));
            }
        }
    }
    errors
}
