//! Classes of storage and of volume attributes: all but labels and expansion stands.
//!
//! Mirrors pkg/apis/storage/validation.

use serde_json::Value;

use crate::status::FieldError;

/// What a storage class must say.
pub fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if class["provisioner"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    }
    for (field, known) in [
        ("reclaimPolicy", ["Delete", "Retain"]),
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
    ] {
        if !known.iter().any(|value| class[field] == *value) {
            errors.push(FieldError::not_supported(field, &class[field], &known));
        }
    }
    errors
}

/// What may change in a storage class: whether its volumes may grow, its mount options and topologies.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old["parameters"] != new["parameters"] {
        errors.push(FieldError::forbidden("parameters", "updates to parameters are forbidden."));
    }
    for field in ["provisioner", "reclaimPolicy", "volumeBindingMode"] {
        if old[field] != new[field] {
            errors.push(FieldError::immutable(field, &new[field]));
        }
    }
    errors
}

/// Nothing may change in a class of volume attributes.
pub fn validate_attributes_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let changed = ["driverName", "parameters"].into_iter().filter(|field| old[field] != new[field]);
    changed.map(|field| FieldError::immutable(field, &new[field])).collect()
}
