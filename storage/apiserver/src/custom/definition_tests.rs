//! Tables: definitions, their schemas, and their versions.

use serde_json::{Value, json};

use super::{definition, row, structural};
use crate::status::FieldError;

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn schemas_that_are_not_structural_are_rejected() {
    let object = |field: Value| json!({ "type": "object", "properties": { "f": field } });
    let table = [
        (object(json!({ "type": "string" })), vec![]),
        (json!({}), vec!["s.type: Required value: must not be empty at the root"]),
        (
            json!({ "type": "array", "items": { "type": "string" } }),
            vec!["s.type: Invalid value: \"array\": must be object at the root"],
        ),
        (
            object(json!({})),
            vec!["s.properties[f].type: Required value: must not be empty for specified object fields"],
        ),
        (
            object(json!({ "type": "array" })),
            vec!["s.properties[f].items: Required value: must be specified"],
        ),
        (
            object(json!({ "type": "string", "pattern": "(" })),
            vec![
                "s.properties[f].pattern: Invalid value: \"(\": \
            must be a valid regular expression, but isn't: error parsing regexp: unclosed group: `(`",
            ],
        ),
        (
            object(json!({ "type": "object", "allOf": [{ "type": "object" }] })),
            vec!["s.properties[f].allOf[0].type: Forbidden: must be empty to be structural"],
        ),
        (
            object(
                json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] }),
            ),
            vec![],
        ),
        (
            object(
                json!({ "type": "array", "items": { "type": "object", "properties": { "k": { "type": "string" } } },
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"] }),
            ),
            vec![
                "s.properties[f].items.properties[k].default: Required value: this property is in \
                  x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            json!({ "type": "object", "properties": { "metadata": { "type": "object", "properties": {
                "labels": { "type": "object" } } } } }),
            vec![
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, \
                  but metadata is implicitly specified",
            ],
        ),
    ];
    for (schema, expected) in table {
        assert_eq!(texts(&structural::validate(&schema, "s")), expected, "{schema}");
    }
}

/// A valid definition.
fn definition() -> Value {
    let mut definition = json!({
        "metadata": { "name": "things.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": { "plural": "things", "kind": "Thing" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                           "schema": { "openAPIV3Schema": { "type": "object" } } }],
        },
    });
    definition::complete(&mut definition);
    definition::begin(&mut definition);
    definition
}

