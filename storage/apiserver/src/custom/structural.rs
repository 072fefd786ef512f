//! Whether the schema of a definition is structural.
//!
//! Mirrors pkg/apiserver/schema/validation.go and complete.go, and from pkg/apis/apiextensions/validation/validation.go what
//! specDefinitionSchemaValidator forbids.

use serde_json::{Value, json};

use super::pattern::Pattern;
use super::schema::{list, texts};
use crate::status::FieldError;

/// The place of a schema in another.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The types of values.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// What a schema inside `allOf`, `anyOf`, `oneOf` or `not` may not have: the field, and what upstream requires.
const NOT_NESTED: [(&str, &str); 13] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

/// The errors of the schema at `path`, in order of their texts.
pub fn validate(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check(schema, Level::Root, path, &mut errors);
    check_complete(schema, Some(schema), (path, path), &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn check(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let flag = |name: &str| schema[name] == true;
    let kind = schema["type"].as_str().unwrap_or_default();
    let embedded = flag("x-kubernetes-embedded-resource");
    let free = flag("x-kubernetes-preserve-unknown-fields");
    let at = |name: &str| format!("{path}.{name}");
    if kind == "array" && schema["items"].is_null() {
        errors.push(FieldError::required(at("items"), "must be specified"));
    }
    if schema["items"].is_object() {
        check(&schema["items"], Level::Item, &at("items"), errors);
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        check(field, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    let additional = &schema["additionalProperties"];
    if !additional.is_null() {
        if level == Level::Root {
            errors.push(FieldError::forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if schema["properties"].as_object().is_some_and(|fields| !fields.is_empty()) {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(at("additionalProperties"), detail));
        }
        if additional.is_object() {
            check(additional, Level::Field, &at("additionalProperties"), errors);
        }
        if embedded {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(at("additionalProperties"), detail));
        }
    }
    check_type(schema, level, path, errors);
    check_extensions(schema, path, errors);
    check_values(schema, path, errors);
    let fields = schema["properties"].as_object();
    if embedded && !free && fields.is_none_or(|fields| fields.is_empty()) {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(at("properties"), detail));
    }
    let metadata = &schema["properties"]["metadata"];
    if (level == Level::Root || embedded) && metadata.is_object() {
        let place = format!("{path}.properties[metadata]");
        if metadata["type"] != "object" {
            let detail = "must be object";
            errors.push(FieldError::invalid(format!("{place}.type"), &text(&metadata["type"]), detail));
        }
        let known = |name: &String| matches!(name.as_str(), "name" | "generateName");
        let fields = metadata["properties"].as_object().into_iter().flatten();
        let more = fields.map(|(name, _)| name).any(|name| !known(name));
        if level == Level::Root && (more || !metadata["additionalProperties"].is_null()) {
            let detail = "must not specify anything other than name and generateName, but metadata is \
                          implicitly specified";
            errors.push(FieldError::forbidden(place, detail));
        }
    }
}

fn text(value: &Value) -> Value {
    value.as_str().unwrap_or_default().into()
}

fn check_type(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let flag = |name: &str| schema[name] == true;
    let kind = schema["type"].as_str().unwrap_or_default();
    let field = format!("{path}.type");
    let open = flag("x-kubernetes-int-or-string") || flag("x-kubernetes-preserve-unknown-fields");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(field.clone(), &kind.into(), &TYPES));
    }
    if flag("x-kubernetes-embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind.is_empty() {
            true => FieldError::required(field, detail),
            false => FieldError::invalid(field, &kind.into(), detail),
        });
    } else if kind.is_empty() && !open {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(field, detail));
    } else if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(field, &kind.into(), "must be object at the root"));
    }
}

