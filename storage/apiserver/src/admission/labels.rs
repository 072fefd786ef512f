//! Labels and selectors of labels inside of specs: their validation, and which labels a selector matches.
//!
//! Mirrors `IsQualifiedName` and `IsValidLabelValue` of apimachinery pkg/util/validation, `ValidateLabelSelector` of
//! apimachinery pkg/apis/meta/v1/validation, and `LabelSelectorAsSelector` of apimachinery pkg/apis/meta/v1.

use serde_json::Value;

use crate::names;
use crate::status::FieldError;

/// Maximum number of bytes of a label's value, and of the part of its key after the prefix.
const LIMIT: usize = 63;
const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
    for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Why `key` is not the key of a label.
pub fn key_faults(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let mut faults = Vec::new();
    let name = match parts[..] {
        [name] => name,
        ["", name] => {
            faults.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            faults.extend(names::fault(prefix, false).map(|fault| format!("prefix part {fault}")));
            name
        }
        _ => {
            let prefixed = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {KEY} {prefixed}")];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > LIMIT {
        faults.push(format!("name part must be no more than {LIMIT} bytes"));
    }
    if !is_word(name) {
        faults.push(format!("name part {KEY}"));
    }
    faults
}

/// Why `value` is not the value of a label.
pub fn value_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > LIMIT {
        faults.push(format!("must be no more than {LIMIT} bytes"));
    }
    if !value.is_empty() && !is_word(value) {
        faults.push(VALUE.to_owned());
    }
    faults
}

/// Alphanumeric characters at both ends, and also `-`, `_` and `.` between them.
fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    text.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'_' | b'.'))
        && text.bytes().next().is_some_and(plain)
        && text.bytes().last().is_some_and(plain)
}

/// Validates one key at `path`.
pub fn check_key(path: &str, key: &Value) -> Vec<FieldError> {
    let key = key.as_str().unwrap_or_default();
    let faults = key_faults(key);
    let key = Value::from(key);
    faults.into_iter().map(|fault| FieldError::invalid(path, &key, fault)).collect()
}

/// Validates the labels at `path`.
pub fn check(path: &str, labels: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.extend(check_key(path, &key.as_str().into()));
        errors.extend(check_value(path, value));
    }
    errors
}

fn check_value(path: &str, value: &Value) -> Vec<FieldError> {
    let faults = value_faults(value.as_str().unwrap_or_default());
    faults.into_iter().map(|fault| FieldError::invalid(path, value, fault)).collect()
}

/// Validates the selector at `path`.
pub fn check_selector(path: &str, selector: &Value) -> Vec<FieldError> {
    let mut errors = check(&format!("{path}.matchLabels"), &selector["matchLabels"]);
    errors.extend(check_expressions(path, selector, false));
    errors
}

/// Validates the term of a selector of nodes at `path`, which can also compare numbers.
pub fn check_node_term(path: &str, term: &Value) -> Vec<FieldError> {
    check_expressions(path, term, true)
}

fn check_expressions(path: &str, selector: &Value, of_nodes: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, expression) in expressions(selector).enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = expression["values"].as_array().map_or(&[][..], Vec::as_slice);
        match expression["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if values.is_empty() => {
                let message = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{path}.values"), message));
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{path}.values"), message));
            }
            "Exists" | "DoesNotExist" => {}
            "Gt" | "Lt" if of_nodes && values.len() != 1 => {
                let message = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.push(FieldError::required(format!("{path}.values"), message));
            }
            "Gt" | "Lt" if of_nodes => {}
            operator => {
                let message = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{path}.operator"), &operator.into(), message));
            }
        }
        errors.extend(check_key(&format!("{path}.key"), &expression["key"]));
        for (index, value) in values.iter().enumerate() {
            errors.extend(check_value(&format!("{path}.values[{index}]"), value));
        }
    }
    errors
}

/// Whether the selector matches the labels; a missing one matches none. `None` if the selector is invalid.
pub fn matches(selector: &Value, labels: &Value) -> Option<bool> {
    if selector.is_null() {
        return Some(false);
    }
    if !check_selector("", selector).is_empty() {
        return None;
    }
    let mut expected = selector["matchLabels"].as_object().into_iter().flatten();
    let equal = expected.all(|(key, value)| labels[key.as_str()] == *value);
    let met = expressions(selector).all(|expression| {
        let label = &labels[expression["key"].as_str().unwrap_or_default()];
        let listed = expression["values"].as_array().is_some_and(|values| values.contains(label));
        match expression["operator"].as_str().unwrap_or_default() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => !label.is_null(),
            _ => label.is_null(),
        }
    });
    Some(equal && met)
}

fn expressions(selector: &Value) -> impl Iterator<Item = &Value> {
    selector["matchExpressions"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_and_values() {
        let table = [
            ("a", ""),
            ("example.com/a_B.c", ""),
            ("", "name part must be non-empty"),
            ("/a", "prefix part must be non-empty"),
            ("Example.com/k", "prefix part a lowercase RFC 1123 subdomain"),
            ("k/l/m", "a valid label key must consist of"),
            ("bad key!", "name part must consist of"),
        ];
        for (key, expected) in table {
            let faults = key_faults(key);
            assert_eq!(faults.is_empty(), expected.is_empty(), "{key}: {faults:?}");
            assert!(faults.first().is_none_or(|fault| fault.starts_with(expected)), "{key}: {faults:?}");
        }
        assert_eq!(key_faults(&"k".repeat(64)), ["name part must be no more than 63 bytes"]);
        assert!(value_faults("").is_empty());
        assert_eq!(value_faults(&"v".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(value_faults("-"), [VALUE]);
    }

    #[test]
    fn selectors() {
        let one = |operator: &str, values: Value| json!({ "matchExpressions": [{ "key": "k", "operator": operator, "values": values }] });
        let labels = json!({ "k": "v" });
        let table = [
            (Value::Null, Some(false)),
            (json!({}), Some(true)),
            (json!({ "matchLabels": { "k": "v" } }), Some(true)),
            (json!({ "matchLabels": { "k": "w" } }), Some(false)),
            (one("In", json!(["v"])), Some(true)),
            (one("NotIn", json!(["v"])), Some(false)),
            (one("Exists", Value::Null), Some(true)),
            (one("DoesNotExist", Value::Null), Some(false)),
            (one("In", Value::Null), None),
            (one("Exists", json!(["v"])), None),
            (one("Nope", Value::Null), None),
        ];
        for (selector, expected) in table {
            assert_eq!(matches(&selector, &labels), expected, "{selector}");
        }
        let errors = check_selector("s", &json!({ "matchLabels": { "bad key!": "v" } }));
        assert!(errors[0].to_string().starts_with("s.matchLabels: Invalid value: \"bad key!\": name part"));
    }
}
