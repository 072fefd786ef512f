//! PersistentVolumes: required and immutable fields.
//!
//! Mirrors ValidatePersistentVolume in pkg/apis/core/validation.

use serde_json::Value;

use super::pod::HOST_PATH_TYPES;
use super::{difference, items, labels, warnings};
use crate::names;
use crate::quantity::Quantity;
use crate::status::FieldError;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];

/// Validates a volume.
pub fn validate(volume: &Value) -> Vec<FieldError> {
    let spec = &volume["spec"];
    let mut errors = check_access_modes(spec, "spec", "");
    let storage = &spec["capacity"]["storage"];
    match storage.as_str().map(str::parse::<Quantity>) {
        Some(Ok(quantity)) if quantity.nanos() > 0 => {}
        Some(_) => {
            errors.push(FieldError::invalid("spec.capacity[storage]", storage, "must be greater than zero"));
        }
        None if spec["capacity"].as_object().is_none_or(serde_json::Map::is_empty) => {
            errors.push(FieldError::required("spec.capacity", ""));
        }
        None => {}
    }
    let capacity = spec["capacity"].as_object();
    if capacity.is_none_or(|capacity| capacity.len() != 1 || !capacity.contains_key("storage")) {
        errors.push(FieldError::not_supported("spec.capacity", &spec["capacity"], &["storage"]));
    }
    if !RECLAIM_POLICIES.iter().any(|policy| spec["persistentVolumeReclaimPolicy"] == *policy) {
        let policy = &spec["persistentVolumeReclaimPolicy"];
        errors.push(FieldError::not_supported(
            "spec.persistentVolumeReclaimPolicy",
            policy,
            &RECLAIM_POLICIES,
        ));
    }
    errors.extend(check_node_affinity(&spec["nodeAffinity"]));
    let mut sources = difference::sources().filter(|source| !spec[source].is_null());
    match sources.next() {
        None => errors.push(FieldError::required("spec", "must specify a volume type")),
        Some(source) => {
            errors.extend(check_source(source, &spec[source]));
            if source == "local" && spec["nodeAffinity"].is_null() {
                errors.push(FieldError::required("spec.nodeAffinity", "Local volume requires node affinity"));
            }
        }
    }
    errors.extend(sources.map(|source| {
        FieldError::forbidden(format!("spec.{source}"), "may not specify more than 1 volume type")
    }));
    errors.extend(check_class_name(spec, "spec", "storageClassName"));
    errors.extend(check_mode(spec, "spec"));
    errors.extend(check_class_name(spec, "spec", "volumeAttributesClassName"));
    if spec["volumeAttributesClassName"] == "" {
        let message = "an empty string is disallowed";
        errors.push(FieldError::required("spec.volumeAttributesClassName", message));
    }
    errors
}

/// The errors of the first source; others are not validated.
fn check_source(kind: &str, source: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = |field: &str| format!("spec.{kind}.{field}");
    let text = |field: &str| source[field].as_str().unwrap_or_default();
    let required: &[&str] = match kind {
        "local" | "hostPath" => &["path"],
        "nfs" => &["server", "path"],
        "csi" => &["driver", "volumeHandle"],
        _ => &[],
    };
    let missing = required.iter().filter(|field| text(field).is_empty());
    errors.extend(missing.map(|field| FieldError::required(at(field), "")));
    match kind {
        "local" | "hostPath" => {
            if text("path").split('/').any(|step| step == "..") {
                errors.push(FieldError::invalid(at("path"), &source["path"], "must not contain '..'"));
            }
            let expected = &source["type"];
            if !expected.is_null() && !HOST_PATH_TYPES.iter().any(|known| expected == known) {
                errors.push(FieldError::not_supported(at("type"), expected, &HOST_PATH_TYPES));
            }
        }
        "nfs" if !text("path").starts_with('/') => {
            let path = Value::from(text("path"));
            errors.push(FieldError::invalid(at("path"), &path, "must be an absolute path"));
        }
        "csi" => {
            let fault = names::fault(&text("driver").to_lowercase(), false);
            if let Some(fault) = fault.filter(|_| !text("driver").is_empty()) {
                errors.insert(0, FieldError::invalid(at("driver"), &source["driver"], fault));
            }
            for secret in SECRETS {
                for field in ["name", "namespace"] {
                    let reference = &source[secret];
                    let unset = reference[field].as_str().is_none_or(str::is_empty);
                    if reference.is_object() && unset {
                        errors.push(FieldError::required(at(&format!("{secret}.{field}")), ""));
                    }
                }
            }
        }
        _ => {}
    }
    errors
}

/// The secrets of a CSI volume that need a name and a namespace (`validateCSIPersistentVolumeSource`).
const SECRETS: [&str; 4] = [
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
];