fn check_extensions(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let flag = |name: &str| schema[name] == true;
    let at = |name: &str| format!("{path}.{name}");
    if flag("x-kubernetes-int-or-string") {
        for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(name) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid(at(name), &true.into(), detail));
            }
        }
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let detail = "must be true or undefined";
        errors.push(FieldError::invalid(at("x-kubernetes-preserve-unknown-fields"), &false.into(), detail));
    }
    if flag("uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(at("uniqueItems"), detail));
    }
    for name in ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id"] {
        if !schema[name].is_null() {
            errors.push(FieldError::forbidden(at(name), format!("{name} is not supported")));
        }
    }
    let list_type = schema["x-kubernetes-list-type"].as_str();
    let keys = texts(&schema["x-kubernetes-list-map-keys"]);
    if let Some(list_type) = list_type {
        if !["atomic", "set", "map"].contains(&list_type) {
            let supported = ["atomic", "set", "map"];
            let field = at("x-kubernetes-list-type");
            errors.push(FieldError::not_one_of(field, &list_type.into(), &supported));
        }
        if schema["type"] != "array" {
            let detail = "must be array if x-kubernetes-list-type is specified";
            errors.push(wrong_type(at("type"), &schema["type"], detail));
        } else if list_type == "set" {
            check_set(&schema["items"], path, errors);
        }
        if ["set", "map"].contains(&list_type) && schema["items"]["nullable"] == true {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            errors.push(FieldError::forbidden(at("items.nullable"), detail));
        }
    }
    if let Some(map_type) = schema["x-kubernetes-map-type"].as_str() {
        if schema["type"] != "object" {
            let detail = "must be object if x-kubernetes-map-type is specified";
            errors.push(wrong_type(at("type"), &schema["type"], detail));
        }
        let supported = ["atomic", "granular"];
        if !supported.contains(&map_type) {
            let field = at("x-kubernetes-map-type");
            errors.push(FieldError::not_supported(field, &map_type.into(), &supported));
        }
    }
    match (list_type, keys.is_empty()) {
        (None, false) => {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            errors.push(FieldError::required(at("x-kubernetes-list-type"), detail));
        }
        (Some("map"), true) => {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            errors.push(FieldError::required(at("x-kubernetes-list-map-keys"), detail));
        }
        (Some("map"), false) | (_, true) => {}
        (Some(other), false) => {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            errors.push(FieldError::invalid(at("x-kubernetes-list-type"), &other.into(), detail));
        }
    }
    if list_type == Some("map") {
        check_keys(schema, &keys, path, errors);
    }
}

/// The error of a type that another field requires.
fn wrong_type(field: String, kind: &Value, detail: &str) -> FieldError {
    match kind.as_str().unwrap_or_default() {
        "" => FieldError::required(field, detail),
        kind => FieldError::invalid(field, &kind.into(), detail),
    }
}

/// The items of a set are replaced as a whole.
fn check_set(items: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let (list_type, map_type) = (&items["x-kubernetes-list-type"], &items["x-kubernetes-map-type"]);
    match items["type"].as_str() {
        Some("array") if !list_type.is_null() && *list_type != "atomic" => {
            errors.push(FieldError::invalid(
                format!("{path}.items.x-kubernetes-list-type"),
                list_type,
                detail,
            ));
        }
        Some("object") if *map_type != "atomic" => {
            // Upstream shows the type of a list here, too.
            errors.push(FieldError::invalid(
                format!("{path}.items.x-kubernetes-map-type"),
                list_type,
                detail,
            ));
        }
        _ => {}
    }
}

/// The warnings about sets of objects and lists (`getNonScalarListTypeSetWarnings`), each once, in order.
pub fn warnings(schema: &Value) -> Vec<String> {
    fn visit(schema: &Value, found: &mut Vec<String>) {
        if schema["x-kubernetes-list-type"] == "set"
            && let Some(kind @ ("object" | "array")) = schema["items"]["type"].as_str()
        {
            found.push(format!(
                "x-kubernetes-list-type: set for items of type {kind:?} is not supported by server-side apply or CEL \
                 validation rules"
            ));
        }
        let nested = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| list(&schema[name]));
        let below = ["items", "additionalProperties", "not"].map(|name| &schema[name]);
        let fields = schema["properties"].as_object().into_iter().flatten().map(|(_, field)| field);
        nested
            .chain(below)
            .chain(fields)
            .filter(|below| below.is_object())
            .for_each(|below| visit(below, found));
    }
    let mut found = Vec::new();
    visit(schema, &mut found);
    found.sort();
    found.dedup();
    found
}

