//! RuntimeClasses.
//!
//! Mirrors pkg/apis/node/validation.

use serde_json::{Value, json};

use super::{labels, pod, text};
use crate::names;
use crate::status::FieldError;

/// Validates a RuntimeClass.
pub fn validate(class: &Value) -> Vec<FieldError> {
    let handler = text(class, "handler");
    let mut errors = match names::fault(handler, true) {
        _ if handler.is_empty() => vec![FieldError::required("handler", "")],
        fault => Vec::from_iter(fault.map(|fault| FieldError::invalid("handler", &handler.into(), fault))),
    };
    errors.extend(pod::check_resources("overhead", &json!({ "limits": class["overhead"]["podFixed"] })));
    let scheduling = &class["scheduling"];
    errors.extend(labels::check("scheduling.nodeSelector", &scheduling["nodeSelector"]));
    errors.extend(pod::check_tolerations("scheduling", scheduling));
    errors
}

/// Validates a change of a RuntimeClass: its handler is immutable.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let changed = old["handler"] != new["handler"];
    let immutable = changed.then(|| FieldError::immutable("handler", &text(new, "handler").into()));
    validate(new).into_iter().chain(immutable).collect()
}

/// Deprecated labels of nodes (`GetWarningsForRuntimeClass`).
pub fn warnings(class: &Value) -> Vec<String> {
    let selector = class["scheduling"]["nodeSelector"].as_object();
    let keys = selector.into_iter().flat_map(|selector| selector.keys());
    let deprecated = keys.filter_map(|key| pod::warnings::of_label(key));
    deprecated.map(|warning| format!("scheduling.nodeSelector: {warning}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::check, *};

    #[test]
    fn what_is_refused_of_a_runtime_class() {
        let table = [
            (json!({ "handler": "h" }), ""),
            (json!({}), "handler: Required value"),
            (json!({ "handler": "A_" }), "handler: Invalid value: \"A_\": a lowercase RFC 1123 label"),
            (
                json!({ "handler": "h", "overhead": { "podFixed": { "cpu": "-1" } } }),
                "overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
            (
                json!({ "handler": "h", "scheduling": { "tolerations": [{ "key": "k", "operator": "No" }] } }),
                "scheduling.tolerations[0].operator: Unsupported value: \"No\"",
            ),
        ];
        for (class, expected) in table {
            check(validate, class, expected);
        }
        assert_eq!(validate_update(&json!({ "handler": "h" }), &json!({ "handler": "i" })).len(), 1);
    }
}
