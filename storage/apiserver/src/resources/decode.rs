//! Decodes bodies by the schema of their kind: unknown fields are dropped and reported, wrong types rejected.
//!
//! The result is what Go writes after it has read the body: without the fields that `omitempty` omits, with the zero
//! values of required fields, and with quantities, times and bytes in their canonical form.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Resource;
use crate::encoding::{base64, unbase64};
use crate::quantity::{self, Quantity};
use crate::schema::{self, Object, Other, Scalar, Shape};
use crate::time;

/// A decoded body.
#[derive(Debug)]
pub struct Decoded {
    /// The object, without kind, `apiVersion` and unknown fields.
    pub value: Value,
    /// Messages about the dropped fields.
    pub faults: Vec<String>,
}

/// Why a body cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("{path}{reason}")]
pub struct DecodeError {
    /// The path of the field, and a colon.
    path: String,
    reason: String,
}

impl DecodeError {
    fn new(reason: impl Into<String>) -> Self {
        Self { path: String::new(), reason: reason.into() }
    }

    /// The error of the field `name`, or of one below it.
    fn below(self, name: &str) -> Self {
        let separator = if self.path.is_empty() { ": " } else { "." };
        Self { path: format!("{name}{separator}{}", self.path), ..self }
    }
}

/// Decodes `value` as an object of the kind.
pub fn decode(resource: &Resource, value: Value) -> Result<Decoded, DecodeError> {
    let shape = schema::kind_shape(resource.group, resource.kind).expect("every kind is in types.txt");
    decode_as(shape, value)
}

/// Rejects a value with parts of a wrong type.
pub fn check_types(value: &Value, shape: &Shape) -> Result<(), DecodeError> {
    read(value.clone(), shape).map(drop)
}

/// Decodes an object that has only metadata.
pub fn decode_metadata(metadata: Value) -> Result<Decoded, DecodeError> {
    let shape = schema::kind_shape("", "Namespace").expect("namespaces are in types.txt");
    let body = Map::from_iter([("metadata".to_owned(), metadata)]);
    decode_as(shape, Value::Object(body))
}

fn decode_as(shape: &Shape, mut value: Value) -> Result<Decoded, DecodeError> {
    if let Value::Object(fields) = &mut value {
        fields.shift_remove("kind");
        fields.shift_remove("apiVersion");
    }
    let mut faults = Vec::new();
    find_unknown(&value, shape, &mut String::new(), &mut faults);
    let mut value = read(value, shape)?;
    if value["metadata"].is_null() {
        value["metadata"] = Value::Object(Map::new());
    }
    Ok(Decoded { value, faults })
}