/// The keys of a list are required fields of its items, or have a default.
fn check_keys(schema: &Value, keys: &[String], path: &str, errors: &mut Vec<FieldError>) {
    let items = &schema["items"];
    if items["type"] != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), &text(&items["type"]), detail));
        return;
    }
    let required = texts(&items["required"]);
    for key in keys {
        let field = &items["properties"][key];
        if !field.is_object() {
            let detail = "entries must all be names of item properties";
            let place = format!("{path}.x-kubernetes-list-map-keys");
            errors.push(FieldError::invalid(place, &schema["x-kubernetes-list-map-keys"], detail));
        } else if field["default"].is_null() && !required.contains(key) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                          required property";
            errors.push(FieldError::required(format!("{path}.items.properties[{key}].default"), detail));
        }
        let at = |name: &str| format!("{path}.items.properties[{key}].{name}");
        if field["type"] == "array" || field["type"] == "object" {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(at("type"), &items["type"], detail));
        }
        if field["nullable"] == true {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(at("nullable"), detail));
        }
    }
    if keys.iter().enumerate().any(|(index, key)| keys[..index].contains(key)) {
        let place = format!("{path}.x-kubernetes-list-map-keys");
        let detail = "must not contain duplicate entries";
        errors.push(FieldError::invalid(place, &schema["x-kubernetes-list-map-keys"], detail));
    }
}

/// What `allOf`, `anyOf`, `oneOf` and `not` of `validation` validate must have a schema. `whole` is the schema of the
/// value; the paths are those of both.
fn check_complete(
    validation: &Value,
    whole: Option<&Value>,
    (path, place): (&str, &str),
    errors: &mut Vec<FieldError>,
) {
    let mut nested = |validation: &Value, place: &str| {
        check_complete_part(validation, whole, (path, place), errors);
    };
    for name in ["allOf", "anyOf", "oneOf"] {
        for (index, validation) in list(&validation[name]).iter().enumerate() {
            nested(validation, &format!("{place}.{name}[{index}]"));
        }
    }
    if validation["not"].is_object() {
        nested(&validation["not"], &format!("{place}.not"));
    }
}

fn check_complete_part(
    validation: &Value,
    whole: Option<&Value>,
    (path, place): (&str, &str),
    errors: &mut Vec<FieldError>,
) {
    let Some(whole) = whole else {
        errors.push(FieldError::required(path, &format!("because it is defined in {place}")));
        return;
    };
    check_complete(validation, Some(whole), (path, place), errors);
    if validation["items"].is_object() {
        let items = whole.get("items").filter(|items| items.is_object());
        let (path, place) = (format!("{path}.items"), format!("{place}.items"));
        check_complete_part(&validation["items"], items, (&path, &place), errors);
    }
    for (name, field) in validation["properties"].as_object().into_iter().flatten() {
        let (path, place) = (format!("{path}.properties[{name}]"), format!("{place}.properties[{name}]"));
        check_complete_part(field, whole["properties"].get(name), (&path, &place), errors);
    }
}

/// Patterns, and schemas that only validate.
fn check_values(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(pattern) = schema["pattern"].as_str()
        && let Err(error) = Pattern::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: error parsing regexp: {error}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &pattern.into(), detail));
    }
    let either = |schema: &Value| {
        let kinds: Vec<&Value> = list(&schema["anyOf"]).iter().map(|schema| &schema["type"]).collect();
        kinds.len() == 2 && kinds[0] == "integer" && kinds[1] == "string"
    };
    let exempt = |name: &str, index: usize, nested: &Value| match name {
        "anyOf" => either(schema),
        "allOf" => index == 0 && either(nested),
        _ => false,
    };
    for name in ["allOf", "anyOf", "oneOf"] {
        for (index, nested) in list(&schema[name]).iter().enumerate() {
            let place = format!("{path}.{name}[{index}]");
            if !exempt(name, index, nested) {
                check_nested(nested, &place, errors);
            }
        }
    }
    if schema["not"].is_object() {
        check_nested(&schema["not"], &format!("{path}.not"), errors);
    }
}

fn check_nested(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (name, detail) in NOT_NESTED {
        let value = &schema[name];
        if ![Value::Null, false.into(), "".into(), json!([])].contains(value) {
            errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
        }
    }
    if schema["items"].is_object() {
        check_nested(&schema["items"], &format!("{path}.items"), errors);
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let place = format!("{path}.properties[{name}]");
        if name == "metadata" {
            let detail = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(place.clone(), detail));
        }
        check_nested(field, &place, errors);
    }
    check_values(schema, path, errors);
}
