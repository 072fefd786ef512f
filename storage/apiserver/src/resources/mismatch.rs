//! Values that do not fit the schema of their kind, in the words of Go's decoders.
//!
//! Mirrors sigs.k8s.io/json (`json`) and apimachinery pkg/runtime/converter.go (`restored`), which strategic merge
//! patches use.

use serde_json::Value;

use crate::quantity;
use crate::schema::{Object, Scalar, Shape};
use crate::time;

/// The first value in `value` that is not of its type; `kind` is the name of the outermost type.
pub fn json(value: &Value, shape: &Shape, kind: &str) -> Option<String> {
    Position { owner: kind, path: Vec::new() }.find(value, shape)
}

/// The kind of a JSON value, in Go's words.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Like [`json`], for a value that is not read from a text.
pub fn restored(value: &Value, shape: &Shape) -> Option<String> {
    if value.is_null() || matches!(shape, Shape::Any | Shape::Either(..) | Shape::Deduced) {
        return None;
    }
    let found = match value {
        Value::Object(_) => "map",
        Value::Array(_) => "slice",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Null | Value::Number(_) => "int64",
    };
    match (shape, value) {
        (Shape::List { item, .. }, Value::Array(items)) => {
            items.iter().find_map(|value| restored(value, item))
        }
        (Shape::List { .. }, _) => Some(format!("cannot restore slice from {found}")),
        (Shape::Map { value: shape, .. }, Value::Object(fields)) => {
            fields.values().find_map(|value| restored(value, shape))
        }
        (Shape::Map { .. }, _) => Some(format!("cannot restore map from {found}")),
        (Shape::Object { .. } | Shape::Declared(_), Value::Object(fields)) => {
            fields.iter().find_map(|(name, value)| restored(value, shape.field(name)?))
        }
        (Shape::Object { .. } | Shape::Declared(_), _) => {
            Some(format!("cannot restore struct from: {found}"))
        }
        (Shape::Scalar(scalar), _) => restored_scalar(value, *scalar, found),
        (Shape::Any | Shape::Either(..) | Shape::Deduced, _) => None,
    }
}

fn restored_scalar(value: &Value, scalar: Scalar, found: &str) -> Option<String> {
    let expected = match scalar {
        Scalar::Text => "string",
        Scalar::Bool => "bool",
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Double => "float64",
        Scalar::Time | Scalar::MicroTime => return value.as_str().and_then(|text| bad_time(text, scalar)),
        Scalar::Bytes => {
            let fault = value.as_str().and_then(bad_base64)?;
            return Some(format!("error decoding from json: {fault}"));
        }
        Scalar::Quantity if matches!(value, Value::String(_) | Value::Number(_)) => return None,
        Scalar::Quantity => return Some(quantity::SYNTAX.to_owned()),
        Scalar::IntOrText => return None,
    };
    match (value, scalar) {
        (Value::String(_), Scalar::Text)
        | (Value::Bool(_), Scalar::Bool)
        | (Value::Number(_), Scalar::Int32 | Scalar::Int64 | Scalar::Double) => None,
        // Go converts an integer to the character with this number, which the decoder excludes.
        (Value::Number(number), Scalar::Text) if !number.is_f64() => {
            Some(format!("cannot convert {found} to {expected}"))
        }
        (Value::Array(_) | Value::Object(_) | Value::String(_) | Value::Bool(_) | Value::Number(_), _) => {
            Some(format!("unrecognized type: {expected}"))
        }
        (Value::Null, _) => None,
    }
}

/// Where a decoder is: the innermost type with the names of its fields, and the path to a value. Keys of maps are not
/// in a path.
struct Position<'a> {
    owner: &'a str,
    path: Vec<&'a str>,
}

impl<'a> Position<'a> {
    fn find(&mut self, value: &'a Value, shape: &'a Shape) -> Option<String> {
        match (value, shape) {
            (Value::Null, _) | (_, Shape::Any | Shape::Either(..) | Shape::Deduced) => None,
            (Value::Array(items), Shape::List { item, .. }) => {
                items.iter().find_map(|value| self.find(value, item))
            }
            (Value::Object(fields), Shape::Map { value: shape, .. }) => {
                fields.values().find_map(|value| self.find(value, shape))
            }
            (Value::Object(fields), Shape::Object { .. } | Shape::Declared(_)) => {
                let outer = self.owner;
                self.owner = shape.object().map_or(outer, |object| object.name);
                for (name, value) in fields {
                    let Some(shape) = shape.field(name) else { continue };
                    self.path.push(name);
                    if let Some(found) = self.find(value, shape) {
                        return Some(found);
                    }
                    self.path.pop();
                }
                self.owner = outer;
                None
            }
            (value, Shape::Scalar(scalar)) => self.scalar(value, *scalar),
            _ => Some(self.wrong(value, shape)),
        }
    }

