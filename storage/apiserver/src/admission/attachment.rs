//! VolumeAttachments: required fields; their spec is immutable.
//!
//! Mirrors ValidateVolumeAttachment in pkg/apis/storage/validation.

use serde_json::{Value, json};

use crate::status::FieldError;

/// Validates an attachment.
pub fn validate(attachment: &Value) -> Vec<FieldError> {
    let spec = &attachment["spec"];
    let mut errors = Vec::new();
    for field in ["attacher", "nodeName"] {
        if spec[field].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("spec.{field}"), ""));
        }
    }
    let source = &spec["source"];
    match (source["persistentVolumeName"].as_str(), source["inlineVolumeSpec"].is_object()) {
        (None, false) => {
            errors.push(FieldError::required(
                "spec.source",
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ));
        }
        (Some(_), true) => errors.push(FieldError::forbidden(
            "spec.source",
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        )),
        (Some(""), false) => errors.push(FieldError::required(
            "spec.source.persistentVolumeName",
            "must specify non empty persistentVolumeName",
        )),
        (Some(_), false) | (None, true) => {}
    }
    errors
}

/// The spec is immutable. Upstream prints the rejected one as its internal struct.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    if old["spec"] == new["spec"] {
        return Vec::new();
    }
    let spec = &new["spec"];
    let shown = json!({
        "Attacher": spec["attacher"],
        "Source": {
            "PersistentVolumeName": spec["source"]["persistentVolumeName"],
            "InlineVolumeSpec": spec["source"]["inlineVolumeSpec"],
        },
        "NodeName": spec["nodeName"],
    });
    vec![FieldError::immutable("spec", &shown)]
}
