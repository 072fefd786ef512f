//! CustomResourceDefinition. What a definition brings is in `custom`.

use super::{BASE, Generation, Resource, Storage, status_of};
use crate::custom::definition;

pub(super) fn row() -> Resource {
    Resource {
        storage: Storage::Definitions,
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        unconditional: false,
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        subresources: const { &[status_of("CustomResourceDefinition")] },
        generation: Generation::Versions,
        returns_deleted: true,
        default: definition::complete,
        begin: definition::begin,
        validate: definition::validate,
        validate_update: definition::validate_update,
        warnings: |definition, _| definition::warnings(definition),
        empty: r#","spec":{"group":"","names":{"kind":"","plural":""},"scope":"","versions":null}"#,
        ..BASE
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::stored;
    use super::*;

    #[test]
    fn schemas_are_decoded_without_loss_and_checked() {
        let row = stored(Storage::Definitions);
        let schema =
            json!({ "type": "object", "properties": { "list": { "type": "array", "default": [] } } });
        let body = |schema: &Value| {
            json!({ "spec": {
                "group": "g.example.com", "scope": "Cluster", "names": { "kind": "T", "plural": "ts" },
                "versions": [{ "name": "v1", "served": true, "storage": true,
                               "schema": { "openAPIV3Schema": schema } }],
            } })
        };
        let decoded = (row.decode)(row, body(&schema)).unwrap();
        assert_eq!(decoded.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"], schema);
        let zero = json!({ "type": "object", "properties": { "p": {
            "type": "integer", "description": "", "minimum": 0, "default": 0, "x-kubernetes-int-or-string": false } } });
        let decoded = (row.decode)(row, body(&zero)).unwrap();
        let written = &decoded.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["p"];
        assert_eq!(*written, json!({ "type": "integer", "minimum": 0, "default": 0 }));
        let nested = json!({ "type": "array", "items": { "type": "object", "properties": {
            "size": { "type": "string", "x-kubernetes-int-or-string": false } } } });
        let decoded = (row.decode)(row, body(&nested)).unwrap();
        let written = &decoded.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(written["items"]["properties"]["size"], json!({ "type": "string" }));
        let nested = json!({ "type": "object", "properties": { "p": { "type": "array", "items": {
            "type": "object", "additionalProperties": { "type": "string", "title": "" } } } } });
        let decoded = (row.decode)(row, body(&nested)).unwrap();
        let written =
            decoded.value.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/p/items").unwrap();
        assert_eq!(*written, json!({ "type": "object", "additionalProperties": { "type": "string" } }));
        let unknown = (row.decode)(row, body(&json!({ "type": "object", "nope": 1 }))).unwrap();
        let path = "spec.versions[0].schema.openAPIV3Schema.nope";
        assert_eq!(unknown.faults, [format!("unknown field \"{path}\"")]);
        assert!((row.decode)(row, body(&json!({ "type": 1 }))).is_err());
    }
}
