//! Validates a value by a schema.
//!
//! Mirrors kube-openapi pkg/validation/validate with the error texts of pkg/validation/errors, and their
//! conversion in pkg/apiserver/validation/validation.go.

use serde_json::{Number, Value};

use super::format;
use super::rules::Correlated;
use super::schema::{Additional, Limits, ListType, Schema};
use crate::status::FieldError;

/// The field of errors without one: Go prints the missing path so.
const NO_FIELD: &str = "<nil>";

/// The errors of an object, of which the values that are the same in `old` may be invalid. Its kind and metadata are
/// validated elsewhere.
pub fn validate(object: &Value, old: Option<&Value>, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_value(object, old, schema, "", &mut errors);
    errors.extend(check_identities(object, old, schema));
    errors
}

/// As [`validate`], of the part of an object at `path`. As upstream, the texts of errors begin with the part
/// (`ValidateCustomResource`).
pub fn validate_part(value: &Value, old: Option<&Value>, schema: &Schema, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check(value, old, schema, "", &mut errors);
    errors.extend(check_identities(value, old, schema));
    errors.into_iter().map(|error| error.below(path)).collect()
}

fn check_identities(value: &Value, old: Option<&Value>, schema: &Schema) -> Vec<FieldError> {
    let errors = |value: &Value| {
        let mut errors = Vec::new();
        check_lists(value, schema, "", &mut errors);
        errors
    };
    let mut found = errors(value);
    if let Some(old) = old.filter(|_| !found.is_empty()) {
        let before = errors(old);
        found.retain(|error| !before.contains(error));
    }
    found
}

/// A value that was the same before may be invalid (KEP-4008).
///
/// Mirrors `ratchetingValueValidator` in apiextensions-apiserver pkg/apiserver/validation/ratcheting.go.
fn check(value: &Value, old: Option<&Value>, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    if old != Some(value) {
        check_value(value, old, schema, path, errors);
    }
}

fn check_value(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    check_type(value, schema, path, errors);
    if !value.is_null() {
        check_alternatives(value, old, schema, path, errors);
    }
    match value {
        Value::String(text) => check_text(text, schema, path, errors),
        Value::Number(number) => check_number(number, schema, path, errors),
        Value::Array(items) => check_items(items, old, schema, path, errors),
        Value::Null | Value::Bool(_) | Value::Object(_) => {}
    }
    if let Some(values) = &schema.values
        && !values.contains(value)
        && !(value.is_null() && schema.nullable)
    {
        let quoted: Vec<String> = values.iter().map(quote).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        errors.push(FieldError::unsupported(path, value, detail));
    }
    if let Value::Object(_) = value {
        check_fields(value, old, schema, path, errors);
    }
}

fn quote(value: &Value) -> String {
    value.as_str().map_or_else(|| format!("{:?}", value.to_string()), |text| format!("{text:?}"))
}

/// The type's name in messages.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if is_whole(number) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn check_type(value: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let expected: &str = if schema.int_or_string { "integer,string" } else { &schema.kind };
    if expected.is_empty() || (value.is_null() && schema.nullable) {
        return;
    }
    let found = type_of(value);
    let fits = expected.split(',').any(|name| name == found || (name == "number" && found == "integer"));
    if !fits {
        let message = format!("{path} in body must be of type {expected}: \"{found}\"");
        errors.push(FieldError::type_invalid(path, &found.into(), message));
    }
}

fn check_text(text: &str, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count();
    // The first of these that fails is the only one that is reported (`stringValidator.Validate`).
    if let Some(max) = schema.length.max.filter(|max| length > *max) {
        errors.push(FieldError::too_long(path, max));
    } else if let Some(min) = schema.length.min.filter(|min| length < *min) {
        let message = format!("{path} in body should be at least {min} chars long");
        errors.push(FieldError::invalid(path, &text.into(), message));
    } else if let Some(pattern) = schema.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        let message = format!("{path} in body should match '{pattern}'");
        errors.push(FieldError::invalid(path, &text.into(), message));
    }
    if format::is_known(&schema.kind, &schema.format) && !format::is_valid(&schema.format, text) {
        let message = format!("{path} in body must be of type {}: {text:?}", schema.format);
        errors.push(FieldError::type_invalid(path, &text.into(), message));
    }
}

/// A bound in messages: Go prints whole numbers without a fraction.
fn shown(bound: &Number) -> String {
    match bound.as_f64() {
        Some(number) if number.fract() == 0.0 && number.abs() < 1e15 => format!("{number:.0}"),
        _ => bound.to_string(),
    }
}

fn check_number(number: &Number, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let value = number.as_f64().unwrap_or_default();
    let given = Value::Number(number.clone());
    if !format::is_in_range(&schema.kind, &schema.format, &given) {
        let with = match format::is_known(&schema.kind, &schema.format) {
            true => format!("with format {}", schema.format),
            false => "(default format)".to_owned(),
        };
        let message = format!("Checked value must be of type {} {with} in {path}", schema.kind);
        errors.push(FieldError::invalid(NO_FIELD, &"".into(), message));
    }
    let mut fault = |message: String| {
        let message = format!("{path} in body should be {message}");
        errors.push(FieldError::invalid(path, &given, message));
    };
    if let Some((bound, excluded)) = &schema.minimum {
        let limit = bound.as_f64().unwrap_or_default();
        match excluded {
            true if value <= limit => fault(format!("greater than {}", shown(bound))),
            false if value < limit => fault(format!("greater than or equal to {}", shown(bound))),
            _ => {}
        }
    }
    if let Some((bound, excluded)) = &schema.maximum {
        let limit = bound.as_f64().unwrap_or_default();
        match excluded {
            true if value >= limit => fault(format!("less than {}", shown(bound))),
            false if value > limit => fault(format!("less than or equal to {}", shown(bound))),
            _ => {}
        }
    }
    if let Some(factor) = &schema.multiple_of {
        let ratio = value / factor.as_f64().unwrap_or(1.0);
        if (ratio - ratio.round()).abs() > 1e-9 {
            fault(format!("a multiple of {}", shown(factor)));
        }
    }
}

