//! Events: their object, and of `events.k8s.io` also what every new event has and keeps.
//!
//! Mirrors pkg/apis/core/validation/events.go. The stored shape is that of core events, and so are the names of fields in
//! errors.

use serde_json::{Value, json};

use super::{labels, text};
use crate::status::FieldError;

/// The limit of the action, the reason and the instance of the reporter.
const WORD_LIMIT: usize = 128;
/// The limit of the message.
const MESSAGE_LIMIT: usize = 1024;

/// Validates an event of the core group (`legacyValidateEvent`).
pub fn validate_core(event: &Value) -> Vec<FieldError> {
    validate_legacy(event, "reportingComponent")
}

/// Validates what every event of `events.k8s.io` has, before its metadata.
pub fn validate_first(event: &Value) -> Vec<FieldError> {
    validate_legacy(event, "reportingController")
}

/// Validates the rest of a new event of `events.k8s.io`.
pub fn validate(event: &Value) -> Vec<FieldError> {
    let mut errors = check_series(&event["series"]);
    if event["eventTime"].is_null() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid("type", &"".into(), format!("has invalid value: {kind}")));
    }
    let is_set = |field: &str| !event[field].is_null() && event[field] != 0 && event[field] != json!({});
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        if is_set(field) {
            errors.push(FieldError::invalid(field, &"".into(), "needs to be unset"));
        }
    }
    errors
}

/// Validates a change of an event of the core group.
pub fn validate_core_update(_: &Value, new: &Value) -> Vec<FieldError> {
    validate_core(new)
}

/// Validates a change of an event of `events.k8s.io`: only its series may change.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = validate_legacy(new, "reportingController");
    errors.extend(check_series(&new["series"]));
    let fields = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ];
    let none = |value: &Value| value.is_null() || *value == "" || *value == json!({});
    for field in fields {
        if old[field] != new[field] && !(none(&old[field]) && none(&new[field])) {
            let path = if field == "reportingComponent" { "reportingController" } else { field };
            errors.push(FieldError::immutable(path, &shown(field, &new[field])));
        }
    }
    errors
}

fn validate_legacy(event: &Value, reporter: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (of_event, of_object) =
        (text(&event["metadata"], "namespace"), text(&event["involvedObject"], "namespace"));
    // Events with this time are of the new kind.
    let is_new = !event["eventTime"].is_null();
    // Events about objects of the cluster are in the default namespace.
    let matches = match of_object {
        "" if is_new => ["default", "kube-system"].contains(&of_event),
        "" => ["", "default"].contains(&of_event),
        namespace => is_new || namespace == of_event,
    };
    if !matches {
        let detail = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &of_object.into(), detail));
    }
    if !is_new {
        return errors;
    }
    let controller = text(event, "reportingComponent");
    if controller.is_empty() {
        errors.push(FieldError::required(reporter, ""));
    }
    let faults = labels::key_faults(controller).into_iter();
    errors.extend(faults.map(|fault| FieldError::invalid(reporter, &controller.into(), fault)));
    for field in ["reportingInstance", "action", "reason"] {
        let word = text(event, field);
        if word.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        errors.extend(check_length(field, word, WORD_LIMIT));
    }
    errors.extend(check_length("message", text(event, "message"), MESSAGE_LIMIT));
    errors
}

fn check_length(field: &str, value: &str, limit: usize) -> Option<FieldError> {
    let detail = format!("can have at most {limit} characters");
    (value.len() > limit).then(|| FieldError::invalid(field, &"".into(), detail))
}

fn check_series(series: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if series.is_null() {
        return errors;
    }
    if series["count"].as_i64().unwrap_or_default() < 2 {
        errors.push(FieldError::invalid("series.count", &"".into(), "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
    errors
}

/// A value as the internal type of upstream, which has no JSON names.
fn shown(field: &str, value: &Value) -> Value {
    let internal = |names: &[&str]| -> Value {
        let fields = names.iter().map(|name| {
            let json_name = match *name {
                "UID" => "uid".to_owned(),
                "APIVersion" => "apiVersion".to_owned(),
                name => format!("{}{}", name[..1].to_ascii_lowercase(), &name[1..]),
            };
            ((*name).to_owned(), text(value, &json_name).into())
        });
        Value::Object(fields.collect())
    };
    match field {
        "involvedObject" => {
            internal(&["Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath"])
        }
        "source" => internal(&["Component", "Host"]),
        "reason" | "message" | "type" | "action" | "reportingComponent" | "reportingInstance" => {
            value.as_str().unwrap_or_default().into()
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Value {
        json!({
            "metadata": { "namespace": "n" }, "involvedObject": { "kind": "Pod", "namespace": "n", "name": "p" },
            "eventTime": "2020-01-01T00:00:00.000001Z", "type": "Normal", "reason": "R", "action": "A", "source": {},
            "reportingComponent": "example.com/c", "reportingInstance": "i",
        })
    }

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_refused_of_an_event() {
        let validate = |event: &Value| texts([validate_first(event), validate(event)].concat());
        assert_eq!(validate(&event()), Vec::<String>::new());
        let table = [
            ("action", json!(""), "action: Required value"),
            ("type", json!("Nope"), "type: Invalid value: \"\": has invalid value: Nope"),
            ("involvedObject", json!({}), "involvedObject.namespace: Invalid value: \"\": does not match"),
            ("eventTime", Value::Null, "eventTime: Required value"),
            ("count", json!(1), "count: Invalid value: \"\": needs to be unset"),
            ("series", json!({ "count": 2 }), "series.lastObservedTime: Required value"),
            (
                "reason",
                json!("r".repeat(129)),
                "reason: Invalid value: \"\": can have at most 128 characters",
            ),
        ];
        for (field, value, expected) in table {
            let mut event = event();
            event[field] = value;
            let errors = validate(&event);
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{expected}: {errors:?}");
        }
        let mut other = event();
        other["involvedObject"]["namespace"] = "other".into();
        assert_eq!(validate(&other), Vec::<String>::new(), "of the new kind, about another namespace");
        let core = json!({ "metadata": { "namespace": "default" }, "involvedObject": { "kind": "Node", "name": "n" } });
        assert_eq!(texts(validate_core(&core)), Vec::<String>::new(), "of the cluster");
    }

    #[test]
    fn only_the_series_changes() {
        let mut new = event();
        new["series"] = json!({ "count": 2, "lastObservedTime": "2020-01-01T00:00:02.000000Z" });
        assert_eq!(texts(validate_update(&event(), &new)), Vec::<String>::new());
        new["involvedObject"]["namespace"] = "n".into();
        new["involvedObject"]["name"] = "q".into();
        let expected = "involvedObject: Invalid value: {\"Kind\":\"Pod\",\"Namespace\":\"n\",\"Name\":\"q\",\"UID\":\"\",\
                        \"APIVersion\":\"\",\"ResourceVersion\":\"\",\"FieldPath\":\"\"}: field is immutable";
        assert_eq!(texts(validate_update(&event(), &new)), [expected]);
    }
}
