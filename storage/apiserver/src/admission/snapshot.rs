//! Snapshots: the CEL rules of their CRDs, as functions.
//!
//! Mirrors client/config/crd/*.yaml of kubernetes-csi/external-snapshotter.

use serde_json::Value;

use crate::status::FieldError;

const POLICIES: [&str; 2] = ["Delete", "Retain"];

/// Validates a VolumeSnapshot.
pub fn validate(snapshot: &Value) -> Vec<FieldError> {
    let spec = &snapshot["spec"];
    let mut errors = Vec::new();
    errors.extend(one_of(
        &spec["source"],
        ["volumeSnapshotContentName", "persistentVolumeClaimName"],
        "must be set",
    ));
    if spec["volumeSnapshotClassName"] == "" {
        let message = "volumeSnapshotClassName must not be the empty string when set";
        errors.push(FieldError::invalid(
            "spec.volumeSnapshotClassName",
            &spec["volumeSnapshotClassName"],
            message,
        ));
    }
    errors
}

/// The source of a snapshot is immutable.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (old, new) = (&old["spec"]["source"], &new["spec"]["source"]);
    immutable_once_set(old, new, "spec.source", &["persistentVolumeClaimName", "volumeSnapshotContentName"])
}

/// Validates a VolumeSnapshotContent.
pub fn validate_content(content: &Value) -> Vec<FieldError> {
    let spec = &content["spec"];
    let mut errors = Vec::from_iter(check_policy(&spec["deletionPolicy"], "spec.deletionPolicy"));
    errors.extend(one_of(&spec["source"], ["volumeHandle", "snapshotHandle"], "must be set"));
    let bound = &spec["volumeSnapshotRef"];
    if bound["name"].is_null() || bound["namespace"].is_null() {
        let message = "both spec.volumeSnapshotRef.name and spec.volumeSnapshotRef.namespace must be set";
        errors.push(FieldError::invalid("spec.volumeSnapshotRef", &"object".into(), message));
    }
    if content["status"]["restoreSize"].as_i64().is_some_and(|size| size < 0) {
        let size = &content["status"]["restoreSize"];
        let message = "status.restoreSize in body should be greater than or equal to 0";
        errors.push(FieldError::invalid("status.restoreSize", size, message));
    }
    errors
}

/// The source of a content is immutable.
pub fn validate_content_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (old, new) = (&old["spec"], &new["spec"]);
    let handles = &["volumeHandle", "snapshotHandle"];
    let mut errors = immutable_once_set(&old["source"], &new["source"], "spec.source", handles);
    errors.extend(immutable_once_set(old, new, "spec", &["sourceVolumeMode"]));
    errors
}

/// Validates a VolumeSnapshotClass.
pub fn validate_class(class: &Value) -> Vec<FieldError> {
    check_policy(&class["deletionPolicy"], "deletionPolicy").into_iter().collect()
}

/// Validates a deletion policy.
pub(super) fn check_policy(policy: &Value, field: &str) -> Option<FieldError> {
    let known = POLICIES.iter().any(|known| policy == known);
    (!known).then(|| FieldError::not_supported(field, policy, &POLICIES))
}

fn one_of(source: &Value, fields: [&str; 2], must: &str) -> Option<FieldError> {
    let set = fields.iter().filter(|field| source[*field].is_string()).count();
    let message = format!("exactly one of {} and {} {must}", fields[0], fields[1]);
    (set != 1).then(|| FieldError::invalid("spec.source", &"object".into(), message))
}

/// Fields that are immutable once they are set.
fn immutable_once_set(old: &Value, new: &Value, path: &str, fields: &[&str]) -> Vec<FieldError> {
    let changed = fields.iter().filter(|field| old[**field].is_string() && old[**field] != new[**field]);
    changed
        .map(|field| match new[*field].is_null() {
            true => FieldError::invalid(path, &"object".into(), format!("{field} is required once set")),
            false => {
                FieldError::invalid(format!("{path}.{field}"), &new[*field], format!("{field} is immutable"))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_snapshot_has_one_source_and_keeps_it() {
        let of = |source: Value| json!({ "spec": { "source": source } });
        let claim = of(json!({ "persistentVolumeClaimName": "a" }));
        assert_eq!(validate(&claim), []);
        for wrong in
            [json!({}), json!({ "persistentVolumeClaimName": "a", "volumeSnapshotContentName": "b" })]
        {
            assert_eq!(
                messages(&validate(&of(wrong))),
                ["spec.source: Invalid value: \"object\": exactly one of volumeSnapshotContentName and \
                  persistentVolumeClaimName must be set"]
            );
        }
        let other = of(json!({ "persistentVolumeClaimName": "b" }));
        assert_eq!(
            messages(&validate_update(&claim, &other)),
            [
                "spec.source.persistentVolumeClaimName: Invalid value: \"b\": persistentVolumeClaimName is immutable"
            ]
        );
        let none = of(json!({ "volumeSnapshotContentName": "b" }));
        assert_eq!(
            messages(&validate_update(&claim, &none)),
            ["spec.source: Invalid value: \"object\": persistentVolumeClaimName is required once set"]
        );
        let mut classless = claim.clone();
        classless["spec"]["volumeSnapshotClassName"] = "".into();
        assert_eq!(validate(&classless).len(), 1);
    }

    #[test]
    fn a_content_has_a_source_and_a_reference() {
        let content = json!({ "spec": {
            "deletionPolicy": "Delete",
            "source": { "snapshotHandle": "h" },
            "sourceVolumeMode": "Block",
            "volumeSnapshotRef": { "name": "s", "namespace": "n" },
        } });
        assert_eq!(validate_content(&content), []);
        let changed = |change: fn(&mut Value)| {
            let mut changed = content.clone();
            change(&mut changed);
            changed
        };
        for (change, expected) in [
            (
                changed(|c| c["spec"]["deletionPolicy"] = "Keep".into()),
                "spec.deletionPolicy: Unsupported value",
            ),
            (changed(|c| c["spec"]["volumeSnapshotRef"] = json!({ "name": "s" })), "spec.volumeSnapshotRef"),
            (changed(|c| c["spec"]["source"]["volumeHandle"] = "v".into()), "spec.source"),
            (changed(|c| c["status"]["restoreSize"] = (-1).into()), "status.restoreSize"),
        ] {
            assert!(messages(&validate_content(&change))[0].starts_with(expected), "{expected}");
        }
        let mode = changed(|c| c["spec"]["sourceVolumeMode"] = "Filesystem".into());
        assert_eq!(validate_content_update(&content, &mode).len(), 1);
        let bound = changed(|c| c["spec"]["volumeSnapshotRef"]["uid"] = "u".into());
        assert_eq!(validate_content_update(&content, &bound), []);
        assert_eq!(validate_class(&json!({ "driver": "d", "deletionPolicy": "Retain" })), []);
    }
}
