//! Groups of snapshots: the CEL rules of their CRDs, as functions.
//!
//! Mirrors client/config/crd/groupsnapshot.storage.k8s.io_*.yaml of kubernetes-csi/external-snapshotter.

use serde_json::Value;

use super::snapshot::check_policy;
use crate::status::FieldError;

/// Validates a VolumeGroupSnapshot.
pub fn validate(group: &Value) -> Vec<FieldError> {
    let spec = &group["spec"];
    let mut errors = Vec::new();
    errors.extend(one_of(&spec["source"], ["selector", "volumeGroupSnapshotContentName"]));
    if spec["volumeGroupSnapshotClassName"] == "" {
        let message = "volumeGroupSnapshotClassName must not be the empty string when set";
        let class = &spec["volumeGroupSnapshotClassName"];
        errors.push(FieldError::invalid("spec.volumeGroupSnapshotClassName", class, message));
    }
    errors
}

/// The source of a group is immutable, and so is its content once it is bound.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let fields = &["selector", "volumeGroupSnapshotContentName"];
    let mut errors = required_once_set(&old["spec"]["source"], &new["spec"]["source"], "spec.source", fields);
    let bound = "boundVolumeGroupSnapshotContentName";
    errors.extend(immutable_once_set(&old["status"], &new["status"], "status", &[bound]));
    errors
}

/// Validates a VolumeGroupSnapshotContent.
pub fn validate_content(content: &Value) -> Vec<FieldError> {
    let spec = &content["spec"];
    let mut errors = Vec::from_iter(check_policy(&spec["deletionPolicy"], "spec.deletionPolicy"));
    errors.extend(one_of(&spec["source"], ["volumeHandles", "groupSnapshotHandles"]));
    let bound = &spec["volumeGroupSnapshotRef"];
    if bound["name"].is_null() || bound["namespace"].is_null() {
        let message = "both volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace must be set";
        errors.push(FieldError::invalid("spec.volumeGroupSnapshotRef", &"object".into(), message));
    }
    errors
}

/// The source, driver, class and group of a content are immutable, and so is the handle of its group.
pub fn validate_content_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let handle = "volumeGroupSnapshotHandle";
    let mut errors = immutable_once_set(&old["status"], &new["status"], "status", &[handle]);
    let (old, new) = (&old["spec"], &new["spec"]);
    let sources = &["volumeHandles", "groupSnapshotHandles"];
    errors.extend(required_once_set(&old["source"], &new["source"], "spec.source", sources));
    errors.extend(immutable_once_set(old, new, "spec", &["driver", "volumeGroupSnapshotClassName"]));
    let (old, new) = (&old["volumeGroupSnapshotRef"], &new["volumeGroupSnapshotRef"]);
    let mut refuse = |message: &str| {
        errors.push(FieldError::invalid("spec.volumeGroupSnapshotRef", &"object".into(), message));
    };
    if old["name"] != new["name"] || old["namespace"] != new["namespace"] {
        refuse("volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace are immutable");
    }
    if !old["uid"].is_null() && old["uid"] != new["uid"] {
        refuse("volumeGroupSnapshotRef.uid is immutable once set");
    }
    errors
}

/// Validates a VolumeGroupSnapshotClass.
pub fn validate_class(class: &Value) -> Vec<FieldError> {
    check_policy(&class["deletionPolicy"], "deletionPolicy").into_iter().collect()
}

/// A class is immutable.
pub fn validate_class_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let changed =
        |field: &&str| !old[*field].is_null() && !new[*field].is_null() && old[*field] != new[*field];
    let fields = ["deletionPolicy", "driver", "parameters"].into_iter().filter(changed);
    fields
        .map(|field| {
            let verb = if field == "parameters" { "are" } else { "is" };
            FieldError::invalid(field, &new[field], format!("{field} {verb} immutable once set"))
        })
        .collect()
}

fn one_of(source: &Value, fields: [&str; 2]) -> Option<FieldError> {
    let set = fields.iter().filter(|field| !source[**field].is_null()).count();
    let message = format!("exactly one of {} and {} must be set", fields[0], fields[1]);
    (set != 1).then(|| FieldError::invalid("spec.source", &"object".into(), message))
}

/// Fields that can neither change nor be removed once they are set.
fn required_once_set(old: &Value, new: &Value, path: &str, fields: &[&str]) -> Vec<FieldError> {
    let changed = fields.iter().filter(|field| !old[**field].is_null() && old[**field] != new[**field]);
    changed
        .map(|field| match new[*field].is_null() {
            true => FieldError::invalid(path, &"object".into(), format!("{field} is required once set")),
            false => {
                FieldError::invalid(format!("{path}.{field}"), &new[*field], format!("{field} is immutable"))
            }
        })
        .collect()
}

