//! The configurations of admission webhooks. They are never called, about which each write of one warns.
//!
//! Mirrors pkg/apis/admissionregistration/validation, without the CEL of match conditions, and
//! apiserver pkg/util/webhook/validation.go.

use std::collections::HashSet;

use http::Uri;
use serde_json::Value;

use super::{items, labels, text};
use crate::names;
use crate::resources::Write;
use crate::status::FieldError;

const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// Upstream's message for a webhook without versions of reviews.
const REVIEWS: &str = "must specify one of v1, v1beta1";

/// Fields of a webhook with a set of values.
const CHOICES: [(&str, &[&str]); 3] = [
    ("failurePolicy", &["Fail", "Ignore"]),
    ("matchPolicy", &["Equivalent", "Exact"]),
    ("reinvocationPolicy", &["IfNeeded", "Never"]),
];

/// The difference from a stock API server that the writer should know.
pub fn warnings(configuration: &Value, _: Write) -> Vec<String> {
    let called = items(&configuration["webhooks"]).next().is_some();
    let warning = "claimcheck's API server stores admission webhooks, and does not call them";
    called.then(|| warning.to_owned()).into_iter().collect()
}

/// Validates a configuration of webhooks of either kind.
pub fn validate(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = HashSet::new();
    for (index, webhook) in items(&configuration["webhooks"]).enumerate() {
        let path = format!("webhooks[{index}]");
        errors.extend(check_webhook(&path, webhook));
        let versions = format!("{path}.admissionReviewVersions");
        errors.extend(check_versions(&versions, &webhook["admissionReviewVersions"], REVIEWS));
        let name = text(webhook, "name");
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
    }
    errors
}

fn check_webhook(path: &str, webhook: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(check_name(&format!("{path}.name"), text(webhook, "name")));
    for (index, rule) in items(&webhook["rules"]).enumerate() {
        errors.extend(check_rule(&format!("{path}.rules[{index}]"), rule));
    }
    let choice = |field: &str, known: &[&str]| {
        let value = &webhook[field];
        let unknown = !value.is_null() && !known.iter().any(|known| value == known);
        unknown.then(|| FieldError::not_supported(format!("{path}.{field}"), value, known))
    };
    errors.extend(CHOICES[..2].iter().filter_map(|(field, known)| choice(field, known)));
    let effects = ["None", "NoneOnDryRun"];
    // An empty one is what the type has for a missing one.
    if text(webhook, "sideEffects").is_empty() {
        let message = "must specify one of None, NoneOnDryRun";
        errors.push(FieldError::required(format!("{path}.sideEffects"), message));
    }
    if !text(webhook, "sideEffects").is_empty() {
        errors.extend(choice("sideEffects", &effects));
    }
    if webhook["timeoutSeconds"].as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        let message = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(
            format!("{path}.timeoutSeconds"),
            &webhook["timeoutSeconds"],
            message,
        ));
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        errors.extend(labels::check_selector(&format!("{path}.{selector}"), &webhook[selector]));
    }
    errors.extend(choice(CHOICES[2].0, CHOICES[2].1));
    errors.extend(check_client(&format!("{path}.clientConfig"), &webhook["clientConfig"]));
    errors.extend(check_conditions(&format!("{path}.matchConditions"), webhook));
    errors
}

/// `IsFullyQualifiedName`.
fn check_name(path: &str, name: &str) -> Option<FieldError> {
    if name.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    let short = name.split('.').count() < 3;
    let message = "should be a domain with at least three segments separated by dots";
    let fault = names::fault(name, false).or_else(|| short.then(|| message.to_owned()));
    fault.map(|fault| FieldError::invalid(path, &name.into(), fault))
}

