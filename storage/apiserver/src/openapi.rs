//! OpenAPI: the documents about kinds, paths and options, generated from `schema` and the rows of `resources`.
//!
//! kubectl uses it to explain fields, to check whether a kind's patches support `fieldValidation` and `dryRun`
//! before it relies on them, and to merge lists. Upstream's documents (apiserver pkg/endpoints/openapi,
//! kube-openapi) also have additional verbs, which are not needed for that.

mod descriptions;
pub mod v2;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::custom::{self, Kinds};
use crate::resources::{self, Resource};
use crate::response::{self, Answer};
use crate::schema::{self, Field, Identity, Object, Patch, Scalar, Shape};
use crate::status::{Result, Status};

/// The group of metadata.
const META: &str = "meta.k8s.io";

/// The schemas of scalars, and of raw JSON, that are types of their own upstream. `kubectl explain` prints the names
/// of those without a type, or with type `object`.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const FIELDS_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";

/// A kind of which the descriptions of the fields `ENVELOPE` are those of all custom objects, as of buildKubeNative in
/// apiextensions-apiserver, pkg/controller/openapi/builder/builder.go.
const PLAIN: &str = "io.k8s.api.core.v1.ConfigMap";
const ENVELOPE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The options of writes that kubectl checks.
const WRITE_OPTIONS: [(&str, &str); 4] =
    [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];

/// `/openapi/v3`: the index of documents by group and version.
pub fn index(kinds: &Kinds) -> Answer {
    let mut paths = Map::new();
    for row in resources::all().iter().chain(kinds.rows().iter().copied()) {
        let path = path_of(row.group, row.version);
        let url = json!({ "serverRelativeURL": format!("/openapi/v3/{path}") });
        paths.insert(path, url);
    }
    response::json(StatusCode::OK, &json!({ "paths": paths }))
}

/// `/openapi/v3/api/v1` and `/openapi/v3/apis/<group>/<version>`.
///
/// # Errors
/// 404 for unknown groups and versions.
pub fn document(group: &str, version: &str, kinds: &Kinds) -> Result<Answer> {
    let all = resources::all().iter().chain(kinds.rows().iter().copied());
    let rows: Vec<&'static Resource> =
        all.filter(|row| row.group == group && row.version == version).collect();
    if rows.is_empty() {
        return Err(Status::unknown_resource());
    }
    let (paths, schemas) = parts(&rows);
    let document = json!({
        "openapi": "3.0.0",
        "info": { "title": "claimcheck", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "schemas": schemas },
    });
    Ok(response::json(StatusCode::OK, &document))
}

/// The paths and schemas of kinds.
fn parts(rows: &[&'static Resource]) -> (Map<String, Value>, Map<String, Value>) {
    let paths: Map<String, Value> = rows.iter().flat_map(|row| describe_paths(row)).collect();
    let mut schemas: Map<String, Value> =
        described(rows).into_iter().map(|object| (name_of(object), describe_object(object, rows))).collect();
    for (name, schema) in scalars() {
        schemas.insert(name.to_owned(), schema);
    }
    for (row, kind) in rows.iter().filter_map(|row| Some((row, row.custom?))) {
        let metadata = schema::kind_shape(META, "ObjectMeta");
        let metadata = metadata.map_or(Value::Null, describe_shape);
        let mut described = custom::openapi::schema(row, kind, metadata);
        let texts = descriptions::of(PLAIN);
        for field in ENVELOPE {
            let text = texts.and_then(|texts| texts.fields.get(field));
            described["properties"][field]["description"] = text.cloned().into();
        }
        schemas.insert(custom::openapi::name(row), described);
    }
    (paths, schemas)
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The types of the rows, and all types that they refer to.
fn described(rows: &[&Resource]) -> Vec<&'static Object> {
    fn visit(shape: &'static Shape, found: &mut Vec<&'static Object>) {
        match shape {
            Shape::List { item, .. } => visit(item, found),
            Shape::Map { value, .. } => visit(value, found),
            Shape::Scalar(_) | Shape::Any | Shape::Either(..) | Shape::Deduced => {}
            Shape::Object { .. } | Shape::Declared(_) => {
                let object = shape.object().filter(|new| !found.iter().any(|old| std::ptr::eq(*old, *new)));
                if let Some(object) = object {
                    found.push(object);
                    object.fields.values().for_each(|field| visit(&field.shape, found));
                }
            }
        }
    }
    let mut found = Vec::new();
    let shape = |row: &&Resource| match row.custom {
        Some(_) => schema::kind_shape(META, "ObjectMeta"),
        None => schema::kind_shape(row.group, row.kind),
    };
    for shape in rows.iter().filter_map(shape) {
        visit(shape, &mut found);
    }
    found.sort_by_key(|object| (object.package, object.name));
    found
}

fn name_of(object: &Object) -> String {
    format!("{}.{}", object.package, object.name)
}

/// The schemas of [`QUANTITY`], [`INT_OR_STRING`], [`FIELDS_V1`] and [`JSON`].
fn scalars() -> [(&'static str, Value); 4] {
    [
        (QUANTITY, json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] })),
        (
            INT_OR_STRING,
            json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] }),
        ),
        (FIELDS_V1, json!({ "type": "object" })),
        // Any value.
        (JSON, json!({})),
    ]
}

