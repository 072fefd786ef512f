//! Sets the defaults of a schema.
//!
//! Mirrors pkg/apiserver/schema/defaulting (prunenulls.go, algorithm.go).

use serde_json::Value;

use super::schema::{Additional, Schema};

/// Removes nulls that are no values of their fields, and sets missing fields that have a default.
pub fn set_defaults(value: &mut Value, schema: &Schema) {
    match value {
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            for item in items {
                set(item, below);
            }
        }
        Value::Object(fields) => {
            let remove = |name: &String, value: &mut Value| {
                let below = schema.properties.get(name);
                below.is_some_and(|below| below.default.is_none() && below.rejects(value))
            };
            fields.retain(|name, value| !remove(name, value));
            for (name, below) in &schema.properties {
                if let Some(default) = &below.default
                    && fields.get(name).is_none_or(|value| below.rejects(value))
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields {
                match (schema.properties.get(name), &schema.additional) {
                    (Some(below), _) => set_defaults(value, below),
                    (None, Additional::Schema(below)) => set(value, below),
                    (None, Additional::None | Additional::Any) => {}
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Sets the defaults of an item, or a value of a map, which may be null.
fn set(value: &mut Value, schema: &Schema) {
    if let Some(default) = schema.default.as_ref().filter(|_| schema.rejects(value)) {
        *value = default.clone();
    }
    set_defaults(value, schema);
}