/// `validateRuleWithOperations`.
fn check_rule(path: &str, rule: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let named = [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")];
    for (field, title) in named {
        let values: Vec<&Value> = items(&rule[field]).collect();
        let path = format!("{path}.{field}");
        if values.is_empty() {
            errors.push(FieldError::required(&path, ""));
        }
        if values.len() > 1 && values.iter().any(|value| **value == "*") {
            let message = format!("if '*' is present, must not specify other {title}");
            errors.push(FieldError::invalid(&path, &rule[field], message));
        }
        let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        for (index, value) in values.iter().enumerate() {
            let path = format!("{path}[{index}]");
            match field {
                "operations" if !known.iter().any(|known| **value == *known) => {
                    errors.push(FieldError::not_supported(path, value, &known));
                }
                // The group of the core kinds is empty.
                "apiVersions" if **value == "" => errors.push(FieldError::required(path, "")),
                _ => {}
            }
        }
    }
    errors.extend(check_resources(&format!("{path}.resources"), &rule["resources"]));
    let (scope, known) = (&rule["scope"], ["*", "Cluster", "Namespaced"]);
    if !scope.is_null() && !known.iter().any(|known| scope == known) {
        errors.push(FieldError::not_supported(format!("{path}.scope"), scope, &known));
    }
    errors
}

/// `validateResources`: none is listed that a wildcard before it includes.
fn check_resources(path: &str, resources: &Value) -> Vec<FieldError> {
    let all: Vec<&str> = items(resources).filter_map(Value::as_str).collect();
    let mut errors = Vec::new();
    if all.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut of_resource, mut of_subresource) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for (index, given) in all.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if given.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let Some((resource, subresource)) = given.split_once('/') else {
            plain = *given != "*";
            continue;
        };
        let wildcards = [
            (of_resource.contains(resource), format!("{resource}/*")),
            (of_subresource.contains(subresource), format!("*/{subresource}")),
        ];
        for (_, wildcard) in wildcards.into_iter().filter(|(present, _)| *present) {
            let message = format!("if '{wildcard}' is present, must not specify {given}");
            errors.push(FieldError::invalid(&path, &(*given).into(), message));
        }
        if subresource == "*" {
            of_resource.insert(resource);
        }
        if resource == "*" {
            of_subresource.insert(subresource);
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        let message = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, resources, message));
    }
    if all.contains(&"*") && plain {
        let message = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, resources, message));
    }
    errors
}

/// What calls a webhook: a URL or a service.
pub fn check_client(path: &str, client: &Value) -> Vec<FieldError> {
    let (url, service) = (&client["url"], &client["service"]);
    match (url.as_str(), service.is_null()) {
        (Some(_), false) | (None, true) => {
            vec![FieldError::required(path, "exactly one of url or service is required")]
        }
        (Some(url), true) => check_url(&format!("{path}.url"), url),
        (None, false) => check_service(&format!("{path}.service"), service),
    }
}

