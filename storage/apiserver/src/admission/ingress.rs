//! Ingresses.
//!
//! Mirrors `ValidateIngressCreate` in pkg/apis/networking/validation.

use std::net::IpAddr;

use serde_json::Value;

use super::network::{check_number, check_port_name};
use super::{ip, items, text};
use crate::names;
use crate::resources::Write;
use crate::status::FieldError;

const CLASS: &str = "kubernetes.io/ingress.class";
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
    consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
    '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Validates an Ingress.
pub fn validate(ingress: &Value) -> Vec<FieldError> {
    let spec = &ingress["spec"];
    let mut errors = Vec::new();
    let backend = &spec["defaultBackend"];
    if items(&spec["rules"]).next().is_none() && backend.is_null() {
        let message = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", &spec["rules"], message));
    }
    if !backend.is_null() {
        errors.extend(check_backend("spec.defaultBackend", backend));
    }
    for (index, rule) in items(&spec["rules"]).enumerate() {
        errors.extend(check_rule(&format!("spec.rules[{index}]"), rule));
    }
    for (index, tls) in items(&spec["tls"]).enumerate() {
        let path = format!("spec.tls[{index}]");
        for (index, host) in items(&tls["hosts"]).enumerate() {
            errors.extend(check_host(format!("{path}.hosts[{index}]"), host));
        }
        let name = text(tls, "secretName");
        let fault = names::fault(name, false).filter(|_| !name.is_empty());
        errors.extend(
            fault.map(|fault| FieldError::invalid(format!("{path}.secretName"), &name.into(), fault)),
        );
    }
    let class = &spec["ingressClassName"];
    if let Some(name) = class.as_str() {
        let fault = names::fault(name, false);
        errors.extend(fault.map(|fault| FieldError::invalid("spec.ingressClassName", class, fault)));
    }
    errors
}

/// A new Ingress has no two different classes, in a field and in the annotation before it.
pub fn validate_new(ingress: &Value) -> Vec<FieldError> {
    let (class, annotation) =
        (&ingress["spec"]["ingressClassName"], &ingress["metadata"]["annotations"][CLASS]);
    let differ = !annotation.is_null() && !class.is_null() && annotation != class;
    let message = "must match `ingressClassName` when both are specified";
    let error = differ.then(|| FieldError::invalid(format!("annotations.{CLASS}"), annotation, message));
    error.into_iter().collect()
}

/// A name of a host, which may have a wildcard.
fn check_host(path: String, host: &Value) -> Option<FieldError> {
    let name = host.as_str().unwrap_or_default();
    let fault = match name.contains('*') {
        true => {
            let valid = name.strip_prefix("*.").is_some_and(|rest| names::fault(rest, false).is_none());
            (!valid).then(|| WILDCARD.to_owned())
        }
        false => names::fault(name, false),
    };
    fault.map(|fault| FieldError::invalid(path, host, fault))
}

fn check_rule(path: &str, rule: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let host = text(rule, "host");
    if !host.is_empty() {
        let field = format!("{path}.host");
        if host.parse::<IpAddr>().is_ok() {
            let message = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(&field, &rule["host"], message));
        }
        errors.extend(check_host(field, &rule["host"]));
    }
    if !rule["http"].is_null() {
        let paths = &rule["http"]["paths"];
        let field = format!("{path}.http.paths");
        if items(paths).next().is_none() {
            errors.push(FieldError::required(&field, ""));
        }
        for (index, path) in items(paths).enumerate() {
            errors.extend(check_path(&format!("{field}[{index}]"), path));
        }
    }
    errors
}

fn check_path(path: &str, of: &Value) -> Vec<FieldError> {
    let known = ["Exact", "ImplementationSpecific", "Prefix"];
    let kind = &of["pathType"];
    if kind.is_null() || kind == "" {
        return vec![FieldError::required(format!("{path}.pathType"), "pathType must be specified")];
    }
    let mut errors = Vec::new();
    let given = text(of, "path");
    let field = format!("{path}.path");
    let mut refuse = |message: String| errors.push(FieldError::invalid(&field, &given.into(), message));
    let exact = kind == "Exact" || kind == "Prefix";
    if !known.iter().any(|known| kind == known) {
        errors.push(FieldError::not_supported(format!("{path}.pathType"), kind, &known));
    } else {
        if !given.starts_with('/') && (exact || !given.is_empty()) {
            refuse("must be an absolute path".to_owned());
        }
        for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
            if exact && given.contains(sequence) {
                refuse(format!("must not contain '{sequence}'"));
            }
        }
        for end in ["/..", "/."] {
            if exact && given.ends_with(end) {
                refuse(format!("cannot end with '{end}'"));
            }
        }
    }
    errors.extend(check_backend(&format!("{path}.backend"), &of["backend"]));
    errors
}

fn check_backend(path: &str, backend: &Value) -> Vec<FieldError> {
    let (resource, service) = (&backend["resource"], &backend["service"]);
    let invalid = |message: &str| FieldError::invalid(path, &"".into(), message);
    match (resource.is_null(), service.is_null()) {
        (true, true) => vec![invalid("resource or service backend is required")],
        (false, false) => vec![invalid("cannot set both resource and service backends")],
        (false, true) => {
            let missing = ["kind", "name"].into_iter().filter(|field| text(resource, field).is_empty());
            let mut errors: Vec<_> =
                missing.map(|field| FieldError::required(format!("{path}.resource.{field}"), "")).collect();
            let group = &resource["apiGroup"];
            let fault = group.as_str().and_then(|group| names::fault(group, false));
            let field = format!("{path}.resource.apiGroup");
            errors.extend(fault.map(|fault| FieldError::invalid(field, group, fault)));
            errors
        }
        (true, false) => check_service(path, service),
    }
}

