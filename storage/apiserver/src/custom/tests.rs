//! Tables: schemas with values, pruning, defaults.

use serde_json::{Value, json};

use super::default::set_defaults;
use super::prune::prune;
use super::schema::Schema;
use super::validate::validate;
use crate::status::FieldError;

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The schema of an object with the field `f`.
fn with(field: Value) -> Schema {
    Schema::read(&json!({ "type": "object", "properties": { "f": field } }))
}

#[test]
fn values_are_validated_with_the_texts_of_upstream() {
    let string = |more: Value| {
        let mut schema = json!({ "type": "string" });
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let number = |name: &str, bound: Value| json!({ "type": "number", name: bound });
    let list = |more: Value| {
        let mut schema = json!({ "type": "array", "items": { "type": "integer" } });
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let either = json!({ "type": "object", "properties": { "a": {}, "b": {} },
        "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] });
    let table = [
        (string(json!({})), json!("x"), vec![]),
        (
            json!({ "type": "integer" }),
            json!("x"),
            vec!["f: Invalid value: \"string\": f in body must be of type integer: \"string\""],
        ),
        (json!({ "type": "number" }), json!(1), vec![]),
        (json!({ "type": "integer" }), json!(2.0), vec![]),
        (
            json!({ "type": "integer" }),
            json!(2.5),
            vec!["f: Invalid value: \"number\": f in body must be of type integer: \"number\""],
        ),
        (
            string(json!({})),
            Value::Null,
            vec!["f: Invalid value: \"null\": f in body must be of type string: \"null\""],
        ),
        (string(json!({ "nullable": true, "enum": ["a"] })), Value::Null, vec![]),
        (
            string(json!({ "enum": ["b", "a"] })),
            json!("c"),
            vec!["f: Unsupported value: \"c\": supported values: \"b\", \"a\""],
        ),
        (
            string(json!({ "pattern": "^a+$" })),
            json!("b"),
            vec!["f: Invalid value: \"b\": f in body should match '^a+$'"],
        ),
        (string(json!({ "maxLength": 2 })), json!("äöü"), vec!["f: Too long: may not be more than 2 bytes"]),
        (
            string(json!({ "minLength": 1 })),
            json!(""),
            vec!["f: Invalid value: \"\": f in body should be at least 1 chars long"],
        ),
        (
            string(json!({ "format": "date-time" })),
            json!("now"),
            vec!["f: Invalid value: \"now\": f in body must be of type date-time: \"now\""],
        ),
        (
            number("minimum", json!(1)),
            json!(0),
            vec!["f: Invalid value: 0: f in body should be greater than or equal to 1"],
        ),
        (
            number("maximum", json!(1.5)),
            json!(2),
            vec!["f: Invalid value: 2: f in body should be less than or equal to 1.5"],
        ),
        (
            number("multipleOf", json!(5)),
            json!(7),
            vec!["f: Invalid value: 7: f in body should be a multiple of 5"],
        ),
        (
            json!({ "type": "integer", "minimum": 0, "exclusiveMinimum": true }),
            json!(0),
            vec!["f: Invalid value: 0: f in body should be greater than 0"],
        ),
        (list(json!({ "maxItems": 1 })), json!([1, 2]), vec!["f: Too many: 2: must have at most 1 item"]),
        (
            list(json!({ "minItems": 1 })),
            json!([]),
            vec!["f: Invalid value: 0: f in body should have at least 1 items"],
        ),
        (
            list(json!({})),
            json!([1, "x"]),
            vec!["f[1]: Invalid value: \"string\": f[1] in body must be of type integer: \"string\""],
        ),
        (
            list(json!({ "x-kubernetes-list-type": "set" })),
            json!([1, 2, 1]),
            vec!["f[2]: Duplicate value: 1"],
        ),
        (
            json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": { "type": "object" } }),
            json!([{ "k": "a", "v": 1 }, { "k": "a", "v": 2 }]),
            vec!["f[1]: Duplicate value: {\"k\":\"a\"}"],
        ),
        (
            json!({ "type": "object", "required": ["x"], "additionalProperties": { "type": "string" } }),
            json!({ "y": 1 }),
            vec![
                "f.x: Required value",
                "f.y: Invalid value: \"integer\": f.y in body must be of type string: \"integer\"",
            ],
        ),
        (
            json!({ "type": "object", "maxProperties": 1 }),
            json!({ "a": 1, "b": 2 }),
            vec!["f: Too many: 2: must have at most 1 item"],
        ),
        (json!({ "x-kubernetes-int-or-string": true }), json!("1"), vec![]),
        (
            json!({ "x-kubernetes-int-or-string": true }),
            json!(true),
            vec!["f: Invalid value: \"boolean\": f in body must be of type integer,string: \"boolean\""],
        ),
        (either.clone(), json!({ "a": 1 }), vec![]),
        (
            either.clone(),
            json!({ "a": 1, "b": 1 }),
            vec![
                "<nil>: Invalid value: \"\": \"f\" must validate one and only one schema (oneOf). Found 2 valid \
                 alternatives",
            ],
        ),
        (
            either,
            json!({}),
            vec![
                "<nil>: Invalid value: \"\": \"f\" must validate one and only one schema (oneOf). Found none valid",
                "f.a: Required value",
            ],
        ),
        (
            json!({ "type": "integer", "anyOf": [{ "minimum": 5 }, { "maximum": 1 }] }),
            json!(3),
            vec![
                "<nil>: Invalid value: \"\": \"f\" must validate at least one schema (anyOf)",
                "f: Invalid value: 3: f in body should be greater than or equal to 5",
            ],
        ),
        (
            json!({ "type": "integer", "not": { "enum": [3] } }),
            json!(3),
            vec!["<nil>: Invalid value: \"\": \"f\" must not validate the schema (not)"],
        ),
        (
            json!({ "type": "integer", "allOf": [{ "minimum": 5 }, { "maximum": 9 }] }),
            json!(3),
            vec![
                "f: Invalid value: 3: f in body should be greater than or equal to 5",
                "<nil>: Invalid value: \"\": \"f\" must validate all the schemas (allOf)",
            ],
        ),
        (
            json!({ "type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true }),
            json!({ "kind": "" }),
            vec!["f.apiVersion: Required value", "f.kind: Invalid value: \"\": must not be empty"],
        ),
    ];
    for (schema, value, expected) in table {
        let errors = validate(&json!({ "f": value }), None, &with(schema.clone()));
        assert_eq!(texts(&errors), expected, "{schema} with {value}");
    }
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let object = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": { "in": object } });
    let table = [
        (object.clone(), json!({ "a": "x", "b": 1 }), json!({ "a": "x" }), vec!["f.b"]),
        (
            json!({ "type": "array", "items": object }),
            json!([{ "a": "x" }, { "c": {}, "b": 1 }]),
            json!([{ "a": "x" }, {}]),
            vec!["f[1].b", "f[1].c"],
        ),
        (
            json!({ "type": "object", "additionalProperties": object }),
            json!({ "k": { "b": 1 } }),
            json!({ "k": {} }),
            vec!["f.k.b"],
        ),
        (
            free,
            json!({ "x": { "y": 1 }, "in": { "b": 1 } }),
            json!({ "x": { "y": 1 }, "in": {} }),
            vec!["f.in.b"],
        ),
        (
            json!({ "type": "object", "additionalProperties": true }),
            json!({ "x": 1 }),
            json!({ "x": 1 }),
            vec![],
        ),
        (
            json!({ "type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                "spec": { "type": "object" } } }),
            json!({ "kind": "K", "apiVersion": "v1", "metadata": { "name": "n" }, "spec": {}, "more": 1 }),
            json!({ "kind": "K", "apiVersion": "v1", "metadata": { "name": "n" }, "spec": {} }),
            vec!["f.more"],
        ),
    ];
    for (schema, value, expected, unknown) in table {
        let mut value = json!({ "f": value, "metadata": { "name": "n" } });
        assert_eq!(prune(&mut value, &with(schema.clone())), unknown, "{schema}");
        assert_eq!(value, json!({ "f": expected, "metadata": { "name": "n" } }), "{schema}");
    }
}

#[test]
fn defaults_are_set_where_fields_are_missing() {
    let inner = json!({ "type": "object", "properties": {
        "n": { "type": "integer", "default": 1 }, "m": { "type": "string" },
        "z": { "type": "string", "nullable": true, "default": "d" } } });
    let mut complete = inner.clone();
    complete["default"] = json!({});
    let filled = json!({ "n": 1, "z": "d" });
    let table = [
        (complete.clone(), json!({}), json!({ "f": filled })),
        (inner.clone(), json!({}), json!({})),
        (inner.clone(), json!({ "f": { "n": 2 } }), json!({ "f": { "n": 2, "z": "d" } })),
        // A null is a value only of a nullable field.
        (
            inner.clone(),
            json!({ "f": { "n": null, "m": null, "z": null } }),
            json!({ "f": { "n": 1, "z": null } }),
        ),
        (
            json!({ "type": "array", "items": complete }),
            json!({ "f": [{}, null] }),
            json!({ "f": [filled, filled] }),
        ),
        (
            json!({ "type": "object", "additionalProperties": inner }),
            json!({ "f": { "k": {} } }),
            json!({ "f": { "k": filled } }),
        ),
    ];
    for (schema, mut value, expected) in table {
        set_defaults(&mut value, &with(schema.clone()));
        assert_eq!(value, expected, "{schema}");
    }
}