fn describe_object(object: &'static Object, rows: &[&Resource]) -> Value {
    let mut described = describe_fields(object);
    let row = rows.iter().filter(|row| row.custom.is_none()).find(|row| {
        let of_row = schema::kind_shape(row.group, row.kind).and_then(Shape::object);
        of_row.is_some_and(|of_row| std::ptr::eq(of_row, object))
    });
    if let Some(row) = row {
        described["x-kubernetes-group-version-kind"] = json!([group_version_kind(row)]);
    }
    described
}

/// An object with its fields.
fn describe_fields(object: &Object) -> Value {
    let texts = descriptions::of(&name_of(object));
    let describe = |field: &Field| {
        let mut described = describe_field(field);
        if let Some(text) = texts.and_then(|texts| texts.fields.get(field.name)) {
            described["description"] = text.as_str().into();
        }
        (field.name.to_owned(), described)
    };
    let properties: Map<String, Value> = object.fields.values().map(describe).collect();
    let mut described = json!({ "type": "object" });
    if let Some(texts) = texts {
        described["description"] = texts.whole.as_str().into();
    }
    let required: Vec<&str> =
        object.fields.values().filter(|field| field.required).map(|field| field.name).collect();
    if !required.is_empty() {
        described["required"] = json!(required);
    }
    if !properties.is_empty() {
        described["properties"] = Value::Object(properties);
    }
    if object.atomic {
        described["x-kubernetes-map-type"] = "atomic".into();
    }
    described
}

fn group_version_kind(row: &Resource) -> Value {
    json!({ "group": row.group, "version": row.version, "kind": row.kind })
}

fn describe_field(field: &Field) -> Value {
    let mut described = match (&field.shape, field.name) {
        (Shape::Any, "fieldsV1") => reference(FIELDS_V1),
        (shape, _) => describe_shape(shape),
    };
    if let Some(default) = field.default {
        described["default"] = default.into();
    }
    if let Some(values) = field.values {
        let place =
            if matches!(field.shape, Shape::List { .. }) { &mut described["items"] } else { &mut described };
        place["enum"] = values.split(',').collect();
    }
    match field.patch {
        Patch::Replace => {}
        Patch::Merge => described["x-kubernetes-patch-strategy"] = "merge".into(),
        Patch::ByKey { key, union } => {
            let strategy = if union { "merge,retainKeys" } else { "merge" };
            described["x-kubernetes-patch-strategy"] = strategy.into();
            described["x-kubernetes-patch-merge-key"] = key.into();
        }
    }
    described
}

/// Extensions next to a reference are allowed only around it.
fn reference(name: &str) -> Value {
    json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }] })
}

fn described_reference(shape: &Shape) -> Value {
    shape.object().map_or_else(|| json!({}), |object| reference(&name_of(object)))
}

fn describe_shape(shape: &Shape) -> Value {
    let typed = |name: &str, format: &str| json!({ "type": name, "format": format });
    match shape {
        Shape::Any => reference(JSON),
        Shape::Deduced => json!({ "type": "object" }),
        // As upstream, the schema of such a value is without any restriction.
        Shape::Either(..) => json!({}),
        Shape::Object { granular, .. } => {
            let mut described = described_reference(shape);
            if *granular {
                described["x-kubernetes-map-type"] = "granular".into();
            }
            described
        }
        Shape::Declared(_) => described_reference(shape),
        Shape::List { item, identity } => {
            let mut described = json!({ "type": "array", "items": describe_shape(item) });
            described["x-kubernetes-list-type"] = match identity {
                Identity::Atomic => "atomic".into(),
                Identity::Value => "set".into(),
                Identity::Keys(keys) => {
                    described["x-kubernetes-list-map-keys"] = json!(keys);
                    "map".into()
                }
            };
            described
        }
        Shape::Map { value, atomic } => {
            let value = describe_shape(value);
            let mut described = json!({ "type": "object", "additionalProperties": value });
            if *atomic {
                described["x-kubernetes-map-type"] = "atomic".into();
            }
            described
        }
        Shape::Scalar(scalar) => match scalar {
            Scalar::Text => json!({ "type": "string" }),
            Scalar::Bytes => typed("string", "byte"),
            Scalar::Time | Scalar::MicroTime => typed("string", "date-time"),
            Scalar::Bool => json!({ "type": "boolean" }),
            Scalar::Int32 => typed("integer", "int32"),
            Scalar::Int64 => typed("integer", "int64"),
            Scalar::Double => typed("number", "double"),
            Scalar::Quantity => reference(QUANTITY),
            Scalar::IntOrText => reference(INT_OR_STRING),
        },
    }
}

