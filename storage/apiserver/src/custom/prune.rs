//! Removes the fields that a schema does not have.
//!
//! Mirrors pkg/apiserver/schema/pruning/algorithm.go.

use serde_json::Value;

use super::schema::{Additional, Schema};

/// Removes unknown fields of an object without its metadata, and returns their paths, e.g. `spec.a[0].b`.
pub fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut pruned = Vec::new();
    prune_at(value, schema, "", true, &mut pruned);
    pruned.sort();
    pruned
}

fn prune_at(value: &mut Value, schema: &Schema, path: &str, root: bool, pruned: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            // Of a list that should not be one, the validation reports the type.
            let unknown = Schema { preserves_unknown: schema.preserves_unknown, ..Schema::default() };
            let below = schema.items.as_deref().unwrap_or(&unknown);
            for (index, item) in items.iter_mut().enumerate() {
                prune_at(item, below, &format!("{path}[{index}]"), false, pruned);
            }
        }
        Value::Object(fields) => {
            let identity = root || schema.embedded;
            fields.retain(|name, value| {
                // The decoder of metadata has checked that of the root.
                if identity && matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
                    return true;
                }
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match schema.field(name) {
                    Some(below) => {
                        prune_at(value, below, &path, false, pruned);
                        true
                    }
                    None if matches!(schema.additional, Additional::Any) || schema.preserves_unknown => true,
                    None => {
                        pruned.push(path);
                        false
                    }
                }
            });
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