fn check_items(
    items: &[Value],
    old: Option<&Value>,
    schema: &Schema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if let Some(below) = &schema.items {
        let before = Correlated::new(schema, old);
        for (index, item) in items.iter().enumerate() {
            check(item, before.find(item), below, &format!("{path}[{index}]"), errors);
        }
    }
    let Limits { min, max } = schema.count;
    if let Some(min) = min.filter(|min| items.len() < *min) {
        let message = format!("{path} in body should have at least {min} items");
        errors.push(FieldError::invalid(path, &items.len().into(), message));
    }
    if let Some(max) = max.filter(|max| items.len() > *max) {
        errors.push(FieldError::too_many(path, items.len(), max));
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn check_fields(
    object: &Value,
    old: Option<&Value>,
    schema: &Schema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(fields) = object.as_object() else { return };
    let Limits { min, max } = schema.fields;
    if let Some(min) = min.filter(|min| fields.len() < *min) {
        let message = format!("{path} in body should have at least {min} properties");
        errors.push(FieldError::invalid(path, &fields.len().into(), message));
    }
    if let Some(max) = max.filter(|max| fields.len() > *max) {
        errors.push(FieldError::too_many(path, fields.len(), max));
    }
    for name in &schema.required {
        // Objects have no kind in the store, but always in the body of a request.
        let implied = path.is_empty() && matches!(name.as_str(), "kind" | "apiVersion");
        if !implied && !fields.contains_key(name) {
            errors.push(FieldError::required(below(path, name), ""));
        }
    }
    for (name, value) in fields {
        let old = old.and_then(|old| old.get(name));
        match (schema.properties.get(name), &schema.additional) {
            (Some(schema), _) => check(value, old, schema, &below(path, name), errors),
            (None, Additional::Schema(schema)) => check(value, old, schema, &below(path, name), errors),
            (None, Additional::None | Additional::Any) => {}
        }
    }
}

/// `anyOf`, `oneOf`, `allOf` and `not`.
fn check_alternatives(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let attempt = |schema: &Schema| {
        let mut errors = Vec::new();
        check_value(value, old, schema, path, &mut errors);
        errors
    };
    let fault = |text: String| FieldError::invalid(NO_FIELD, &"".into(), text);
    // As upstream, of several failures the one that fails least is reported; the first of equals.
    let best = |failures: Vec<Vec<FieldError>>| failures.into_iter().min_by_key(Vec::len).unwrap_or_default();
    if !schema.any_of.is_empty() {
        let results: Vec<_> = schema.any_of.iter().map(attempt).collect();
        if results.iter().all(|errors| !errors.is_empty()) {
            errors.push(fault(format!("\"{path}\" must validate at least one schema (anyOf)")));
            errors.extend(best(results));
        }
    }
    if !schema.one_of.is_empty() {
        let results: Vec<_> = schema.one_of.iter().map(attempt).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        let found = match valid {
            1 => None,
            0 => Some("Found none valid".to_owned()),
            valid => Some(format!("Found {valid} valid alternatives")),
        };
        if let Some(found) = found {
            let text = format!("\"{path}\" must validate one and only one schema (oneOf). {found}");
            errors.push(fault(text));
            if valid == 0 {
                errors.extend(best(results));
            }
        }
    }
    if !schema.all_of.is_empty() {
        let results: Vec<_> = schema.all_of.iter().map(attempt).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        let all = results.len();
        errors.extend(results.into_iter().flatten());
        if valid < all {
            let none = if valid == 0 { ". None validated" } else { "" };
            errors.push(fault(format!("\"{path}\" must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &schema.not
        && attempt(not).is_empty()
    {
        errors.push(fault(format!("\"{path}\" must not validate the schema (not)")));
    }
}

/// Duplicates in lists that are sets or maps, and the identity of embedded objects.
///
/// Mirrors pkg/apiserver/schema/listtype/validation.go and objectmeta/validation.go.
fn check_lists(value: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(items) => {
            let identity = |item: &Value| match &schema.list {
                ListType::Atomic => None,
                ListType::Set => Some(item.clone()),
                ListType::Map(keys) => {
                    Some(keys.iter().map(|key| (key.clone(), item[key].clone())).collect())
                }
            };
            let mut found: Vec<Value> = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let Some(identity) = identity(item) else { break };
                if found.contains(&identity) {
                    errors.push(FieldError::duplicate(format!("{path}[{index}]"), &identity));
                } else {
                    found.push(identity);
                }
            }
            if let Some(below) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    check_lists(item, below, &format!("{path}[{index}]"), errors);
                }
            }
        }
        Value::Object(fields) => {
            if schema.embedded {
                for name in ["apiVersion", "kind"] {
                    match fields.get(name) {
                        None => errors.push(FieldError::required(below(path, name), "")),
                        Some(Value::String(text)) if !text.is_empty() => {}
                        Some(value @ Value::String(_)) => {
                            errors.push(FieldError::invalid(below(path, name), value, "must not be empty"));
                        }
                        Some(value) => {
                            errors.push(FieldError::invalid(below(path, name), value, "must be a string"));
                        }
                    }
                }
            }
            for (name, value) in fields {
                if let Some(schema) = schema.field(name) {
                    check_lists(value, schema, &below(path, name), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
