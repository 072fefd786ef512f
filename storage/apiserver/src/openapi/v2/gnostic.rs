//! A document of version 2 as protobuf: the messages of gnostic, openapiv2/OpenAPIv2.proto, with the fields that the
//! documents have here.

use serde_json::{Map, Value};

use crate::protobuf::wire::{put_bytes, put_double, put_number};

/// The paths and definitions of a document, as a message `Document`.
pub fn document(parts: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    put_text(&mut message, 1, "2.0");
    put_message(&mut message, 2, |info| {
        put_text(info, 1, "claimcheck");
        put_text(info, 2, env!("CARGO_PKG_VERSION"));
    });
    let parts = |name: &str| parts[name].as_object().into_iter().flatten();
    put_message(&mut message, 8, |paths| {
        parts("paths").for_each(|(name, path)| put_named(paths, 2, name, |item| put_path(item, path)));
    });
    put_message(&mut message, 9, |definitions| {
        parts("definitions")
            .for_each(|(name, schema)| put_named(definitions, 1, name, |item| put_schema(item, schema)));
    });
    message
}

fn put_text(message: &mut Vec<u8>, number: u64, text: &str) {
    put_bytes(message, number, text.as_bytes());
}

fn put_message(message: &mut Vec<u8>, number: u64, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut nested = Vec::new();
    fill(&mut nested);
    put_bytes(message, number, &nested);
}

/// A name with a value, such as `NamedSchema`.
fn put_named(message: &mut Vec<u8>, number: u64, name: &str, fill: impl FnOnce(&mut Vec<u8>)) {
    put_message(message, number, |named| {
        put_text(named, 1, name);
        put_message(named, 2, fill);
    });
}

/// `Any`: YAML, which JSON is, too.
fn put_any(message: &mut Vec<u8>, number: u64, value: &Value) {
    put_message(message, number, |any| put_text(any, 2, &format!("{value}\n")));
}

fn put_extensions(message: &mut Vec<u8>, number: u64, fields: &Map<String, Value>) {
    for (name, value) in fields.iter().filter(|(name, _)| name.starts_with("x-")) {
        put_named(message, number, name, |any| put_text(any, 2, &format!("{value}\n")));
    }
}

/// `PathItem`.
fn put_path(message: &mut Vec<u8>, path: &Value) {
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Value::Object(operation) = &path[method] {
            put_message(message, number, |message| put_operation(message, operation));
        }
    }
}

/// `Operation`. Its parameters are in the query.
fn put_operation(message: &mut Vec<u8>, operation: &Map<String, Value>) {
    for parameter in operation.get("parameters").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| parameter[name].as_str().unwrap_or_default();
        // ParametersItem.parameter, Parameter.non_body_parameter, NonBodyParameter.query_parameter_sub_schema
        put_message(message, 8, |item| {
            put_message(item, 1, |parameter| {
                put_message(parameter, 2, |non_body| {
                    put_message(non_body, 3, |query| {
                        put_text(query, 2, text("in"));
                        put_text(query, 4, text("name"));
                        put_text(query, 6, text("type"));
                    });
                });
            });
        });
    }
    put_extensions(message, 13, operation);
}

/// `Schema`, with the fields that `validate` and `explain` of kubectl read.
fn put_schema(message: &mut Vec<u8>, schema: &Value) {
    let Some(fields) = schema.as_object() else { return };
    for (name, value) in fields {
        let text = value.as_str().unwrap_or_default();
        match name.as_str() {
            "$ref" => put_text(message, 1, text),
            "format" => put_text(message, 2, text),
            "title" => put_text(message, 3, text),
            "description" => put_text(message, 4, text),
            "default" => put_any(message, 5, value),
            "maximum" => put_double(message, 7, value.as_f64().unwrap_or_default()),
            "minimum" => put_double(message, 9, value.as_f64().unwrap_or_default()),
            "pattern" => put_text(message, 13, text),
            "maxLength" => put_count(message, 11, value),
            "minLength" => put_count(message, 12, value),
            "maxItems" => put_count(message, 14, value),
            "minItems" => put_count(message, 15, value),
            "required" => {
                let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
                names.for_each(|name| put_text(message, 19, name));
            }
            "enum" => value.as_array().into_iter().flatten().for_each(|value| put_any(message, 20, value)),
            "additionalProperties" => put_message(message, 21, |item| match value {
                Value::Bool(allowed) => put_number(item, 2, (*allowed).into()),
                schema => put_message(item, 1, |message| put_schema(message, schema)),
            }),
            "type" => put_message(message, 22, |item| put_text(item, 1, text)),
            "items" => put_message(message, 23, |item| put_message(item, 1, |item| put_schema(item, value))),
            "properties" => put_message(message, 25, |properties| {
                for (name, schema) in value.as_object().into_iter().flatten() {
                    put_named(properties, 1, name, |message| put_schema(message, schema));
                }
            }),
            _ => {}
        }
    }
    put_extensions(message, 31, fields);
}

fn put_count(message: &mut Vec<u8>, number: u64, count: &Value) {
    put_number(message, number, count.as_u64().unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protobuf::wire::{Wire, next};

    /// The bytes at a path of numbers; of a repeated field, the first.
    fn at<'a>(mut message: &'a [u8], path: &[u64]) -> &'a [u8] {
        for number in path {
            let mut rest = message;
            message = loop {
                match next(&mut rest).expect("a field") {
                    (found, Wire::Bytes(bytes)) if found == *number => break bytes,
                    _ => {}
                }
            };
        }
        message
    }

    #[test]
    fn messages_have_the_numbers_of_gnostic() {
        let schema = json!({
            "type": "object", "required": ["a"], "x-kubernetes-group-version-kind": [{ "kind": "K" }],
            "properties": { "a": { "type": "array", "items": { "$ref": "#/definitions/b" } } },
        });
        let operation = json!({ "parameters": [{ "name": "dryRun", "in": "query", "type": "string" }],
                                "x-kubernetes-group-version-kind": { "kind": "K" } });
        let bytes =
            document(&json!({ "paths": { "/p": { "patch": operation } }, "definitions": { "k": schema } }));
        for (path, expected) in [
            (&[1][..], "2.0"),
            (&[2, 1], "claimcheck"),
            (&[8, 2, 1], "/p"),
            (&[8, 2, 2, 8, 8, 1, 2, 3, 4], "dryRun"),
            (&[8, 2, 2, 8, 13, 1], "x-kubernetes-group-version-kind"),
            (&[8, 2, 2, 8, 13, 2, 2], "{\"kind\":\"K\"}\n"),
            (&[9, 1, 1], "k"),
            (&[9, 1, 2, 22, 1], "object"),
            (&[9, 1, 2, 19], "a"),
            (&[9, 1, 2, 25, 1, 1], "a"),
            (&[9, 1, 2, 25, 1, 2, 22, 1], "array"),
            (&[9, 1, 2, 25, 1, 2, 23, 1, 1], "#/definitions/b"),
            (&[9, 1, 2, 31, 2, 2], "[{\"kind\":\"K\"}]\n"),
        ] {
            assert_eq!(std::str::from_utf8(at(&bytes, path)), Ok(expected), "{path:?}");
        }
    }
}