    fn scalar(&self, value: &Value, scalar: Scalar) -> Option<String> {
        let shape = Shape::Scalar(scalar);
        match (value, scalar) {
            (Value::String(text), Scalar::Time | Scalar::MicroTime) => bad_time(text, scalar),
            (Value::String(text), Scalar::Bytes) => bad_base64(text),
            (Value::Number(number), Scalar::Int32) => {
                let fits = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
                (!fits).then(|| self.mismatch(&format!("number {number}"), "int32"))
            }
            (Value::Number(number), Scalar::Int64) => {
                (!number.is_i64()).then(|| self.mismatch(&format!("number {number}"), "int64"))
            }
            (Value::String(_), Scalar::Text | Scalar::IntOrText)
            | (Value::Bool(_), Scalar::Bool)
            | (Value::Number(_), Scalar::Double | Scalar::IntOrText)
            | (Value::String(_) | Value::Number(_), Scalar::Quantity) => None,
            (_, Scalar::Quantity) => Some(quantity::SYNTAX.to_owned()),
            _ => Some(self.wrong(value, &shape)),
        }
    }

    fn wrong(&self, value: &Value, shape: &Shape) -> String {
        self.mismatch(kind_of(value), &type_name(shape))
    }

    fn mismatch(&self, found: &str, expected: &str) -> String {
        let (owner, path) = (self.owner, self.path.join("."));
        format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {expected}")
    }
}

/// The Go type of a shape. Named types of scalars, such as `v1.Protocol`, are not in the schema.
fn type_name(shape: &Shape) -> String {
    match shape {
        Shape::Scalar(Scalar::Bool) => "bool".to_owned(),
        // What is no string is decoded as a number.
        Shape::Scalar(Scalar::Int32 | Scalar::IntOrText) => "int32".to_owned(),
        Shape::Scalar(Scalar::Int64) => "int64".to_owned(),
        Shape::Scalar(Scalar::Double) => "float64".to_owned(),
        Shape::Scalar(Scalar::Bytes) => "[]uint8".to_owned(),
        Shape::Scalar(Scalar::Text | Scalar::Time | Scalar::MicroTime | Scalar::Quantity) => {
            "string".to_owned()
        }
        Shape::List { item, .. } => format!("[]{}", type_name(item)),
        Shape::Map { value, .. } => format!("map[string]{}", type_name(value)),
        Shape::Object { .. } | Shape::Declared(_) => {
            shape.object().map_or_else(|| "v1.Object".to_owned(), Object::go_name)
        }
        Shape::Any | Shape::Either(..) | Shape::Deduced => "interface {}".to_owned(),
    }
}

/// The message of Go's decoder about a character that is not in its alphabet.
fn bad_base64(text: &str) -> Option<String> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(&byte);
    let at = text.bytes().position(|byte| !known(byte))?;
    Some(format!("illegal base64 data at input byte {at}"))
}

fn bad_time(text: &str, scalar: Scalar) -> Option<String> {
    if text.is_empty() || text.parse::<jiff::Timestamp>().is_ok() {
        return None;
    }
    Some(time::parse_error(text, scalar == Scalar::MicroTime))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema;

    #[test]
    fn wrong_types_are_described_as_go_does() {
        let table = [
            (
                "",
                "ConfigMap",
                json!({ "data": { "a": 1 } }),
                "number into Go struct field ConfigMap.data of type string",
            ),
            (
                "",
                "ConfigMap",
                json!({ "data": ["a"] }),
                "array into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                "",
                "Pod",
                json!({ "spec": { "containers": {} } }),
                "object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                "",
                "Pod",
                json!({ "spec": { "containers": [{ "name": 1 }] } }),
                "number into Go struct field Container.spec.containers.name of type string",
            ),
            (
                "",
                "Secret",
                json!({ "data": { "a": 1 } }),
                "number into Go struct field Secret.data of type []uint8",
            ),
            (
                "apps",
                "Deployment",
                json!({ "spec": { "replicas": 1.5 } }),
                "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
        ];
        for (group, kind, value, expected) in table {
            let found = json(&value, schema::kind_shape(group, kind).unwrap(), kind);
            assert_eq!(found, Some(format!("json: cannot unmarshal {expected}")), "{value}");
        }
        let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c" }] } });
        assert_eq!(json(&pod, schema::kind_shape("", "Pod").unwrap(), "Pod"), None);
    }

    #[test]
    fn patched_objects_have_other_texts() {
        let table = [
            (json!({ "taints": {} }), "cannot restore slice from map"),
            (json!({ "unschedulable": 1 }), "unrecognized type: bool"),
            (json!({ "providerID": 1 }), "cannot convert int64 to string"),
            (json!("x"), "cannot restore struct from: string"),
        ];
        let shape = schema::kind_shape("", "Node").unwrap();
        for (spec, expected) in table {
            let found = restored(&json!({ "spec": spec }), shape);
            assert_eq!(found.as_deref(), Some(expected), "{spec}");
        }
    }
}
