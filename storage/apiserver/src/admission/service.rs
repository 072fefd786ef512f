//! Services: their type, ports, selector and session affinity. Addresses are not validated, as none is allocated.
//!
//! Mirrors `ValidateService` in pkg/apis/core/validation.

use serde_json::{Value, json};

use super::{labels, text};
use crate::names;
use crate::status::FieldError;

/// Validates a service.
pub fn validate(service: &Value) -> Vec<FieldError> {
    let spec = &service["spec"];
    let mut errors = Vec::new();
    let kind = text(spec, "type");
    let has_address = spec["clusterIP"] != "None" && kind != "ExternalName";
    let ports: Vec<&Value> = spec["ports"].as_array().into_iter().flatten().collect();
    if has_address && ports.is_empty() {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text(spec, "externalName").is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    }
    let mut port_names = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        errors.extend(check_port(&format!("spec.ports[{index}]"), port, ports.len() > 1, &mut port_names));
    }
    errors.extend(labels::check("spec.selector", &spec["selector"]));
    errors.extend(check_choice("spec.sessionAffinity", &spec["sessionAffinity"], &["ClientIP", "None"]));
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    errors.extend(check_choice("spec.type", &spec["type"], &kinds));
    errors.extend(repeated_ports(&ports));
    errors
}

/// Validates the status of a service (`ValidateLoadBalancerStatus`).
pub fn validate_status(service: &Value) -> Vec<FieldError> {
    let ingress = &service["status"]["loadBalancer"]["ingress"];
    if service["spec"]["type"] == "LoadBalancer" || ingress.as_array().is_none_or(Vec::is_empty) {
        return Vec::new();
    }
    let detail = "may only be used when `spec.type` is 'LoadBalancer'";
    vec![FieldError::forbidden("status.loadBalancer.ingress", detail)]
}

fn check_port<'a>(
    path: &str,
    port: &'a Value,
    needs_name: bool,
    names: &mut Vec<&'a str>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(port, "name");
    if name.is_empty() {
        errors.extend(needs_name.then(|| FieldError::required(format!("{path}.name"), "")));
    } else {
        let fault = names::fault(name, true);
        errors.extend(fault.map(|fault| FieldError::invalid(format!("{path}.name"), &name.into(), fault)));
        if names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
        names.push(name);
    }
    errors.extend(check_number(&format!("{path}.port"), &port["port"]));
    errors.extend(check_choice(&format!("{path}.protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]));
    if port["targetPort"].is_number() {
        errors.extend(check_number(&format!("{path}.targetPort"), &port["targetPort"]));
    }
    errors
}

fn check_number(path: &str, number: &Value) -> Option<FieldError> {
    let valid = number.as_i64().is_some_and(|number| (1..=65535).contains(&number));
    (!valid).then(|| FieldError::invalid(path, number, "must be between 1 and 65535, inclusive"))
}

fn check_choice(path: &str, value: &Value, choices: &[&str]) -> Option<FieldError> {
    let known = value.as_str().is_some_and(|value| choices.contains(&value));
    (!known).then(|| FieldError::not_supported(path, value, choices))
}

/// Two ports with the same number and protocol. Upstream shows its internal type.
fn repeated_ports(ports: &[&Value]) -> Vec<FieldError> {
    let same = |a: &Value, b: &Value| a["port"] == b["port"] && a["protocol"] == b["protocol"];
    let repeated =
        ports.iter().enumerate().filter(|(index, port)| ports[..*index].iter().any(|one| same(one, port)));
    let errors = repeated.map(|(index, port)| {
        let shown = json!({
            "Name": "", "Protocol": port["protocol"], "AppProtocol": null, "Port": port["port"], "TargetPort": 0,
            "NodePort": 0,
        });
        FieldError::duplicate(format!("spec.ports[{index}]"), &shown)
    });
    errors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_of_a_service() {
        let port = |name: &str, number: u32| json!({ "name": name, "port": number, "protocol": "TCP", "targetPort": number });
        let table = [
            (json!({ "clusterIP": "None" }), ""),
            (json!({ "ports": [port("", 80)] }), ""),
            (json!({ "type": "ExternalName", "externalName": "x" }), ""),
            (json!({}), "spec.ports: Required value"),
            (json!({ "type": "ExternalName" }), "spec.externalName: Required value"),
            (
                json!({ "type": "Nope", "clusterIP": "None" }),
                "spec.type: Unsupported value: \"Nope\": supported values",
            ),
            (
                json!({ "ports": [port("A_", 80)] }),
                "spec.ports[0].name: Invalid value: \"A_\": a lowercase RFC 1123 label",
            ),
            (json!({ "ports": [port("", 80), port("a", 81)] }), "spec.ports[0].name: Required value"),
            (
                json!({ "ports": [port("a", 80), port("b", 80)] }),
                "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80",
            ),
            (
                json!({ "clusterIP": "None", "sessionAffinity": "No" }),
                "spec.sessionAffinity: Unsupported value",
            ),
            (json!({ "clusterIP": "None", "selector": { "bad key!": "v" } }), "spec.selector: Invalid value"),
        ];
        for (mut spec, expected) in table {
            for (field, value) in [("type", "ClusterIP"), ("sessionAffinity", "None")] {
                if spec[field].is_null() {
                    spec[field] = value.into();
                }
            }
            let errors: Vec<String> =
                validate(&json!({ "spec": spec })).iter().map(ToString::to_string).collect();
            assert_eq!(errors.len(), usize::from(!expected.is_empty()), "{spec}: {errors:?}");
            assert!(errors.iter().all(|error| error.starts_with(expected)), "{spec}: {errors:?}");
        }
    }

    #[test]
    fn both_numbers_of_a_port_are_ports() {
        let spec = json!({ "ports": [{ "port": 0, "targetPort": 0, "protocol": "TCP" }], "type": "ClusterIP", "sessionAffinity": "None" });
        let errors: Vec<String> =
            validate(&json!({ "spec": spec })).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            ["port", "targetPort"].map(|field| {
                format!("spec.ports[0].{field}: Invalid value: 0: must be between 1 and 65535, inclusive")
            })
        );
    }
}
