//! Families: one row with `each`, a table of which each line makes a row. Pure.
//!
//! ```yaml
//! - name: "{call}-without-{field}"
//!   rules: [{on: "{call}", when: {request: {"{field}": absent}}, then: [pretend: {}]}]
//!   each:
//!     - {call: DeleteVolume, field: volume_id}
//! ```
//!
//! A key of a line is a placeholder, or a field of the row if no `{key}` is in it. A text that is nothing but a placeholder
//! becomes the value as it is, which may be a list or a map.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

/// The rows of a family; of any other row, itself.
///
/// # Errors
/// The table is malformed, or lacks a value.
pub(crate) fn members(mut row: Value) -> Result<Vec<Value>> {
    let Some(each) = row.as_object_mut().and_then(|row| row.remove("each")) else { return Ok(vec![row]) };
    let lines = each.as_array().filter(|lines| !lines.is_empty()).context("each: it is no list of maps")?;
    let member = |(nth, line): (usize, &Value)| {
        let line = line.as_object().with_context(|| format!("each, line {}: it is no map", nth + 1))?;
        member(&row, line).with_context(|| format!("each, line {}", nth + 1))
    };
    lines.iter().enumerate().map(member).collect()
}

fn member(row: &Value, line: &Map<String, Value>) -> Result<Value> {
    let mut row = row.clone();
    let own = |key: &&String| !has(&row, &format!("{{{key}}}"));
    let fields: Vec<String> = line.keys().filter(own).cloned().collect();
    for field in fields {
        row[&field] = line[&field].clone();
    }
    let mut missing = BTreeSet::new();
    let made = filled(&row, line, &mut missing);
    ensure!(missing.is_empty(), "there is no value of {missing:?}");
    Ok(made)
}

/// Whether a text is in a value.
fn has(value: &Value, text: &str) -> bool {
    match value {
        Value::String(it) => it.contains(text),
        Value::Array(entries) => entries.iter().any(|entry| has(entry, text)),
        Value::Object(fields) => fields.iter().any(|(key, field)| key.contains(text) || has(field, text)),
        _ => false,
    }
}

/// The value with all placeholders replaced; those without a value are added to `missing`.
fn filled(value: &Value, line: &Map<String, Value>, missing: &mut BTreeSet<String>) -> Value {
    match value {
        Value::String(text) => {
            let whole = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
            match whole.and_then(|key| line.get(key)) {
                Some(value) => value.clone(),
                None => Value::String(replaced(text, line, missing)),
            }
        }
        Value::Array(entries) => entries.iter().map(|entry| filled(entry, line, missing)).collect(),
        Value::Object(fields) => {
            let mut made = Map::new();
            for (key, field) in fields {
                made.insert(replaced(key, line, missing), filled(field, line, missing));
            }
            Value::Object(made)
        }
        other => other.clone(),
    }
}

/// A text with its placeholders replaced.
fn replaced(text: &str, line: &Map<String, Value>, missing: &mut BTreeSet<String>) -> String {
    let mut parts = text.split('{');
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let placeholder = part.split_once('}').filter(|(key, _)| is_key(key));
        match placeholder.map(|(key, rest)| (key, line.get(key), rest)) {
            Some((_, Some(Value::String(value)), rest)) => made.extend([value, rest]),
            Some((_, Some(value), rest)) => made.extend([&value.to_string(), rest]),
            Some((key, None, _)) => drop(missing.insert(key.to_owned())),
            None => made.extend(["{", part]),
        }
    }
    made
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_line_makes_a_row() {
        let row = json!({
            "name": "{call}-without-{field}",
            "rules": [{"on": "{call}", "when": {"request": {"{field}": "{is}"}}, "then": [{"pretend": {}}]}],
            "message": "returned {}",
            "each": [
                {"call": "DeleteVolume", "field": "volume_id", "is": "absent"},
                {"call": "CreateVolume", "field": "name", "is": {"less": 1}, "message": "{call}: OK", "warns": true},
            ],
        });
        let rule = |call: &str, field: &str, is: Value| json!([{"on": call, "when": {"request": {field: is}}, "then": [{"pretend": {}}]}]);
        let one = json!({
            "name": "DeleteVolume-without-volume_id", "message": "returned {}",
            "rules": rule("DeleteVolume", "volume_id", json!("absent")),
        });
        let other = json!({
            "name": "CreateVolume-without-name", "message": "CreateVolume: OK", "warns": true,
            "rules": rule("CreateVolume", "name", json!({"less": 1})),
        });
        assert_eq!(members(row).unwrap(), [one, other]);
        let plain = json!({"name": "plain", "message": "{kept}"});
        assert_eq!(members(plain.clone()).unwrap(), [plain]);
    }

    #[test]
    fn errors_name_the_line_and_what_is_wrong() {
        let error = |each: Value| {
            let row = json!({"name": "{call}-x", "does": "{what}.", "each": each});
            format!("{:#}", members(row).unwrap_err())
        };
        assert_eq!(error(json!([])), "each: it is no list of maps");
        assert_eq!(error(json!(["a"])), "each, line 1: it is no map");
        let lines = json!([{"call": "a", "what": "b"}, {"call": "a"}]);
        assert_eq!(error(lines), "each, line 2: there is no value of {\"what\"}");
    }
}
