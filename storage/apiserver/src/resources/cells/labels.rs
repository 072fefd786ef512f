//! Selectors and labels in the form that kubectl prints.

use std::collections::BTreeMap;

use serde_json::Value;

use super::list;
use crate::admission::labels;

/// `FormatLabels` in apimachinery pkg/labels/labels.go.
pub(in crate::resources) fn format_labels(labels: &Value) -> Value {
    let labels = sorted(equalities(labels));
    if labels.is_empty() { "<none>".into() } else { labels.into() }
}

/// `FormatLabelSelector` in apimachinery pkg/apis/meta/v1/helpers.go.
pub(in crate::resources) fn format_selector(selector: &Value) -> Value {
    if labels::matches(selector, &Value::Null).is_none() {
        return "<error>".into();
    }
    let text = selector_text(selector);
    if text.is_empty() { "<none>".into() } else { text.into() }
}

/// `Requirement.String` in apimachinery pkg/labels/selector.go, sorted by key.
pub fn selector_text(selector: &Value) -> String {
    let expressions = list(&selector["matchExpressions"]).iter().map(|expression| {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = list(&expression["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key.to_owned(), text)
    });
    sorted(equalities(&selector["matchLabels"]).chain(expressions))
}

fn equalities(labels: &Value) -> impl Iterator<Item = (String, String)> {
    let labels = labels.as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
}

/// Requirements in the order of their keys; those of one key in their own order.
fn sorted(requirements: impl Iterator<Item = (String, String)>) -> String {
    let mut of_keys = BTreeMap::<String, Vec<String>>::new();
    requirements.for_each(|(key, text)| of_keys.entry(key).or_default().push(text));
    of_keys.into_values().flatten().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_as_printed_by_upstream() {
        let selector = json!({
            "matchLabels": { "z": "y", "a": "b" },
            "matchExpressions": [
                { "key": "m", "operator": "In", "values": ["2", "1"] },
                { "key": "n", "operator": "NotIn", "values": ["1"] },
                { "key": "o", "operator": "Exists" },
                { "key": "p", "operator": "DoesNotExist" },
            ],
        });
        assert_eq!(selector_text(&selector), "a=b,m in (1,2),n notin (1),o,!p,z=y");
        assert_eq!(format_selector(&json!({})), "<none>");
        assert_eq!(
            [json!({ "q": "r", "c": "d" }), json!({})].map(|it| format_labels(&it)),
            ["c=d,q=r", "<none>"]
        );
    }
}
