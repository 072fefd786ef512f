//! Validation of the metadata of new objects: labels, annotations, finalizers and owners.
//!
//! Mirrors `ValidateObjectMeta` in apimachinery pkg/api/validation/objectmeta.go, and `ValidateFinalizerName` in
//! Kubernetes' pkg/apis/core/validation.

use serde_json::Value;

use crate::admission::labels;
use crate::resources::Resource;
use crate::status::FieldError;

/// The largest size of all annotations, in bytes (`TotalAnnotationSizeLimitB`).
const ANNOTATIONS_LIMIT: usize = 256 << 10;

/// Finalizers without a domain (`standardFinalizers`).
const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// The errors of the metadata, other than those of its name.
pub fn validate(resource: &Resource, metadata: &Value) -> Vec<FieldError> {
    let mut errors = labels::check("metadata.labels", &metadata["labels"]);
    errors.extend(annotations(&metadata["annotations"]));
    errors.extend(owners(&metadata["ownerReferences"]));
    errors.extend(finalizers(resource, &metadata["finalizers"]));
    errors
}

fn annotations(annotations: &Value) -> Vec<FieldError> {
    let field = "metadata.annotations";
    let (mut errors, mut size) = (Vec::new(), 0);
    for (key, value) in annotations.as_object().into_iter().flatten() {
        // Upstream accepts capitals in the prefix here.
        let faults = labels::key_faults(&key.to_ascii_lowercase());
        errors
            .extend(faults.into_iter().map(|fault| FieldError::invalid(field, &key.as_str().into(), fault)));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long(field, ANNOTATIONS_LIMIT));
    }
    errors
}

fn finalizers(resource: &Resource, finalizers: &Value) -> Vec<FieldError> {
    let field = "metadata.finalizers";
    let names: Vec<&str> = finalizers.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut errors = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let faults = labels::key_faults(name);
        let invalid = |fault: String| FieldError::invalid(field, &(*name).into(), fault);
        errors.extend(faults.into_iter().map(invalid));
        // Objects of custom kinds get a warning about it instead.
        if resource.custom.is_none() && !name.contains('/') && !STANDARD.contains(name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("{field}[{index}]"), &(*name).into(), detail));
        }
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(field, finalizers, detail));
    }
    errors
}

fn owners(references: &Value) -> Vec<FieldError> {
    let field = "metadata.ownerReferences";
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    for reference in references.as_array().into_iter().flatten() {
        let text = |name: &str| reference[name].as_str().unwrap_or_default();
        let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
        if version.is_empty() {
            let detail = "version must not be empty";
            errors.push(FieldError::invalid(
                format!("{field}.apiVersion"),
                &text("apiVersion").into(),
                detail,
            ));
        }
        for name in ["kind", "name", "uid"] {
            if text(name).is_empty() {
                errors.push(FieldError::invalid(format!("{field}.{name}"), &"".into(), "must not be empty"));
            }
        }
        if text("kind") == "Event" && ["v1", "events.k8s.io/v1"].contains(&text("apiVersion")) {
            let version = text("apiVersion");
            let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
            let detail = format!("{version}, Kind=Event is disallowed from being an owner");
            errors.push(FieldError::invalid(field, reference, detail));
        }
        if reference["controller"] == true {
            let this = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for \
                         {first} and {this}"
                    );
                    errors.push(FieldError::invalid(field, references, detail));
                }
                None => controller = Some(this),
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::{Storage, stored};

    #[test]
    fn metadata_is_validated_as_upstream_does() {
        let owner = |field: &str, value: Value| {
            let mut owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u" });
            owner[field] = value;
            json!({ "ownerReferences": [owner.clone(), owner] })
        };
        let table = [
            (json!({ "labels": { "a/b": "c" }, "annotations": { "A.com/b": "any text!" } }), 0, ""),
            (json!({ "finalizers": ["orphan", "example.com/f"] }), 0, ""),
            (owner("name", json!("o")), 0, ""),
            (
                json!({ "labels": { "bad key!": "v" } }),
                1,
                "metadata.labels: Invalid value: \"bad key!\": name part",
            ),
            (
                json!({ "annotations": { "bad key!": "v" } }),
                1,
                "metadata.annotations: Invalid value: \"bad key!\"",
            ),
            (
                json!({ "annotations": { "k": "v".repeat(ANNOTATIONS_LIMIT) } }),
                1,
                "metadata.annotations: Too long: may not be more than 262144 bytes",
            ),
            (
                json!({ "finalizers": ["nope"] }),
                1,
                "metadata.finalizers[0]: Invalid value: \"nope\": name is neither a standard finalizer name nor is it \
                 fully qualified",
            ),
            (
                json!({ "finalizers": ["bad finalizer!"] }),
                2,
                "metadata.finalizers: Invalid value: \"bad finalizer!\"",
            ),
            (
                json!({ "finalizers": ["orphan", "foregroundDeletion"] }),
                1,
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and",
            ),
            (
                owner("apiVersion", json!("")),
                2,
                "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must",
            ),
            (
                owner("uid", json!("")),
                2,
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ),
            (owner("controller", json!(true)), 1, "metadata.ownerReferences: Invalid value: [{"),
            (owner("kind", json!("Event")), 2, "metadata.ownerReferences: Invalid value: {"),
        ];
        for (metadata, count, expected) in table {
            let errors = validate(stored(Storage::Claims), &metadata);
            assert_eq!(errors.len(), count, "{metadata}: {errors:?}");
            let first = errors.first().map(ToString::to_string).unwrap_or_default();
            assert!(first.starts_with(expected), "{metadata}: {first}");
        }
    }
}
