//! `/openapi/v2`: all groups in one document, converted from the documents of version 3.
//!
//! Clients older than 1.27 use only this one: kubectl validates objects with it before it sends them, looks up whether the
//! patches of a kind support `dryRun`, and explains fields. Newer ones request it for kinds that the documents of version
//! 3 do not have, such as `List`. client-go requests it as protobuf.
//!
//! Mirrors kube-openapi pkg/handler/handler.go and openapiconv, and for custom kinds ToStructuralOpenAPIV2 in
//! apiextensions-apiserver.

mod gnostic;

use std::sync::LazyLock;

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use hyper::body::Bytes;
use serde_json::{Map, Value, json};

use super::{INT_OR_STRING, QUANTITY, parts};
use crate::custom::Kinds;
use crate::resources;
use crate::response::{self, Answer};

/// The media type of [`gnostic`]: `subTypeProtobuf` in kube-openapi, pkg/handler/handler.go.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// As client-go requests it (`subTypeProtobufDeprecated`); it could not parse a Content-Type with `@`.
const DEPRECATED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The document about the built-in kinds, as protobuf. Parsers merge the parts of a document, so that those of custom
/// kinds can follow.
static BUILT_IN: LazyLock<Vec<u8>> = LazyLock::new(|| gnostic::document(&built_in()));

/// The document, in protobuf if the client accepts it.
pub fn document(headers: &HeaderMap, kinds: &Kinds) -> Answer {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let rows = kinds.rows();
    if accept.split(',').any(|clause| [PROTOBUF, DEPRECATED].contains(&clause.trim())) {
        let mut bytes = BUILT_IN.clone();
        if !rows.is_empty() {
            bytes.extend(gnostic::document(&convert(parts(rows))));
        }
        return response::bytes(StatusCode::OK, PROTOBUF, Bytes::from(bytes));
    }
    let mut document = built_in();
    let custom = convert(parts(rows));
    for part in ["paths", "definitions"] {
        if let (Value::Object(all), Value::Object(more)) = (&mut document[part], &custom[part]) {
            all.extend(more.clone());
        }
    }
    let mut whole =
        json!({ "swagger": "2.0", "info": { "title": "claimcheck", "version": env!("CARGO_PKG_VERSION") } });
    if let (Value::Object(whole), Value::Object(parts)) = (&mut whole, document) {
        whole.extend(parts);
    }
    response::json(StatusCode::OK, &whole)
}

fn built_in() -> Value {
    let rows: Vec<_> = resources::all().iter().collect();
    convert(parts(&rows))
}

/// The paths and schemas of a document of version 3 in version 2.
fn convert((paths, schemas): (Map<String, Value>, Map<String, Value>)) -> Value {
    let mut schemas: Map<String, Value> =
        schemas.into_iter().map(|(name, schema)| (name, convert_schema(schema))).collect();
    // Version 2 has no alternatives.
    schemas.insert(QUANTITY.to_owned(), json!({ "type": "string" }));
    schemas.insert(INT_OR_STRING.to_owned(), json!({ "type": "string", "format": "int-or-string" }));
    let paths: Map<String, Value> =
        paths.into_iter().map(|(path, operations)| (path, convert_operations(operations))).collect();
    json!({ "paths": paths, "definitions": schemas })
}

fn convert_schema(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else { return schema };
    // A reference has no extensions in version 3, and is wrapped if it has any.
    if let Some(reference) = schema.get("$ref").or_else(|| schema.get("allOf")?.get(0)?.get("$ref")) {
        let target =
            reference.as_str().unwrap_or_default().replace("#/components/schemas/", "#/definitions/");
        schema.shift_remove("allOf");
        schema.insert("$ref".to_owned(), target.into());
        return Value::Object(schema);
    }
    for alternatives in ["allOf", "anyOf", "oneOf", "not"] {
        schema.shift_remove(alternatives);
    }
    let is_set = |schema: &Map<String, Value>, name: &str| schema.get(name) == Some(&true.into());
    let is_nullable = is_set(&schema, "nullable");
    if is_nullable || is_set(&schema, "x-kubernetes-preserve-unknown-fields") {
        // Version 2 has no word for these: their fields are not described.
        for part in ["type", "items", "properties"] {
            schema.shift_remove(part);
        }
    }
    if is_nullable {
        for part in ["nullable", "additionalProperties"] {
            schema.shift_remove(part);
        }
    }
    for (name, part) in &mut schema {
        match (name.as_str(), part) {
            ("properties", Value::Object(fields)) => {
                fields.values_mut().for_each(|field| *field = convert_schema(field.take()));
            }
            ("items" | "additionalProperties", part) => *part = convert_schema(part.take()),
            _ => {}
        }
    }
    Value::Object(schema)
}

/// Operations with their parameters, without the schemas of bodies, which no client reads.
fn convert_operations(operations: Value) -> Value {
    let Value::Object(mut operations) = operations else { return operations };
    operations.shift_remove("parameters");
    for operation in operations.values_mut() {
        let Value::Object(operation) = operation else { continue };
        operation.shift_remove("requestBody");
        operation.insert("responses".to_owned(), json!({ "200": { "description": "OK" } }));
        for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(parameter) = parameter {
                let schema = parameter.shift_remove("schema").unwrap_or_default();
                parameter.insert("type".to_owned(), schema["type"].clone());
                parameter.insert("uniqueItems".to_owned(), true.into());
            }
        }
    }
    Value::Object(operations)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_client_gets_the_media_type_that_it_accepts() {
        for (accept, expected) in
            [(PROTOBUF, PROTOBUF), (DEPRECATED, PROTOBUF), ("application/json", "application/json")]
        {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(document(&headers, &Kinds::default()).headers()["content-type"], expected);
        }
    }

    #[test]
    fn references_are_to_definitions_that_exist() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    // Properties of these names, which the schema of a definition has, are objects.
                    for combined in ["allOf", "oneOf", "anyOf"] {
                        assert!(!fields.get(combined).is_some_and(Value::is_array), "{fields:?}");
                    }
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = built_in();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 400, "{}", found.len());
        for reference in found {
            let name = reference.strip_prefix("#/definitions/").unwrap();
            assert!(document["definitions"][name].is_object(), "{name}");
        }
        // Clients validate the schemas in definitions with it, and defaults may be of any type.
        let schema = &document["definitions"]["io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"];
        let value =
            schema["properties"]["enum"]["items"]["$ref"].as_str().unwrap().rsplit_once('/').unwrap().1;
        assert_eq!(document["definitions"][value], json!({}));
        assert_eq!(schema["properties"]["items"], json!({}));
        let patch = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"];
        assert_eq!(
            patch["parameters"][0],
            json!({ "name": "dryRun", "in": "query", "type": "string", "uniqueItems": true })
        );
    }

    #[test]
    fn what_version_2_cannot_describe_is_left_open() {
        let field = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        let with = |name: &str| {
            let mut schema = field.clone();
            schema[name] = true.into();
            convert_schema(json!({ "type": "object", "properties": { "f": schema } }))["properties"]["f"]
                .clone()
        };
        assert_eq!(with("nullable"), json!({}));
        let open = "x-kubernetes-preserve-unknown-fields";
        assert_eq!(with(open), json!({ open: true }));
        let wrapped = json!({ "allOf": [{ "$ref": "#/components/schemas/a" }], "description": "d" });
        assert_eq!(convert_schema(wrapped), json!({ "$ref": "#/definitions/a", "description": "d" }));
    }
}
