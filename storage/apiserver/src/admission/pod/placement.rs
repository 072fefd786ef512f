//! Validation of a pod's policies, node selector and tolerations.
//!
//! Mirrors `validateRestartPolicy`, `validateDNSPolicy` and `ValidateTolerations` in pkg/apis/core/validation.

use serde_json::Value;

use super::items;
use crate::admission::labels;
use crate::status::FieldError;

/// The policies, the node selector and the tolerations of the spec at `path`.
pub fn validate(path: &str, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (field, known) in [
        ("restartPolicy", &["Always", "OnFailure", "Never"][..]),
        ("dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]),
    ] {
        errors.extend(one_of(format!("{path}.{field}"), &spec[field], known));
    }
    errors.extend(labels::check(&format!("{path}.nodeSelector"), &spec["nodeSelector"]));
    errors.extend(check_tolerations(path, spec));
    errors
}

/// The tolerations of the object at `path`.
pub fn check_tolerations(path: &str, object: &Value) -> Vec<FieldError> {
    let tolerations = items(&object["tolerations"]).enumerate();
    tolerations
        .flat_map(|(index, toleration)| check_toleration(&format!("{path}.tolerations[{index}]"), toleration))
        .collect()
}

/// Upstream lists these values unsorted.
fn one_of(field: String, value: &Value, known: &[&str]) -> Option<FieldError> {
    match value.as_str().unwrap_or_default() {
        "" => Some(FieldError::required(field, "")),
        text if known.contains(&text) => None,
        _ => Some(FieldError::not_one_of(field, value, known)),
    }
}

fn check_toleration(path: &str, toleration: &Value) -> Vec<FieldError> {
    let at = |field: &str| format!("{path}.{field}");
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    if !text("key").is_empty() {
        errors.extend(labels::check_key(&at("key"), &toleration["key"]));
    } else if text("operator") != "Exists" {
        let message =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(at("operator"), &text("operator").into(), message));
    }
    if !toleration["tolerationSeconds"].is_null() && text("effect") != "NoExecute" {
        let message = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(at("effect"), &text("effect").into(), message));
    }
    match text("operator") {
        "" | "Equal" => {
            let faults = labels::value_faults(text("value"));
            if !faults.is_empty() {
                errors.push(FieldError::invalid(at("operator"), &toleration["value"], faults.join(";")));
            }
        }
        "Exists" if !text("value").is_empty() => {
            let message = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(at("operator"), &toleration["value"], message));
        }
        "Exists" => {}
        _ => errors.extend(one_of(at("operator"), &toleration["operator"], &["Equal", "Exists"])),
    }
    if !text("effect").is_empty() {
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        errors.extend(one_of(at("effect"), &toleration["effect"], &known));
    }
    errors
}
