//! What calls to the driver carry, compared with what a scenario says.

use anyhow::Result;
use claimcheck_scenario::{Mismatch, matches, mismatches};
use serde_json::Value;

use crate::load::bytes;

/// Whether a request has this.
pub(super) fn carries(request: &Value, has: &Value) -> bool {
    matches(request, &as_sent(request, has))
}

/// How many requests have this.
pub(super) fn carrying(requests: &[Value], has: &Value) -> Result<u64> {
    Ok(requests.iter().filter(|request| carries(request, has)).count().try_into()?)
}

/// What the most similar of the requests has instead, as the end of a message.
pub(super) fn nearest(requests: &[Value], has: &Value) -> String {
    let mut others: Vec<&Value> = requests.iter().filter(|request| !carries(request, has)).collect();
    others.sort_by_key(|request| mismatches(request, &as_sent(request, has)).len());
    match (others.first(), requests.len()) {
        (Some(request), count) => {
            format!("; of {count} calls the most similar is not as expected:{}", differences(request, has))
        }
        (None, 0) => "; there was no such call for a volume or snapshot of the scenario".to_owned(),
        (None, count) => format!("; all {count} calls are as expected"),
    }
}

/// The fields that a request does not have as expected, a line each.
pub(super) fn differences(request: &Value, has: &Value) -> String {
    let found = mismatches(request, &as_sent(request, has)).into_iter();
    let lines = found.map(|Mismatch { path, expected, seen }| {
        format!("\n  {path}: expected {expected}, last seen {seen}")
    });
    lines.collect()
}

/// What a request must have, as it is sent: a field with its default (false, 0, empty) is absent, and the text of a quantity
/// is a number where the request has one.
fn as_sent(request: &Value, has: &Value) -> Value {
    match (has, request) {
        (Value::Bool(false), _) => Value::Null,
        (Value::Number(number), _) if number.as_f64() == Some(0.0) => Value::Null,
        (Value::String(text), _) if text.is_empty() => Value::Null,
        (Value::String(text), Value::Number(_)) => bytes(text).map_or_else(|| has.clone(), Value::from),
        (Value::Object(fields), _) => {
            let of = |key: &str| request.get(key).unwrap_or(&Value::Null);
            fields.iter().map(|(key, value)| (key.clone(), as_sent(of(key), value))).collect()
        }
        _ => has.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_has_no_field_that_has_its_default() {
        let request =
            json!({ "range": { "required_bytes": 1_048_576 }, "block": {}, "secrets": { "a": "x" } });
        for (has, expected) in [
            (json!({ "range": { "required_bytes": "1Mi" } }), true),
            (json!({ "range": { "required_bytes": "2Mi", "limit_bytes": 0 } }), false),
            (json!({ "range": { "limit_bytes": 0 }, "readonly": false, "path": "", "context": null }), true),
            (json!({ "readonly": true }), false),
            (json!({ "path": "*" }), false),
            (json!({ "block": {}, "secrets": { "a": "*", "b": null } }), true),
            (json!({ "mount": {} }), false),
        ] {
            assert_eq!(carries(&request, &has), expected, "{has}");
        }
    }

    #[test]
    fn the_most_similar_request_is_shown() {
        let has = json!({ "id": "a", "readonly": true });
        let requests = [json!({ "id": "b" }), json!({ "id": "a" }), json!({})];
        let expected =
            "; of 3 calls the most similar is not as expected:\n  readonly: expected true, last seen nothing";
        assert_eq!(nearest(&requests, &has), expected);
        assert_eq!(nearest(&[], &has), "; there was no such call for a volume or snapshot of the scenario");
    }
}