/// The paths of a kind, each with its operations.
fn describe_paths(row: &Resource) -> Vec<(String, Value)> {
    let scope = if row.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("/{}{scope}/{}", path_of(row.group, row.version), row.plural);
    let object = format!("{collection}/{{name}}");
    let below = row.subresources.iter().filter(|subresource| subresource.kind == row.kind);
    let below = below.map(|subresource| {
        (format!("{object}/{}", subresource.name), describe_operations(row, subresource.verbs, true))
    });
    [
        (collection, describe_operations(row, row.verbs(), false)),
        (object.clone(), describe_operations(row, row.verbs(), true)),
    ]
    .into_iter()
    .chain(below)
    .collect()
}

fn describe_operations(row: &Resource, verbs: &[&str], named: bool) -> Value {
    // By verb: the method, the action as kubectl calls it, and whether it is about one object.
    const OPERATIONS: [(&str, &str, &str, bool); 7] = [
        ("get", "get", "get", true),
        ("update", "put", "put", true),
        ("patch", "patch", "patch", true),
        ("delete", "delete", "delete", true),
        ("list", "get", "list", false),
        ("create", "post", "post", false),
        ("deletecollection", "delete", "deletecollection", false),
    ];
    let mut operations = Map::new();
    for (verb, method, action, about_one) in OPERATIONS {
        if about_one == named && verbs.contains(&verb) {
            operations.insert(method.to_owned(), describe_operation(row, action));
        }
    }
    let mut parameters = vec![];
    let mut in_path = |name: &str| {
        parameters.push(json!({
            "name": name, "in": "path", "required": true, "schema": { "type": "string" },
        }));
    };
    if named {
        in_path("name");
    }
    if row.namespaced {
        in_path("namespace");
    }
    operations.insert("parameters".to_owned(), parameters.into());
    Value::Object(operations)
}

fn describe_operation(row: &Resource, action: &str) -> Value {
    let options = WRITE_OPTIONS.iter().filter(|(name, _)| match action {
        "patch" => true,
        "put" | "post" => *name != "force",
        "delete" | "deletecollection" => *name == "dryRun",
        _ => false,
    });
    let parameters: Vec<Value> = options
        .map(|(name, sort)| json!({ "name": name, "in": "query", "schema": { "type": sort } }))
        .collect();
    let schema = match row.custom {
        Some(_) => Some(json!({ "$ref": format!("#/components/schemas/{}", custom::openapi::name(row)) })),
        None => schema::kind_shape(row.group, row.kind).map(describe_shape),
    };
    let body = json!({ "application/json": { "schema": schema } });
    let mut operation = json!({
        "responses": { "200": { "description": "OK", "content": body } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": group_version_kind(row),
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if matches!(action, "put" | "post") {
        operation["requestBody"] = json!({ "content": body });
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(group: &str, kind: &str) -> Value {
        let object = schema::kind_shape(group, kind).and_then(Shape::object).unwrap();
        describe_object(object, &[])
    }

    #[test]
    fn scalars_of_their_own_types_are_referenced() {
        let refers = |value: &Value| value["allOf"][0]["$ref"].as_str().unwrap_or_default().to_owned();
        let requirements = described("", "VolumeResourceRequirements");
        let requests = &requirements["properties"]["requests"]["additionalProperties"];
        assert_eq!(refers(requests), format!("#/components/schemas/{QUANTITY}"));
        let entry = described(META, "ManagedFieldsEntry");
        assert_eq!(refers(&entry["properties"]["fieldsV1"]), format!("#/components/schemas/{FIELDS_V1}"));
        let probe = described("", "TCPSocketAction");
        assert_eq!(refers(&probe["properties"]["port"]), format!("#/components/schemas/{INT_OR_STRING}"));
        assert_eq!(described("", "LocalObjectReference")["required"], Value::Null);
        assert_eq!(described("events.k8s.io", "Event")["required"], json!(["eventTime"]));
    }
}