/// `ValidateWebhookURL`.
fn check_url(path: &str, url: &str) -> Vec<FieldError> {
    const FORM: &str = "; desired format: https://host[/path]";
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    let Ok(parsed) = before.parse::<Uri>() else {
        let message = format!("url must be a valid URL: parse {}{FORM}", crate::quote::quote(url));
        return vec![FieldError::required(path, &message)];
    };
    let mut errors = Vec::new();
    let mut refuse =
        |value: &str, message: &str| errors.push(FieldError::invalid(path, &value.into(), message));
    let (scheme, authority) = (
        parsed.scheme_str().unwrap_or_default(),
        parsed.authority().map_or("", |authority| authority.as_str()),
    );
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        refuse(scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        refuse("", &format!("host must be specified{FORM}"));
    }
    if !user.is_empty() {
        refuse(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        refuse(fragment, "fragments are not permitted in the URL");
    }
    if let Some(query) = parsed.query().filter(|query| !query.is_empty()) {
        refuse(query, "query parameters are not permitted in the URL");
    }
    errors
}

/// `ValidateWebhookService`.
fn check_service(path: &str, service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // Upstream's caller passes the name as the namespace, and the namespace as the name.
    for (field, checked) in [("name", "namespace"), ("namespace", "name")] {
        let missing = text(service, checked).is_empty();
        errors.extend(missing.then(|| FieldError::required(format!("{path}.{field}"), "")));
    }
    let port = &service["port"];
    if !port.as_i64().is_some_and(|port| (1..=65535).contains(&port)) {
        let message = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{path}.port"), port, message));
    }
    let given = text(service, "path");
    if given.is_empty() || given == "/" {
        return errors;
    }
    let field = format!("{path}.path");
    let mut refuse = |message: String| errors.push(FieldError::invalid(&field, &given.into(), message));
    if !given.starts_with('/') {
        refuse("must start with a '/'".to_owned());
    }
    let steps = given.get(1..).unwrap_or_default();
    let steps = if given == "//" { steps } else { steps.strip_suffix('/').unwrap_or(steps) };
    for (index, step) in steps.split('/').enumerate() {
        if step.is_empty() {
            refuse(format!("segment[{index}] may not be empty"));
        } else if let Some(fault) = names::fault(step, false) {
            refuse(format!("segment[{index}]: {fault}"));
        }
        if given == "//" {
            break;
        }
    }
    errors
}

fn check_conditions(path: &str, webhook: &Value) -> Vec<FieldError> {
    const LIMIT: usize = 64;
    let mut errors = Vec::new();
    let mut seen = HashSet::new();
    let count = items(&webhook["matchConditions"]).count();
    errors.extend((count > LIMIT).then(|| FieldError::too_many(path, count, LIMIT)));
    for (index, condition) in items(&webhook["matchConditions"]).enumerate() {
        let path = format!("{path}[{index}]");
        if text(condition, "expression").trim().is_empty() {
            errors.push(FieldError::required(format!("{path}.expression"), ""));
        }
        let name = text(condition, "name");
        let field = format!("{path}.name");
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        errors.extend(labels::check_key(&field, &condition["name"]));
        errors.extend((!seen.insert(name)).then(|| FieldError::duplicate(&field, &name.into())));
    }
    errors
}

/// `validateAdmissionReviewVersions`, and `validateConversionReviewVersions` with another `message` if there are none.
pub fn check_versions(path: &str, given: &Value, message: &str) -> Vec<FieldError> {
    let versions: Vec<&str> = items(given).filter_map(Value::as_str).collect();
    if versions.is_empty() {
        return vec![FieldError::required(path, message)];
    }
    let mut errors = Vec::new();
    let mut seen = HashSet::new();
    for (index, version) in versions.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let value = Value::from(*version);
        if !seen.insert(version) {
            errors.push(FieldError::invalid(path, &value, "duplicate version"));
            continue;
        }
        let starts = version.starts_with(|first: char| first.is_ascii_lowercase());
        let is_label = starts && names::fault(version, true).is_none();
        errors.extend((!is_label).then(|| FieldError::invalid(path, &value, DNS_1035)));
    }
    if !versions.iter().any(|version| ["v1", "v1beta1"].contains(version)) {
        errors.push(FieldError::invalid(path, given, "must include at least one of v1, v1beta1"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn webhook() -> Value {
        json!({
            "name": "a.example.com", "clientConfig": { "service": { "namespace": "n", "name": "s", "port": 443 } },
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/*"],
                "scope": "*",
            }],
            "failurePolicy": "Fail", "matchPolicy": "Exact", "sideEffects": "None", "timeoutSeconds": 10,
            "admissionReviewVersions": ["v1"],
        })
    }

    #[test]
    fn what_is_refused_of_a_webhook() {
        let configuration = |webhook: Value| json!({ "webhooks": [webhook] });
        assert_eq!(validate(&configuration(webhook())), []);
        let table = [
            (
                json!({ "name": "a.b" }),
                "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least",
            ),
            (
                json!({ "failurePolicy": "No" }),
                "webhooks[0].failurePolicy: Unsupported value: \"No\": supported",
            ),
            (
                json!({ "sideEffects": "Some" }),
                "webhooks[0].sideEffects: Unsupported value: \"Some\": supported",
            ),
            (
                json!({ "sideEffects": null }),
                "webhooks[0].sideEffects: Required value: must specify one of None, No",
            ),
            (
                json!({ "timeoutSeconds": 31 }),
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value",
            ),
            (
                json!({ "clientConfig": null }),
                "webhooks[0].clientConfig: Required value: exactly one of url or serv",
            ),
            (
                json!({ "admissionReviewVersions": [] }),
                "webhooks[0].admissionReviewVersions: Required value: must",
            ),
            (
                json!({ "admissionReviewVersions": ["v9"] }),
                "webhooks[0].admissionReviewVersions: Invalid value",
            ),
            (
                json!({ "matchConditions": [{ "name": "n" }] }),
                "webhooks[0].matchConditions[0].expression: Required",
            ),
            (
                json!({ "reinvocationPolicy": "No" }),
                "webhooks[0].reinvocationPolicy: Unsupported value: \"No\"",
            ),
            (
                json!({ "clientConfig": { "service": { "path": "/a//b" } } }),
                "webhooks[0].clientConfig.service.path: Invalid value: \"/a//b\": segment[1] may not be empty",
            ),
            (
                json!({ "clientConfig": { "service": null, "url": "http://x" } }),
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme",
            ),
            (
                json!({ "clientConfig": { "service": null, "url": "https://x/y?z=1" } }),
                "webhooks[0].clientConfig.url: Invalid value: \"z=1\": query parameters are not permitted",
            ),
        ];
        for (patch, expected) in table {
            let mut webhook = webhook();
            json_patch::merge(&mut webhook, &patch);
            let errors: Vec<String> =
                validate(&configuration(webhook)).iter().map(ToString::to_string).collect();
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{expected}: {errors:?}");
        }
        let twice = json!({ "webhooks": [webhook(), webhook()] });
        assert_eq!(validate(&twice), [FieldError::duplicate("webhooks[1].name", &json!("a.example.com"))]);
    }

    #[test]
    fn what_is_refused_of_a_rule() {
        let table = [
            (json!({ "operations": [] }), "r.operations: Required value"),
            (json!({ "operations": ["GET"] }), "r.operations[0]: Unsupported value: \"GET\""),
            (
                json!({ "apiGroups": ["*", "a"] }),
                "r.apiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present",
            ),
            (json!({ "apiVersions": [""] }), "r.apiVersions[0]: Required value"),
            (
                json!({ "resources": ["pods/*", "pods/log"] }),
                "r.resources[1]: Invalid value: \"pods/log\": if 'pods/*'",
            ),
            (
                json!({ "resources": ["*/*", "a"] }),
                "r.resources: Invalid value: [\"*/*\",\"a\"]: if '*/*' is present",
            ),
            (
                json!({ "resources": ["*", "a"] }),
                "r.resources: Invalid value: [\"*\",\"a\"]: if '*' is present",
            ),
            (
                json!({ "scope": "No" }),
                "r.scope: Unsupported value: \"No\": supported values: \"*\", \"Cluster\"",
            ),
        ];
        for (patch, expected) in table {
            let mut rule = webhook()["rules"][0].clone();
            json_patch::merge(&mut rule, &patch);
            let errors: Vec<String> = check_rule("r", &rule).iter().map(ToString::to_string).collect();
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{expected}: {errors:?}");
        }
    }

    #[test]
    fn webhooks_that_are_never_called_cause_a_warning() {
        assert_eq!(warnings(&json!({ "webhooks": [webhook()] }), Write::Create).len(), 1);
        assert!(warnings(&json!({}), Write::Update).is_empty());
    }
}