fn check_service(path: &str, service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(service, "name");
    let field = format!("{path}.service.name");
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if let Some(fault) = names::fault(name, true) {
        errors.push(FieldError::invalid(field, &name.into(), fault));
    }
    let port = &service["port"];
    let (named, numbered) =
        (!text(port, "name").is_empty(), port["number"].as_i64().unwrap_or_default() != 0);
    match (named, numbered) {
        (true, true) => {
            errors.push(FieldError::invalid(path, &"".into(), "cannot set both port name & port number"));
        }
        (true, false) => {
            errors.extend(check_port_name(&format!("{path}.service.port.name"), &port["name"]));
        }
        (false, true) => {
            errors.extend(check_number(&format!("{path}.service.port.number"), &port["number"]));
        }
        (false, false) => errors.push(FieldError::required(path, "port name or number is required")),
    }
    errors
}

/// Validates the status of an Ingress.
pub fn validate_status(ingress: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, point) in items(&ingress["status"]["loadBalancer"]["ingress"]).enumerate() {
        let path = format!("status.loadBalancer.ingress[{index}]");
        errors.extend(check_address(format!("{path}.ip"), &point["ip"]));
        let host = text(point, "hostname");
        if !host.is_empty() {
            let fault = names::fault(host, false);
            let field = format!("{path}.hostname");
            errors.extend(fault.map(|fault| FieldError::invalid(&field, &point["hostname"], fault)));
            if host.parse::<IpAddr>().is_ok() {
                let message = "must be a DNS name, not an IP address";
                errors.push(FieldError::invalid(field, &point["hostname"], message));
            }
        }
    }
    errors
}

fn check_address(path: String, address: &Value) -> Option<FieldError> {
    let text = address.as_str().filter(|text| !text.is_empty())?;
    text.parse::<IpAddr>().is_err().then(|| FieldError::invalid(path, address, ip::INVALID))
}

/// The annotation that a field has replaced.
pub fn warnings(ingress: &Value, write: Write) -> Vec<String> {
    let annotated = !ingress["metadata"]["annotations"][CLASS].is_null();
    let deprecated = write == Write::Create && annotated && ingress["spec"]["ingressClassName"].is_null();
    let warning = format!("annotation \"{CLASS}\" is deprecated, please use 'spec.ingressClassName' instead");
    deprecated.then_some(warning).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::check, *};

    #[test]
    fn what_is_refused_of_an_ingress() {
        let service = json!({ "service": { "name": "s", "port": { "number": 80 } } });
        let path = |path: Value| json!({ "rules": [{ "http": { "paths": [path] } }] });
        let of = |kind: &str, text: &str| path(json!({ "pathType": kind, "path": text, "backend": service }));
        let backend = |service: Value| json!({ "defaultBackend": { "service": service } });
        let table = [
            (of("Prefix", "/"), ""),
            (of("ImplementationSpecific", ""), ""),
            (json!({ "rules": [{ "host": "*.example.com" }] }), ""),
            (json!({}), "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"),
            (
                of("Exact", "a"),
                "spec.rules[0].http.paths[0].path: Invalid value: \"a\": must be an absolute path",
            ),
            (
                of("Exact", "/a//b"),
                "spec.rules[0].http.paths[0].path: Invalid value: \"/a//b\": must not contain",
            ),
            (
                of("Exact", "/a/.."),
                "spec.rules[0].http.paths[0].path: Invalid value: \"/a/..\": cannot end with",
            ),
            (
                of("No", "/"),
                "spec.rules[0].http.paths[0].pathType: Unsupported value: \"No\": supported values",
            ),
            (
                path(json!({ "backend": service })),
                "spec.rules[0].http.paths[0].pathType: Required value: pathType",
            ),
            (
                path(json!({ "pathType": "Exact", "path": "/" })),
                "spec.rules[0].http.paths[0].backend: Invalid value",
            ),
            (
                json!({ "rules": [{ "host": "192.0.2.1" }] }),
                "spec.rules[0].host: Invalid value: \"192.0.2.1\": must be",
            ),
            (
                json!({ "rules": [{ "host": "a.*" }] }),
                "spec.rules[0].host: Invalid value: \"a.*\": a wildcard DNS-1123",
            ),
            (json!({ "rules": [{ "http": {} }] }), "spec.rules[0].http.paths: Required value"),
            (
                backend(json!({ "name": "s" })),
                "spec.defaultBackend: Required value: port name or number is required",
            ),
            (
                backend(json!({ "name": "s", "port": { "name": "a", "number": 1 } })),
                "spec.defaultBackend: Invalid value: \"\": cannot set both port name & port number",
            ),
            (backend(json!({ "port": { "number": 1 } })), "spec.defaultBackend.service.name: Required value"),
        ];
        for (spec, expected) in table {
            check(validate, json!({ "spec": spec }), expected);
        }
        let point = |point: Value| json!({ "status": { "loadBalancer": { "ingress": [point] } } });
        check(validate_status, point(json!({ "ip": "x" })), "status.loadBalancer.ingress[0].ip: Invalid");
        check(
            validate_status,
            point(json!({ "hostname": "192.0.2.1" })),
            "status.loadBalancer.ingress[0].ho",
        );
        let annotated = json!({ "metadata": { "annotations": { CLASS: "nginx" } }, "spec": {} });
        assert_eq!(warnings(&annotated, Write::Create).len(), 1);
    }
}
