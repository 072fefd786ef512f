//! Validation of metadata: labels, annotations, finalizers, owners, and what an update must not change.
//!
//! Mirrors `ValidateObjectMeta` and `ValidateObjectMetaUpdate` in apimachinery pkg/api/validation/objectmeta.go, and
//! `ValidateFinalizerName` in Kubernetes' pkg/apis/core/validation.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::admission::labels;
use crate::resources::{Resource, Storage};
use crate::status::FieldError;

/// The largest size of all annotations, in bytes (`TotalAnnotationSizeLimitB`).
pub const ANNOTATIONS_LIMIT: usize = 256 << 10;

/// Finalizers without a domain (`standardFinalizers`).
const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// The errors of the metadata, other than those of its name.
pub fn validate(resource: &Resource, metadata: &Value) -> Vec<FieldError> {
    let mut errors = general(metadata);
    errors.extend(standard_finalizers(resource, metadata));
    errors
}

/// The errors of a change of the metadata. Upstream lists those of the new metadata once more for every validation that
/// contains this one (`rest.BeforeUpdate` and the strategies of most kinds).
pub fn validate_update(resource: &Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = general(new);
    if !old["deletionTimestamp"].is_null() {
        errors.extend(added_finalizers(&old["finalizers"], &new["finalizers"]));
    }
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if old[field] != new[field] {
            errors.push(FieldError::immutable(format!("metadata.{field}"), &new[field]));
        }
    }
    errors.extend(standard_finalizers(resource, new));
    errors
}

/// Warnings about the finalizers of a custom object, those of `old` excepted (`generateWarningsFromObj` in
/// apiextensions-apiserver pkg/registry/customresource/strategy.go).
pub fn finalizer_warnings(old: &Value, new: &Value) -> Vec<String> {
    let names = |metadata| -> BTreeSet<&str> { finalizer_names(metadata).collect() };
    let mut warnings = Vec::new();
    for name in names(new).difference(&names(old)) {
        let mut faults = labels::key_faults(name);
        if !is_standard(name) {
            let advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer \
                          writers";
            faults.push(advice.to_owned());
        }
        warnings.extend(faults.into_iter().map(|fault| format!("metadata.finalizers: {name:?}: {fault}")));
    }
    warnings
}

/// Removes owner references that occur twice, and returns the warning about them (`dedupOwnerReferences` in apiserver
/// endpoints/handlers/rest.go).
pub fn remove_duplicate_owners(metadata: &mut Value, write: &str) -> Option<String> {
    let references = metadata.get_mut("ownerReferences")?.as_array_mut()?;
    let mut seen: Vec<Value> = Vec::new();
    let mut duplicates: Vec<String> = Vec::new();
    references.retain(|reference| {
        let is_new = !seen.contains(reference);
        match is_new {
            true => seen.push(reference.clone()),
            false => duplicates.push(reference["uid"].as_str().unwrap_or_default().to_owned()),
        }
        is_new
    });
    (!duplicates.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{write}; API server dedups owner references in 1.20+, \
             and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        )
    })
}

/// The errors that creations and updates have in common.
fn general(metadata: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if metadata["generation"].as_i64().is_some_and(|generation| generation < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("metadata.generation", &metadata["generation"], detail));
    }
    errors.extend(labels::check("metadata.labels", &metadata["labels"]));
    errors.extend(annotations(&metadata["annotations"]));
    errors.extend(owners(&metadata["ownerReferences"]));
    errors.extend(finalizers(metadata));
    errors
}

/// An object that is being deleted gets no new finalizers.
fn added_finalizers(old: &Value, new: &Value) -> Option<FieldError> {
    let held = old.as_array().map_or(&[][..], Vec::as_slice);
    let given = new.as_array().map_or(&[][..], Vec::as_slice);
    let added: Vec<String> =
        given.iter().filter(|name| !held.contains(name)).map(ToString::to_string).collect();
    (!added.is_empty()).then(|| {
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        FieldError::forbidden("metadata.finalizers", detail)
    })
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

fn finalizer_names(metadata: &Value) -> impl Iterator<Item = &str> {
    metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Whether a finalizer has a domain, or is one of upstream's.
fn is_standard(name: &str) -> bool {
    name.contains('/') || STANDARD.contains(&name)
}

fn finalizers(metadata: &Value) -> Vec<FieldError> {
    let field = "metadata.finalizers";
    let names: Vec<&str> = finalizer_names(metadata).collect();
    let mut errors = Vec::new();
    for name in &names {
        let faults = labels::key_faults(name);
        let invalid = |fault: String| FieldError::invalid(field, &(*name).into(), fault);
        errors.extend(faults.into_iter().map(invalid));
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(field, &metadata["finalizers"], detail));
    }
    errors
}

/// Finalizers without a domain that are not upstream's. Objects of custom kinds get a warning about them instead.
fn standard_finalizers(resource: &Resource, metadata: &Value) -> Vec<FieldError> {
    // These kinds validate their metadata with apimachinery's functions only.
    let is_general = resource.custom.is_some()
        || matches!(resource.storage, Storage::Leases | Storage::Definitions)
        || (resource.storage == Storage::Events && resource.group.is_empty());
    if is_general {
        return Vec::new();
    }
    unknown_finalizers("metadata", metadata)
}

/// The errors of a namespace's own finalizers (`ValidateNamespaceFinalizeUpdate`).
pub fn namespace_finalizers(spec: &Value) -> Vec<FieldError> {
    unknown_finalizers("spec", spec)
}

fn unknown_finalizers(path: &str, parent: &Value) -> Vec<FieldError> {
    let unknown = finalizer_names(parent).enumerate().filter(|(_, name)| !is_standard(name));
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    let errors = unknown.map(|(index, name)| {
        FieldError::invalid(format!("{path}.finalizers[{index}]"), &name.into(), detail)
    });
    errors.collect()
}

fn owners(references: &Value) -> Vec<FieldError> {
    let field = "metadata.ownerReferences";
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    for reference in references.as_array().into_iter().flatten() {
        let text = |name: &str| reference[name].as_str().unwrap_or_default();
        // What is no group and version has neither.
        let version = match text("apiVersion").matches('/').count() {
            0 | 1 => text("apiVersion").rsplit('/').next().unwrap_or_default(),
            _ => "",
        };
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
                    errors.push(FieldError::invalid(field, &in_go_order(references), detail));
                }
                None => controller = Some(this),
            }
        }
    }
    errors
}

/// References with their fields in the order of upstream's type.
fn in_go_order(references: &Value) -> Value {
    const FIELDS: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let ordered = |reference: &Value| -> Value {
        let fields = FIELDS.iter().filter_map(|field| {
            let value = reference.get(*field)?;
            Some(((*field).to_owned(), value.clone()))
        });
        Value::Object(fields.collect())
    };
    references.as_array().into_iter().flatten().map(ordered).collect()
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
