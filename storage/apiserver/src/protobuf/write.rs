//! From JSON to protobuf. Fields that are not set are not written, which Go reads as their zero values.

use jiff::Timestamp;
use serde_json::Value;

use super::wire::{put_bytes, put_double, put_number};
use crate::encoding::unbase64;
use crate::schema::{Number, Object, Other, Scalar, Shape};

/// The message of an object, its fields in the order of their numbers.
pub fn message(object: &Object, value: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    let values = value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let mut values: Vec<(Number, &Shape, &Value)> = values
        .filter_map(|(name, value)| {
            let field = object.fields.get(name.as_str())?;
            Some((field.number?, &field.shape, value))
        })
        .collect();
    values.sort_by_key(|(number, ..)| (number.outer, number.inner));
    for values in values.chunk_by(|(a, ..), (b, ..)| a.outer == b.outer) {
        let mut inlined = Vec::new();
        for (number, shape, value) in values {
            match number.inner {
                None => put(&mut message, number.outer, shape, value),
                Some(inner) => put(&mut inlined, inner, shape, value),
            }
        }
        if !inlined.is_empty() {
            put_bytes(&mut message, values[0].0.outer, &inlined);
        }
    }
    message
}

/// Appends a field.
fn put(message: &mut Vec<u8>, number: u64, shape: &Shape, value: &Value) {
    match (shape, value) {
        (Shape::List { item, .. }, Value::Array(items)) => {
            items.iter().for_each(|value| put(message, number, item, value));
        }
        (Shape::Map { value: shape, .. }, Value::Object(entries)) => {
            for (key, value) in entries {
                put_nested(message, number, |entry| {
                    put_bytes(entry, 1, key.as_bytes());
                    match **shape {
                        // A message is around the list.
                        Shape::List { .. } => put_nested(entry, 2, |list| put(list, 1, shape, value)),
                        _ => put(entry, 2, shape, value),
                    }
                });
            }
        }
        (Shape::Object(_) | Shape::Declared(_), Value::Object(_)) => {
            if let Some(object) = shape.object() {
                put_bytes(message, number, &self::message(object, value));
            }
        }
        (Shape::Any | Shape::Deduced, _) => {
            put_nested(message, number, |raw| put_bytes(raw, 1, value.to_string().as_bytes()));
        }
        (Shape::Either(object, other), _) => {
            put_nested(message, number, |either| put_either(either, object, *other, value));
        }
        (Shape::Scalar(scalar), _) => put_scalar(message, number, *scalar, value),
        // Objects are stored with the types of their kind: at most a null is here.
        (Shape::List { .. } | Shape::Map { .. } | Shape::Object(_) | Shape::Declared(_), _) => {}
    }
}

/// Mirrors pkg/apis/apiextensions/v1/marshal.go of apiextensions-apiserver.
fn put_either(message: &mut Vec<u8>, object: &Shape, other: Other, value: &Value) {
    match (other, value) {
        (Other::Bool, Value::Bool(allows)) => put_number(message, 1, (*allows).into()),
        (Other::Bool, _) => {
            put_number(message, 1, 1);
            put(message, 2, object, value);
        }
        (Other::Objects, Value::Array(items)) => items.iter().for_each(|item| put(message, 2, object, item)),
        (Other::Texts, Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).for_each(|text| put_bytes(message, 2, text.as_bytes()));
        }
        (Other::Objects | Other::Texts, _) => put(message, 1, object, value),
    }
}

fn put_nested(message: &mut Vec<u8>, number: u64, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut nested = Vec::new();
    fill(&mut nested);
    put_bytes(message, number, &nested);
}

fn put_scalar(message: &mut Vec<u8>, number: u64, scalar: Scalar, value: &Value) {
    let text = value.as_str().unwrap_or_default();
    let integer = value.as_i64().unwrap_or_default().cast_unsigned();
    match scalar {
        Scalar::Text => put_bytes(message, number, text.as_bytes()),
        Scalar::Bytes => put_bytes(message, number, &unbase64(text).unwrap_or_default()),
        Scalar::Bool => put_number(message, number, value.as_bool().unwrap_or_default().into()),
        Scalar::Int32 | Scalar::Int64 => put_number(message, number, integer),
        Scalar::Double => put_double(message, number, value.as_f64().unwrap_or_default()),
        Scalar::Quantity => put_nested(message, number, |quantity| match value {
            Value::String(text) => put_bytes(quantity, 1, text.as_bytes()),
            number => put_bytes(quantity, 1, number.to_string().as_bytes()),
        }),
        Scalar::IntOrText => put_nested(message, number, |either| {
            put_number(either, 1, value.is_string().into());
            put_number(either, 2, integer);
            put_bytes(either, 3, text.as_bytes());
        }),
        Scalar::Time | Scalar::MicroTime => put_nested(message, number, |time| {
            // An empty message is the zero time.
            let Ok(moment) = text.parse::<Timestamp>() else { return };
            let micros = moment.as_microsecond();
            let fraction = if scalar == Scalar::Time { 0 } else { micros.rem_euclid(1_000_000) };
            put_number(time, 1, micros.div_euclid(1_000_000).cast_unsigned());
            put_number(time, 2, (fraction * 1000).cast_unsigned());
        }),
    }
}
