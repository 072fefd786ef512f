//! StorageClasses, VolumeAttributesClasses and PriorityClasses: immutable, except labels and
//! allowVolumeExpansion.
//!
//! Mirrors pkg/apis/storage/validation and pkg/apis/scheduling/validation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{items, labels, text, warnings};
use crate::status::FieldError;

/// The highest value that is not reserved for the system.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

/// The PriorityClasses that exist before the first request, with their values and descriptions: SystemPriorityClasses
/// in pkg/apis/scheduling/v1/helpers.go.
pub const SYSTEM_PRIORITIES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// Validates a StorageClass.
pub fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = check_provisioner(class, "provisioner");
    errors.extend(check_parameters(class));
    for (field, known) in [
        ("reclaimPolicy", ["Delete", "Retain"]),
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
    ] {
        if !known.iter().any(|value| class[field] == *value) {
            errors.push(FieldError::not_supported(field, &class[field], &known));
        }
    }
    errors.extend(check_topologies(&class["allowedTopologies"]));
    errors
}

/// The name of a driver, whatever its case.
fn check_provisioner(class: &Value, field: &str) -> Vec<FieldError> {
    let provisioner = class[field].as_str().unwrap_or_default();
    if provisioner.is_empty() {
        return vec![FieldError::required(field, "")];
    }
    let faults = labels::key_faults(&provisioner.to_lowercase()).into_iter();
    faults.map(|fault| FieldError::invalid(field, &class[field], fault)).collect()
}

/// Neither two equal terms, nor an empty one; in a term each key once, with distinct values. Upstream:
/// `validateAllowedTopologies`.
fn check_topologies(terms: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut former = vec![BTreeMap::new()];
    for (index, term) in items(terms).enumerate() {
        let path = format!("allowedTopologies[{index}].matchLabelExpressions");
        let mut keys = BTreeMap::new();
        for (index, expression) in items(&term["matchLabelExpressions"]).enumerate() {
            let at = |field: &str| format!("{path}[{index}].{field}");
            let mut values = BTreeSet::new();
            if items(&expression["values"]).next().is_none() {
                errors.push(FieldError::required(at("values"), ""));
            }
            for (index, value) in items(&expression["values"]).enumerate() {
                if !values.insert(value.as_str().unwrap_or_default()) {
                    errors.push(FieldError::duplicate(format!("{}[{index}]", at("values")), value));
                }
            }
            errors.extend(labels::check_key(&at("key"), &expression["key"]));
            if keys.insert(expression["key"].as_str().unwrap_or_default(), values).is_some() {
                errors.push(FieldError::duplicate(at("key"), &expression["key"]));
            }
        }
        if former.contains(&keys) {
            errors.push(FieldError::duplicate(path, &"".into()));
        }
        former.push(keys);
    }
    errors
}

/// Validates a Lease.
///
/// Mirrors `ValidateLeaseSpec` of pkg/apis/coordination/validation.
pub fn validate_lease(lease: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (field, least, message) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        let value = &lease["spec"][field];
        if value.as_i64().is_some_and(|number| number < least) {
            errors.push(FieldError::invalid(format!("spec.{field}"), value, message));
        }
    }
    errors
}

fn check_parameters(class: &Value) -> Option<FieldError> {
    let parameters = class["parameters"].as_object()?;
    if parameters.len() > 512 {
        return Some(FieldError::too_long("parameters", 512));
    }
    let empty = parameters.contains_key("");
    empty.then(|| FieldError::invalid("parameters", &"".into(), "field can not be empty."))
}

/// Mutable fields of a StorageClass: allowVolumeExpansion, mount options and topologies.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        if old[field] != new[field] {
            errors.push(FieldError::immutable(field, &new[field]));
        }
    }
    errors
}

/// Validates a VolumeAttributesClass.
pub fn validate_attributes(class: &Value) -> Vec<FieldError> {
    let mut errors = check_provisioner(class, "driverName");
    if class["parameters"].as_object().is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required("parameters", "must contain at least one key/value pair"));
    }
    errors.extend(check_parameters(class));
    errors
}

/// A VolumeAttributesClass is immutable.
pub fn validate_attributes_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let changed = ["driverName", "parameters"].into_iter().filter(|field| old[field] != new[field]);
    let mut errors: Vec<FieldError> = changed
        .map(|field| FieldError::forbidden(field, format!("updates to {field} are forbidden.")))
        .collect();
    if !errors.is_empty() {
        errors.extend(validate_attributes(new));
    }
    errors
}

/// Validates a PriorityClass. The system's own exist before the first request.
pub fn validate_priority(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let value = class["value"].as_i64().unwrap_or_default();
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    if name.starts_with("system-") {
        if let Some(why) = not_of_the_system(name, class) {
            let message = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            );
            errors.push(FieldError::forbidden("metadata.name", message));
        }
    } else if value > HIGHEST_PRIORITY {
        let message = format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}");
        errors.push(FieldError::forbidden("value", message));
    }
    let policy = &class["preemptionPolicy"];
    if policy != "PreemptLowerPriority" && policy != "Never" {
        let known = ["PreemptLowerPriority", "Never"];
        errors.push(FieldError::not_one_of("preemptionPolicy", policy, &known));
    }
    errors
}

/// Why a class is none of the system's (`IsKnownSystemPriorityClass` in pkg/apis/scheduling/v1/helpers.go).
fn not_of_the_system(name: &str, class: &Value) -> Option<String> {
    let Some((_, value, _)) = SYSTEM_PRIORITIES.iter().find(|(known, ..)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if class["value"] != *value {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    (class["globalDefault"] == true).then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

/// The value of a PriorityClass is immutable.
pub fn validate_priority_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old["value"] != new["value"] {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    if old["preemptionPolicy"] != new["preemptionPolicy"] {
        errors.push(FieldError::immutable("preemptionPolicy", &new["preemptionPolicy"]));
    }
    errors
}

/// Deprecated labels in the topologies of a StorageClass (`GetWarningsForStorageClass`).
pub fn warnings(class: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, topology) in items(&class["allowedTopologies"]).enumerate() {
        for (place, expression) in items(&topology["matchLabelExpressions"]).enumerate() {
            let path = format!("allowedTopologies[{index}].matchLabelExpressions[{place}].key");
            let warning = warnings::label_warning(text(expression, "key"));
            warnings.extend(warning.map(|warning| format!("{path}: {warning}")));
        }
    }
    warnings
}
