//! The published schema of a custom kind.
//!
//! Mirrors pkg/controller/openapi/builder/builder.go.

use serde_json::{Value, json};

use super::Kind;
use crate::resources::Resource;

/// The name of the schema: the group's parts in reverse, the version, the kind.
pub fn name(row: &Resource) -> String {
    let parts: Vec<&str> = row.group.rsplit('.').chain([row.version, row.kind]).collect();
    parts.join(".")
}

/// The schema with kind, `apiVersion` and metadata. `metadata` is the schema of those.
pub fn schema(row: &Resource, kind: &Kind, metadata: Value) -> Value {
    let mut described = kind.document.clone();
    described["type"] = "object".into();
    for name in ["apiVersion", "kind"] {
        if described["properties"][name].is_null() {
            described["properties"][name] = json!({ "type": "string" });
        }
    }
    described["properties"]["metadata"] = metadata;
    described["x-kubernetes-group-version-kind"] =
        json!([{ "group": row.group, "version": row.version, "kind": row.kind }]);
    described
}
