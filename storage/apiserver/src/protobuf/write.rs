//! From JSON to protobuf. Fields that are not set are not written, which Go reads as their zero values.
//!
//! All messages are written into one buffer. The length in front of a nested one is filled in when it ends; one that
//! needs more than a byte moves the message.

use jiff::Timestamp;
use serde_json::Value;

use super::wire::{put_bytes, put_double, put_number, put_tag_of_bytes, varint_of};
use crate::encoding::unbase64;
use crate::schema::{Number, Object, Other, Scalar, Shape};

/// The capacity of a buffer in the beginning: most objects have less.
const CAPACITY: usize = 1024;

/// The message of an object, its fields in the order of their numbers.
pub fn message(object: &'static Object, value: &Value) -> Vec<u8> {
    let mut writer = Writer { message: Vec::with_capacity(CAPACITY), fields: Vec::new() };
    writer.put_object(object, value);
    writer.message
}

struct Writer<'a> {
    message: Vec<u8>,
    /// The fields of the objects that are being written, those of the innermost last.
    fields: Vec<(Number, &'static Shape, &'a Value)>,
}

impl<'a> Writer<'a> {
    /// Writes the fields of an object.
    fn put_object(&mut self, object: &'static Object, value: &'a Value) {
        let first = self.fields.len();
        let values = value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        self.fields.extend(values.filter_map(|(name, value)| {
            let field = object.fields.get(name.as_str())?;
            Some((field.number?, &field.shape, value))
        }));
        self.fields[first..].sort_unstable_by_key(|(number, ..)| (number.outer, number.inner));
        let (mut at, end) = (first, self.fields.len());
        while at < end {
            let (number, shape, value) = self.fields[at];
            if number.inner.is_none() {
                self.put(number.outer, shape, value);
                at += 1;
                continue;
            }
            // JSON has the fields of this message among those of the object.
            let (before, start) = (self.message.len(), self.open(number.outer));
            while at < end && self.fields[at].0.outer == number.outer {
                let (number, shape, value) = self.fields[at];
                self.put(number.inner.unwrap_or(number.outer), shape, value);
                at += 1;
            }
            match self.message.len() == start {
                true => self.message.truncate(before),
                false => self.close(start),
            }
        }
        self.fields.truncate(first);
    }

    /// Begins a field with a nested message; returns the place of its first byte.
    fn open(&mut self, number: u64) -> usize {
        put_tag_of_bytes(&mut self.message, number);
        self.message.push(0);
        self.message.len()
    }

    /// Ends the nested message with its first byte at `start`.
    fn close(&mut self, start: usize) {
        let end = self.message.len();
        let (length, bytes) = varint_of((end - start) as u64);
        let more = bytes - 1;
        if more > 0 {
            self.message.resize(end + more, 0);
            self.message.copy_within(start..end, start + more);
        }
        self.message[start - 1..start + more].copy_from_slice(&length[..bytes]);
    }

    fn put_nested(&mut self, number: u64, fill: impl FnOnce(&mut Self)) {
        let start = self.open(number);
        fill(self);
        self.close(start);
    }

    fn put_text(&mut self, number: u64, text: &str) {
        put_bytes(&mut self.message, number, text.as_bytes());
    }

    /// Appends a field.
    fn put(&mut self, number: u64, shape: &'static Shape, value: &'a Value) {
        match (shape, value) {
            (Shape::List { item, .. }, Value::Array(items)) => {
                items.iter().for_each(|value| self.put(number, item, value));
            }
            (Shape::Map { value: shape, .. }, Value::Object(entries)) => {
                for (key, value) in entries {
                    self.put_nested(number, |entry| {
                        entry.put_text(1, key);
                        match **shape {
                            // A message is around the list.
                            Shape::List { .. } => entry.put_nested(2, |list| list.put(1, shape, value)),
                            _ => entry.put(2, shape, value),
                        }
                    });
                }
            }
            (Shape::Object { .. } | Shape::Declared(_), Value::Object(_)) => {
                if let Some(object) = shape.object() {
                    self.put_nested(number, |nested| nested.put_object(object, value));
                }
            }
            (Shape::Any | Shape::Deduced, _) => self.put_nested(number, |raw| {
                raw.put_nested(1, |raw| {
                    serde_json::to_writer(&mut raw.message, value).expect("a value is written to memory");
                });
            }),
            (Shape::Either(object, other), _) => {
                self.put_nested(number, |either| either.put_either(object, *other, value));
            }
            (Shape::Scalar(scalar), _) => self.put_scalar(number, *scalar, value),
            // Objects are stored with the types of their kind: at most a null is here.
            (Shape::List { .. } | Shape::Map { .. } | Shape::Object { .. } | Shape::Declared(_), _) => {}
        }
    }

    /// Mirrors pkg/apis/apiextensions/v1/marshal.go of apiextensions-apiserver.
    fn put_either(&mut self, object: &'static Shape, other: Other, value: &'a Value) {
        match (other, value) {
            (Other::Bool, Value::Bool(allows)) => put_number(&mut self.message, 1, (*allows).into()),
            (Other::Bool, _) => {
                put_number(&mut self.message, 1, 1);
                self.put(2, object, value);
            }
            (Other::Objects, Value::Array(items)) => {
                items.iter().for_each(|item| self.put(2, object, item));
            }
            (Other::Texts, Value::Array(items)) => {
                items.iter().filter_map(Value::as_str).for_each(|text| self.put_text(2, text));
            }
            (Other::Objects | Other::Texts, _) => self.put(1, object, value),
        }
    }

    fn put_scalar(&mut self, number: u64, scalar: Scalar, value: &Value) {
        let text = value.as_str().unwrap_or_default();
        let integer = value.as_i64().unwrap_or_default().cast_unsigned();
        let message = &mut self.message;
        match scalar {
            Scalar::Text => put_bytes(message, number, text.as_bytes()),
            Scalar::Bytes => put_bytes(message, number, &unbase64(text).unwrap_or_default()),
            Scalar::Bool => put_number(message, number, value.as_bool().unwrap_or_default().into()),
            Scalar::Int32 | Scalar::Int64 => put_number(message, number, integer),
            Scalar::Double => put_double(message, number, value.as_f64().unwrap_or_default()),
            Scalar::Quantity => self.put_nested(number, |quantity| match value {
                Value::String(text) => quantity.put_text(1, text),
                number => quantity.put_text(1, &number.to_string()),
            }),
            Scalar::IntOrText => self.put_nested(number, |either| {
                put_number(&mut either.message, 1, value.is_string().into());
                put_number(&mut either.message, 2, integer);
                either.put_text(3, text);
            }),
            Scalar::Time | Scalar::MicroTime => self.put_nested(number, |time| {
                // An empty message is the zero time.
                let Ok(moment) = text.parse::<Timestamp>() else { return };
                let micros = moment.as_microsecond();
                let fraction = if scalar == Scalar::Time { 0 } else { micros.rem_euclid(1_000_000) };
                put_number(&mut time.message, 1, micros.div_euclid(1_000_000).cast_unsigned());
                put_number(&mut time.message, 2, (fraction * 1000).cast_unsigned());
            }),
        }
    }
}
