//! IngressClasses.
//!
//! Mirrors `ValidateIngressClass` in pkg/apis/networking/validation.

use serde_json::Value;

use super::{check_reference, text};
use crate::names;
use crate::status::FieldError;

const CONTROLLER: usize = 250;
const SCOPES: [&str; 2] = ["Cluster", "Namespace"];

/// Validates an IngressClass.
pub fn validate(class: &Value) -> Vec<FieldError> {
    let controller = text(&class["spec"], "controller");
    let mut errors = Vec::new();
    if controller.len() > CONTROLLER {
        errors.push(FieldError::too_long("spec.controller", CONTROLLER));
    }
    errors.extend(check_controller("spec.controller", controller));
    let parameters = &class["spec"]["parameters"];
    if !parameters.is_null() {
        errors.extend(check_parameters("spec.parameters", parameters));
    }
    errors
}

/// Validates a change of an IngressClass: its controller is immutable.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let changed = old["spec"]["controller"] != new["spec"]["controller"];
    let controller = text(&new["spec"], "controller").into();
    let immutable = changed.then(|| FieldError::immutable("spec.controller", &controller));
    immutable.into_iter().chain(validate(new)).collect()
}

/// A domain and a path, as `IsDomainPrefixedPath` in apimachinery pkg/util/validation.
fn check_controller(path: &str, controller: &str) -> Vec<FieldError> {
    const PATH: &str = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
    if controller.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let parts = controller.split_once('/').filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty());
    let Some((domain, rest)) = parts else {
        let message = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![FieldError::invalid(path, &controller.into(), message)];
    };
    let fault = names::fault(domain, false);
    let mut errors: Vec<_> =
        fault.into_iter().map(|fault| FieldError::invalid(path, &domain.into(), fault)).collect();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if !rest.chars().all(plain) {
        errors.push(FieldError::invalid(path, &rest.into(), PATH));
    }
    errors
}

fn check_parameters(path: &str, parameters: &Value) -> Vec<FieldError> {
    let at = |field: &str| format!("{path}.{field}");
    let mut errors = Vec::new();
    if let Some(group) = parameters["apiGroup"].as_str() {
        let fault = names::fault(group, false);
        errors.extend(fault.map(|fault| FieldError::invalid(at("apiGroup"), &group.into(), fault)));
    }
    errors.extend(check_reference(path, parameters));
    let namespace = &parameters["namespace"];
    match (parameters["scope"].as_str(), namespace.as_str()) {
        (None, _) => errors.push(FieldError::required(at("scope"), "")),
        (Some("Namespace"), None) => {
            errors.push(FieldError::required(at("namespace"), "`parameters.scope` is set to 'Namespace'"));
        }
        (Some("Namespace"), Some(name)) => {
            let fault = names::fault(name, true);
            errors.extend(fault.map(|fault| FieldError::invalid(at("namespace"), namespace, fault)));
        }
        (Some("Cluster"), Some(_)) => {
            errors.push(FieldError::forbidden(at("namespace"), "`parameters.scope` is set to 'Cluster'"));
        }
        (Some("Cluster"), None) => {}
        (Some(_), _) => errors.push(FieldError::not_supported(at("scope"), &parameters["scope"], &SCOPES)),
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::check, *};

    #[test]
    fn what_is_refused_of_an_ingress_class() {
        let of = |controller: &str| json!({ "spec": { "controller": controller } });
        let parameters = |fields: Value| {
            let mut parameters = json!({ "kind": "K", "name": "n", "scope": "Cluster" });
            for (field, value) in fields.as_object().into_iter().flatten() {
                parameters[field] = value.clone();
            }
            json!({ "spec": { "controller": "a.io/b", "parameters": parameters } })
        };
        let table = [
            (of("a.io/b"), ""),
            (parameters(json!({ "apiGroup": "a.io" })), ""),
            (parameters(json!({ "scope": "Namespace", "namespace": "n" })), ""),
            (of(""), "spec.controller: Required value"),
            (of("a.io"), "spec.controller: Invalid value: \"a.io\": must be a domain-prefixed path (such as"),
            (of("A_/b"), "spec.controller: Invalid value: \"A_\": a lowercase RFC 1123 subdomain"),
            (
                of("a.io/b c"),
                "spec.controller: Invalid value: \"b c\": Invalid path (regex used for validation is",
            ),
            (parameters(json!({ "kind": "" })), "spec.parameters.kind: Required value"),
            (
                parameters(json!({ "name": "a/b" })),
                "spec.parameters.name: Invalid value: \"a/b\": may not contain '/'",
            ),
            (parameters(json!({ "scope": "No" })), "spec.parameters.scope: Unsupported value: \"No\""),
            (
                parameters(json!({ "scope": "Namespace" })),
                "spec.parameters.namespace: Required value: `parameters.scope`",
            ),
            (
                parameters(json!({ "namespace": "n" })),
                "spec.parameters.namespace: Forbidden: `parameters.scope` is set to",
            ),
        ];
        for (class, expected) in table {
            check(validate, class, expected);
        }
        let errors = validate_update(&of("a.io/b"), &of("a.io/c"));
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["spec.controller: Invalid value: \"a.io/c\": field is immutable"]
        );
    }
}
