//! From JSON to protobuf.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::Value;

use super::{Field, MAGIC, TABLE, inner};

/// The body with an object, which has its kind; `None` if the kind is not in the table.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let raw = write(TABLE.fields(text("apiVersion"), text("kind"))?, object);
    let mut type_meta = Vec::new();
    put_bytes(&mut type_meta, 1, text("apiVersion").as_bytes());
    put_bytes(&mut type_meta, 2, text("kind").as_bytes());
    let mut body = MAGIC.to_vec();
    put_bytes(&mut body, 1, &type_meta);
    put_bytes(&mut body, 2, &raw);
    put_bytes(&mut body, 3, b"");
    put_bytes(&mut body, 4, b"");
    Some(body)
}

fn write(types: &[Field], object: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in types {
        let value = &object[field.name];
        if value.is_null() {
            continue;
        }
        match field.inner {
            None => put(&mut bytes, field.outer, &field.shape, value),
            // Messages that occur twice are merged.
            Some(number) => {
                let mut inlined = Vec::new();
                put(&mut inlined, number, &field.shape, value);
                put_bytes(&mut bytes, field.outer, &inlined);
            }
        }
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, number: u64, shape: &str, value: &Value) {
    if let Some(item) = inner(shape, '[', ']') {
        for value in value.as_array().into_iter().flatten() {
            put(bytes, number, item, value);
        }
        return;
    }
    if let Some(shape) = inner(shape, '{', '}') {
        for (key, value) in value.as_object().into_iter().flatten() {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, key.as_bytes());
            if shape.starts_with('[') {
                let mut list = Vec::new();
                put(&mut list, 1, shape, value);
                put_bytes(&mut entry, 2, &list);
            } else {
                put(&mut entry, 2, shape, value);
            }
            put_bytes(bytes, number, &entry);
        }
        return;
    }
    let text = value.as_str().unwrap_or_default();
    let integer = value.as_i64().unwrap_or_default().cast_unsigned();
    let mut nested = Vec::new();
    match shape {
        "string" => return put_bytes(bytes, number, text.as_bytes()),
        "bytes" => {
            let raw = serde_json::from_value::<ByteString>(value.clone()).map(|bytes| bytes.0);
            return put_bytes(bytes, number, &raw.unwrap_or_default());
        }
        "bool" => return put_number(bytes, number, value.as_bool().unwrap_or_default().into()),
        "int32" | "int64" => return put_number(bytes, number, integer),
        // No sample has one.
        "double" => return,
        "quantity" => put_bytes(&mut nested, 1, text.as_bytes()),
        "any" => put_bytes(&mut nested, 1, value.to_string().as_bytes()),
        "intstr" => {
            put_number(&mut nested, 1, value.is_string().into());
            put_number(&mut nested, 2, integer);
            put_bytes(&mut nested, 3, text.as_bytes());
        }
        "time" | "microtime" => {
            if let Ok(time) = text.parse::<Timestamp>() {
                put_number(&mut nested, 1, time.as_second().cast_unsigned());
                put_number(&mut nested, 2, i64::from(time.subsec_nanosecond()).cast_unsigned());
            }
        }
        _ => nested = TABLE.types.get(shape).map(|types| write(types, value)).unwrap_or_default(),
    }
    put_bytes(bytes, number, &nested);
}

fn put_number(bytes: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(bytes, number << 3);
    put_varint(bytes, value);
}

fn put_bytes(bytes: &mut Vec<u8>, number: u64, value: &[u8]) {
    put_varint(bytes, number << 3 | 2);
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
