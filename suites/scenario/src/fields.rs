//! Names of fields that an object of a kind does not have: a wait for one would be in vain, and what must never be seen of one
//! never is.

use std::{collections::HashMap, sync::LazyLock};

use claimcheck_model::unknown;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::{
        ConfigMap, Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota, Secret, Service,
        ServiceAccount,
    },
    policy::v1::PodDisruptionBudget,
    scheduling::v1::PriorityClass,
    storage::v1::{
        CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
    },
};
use schemars::schema_for;
use serde_json::Value;

use crate::kind::Kind;

/// The schemas of Kubernetes' own kinds, by their short names. Snapshots are custom resources.
static SCHEMAS: LazyLock<HashMap<&str, Value>> = LazyLock::new(|| {
    let schemas = [
        ("claim", schema_for!(PersistentVolumeClaim)),
        ("volume", schema_for!(PersistentVolume)),
        ("pod", schema_for!(Pod)),
        ("node", schema_for!(Node)),
        ("attachment", schema_for!(VolumeAttachment)),
        ("class", schema_for!(StorageClass)),
        ("attributes-class", schema_for!(VolumeAttributesClass)),
        ("csi-node", schema_for!(CSINode)),
        ("driver", schema_for!(CSIDriver)),
        ("capacity", schema_for!(CSIStorageCapacity)),
        ("event", schema_for!(Event)),
        ("secret", schema_for!(Secret)),
        ("config", schema_for!(ConfigMap)),
        ("account", schema_for!(ServiceAccount)),
        ("service", schema_for!(Service)),
        ("quota", schema_for!(ResourceQuota)),
        ("deployment", schema_for!(Deployment)),
        ("replica-set", schema_for!(ReplicaSet)),
        ("stateful-set", schema_for!(StatefulSet)),
        ("daemon-set", schema_for!(DaemonSet)),
        ("job", schema_for!(Job)),
        ("disruption-budget", schema_for!(PodDisruptionBudget)),
        ("priority", schema_for!(PriorityClass)),
    ];
    schemas.into_iter().map(|(short, schema)| (short, schema.to_value())).collect()
});

/// The first field of a part of an object that its kind does not have, with a suggestion.
pub(crate) fn stray(kind: &Kind, part: &Value) -> Option<String> {
    let root = SCHEMAS.get(kind.short)?;
    in_value(part, root, root, "")
}

fn in_value(part: &Value, schema: &Value, root: &Value, path: &str) -> Option<String> {
    let schema = resolved(schema, root)?;
    match part {
        Value::Object(fields) => {
            let properties = schema["properties"].as_object();
            fields.iter().find_map(|(name, value)| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match properties.map(|properties| properties.get(name)) {
                    Some(Some(field)) => in_value(value, field, root, &path),
                    // A map, or anything.
                    None => in_value(value, &schema["additionalProperties"], root, &path),
                    // The name may be a reference.
                    Some(None) if name.contains('$') => None,
                    Some(None) => {
                        let known: Vec<&str> = properties?.keys().map(String::as_str).collect();
                        let what = unknown("field", name, &known);
                        Some(if path == *name { what } else { format!("{path}: {what}") })
                    }
                }
            })
        }
        Value::Array(items) => items.iter().find_map(|item| in_value(item, &schema["items"], root, path)),
        _ => None,
    }
}

/// The schema to which another refers; a field that may be absent is its schema or null.
fn resolved<'s>(schema: &'s Value, root: &'s Value) -> Option<&'s Value> {
    if let Some(name) = schema["$ref"].as_str() {
        return resolved(root.pointer(name.strip_prefix('#')?)?, root);
    }
    let choices = ["anyOf", "allOf", "oneOf"].into_iter().filter_map(|of| schema[of].as_array()).flatten();
    let mut choices = choices.filter(|choice| choice["type"] != "null");
    match (choices.next(), choices.next()) {
        (Some(one), None) => resolved(one, root),
        (None, _) if schema.is_object() => Some(schema),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_the_kind_does_not_have_is_named() {
        for (kind, part, stray) in [
            ("claim", json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } }), None),
            (
                "claim",
                json!({ "status": { "phaze": "Bound" } }),
                Some("status.phaze: unknown field phaze: did you mean phase?"),
            ),
            (
                "claim",
                json!({ "status": { "conditions": [{ "typ": "Resizing" }] } }),
                Some("status.conditions.typ: unknown field typ: did you mean type?"),
            ),
            (
                "pod",
                json!({ "spec": { "containers": [{ "name": "*", "resources": { "limits": { "cpu": "1" } } }] } }),
                None,
            ),
            (
                "pod",
                json!({ "metadata": { "annotations": { "any.io/thing": "1" }, "labels": { "$s": "*" } } }),
                None,
            ),
            ("pod", json!({ "spc": {} }), Some("unknown field spc: did you mean spec?")),
            ("config", json!({ "data": { "any": "text" } }), None),
            ("class", json!({ "parameters": { "any": "*" }, "allowVolumeExpansion": true }), None),
            // A custom resource.
            ("snapshot", json!({ "anything": 1 }), None),
        ] {
            let kind = Kind::named(kind).unwrap();
            assert_eq!(super::stray(kind, &part).as_deref(), stray, "{part}");
        }
    }

    #[test]
    fn each_kind_of_kubernetes_has_a_schema() {
        for kind in &crate::KINDS {
            let is_custom = kind.api_version().contains("snapshot.") || kind.short == "grant";
            assert_eq!(SCHEMAS.contains_key(kind.short), !is_custom, "{}", kind.short);
        }
    }
}
