//! VolumeAttachments: required fields; their spec is immutable.
//!
//! Mirrors ValidateVolumeAttachment in pkg/apis/storage/validation.

use serde_json::{Value, json};

use crate::names;
use crate::status::FieldError;

/// Validates an attachment.
pub fn validate(attachment: &Value) -> Vec<FieldError> {
    let spec = &attachment["spec"];
    let mut errors: Vec<FieldError> =
        super::driver::check_name(&spec["attacher"], "spec.attacher").into_iter().collect();
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
        (Some(name), false) => {
            let field = "spec.source.persistentVolumeName";
            if name.is_empty() {
                errors.push(FieldError::required(field, "must specify non empty persistentVolumeName"));
            }
            let fault = names::fault(name, false);
            errors.extend(fault.map(|fault| FieldError::invalid(field, &name.into(), fault)));
        }
        (None, true) => {}
    }
    let node = spec["nodeName"].as_str().unwrap_or_default();
    let fault = names::fault(node, false);
    errors.extend(fault.map(|fault| FieldError::invalid("spec.nodeName", &node.into(), fault)));
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