/// Names the fields that the types do not have, in the order of the body.
fn find_unknown(value: &Value, shape: &Shape, path: &mut String, faults: &mut Vec<String>) {
    let length = path.len();
    match (value, shape) {
        (Value::Array(items), Shape::List { item, .. } | Shape::Either(item, Other::Objects)) => {
            for (index, value) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                find_unknown(value, item, path, faults);
                path.truncate(length);
            }
        }
        (Value::Object(_), Shape::Either(object, _)) => find_unknown(value, object, path, faults),
        (Value::Object(fields), Shape::Map { .. } | Shape::Object { .. } | Shape::Declared(_)) => {
            for (name, value) in fields {
                if length > 0 {
                    path.push('.');
                }
                path.push_str(name);
                match shape.field(name) {
                    Some(shape) => find_unknown(value, shape, path, faults),
                    None => faults.push(format!("unknown field \"{path}\"")),
                }
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// What Go writes after it has read `value`.
fn read(value: Value, shape: &Shape) -> Result<Value, DecodeError> {
    match (shape, value) {
        (Shape::Any | Shape::Deduced, value) => Ok(value),
        (_, Value::Null) => Ok(zero(shape)),
        (Shape::Scalar(scalar), value) => read_scalar(value, *scalar),
        (Shape::List { item, .. } | Shape::Either(item, Other::Objects), Value::Array(items)) => {
            items.into_iter().map(|value| read(value, item)).collect()
        }
        (Shape::Map { value: shape, .. }, Value::Object(fields)) => {
            let read = |(name, value): (String, Value)| {
                let value = read(value, shape).map_err(|error| error.below(&name))?;
                Ok((name, value))
            };
            // Go writes the keys of maps in their order.
            let fields: BTreeMap<_, _> = fields.into_iter().map(read).collect::<Result<_, DecodeError>>()?;
            Ok(Value::Object(fields.into_iter().collect()))
        }
        (Shape::Either(object, _), value @ Value::Object(_)) => read(value, object),
        (Shape::Object { .. } | Shape::Declared(_), Value::Object(fields)) => {
            let object = shape.object().expect("an object has fields");
            read_object(fields, object).map(Value::Object)
        }
        (Shape::Either(..), value) => Ok(value),
        (Shape::List { .. }, _) => Err(DecodeError::new("must be a list")),
        (Shape::Map { .. } | Shape::Object { .. } | Shape::Declared(_), _) => {
            Err(DecodeError::new("must be an object"))
        }
    }
}

fn read_object(mut given: Map<String, Value>, object: &Object) -> Result<Map<String, Value>, DecodeError> {
    let mut fields = Map::with_capacity(given.len());
    for (name, field) in &object.fields {
        let value = match given.swap_remove(*name) {
            Some(value) if !value.is_null() => {
                read(value, &field.shape).map_err(|error| error.below(name))?
            }
            _ if field.required => zero(&field.shape),
            _ => continue,
        };
        let omitted = match &value {
            // A selector that is required is the only object that Go has a pointer to: it writes null.
            Value::Null => field.shape.object().is_none_or(|object| object.name != SELECTOR),
            // An empty list of owners is a request to remove all of them.
            Value::Array(items) => {
                items.is_empty() && *name != "managedFields" && !matches!(field.shape, Shape::Any)
            }
            Value::Object(fields) => fields.is_empty() && matches!(field.shape, Shape::Map { .. }),
            scalar => is_zero(scalar) && field.number.is_some_and(|number| number.zero_is_unset),
        };
        if !omitted {
            fields.insert((*name).to_owned(), value);
        }
    }
    Ok(fields)
}

const SELECTOR: &str = "LabelSelector";

/// The value of a field that is required and missing, and of a null in a list or map.
fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Scalar(Scalar::Text | Scalar::Bytes) => "".into(),
        Shape::Scalar(Scalar::Bool) => false.into(),
        Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Double | Scalar::IntOrText) => 0.into(),
        Shape::Scalar(Scalar::Quantity) => "0".into(),
        Shape::Scalar(Scalar::Time | Scalar::MicroTime) | Shape::Any | Shape::Deduced | Shape::Either(..) => {
            Value::Null
        }
        Shape::List { .. } => Value::Array(Vec::new()),
        Shape::Map { .. } => Value::Object(Map::new()),
        Shape::Object { .. } | Shape::Declared(_) => match shape.object() {
            Some(object) if object.name != SELECTOR => {
                read_object(Map::new(), object).map_or(Value::Null, Value::Object)
            }
            _ => Value::Null,
        },
    }
}