/// Warnings about a PersistentVolume, as kube-apiserver 1.36 sends them.
pub fn warnings(volume: &Value) -> Vec<String> {
    let text = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
                approach is to use dynamic provisioning.";
    let (spec, annotations) = (&volume["spec"], &volume["metadata"]["annotations"]);
    let mut warnings = class_annotation(annotations);
    warnings.extend((spec["persistentVolumeReclaimPolicy"] == "Recycle").then(|| text.to_owned()));
    for (index, term) in items(&spec["nodeAffinity"]["required"]["nodeSelectorTerms"]).enumerate() {
        let path = format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}]");
        warnings.extend(warnings::expression_warnings(&path, term));
    }
    let has_no_warning = ["flocker", "quobyte"].iter().any(|source| !spec[*source].is_null());
    warnings.extend(warnings::source_warning("spec", spec).filter(|_| !has_no_warning));
    warnings
}

/// The annotation with the class of a volume or claim, which a field has replaced.
pub fn class_annotation(annotations: &Value) -> Vec<String> {
    let key = "volume.beta.kubernetes.io/storage-class";
    let text = format!(
        "metadata.annotations[{key}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
    );
    let given = !annotations[key].is_null();
    given.then_some(text).into_iter().collect()
}

/// The source and the mode of a volume are immutable.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (was, is) = (&old["spec"], &new["spec"]);
    let mut errors = Vec::new();
    if difference::sources().any(|source| without_secrets(&was[source]) != without_secrets(&is[source])) {
        let message = "spec.persistentvolumesource is immutable after creation";
        let difference = difference::volume_source(was, is);
        errors.push(FieldError::forbidden("spec.persistentvolumesource", format!("{message}\n{difference}")));
    }
    if was["volumeMode"] != is["volumeMode"] {
        errors.push(FieldError::immutable("volumeMode", &is["volumeMode"]));
    }
    if !was["nodeAffinity"].is_null() && was["nodeAffinity"] != is["nodeAffinity"] {
        errors.push(FieldError::invalid("spec.nodeAffinity", &is["nodeAffinity"], "field is immutable"));
    }
    errors
}

/// The secret for expansion may be added later.
fn without_secrets(source: &Value) -> Value {
    let mut source = source.clone();
    if let Value::Object(fields) = &mut source {
        fields.shift_remove("controllerExpandSecretRef");
    }
    source
}

/// A volume's affinity must be `required`, with at least one term.
fn check_node_affinity(affinity: &Value) -> Vec<FieldError> {
    if affinity.is_null() {
        return Vec::new();
    }
    if affinity["required"].is_null() {
        let message = "must specify required node constraints";
        return vec![FieldError::required("spec.nodeAffinity.required", message)];
    }
    let path = "spec.nodeAffinity.required.nodeSelectorTerms";
    let terms = affinity["required"]["nodeSelectorTerms"].as_array().map_or(&[][..], Vec::as_slice);
    if terms.is_empty() {
        return vec![FieldError::required(path, "must have at least one node selector term")];
    }
    let terms = terms.iter().enumerate();
    terms.flat_map(|(index, term)| labels::check_node_term(&format!("{path}[{index}]"), term)).collect()
}

/// volumeMode is Block or Filesystem.
pub fn check_mode(spec: &Value, path: &str) -> Option<FieldError> {
    let modes = ["Block", "Filesystem"];
    let known = modes.iter().any(|mode| spec["volumeMode"] == *mode);
    (!known).then(|| FieldError::not_supported(format!("{path}.volumeMode"), &spec["volumeMode"], &modes))
}

/// A class name must be valid.
pub fn check_class_name(spec: &Value, path: &str, field: &str) -> Option<FieldError> {
    let name = spec[field].as_str().filter(|name| !name.is_empty())?;
    let fault = names::fault(name, false)?;
    Some(FieldError::invalid(format!("{path}.{field}"), &spec[field], fault))
}

/// At least one access mode, all known, `ReadWriteOncePod` only alone.
pub fn check_access_modes(spec: &Value, path: &str, when_empty: &str) -> Vec<FieldError> {
    let path = format!("{path}.accessModes");
    let modes = spec["accessModes"].as_array().map_or(&[][..], Vec::as_slice);
    if modes.is_empty() {
        return vec![FieldError::required(path, when_empty)];
    }
    let unknown = modes.iter().filter(|mode| !ACCESS_MODES.iter().any(|known| *mode == known));
    let mut errors: Vec<_> =
        unknown.map(|mode| FieldError::not_supported(&path, mode, &ACCESS_MODES)).collect();
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let message = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(path, message));
    }
    errors
}
