//! StorageClasses, VolumeAttributesClasses and PriorityClasses: immutable, except labels and
//! allowVolumeExpansion.
//!
//! Mirrors pkg/apis/storage/validation and pkg/apis/scheduling/validation.

use serde_json::Value;

use super::labels;
use crate::status::FieldError;

/// The highest value that is not reserved for the system.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

/// Validates a StorageClass.
pub fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let provisioner = class["provisioner"].as_str().unwrap_or_default();
    match provisioner.is_empty() {
        true => errors.push(FieldError::required("provisioner", "")),
        // As upstream, whatever its case.
        false => errors.extend(
            labels::key_faults(&provisioner.to_lowercase())
                .into_iter()
                .map(|fault| FieldError::invalid("provisioner", &class["provisioner"], fault)),
        ),
    }
    for (field, known) in [
        ("reclaimPolicy", ["Delete", "Retain"]),
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
    ] {
        if !known.iter().any(|value| class[field] == *value) {
            errors.push(FieldError::not_supported(field, &class[field], &known));
        }
    }
    errors.extend(check_parameters(class));
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
    let mut errors = Vec::new();
    if class["driverName"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required("driverName", ""));
    }
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
    if name.starts_with("system-") && value <= HIGHEST_PRIORITY {
        let message = "priority class names with 'system-' prefix are reserved for system use only";
        errors.push(FieldError::forbidden("metadata.name", message));
    } else if !name.starts_with("system-") && value > HIGHEST_PRIORITY {
        let message = format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}");
        errors.push(FieldError::forbidden("value", message));
    }
    let policy = &class["preemptionPolicy"];
    if policy != "PreemptLowerPriority" && policy != "Never" {
        // Unsorted, as upstream.
        let known = "supported values: \"PreemptLowerPriority\", \"Never\"";
        errors.push(FieldError::unsupported("preemptionPolicy", policy, known.to_owned()));
    }
    errors
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
