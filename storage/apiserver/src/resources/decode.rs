//! Decodes bodies with the types of k8s-openapi: unknown fields are pruned and reported, wrong types rejected.
//!
//! The wording of errors is that of Go's decoder, since clients and their tests match on it.

use std::any::type_name;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Resource, mismatch};
use crate::quantity::{self, Quantity};
use crate::schema::{self, Other, Scalar, Shape};

/// A decoded body.
#[derive(Debug)]
pub struct Decoded {
    /// The object, without kind, `apiVersion` and unknown fields.
    pub value: Value,
    /// Messages about the dropped fields.
    pub faults: Vec<String>,
}

/// Why a body cannot be decoded, in Go's words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(String);

/// Decodes `value` as a `T`.
pub fn decode<T: DeserializeOwned + Serialize>(
    resource: &Resource,
    value: Value,
) -> Result<Decoded, DecodeError> {
    let mut value = value;
    if let Value::Object(fields) = &mut value {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    let shape = schema::of_kind(resource.group, resource.kind).filter(|_| resource.custom.is_none());
    read_quantities(resource, &mut value)?;
    if let Some(shape) = shape {
        set_nulls(&mut value, shape);
    }
    let typed = T::deserialize(&value).map_err(|_| {
        let found = shape.and_then(|shape| mismatch::json(&value, shape, resource.kind));
        found.map_or_else(|| describe::<T>(resource, &value), DecodeError)
    })?;
    let mut known = serde_json::to_value(typed).map_err(|error| DecodeError(error.to_string()))?;
    if let Value::Object(fields) = &mut known {
        fields.shift_remove("kind");
        fields.shift_remove("apiVersion");
    }
    let mut faults = Vec::new();
    find_unknown(&value, &known, shape, "", &mut faults);
    if tidy(&mut known)
        && let Some(shape) = shape
    {
        drop_zeros(&mut known, shape);
    }
    if known["metadata"].is_null() {
        known["metadata"] = Value::Object(Map::new());
    }
    Ok(Decoded { value: known, faults })
}

/// Go reads null as the zero value of an item or of a value in a map.
fn set_nulls(value: &mut Value, shape: &Shape) {
    let set = |value: &mut Value, shape: &Shape| match (value.is_null(), shape) {
        (true, Shape::Scalar(Scalar::Text)) => *value = "".into(),
        _ => set_nulls(value, shape),
    };
    match (value, shape) {
        (Value::Array(items), Shape::List { item, .. }) => {
            items.iter_mut().for_each(|value| set(value, item))
        }
        (Value::Object(fields), Shape::Map { value: shape, .. }) => {
            fields.values_mut().for_each(|value| set(value, shape));
        }
        (Value::Object(fields), _) => {
            for (name, value) in fields {
                if let Some(shape) = shape.field(name) {
                    set_nulls(value, shape);
                }
            }
        }
        _ => {}
    }
}

/// Fields of `given` that are not in `known`. Those that are null are not there either way: the schema has their names.
fn find_unknown(given: &Value, known: &Value, shape: Option<&Shape>, path: &str, faults: &mut Vec<String>) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (name, value) in given {
                let below = shape.and_then(|shape| shape.field(name));
                let is_unknown = shape.is_some_and(|shape| shape.object().is_some()) && below.is_none();
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.get(name) {
                    Some(known) => find_unknown(value, known, below, &path, faults),
                    None if value.is_null() && !is_unknown => {}
                    None => faults.push(format!("unknown field \"{path}\"")),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            let item = match shape {
                Some(Shape::List { item, .. }) => Some(&**item),
                _ => None,
            };
            for (index, (given, known)) in given.iter().zip(known).enumerate() {
                find_unknown(given, known, item, &format!("{path}[{index}]"), faults);
            }
        }
        _ => {}
    }
}