/// Fields that cannot change once they are set; they can be removed, since CEL's transition rules apply only to fields
/// that exist before and after.
fn immutable_once_set(old: &Value, new: &Value, path: &str, fields: &[&str]) -> Vec<FieldError> {
    let is_set = |value: &Value| !value.is_null();
    let changed = fields.iter().filter(|field| {
        let (old, new) = (&old[**field], &new[**field]);
        is_set(old) && is_set(new) && old != new
    });
    changed
        .map(|field| {
            let message = format!("{field} is immutable once set");
            FieldError::invalid(format!("{path}.{field}"), &new[*field], message)
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
    fn a_group_has_one_source_and_keeps_it() {
        let of = |source: Value| json!({ "spec": { "source": source } });
        let selected = of(json!({ "selector": { "matchLabels": { "a": "1" } } }));
        assert_eq!(validate(&selected), []);
        assert_eq!(validate(&of(json!({ "selector": {} }))), [], "all claims");
        for wrong in [json!({}), json!({ "selector": {}, "volumeGroupSnapshotContentName": "c" })] {
            assert_eq!(
                messages(&validate(&of(wrong))),
                ["spec.source: Invalid value: \"object\": exactly one of selector and \
                  volumeGroupSnapshotContentName must be set"]
            );
        }
        let other = of(json!({ "selector": { "matchLabels": { "a": "2" } } }));
        assert!(messages(&validate_update(&selected, &other))[0].ends_with("selector is immutable"));
        let content = of(json!({ "volumeGroupSnapshotContentName": "c" }));
        let none = messages(&validate_update(&selected, &content));
        assert_eq!(none, ["spec.source: Invalid value: \"object\": selector is required once set"]);
        let mut classless = selected.clone();
        classless["spec"]["volumeGroupSnapshotClassName"] = "".into();
        assert_eq!(validate(&classless).len(), 1);
        let bound = |name: &str| json!({ "status": { "boundVolumeGroupSnapshotContentName": name } });
        assert_eq!(validate_update(&json!({}), &bound("a")), []);
        assert_eq!(validate_update(&bound("a"), &bound("b")).len(), 1);
    }

    #[test]
    fn a_content_keeps_what_it_is_created_with() {
        let content = json!({ "spec": {
            "deletionPolicy": "Delete",
            "driver": "d",
            "source": { "volumeHandles": ["v"] },
            "volumeGroupSnapshotRef": { "name": "g", "namespace": "n" },
        } });
        assert_eq!(validate_content(&content), []);
        let changed = |change: fn(&mut Value)| {
            let mut changed = content.clone();
            change(&mut changed);
            changed
        };
        for (change, expected) in [
            (changed(|c| c["spec"]["deletionPolicy"] = "Keep".into()), "spec.deletionPolicy"),
            (
                changed(|c| c["spec"]["volumeGroupSnapshotRef"] = json!({ "name": "g" })),
                "spec.volumeGroupSnapshotRef",
            ),
            (changed(|c| c["spec"]["source"] = json!({})), "spec.source"),
        ] {
            assert!(messages(&validate_content(&change))[0].starts_with(expected), "{expected}");
        }
        for (change, expected) in [
            (changed(|c| c["spec"]["source"]["volumeHandles"] = json!(["w"])), "volumeHandles is immutable"),
            (changed(|c| c["spec"]["driver"] = "e".into()), "driver is immutable once set"),
            (
                changed(|c| c["spec"]["volumeGroupSnapshotRef"]["name"] = "h".into()),
                "namespace are immutable",
            ),
        ] {
            let found = messages(&validate_content_update(&content, &change));
            assert!(found.len() == 1 && found[0].ends_with(expected), "{found:?}");
        }
        let bound = changed(|c| c["spec"]["volumeGroupSnapshotRef"]["uid"] = "u".into());
        assert_eq!(validate_content_update(&content, &bound), []);
        assert_eq!(validate_content_update(&bound, &content).len(), 1);
        let retained = changed(|c| c["spec"]["deletionPolicy"] = "Retain".into());
        assert_eq!(validate_content_update(&content, &retained), []);
    }

    #[test]
    fn a_class_is_immutable() {
        let class = json!({ "driver": "d", "deletionPolicy": "Retain", "parameters": { "a": "1" } });
        assert_eq!(validate_class(&class), []);
        assert_eq!(validate_class_update(&class, &class), []);
        let other = json!({ "driver": "d", "deletionPolicy": "Delete", "parameters": { "a": "2" } });
        let found = messages(&validate_class_update(&class, &other));
        assert!(found[0].ends_with("deletionPolicy is immutable once set"), "{found:?}");
        assert!(found[1].ends_with("parameters are immutable once set"), "{found:?}");
    }
}
