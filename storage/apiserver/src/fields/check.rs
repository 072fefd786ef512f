//! Whether an applied object conforms to its kind's schema.
//!
//! Mirrors structured-merge-diff typed/validate.go, including its wording, since kubectl shows it.

use serde_json::Value;

use super::set::Step;
use super::values::step_to;
use crate::schema::{Identity, Scalar, Shape};

/// The faults of `value`, one line each; empty if it is valid.
pub fn check(value: &Value, shape: &Shape) -> Vec<String> {
    let mut faults = Vec::new();
    check_at(value, shape, "", &mut faults);
    faults
}

fn check_at(value: &Value, shape: &Shape, path: &str, faults: &mut Vec<String>) {
    let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
    match (shape, value) {
        (Shape::Any | Shape::Either(..) | Shape::Deduced, _) | (_, Value::Null) => {}
        (Shape::Scalar(scalar), value) => {
            if let Some(expected) = misfit(*scalar, value) {
                let got = format!("&value.valueUnstructured{{Value:{value}}}");
                faults.push(format!("{place}expected {expected}, got {got}"));
            }
        }
        (Shape::List { item, identity }, Value::Array(items)) => {
            check_items(items, item, identity, path, faults);
        }
        (Shape::List { .. }, value) => faults.push(format!("{place}expected list, got &{{{value}}}")),
        (Shape::Map { .. } | Shape::Object { .. } | Shape::Declared(_), Value::Object(fields)) => {
            for (name, value) in fields {
                let path = format!("{path}{}", Step::field(name));
                match shape.field(name) {
                    Some(shape) => check_at(value, shape, &path, faults),
                    None => faults.push(format!("{path}: field not declared in schema")),
                }
            }
        }
        (Shape::Map { .. } | Shape::Object { .. } | Shape::Declared(_), value) => {
            faults.push(format!("{place}expected map, got &{{{value}}}"));
        }
    }
}

fn check_items(items: &[Value], shape: &Shape, identity: &Identity, path: &str, faults: &mut Vec<String>) {
    let mut seen = Vec::new();
    for (index, item) in items.iter().enumerate() {
        if let Identity::Keys(keys) = identity {
            let missing = keys.iter().find(|key| item[**key].is_null() && !has_default(shape, key));
            if let Some(key) = missing {
                faults.push(format!(
                    "{path}: element {index}: associative list with keys has an element that omits key \
                     field \"{key}\" (and doesn't have default value)"
                ));
                continue;
            }
        }
        let step = match identity {
            Identity::Atomic => Step::Index(index.to_string()),
            Identity::Value | Identity::Keys(_) => step_to(item, shape, identity),
        };
        check_at(item, shape, &format!("{path}{step}"), faults);
        if seen.contains(&step) {
            faults.push(format!("{path}: duplicate entries for key {step}"));
        }
        seen.push(step);
    }
}

fn has_default(shape: &Shape, key: &str) -> bool {
    let field = shape.object().and_then(|object| object.fields.get(key));
    field.is_some_and(|field| field.default.is_some())
}

/// The expected type, if `value` has another.
fn misfit(scalar: Scalar, value: &Value) -> Option<&'static str> {
    match scalar {
        Scalar::Text | Scalar::Bytes | Scalar::Time | Scalar::MicroTime => {
            (!value.is_string()).then_some("string")
        }
        Scalar::Bool => (!value.is_boolean()).then_some("boolean"),
        Scalar::Int32 | Scalar::Int64 | Scalar::Double => {
            (!value.is_number()).then_some("numeric (int or float)")
        }
        Scalar::Quantity | Scalar::IntOrText => {
            (!value.is_string() && !value.is_number()).then_some("string or number")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::kind_shape;

    #[test]
    fn faults_are_named_with_their_place() {
        let shape = kind_shape("", "Pod").unwrap();
        let table = [
            (json!({"spec": {"containers": [{"name": "a", "image": "x"}]}}), ""),
            (json!({"spec": {"nope": 1}}), ".spec.nope: field not declared in schema"),
            (json!({"spec": []}), ".spec: expected map, got &{[]}"),
            (json!({"spec": {"containers": {}}}), ".spec.containers: expected list, got &{{}}"),
            (
                json!({"spec": {"containers": [{"name": "a", "image": 1}]}}),
                ".spec.containers[name=\"a\"].image: expected string, got &value.valueUnstructured{Value:1}",
            ),
            (
                json!({"spec": {"containers": [{"image": "x"}]}}),
                ".spec.containers: element 0: associative list with keys has an element that omits key \
                 field \"name\" (and doesn't have default value)",
            ),
            (
                json!({"spec": {"volumes": [{"name": "a"}, {"name": "a"}]}}),
                ".spec.volumes: duplicate entries for key [name=\"a\"]",
            ),
            (json!({"metadata": {"labels": {"a": null}}, "spec": null}), ""),
            // A protocol that is left out is TCP.
            (json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1}]}]}}), ""),
        ];
        for (value, expected) in table {
            assert_eq!(check(&value, shape).join("\n"), expected, "{value}");
        }
    }
}