#[test]
fn definitions_are_completed_and_validated() {
    let valid = definition();
    assert_eq!(valid["spec"]["names"]["singular"], "thing");
    assert_eq!(valid["spec"]["names"]["listKind"], "ThingList");
    assert_eq!(valid["spec"]["conversion"], json!({ "strategy": "None" }));
    assert_eq!(valid["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(texts(&definition::validate(&valid)), Vec::<String>::new());
    let version = valid["spec"]["versions"][0].clone();
    let table = [
        ("/metadata/name", json!("x.example.com"), "must be spec.names.plural+\".\"+spec.group"),
        ("/spec/scope", json!("World"), "spec.scope: Unsupported value: \"World\""),
        (
            "/spec/versions",
            json!([version, version]),
            "must have exactly one version marked as storage version",
        ),
        ("/spec/versions/0/storage", json!(false), "must have exactly one version marked as storage version"),
        ("/spec/versions", json!([]), "spec.versions: Invalid value: null: must have exactly one"),
        ("/spec/versions/0/schema", Value::Null, "spec.versions[0].schema.openAPIV3Schema: Required value"),
        ("/spec/versions/0/name", json!("V1"), "spec.versions[0].name: Invalid value: \"V1\""),
        ("/spec/names/kind", json!("ThingList"), "kind and listKind may not be the same"),
        ("/spec/names/plural", json!("1things"), "spec.names.plural: Invalid value"),
        (
            "/spec/conversion/strategy",
            json!("Other"),
            "spec.conversion.strategy: Unsupported value: \"Other\": supported values: \"None\", \"Webhook\"",
        ),
        (
            "/status/storedVersions",
            json!(["v0"]),
            "status.storedVersions[0]: Invalid value: \"v0\": missing from",
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema",
            json!({ "type": "object", "properties": { "a": { "type": "string", "default": 1 } } }),
            "spec.validation.openAPIV3Schema.properties[a].default: Invalid value: \"integer\":  in body must be of type",
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema",
            json!({ "type": "object", "properties": { "a": {
                "type": "object", "default": { "b": 1 }, "properties": { "b": { "type": "string" } } } } }),
            "properties[a].default.b: Invalid value: \"integer\": b in body must be of type string",
        ),
        (
            "/spec/versions/0/storage",
            json!(false),
            "spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\
             \"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\
             \"SelectableFields\":null}]: must have",
        ),
        (
            "/spec/versions/0/subresources",
            json!({ "scale": { "specReplicasPath": "x", "statusReplicasPath": ".spec.x" } }),
            "spec.subresources.scale.specReplicasPath: Invalid value: \"x\": must be a simple json path starting with .",
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{ "jsonPath": ".spec.q" }]),
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.q\": is an invalid path: does not refer",
        ),
    ];
    for (pointer, value, expected) in table {
        let mut definition = valid.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        match definition.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[field.parse::<usize>().unwrap()] = value,
            parent => parent[field] = value,
        }
        let errors = texts(&definition::validate(&definition));
        assert!(errors.iter().any(|error| error.contains(expected)), "{pointer}: {errors:?}");
    }
    let mut protected = valid.clone();
    protected["spec"]["group"] = "x.k8s.io".into();
    protected["metadata"]["name"] = "things.x.k8s.io".into();
    let errors = texts(&definition::validate(&protected));
    assert!(errors.len() == 1 && errors[0].contains("must have approval annotation"), "{errors:?}");
    protected["metadata"]["annotations"]["api-approved.kubernetes.io"] = "https://example.com/1".into();
    assert_eq!(texts(&definition::validate(&protected)), Vec::<String>::new());
}

#[test]
fn names_and_scope_are_immutable_once_established() {
    let old = definition();
    let mut new = old.clone();
    new["spec"]["scope"] = "Cluster".into();
    assert_eq!(texts(&definition::validate_update(&old, &new)), Vec::<String>::new());
    let mut established = old.clone();
    established["status"]["conditions"] = json!([{ "type": "Established", "status": "True" }]);
    let errors = texts(&definition::validate_update(&established, &new));
    assert_eq!(errors, ["spec.scope: Invalid value: \"Cluster\": field is immutable"]);
}

#[test]
fn versions_are_ordered_by_stability() {
    let mut versions = ["foo", "v1alpha2", "v1", "v10", "v2beta1", "v2", "v1beta2", "bar"];
    versions.sort_by_key(|version| std::cmp::Reverse(row::order(version)));
    assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha2", "bar", "foo"]);
}

#[test]
fn parts_that_versions_do_not_share_are_named_by_version() {
    let mut definition = definition();
    let first = &mut definition["spec"]["versions"][0];
    first["additionalPrinterColumns"] = json!([{ "name": "a", "type": "q", "jsonPath": ".a" }]);
    let mut second = first.clone();
    second["name"] = "v2".into();
    second["schema"]["openAPIV3Schema"]["properties"] = json!({ "b": { "type": "nope" } });
    definition["spec"]["versions"] = json!([first, second]);
    let shown = "[{\"Name\":\"v1\",\"Served\":true,\"Storage\":true,\"Deprecated\":false,\"DeprecationWarning\":null,\
                 \"Schema\":{\"OpenAPIV3Schema\":{\"type\":\"object\"}},\"Subresources\":null,";
    let errors = texts(&definition::validate(&definition));
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[0].starts_with("spec.versions[1].schema.openAPIV3Schema.properties[b].type: Unsupported"));
    assert!(errors[1].starts_with(&format!("spec.versions: Invalid value: {shown}")), "{errors:?}");
    assert!(errors[2].starts_with("spec.additionalPrinterColumns[0].type: Invalid value: \"q\""));
}