/// Whether it is what Go initializes a scalar to.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// A scalar of the right type, in its canonical form.
fn read_scalar(value: Value, scalar: Scalar) -> Result<Value, DecodeError> {
    let expected = match (scalar, &value) {
        (Scalar::Quantity, Value::String(_) | Value::Number(_)) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let parsed: Quantity = text.parse().map_err(|_| DecodeError::new(quantity::SYNTAX))?;
            return Ok(parsed.to_string().into());
        }
        (Scalar::Time | Scalar::MicroTime, Value::String(text)) => {
            let read = time::canonical(text, scalar == Scalar::MicroTime).map(Value::String);
            return read.ok_or_else(|| DecodeError::new("must be a time as in RFC 3339"));
        }
        (Scalar::Bytes, Value::String(text)) => {
            let lines: String = text.split(['\r', '\n']).collect();
            let bytes = unbase64(&lines).ok_or_else(|| DecodeError::new("must be base64"))?;
            return Ok(base64(&bytes).into());
        }
        (Scalar::Int32, Value::Number(number))
            if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) =>
        {
            return Ok(value);
        }
        (Scalar::Int64, Value::Number(number)) if number.is_i64() => return Ok(value),
        (Scalar::Text | Scalar::IntOrText, Value::String(_))
        | (Scalar::Bool, Value::Bool(_))
        | (Scalar::Double | Scalar::IntOrText, Value::Number(_)) => return Ok(value),
        (Scalar::Quantity, _) => quantity::SYNTAX,
        (Scalar::Int32, _) => "must be an integer of 32 bits",
        (Scalar::Int64, _) => "must be an integer of 64 bits",
        (Scalar::Double, _) => "must be a number",
        (Scalar::Bool, _) => "must be true or false",
        (Scalar::IntOrText, _) => "must be an integer or a string",
        (Scalar::Text | Scalar::Bytes | Scalar::Time | Scalar::MicroTime, _) => "must be a string",
    };
    Err(DecodeError::new(expected))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::{Storage, stored};

    fn claim(value: Value) -> Result<Decoded, DecodeError> {
        let claims = stored(Storage::Claims);
        (claims.decode)(claims, value)
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let decoded =
            claim(json!({ "spec": { "storage": "1", "volumeName": "v", "selector": null } })).unwrap();
        assert_eq!(decoded.faults, ["unknown field \"spec.storage\""]);
        assert_eq!(decoded.value["spec"], json!({ "volumeName": "v" }));
    }

    #[test]
    fn wrong_types_are_described() {
        let table = [
            (json!({ "spec": "x" }), "spec: must be an object"),
            (json!({ "metadata": { "name": true } }), "metadata.name: must be a string"),
            (json!({ "metadata": { "labels": { "a": 1 } } }), "metadata.labels.a: must be a string"),
            (json!({ "metadata": { "finalizers": {} } }), "metadata.finalizers: must be a list"),
            (
                json!({ "metadata": { "ownerReferences": [{ "uid": 1 }] } }),
                "metadata.ownerReferences.uid: must be a string",
            ),
            (
                json!({ "metadata": { "generation": 1.5 } }),
                "metadata.generation: must be an integer of 64 bits",
            ),
            (
                json!({ "metadata": { "creationTimestamp": "x" } }),
                "metadata.creationTimestamp: must be a time as in RFC 3339",
            ),
        ];
        for (body, expected) in table {
            assert_eq!(claim(body).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn zero_values_are_dropped_where_go_drops_them() {
        let spec = json!({
            "nodeName": "", "hostNetwork": false, "priority": 0, "schedulerName": "s",
            "containers": [{ "name": "", "stdin": false, "args": [""], "env": [{ "name": "a", "value": "" }] }],
            "nodeSelector": { "a": "" },
        });
        let pods = stored(Storage::Pods);
        let decoded = (pods.decode)(pods, json!({ "spec": spec })).unwrap();
        let expected = json!({
            "priority": 0, "schedulerName": "s", "containers": [{ "name": "", "args": [""], "env": [{ "name": "a" }] }],
            "nodeSelector": { "a": "" },
        });
        assert_eq!(decoded.value["spec"], expected);
        assert_eq!(decoded.faults, Vec::<String>::new());
        let decoded = claim(json!({ "spec": { "storageClassName": "", "volumeName": "" } })).unwrap();
        assert_eq!(decoded.value["spec"], json!({ "storageClassName": "" }));
    }

    #[test]
    fn quantities_become_canonical() {
        let body = json!({ "spec": { "resources": { "requests": { "storage": "1024Mi" } } } });
        assert_eq!(claim(body).unwrap().value["spec"]["resources"]["requests"]["storage"], "1Gi");
        let body = json!({ "spec": { "resources": { "requests": { "storage": "1Xi" } } } });
        assert!(claim(body).unwrap_err().to_string().contains("quantities must match"));
    }
}
