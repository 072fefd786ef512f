//! The CEL rules of schemas (`x-kubernetes-validations`).
//!
//! There is no evaluator of CEL here. One rule is evaluated, since it is simple and the most common: `self ==
//! oldSelf`, with which a field is immutable. For the others a definition is accepted with a warning, so that it
//! is known that they have no effect.

use serde_json::Value;

use super::is_built_in;
use super::schema::{ListType, Schema, list};
use crate::status::FieldError;

/// The evaluated rule, without spaces.
const IMMUTABLE: &str = "self==oldSelf";

/// Whether the rule is evaluated.
fn is_evaluated(rule: &str) -> bool {
    rule.split_whitespace().collect::<String>() == IMMUTABLE
}

/// The errors of a change.
pub fn check(old: &Value, new: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_at(old, new, schema, "", &mut errors);
    errors
}

fn check_at(old: &Value, new: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    if old == new {
        return;
    }
    for rule in schema.rules.iter().filter(|rule| is_evaluated(&rule.rule)) {
        let message = match rule.message.is_empty() {
            true => format!("failed rule: {}", rule.rule.trim()),
            false => rule.message.clone(),
        };
        let field = format!("{path}{}", rule.field);
        // Upstream names the type of a value that has parts.
        let shown = match new {
            Value::Object(_) => Value::from("object"),
            Value::Array(_) => Value::from("array"),
            scalar => scalar.clone(),
        };
        errors.push(FieldError::invalid(field.trim_start_matches('.'), &shown, message));
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in new {
                // A rule about the old value is for fields that have one.
                if let (Some(before), Some(below)) = (old.get(name), schema.field(name)) {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    check_at(before, value, below, &path, errors);
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            // As upstream, only the items of a map have an identity over changes.
            let (ListType::Map(keys), Some(below)) = (&schema.list, &schema.items) else { return };
            for (index, item) in new.iter().enumerate() {
                let same = |other: &&Value| keys.iter().all(|key| other[key] == item[key]);
                if let Some(before) = old.iter().find(same) {
                    check_at(before, item, below, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

/// A warning for each version of a definition with rules that are not evaluated.
pub fn warnings(definition: &Value) -> Vec<String> {
    // The rules of built-in kinds are part of their admission.
    if is_built_in(definition["metadata"]["name"].as_str().unwrap_or_default()) {
        return Vec::new();
    }
    let versions = list(&definition["spec"]["versions"]).iter().enumerate();
    versions
        .filter_map(|(index, version)| {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            let mut fields = Vec::new();
            find(&version["schema"]["openAPIV3Schema"], &field, &mut fields);
            let first = fields.first()?;
            Some(format!(
                "{} x-kubernetes-validations are stored and not evaluated, the first at {first}: this server \
                 has no CEL, use a stock kube-apiserver to test them",
                fields.len()
            ))
        })
        .collect()
}

/// The paths of the rules in `schema` that are not evaluated.
fn find(schema: &Value, path: &str, fields: &mut Vec<String>) {
    for rule in list(&schema["x-kubernetes-validations"]) {
        if !is_evaluated(rule["rule"].as_str().unwrap_or_default()) {
            fields.push(format!("{path}.x-kubernetes-validations"));
        }
    }
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        find(below, &format!("{path}.properties[{name}]"), fields);
    }
    for name in ["items", "additionalProperties"] {
        if schema[name].is_object() {
            find(&schema[name], &format!("{path}.{name}"), fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_immutability_is_evaluated() {
        let schema = json!({ "type": "object", "properties": {
            "a": { "type": "string", "x-kubernetes-validations": [
                { "rule": "self  == oldSelf", "message": "a is immutable" }] },
            "list": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": { "type": "object", "properties": { "k": { "type": "string" }, "v": {
                    "type": "integer", "x-kubernetes-validations": [{ "rule": "self == oldSelf" }] } } },
            },
            "b": { "type": "string", "x-kubernetes-validations": [{ "rule": "self.size() > 1" }] },
        } });
        let definition = json!({ "spec": { "versions": [{ "schema": { "openAPIV3Schema": schema } }] } });
        let warnings = warnings(&definition);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].starts_with("1 x-kubernetes-validations") && warnings[0].contains("properties[b]"),
            "{warnings:?}"
        );
        let schema = Schema::read(&schema);
        let texts = |old: Value, new: Value| -> Vec<String> {
            check(&old, &new, &schema).iter().map(ToString::to_string).collect()
        };
        assert_eq!(texts(json!({}), json!({ "a": "x" })), Vec::<String>::new());
        assert_eq!(
            texts(json!({ "a": "x" }), json!({ "a": "y" })),
            ["a: Invalid value: \"y\": a is immutable"]
        );
        let items = |v: u8| json!({ "list": [{ "k": "other", "v": 9 }, { "k": "i", "v": v }] });
        assert_eq!(
            texts(json!({ "list": [{ "k": "i", "v": 1 }] }), items(2)),
            ["list[1].v: Invalid value: 2: failed rule: self == oldSelf"]
        );
        assert_eq!(texts(items(1), items(1)), Vec::<String>::new());
    }
}