/// Drops the fields that Go's `omitempty` drops: empty lists, and the maps of metadata when they are empty. Returns whether
/// there may be zero values, which [`drop_zeros`] drops.
fn tidy(value: &mut Value) -> bool {
    let mut zeros = false;
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                zeros |= tidy(value);
                match value {
                    // An empty list of these is a request to remove all owners.
                    Value::Array(items) => !items.is_empty() || name == "managedFields",
                    Value::Object(fields) => {
                        !fields.is_empty()
                            || !matches!(name.as_str(), "labels" | "annotations" | "requests" | "limits")
                    }
                    Value::Null => false,
                    Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                        zeros |= is_zero(value);
                        true
                    }
                }
            });
        }
        Value::Array(items) => items.iter_mut().for_each(|item| zeros |= tidy(item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    zeros
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

/// Drops the zero values that Go does not write: those of fields without a pointer, with `omitempty`.
pub(super) fn drop_zeros(value: &mut Value, shape: &Shape) {
    match (value, shape) {
        (Value::Object(fields), Shape::Map { value: shape, .. }) => {
            fields.values_mut().for_each(|value| drop_zeros(value, shape));
        }
        (Value::Array(items), Shape::List { item, .. }) => {
            items.iter_mut().for_each(|value| drop_zeros(value, item));
        }
        (Value::Array(items), Shape::Either(object, Other::Objects)) => {
            items.iter_mut().for_each(|value| drop_zeros(value, object));
        }
        (value @ Value::Object(_), Shape::Either(object, _)) => drop_zeros(value, object),
        (Value::Object(fields), _) => {
            let Some(object) = shape.object() else { return };
            fields.retain(|name, value| {
                let Some(field) = object.fields.get(name.as_str()) else { return true };
                if is_zero(value) {
                    return !field.number.is_some_and(|number| number.zero_is_unset);
                }
                drop_zeros(value, &field.shape);
                true
            });
        }
        _ => {}
    }
}

/// Canonicalizes the quantities of `value`.
fn read_quantities(resource: &Resource, value: &mut Value) -> Result<(), DecodeError> {
    for pattern in resource.quantities {
        visit(value, pattern, &mut |quantity| {
            let text = match &*quantity {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return Ok(()),
            };
            let parsed: Quantity = text.parse().map_err(|_| DecodeError(quantity::SYNTAX.to_owned()))?;
            *quantity = parsed.to_string().into();
            Ok(())
        })?;
    }
    Ok(())
}

fn visit(
    value: &mut Value,
    pattern: &str,
    act: &mut impl FnMut(&mut Value) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let (head, rest) = pattern.split_once('/').unwrap_or((pattern, ""));
    let step = |child: &mut Value| if rest.is_empty() { act(child) } else { visit(child, rest, act) };
    match (head, value) {
        ("*", Value::Object(fields)) => fields.values_mut().try_for_each(step),
        ("*", Value::Array(items)) => items.iter_mut().try_for_each(step),
        (name, Value::Object(fields)) => fields.get_mut(name).map_or(Ok(()), step),
        _ => Ok(()),
    }
}

/// The position at which `value` is not a `T`. Parsing its text again gives the position of the fault, which
/// serde does not return for a value; only invalid requests pay the cost.
fn describe<T: DeserializeOwned>(resource: &Resource, value: &Value) -> DecodeError {
    let text = value.to_string();
    let Err(error) = serde_json::from_str::<T>(&text) else {
        return DecodeError(format!("cannot be read as {}", type_name::<T>()));
    };
    let fault = error.to_string();
    let fault = fault.split(" at line ").next().unwrap_or_default();
    let Some((found, expected)) =
        fault.strip_prefix("invalid type: ").and_then(|f| f.split_once(", expected "))
    else {
        return DecodeError(fault.to_owned());
    };
    let found = match found.split([' ', '`']).next().unwrap_or_default() {
        "boolean" => "bool",
        "integer" | "floating" => "number",
        "sequence" => "array",
        "map" => "object",
        other => other,
    };
    let expected = match expected {
        "a string" => "string".to_owned(),
        "a boolean" => "bool".to_owned(),
        "i32" => "int32".to_owned(),
        "i64" => "int64".to_owned(),
        "a sequence" => "[]".to_owned(),
        "a map" => "map[string]".to_owned(),
        "struct ObjectMeta" | "ObjectMeta" => "v1.ObjectMeta".to_owned(),
        other => format!("{}.{}", resource.version, other.trim_start_matches("struct ")),
    };
    let path = path_at(&text, error.column());
    let owner = match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | [_] => resource.kind.to_owned(),
        ["metadata", ..] => "ObjectMeta".to_owned(),
        ["spec", ..] => format!("{}Spec", resource.kind),
        ["status", ..] => format!("{}Status", resource.kind),
        _ => resource.kind.to_owned(),
    };
    let field = path.join(".");
    DecodeError(format!(
        "json: cannot unmarshal {found} into Go struct field {owner}.{field} of type {expected}"
    ))
}

/// The names of the fields that enclose the byte before `column` (from 1) of the compact JSON `text`.
fn path_at(text: &str, column: usize) -> Vec<String> {
    let mut path: Vec<Option<String>> = Vec::new();
    let mut bytes = text.bytes().enumerate().take(column);
    let mut last_string = String::new();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => {
                let mut escaped = false;
                let end = bytes.find(|(_, byte)| {
                    let closes = *byte == b'"' && !escaped;
                    escaped = *byte == b'\\' && !escaped;
                    closes
                });
                let end = end.map_or(column, |(end, _)| end);
                last_string = text.get(at + 1..end).unwrap_or_default().to_owned();
            }
            b'{' | b'[' => path.push(None),
            // The error of a whole object or list is placed at its end: keep what encloses it.
            b'}' | b']' if at + 1 < column => drop(path.pop()),
            b':' => {
                if let Some(field) = path.last_mut() {
                    *field = Some(std::mem::take(&mut last_string));
                }
            }
            _ => {}
        }
    }
    path.into_iter().flatten().collect()
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
    fn wrong_types_are_described_as_go_does() {
        let table = [
            (
                json!({ "spec": "x" }),
                "string into Go struct field PersistentVolumeClaim.spec of type v1.PersistentVolumeClaimSpec",
            ),
            (
                json!({ "metadata": { "name": true } }),
                "bool into Go struct field ObjectMeta.metadata.name of type string",
            ),
            (
                json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "volumeName": 1 } }),
                "number into Go struct field PersistentVolumeClaimSpec.spec.volumeName of type string",
            ),
        ];
        for (body, expected) in table {
            assert_eq!(claim(body).unwrap_err().to_string(), format!("json: cannot unmarshal {expected}"));
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
        assert!(claim(body).unwrap_err().to_string().starts_with("quantities must match"));
    }
}
